//! Everything that was read from a node at one moment, before anything is judged.

use super::platform::PlatformReading;
use super::topology::{HostLayout, PciLink};
use super::{GpuReading, GpuUuid, GresIndex, NodeReading, PciAddress, Reading};
use crate::health::kernel_log::OpenLog;
use serde::{Deserialize, Serialize};

/// What was read from a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// The kernel's boot id.
    pub boot_id: String,
    /// CLOCK_BOOTTIME of the reading, nanoseconds.
    pub boottime_ns: u64,
    /// What sysfs and procfs say without asking the driver.
    pub host: HostReading,
    /// How the probe of the driver went.
    pub probe: ProbeOutcome,
    /// What the driver says about the node.
    pub node: NodeReading,
    /// The GPUs that were asked for, each with the driver's answer.
    pub gpus: Vec<ProbedGpu>,
    /// What the kernel log has said in this boot and nothing has cleared since.
    #[serde(flatten)]
    pub log: OpenLog,
}

/// What sysfs and procfs say. None of it needs an answer from the driver.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostReading {
    /// /sys/module/nvidia exists.
    pub module_loaded: Reading<bool>,
    /// The version of the loaded kernel module.
    pub module_version: Reading<String>,
    /// NVIDIA display and 3D controllers on PCI, ascending; no value where one device could not be read.
    pub pci_gpus: Reading<Vec<PciAddress>>,
    /// The driver's list under /proc/driver/nvidia/gpus, by PCI address.
    pub driver_gpus: Vec<DriverGpu>,
    /// Whether systemd runs the fabric manager; no value where systemd's control groups are not seen. Only where a look at
    /// leisure read it.
    pub fabric_manager: Reading<bool>,
    /// Whether the kernel log could be read.
    pub kernel_log: Reading<()>,
    /// The PCIe ports above each GPU: only where the kernel log says something about a port.
    pub gpu_ports: Vec<GpuPorts>,
    /// CPUs, NUMA nodes, the PCI tree, NICs: only where a look at leisure read them.
    pub layout: Option<HostLayout>,
    /// Kernel, modules, firmware, and the processes on the GPUs.
    pub platform: PlatformReading,
}

/// The ports above one GPU, root port first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GpuPorts {
    /// The GPU.
    pub gpu: PciAddress,
    /// What lies between it and the root.
    pub ports: Vec<PciAddress>,
}

/// One GPU in the driver's procfs list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DriverGpu {
    /// PCI address.
    pub pci: PciAddress,
    /// UUID, unless the driver has not read it yet (it then prints question marks).
    pub uuid: Option<GpuUuid>,
    /// The number in /dev/nvidiaN.
    pub minor: Option<u32>,
    /// GPU instances of MIG that exist on it.
    #[serde(default)]
    pub mig_instances: u32,
    /// Model name.
    pub model: Option<String>,
    /// NUMA node from sysfs, where firmware says it.
    pub numa_node: Option<u32>,
    /// CPUs beside it, as a Linux CPU list.
    pub local_cpus: Option<String>,
    /// Its PCIe link as the GPU sees it.
    #[serde(default)]
    pub link: PciLink,
    /// The same as the port above sees it; nothing where there is no port, as in virtual machines.
    #[serde(default)]
    pub port_link: PciLink,
    /// The kernel's count of PCIe errors (AER) of the GPU and of the port above it together: correctable, non-fatal, fatal.
    /// Only where a look at leisure read it.
    #[serde(default)]
    pub aer: Reading<[u64; 3]>,
}

/// One GPU that the probe was asked about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProbedGpu {
    /// What was asked for.
    pub target: GpuTarget,
    /// What came back.
    pub reading: GpuReading,
}

impl ProbedGpu {
    /// The PCI address: as read, else as asked for.
    pub fn pci(&self) -> Option<PciAddress> {
        self.reading.pci.value().copied().or(self.target.pci)
    }

    /// The UUID of the whole GPU: as read, else as asked for.
    pub fn uuid(&self) -> Option<&GpuUuid> {
        self.reading.uuid.value().or_else(|| self.target.uuid.as_ref().filter(|uuid| !uuid.is_mig()))
    }

    /// True where the deadline came before an answer about this GPU.
    pub fn silent(&self) -> bool {
        self.reading.handle == Reading::TimedOut
    }
}

/// A GPU to ask the driver about, by whatever identifies it. At least one of PCI address and UUID is there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuTarget {
    /// Slurm's index, where the job came with one.
    pub gres_index: Option<GresIndex>,
    /// The number in /dev/nvidiaN.
    pub minor: Option<u32>,
    /// PCI address.
    pub pci: Option<PciAddress>,
    /// UUID of a GPU or of a MIG device.
    pub uuid: Option<GpuUuid>,
}

/// How the probe of the driver went as a whole.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum ProbeOutcome {
    /// No probe was needed or wanted.
    #[default]
    NotStarted,
    /// It said all it had to say.
    Finished {
        /// How long it took, milliseconds.
        took_ms: u64,
    },
    /// The deadline came first.
    TimedOut {
        /// How long it was given, milliseconds.
        deadline_ms: u64,
        /// True where even SIGKILL did not end the child.
        unkillable: bool,
    },
    /// An earlier probe still hangs and cannot be killed, so none was started.
    Blocked {
        /// The hanging process.
        pid: u32,
        /// When it was started, CLOCK_BOOTTIME nanoseconds.
        since_boottime_ns: u64,
    },
    /// Another probe was at work until the deadline: nothing is known, and nothing is said against the driver.
    Busy,
    /// The probe ended without an answer: a fault of ours, never the hardware's.
    Died {
        /// What was seen.
        why: String,
    },
}
