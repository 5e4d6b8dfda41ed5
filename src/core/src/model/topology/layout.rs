//! CPUs, NUMA nodes, PCI functions and NICs as sysfs shows them.

use crate::model::{CpuSet, PciAddress, Reading};
use serde::{Deserialize, Serialize};

/// What sysfs shows of a machine beyond its GPUs. The lists are in ascending order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostLayout {
    /// Physical cores that are online.
    pub cores: Reading<Vec<Core>>,
    /// NUMA nodes that are online.
    pub numa: Reading<Vec<NumaNode>>,
    /// Bridges, NVIDIA's devices and network controllers on PCI.
    pub pci: Reading<Vec<PciFunction>>,
    /// RDMA devices; an empty list where the kernel has no RDMA.
    pub nics: Reading<Vec<NicReading>>,
}

/// A physical core.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Core {
    /// Socket.
    pub package: u32,
    /// Its number within the socket, as the kernel has it; not contiguous.
    pub core: u32,
    /// Its hardware threads.
    pub cpus: CpuSet,
    /// The cores that share its level-3 cache, by their threads; `None` where there is no such cache.
    pub l3_cpus: Option<CpuSet>,
}

/// A NUMA node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumaNode {
    /// Node number.
    pub node: u32,
    /// Its CPUs; empty for nodes that are memory only, as those of a Grace GPU.
    pub cpus: CpuSet,
    /// Its memory.
    pub memory_mib: u64,
    /// Distances to the nodes of the list, in their order; 10 is itself.
    pub distances: Vec<u32>,
}

/// A PCI function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PciFunction {
    /// Address.
    pub at: PciAddress,
    /// The bridge above it; `None` on a root bus.
    pub above: Option<PciAddress>,
    /// The root bus, `pci0000:16`.
    pub root_bus: String,
    /// Base class, subclass and interface: 0x060400 a bridge, 0x030200 a GPU.
    pub class: u32,
    /// Vendor in the upper half, device in the lower.
    pub id: u32,
    /// NUMA node, where firmware says it.
    pub numa_node: Option<u32>,
    /// CPUs beside it.
    pub local_cpus: Option<CpuSet>,
    /// Its link upwards.
    pub link: PciLink,
}

/// A PCIe link as one end sees it. Speeds are the kernel's words, `32.0 GT/s PCIe`; nothing where it has none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PciLink {
    /// Speed now.
    pub speed: Option<String>,
    /// Lanes now.
    pub width: Option<u32>,
    /// Speed that this end can do.
    pub max_speed: Option<String>,
    /// Lanes that this end can do.
    pub max_width: Option<u32>,
}

/// An RDMA device with its first port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicReading {
    /// `mlx5_0`.
    pub name: String,
    /// PCI address; `None` for software devices.
    pub pci: Option<PciAddress>,
    /// Its network interface, where it has one.
    pub net: Option<String>,
    /// `InfiniBand` or `Ethernet`.
    pub link_layer: Option<String>,
    /// State of the port, `4: ACTIVE`.
    pub state: Option<String>,
    /// State of its link, `5: LinkUp`; `3: Disabled` where it was switched off on purpose.
    #[serde(default)]
    pub link_state: Option<String>,
    /// Rate of the port, `400 Gb/sec (4X NDR)`.
    pub rate: Option<String>,
}
