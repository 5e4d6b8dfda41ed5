//! Clusters whose owner was killed before it could end them, by ^C for example: the next start clears them away.

use super::error::at;
use super::process::{Marks, Process};
use super::{ClusterError, END, command, programs};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Where clusters live. Not $TMPDIR: the path of a Unix socket has at most 107 bytes.
pub(super) const PARENT: &str = "/tmp";
/// How their folders begin.
pub(super) const PREFIX: &str = "gpuward-";
/// The file that names the owning process; a cluster that is left up on purpose has none.
const OWNER: &str = "owner";

/// Writes down that this process ends the cluster in this folder.
pub(super) fn own(folder: &Path) -> Result<(), ClusterError> {
    let me = Process::read(std::process::id()).map(|process| process.identity()).unwrap_or_default();
    fs::write(folder.join(OWNER), format!("{me} {}", pid_namespace())).map_err(at(folder.join(OWNER)))
}

/// The cluster in this folder is nobody's from now on.
pub(super) fn disown(folder: &Path) -> Result<(), ClusterError> {
    fs::remove_file(folder.join(OWNER)).map_err(at(folder.join(OWNER)))
}

/// Clears away what dead owners left. Whatever fails here is left for the next time.
pub(super) fn clear() {
    let Ok(entries) = fs::read_dir(PARENT) else { return };
    for folder in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        let folder = folder.path();
        if is_abandoned(&folder) && marks(&folder).sweep(Instant::now() + END).is_empty() {
            remove_cgroups(&folder);
            let _ = fs::remove_dir_all(&folder);
        }
    }
}

fn is_abandoned(folder: &Path) -> bool {
    let Ok(owner) = fs::read_to_string(folder.join(OWNER)) else { return false };
    let Some((identity, namespace)) = owner.split_once(' ') else { return false };
    let Some(pid) = identity.split(':').next().and_then(|pid| pid.parse().ok()) else { return false };
    // The processes of another container, which shares the folder, cannot be seen from here.
    namespace == pid_namespace() && Process::read(pid).is_none_or(|process| process.identity() != identity)
}

fn pid_namespace() -> String {
    fs::read_link("/proc/self/ns/pid").map(|link| link.display().to_string()).unwrap_or_default()
}

/// By what the processes of the cluster in this folder are known.
pub(super) fn marks(folder: &Path) -> Marks {
    let nodes = fs::read_dir(folder.join("nodes")).into_iter().flatten().flatten();
    let names = nodes.map(|node| cgroup(folder, &node.file_name().to_string_lossy()));
    Marks { cgroups: names.collect(), slurm_conf: folder.join("etc/slurm.conf") }
}

/// A node's cgroup: unique on this host, since the folder is.
pub(super) fn cgroup(folder: &Path, node: &str) -> String {
    format!("{}-{node}", folder.file_name().unwrap_or_default().to_string_lossy())
}

/// Removes the empty cgroups of the cluster in this folder; one that stays is empty and harms nobody.
pub(super) fn remove_cgroups(folder: &Path) {
    let mut remove = Command::new("sh");
    remove.env_clear().env("PATH", programs::SEARCH_PATH).arg(folder.join("etc/in-node.sh")).arg("--remove");
    let _ = command::run(remove.args(marks(folder).cgroups), "", Duration::from_secs(15));
}
