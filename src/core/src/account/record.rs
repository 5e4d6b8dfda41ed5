//! JobRecord v1: one run of one job on one node.

use super::delta::{Reset, delta};
use crate::model::{Counters, JobGpu, Reading};
use serde::{Deserialize, Serialize};

/// Version of [`JobRecord`].
pub const RECORD_VERSION: u32 = 1;

/// How the record came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordStatus {
    /// Prolog and epilog both ran in the same boot.
    Complete,
    /// The epilog found no state of a prolog.
    NoStart,
    /// The node was rebooted while the job ran.
    NodeReboot,
}

/// How far a value can be trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quality {
    /// The difference of two good readings of a GPU that was wholly the job's.
    Exact,
    /// Of a GPU that others used as well.
    Shared,
    /// Not to be known, for the reason named.
    Partial(String),
    /// The board or the driver does not have it.
    Missing,
}

/// One value with its quality.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// The value; absent where it is not known.
    pub value: Option<u64>,
    /// How far it can be trusted.
    pub quality: Quality,
}

impl Default for Used {
    /// What a record from before a value was kept says about it.
    fn default() -> Used {
        Used { value: None, quality: Quality::Missing }
    }
}

impl Used {
    /// The value, or `-`.
    pub fn text(&self) -> String {
        self.value.map_or_else(|| "-".to_owned(), |value| value.to_string())
    }
}

/// What a job used of one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuUse {
    /// UUID of the GPU or MIG device.
    pub uuid: Option<String>,
    /// UUID of the whole GPU, for a MIG device.
    pub parent_uuid: Option<String>,
    /// Board serial number.
    pub serial: Option<String>,
    /// PCI address.
    pub pci: Option<String>,
    /// Slurm's index.
    pub gres_index: Option<u32>,
    /// Model.
    pub model: Option<String>,
    /// Energy, mJ.
    pub energy_mj: Used,
    /// Uncorrected ECC errors.
    pub ecc_uncorr: Used,
    /// Corrected ECC errors.
    pub ecc_corr: Used,
    /// Rows remapped for uncorrectable errors.
    pub remapped_uncorr: Used,
    /// Rows remapped for correctable errors.
    pub remapped_corr: Used,
    /// PCIe replays.
    pub pcie_replay: Used,
    /// Time of software thermal slowdown, ns.
    #[serde(default)]
    pub throttle_sw_thermal_ns: Used,
    /// Time of hardware thermal slowdown, ns.
    #[serde(default)]
    pub throttle_hw_thermal_ns: Used,
    /// Time under the hardware power brake, ns.
    #[serde(default)]
    pub throttle_power_brake_ns: Used,
}

impl GpuUse {
    pub(super) fn between(start: &Counters, end: Option<&Counters>, reset: Option<Reset>) -> GpuUse {
        let of = |counter: fn(&Counters) -> &Reading<u64>| delta(counter(start), end.map(counter), reset);
        // Volatile ECC counters restart with the driver; the aggregate ones stand for the board's life.
        GpuUse {
            uuid: None,
            parent_uuid: None,
            serial: None,
            pci: None,
            gres_index: None,
            model: None,
            energy_mj: of(|c| &c.energy_mj),
            ecc_uncorr: of(|c| &c.ecc_aggregate_uncorr),
            ecc_corr: of(|c| &c.ecc_aggregate_corr),
            remapped_uncorr: of(|c| &c.remapped_uncorr),
            remapped_corr: of(|c| &c.remapped_corr),
            pcie_replay: of(|c| &c.pcie_replay),
            throttle_sw_thermal_ns: of(|c| &c.throttle_sw_thermal_ns),
            throttle_hw_thermal_ns: of(|c| &c.throttle_hw_thermal_ns),
            throttle_power_brake_ns: of(|c| &c.throttle_power_brake_ns),
        }
    }

    pub(super) fn identify(mut self, gpu: &JobGpu) -> GpuUse {
        self.uuid = gpu.uuid.as_ref().map(ToString::to_string);
        self.parent_uuid = gpu.parent_uuid.as_ref().map(ToString::to_string);
        self.serial = gpu.serial.clone();
        self.pci = Some(gpu.pci.to_string());
        self.gres_index = gpu.gres_index.map(|index| index.0);
        self.model = gpu.model.clone();
        self
    }

    /// A MIG device's counters are the whole GPU's.
    pub(super) fn share(&mut self) {
        for used in [
            &mut self.energy_mj,
            &mut self.ecc_uncorr,
            &mut self.ecc_corr,
            &mut self.remapped_uncorr,
            &mut self.remapped_corr,
            &mut self.pcie_replay,
            &mut self.throttle_sw_thermal_ns,
            &mut self.throttle_hw_thermal_ns,
            &mut self.throttle_power_brake_ns,
        ] {
            if used.quality == Quality::Exact {
                used.quality = Quality::Shared;
            }
        }
    }
}

/// What one run of a job used on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRecord {
    /// [`RECORD_VERSION`].
    pub version: u32,
    /// How the record came about.
    pub status: RecordStatus,
    /// Cluster.
    pub cluster: Option<String>,
    /// Slurm's job id.
    pub job_id: u32,
    /// Slurm's SLUID of this run.
    pub sluid: Option<String>,
    /// Restart count of this run.
    pub restart_count: Option<u32>,
    /// User id.
    pub uid: Option<u32>,
    /// User name.
    pub user: Option<String>,
    /// Account.
    pub account: Option<String>,
    /// Partition.
    pub partition: Option<String>,
    /// Node.
    pub node: String,
    /// Boot id at the end.
    pub boot_id: String,
    /// Driver at the end.
    pub driver_version: Option<String>,
    /// When the prolog read the counters, milliseconds since 1970.
    pub start_unix_ms: Option<u64>,
    /// When the epilog read them.
    pub end_unix_ms: u64,
    /// Time between the two readings by a clock that nobody sets.
    pub elapsed_ms: Option<u64>,
    /// Slurm's exit code and signal, "0:0".
    pub exit_code: Option<String>,
    /// True where the job's GPUs were known for certain.
    pub gpu_map_certain: bool,
    /// One entry for each GPU.
    pub gpus: Vec<GpuUse>,
}

/// The start of the name that all records of one run have.
pub fn record_file_prefix(job_id: u32, restart_count: Option<u32>) -> String {
    restart_count.map_or_else(|| format!("{job_id}-x-"), |count| format!("{job_id}-{count}-"))
}

/// The file name of a record: the same run gives the same name, so that a second epilog changes nothing.
pub fn file_name(record: &JobRecord) -> String {
    let prefix = record_file_prefix(record.job_id, record.restart_count);
    let start = record.start_unix_ms.map_or_else(|| "nostart".to_owned(), |ms| ms.to_string());
    let node: String = record.node.chars().map(|letter| if letter == '/' { '_' } else { letter }).collect();
    format!("{prefix}{start}-{node}.json")
}
