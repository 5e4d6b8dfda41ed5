//! What the driver says about a node and about one GPU.

use super::detail::GpuDetail;
use super::{GpuUuid, PciAddress, Reading};
use serde::{Deserialize, Serialize};

/// What the driver says about the node as a whole.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeReading {
    /// How NVML's start went: a value means that it answers.
    pub nvml: Reading<()>,
    /// Why the library could not be opened at all, in the loader's words.
    pub library_error: Option<String>,
    /// The driver's version as NVML tells it.
    pub driver_version: Reading<String>,
    /// The library's own version.
    pub nvml_version: Reading<String>,
    /// How many GPUs the driver counts, those that may not be opened included.
    pub gpu_count: Reading<u32>,
}

/// What the driver says about one GPU. Each field stands for itself: one that is missing spoils no other.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuReading {
    /// How opening the handle went. Without it no other field is read.
    pub handle: Reading<()>,
    /// PCI address of the GPU (of the parent of a MIG device).
    pub pci: Reading<PciAddress>,
    /// UUID of the GPU.
    pub uuid: Reading<GpuUuid>,
    /// UUID of the MIG device, where one was asked for.
    pub mig_uuid: Reading<GpuUuid>,
    /// The number in /dev/nvidiaN.
    pub minor: Reading<u32>,
    /// Model name.
    pub model: Reading<String>,
    /// Board serial number.
    pub serial: Reading<String>,
    /// Persistence mode.
    pub persistence: Reading<bool>,
    /// MIG mode now.
    pub mig: Reading<bool>,
    /// The driver's recovery action, field 230: 0 none, 1 GPU reset, 2 node reboot, 3 drain P2P, 4 drain and reset,
    /// 5 recover IMEX domain.
    pub recovery_action: Reading<u64>,
    /// GPU core temperature.
    pub temp_c: Reading<u32>,
    /// Counters, of which a job gets the difference.
    pub counters: Counters,
    /// A row remap waits for the next reset.
    pub remap_pending: Reading<bool>,
    /// A row remap failed; the flag stays for life.
    pub remap_failed: Reading<bool>,
    /// How long this GPU's readings took, microseconds.
    pub took_us: u64,
    /// State and limits; before a job only what its rules need.
    pub detail: Option<Box<GpuDetail>>,
}

/// Counters that only grow until a reset or a driver reload.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Energy since the driver was loaded, mJ.
    pub energy_mj: Reading<u64>,
    /// Uncorrected ECC errors since the last reset.
    pub ecc_volatile_uncorr: Reading<u64>,
    /// Corrected ECC errors since the last reset.
    pub ecc_volatile_corr: Reading<u64>,
    /// Uncorrected ECC errors over the life of the board.
    pub ecc_aggregate_uncorr: Reading<u64>,
    /// Corrected ECC errors over the life of the board.
    pub ecc_aggregate_corr: Reading<u64>,
    /// Rows remapped for uncorrectable errors.
    pub remapped_uncorr: Reading<u64>,
    /// Rows remapped for correctable errors.
    pub remapped_corr: Reading<u64>,
    /// PCIe replays.
    pub pcie_replay: Reading<u64>,
    /// Time of software thermal slowdown, ns.
    pub throttle_sw_thermal_ns: Reading<u64>,
    /// Time of hardware thermal slowdown, ns.
    pub throttle_hw_thermal_ns: Reading<u64>,
    /// Time under the hardware power brake, ns.
    pub throttle_power_brake_ns: Reading<u64>,
}

impl Counters {
    /// All counters, for what is true of every one.
    pub fn each_mut(&mut self) -> [&mut Reading<u64>; 11] {
        [
            &mut self.energy_mj,
            &mut self.ecc_volatile_uncorr,
            &mut self.ecc_volatile_corr,
            &mut self.ecc_aggregate_uncorr,
            &mut self.ecc_aggregate_corr,
            &mut self.remapped_uncorr,
            &mut self.remapped_corr,
            &mut self.pcie_replay,
            &mut self.throttle_sw_thermal_ns,
            &mut self.throttle_hw_thermal_ns,
            &mut self.throttle_power_brake_ns,
        ]
    }
}
