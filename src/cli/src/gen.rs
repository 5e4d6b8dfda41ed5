//! `gpuward gen`: configuration for Slurm, printed, never written anywhere.

use clap::Subcommand;
use gpuward_core::config::fleet::expected_tables;
use gpuward_core::model::SnapshotFile;
use gpuward_core::slurm_conf::{self, Change, Release, Site};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Prints configuration that a site with gpuward needs.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The lines for slurm.conf, each with its reason.
    #[command(name = "slurm.conf")]
    SlurmConf(SlurmConfArgs),
    /// `[[expected]]` tables for gpuward.toml from snapshots of a fleet: equal nodes in one table, odd ones told apart.
    Expected {
        /// Files that `gpuward snapshot` wrote, one for each node.
        #[arg(required = true, value_name = "SNAPSHOT")]
        snapshots: Vec<PathBuf>,
    },
}

#[derive(Debug, clap::Args)]
struct SlurmConfArgs {
    /// Slurm's release, such as 22.05; else slurmd or scontrol on this machine is asked.
    #[arg(long)]
    release: Option<String>,
    /// The folder of gpuward's programs.
    #[arg(long, value_name = "DIR", default_value = "/usr/libexec/gpuward")]
    libexec: String,
    /// The prolog, where it is not DIR/prolog.
    #[arg(long, value_name = "PATH")]
    prolog: Option<String>,
    /// The epilog, where it is not DIR/epilog.
    #[arg(long, value_name = "PATH")]
    epilog: Option<String>,
    /// plugstack.conf, where it is not beside slurm.conf.
    #[arg(long, value_name = "PATH")]
    plugstack: Option<String>,
    /// Another value for a generated setting: KEY=VALUE replaces, KEY+=VALUE appends to a list.
    #[arg(long, value_name = "KEY[+]=VALUE")]
    set: Vec<String>,
}

/// Prints what was asked for.
pub fn run(args: &Args) -> Result<(), String> {
    let text = match &args.what {
        What::SlurmConf(args) => slurm_conf(args)?,
        What::Expected { snapshots } => expected(snapshots)?,
    };
    std::io::stdout().write_all(text.as_bytes()).map_err(|error| format!("cannot write to stdout: {error}"))
}

fn expected(snapshots: &[PathBuf]) -> Result<String, String> {
    let files: Vec<SnapshotFile> =
        snapshots.iter().map(|path| crate::snapshot::read(path)).collect::<Result<_, _>>()?;
    expected_tables(&files).map_err(|error| error.to_string())
}

fn slurm_conf(args: &SlurmConfArgs) -> Result<String, String> {
    let release = match &args.release {
        Some(text) => Release::parse(text).map_err(|error| error.to_string())?,
        None => installed_release()?,
    };
    let site = site(args)?;
    slurm_conf::generate(release, &site).map_err(|error| error.to_string())
}

fn site(args: &SlurmConfArgs) -> Result<Site, String> {
    let mut site = Site::in_libexec(args.libexec.trim_end_matches('/'));
    if let Some(path) = &args.prolog {
        site.prolog.clone_from(path);
    }
    if let Some(path) = &args.epilog {
        site.epilog.clone_from(path);
    }
    site.plugstack.clone_from(&args.plugstack);
    for path in [Some(&site.prolog), Some(&site.epilog), site.plugstack.as_ref()].into_iter().flatten() {
        // slurmd runs only absolute paths: anything else would drain every node.
        if !path.starts_with('/') {
            return Err(format!("'{path}': an absolute path is needed"));
        }
    }
    let changes: Result<Vec<Change>, _> = args.set.iter().map(|text| Change::parse(text)).collect();
    site.changes = changes.map_err(|error| error.to_string())?;
    Ok(site)
}

/// Asks Slurm's own programs; neither of them reads slurm.conf for `-V`.
fn installed_release() -> Result<Release, String> {
    let mut tried = Vec::new();
    for program in ["slurmd", "scontrol"].into_iter().filter_map(find) {
        match release_of(&program) {
            Ok(release) => return Ok(release),
            Err(error) => tried.push(format!("{}: {error}", program.display())),
        }
    }
    let tried = if tried.is_empty() { "neither is installed".to_owned() } else { tried.join("; ") };
    Err(format!("cannot ask slurmd or scontrol for Slurm's release ({tried}); name it with --release"))
}

fn release_of(program: &PathBuf) -> Result<Release, String> {
    let output =
        Command::new(program).arg("-V").stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    Release::parse(&String::from_utf8_lossy(&output.stdout)).map_err(|error| error.to_string())
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/usr/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(usual).map(|folder| folder.join(program)).find(|file| file.is_file())
}
