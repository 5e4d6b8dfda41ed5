//! What a node should be: from configuration or from what it was known to be, never from what is alive now.

use super::known::Seen;
use super::overrides::Overrides;
use crate::model::{GpuUuid, PciAddress};
use serde::{Deserialize, Serialize};

/// What a node should be, each with the setting or file that says so; `None` where nothing says it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Expected {
    /// How many GPUs.
    pub gpu_count: Option<(u32, String)>,
    /// Model name of every GPU.
    pub model: Option<(String, String)>,
    /// NVLinks of every GPU.
    pub nvlinks: Option<(u32, String)>,
    /// PCIe lanes of every GPU.
    pub pcie_width: Option<(u32, String)>,
    /// MIG profiles of every GPU, ascending; an empty list means that MIG is off.
    pub mig: Option<(Vec<String>, String)>,
    /// Power limit of every GPU that the site set on purpose, mW.
    pub power_limit_mw: Option<(u32, String)>,
    /// Compute mode of every GPU that the site set on purpose (`nvmlComputeMode_t`).
    pub compute_mode: Option<(u32, String)>,
    /// What the site says in the place of catalogue rows.
    pub overrides: Overrides,
    /// How many GPUs gres.conf names for the node.
    pub gres_conf: Option<u32>,
    /// How many units of the GRES gpu slurm.conf gives the node: GPUs, or MIG devices in their place. Read in checks only.
    pub slurm_conf: Option<u32>,
    /// What the node's GPUs were at the first clean full check, or when an admin accepted them.
    pub known: Vec<KnownGpu>,
    /// What the node's RDMA devices were then.
    pub known_nics: Vec<KnownNic>,
}

/// What one RDMA device was known to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownNic {
    /// `mlx5_0`.
    pub name: String,
    /// PCI address; `None` for software devices.
    #[serde(default)]
    pub pci: Option<PciAddress>,
    /// Whether its port was up.
    pub up: bool,
    /// Rate of its port, Gb/s.
    #[serde(default)]
    pub rate_gbps: Option<u32>,
}

/// What one GPU was known to be. A value that was not read then is `None`, and nothing is held against it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownGpu {
    /// PCI address: the slot.
    pub pci: PciAddress,
    /// UUID.
    pub uuid: GpuUuid,
    /// Board serial number.
    #[serde(default)]
    pub serial: Option<String>,
    /// Model name.
    #[serde(default)]
    pub model: Option<String>,
    /// PCIe lanes.
    #[serde(default)]
    pub pcie_width: Option<u32>,
    /// PCIe generation under load.
    #[serde(default)]
    pub pcie_generation: Option<u32>,
    /// NVLinks that were up.
    #[serde(default)]
    pub nvlinks: Option<u32>,
    /// NUMA node.
    #[serde(default)]
    pub numa_node: Option<u32>,
    /// Size of BAR1.
    #[serde(default)]
    pub bar1_mib: Option<u64>,
    /// Device memory in use while nothing ran.
    #[serde(default)]
    pub idle_memory_mib: Option<u64>,
    /// Peers (by PCI address) that reads reached.
    #[serde(default)]
    pub peers_ok: Option<Vec<PciAddress>>,
}

impl KnownGpu {
    /// A GPU of which no more is known than where it is and which.
    pub fn only(pci: PciAddress, uuid: GpuUuid) -> KnownGpu {
        KnownGpu {
            pci,
            uuid,
            serial: None,
            model: None,
            pcie_width: None,
            pcie_generation: None,
            nvlinks: None,
            numa_node: None,
            bar1_mib: None,
            idle_memory_mib: None,
            peers_ok: None,
        }
    }
}

impl Expected {
    /// What a site's configuration says, completed with what gres.conf says and with what the node was known to be.
    ///
    /// gres.conf comes before what was learned: a site may give Slurm only some of a node's GPUs.
    pub fn completed(mut self, gres_conf: Option<u32>, known: Seen) -> Expected {
        let learned = u32::try_from(known.gpus.len()).ok().filter(|&count| count > 0);
        self.gpu_count = self
            .gpu_count
            .or_else(|| gres_conf.map(|count| (count, "gres.conf".to_owned())))
            .or_else(|| learned.map(|count| (count, LEARNED.to_owned())));
        Expected { gres_conf, known: known.gpus, known_nics: known.nics, ..self }
    }

    /// The same with what `other` says in place of it, where it says anything.
    pub fn overruled_by(self, other: Expected) -> Expected {
        Expected {
            gpu_count: other.gpu_count.or(self.gpu_count),
            model: other.model.or(self.model),
            nvlinks: other.nvlinks.or(self.nvlinks),
            pcie_width: other.pcie_width.or(self.pcie_width),
            mig: other.mig.or(self.mig),
            power_limit_mw: other.power_limit_mw.or(self.power_limit_mw),
            compute_mode: other.compute_mode.or(self.compute_mode),
            ..self
        }
    }

    /// What was known of the GPU in this slot.
    pub fn known_at(&self, pci: Option<PciAddress>) -> Option<&KnownGpu> {
        self.known.iter().find(|known| Some(known.pci) == pci)
    }

    /// NVLinks that the GPU in this slot should have, and who says so: configuration, else what it had.
    pub fn nvlinks_at(&self, pci: Option<PciAddress>) -> Option<(u32, &str)> {
        let learned = || self.known_at(pci)?.nvlinks.map(|links| (links, LEARNED));
        self.nvlinks.as_ref().map(|(links, by)| (*links, by.as_str())).or_else(learned)
    }

    /// PCIe lanes that the GPU in this slot should have, and who says so.
    pub fn pcie_width_at(&self, pci: Option<PciAddress>) -> Option<(u32, &str)> {
        let learned = || self.known_at(pci)?.pcie_width.map(|width| (width, LEARNED));
        self.pcie_width.as_ref().map(|(width, by)| (*width, by.as_str())).or_else(learned)
    }
}

/// Who says so, for what the node was known to be.
pub const LEARNED: &str = "what this node was known to be";
