//! CPUs, NUMA nodes, the PCI tree and RDMA devices.
//!
//! A part whose folder cannot be listed is not read, and says so; one file that is missing costs its own value only.

use super::line;
use crate::EdgeError;
use crate::files::read_text;
use gpuward_core::model::topology::{Core, HostLayout, NicReading, NumaNode, PciFunction, PciLink};
use gpuward_core::model::{CpuSet, PciAddress, Reading};
use std::fs;
use std::path::Path;

/// Reads the layout of a machine from `sysfs` (usually /sys).
pub fn read_layout(sysfs: &Path) -> HostLayout {
    HostLayout {
        cores: part(cores(sysfs)),
        numa: part(numa(sysfs)),
        pci: part(pci(sysfs)),
        nics: nics(sysfs),
    }
}

fn part<T>(read: Result<T, EdgeError>) -> Reading<T> {
    match read {
        Ok(value) => Reading::Value(value),
        Err(error) => {
            log::warn!("{error}; the layout of this machine is not known");
            Reading::Failed(0)
        }
    }
}

/// The names in a folder, in ascending order.
fn names(folder: &Path) -> Result<Vec<String>, EdgeError> {
    let entries = fs::read_dir(folder).map_err(EdgeError::io("list", folder))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(EdgeError::io("list", folder))?;
        names.extend(entry.file_name().into_string().ok());
    }
    names.sort_unstable();
    Ok(names)
}

/// The N of the folders `cpuN` or `nodeN`.
fn numbers(folder: &Path, prefix: &str) -> Result<Vec<u32>, EdgeError> {
    let number = |name: &String| name.strip_prefix(prefix)?.parse::<u32>().ok();
    let mut numbers: Vec<u32> = names(folder)?.iter().filter_map(number).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

fn number(path: &Path) -> Option<u32> {
    line(path)?.parse().ok()
}

fn list(path: &Path) -> Option<CpuSet> {
    line(path)?.parse().ok()
}

/// One entry for each core: the threads of a core name each other, so the first of them speaks for it.
fn cores(sysfs: &Path) -> Result<Vec<Core>, EdgeError> {
    let folder = sysfs.join("devices/system/cpu");
    let mut cores = Vec::new();
    for cpu in numbers(&folder, "cpu")? {
        let own = folder.join(format!("cpu{cpu}"));
        // An offline CPU has no topology.
        let Some(cpus) = list(&own.join("topology/thread_siblings_list")) else { continue };
        if cpus.iter().next() != Some(cpu) {
            continue;
        }
        cores.push(Core {
            package: number(&own.join("topology/physical_package_id")).unwrap_or(0),
            core: number(&own.join("topology/core_id")).unwrap_or(cpu),
            cpus,
            l3_cpus: l3_cpus(&own.join("cache")),
        });
    }
    Ok(cores)
}

/// The level is asked: index3 is the level-3 cache on most machines, not on all.
fn l3_cpus(cache: &Path) -> Option<CpuSet> {
    let indices = names(cache).ok()?;
    let is_l3 = |index: &&String| number(&cache.join(index).join("level")) == Some(3);
    list(&cache.join(indices.iter().find(is_l3)?).join("shared_cpu_list"))
}

fn numa(sysfs: &Path) -> Result<Vec<NumaNode>, EdgeError> {
    let folder = sysfs.join("devices/system/node");
    let node = |node: u32| {
        let own = folder.join(format!("node{node}"));
        let distances = line(&own.join("distance")).unwrap_or_default();
        NumaNode {
            node,
            cpus: list(&own.join("cpulist")).unwrap_or_default(),
            memory_mib: memory_mib(&own.join("meminfo")),
            distances: distances.split_whitespace().filter_map(|text| text.parse().ok()).collect(),
        }
    };
    Ok(numbers(&folder, "node")?.into_iter().map(node).collect())
}

/// `Node 0 MemTotal:  263848012 kB`
fn memory_mib(meminfo: &Path) -> u64 {
    let text = read_text(meminfo, super::MAX_BYTES).unwrap_or_default();
    let total = text.lines().find(|line| line.contains("MemTotal:")).unwrap_or_default();
    let kib = total.split_whitespace().rev().nth(1).and_then(|word| word.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

fn pci(sysfs: &Path) -> Result<Vec<PciFunction>, EdgeError> {
    let folder = sysfs.join("bus/pci/devices");
    let mut functions = Vec::new();
    for name in names(&folder)? {
        let Ok(at) = name.parse::<PciAddress>() else { continue };
        functions.extend(function(&folder.join(&name), at)?);
    }
    functions.sort_unstable_by_key(|function| function.at);
    Ok(functions)
}

fn function(device: &Path, at: PciAddress) -> Result<Option<PciFunction>, EdgeError> {
    let hex = |name: &str| {
        let text = line(&device.join(name))?;
        u32::from_str_radix(text.trim_start_matches("0x"), 16).ok()
    };
    let (Some(class), Some(vendor)) = (hex("class"), hex("vendor")) else { return Ok(None) };
    if !is_of_interest(class, vendor) || device.join("physfn").exists() && vendor == NVIDIA {
        return Ok(None);
    }
    // The folder's real path is the way from the root bus: .../pci0000:16/0000:16:01.0/0000:17:00.0
    let real = fs::canonicalize(device).map_err(EdgeError::io("follow", device))?;
    let parts: Vec<&str> = real.iter().filter_map(|part| part.to_str()).collect();
    let above = parts.iter().rev().nth(1).and_then(|part| part.parse().ok());
    let root_bus = parts.iter().rev().find(|part| part.starts_with("pci")).copied().unwrap_or_default();
    Ok(Some(PciFunction {
        at,
        above,
        root_bus: root_bus.to_owned(),
        class,
        id: vendor << 16 | hex("device").unwrap_or(0),
        // -1: firmware does not say.
        numa_node: number(&device.join("numa_node")),
        local_cpus: list(&device.join("local_cpulist")),
        link: link(device),
    }))
}

/// The link of a function upwards.
pub(super) fn link(device: &Path) -> PciLink {
    let word = |name: &str| line(&device.join(name)).filter(|text| text != "Unknown");
    // 0 lanes is how the kernel says that it does not know.
    let lanes = |name: &str| number(&device.join(name)).filter(|lanes| *lanes > 0);
    PciLink {
        speed: word("current_link_speed"),
        width: lanes("current_link_width"),
        max_speed: word("max_link_speed"),
        max_width: lanes("max_link_width"),
    }
}

const NVIDIA: u32 = 0x10de;

/// PCI bridges, network controllers (Ethernet and InfiniBand), and all of NVIDIA's but the sound of a display card.
fn is_of_interest(class: u32, vendor: u32) -> bool {
    let (base, subclass) = (class >> 16, class >> 8);
    match (base, subclass) {
        (_, 0x0604) | (0x02, _) => true,
        (0x04, _) => false,
        _ => vendor == NVIDIA,
    }
}

/// A kernel without RDMA has no such folder: then there are no RDMA devices.
fn nics(sysfs: &Path) -> Reading<Vec<NicReading>> {
    let folder = sysfs.join("class/infiniband");
    if !folder.is_dir() {
        return Reading::Value(Vec::new());
    }
    let mut all = match names(&folder) {
        Ok(all) => all,
        Err(error) => return part(Err(error)),
    };
    // mlx5_10 after mlx5_9.
    all.sort_by_key(|name| {
        (name.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned(), name.len(), name.clone())
    });
    Reading::Value(all.into_iter().map(|name| nic(&folder, name)).collect())
}

fn nic(folder: &Path, name: String) -> NicReading {
    let own = folder.join(&name);
    let port = own.join("ports/1");
    let device = fs::canonicalize(own.join("device")).ok();
    let pci = device.as_ref().and_then(|path| path.file_name()?.to_str()?.parse().ok());
    let net = device.and_then(|path| names(&path.join("net")).ok()?.into_iter().next());
    NicReading {
        pci,
        net,
        link_layer: line(&port.join("link_layer")),
        state: line(&port.join("state")),
        link_state: line(&port.join("phys_state")),
        rate: line(&port.join("rate")),
        name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    fn device(root: &Path, way: &str, class: &str, vendor: &str) {
        let folder = format!("devices/{way}");
        write(root, &format!("{folder}/class"), class);
        write(root, &format!("{folder}/vendor"), vendor);
        write(root, &format!("{folder}/device"), "0x2330");
        write(root, &format!("{folder}/numa_node"), "-1");
        fs::create_dir_all(root.join("bus/pci/devices")).unwrap();
        let name = way.rsplit('/').next().unwrap();
        symlink(format!("../../../{folder}"), root.join("bus/pci/devices").join(name)).unwrap();
    }

    #[test]
    fn a_core_is_told_once_and_an_offline_cpu_not_at_all() {
        let root = tempfile::tempdir().unwrap();
        for (cpu, siblings) in [(0, "0,2"), (1, "1,3"), (2, "0,2"), (3, "1,3")] {
            write(
                root.path(),
                &format!("devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"),
                siblings,
            );
        }
        fs::create_dir_all(root.path().join("devices/system/cpu/cpu4")).unwrap();
        fs::create_dir_all(root.path().join("devices/system/cpu/cpufreq")).unwrap();
        write(root.path(), "devices/system/cpu/cpu1/cache/index2/level", "3");
        write(root.path(), "devices/system/cpu/cpu1/cache/index2/shared_cpu_list", "1,3");
        let cores = cores(root.path()).unwrap();
        let threads: Vec<String> = cores.iter().map(|core| core.cpus.to_string()).collect();
        assert_eq!(threads, ["0,2", "1,3"]);
        assert_eq!((cores[0].l3_cpus.clone(), cores[1].l3_cpus.clone()), (None, "1,3".parse().ok()));
    }

    #[test]
    fn the_pci_tree_keeps_what_is_above_each_function() {
        let root = tempfile::tempdir().unwrap();
        device(root.path(), "pci0000:16/0000:16:01.0", "0x060400", "0x8086");
        device(root.path(), "pci0000:16/0000:16:01.0/0000:17:00.0", "0x030200", "0x10de");
        device(root.path(), "pci0000:16/0000:16:01.0/0000:17:00.1", "0x040300", "0x10de");
        device(root.path(), "pci0000:00/0000:00:1f.0", "0x060100", "0x8086");
        let pci = pci(root.path()).unwrap();
        let [port, gpu] = &pci[..] else { panic!("{pci:?}") };
        assert_eq!((port.above, port.root_bus.as_str()), (None, "pci0000:16"));
        assert_eq!((gpu.above, gpu.root_bus.as_str()), (Some(port.at), "pci0000:16"));
        assert_eq!((gpu.id, gpu.numa_node), (0x10de_2330, None));
    }

    #[test]
    fn a_machine_without_rdma_has_no_rdma_devices_and_one_without_numa_is_not_read() {
        let root = tempfile::tempdir().unwrap();
        let layout = read_layout(root.path());
        assert_eq!(layout.nics, Reading::Value(Vec::new()));
        assert_eq!((layout.numa, layout.pci), (Reading::Failed(0), Reading::Failed(0)));
    }

    #[test]
    fn rdma_devices_come_in_the_order_of_their_numbers() {
        let root = tempfile::tempdir().unwrap();
        for number in [10, 9, 0] {
            write(root.path(), &format!("class/infiniband/mlx5_{number}/ports/1/state"), "4: ACTIVE");
        }
        let nics = nics(root.path());
        let names: Vec<&str> = nics.value().unwrap().iter().map(|nic| nic.name.as_str()).collect();
        assert_eq!(names, ["mlx5_0", "mlx5_9", "mlx5_10"]);
    }

    #[test]
    fn the_memory_of_a_node_is_read_from_its_meminfo() {
        let root = tempfile::tempdir().unwrap();
        write(
            root.path(),
            "devices/system/node/node0/meminfo",
            "Node 0 MemTotal:       263848012 kB\nNode 0 MemFree: 1 kB",
        );
        write(root.path(), "devices/system/node/node0/cpulist", "");
        write(root.path(), "devices/system/node/node0/distance", "10 21");
        let nodes = numa(root.path()).unwrap();
        assert_eq!(
            (nodes[0].memory_mib, nodes[0].cpus.len(), &nodes[0].distances[..]),
            (257_664, 0, &[10, 21][..])
        );
    }
}
