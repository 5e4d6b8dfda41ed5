//! What the machine below the GPUs is: kernel, modules, firmware, and who holds the GPUs.

use super::{PciAddress, Reading};
use serde::{Deserialize, Serialize};

/// Kernel, modules, firmware and processes, from sysfs and procfs.
///
/// A look before a job reads `virtual_machine`, `uvm`, `lockdown`, `bound` and `holders`; `gpuward check` and
/// `gpuward snapshot` read all.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlatformReading {
    /// Whether this is a virtual machine: the hypervisor flag of x86 CPUs, elsewhere the firmware's vendor.
    pub virtual_machine: Reading<bool>,
    /// Module nvidia_uvm is loaded.
    pub uvm: Reading<bool>,
    /// A module for GPUDirect RDMA is loaded: nvidia_peermem, or the older nv_peer_mem.
    pub peermem: Reading<bool>,
    /// The kernel's lockdown mode: `none`, `integrity` or `confidentiality`.
    pub lockdown: Reading<String>,
    /// Release of the kernel, `5.15.0-91-generic`.
    pub kernel: Reading<String>,
    /// The kernel's command line.
    pub command_line: Reading<String>,
    /// IOMMUs at work.
    pub iommus: Reading<u32>,
    /// The driver of each of NVIDIA's GPUs on PCI.
    pub bound: Reading<Vec<BoundGpu>>,
    /// Access control of the ports of PCIe switches above GPUs, where it could be read.
    pub switch_ports: Reading<Vec<SwitchPort>>,
    /// Frequency governor of the CPUs; that of the first one.
    pub governor: Reading<String>,
    /// Exit latency of the deepest idle state that is on, microseconds.
    pub idle_latency_us: Reading<u32>,
    /// Channels for memory of other nodes (IMEX).
    pub imex_channels: Reading<u32>,
    /// The service nvidia-imex runs.
    pub imex_service: Reading<bool>,
    /// Whose the processes in the driver's lists are.
    pub holders: Reading<Vec<Holder>>,
    /// Processes that wait in the kernel and cannot be woken, with a GPU in their hands.
    pub stuck: Reading<Vec<StuckProcess>>,
}

/// A GPU on PCI and the driver that has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundGpu {
    /// Address.
    pub pci: PciAddress,
    /// Name of the kernel driver; `None` where none has it.
    pub driver: Option<String>,
    /// Type of its IOMMU group: `identity`, `DMA`, `DMA-FQ`; `None` where it has none or the kernel does not say.
    pub iommu: Option<String>,
}

/// A port of a PCIe switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchPort {
    /// Address.
    pub pci: PciAddress,
    /// ACS Control Register (PCI Express Base Specification, 7.7.11.3).
    pub acs_control: u16,
}

/// A process in the driver's lists, as /proc and the control groups tell of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Process id.
    pub pid: u32,
    /// Its name, which it can choose itself.
    pub name: String,
    /// Whose it is.
    pub owner: HolderOwner,
}

/// Whose a process on a GPU is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HolderOwner {
    /// A job's, this one's or another's.
    Job(String),
    /// No job's: its control group is none of Slurm's.
    NoJob,
    /// There is no such process.
    Gone,
    /// Nobody can tell.
    Unknown,
}

/// A process that waits in the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StuckProcess {
    /// Process id.
    pub pid: u32,
    /// When it was started, in clock ticks since boot: with the pid it is one process.
    pub start_ticks: u64,
    /// Its name, which it can choose itself.
    pub name: String,
    /// The kernel function that it waits in, where that is told.
    pub waits_in: Option<String>,
}
