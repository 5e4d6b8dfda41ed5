//! The machine part of a scenario: driver, CPUs, NUMA nodes, PCI tree, NICs, NVSwitches.

use serde::{Deserialize, Serialize};

use super::gpu::Gpu;
use super::values::{CpuList, PciAddress};
use crate::faults::named::Named;

/// A whole machine, or what a board or host file states of one. Everything has a default, so that each of these files
/// may state a part; missing essentials are found by validation.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Machine {
    /// What it is, for people. UUIDs and serial numbers that are not stated come from it.
    pub name: String,
    /// Name of a file `boards/<board>.toml` beside the scenario; merged in and gone after loading.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub board: String,
    /// Name of a file `hosts/<host>.toml` beside the scenario; merged in and gone after loading.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// Boot id as the kernel has it; derived from the name where nothing is stated.
    pub boot_id: String,
    /// A virtual machine: its CPUs have the hypervisor's flag.
    pub hypervisor: bool,
    /// NVML indices: slots in NVML's order. PCI order where nothing is stated.
    pub nvml_order: Vec<u32>,
    /// Driver.
    pub driver: Driver,
    /// CPUs.
    pub cpu: Cpu,
    /// NUMA nodes.
    pub numa: Vec<NumaNode>,
    /// Distances of NUMA nodes that state none; gone after loading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa_distance: Option<NumaDistance>,
    /// NUMA nodes of GPU memory, which have no CPUs; among the other nodes after loading.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpu_memory_nodes: Vec<GpuMemoryNodes>,
    /// PCIe root ports.
    pub root_ports: Vec<RootPort>,
    /// PCIe switches.
    pub switches: Vec<PcieSwitch>,
    /// NVSwitches.
    pub nvswitches: Vec<NvSwitch>,
    /// RDMA devices.
    pub nics: Vec<Nic>,
    /// What all GPUs of the machine have in common beyond their model; merged in and gone after loading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_defaults: Option<Gpu>,
    /// GPUs.
    pub gpus: Vec<Gpu>,
    /// Faults with a name; those that all scenarios share are added on loading.
    #[serde(skip_serializing_if = "Named::is_empty")]
    pub faults: Named,
}

/// The kernel driver and its library.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Driver {
    /// `570.124.06`.
    pub version: String,
    /// Version of the library where it differs from the module, as after an upgrade without a reboot.
    pub library_version: Option<String>,
    /// CUDA version that the driver offers, 12080 for 12.8.
    pub cuda: i32,
    /// Whether the modules are loaded.
    pub loaded: bool,
    /// Open kernel module.
    pub open: bool,
    /// Whether the service of the fabric manager runs; where nothing is stated it does on a machine with NVSwitches on PCI.
    pub fabric_manager: Option<bool>,
    /// Exported functions that a library of this age does not have.
    pub missing_symbols: Vec<String>,
    /// Modules in /proc/modules that exist whether the driver is loaded or not.
    pub other_modules: Vec<String>,
    /// Modules of the driver.
    pub modules: Vec<String>,
}

impl Default for Driver {
    fn default() -> Self {
        let modules = ["nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm"];
        Self {
            version: String::new(),
            library_version: None,
            cuda: 0,
            loaded: true,
            open: false,
            fabric_manager: None,
            missing_symbols: Vec::new(),
            other_modules: Vec::new(),
            modules: modules.map(String::from).to_vec(),
        }
    }
}

/// The CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
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
    pub numbering: CpuNumbering,
    /// Instruction set, as the driver's version line names it.
    pub isa: Isa,
}

/// Instruction sets that NVIDIA ships a driver for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isa {
    /// Intel and AMD.
    #[default]
    #[serde(rename = "x86_64")]
    X86,
    /// Grace and other Arm servers.
    Aarch64,
    /// POWER9.
    Ppc64le,
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
    /// Core by core over the sockets in turn, then the second threads: 0 is on socket 0, 1 on socket 1.
    SocketsInterleaved,
}

impl Cpu {
    /// Number of CPUs (hardware threads).
    pub fn count(self) -> u32 {
        self.cores().saturating_mul(self.threads_per_core)
    }

    fn cores(self) -> u32 {
        self.sockets.saturating_mul(self.cores_per_socket)
    }

    /// Machine-wide number of the core that a CPU belongs to.
    pub fn core_of(self, cpu: u32) -> u32 {
        match self.numbering {
            CpuNumbering::ThreadsLast => cpu % self.cores(),
            CpuNumbering::ThreadsTogether => cpu / self.threads_per_core,
            CpuNumbering::SocketsInterleaved => {
                let core = cpu % self.cores();
                core % self.sockets * self.cores_per_socket + core / self.sockets
            }
        }
    }

    /// Socket that a CPU belongs to.
    pub fn socket_of(self, cpu: u32) -> u32 {
        self.core_of(cpu) / self.cores_per_socket
    }
}

/// A NUMA node.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NumaNode {
    /// Node number.
    pub node: u32,
    /// Its CPUs, empty for memory-only nodes.
    pub cpus: CpuList,
    /// Its memory.
    pub memory_mib: u64,
    /// Distances to all nodes in the order of the list; by `numa_distance` where nothing is stated.
    #[serde(default)]
    pub distances: Vec<u32>,
}

/// Distances of NUMA nodes by where they are. A node is 10 from itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NumaDistance {
    /// Between nodes of one socket.
    pub socket: u32,
    /// Between sockets.
    pub system: u32,
    /// From CPUs to GPU memory of their socket.
    #[serde(default)]
    pub gpu_memory: u32,
    /// From CPUs to GPU memory of another socket.
    #[serde(default)]
    pub far_gpu_memory: u32,
    /// Between nodes of GPU memory.
    #[serde(default)]
    pub between_gpu_memory: u32,
}

/// The NUMA nodes of one GPU's memory: one for each possible MIG instance, the first holds all memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuMemoryNodes {
    /// Node numbers.
    pub nodes: CpuList,
    /// Socket that the GPU hangs on.
    pub socket: u32,
    /// Memory of the first node.
    pub memory_mib: u64,
}

/// A PCIe root port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RootPort {
    /// Address; its bus is the root bus.
    pub at: PciAddress,
    /// NUMA node, -1 where the firmware does not say.
    pub numa: i32,
    /// No port at all: the device with this address sits on the root bus itself, as in virtual machines.
    #[serde(default)]
    pub bare: bool,
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
    /// Port that it is plugged into; without one the switch is no PCI device of this machine, and its address only
    /// tells remote ends apart.
    #[serde(default)]
    pub under: Option<PciAddress>,
}

/// An RDMA device with one port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nic {
    /// `mlx5_0`.
    pub name: String,
    /// Address.
    pub pci: PciAddress,
    /// Port that it is plugged into; its own address where nothing is stated, for one on a root bus itself.
    #[serde(default)]
    pub under: PciAddress,
    /// Network interface, `ib0` or `ens10f0`.
    #[serde(default)]
    pub net: Option<String>,
    /// `InfiniBand` or `Ethernet`; `Unknown` as the kernel says of others.
    pub link_layer: String,
    /// Rate of the port.
    pub rate_gbps: u32,
    /// Whether the port is active.
    #[serde(default = "yes")]
    pub active: bool,
    /// Vendor and device as sysfs prints them together, 0x15b31021.
    #[serde(default = "connectx7")]
    pub pci_id: u32,
    /// Kernel driver.
    #[serde(default = "mlx5")]
    pub driver: String,
}

fn yes() -> bool {
    true
}

fn mlx5() -> String {
    "mlx5_core".into()
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

    /// Addresses that something can be plugged into.
    pub(super) fn ports(&self) -> impl Iterator<Item = PciAddress> + '_ {
        let roots = self.root_ports.iter().map(|root| root.at);
        roots.chain(self.switches.iter().flat_map(|switch| switch.down.iter().copied().chain([switch.up])))
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
