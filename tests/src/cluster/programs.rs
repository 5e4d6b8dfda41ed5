//! Where the programs are: Slurm's and munge's on this host, gpuward's in cargo's target folder.

use super::ClusterError;
use std::path::{Path, PathBuf};

/// The search path for Slurm's programs; also the PATH of every command the harness starts.
pub(super) const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Debian's package for each program a cluster needs.
const NEEDED: [(&str, &str); 8] = [
    ("munged", "munge"),
    ("slurmctld", "slurmctld"),
    ("slurmd", "slurmd"),
    ("scontrol", "slurm-client"),
    ("srun", "slurm-client"),
    ("sbatch", "slurm-client"),
    ("setsid", "util-linux"),
    ("unshare", "util-linux"),
];

/// Slurm's plugins are a package of their own in Debian, and without them no daemon starts.
const PLUGINS: (&str, &str) = ("/usr/lib/x86_64-linux-gnu/slurm-wlm", "slurm-wlm-basic-plugins");

/// The first of the missing programs, if any.
pub(super) fn check_installed() -> Result<(), ClusterError> {
    for (program, package) in NEEDED {
        if find(program).is_none() {
            let package =
                format!("{package} (a cluster needs munge slurmctld slurmd slurm-client {})", PLUGINS.1);
            return Err(ClusterError::NotInstalled { program: program.to_owned(), package });
        }
    }
    // Slurm from another source keeps its plugins elsewhere: only Debian's layout is judged.
    let (folder, package) = PLUGINS;
    if Path::new(folder).is_dir() && !Path::new(folder).join("select_cons_tres.so").is_file() {
        let program = format!("{folder}/select_cons_tres.so");
        return Err(ClusterError::NotInstalled { program, package: package.to_owned() });
    }
    Ok(())
}

fn find(program: &str) -> Option<PathBuf> {
    SEARCH_PATH.split(':').map(|folder| Path::new(folder).join(program)).find(|path| path.is_file())
}

/// A program that cargo built next to the running one, for example `gpuward` or `gpuward-prolog`.
///
/// # Errors
/// It has not been built.
pub fn built(program: &str) -> Result<PathBuf, ClusterError> {
    let me = std::env::current_exe().map_err(|error| ClusterError::Spec(format!("where am I: {error}")))?;
    // Tests lie in target/<profile>/deps, examples in examples, programs in target/<profile>.
    let is_above = |folder: &&Path| !folder.ends_with("deps") && !folder.ends_with("examples");
    let folder = me.ancestors().skip(1).find(is_above);
    let path = folder.unwrap_or(&me).join(program);
    if path.is_file() { Ok(path) } else { Err(ClusterError::NotBuilt(path)) }
}
