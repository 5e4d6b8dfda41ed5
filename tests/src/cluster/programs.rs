//! Where the programs are: Slurm's and munge's on this host, gpuward's in cargo's target folder.

use super::ClusterError;
use std::path::{Path, PathBuf};
use std::process::Command;

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

/// The folders for slurm.conf's PluginDir with which slurmd has its detection of GPUs by NVML.
///
/// Debian's contrib component has that plugin in a package of its own; `make tools` unpacks it without installing it.
///
/// # Errors
/// It is not there, or is another release than the installed Slurm, which refuses it then.
pub fn plugins_with_nvml() -> Result<String, ClusterError> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.cache/slurm-nvml");
    let folder = package.join("root").join(PLUGINS.0.trim_start_matches('/'));
    if !folder.join("gpu_nvml.so").is_file() {
        let path = folder.display();
        return Err(ClusterError::Spec(format!("{path}/gpu_nvml.so does not exist; fetch it: make tools")));
    }
    let path = package.join("version");
    let fetched = std::fs::read_to_string(&path).map_err(super::error::at(&path))?;
    let told = super::command::run_ok(Command::new("slurmd").arg("-V"), "", super::SHORT)?;
    check_release(fetched.trim(), told.trim())?;
    let folder = folder.canonicalize().map_err(super::error::at(&folder))?;
    Ok(format!("{}:{}", PLUGINS.0, folder.display()))
}

/// `fetched` is a package's version, `22.05.8-4+deb12u2`, and `told` what slurmd says, `slurm-wlm 22.05.8`. Slurm
/// compares its own three numbers; the distribution's part may differ.
fn check_release(fetched: &str, told: &str) -> Result<(), ClusterError> {
    let release = fetched.split('-').next().unwrap_or_default();
    let installed = told.split_whitespace().last().unwrap_or_default();
    if release == installed && !release.is_empty() {
        return Ok(());
    }
    Err(ClusterError::Spec(format!(
        "slurm-wlm-nvml-plugin is of Slurm {release}, but Slurm {installed} is installed, which would refuse it; \
         fetch it again (rm -r .cache/slurm-nvml; make tools), from a mirror that has both in one release"
    )))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_of_another_slurm_is_named_and_a_newer_package_of_the_same_one_is_taken() {
        assert!(check_release("22.05.8-4+deb12u2", "slurm-wlm 22.05.8").is_ok());
        for other in ["22.05.9-1", "24.11.5-4", "22.05.80-1", ""] {
            let error = check_release(other, "slurm-wlm 22.05.8").unwrap_err().to_string();
            assert!(error.contains("Slurm 22.05.8 is installed"), "{error}");
        }
    }
}
