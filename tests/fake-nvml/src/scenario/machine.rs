//! The machine part of a scenario: driver, CPUs, NUMA nodes, PCI tree, NICs, NVSwitches.

use serde::{Deserialize, Serialize};

use super::gpu::Gpu;
use super::values::{CpuList, PciAddress};

/// A whole machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// What it is, for people.
    pub name: String,
    /// Boot id as the kernel has it; derived from the name where nothing is stated.
    #[serde(default)]
    pub boot_id: String,
    /// NVML indices: slots in NVML's order. PCI order where nothing is stated.
    #[serde(default)]
    pub nvml_order: Vec<u32>,
    /// Driver.
    pub driver: Driver,
    /// CPUs.
    pub cpu: Cpu,
    /// NUMA nodes.
    pub numa: Vec<NumaNode>,
    /// PCIe root ports.
    pub root_ports: Vec<RootPort>,
    /// PCIe switches.
    #[serde(default)]
    pub switches: Vec<PcieSwitch>,
    /// NVSwitches.
    #[serde(default)]
    pub nvswitches: Vec<NvSwitch>,
    /// RDMA devices.
    #[serde(default)]
    pub nics: Vec<Nic>,
    /// What all GPUs of the machine have in common beyond their model; merged in and gone after loading.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_defaults: Option<Gpu>,
    /// GPUs.
    pub gpus: Vec<Gpu>,
}

/// The kernel driver and its library.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Driver {
    /// `570.124.06`.
    pub version: String,
    /// Version of the library where it differs from the module, as after an upgrade without a reboot.
    #[serde(default)]
    pub library_version: Option<String>,
    /// CUDA version that the driver offers, 12080 for 12.8.
    pub cuda: i32,
    /// Whether the modules are loaded.
    #[serde(default = "yes")]
    pub loaded: bool,
    /// Open kernel module.
    #[serde(default)]
    pub open: bool,
    /// Modules in /proc/modules that exist whether the driver is loaded or not.
    #[serde(default)]
    pub other_modules: Vec<String>,
    /// Modules of the driver.
    #[serde(default = "nvidia_modules")]
    pub modules: Vec<String>,
}

fn yes() -> bool {
    true
}

fn nvidia_modules() -> Vec<String> {
    ["nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm"].map(String::from).to_vec()
}

/// The CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cpu {
    /// Sockets.
    pub sockets: u32,
    /// Cores of one socket.
    pub cores_per_socket: u32,
    /// Hardware threads of one core.
    pub threads_per_core: u32,
    /// Cores that share a level-3 cache.
    pub cores_per_l3: u32,
    /// Which numbers the hardware threads have.
    #[serde(default)]
    pub numbering: CpuNumbering,
}

/// How the firmware numbers hardware threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CpuNumbering {
    /// First thread of every core, then the second threads (x86 as a rule): 0 and 112 are one core.
    #[default]
    ThreadsLast,
    /// All threads of a core together: 0 and 1 are one core.
    ThreadsTogether,
}

impl Cpu {
    /// Number of CPUs (hardware threads).
    pub fn count(self) -> u32 {
        self.cores() * self.threads_per_core
    }

    fn cores(self) -> u32 {
        self.sockets * self.cores_per_socket
    }

    /// Machine-wide number of the core that a CPU belongs to.
    pub fn core_of(self, cpu: u32) -> u32 {
        match self.numbering {
            CpuNumbering::ThreadsLast => cpu % self.cores(),
            CpuNumbering::ThreadsTogether => cpu / self.threads_per_core,
        }
    }

    /// Socket that a CPU belongs to.
    pub fn socket_of(self, cpu: u32) -> u32 {
        self.core_of(cpu) / self.cores_per_socket
    }
}

/// A NUMA node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NumaNode {
    /// Node number.
    pub node: u32,
    /// Its CPUs, empty for memory-only nodes.
    pub cpus: CpuList,
    /// Its memory.
    pub memory_mib: u64,
    /// Distances to all nodes in the order of the list.
    pub distances: Vec<u32>,
}

/// A PCIe root port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RootPort {
    /// Address; its bus is the root bus.
    pub at: PciAddress,
    /// NUMA node, -1 where the firmware does not say.
    pub numa: i32,
}

/// A PCIe switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PcieSwitch {
    /// Root port or downstream port that it is plugged into.
    pub under: PciAddress,
    /// Upstream port.
    pub up: PciAddress,
    /// Downstream ports.
    pub down: Vec<PciAddress>,
}

/// An NVSwitch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NvSwitch {
    /// Address.
    pub pci: PciAddress,
    /// Port that it is plugged into.
    pub under: PciAddress,
}

/// An RDMA device with one port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nic {
    /// `mlx5_0`.
    pub name: String,
    /// Address.
    pub pci: PciAddress,
    /// Port that it is plugged into.
    pub under: PciAddress,
    /// Network interface, `ib0` or `ens10f0`.
    #[serde(default)]
    pub net: Option<String>,
    /// `InfiniBand` or `Ethernet`.
    pub link_layer: String,
    /// Rate of the port.
    pub rate_gbps: u32,
    /// Whether the port is active.
    #[serde(default = "yes")]
    pub active: bool,
    /// Vendor and device as sysfs prints them together, 0x15b31021.
    #[serde(default = "connectx7")]
    pub pci_id: u32,
}

fn connectx7() -> u32 {
    0x15b3_1021
}

impl Machine {
    /// NUMA node of whatever is plugged in under this port; none where the firmware does not say.
    pub fn numa_under(&self, port: PciAddress) -> Option<u32> {
        let root = *self.ports_above(port).first()?;
        let port = self.root_ports.iter().find(|candidate| candidate.at == root)?;
        u32::try_from(port.numa).ok()
    }

    /// The bridges from the root port down to this port, both included; empty for an unknown port.
    pub fn ports_above(&self, port: PciAddress) -> Vec<PciAddress> {
        let mut path = vec![port];
        let mut at = port;
        while !self.root_ports.iter().any(|root| root.at == at) {
            let up = self.switches.iter().find_map(|switch| {
                if switch.up == at {
                    Some(switch.under)
                } else {
                    switch.down.contains(&at).then_some(switch.up)
                }
            });
            // The length test ends a circle of switches.
            match up {
                Some(up) if path.len() <= 2 * self.switches.len() + 1 => at = up,
                _ => return Vec::new(),
            }
            path.push(at);
        }
        path.reverse();
        path
    }

    /// A NUMA node by number.
    pub fn numa_node(&self, node: u32) -> Option<&NumaNode> {
        self.numa.iter().find(|candidate| candidate.node == node)
    }

    /// Slots in the order of NVML's indices.
    pub fn nvml_slots(&self) -> Vec<u32> {
        if !self.nvml_order.is_empty() {
            return self.nvml_order.clone();
        }
        let mut order: Vec<_> = self.gpus.iter().map(|gpu| (gpu.pci, gpu.slot())).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, slot)| slot).collect()
    }

    /// A GPU by slot.
    pub fn gpu(&self, slot: u32) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| gpu.slot() == slot)
    }

    /// Version of the user-space library.
    pub fn library_version(&self) -> &str {
        self.driver.library_version.as_deref().unwrap_or(&self.driver.version)
    }
}

impl Gpu {
    /// Place in the scenario. Loading fills it in everywhere.
    pub fn slot(&self) -> u32 {
        self.slot.unwrap_or(0)
    }
}
