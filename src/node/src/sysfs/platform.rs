//! Kernel, modules and firmware: what a machine is below its GPUs.

use super::{line, pci_address};
use crate::EdgeError;
use crate::files::read_text;
use gpuward_core::model::platform::{BoundGpu, PlatformReading, SwitchPort};
use gpuward_core::model::{PciAddress, Reading};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// /proc/cpuinfo has some 1.5 KiB for each CPU.
const MAX_CPUINFO_BYTES: u64 = 16 * 1024 * 1024;

/// What the rules before and after a job need. `gpus` are NVIDIA's GPUs on PCI.
pub fn read_for_a_job(sysfs: &Path, procfs: &Path, gpus: &Reading<Vec<PciAddress>>) -> PlatformReading {
    PlatformReading {
        virtual_machine: virtual_machine(sysfs, procfs),
        uvm: module(sysfs, &["nvidia_uvm"]),
        lockdown: lockdown(sysfs),
        bound: gpus.clone().map(|gpus| gpus.into_iter().map(|pci| bound(sysfs, pci)).collect()),
        ..PlatformReading::default()
    }
}

/// Everything but the processes.
pub fn read_all(sysfs: &Path, procfs: &Path, gpus: &Reading<Vec<PciAddress>>) -> PlatformReading {
    PlatformReading {
        peermem: module(sysfs, &["nvidia_peermem", "nv_peer_mem"]),
        kernel: text(&procfs.join("sys/kernel/osrelease")),
        command_line: text(&procfs.join("cmdline")),
        iommus: count(&sysfs.join("class/iommu"), ""),
        switch_ports: gpus.clone().map(|gpus| switch_ports(sysfs, &gpus)),
        governor: text(&sysfs.join("devices/system/cpu/cpu0/cpufreq/scaling_governor")),
        idle_latency_us: idle_latency_us(&sysfs.join("devices/system/cpu/cpu0/cpuidle")),
        // As process 1 sees it: the host's /dev, wherever we run.
        imex_channels: count(&procfs.join("1/root/dev/nvidia-caps-imex-channels"), "channel"),
        ..read_for_a_job(sysfs, procfs, gpus)
    }
}

fn text(path: &Path) -> Reading<String> {
    line(path).map_or(Reading::NotRead, Reading::Value)
}

fn module(sysfs: &Path, names: &[&str]) -> Reading<bool> {
    let folder = sysfs.join("module");
    if !folder.is_dir() {
        return Reading::NotRead;
    }
    Reading::Value(names.iter().any(|name| folder.join(name).is_dir()))
}

/// How many entries of this name a folder has; 0 where it is not there, but what is above it.
fn count(folder: &Path, prefix: &str) -> Reading<u32> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return if folder.parent().is_some_and(Path::is_dir) {
                Reading::Value(0)
            } else {
                Reading::NotRead
            };
        }
        Err(_) => return Reading::NoPermission,
    };
    let named = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
    Reading::Value(u32::try_from(named.count()).unwrap_or(u32::MAX))
}

/// x86 CPUs have a flag for it, which a hypervisor sets and bare metal never has (CPUID leaf 1, ECX bit 31). Other CPUs
/// have none: there the firmware's vendor says it.
fn virtual_machine(sysfs: &Path, procfs: &Path) -> Reading<bool> {
    let Ok(cpus) = read_text(&procfs.join("cpuinfo"), MAX_CPUINFO_BYTES) else { return Reading::NotRead };
    let flags = cpus.lines().find_map(|line| line.strip_prefix("flags")?.trim_start().strip_prefix(':'));
    if let Some(flags) = flags {
        return Reading::Value(flags.split_whitespace().any(|flag| flag == "hypervisor"));
    }
    let Some(vendor) = line(&sysfs.join("class/dmi/id/sys_vendor")) else { return Reading::NotSupported };
    let product = line(&sysfs.join("class/dmi/id/product_name")).unwrap_or_default();
    // Amazon's name is on its bare machines, too.
    let is_metal = product.ends_with("metal");
    Reading::Value(!is_metal && HYPERVISORS.iter().any(|name| vendor.starts_with(name)))
}

/// Vendors that firmware of virtual machines names (systemd's list in src/basic/virt.c names the same).
const HYPERVISORS: [&str; 7] =
    ["QEMU", "KVM", "Amazon EC2", "Google", "Microsoft Corporation", "VMware", "OpenStack"];

/// `none [integrity] confidentiality`: the one in brackets is in force.
fn lockdown(sysfs: &Path) -> Reading<String> {
    let Some(modes) = line(&sysfs.join("kernel/security/lockdown")) else { return Reading::NotSupported };
    let chosen = modes.split_whitespace().find_map(|mode| mode.strip_prefix('[')?.strip_suffix(']'));
    chosen.map_or(Reading::NotSupported, |mode| Reading::Value(mode.to_owned()))
}

fn bound(sysfs: &Path, pci: PciAddress) -> BoundGpu {
    let device = sysfs.join("bus/pci/devices").join(pci.to_string());
    let driver = fs::read_link(device.join("driver")).ok();
    let name = driver.and_then(|link| Some(link.file_name()?.to_string_lossy().into_owned()));
    BoundGpu { pci, driver: name, iommu: line(&device.join("iommu_group/type")) }
}

/// A port and those beside it in its switch, below which a GPU's network device may be.
fn with_siblings(port: &Path) -> Vec<PathBuf> {
    let beside = port.parent().and_then(|above| fs::read_dir(above).ok()).into_iter().flatten().flatten();
    let is_port = |path: &PathBuf| {
        pci_address(path).is_some()
            && line(&path.join("class")).is_some_and(|class| class.starts_with("0x0604"))
    };
    beside.map(|entry| entry.path()).filter(is_port).collect()
}

/// The ports of switches above the GPUs, ascending. A root port is none: what it redirects would pass through it anyway.
fn switch_ports(sysfs: &Path, gpus: &[PciAddress]) -> Vec<SwitchPort> {
    let mut ports: Vec<SwitchPort> = Vec::new();
    for gpu in gpus {
        let device = sysfs.join("bus/pci/devices").join(gpu.to_string());
        let Ok(real) = fs::canonicalize(device) else { continue };
        let above: Vec<&Path> = real.ancestors().skip(1).filter(|path| pci_address(path).is_some()).collect();
        // The last is the root port.
        for folder in above.iter().take(above.len().saturating_sub(1)).flat_map(|port| with_siblings(port)) {
            let Some(pci) = pci_address(&folder) else { continue };
            if ports.iter().any(|port| port.pci == pci) {
                continue;
            }
            ports.extend(
                acs_control(&folder.join("config")).map(|acs_control| SwitchPort { pci, acs_control }),
            );
        }
    }
    ports.sort_by_key(|port| port.pci);
    ports
}

/// The size of PCI Express configuration space. Others than root see its first 64 bytes only.
const CONFIG_BYTES: u64 = 4096;
/// The first extended capability.
const FIRST_EXTENDED: usize = 0x100;
/// Access Control Services (PCI Express Base Specification, 7.7.11).
const ACS: u32 = 0x000d;

/// The ACS Control Register in configuration space; `None` where there is none, or it may not be read.
fn acs_control(config: &Path) -> Option<u16> {
    let mut bytes = Vec::new();
    File::open(config).ok()?.take(CONFIG_BYTES).read_to_end(&mut bytes).ok()?;
    let mut at = FIRST_EXTENDED;
    // Each takes four bytes at least, so there are no more: a ring among them ends as well.
    for _ in 0..bytes.len() / 4 {
        let header = u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?);
        if header & 0xffff == ACS {
            return Some(u16::from_le_bytes(*bytes.get(at + 6..)?.first_chunk()?));
        }
        at = usize::try_from(header >> 20).ok()?;
        if at < FIRST_EXTENDED {
            return None;
        }
    }
    None
}

/// States that are switched off do not count.
fn idle_latency_us(folder: &Path) -> Reading<u32> {
    let states = fs::read_dir(folder).map_err(EdgeError::io("list", folder));
    let Ok(states) = states else { return Reading::NotRead };
    let latency = |state: &Path| {
        let is_off = line(&state.join("disable")).is_some_and(|text| text != "0");
        line(&state.join("latency")).filter(|_| !is_off)?.parse().ok()
    };
    let deepest = states.flatten().filter_map(|state| latency(&state.path())).max();
    deepest.map_or(Reading::NotSupported, Reading::Value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn write(root: &Path, path: &str, bytes: impl AsRef<[u8]>) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    #[test]
    fn a_virtual_machine_is_told_by_the_flag_of_its_cpus_or_by_its_firmware() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        assert_eq!(virtual_machine(root, root), Reading::NotRead);
        write(root, "cpuinfo", "processor\t: 0\nflags\t\t: fpu vme hypervisor lahf_lm\n");
        assert_eq!(virtual_machine(root, root), Reading::Value(true));
        write(root, "cpuinfo", "processor\t: 0\nflags\t\t: fpu vme\nvmx flags\t: hypervisor\n");
        write(root, "class/dmi/id/sys_vendor", "Amazon EC2\n");
        assert_eq!(
            virtual_machine(root, root),
            Reading::Value(false),
            "the flag decides where there are flags"
        );
        write(root, "cpuinfo", "processor\t: 0\nFeatures\t: fp asimd\n");
        assert_eq!(virtual_machine(root, root), Reading::Value(true));
        write(root, "class/dmi/id/product_name", "c7g.metal\n");
        assert_eq!(virtual_machine(root, root), Reading::Value(false));
        fs::remove_file(root.join("class/dmi/id/sys_vendor")).unwrap();
        assert_eq!(virtual_machine(root, root), Reading::NotSupported, "POWER");
    }

    /// Configuration space with an AER capability before that of ACS.
    fn config(control: u16) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        bytes[0x100..0x104].copy_from_slice(&(0x148_u32 << 20 | 0x0001_0001).to_le_bytes());
        bytes[0x148..0x14c].copy_from_slice(&0x0001_000d_u32.to_le_bytes());
        bytes[0x14e..0x150].copy_from_slice(&control.to_le_bytes());
        bytes
    }

    #[test]
    fn access_control_is_read_from_the_ports_of_switches_and_not_from_root_ports() {
        let root = tempfile::tempdir().unwrap();
        let way = "devices/pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:00.0/0000:19:00.0";
        for (depth, control) in [(2, 0x1d_u16), (3, 0), (4, 0x1d), (5, 0)] {
            let folder: Vec<&str> = way.split('/').take(depth + 1).collect();
            write(root.path(), &format!("{}/config", folder.join("/")), config(control));
            write(root.path(), &format!("{}/class", folder.join("/")), "0x060400\n");
        }
        // The port beside, where the network device is.
        let beside = "devices/pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:01.0";
        write(root.path(), &format!("{beside}/class"), "0x060400\n");
        write(root.path(), &format!("{beside}/config"), config(4));
        fs::create_dir_all(root.path().join("bus/pci/devices")).unwrap();
        symlink(format!("../../../{way}"), root.path().join("bus/pci/devices/0000:19:00.0")).unwrap();
        let gpus = ["0000:19:00.0".parse().unwrap()];
        let ports = switch_ports(root.path(), &gpus);
        let seen: Vec<(String, u16)> =
            ports.iter().map(|port| (port.pci.to_string(), port.acs_control)).collect();
        let seen: Vec<(&str, u16)> = seen.iter().map(|(pci, control)| (pci.as_str(), *control)).collect();
        assert_eq!(seen, [("0000:17:00.0", 0), ("0000:18:00.0", 0x1d), ("0000:18:01.0", 4)]);
        // What others than root see.
        write(root.path(), "short", &config(0x1d)[..64]);
        assert_eq!(acs_control(&root.path().join("short")), None);
        let mut ring = config(0);
        ring[0x100..0x104].copy_from_slice(&(0x100_u32 << 20 | 1).to_le_bytes());
        write(root.path(), "ring", ring);
        assert_eq!(acs_control(&root.path().join("ring")), None);
    }

    #[test]
    fn drivers_lockdown_idle_states_and_channels_are_read_as_they_are() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let none = read_all(root, root, &Reading::NotRead);
        assert_eq!(
            (none.uvm, none.lockdown, none.bound),
            (Reading::NotRead, Reading::NotSupported, Reading::NotRead)
        );
        assert_eq!((none.imex_channels, none.idle_latency_us), (Reading::NotRead, Reading::NotRead));
        write(root, "kernel/security/lockdown", "none [integrity] confidentiality\n");
        write(root, "module/nv_peer_mem/refcnt", "0\n");
        write(root, "1/root/dev/null", "");
        for (state, latency, off) in [("state0", 0, 0), ("state1", 2, 0), ("state2", 133, 1)] {
            write(root, &format!("devices/system/cpu/cpu0/cpuidle/{state}/latency"), format!("{latency}\n"));
            write(root, &format!("devices/system/cpu/cpu0/cpuidle/{state}/disable"), format!("{off}\n"));
        }
        write(root, "bus/pci/devices/0000:19:00.0/iommu_group/type", "DMA-FQ\n");
        symlink("../../../bus/pci/drivers/nouveau", root.join("bus/pci/devices/0000:19:00.0/driver"))
            .unwrap();
        let gpus = Reading::Value(vec!["0000:19:00.0".parse().unwrap()]);
        let read = read_all(root, root, &gpus);
        assert_eq!((read.uvm, read.peermem), (Reading::Value(false), Reading::Value(true)));
        assert_eq!(read.lockdown, Reading::Value("integrity".into()));
        assert_eq!((read.idle_latency_us, read.imex_channels), (Reading::Value(2), Reading::Value(0)));
        let [gpu] = &read.bound.value().unwrap()[..] else { panic!() };
        assert_eq!((gpu.driver.as_deref(), gpu.iommu.as_deref()), (Some("nouveau"), Some("DMA-FQ")));
        write(root, "1/root/dev/nvidia-caps-imex-channels/channel0", "");
        assert_eq!(read_all(root, root, &gpus).imex_channels, Reading::Value(1));
    }
}
