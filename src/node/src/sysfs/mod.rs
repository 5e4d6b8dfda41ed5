//! What sysfs and procfs say about the driver and its GPUs, without asking the driver.

mod layout;
mod links;
mod platform;

pub use layout::read_layout;
pub use platform::{read_all as platform, read_for_a_job as platform_for_a_job};

use crate::EdgeError;
use crate::files::read_text;
use gpuward_core::model::platform::PlatformReading;
use gpuward_core::model::snapshot::{DriverGpu, GpuPorts, HostReading};
use gpuward_core::model::topology::PciLink;
use gpuward_core::model::{PciAddress, Reading};
use std::fs;
use std::path::Path;

/// Sysfs files are one page at most.
const MAX_BYTES: u64 = 64 * 1024;

/// Reads what is needed to tell which GPUs are meant from `sysfs` (usually /sys) and `procfs` (usually /proc).
///
/// [`complete`] reads the rest, which a prolog does while the driver is at work.
pub fn read_driver(sysfs: &Path, procfs: &Path) -> HostReading {
    HostReading {
        module_loaded: module_loaded(sysfs),
        module_version: module_version(sysfs, procfs),
        pci_gpus: Reading::NotRead,
        driver_gpus: driver_gpus(procfs),
        fabric_manager: Reading::NotRead,
        kernel_log: Reading::NotRead,
        gpu_ports: Vec::new(),
        layout: None,
        platform: PlatformReading::default(),
    }
}

/// Reads the list of PCI devices, unless it is there, and where each GPU sits.
pub fn complete(host: &mut HostReading, sysfs: &Path) {
    if host.pci_gpus == Reading::NotRead {
        host.pci_gpus = pci_gpus(sysfs);
    }
    for gpu in &mut host.driver_gpus {
        let device = sysfs.join("bus/pci/devices").join(gpu.pci.to_string());
        // -1: firmware does not say.
        gpu.numa_node = line(&device.join("numa_node")).and_then(|text| text.parse().ok());
        gpu.local_cpus = line(&device.join("local_cpulist"));
        gpu.link = layout::link(&device);
        // The folder above a function is its port; above a root bus there is none, and no such files.
        gpu.port_link = fs::canonicalize(&device)
            .map_or_else(|_| PciLink::default(), |real| layout::link(&real.join("..")));
    }
}

/// The PCIe ports above each of `gpus`: sysfs links a device to its place in the tree, one folder for each port.
pub fn gpu_ports(sysfs: &Path, gpus: impl Iterator<Item = PciAddress>) -> Vec<GpuPorts> {
    let ports_of = |gpu: PciAddress| {
        let place = fs::read_link(sysfs.join("bus/pci/devices").join(gpu.to_string())).ok()?;
        let names = place.iter().filter_map(|name| name.to_str()?.parse::<PciAddress>().ok());
        Some(GpuPorts { gpu, ports: names.filter(|port| *port != gpu).collect() })
    };
    gpus.filter_map(ports_of).collect()
}

/// Reads what only a look at leisure wants: the layout of the machine, the kernel's PCIe error counts, the fabric manager.
pub fn complete_at_leisure(host: &mut HostReading, sysfs: &Path) {
    for gpu in &mut host.driver_gpus {
        gpu.aer = links::aer(&sysfs.join("bus/pci/devices").join(gpu.pci.to_string()));
    }
    host.fabric_manager = links::fabric_manager(sysfs);
    host.layout = Some(read_layout(sysfs));
}

/// The kernel's boot id; empty where it cannot be read.
pub fn boot_id(procfs: &Path) -> String {
    line(&procfs.join("sys/kernel/random/boot_id")).unwrap_or_default()
}

/// The PCI address that a folder is called after.
fn pci_address(folder: &Path) -> Option<PciAddress> {
    folder.file_name()?.to_str()?.parse().ok()
}

fn line(path: &Path) -> Option<String> {
    read_text(path, MAX_BYTES).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn module_loaded(sysfs: &Path) -> Reading<bool> {
    // A sysfs that is not there at all says nothing about the driver.
    match (sysfs.join("module").is_dir(), sysfs.join("module/nvidia").is_dir()) {
        (_, true) => Reading::Value(true),
        (true, false) => Reading::Value(false),
        (false, false) => Reading::NotRead,
    }
}

fn module_version(sysfs: &Path, procfs: &Path) -> Reading<String> {
    let by_sysfs = line(&sysfs.join("module/nvidia/version"));
    let by_procfs = || version_in(&read_text(&procfs.join("driver/nvidia/version"), MAX_BYTES).ok()?);
    by_sysfs.or_else(by_procfs).map_or(Reading::NotSupported, Reading::Value)
}

/// The version in "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.124.06  Tue ..." and its open-module form.
fn version_in(text: &str) -> Option<String> {
    let first = text.lines().find(|line| line.starts_with("NVRM version:"))?;
    let is_version =
        |word: &&str| word.contains('.') && word.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    first.split_whitespace().find(is_version).map(ToOwned::to_owned)
}

/// NVIDIA's display (0x0300) and 3D (0x0302) controllers; virtual functions are not GPUs of the host. A folder or a
/// device that cannot be read makes the list unknown, never shorter.
pub fn pci_gpus(sysfs: &Path) -> Reading<Vec<PciAddress>> {
    let folder = sysfs.join("bus/pci/devices");
    let found = fs::read_dir(&folder).map_err(EdgeError::io("list", &folder)).and_then(|entries| {
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(EdgeError::io("list", &folder))?;
            let Some(address) = entry.file_name().to_str().and_then(|name| name.parse::<PciAddress>().ok())
            else {
                continue;
            };
            if is_gpu(&folder.join(entry.file_name()))? {
                found.push(address);
            }
        }
        found.sort_unstable();
        Ok(found)
    });
    match found {
        Ok(found) => Reading::Value(found),
        Err(error) => {
            log::warn!("{error}; GPUs on PCIe are not counted");
            Reading::Failed(0)
        }
    }
}

fn is_gpu(device: &Path) -> Result<bool, EdgeError> {
    let read = |name: &str| read_text(&device.join(name), MAX_BYTES);
    if read("vendor")?.trim() != "0x10de" || device.join("physfn").exists() {
        return Ok(false);
    }
    let class = read("class")?;
    Ok(class.starts_with("0x0300") || class.starts_with("0x0302"))
}

fn driver_gpus(procfs: &Path) -> Vec<DriverGpu> {
    let folder = procfs.join("driver/nvidia/gpus");
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
        let Some(pci) = entry.file_name().to_str().and_then(|name| name.parse::<PciAddress>().ok()) else {
            continue;
        };
        let text = read_text(&entry.path().join("information"), MAX_BYTES).unwrap_or_default();
        let mut gpu = driver_gpu(pci, &text);
        gpu.mig_instances = gpu.minor.map_or(0, |minor| mig_instances(procfs, minor));
        found.push(gpu);
    }
    found.sort_by_key(|gpu| gpu.pci);
    found
}

/// The driver has a folder `giN` for each GPU instance (NVIDIA's MIG User Guide, "Device Nodes and Capabilities").
fn mig_instances(procfs: &Path, minor: u32) -> u32 {
    let folder = procfs.join(format!("driver/nvidia/capabilities/gpu{minor}/mig"));
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_instance = |name: std::ffi::OsString| name.to_string_lossy().starts_with("gi");
    u32::try_from(entries.filter(|entry| is_instance(entry.file_name())).count()).unwrap_or(u32::MAX)
}

fn driver_gpu(pci: PciAddress, information: &str) -> DriverGpu {
    let field = |name: &str| {
        let value =
            information.lines().find_map(|line| line.split_once(':').filter(|(key, _)| key.trim() == name));
        value.map(|(_, value)| value.trim().to_owned()).filter(|value| !value.is_empty())
    };
    DriverGpu {
        pci,
        // Until the GPU was opened once the driver prints question marks.
        uuid: field("GPU UUID").and_then(|text| text.parse().ok()),
        minor: field("Device Minor").and_then(|text| text.parse().ok()),
        mig_instances: 0,
        model: field("Model"),
        numa_node: None,
        local_cpus: None,
        link: PciLink::default(),
        port_link: PciLink::default(),
        aer: Reading::NotRead,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn a_machine_is_read_from_its_files() {
        let root = tempfile::tempdir().unwrap();
        let (sys, proc) = (root.path().join("sys"), root.path().join("proc"));
        write(&sys, "module/nvidia/version", "570.124.06\n");
        for (address, class) in [
            ("0000:3b:00.0", "0x030200"),
            ("0000:3b:00.1", "0x040300"),
            ("0000:c1:00.0", "0x068000"),
            ("0000:1b:00.0", "0x030000"),
        ] {
            write(&sys, &format!("bus/pci/devices/{address}/vendor"), "0x10de\n");
            write(&sys, &format!("bus/pci/devices/{address}/class"), &format!("{class}\n"));
            write(
                &sys,
                &format!("bus/pci/devices/{address}/numa_node"),
                if address.contains("1b") { "-1\n" } else { "1\n" },
            );
        }
        write(&sys, "bus/pci/devices/0000:3b:00.0/local_cpulist", "4-7\n");
        write(
            &proc,
            "driver/nvidia/gpus/0000:3b:00.0/information",
            "Model: \t\t NVIDIA H100\nGPU UUID: \t GPU-8932f937-d72c-4106-c12f-20bd9faed9f6\nDevice Minor: \t 3\n",
        );
        for file in ["gi7/access", "gi7/ci0/access", "gi8/access", "config"] {
            write(&proc, &format!("driver/nvidia/capabilities/gpu3/mig/{file}"), "DeviceFileMinor: 3\n");
        }
        write(
            &proc,
            "driver/nvidia/gpus/0000:1b:00.0/information",
            "GPU UUID: \t GPU-????????-????-????-????-????????????\n",
        );
        let mut host = read_driver(&sys, &proc);
        complete(&mut host, &sys);
        assert_eq!(host.module_loaded, Reading::Value(true));
        assert_eq!(host.module_version, Reading::Value("570.124.06".into()));
        assert_eq!(
            host.pci_gpus.value().unwrap().iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["0000:1b:00.0", "0000:3b:00.0"]
        );
        let [unread, known] = &host.driver_gpus[..] else { panic!() };
        assert_eq!((unread.uuid.as_ref(), unread.minor, unread.numa_node), (None, None, None));
        assert_eq!(
            (known.minor, known.numa_node, known.local_cpus.as_deref()),
            (Some(3), Some(1), Some("4-7"))
        );
        assert_eq!((known.model.as_deref(), known.mig_instances), (Some("NVIDIA H100"), 2));
        assert_eq!(unread.mig_instances, 0);
    }

    #[test]
    fn a_device_that_cannot_be_read_makes_the_list_unknown_and_not_shorter() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(pci_gpus(root.path()), Reading::Failed(0), "a wrong path in gpuward.toml");
        write(root.path(), "bus/pci/devices/0000:3b:00.0/vendor", "0x10de\n");
        assert_eq!(pci_gpus(root.path()), Reading::Failed(0), "its class is missing");
        write(root.path(), "bus/pci/devices/0000:3b:00.0/class", "0x030200\n");
        assert_eq!(pci_gpus(root.path()).value().map(Vec::len), Some(1));
    }

    #[test]
    fn no_module_and_no_sysfs_are_different() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(module_loaded(root.path()), Reading::NotRead);
        fs::create_dir(root.path().join("module")).unwrap();
        assert_eq!(module_loaded(root.path()), Reading::Value(false));
    }

    #[test]
    fn both_flavours_of_the_module_tell_their_version() {
        for text in [
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.124.06  Thu Feb 27 04:06:19 UTC 2025\nGCC version:  gcc 12.2.0\n",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build\n",
        ] {
            assert_eq!(version_in(text).as_deref(), Some("570.124.06"));
        }
        assert_eq!(version_in("GCC version:  gcc 12.2.0"), None);
    }
}
