//! A topology from what was read on a node.

use super::{HostLayout, Path, PathClass, PciFunction, PlacedGpu, PlacedNic, Topology};
use crate::model::detail::{LinkEnd, NvLinkReading};
use crate::model::snapshot::{DriverGpu, HostReading, ProbedGpu};
use crate::model::{CpuSet, PciAddress, Snapshot};

/// More GPUs, and more NICs, than any host has: the matrix grows with the square.
const MAX_DEVICES: usize = 512;

impl Topology {
    /// The topology of a node: places and PCIe from sysfs, NVLink from the driver.
    ///
    /// GPUs stand in the order of their PCI addresses, which is NVML's.
    pub fn of_snapshot(snapshot: &Snapshot) -> Topology {
        let layout = snapshot.host.layout.clone().unwrap_or_default();
        let mut topology = Topology {
            gpus: gpus(snapshot, &layout),
            nics: nics(&layout),
            numa: layout.numa.value().cloned().unwrap_or_default(),
            cores: layout.cores.value().cloned().unwrap_or_default(),
            ..Topology::default()
        };
        topology.notes = missing(snapshot, &layout);
        topology.notes.extend(too_many("GPUs", &mut topology.gpus));
        topology.notes.extend(too_many("NICs", &mut topology.nics));
        topology.paths = paths(&topology, snapshot, &layout);
        topology.remark();
        topology
    }
}

fn missing(snapshot: &Snapshot, layout: &HostLayout) -> Vec<String> {
    let mut notes = Vec::new();
    if layout.pci.value().is_none() {
        notes.push("the PCI tree was not read: distances by PCIe are unknown".to_owned());
    }
    let silent = |gpu: &&ProbedGpu| gpu.reading.detail.is_none();
    let unread: Vec<String> =
        snapshot.gpus.iter().filter(silent).filter_map(|gpu| gpu.pci()).map(|pci| pci.to_string()).collect();
    if !unread.is_empty() {
        notes.push(format!("the driver said nothing about {}: NVLink is unknown there", unread.join(", ")));
    }
    notes
}

fn too_many<T>(what: &str, devices: &mut Vec<T>) -> Option<String> {
    let count = devices.len();
    devices.truncate(MAX_DEVICES);
    (count > MAX_DEVICES).then(|| format!("{count} {what}: only the first {MAX_DEVICES} are shown"))
}

fn gpus(snapshot: &Snapshot, layout: &HostLayout) -> Vec<PlacedGpu> {
    let host = &snapshot.host;
    let mut all: Vec<PciAddress> = host.pci_gpus.value().cloned().unwrap_or_default();
    all.extend(host.driver_gpus.iter().map(|gpu| gpu.pci));
    all.extend(snapshot.gpus.iter().filter_map(ProbedGpu::pci));
    all.sort_unstable();
    all.dedup();
    all.iter().enumerate().map(|(place, &pci)| gpu(place, pci, snapshot, layout)).collect()
}

fn gpu(place: usize, pci: PciAddress, snapshot: &Snapshot, layout: &HostLayout) -> PlacedGpu {
    let by_driver = driver_gpu(&snapshot.host, pci);
    let probed = snapshot.gpus.iter().find(|gpu| gpu.pci() == Some(pci));
    let reading = probed.map(|gpu| &gpu.reading);
    let function = function(layout, pci);
    let numa_node =
        function.and_then(|gpu| gpu.numa_node).or_else(|| by_driver.and_then(|gpu| gpu.numa_node));
    let local_cpus = || by_driver?.local_cpus.as_ref()?.parse::<CpuSet>().ok();
    let memory_node = reading
        .and_then(|gpu| gpu.detail.as_ref())
        .and_then(|detail| detail.memory_node.value().copied())
        .filter(|node| Some(*node) != numa_node);
    PlacedGpu {
        name: format!("GPU{place}"),
        pci: Some(pci),
        uuid: probed.and_then(ProbedGpu::uuid).or_else(|| by_driver?.uuid.as_ref()).cloned(),
        minor: reading.and_then(|gpu| gpu.minor.value().copied()).or_else(|| by_driver?.minor),
        model: reading.and_then(|gpu| gpu.model.value().cloned()).or_else(|| by_driver?.model.clone()),
        numa_nodes: numa_node.into_iter().collect(),
        cpus: function
            .and_then(|gpu| gpu.local_cpus.clone())
            .or_else(local_cpus)
            .filter(|cpus| !cpus.is_empty()),
        memory_node,
    }
}

fn driver_gpu(host: &HostReading, pci: PciAddress) -> Option<&DriverGpu> {
    host.driver_gpus.iter().find(|gpu| gpu.pci == pci)
}

fn function(layout: &HostLayout, at: PciAddress) -> Option<&PciFunction> {
    layout.pci.value()?.iter().find(|function| function.at == at)
}

fn nics(layout: &HostLayout) -> Vec<PlacedNic> {
    let placed = |(place, nic): (usize, &super::NicReading)| PlacedNic {
        name: format!("NIC{place}"),
        device: Some(nic.name.clone()),
        pci: nic.pci,
        numa_node: nic.pci.and_then(|at| function(layout, at)?.numa_node),
    };
    layout.nics.value().map_or_else(Vec::new, |nics| nics.iter().enumerate().map(placed).collect())
}

fn paths(topology: &Topology, snapshot: &Snapshot, layout: &HostLayout) -> Vec<Vec<Path>> {
    let places: Vec<Option<PciAddress>> =
        topology.gpus.iter().map(|gpu| gpu.pci).chain(topology.nics.iter().map(|nic| nic.pci)).collect();
    let functions: Vec<Option<Placed>> = places.iter().map(|place| Placed::find(layout, (*place)?)).collect();
    let links = |pci: &Option<PciAddress>| {
        let gpu = snapshot.gpus.iter().find(|gpu| gpu.pci() == *pci && pci.is_some())?;
        Some(gpu.reading.detail.as_ref()?.nvlinks.as_slice())
    };
    let links: Vec<Option<&[NvLinkReading]>> = places.iter().map(links).collect();
    let path = |a: usize, b: usize| {
        if a == b {
            return Path::Same;
        }
        let pcie = class(functions[a].as_ref(), functions[b].as_ref());
        let joined = match (links[a], links[b]) {
            (Some(from), Some(to)) => joined_by(places[a], from, places[b], to),
            _ => 0,
        };
        match (joined, pcie) {
            (0, Some(class)) => Path::Pcie(class),
            (0, None) => Path::Unknown,
            (links, pcie) => Path::NvLink { links, pcie },
        }
    };
    (0..places.len()).map(|a| (0..places.len()).map(|b| path(a, b)).collect()).collect()
}

/// A PCI function and the bridges above it, the root port first.
struct Placed<'a> {
    function: &'a PciFunction,
    way: Vec<PciAddress>,
}

impl Placed<'_> {
    fn find(layout: &HostLayout, at: PciAddress) -> Option<Placed<'_>> {
        let function = function(layout, at)?;
        Some(Placed { function, way: way(layout, function) })
    }
}

/// Links that are up between two GPUs: direct ones, else those that both have to a switch.
fn joined_by(
    a: Option<PciAddress>,
    from: &[NvLinkReading],
    b: Option<PciAddress>,
    to: &[NvLinkReading],
) -> u32 {
    let count = |links: &[NvLinkReading], fits: &dyn Fn(&NvLinkReading) -> bool| {
        let up = links.iter().filter(|link| link.up.value() == Some(&true) && fits(link)).count();
        u32::try_from(up).unwrap_or(u32::MAX)
    };
    let to_gpu = |links, other: Option<PciAddress>| {
        let at_other =
            |link: &NvLinkReading| link.end_pci.value().is_some() && link.end_pci.value().copied() == other;
        count(links, &|link| link.end.value() == Some(&LinkEnd::Gpu) && at_other(link))
    };
    let to_switch = |links| count(links, &|link| link.end.value() == Some(&LinkEnd::Switch));
    // A link that only one end calls up carries nothing.
    let direct = to_gpu(from, b).min(to_gpu(to, a));
    if direct > 0 { direct } else { to_switch(from).min(to_switch(to)) }
}

/// Distance by PCIe: where the ways down from the root buses part. `None` where a place or a NUMA node is unknown.
fn class(a: Option<&Placed<'_>>, b: Option<&Placed<'_>>) -> Option<PathClass> {
    let (a, b) = (a?, b?);
    let shared = a.way.iter().zip(&b.way).take_while(|(left, right)| left == right).count();
    let own = a.way.len().max(b.way.len()) - shared;
    if shared >= 1 {
        // Below one switch the ways differ in the downstream port; functions of one card differ in nothing.
        return Some(if own <= 1 { PathClass::Pix } else { PathClass::Pxb });
    }
    let (a, b) = (a.function, b.function);
    if a.root_bus == b.root_bus {
        return Some(PathClass::Phb);
    }
    let (node_a, node_b) = (a.numa_node?, b.numa_node?);
    Some(if node_a == node_b { PathClass::Node } else { PathClass::Sys })
}

/// The bridges above a function, the root port first.
fn way(layout: &HostLayout, function_at: &PciFunction) -> Vec<PciAddress> {
    let mut way = Vec::new();
    let mut above = function_at.above;
    // A PCI tree is a few bridges deep; the bound ends a circle in a broken file.
    while let Some(bridge) = above.filter(|_| way.len() < 32) {
        way.push(bridge);
        above = function(layout, bridge).and_then(|bridge| bridge.above);
    }
    way.reverse();
    way
}
