//! A machine from what a listing says of it.

use super::cpus::places;
use super::tree::{Tree, tree};
use super::{Imported, cpu_list};
use gpuward_core::model::Topology;
use gpuward_core::model::topology::{Path, PathClass, PlacedGpu, PlacedNic};
use nvidia_ml::engine::{Level, common_ancestor};
use nvidia_ml::scenario::{Gpu, LinkGroup, Machine, Nic, NvSwitch, PciAddress};

/// More direct links than this a GPU of the years of `topo -m` does not have: then its links go to a switch.
const MOST_LINKS: u32 = 18;

/// Stands for all NVSwitches of a machine. It is no PCI device there: a listing does not show them.
const SWITCH: PciAddress = PciAddress { domain: 0xffff, bus: 0, device: 0, function: 0 };

/// A machine with these distances and places. A listing does not say what the GPUs are: `like` lends driver and model.
///
/// # Errors
/// No GPU, or distances that no PCI tree shows.
pub fn of_topology(name: &str, topology: &Topology, like: &Machine) -> Result<Imported, String> {
    let template = like.gpus.first().ok_or("the machine to take the GPU model from has no GPU")?;
    if topology.gpus.is_empty() {
        return Err("it says nothing about GPUs".to_owned());
    }
    let places = places(topology);
    let tree = tree(topology, &places.nodes);
    let mut notes = topology.notes.clone();
    notes.extend(places.notes);
    notes.push(format!("model and driver are those of {} ({})", like.name, template.name));
    let switched = (0..topology.gpus.len()).any(|gpu| link_sum(topology, gpu) > MOST_LINKS);
    let machine = Machine {
        name: name.to_owned(),
        driver: like.driver.clone(),
        cpu: places.cpu,
        numa: places.numa,
        nvml_order: (0..).take(topology.gpus.len()).collect(),
        nvswitches: if switched { vec![NvSwitch { pci: SWITCH, under: None }] } else { Vec::new() },
        nics: nics(topology, &tree),
        gpus: (0..topology.gpus.len()).map(|gpu| gpu_of(topology, &tree, gpu, switched, template)).collect(),
        root_ports: tree.root_ports,
        switches: tree.switches,
        ..Machine::default()
    };
    let machine = reloaded(&machine)?;
    notes.extend(differences(topology, &machine)?);
    Ok(Imported { machine, notes })
}

/// As a scenario file gives it back: filled in and checked.
pub(super) fn reloaded(machine: &Machine) -> Result<Machine, String> {
    let file = tempfile::Builder::new().suffix(".toml").tempfile().map_err(|error| error.to_string())?;
    std::fs::write(file.path(), machine.flattened()).map_err(|error| error.to_string())?;
    Machine::load(file.path()).map_err(|error| error.to_string())
}

fn links(topology: &Topology, a: usize, b: usize) -> u32 {
    match topology.between_gpus(a, b) {
        Path::NvLink { links, .. } => links,
        _ => 0,
    }
}

fn link_sum(topology: &Topology, gpu: usize) -> u32 {
    (0..topology.gpus.len()).map(|other| links(topology, gpu, other)).sum()
}

fn gpu_of(topology: &Topology, tree: &Tree, place: usize, switched: bool, template: &Gpu) -> Gpu {
    let PlacedGpu { cpus, memory_node, .. } = &topology.gpus[place];
    let (pci, under) = tree.devices[place];
    let number = u32::try_from(place).unwrap_or(0);
    let mut gpu = Gpu {
        slot: Some(number),
        uuid: String::new(),
        serial: None,
        pci,
        under,
        minor: number,
        cpus: cpus.as_ref().map(cpu_list),
        memory_numa_node: *memory_node,
        ..template.clone()
    };
    gpu.nvlink.links = link_groups(topology, tree, place, switched);
    if gpu.nvlink.links.is_empty() {
        gpu.nvlink.version = None;
        gpu.fabric = None;
    } else if gpu.nvlink.version.is_none() {
        // The model has none, the machine does: NVLink 4 at its speed.
        (gpu.nvlink.version, gpu.nvlink.speed_mbps) = (Some(4), 26_562);
    }
    if !switched {
        gpu.fabric = None;
    }
    gpu
}

fn link_groups(topology: &Topology, tree: &Tree, place: usize, switched: bool) -> Vec<LinkGroup> {
    let peers = (0..topology.gpus.len()).map(|other| (other, links(topology, place, other)));
    let peers: Vec<(usize, u32)> = peers.filter(|(_, count)| *count > 0).collect();
    if switched {
        let count = peers.iter().map(|(_, count)| *count).max().unwrap_or(0);
        let all = LinkGroup { to: SWITCH, links: (0..count).collect() };
        return if count == 0 { Vec::new() } else { vec![all] };
    }
    let mut next = 0;
    let group = |(other, count): (usize, u32)| {
        let links = (next..next + count).collect();
        next += count;
        LinkGroup { to: tree.devices[other].0, links }
    };
    peers.into_iter().map(group).collect()
}

/// A listing does not say what a NIC is: InfiniBand at 400 Gb/s.
fn nics(topology: &Topology, tree: &Tree) -> Vec<Nic> {
    let first = topology.gpus.len();
    let nic = |(place, nic): (usize, &PlacedNic)| {
        let (pci, under) = tree.devices[first + place];
        Nic {
            name: nic.device.clone().unwrap_or_else(|| format!("mlx5_{place}")),
            pci,
            under,
            net: None,
            link_layer: "InfiniBand".to_owned(),
            rate_gbps: 400,
            active: true,
            pci_id: 0x15b3_1021,
            driver: "mlx5_core".to_owned(),
        }
    };
    topology.nics.iter().enumerate().map(nic).collect()
}

/// What the machine shows otherwise than the listing. Only one thing may differ: SYS within a NUMA node, which nvidia-smi
/// prints where it does not see that two host bridges share one; a machine's own firmware says NODE.
fn differences(topology: &Topology, machine: &Machine) -> Result<Vec<String>, String> {
    let under: Vec<PciAddress> =
        machine.gpus.iter().map(|gpu| gpu.under).chain(machine.nics.iter().map(|nic| nic.under)).collect();
    let mut within_node = 0;
    for a in 0..under.len() {
        for b in 0..a {
            let (Path::Pcie(listed) | Path::NvLink { pcie: Some(listed), .. }) = topology.path(a, b) else {
                continue;
            };
            let shown = class(common_ancestor(machine, under[a], under[b]));
            match (listed, shown) {
                (PathClass::Sys, PathClass::Node) => within_node += 1,
                (listed, shown) if listed != shown => {
                    let names = topology.device_names();
                    return Err(format!(
                        "{} and {} are {listed} apart, which no PCI tree shows together with the other distances \
                         (it would be {shown})",
                        names[b], names[a]
                    ));
                }
                _ => {}
            }
        }
    }
    let note = format!(
        "{within_node} pairs are SYS although both devices are on one NUMA node: they come out as NODE"
    );
    Ok((within_node > 0).then_some(note).into_iter().collect())
}

fn class(level: Level) -> PathClass {
    match level {
        Level::Internal | Level::Single => PathClass::Pix,
        Level::Multiple => PathClass::Pxb,
        Level::HostBridge => PathClass::Phb,
        Level::Node => PathClass::Node,
        Level::System => PathClass::Sys,
    }
}
