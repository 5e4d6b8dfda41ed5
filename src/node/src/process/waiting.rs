//! Processes that wait in the kernel, where not even SIGKILL reaches them.

use super::Stat;
use super::stat::threads;
use crate::files::{entries, read_text};
use crate::{EdgeError, files};
use gpuward_core::model::Reading;
use gpuward_core::model::platform::StuckProcess;
use std::fs;
use std::path::Path;

/// One name of a kernel function.
const MAX_WCHAN_BYTES: u64 = 4096;

/// Processes of `procfs` one thread of which waits so at this moment, and that hold one of NVIDIA's device files or wait
/// in NVIDIA's driver. A few milliseconds of it are normal: only who is seen so again, much later, is stuck.
///
/// # Errors
/// The processes cannot be listed.
pub fn stuck_processes(procfs: &Path) -> Result<Vec<StuckProcess>, EdgeError> {
    let mut stuck = Vec::new();
    let listed = fs::read_dir(procfs).map_err(EdgeError::io("list", procfs))?;
    for entry in listed.flatten() {
        let folder = entry.path();
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // One that ends meanwhile is not stuck, and one that cannot be read costs itself only.
        let Ok(Some(stat)) = Stat::read(&folder) else { continue };
        if stat.is_kernel {
            continue;
        }
        let Some(waits_in) = waits(&folder) else { continue };
        if is_nvidias(&stat.name) || is_nvidias(&waits_in) || holds_a_gpu(&folder) {
            let waits_in = Some(waits_in).filter(|function| !["", "0"].contains(&function.as_str()));
            stuck.push(StuckProcess { pid, start_ticks: stat.start_ticks, name: stat.name, waits_in });
        }
    }
    stuck.sort_by_key(|process| process.pid);
    Ok(stuck)
}

/// Whether a process of this name runs in `procfs`; not read where the processes cannot be listed.
pub fn is_running(procfs: &Path, name: &str) -> Reading<bool> {
    let Ok(listed) = fs::read_dir(procfs) else { return Reading::NotRead };
    let is_it =
        |folder: &Path| Stat::read(folder).is_ok_and(|stat| stat.is_some_and(|stat| stat.name == name));
    Reading::Value(listed.flatten().any(|entry| is_it(&entry.path())))
}

/// Where the first thread in state D waits; `None` where none is.
fn waits(folder: &Path) -> Option<String> {
    let in_kernel =
        |thread: &Path| Stat::read(thread).is_ok_and(|stat| stat.is_some_and(|stat| stat.state == 'D'));
    let thread = threads(folder).ok()?.into_iter().find(|thread| in_kernel(thread))?;
    Some(
        read_text(&thread.join("wchan"), MAX_WCHAN_BYTES)
            .map_or_else(|_| String::new(), |text| text.trim().to_owned()),
    )
}

fn is_nvidias(name: &str) -> bool {
    name.starts_with("nv") || name.contains("nvidia")
}

fn holds_a_gpu(folder: &Path) -> bool {
    let descriptors = entries(&folder.join("fd")).unwrap_or_default();
    let is_gpu = |path: &std::path::PathBuf| {
        files::if_there(fs::read_link(path).map_err(EdgeError::io("read", path))).is_ok_and(|link| {
            link.is_some_and(|link| link.starts_with("/dev") && is_nvidias(&name_of(&link)))
        })
    };
    descriptors.iter().any(is_gpu)
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn thread(root: &Path, pid: u32, tid: u32, state: char, wchan: &str) {
        let folder = root.join(format!("{pid}/task/{tid}"));
        fs::create_dir_all(&folder).unwrap();
        let stat = format!("{tid} (a) b) {state} 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 2 0 {pid}00 0\n");
        fs::write(folder.join("stat"), &stat).unwrap();
        fs::write(folder.join("wchan"), wchan).unwrap();
        if pid == tid {
            fs::write(root.join(format!("{pid}/stat")), stat).unwrap();
        }
    }

    fn opens(root: &Path, pid: u32, file: &str) {
        fs::create_dir_all(root.join(format!("{pid}/fd"))).unwrap();
        symlink(file, root.join(format!("{pid}/fd/3"))).unwrap();
    }

    #[test]
    fn only_who_waits_in_the_kernel_with_a_gpu_in_hand_is_told() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        // Any thread counts, whatever the first one does.
        thread(root, 7, 7, 'Z', "0");
        thread(root, 7, 8, 'D', "nvidia_unlocked_ioctl");
        thread(root, 20, 20, 'D', "rwsem_down_read_slowpath");
        opens(root, 20, "/dev/nvidia3");
        thread(root, 30, 30, 'D', "nfs_wait_bit_killable");
        opens(root, 30, "/home/nvidia0");
        thread(root, 40, 40, 'S', "0");
        opens(root, 40, "/dev/nvidia0");
        fs::create_dir_all(root.join("50")).unwrap();
        let stuck = stuck_processes(root).unwrap();
        let told: Vec<_> = stuck
            .iter()
            .map(|one| (one.pid, one.start_ticks, one.name.as_str(), one.waits_in.as_deref()))
            .collect();
        assert_eq!(
            told,
            [
                (7, 700, "a) b", Some("nvidia_unlocked_ioctl")),
                (20, 2000, "a) b", Some("rwsem_down_read_slowpath"))
            ]
        );
        assert!(stuck_processes(&root.join("none")).is_err());
        assert_eq!(is_running(root, "a) b"), Reading::Value(true));
        assert_eq!(is_running(root, "a"), Reading::Value(false));
        assert_eq!(is_running(&root.join("none"), "a"), Reading::NotRead);
    }
}
