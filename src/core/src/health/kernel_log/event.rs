//! What one record says.

use crate::health::action::Action;
use crate::model::PciAddress;
use serde::{Deserialize, Serialize};

/// The number of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventCode {
    /// The text carries none.
    None,
    /// An XID.
    Xid(u32),
    /// An SXid.
    Sxid(u32),
}

/// What a text means, where it is more than its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// The GPU no longer answers on PCIe.
    GpuLost,
    /// Names a GPU's UUID.
    GpuUuid,
    /// Names a board's serial number.
    BoardSerial,
    /// The driver stops printing every dead call to the GSP.
    GspRateLimit,
    /// A row waits for the next reset to be remapped.
    RemapPending,
    /// A row could not be remapped.
    RemapFailure,
    /// A page was retired, on GPUs before Ampere.
    PageRetirement,
    /// The earlier state of this GPU is void.
    Cleared,
    /// A number that the catalogue lacks.
    UnknownCode,
    /// Data that belong to an SXid before it.
    SxidData,
    /// NVLink does not come up.
    NvlinkBringup,
    /// nvidia-peermem met something it did not expect.
    PeermemError,
    /// The driver could not initialise the GPU.
    GpuInitFailed,
    /// Power cables are missing.
    PowerCable,
    /// A program's library and the kernel module are of different versions.
    VersionMismatch,
    /// The BIOS gave the GPU no usable memory window.
    BarInvalid,
    /// The kernel found no room for a memory window.
    BarUnassigned,
    /// The driver found no GPU.
    NoGpu,
    /// The driver was not asked to take some GPUs.
    ProbeNotCalled,
    /// Another driver holds the GPU.
    ForeignDriver,
    /// The driver was loaded.
    DriverLoaded,
    /// A module without a valid signature was loaded.
    ModuleUnsigned,
    /// Secure Boot refused a module.
    LockdownRefusal,
    /// nvidia-uvm was loaded.
    UvmLoaded,
    /// A PCIe error.
    Aer,
    /// Details of a PCIe error.
    AerDetail,
    /// A port cut off what is below it.
    Dpc,
    /// The link below a port went down.
    LinkDown,
    /// A link came up slower or narrower than it could.
    LinkDegraded,
    /// The device no longer answers.
    DeviceGone,
    /// The IOMMU refused an access.
    IommuFault,
    /// A task has been waiting in the kernel for long.
    HungTask,
    /// The driver kept a dump of a crashed GPU.
    CrashDump,
}

impl What {
    /// The word in output and in test data.
    pub fn word(self) -> &'static str {
        match self {
            What::GpuLost => "gpu-lost",
            What::GpuUuid => "gpu-uuid",
            What::BoardSerial => "board-serial",
            What::GspRateLimit => "gsp-rate-limit",
            What::RemapPending => "remap-pending",
            What::RemapFailure => "remap-failure",
            What::PageRetirement => "page-retirement",
            What::Cleared => "cleared",
            What::UnknownCode => "unknown-code",
            What::SxidData => "sxid-data",
            What::NvlinkBringup => "nvlink-bringup",
            What::PeermemError => "peermem-error",
            What::GpuInitFailed => "gpu-init-failed",
            What::PowerCable => "power-cable",
            What::VersionMismatch => "version-mismatch",
            What::BarInvalid => "bar-invalid",
            What::BarUnassigned => "bar-unassigned",
            What::NoGpu => "no-gpu",
            What::ProbeNotCalled => "probe-not-called",
            What::ForeignDriver => "foreign-driver",
            What::DriverLoaded => "driver-loaded",
            What::ModuleUnsigned => "module-unsigned",
            What::LockdownRefusal => "lockdown-refusal",
            What::UvmLoaded => "uvm-loaded",
            What::Aer => "aer",
            What::AerDetail => "aer-detail",
            What::Dpc => "dpc",
            What::LinkDown => "link-down",
            What::LinkDegraded => "link-degraded",
            What::DeviceGone => "device-gone",
            What::IommuFault => "iommu-fault",
            What::HungTask => "hung-task",
            What::CrashDump => "crash-dump",
        }
    }

    /// The finding code of a text that makes a finding.
    pub fn code(self) -> Option<&'static str> {
        Some(match self {
            What::GpuInitFailed => "GPU_INIT",
            What::PowerCable => "POWER_CABLE",
            What::GspRateLimit => "GSP_DEAD",
            What::BarInvalid | What::BarUnassigned => "BAR1",
            What::Dpc | What::LinkDown | What::DeviceGone => "PCIE_GONE",
            What::Aer => "PCIE_AER",
            What::IommuFault => "IOMMU_FAULT",
            What::HungTask => "PROC_STUCK",
            What::NvlinkBringup => "NVLINK_INIT",
            What::PeermemError => "PEERMEM_ERR",
            What::VersionMismatch => "API_MISMATCH",
            What::LockdownRefusal => "MOD_REFUSED",
            What::CrashDump => "CRASH_DUMP",
            _ => return None,
        })
    }

    /// What a text without a number asks for by itself (health_checks.md, 5.4); a rule that also sees the GPU may be milder.
    pub fn action(self) -> Action {
        match self {
            What::GpuLost | What::BarInvalid | What::NoGpu | What::ProbeNotCalled | What::ForeignDriver => {
                Action::DrainReboot
            }
            What::Dpc | What::LinkDown | What::DeviceGone | What::HungTask => Action::DrainReboot,
            What::GspRateLimit | What::GpuInitFailed | What::RemapFailure => Action::DrainReset,
            What::PowerCable => Action::DrainRma,
            // A user's container brings its own library: no fault of the node's by itself.
            What::VersionMismatch => Action::Warn,
            What::NvlinkBringup | What::PeermemError | What::BarUnassigned | What::LinkDegraded => {
                Action::Warn
            }
            What::Aer | What::IommuFault | What::UnknownCode => Action::Warn,
            _ => Action::Info,
        }
    }

    /// What it means, in words.
    pub fn meaning(self) -> &'static str {
        match self {
            What::GpuLost => "the GPU no longer answers on PCIe",
            What::GpuUuid => "names a GPU's UUID",
            What::BoardSerial => "names a board's serial number",
            What::GspRateLimit => "the GPU's GSP firmware no longer answers",
            What::RemapPending => "a memory row is remapped at the next reset",
            What::RemapFailure => "a memory row could not be remapped",
            What::PageRetirement => "a memory page was retired",
            What::Cleared => "the driver says that the GPU needs no recovery",
            What::UnknownCode => "a number that the catalogue does not know",
            What::SxidData => "data of the SXid before it",
            What::NvlinkBringup => "NVLink does not come up as it should",
            What::PeermemError => "nvidia-peermem met an invalid context",
            What::GpuInitFailed => "the driver could not initialise the GPU",
            What::PowerCable => "power cables of the GPU are missing",
            What::VersionMismatch => "a program brought a driver library of another version",
            What::BarInvalid => "the BIOS gave the GPU no usable memory window",
            What::BarUnassigned => "the kernel found no room for a memory window of the device",
            What::NoGpu => "the driver found no GPU that it could take",
            What::ProbeNotCalled => "another driver took GPUs before this one",
            What::ForeignDriver => "another driver holds the GPU",
            What::DriverLoaded => "the driver was loaded; what was open before is void",
            What::ModuleUnsigned => "a module without a valid signature was loaded",
            What::LockdownRefusal => "Secure Boot refused an unsigned module",
            What::UvmLoaded => "nvidia-uvm was loaded",
            What::Aer => "a PCIe error was reported",
            What::AerDetail => "details of a PCIe error",
            What::Dpc => "a PCIe port cut off the device below it",
            What::LinkDown => "the PCIe link below a port went down",
            What::LinkDegraded => "a PCIe link is slower or narrower than it could be",
            What::DeviceGone => "the device no longer answers on PCIe",
            What::IommuFault => "the IOMMU refused an access of the device",
            What::HungTask => {
                "a task has been waiting in the kernel for long; it matters where the task uses a GPU"
            }
            What::CrashDump => "the driver kept a dump of a crashed GPU",
        }
    }
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The GPU, switch or port, function 0; `None` where the text names none.
    pub pci: Option<PciAddress>,
    /// The number.
    pub code: EventCode,
    /// What the text means beyond its number.
    pub what: Option<What>,
    /// The process, where the text names it.
    pub pid: Option<u32>,
    /// Its name: hostile text.
    pub process: Option<String>,
    /// Details by name. Values may hold hostile text.
    pub details: Vec<(&'static str, String)>,
    /// What the driver or the kernel says, without prefix.
    pub message: String,
}

impl Event {
    pub(super) fn new(code: EventCode, pci: Option<PciAddress>, message: &str) -> Event {
        let pci = pci.map(|address| PciAddress { function: 0, ..address });
        Event {
            pci,
            code,
            what: None,
            pid: None,
            process: None,
            details: Vec::new(),
            message: message.to_owned(),
        }
    }

    /// A text without a number.
    pub(super) fn text(what: What, pci: Option<PciAddress>, message: &str) -> Event {
        Event { what: Some(what), ..Event::new(EventCode::None, pci, message) }
    }

    pub(super) fn with(mut self, key: &'static str, value: impl ToString) -> Event {
        self.details.push((key, value.to_string()));
        self
    }

    pub(super) fn with_some(self, key: &'static str, value: Option<impl ToString>) -> Event {
        match value {
            Some(value) => self.with(key, value),
            None => self,
        }
    }

    /// A detail by its name.
    pub fn detail(&self, key: &str) -> Option<&str> {
        self.details.iter().find(|(known, _)| *known == key).map(|(_, value)| value.as_str())
    }

    /// A detail that is a number.
    pub(super) fn number<N: std::str::FromStr>(&self, key: &str) -> Option<N> {
        self.detail(key)?.parse().ok()
    }

    /// A detail that is written `0x...`.
    pub(super) fn hex(&self, key: &str) -> Option<u32> {
        u32::from_str_radix(self.detail(key)?.strip_prefix("0x")?, 16).ok()
    }
}
