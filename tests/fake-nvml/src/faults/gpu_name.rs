//! How a rule names a GPU.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::scenario::{Gpu, Machine, PciAddress, ScenarioError};

/// Names a GPU: slot, or UUID or PCI address. Named faults say [`GpuName::THIS`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum GpuName {
    /// Slot of the scenario.
    Slot(u32),
    /// UUID or PCI address.
    Text(String),
}

impl GpuName {
    /// In a named fault: the GPU that the fault is switched on for.
    pub const THIS: &'static str = "THIS";

    pub(super) fn is_this(&self) -> bool {
        matches!(self, Self::Text(text) if text == Self::THIS)
    }

    /// The GPU of a machine; `path` is for the message.
    pub(crate) fn find<'a>(&self, machine: &'a Machine, path: &Path) -> Result<&'a Gpu, ScenarioError> {
        let found = machine.gpus.iter().find(|gpu| match self {
            Self::Slot(slot) => gpu.slot() == *slot,
            Self::Text(text) => {
                gpu.uuid == *text || text.parse::<PciAddress>().is_ok_and(|pci| pci == gpu.pci)
            }
        });
        found.ok_or_else(|| ScenarioError::Invalid {
            path: path.to_path_buf(),
            key: "gpu".into(),
            message: match self.is_this() {
                true => "THIS stands for a GPU only in named faults".into(),
                false => format!("the machine has no GPU {self}"),
            },
        })
    }
}

impl fmt::Display for GpuName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slot(slot) => write!(out, "{slot}"),
            Self::Text(text) => out.write_str(text),
        }
    }
}
