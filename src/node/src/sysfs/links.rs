//! What sysfs counts and shows about the links of the GPUs: PCIe errors, and the service that joins NVSwitches.

use super::MAX_BYTES;
use crate::files::read_text;
use gpuward_core::model::Reading;
use std::fs;
use std::path::Path;

/// The kernel's counts of a GPU and of the port above it together. A port whose counts cannot be read is left out: in a
/// virtual machine there is none.
pub(super) fn aer(device: &Path) -> Reading<[u64; 3]> {
    let Some(mut counts) = totals(device) else { return Reading::NotSupported };
    let port = fs::canonicalize(device).ok().and_then(|real| totals(&real.join("..")));
    for (count, of_port) in counts.iter_mut().zip(port.unwrap_or_default()) {
        *count = count.saturating_add(of_port);
    }
    Reading::Value(counts)
}

/// Correctable, non-fatal, fatal. The kernel writes a line for each kind of error and their total (Linux,
/// Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats).
fn totals(device: &Path) -> Option<[u64; 3]> {
    let total = |name: &str| {
        let text = read_text(&device.join(name), MAX_BYTES).ok()?;
        let line = text.lines().find(|line| line.starts_with("TOTAL_ERR_"))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    Some([total("aer_dev_correctable")?, total("aer_dev_nonfatal")?, total("aer_dev_fatal")?])
}

/// Whether systemd runs the fabric manager: a service that runs has a control group with a process in it. No program is
/// started to ask.
///
/// The folders of system.slice are those of version 2, of version 1 and of the mixed form (systemd, "The New Control
/// Group Interfaces").
pub(super) fn fabric_manager(sysfs: &Path) -> Reading<bool> {
    let places = ["fs/cgroup", "fs/cgroup/systemd", "fs/cgroup/unified"];
    let slices = places.map(|place| sysfs.join(place).join("system.slice"));
    let mut seen = slices.iter().filter(|slice| slice.is_dir()).peekable();
    if seen.peek().is_none() {
        return Reading::NotRead;
    }
    Reading::Value(seen.any(|slice| has_process(&slice.join("nvidia-fabricmanager.service"))))
}

/// A process in this control group or in one below it.
fn has_process(group: &Path) -> bool {
    let own = read_text(&group.join("cgroup.procs"), MAX_BYTES).is_ok_and(|text| !text.trim().is_empty());
    let below = || fs::read_dir(group).into_iter().flatten().flatten().map(|entry| entry.path());
    own || below().any(|path| path.is_dir() && has_process(&path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn write(folder: &Path, name: &str, text: &str) {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join(name), text).unwrap();
    }

    fn counts(folder: &Path, [correctable, nonfatal, fatal]: [u64; 3]) {
        write(folder, "aer_dev_correctable", &format!("RxErr 1\nBadTLP 0\nTOTAL_ERR_COR {correctable}\n"));
        write(folder, "aer_dev_nonfatal", &format!("Undefined 0\nTOTAL_ERR_NONFATAL {nonfatal}\n"));
        write(folder, "aer_dev_fatal", &format!("TOTAL_ERR_FATAL {fatal}\n"));
    }

    #[test]
    fn errors_of_a_gpu_and_its_port_are_counted_together_and_without_a_port_alone() {
        let root = tempfile::tempdir().unwrap();
        let gpu = root.path().join("0000:16:01.0/0000:1b:00.0");
        fs::create_dir_all(&gpu).unwrap();
        assert_eq!(aer(&gpu), Reading::NotSupported, "a kernel without the counts");
        counts(&gpu, [5, 2, 1]);
        assert_eq!(aer(&gpu), Reading::Value([5, 2, 1]));
        counts(&root.path().join("0000:16:01.0"), [10, 0, 0]);
        assert_eq!(aer(&gpu), Reading::Value([15, 2, 1]));
        fs::remove_file(gpu.join("aer_dev_fatal")).unwrap();
        assert_eq!(aer(&gpu), Reading::NotSupported);
    }

    #[test]
    fn a_service_runs_where_its_control_group_has_a_process_under_each_version() {
        for place in ["fs/cgroup", "fs/cgroup/systemd", "fs/cgroup/unified"] {
            let root = tempfile::tempdir().unwrap();
            let slice: PathBuf = root.path().join(place).join("system.slice");
            assert_eq!(fabric_manager(root.path()), Reading::NotRead, "no systemd seen");
            fs::create_dir_all(&slice).unwrap();
            assert_eq!(fabric_manager(root.path()), Reading::Value(false));
            let service = slice.join("nvidia-fabricmanager.service");
            write(&service, "cgroup.procs", "");
            assert_eq!(fabric_manager(root.path()), Reading::Value(false), "ended");
            write(&service.join("main"), "cgroup.procs", "4711\n");
            assert_eq!(fabric_manager(root.path()), Reading::Value(true));
        }
    }
}
