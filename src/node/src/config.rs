//! Finding and trusting gpuward.toml.
//!
//! It is looked for beside the program, then beside slurm.conf, then in /etc/gpuward; it must be root's and not writable
//! by others; it is never named by a job's environment. A file that cannot be used means the last valid copy, then the
//! defaults, which only observe: a fault in it never refuses a job.

use crate::{EdgeError, files};
use gpuward_core::config::Config;
use gpuward_core::health::overrides::{Overrides, parse_table};
use gpuward_core::health::sxid::MAX_SXID;
use gpuward_core::health::xid::MAX_XID;
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

/// What the site says in the place of catalogue rows, from gpuward.toml and from the files that it names; and what is
/// wrong with those, with file and line.
pub fn overrides(config: &Config) -> (Overrides, Vec<String>) {
    let mut all = config.overrides();
    let mut complaints = Vec::new();
    let health = &config.health;
    for (path, key, max, rows) in [
        (&health.xid_catalogue, "xid", MAX_XID, &mut all.xid),
        (&health.sxid_catalogue, "sxid", MAX_SXID, &mut all.sxid),
    ] {
        if path.is_empty() {
            continue;
        }
        match files::read_own(Path::new(path), MAX_BYTES) {
            Ok(text) => {
                let (mut table, more) = parse_table(&text, key, max, path);
                complaints.extend(more);
                // What gpuward.toml says itself goes before the file.
                table.append(rows);
                *rows = table;
            }
            Err(error) => complaints.push(format!("{error}; the built-in catalogue is in force")),
        }
    }
    (all, complaints)
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

#[cfg(test)]
mod tests {
    use super::*;
    use gpuward_core::health::action::Action;

    #[test]
    fn a_sites_file_counts_line_by_line_and_gpuward_toml_goes_before_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("xid.tsv");
        files::write_atomic(&file, "xid\taction\n79\tinfo\n48\twarn\n31\toops\n", 0o644).unwrap();
        let text =
            format!("[health]\nxid_catalogue = \"{}\"\n[health.xid.79]\naction = \"warn\"\n", file.display());
        let (rows, complaints) = overrides(&Config::parse(&text, "f").unwrap());
        assert_eq!((rows.xid.get(&79), rows.xid.get(&48)), (Some(&Action::Warn), Some(&Action::Warn)));
        assert_eq!(rows.xid.len(), 2);
        assert!(
            complaints[0].starts_with(&format!("{}:4: unknown action 'oops'", file.display())),
            "{complaints:?}"
        );
        let missing = Config::parse("[health]\nsxid_catalogue = \"/no/such/file\"\n", "f").unwrap();
        let (rows, complaints) = overrides(&missing);
        assert!(rows.sxid.is_empty() && complaints[0].contains("/no/such/file"), "{complaints:?}");
    }
}
