//! Who sits where on a machine, and what joins two devices.
//!
//! A [`Topology`] comes from a snapshot (sysfs and NVML) or from the text of `nvidia-smi topo -m`. What the source did not
//! say is unknown, which is neither near nor far.

mod layout;
pub mod matrix;
mod of_snapshot;

pub use layout::{Core, HostLayout, NicReading, NumaNode, PciFunction, PciLink};

use super::{CpuSet, GpuUuid, PciAddress};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How far two devices are apart by PCIe, nearest first. The words are nvidia-smi's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum PathClass {
    /// At most one PCIe bridge between them: one switch, or two functions of one card.
    Pix,
    /// Several PCIe bridges, no host bridge.
    Pxb,
    /// One host bridge.
    Phb,
    /// Host bridges of one NUMA node.
    Node,
    /// Another NUMA node.
    Sys,
}

impl fmt::Display for PathClass {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            PathClass::Pix => "PIX",
            PathClass::Pxb => "PXB",
            PathClass::Phb => "PHB",
            PathClass::Node => "NODE",
            PathClass::Sys => "SYS",
        })
    }
}

/// What joins two devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Path {
    /// They are one device.
    Same,
    /// The source does not say.
    Unknown,
    /// PCIe only.
    Pcie(PathClass),
    /// NVLink.
    NvLink {
        /// Links of the pair; on a switch the links that both have, the same to all peers.
        links: u32,
        /// Their distance by PCIe, which nvidia-smi hides behind the links.
        pcie: Option<PathClass>,
    },
}

impl fmt::Display for Path {
    /// As a cell of nvidia-smi's matrix; `?` for what is unknown, which nvidia-smi never prints.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Same => out.pad("X"),
            Path::Unknown => out.pad("?"),
            Path::Pcie(class) => class.fmt(out),
            Path::NvLink { links, .. } => out.pad(&format!("NV{links}")),
        }
    }
}

/// One GPU and where it sits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedGpu {
    /// `GPU3`: its place in the source's order, for people only.
    pub name: String,
    /// PCI address.
    pub pci: Option<PciAddress>,
    /// UUID.
    pub uuid: Option<GpuUuid>,
    /// The number in /dev/nvidiaN.
    pub minor: Option<u32>,
    /// Model name.
    pub model: Option<String>,
    /// NUMA nodes beside it, those of GPU memory among them; empty where nobody says.
    pub numa_nodes: Vec<u32>,
    /// CPUs beside it; `None` where nobody says.
    pub cpus: Option<CpuSet>,
    /// NUMA node of its own memory (Grace).
    pub memory_node: Option<u32>,
}

/// One RDMA device and where it sits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedNic {
    /// `NIC3`, or the device's own name where the source has no other: for people only.
    pub name: String,
    /// `mlx5_3`, where the source says it.
    pub device: Option<String>,
    /// PCI address.
    pub pci: Option<PciAddress>,
    /// NUMA node, where firmware says it.
    pub numa_node: Option<u32>,
}

/// A machine's devices and their distances.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// GPUs in the source's order.
    pub gpus: Vec<PlacedGpu>,
    /// RDMA devices in the source's order.
    pub nics: Vec<PlacedNic>,
    /// What joins each two devices: GPUs, then NICs; symmetric.
    pub paths: Vec<Vec<Path>>,
    /// NUMA nodes; empty where the source says nothing about them.
    pub numa: Vec<NumaNode>,
    /// Physical cores; empty where the source says nothing about them.
    pub cores: Vec<Core>,
    /// What is missing, doubtful or was repaired, for people.
    pub notes: Vec<String>,
}

impl Topology {
    /// What joins two GPUs, by their places in `gpus`.
    pub fn between_gpus(&self, a: usize, b: usize) -> Path {
        self.path(a, b)
    }

    /// What joins a GPU and a NIC, by their places in `gpus` and `nics`.
    pub fn to_nic(&self, gpu: usize, nic: usize) -> Path {
        self.path(gpu, self.gpus.len() + nic)
    }

    /// What joins two devices, GPUs counted first.
    pub fn path(&self, a: usize, b: usize) -> Path {
        self.paths.get(a).and_then(|row| row.get(b)).copied().unwrap_or(Path::Unknown)
    }

    /// Names of all devices: GPUs, then NICs.
    pub fn device_names(&self) -> Vec<&str> {
        let gpus = self.gpus.iter().map(|gpu| gpu.name.as_str());
        gpus.chain(self.nics.iter().map(|nic| nic.name.as_str())).collect()
    }

    /// Says what is odd about the machine itself: a GPU off the fabric, NVLink rows that differ, unknown places.
    fn remark(&mut self) {
        let notes = [off_the_fabric(self), far_on_one_node(self), no_place(self)];
        self.notes.extend(notes.into_iter().flatten());
    }
}

/// A GPU without NVLink among others that all have links to each other is a fault, not a topology.
fn off_the_fabric(topology: &Topology) -> Option<String> {
    let count = topology.gpus.len();
    let linked = |a: usize, b: usize| matches!(topology.path(a, b), Path::NvLink { .. });
    let peers = |a: usize| (0..count).filter(|&b| linked(a, b)).count();
    let known = |a: usize| (0..count).all(|b| topology.path(a, b) != Path::Unknown);
    let alone: Vec<usize> = (0..count).filter(|&a| known(a) && peers(a) == 0).collect();
    // Three or more that are all joined to each other are a switch or a full mesh; bridges join two.
    let others = count - alone.len();
    let all_joined =
        (0..count).filter(|a| !alone.contains(a)).all(|a| known(a) && peers(a) == others.saturating_sub(1));
    if alone.is_empty() || others < 3 || !all_joined {
        return None;
    }
    Some(format!(
        "{} without NVLink while the other {others} GPUs are all joined: off the fabric, a fault and not a topology",
        names(topology, &alone)
    ))
}

/// SYS between GPUs that name the same CPUs: a root complex for each GPU, or a wrong affinity column.
fn far_on_one_node(topology: &Topology) -> Option<String> {
    let gpus = &topology.gpus;
    let same_cpus = |a: usize, b: usize| {
        gpus[a].cpus.as_ref().is_some_and(|cpus| !cpus.is_empty() && gpus[b].cpus.as_ref() == Some(cpus))
    };
    let far = |a: usize, b: usize| topology.path(a, b) == Path::Pcie(PathClass::Sys);
    let mut pairs = (0..gpus.len()).flat_map(|a| (0..a).map(move |b| (b, a)));
    let odd: Vec<(usize, usize)> = pairs.by_ref().filter(|&(a, b)| same_cpus(a, b) && far(a, b)).collect();
    let (a, b) = *odd.first()?;
    Some(format!(
        "{} and {} are SYS apart and yet name the same CPUs ({} such pairs): either each GPU has a root complex of its \
         own, or the affinity is wrong",
        gpus[a].name,
        gpus[b].name,
        odd.len()
    ))
}

fn no_place(topology: &Topology) -> Option<String> {
    let unknown: Vec<usize> =
        (0..topology.gpus.len()).filter(|&gpu| topology.gpus[gpu].cpus.is_none()).collect();
    if unknown.is_empty() {
        return None;
    }
    Some(format!("the CPUs beside {} are unknown", names(topology, &unknown)))
}

fn names(topology: &Topology, gpus: &[usize]) -> String {
    gpus.iter().map(|&gpu| topology.gpus[gpu].name.as_str()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
