//! Distances: PCI ancestors, NUMA nodes, NVLink and P2P between two GPUs.

use crate::scenario::{CpuList, Gpu, Machine, PciAddress};

/// `nvmlGpuTopologyLevel_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Level {
    /// The same board.
    Internal = 0,
    /// One PCIe switch between.
    Single = 10,
    /// Several PCIe switches between.
    Multiple = 20,
    /// One host bridge.
    HostBridge = 30,
    /// One NUMA node.
    Node = 40,
    /// Anything else.
    System = 50,
}

/// The level at which the ways to two ports meet.
pub fn common_ancestor(machine: &Machine, a: PciAddress, b: PciAddress) -> Level {
    let (way_a, way_b) = (machine.ports_above(a), machine.ports_above(b));
    let shared = way_a.iter().zip(&way_b).take_while(|(left, right)| left == right).count();
    let own = (way_a.len() - shared).max(way_b.len() - shared);
    match (way_a.first(), way_b.first()) {
        // Below one switch the ways differ in the downstream port; functions of one card differ in nothing.
        _ if shared >= 1 && own <= 1 => Level::Single,
        _ if shared >= 1 => Level::Multiple,
        (Some(left), Some(right)) if left.root_bus() == right.root_bus() => Level::HostBridge,
        _ if machine.numa_under(a).is_some() && machine.numa_under(a) == machine.numa_under(b) => Level::Node,
        _ => Level::System,
    }
}

/// CPUs near a GPU: what the scenario states, else those of its NUMA node, else (firmware silent) all.
pub fn near_cpus(machine: &Machine, gpu: &Gpu) -> CpuList {
    let node = machine.numa_under(gpu.under).and_then(|node| machine.numa_node(node));
    match (&gpu.cpus, node) {
        (Some(cpus), _) => cpus.clone(),
        (None, Some(node)) => node.cpus.clone(),
        (None, None) => (0..machine.cpu.count()).collect(),
    }
}

/// All CPUs of the sockets of a list of CPUs.
pub fn socket_cpus(machine: &Machine, cpus: &CpuList) -> CpuList {
    let cpu = machine.cpu;
    let sockets: CpuList = cpus.iter().map(|number| cpu.socket_of(number)).collect();
    (0..cpu.count()).filter(|&number| sockets.0.contains(&cpu.socket_of(number))).collect()
}

/// Remote end of a link: its address and whether it is a GPU.
pub fn link_end(machine: &Machine, gpu: &Gpu, link: u32) -> Option<(PciAddress, bool)> {
    let group = gpu.nvlink.links.iter().find(|group| group.links.0.contains(&link))?;
    Some((group.to, machine.gpus.iter().any(|other| other.pci == group.to)))
}

/// Number of links of a GPU.
pub fn link_count(gpu: &Gpu) -> u32 {
    let links = gpu.nvlink.links.iter().map(|group| group.links.0.len()).sum::<usize>();
    u32::try_from(links).unwrap_or(u32::MAX)
}

/// Whether links that are up join two GPUs, directly or through a switch.
pub fn nvlink_joined(machine: &Machine, a: &Gpu, b: &Gpu) -> bool {
    let ends = |gpu: &Gpu| -> Vec<PciAddress> {
        let up = (0..link_count(gpu)).filter(|link| !gpu.nvlink.down.0.contains(link));
        up.filter_map(|link| link_end(machine, gpu, link)).map(|(end, _)| end).collect()
    };
    let (from_a, from_b) = (ends(a), ends(b));
    let through_switch =
        |end: &PciAddress| machine.nvswitches.iter().any(|switch| switch.pci == *end) && from_b.contains(end);
    from_a.contains(&b.pci) || from_a.iter().any(through_switch)
}
