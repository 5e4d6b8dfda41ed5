//! Finding and trusting gpuward.toml.
//!
//! It is looked for beside the program, then beside slurm.conf, then in /etc/gpuward; it must be root's and not writable
//! by others; it is never named by a job's environment. A file that cannot be used means the last valid copy, then the
//! defaults, which only observe: a fault in it never refuses a job.

use crate::{EdgeError, files};
use gpuward_core::config::Config;
use std::path::{Path, PathBuf};

/// The site's configuration file.
pub const DEFAULT_PATH: &str = "/etc/gpuward/gpuward.toml";

/// Where copies of the last valid files are kept. Fixed: the setting that could move it stands in the file itself.
const COPIES: &str = "/var/lib/gpuward/valid";

const MAX_BYTES: u64 = 1024 * 1024;

/// The configuration in force, and what is wrong with the file where something is.
#[derive(Debug, Clone, Default)]
pub struct Loaded {
    /// In force.
    pub config: Config,
    /// The file it came from; `None` for the defaults.
    pub path: Option<PathBuf>,
    /// Why the file as it stands is not in force.
    pub complaint: Option<String>,
}

/// Loads the configuration for a program started as `program`, whose slurm.conf is `slurm_conf`.
pub fn load(program: Option<&Path>, slurm_conf: Option<&Path>) -> Loaded {
    let beside = |path: &Path| path.parent().map(|folder| folder.join("gpuward.toml"));
    let candidates = [program.and_then(beside), slurm_conf.and_then(beside), Some(DEFAULT_PATH.into())];
    // symlink_metadata: a dangling or planted link is a file that is refused, not one that is absent.
    let found = candidates.into_iter().flatten().find(|path| std::fs::symlink_metadata(path).is_ok());
    found.map_or_else(Loaded::default, |path| load_file(&path))
}

/// Loads one file, or the last valid copy of it.
pub fn load_file(path: &Path) -> Loaded {
    match read(path) {
        Ok((text, config)) => {
            keep_copy(path, &text);
            Loaded { config, path: Some(path.into()), complaint: None }
        }
        Err(error) => {
            let copy = read(&copy_of(path)).ok();
            let instead =
                if copy.is_some() { "its last valid copy" } else { "the defaults, which only observe," };
            let complaint = Some(format!("{error}; {instead} is in force"));
            let config = copy.map(|(_, config)| config).unwrap_or_default();
            Loaded { config, path: Some(path.into()), complaint }
        }
    }
}

/// Reads one file without falling back to anything.
fn read(path: &Path) -> Result<(String, Config), EdgeError> {
    let text = files::read_own(path, MAX_BYTES)?;
    let config = Config::parse(&text, &path.display().to_string())?;
    Ok((text, config))
}

/// The same for somebody who looks: the file must also say one thing of every node.
///
/// # Errors
/// It cannot be read, is not to be trusted, or holds an error; with file and line.
pub fn read_whole(path: &Path) -> Result<Config, EdgeError> {
    let text = files::read_own(path, MAX_BYTES)?;
    Ok(Config::parse_whole(&text, &path.display().to_string())?)
}

fn copy_of(path: &Path) -> PathBuf {
    let name: String =
        path.to_string_lossy().chars().map(|letter| if letter == '/' { '-' } else { letter }).collect();
    Path::new(COPIES).join(name.trim_start_matches('-'))
}

/// On the healthy path nothing is written: only a file that differs from its copy is copied.
fn keep_copy(path: &Path, text: &str) {
    let copy = copy_of(path);
    if files::read_own(&copy, MAX_BYTES).is_ok_and(|known| known == text) {
        return;
    }
    let kept =
        files::own_folder(Path::new(COPIES), 0o700).and_then(|()| files::write_atomic(&copy, text, 0o600));
    if let Err(error) = kept {
        log::debug!("no copy of {} is kept: {error}", path.display());
    }
}
