//! What a reset does to a GPU's counters.
//!
//! Volatile ECC counts go with a driver reload and a GPU reset, NVLink error counters live until a reset, energy counts
//! since the driver was loaded (NVIDIA's nvml.h). That PCIe replays, throttle times, traffic and performance counters
//! go with a GPU reset, too, is our estimate. What the board keeps in its InfoROM stays: aggregate ECC counts,
//! remapped rows, retired pages, serial number.

use crate::faults::ResetKind;
use crate::scenario::{EccCounts, Gpu, Pcie, ThrottleNs};

/// The GPU with the counters that start again at 0, and with what waited for a reset in force.
pub fn after_reset(gpu: &Gpu, what: ResetKind) -> Gpu {
    let mut gpu = gpu.clone();
    for counts in [&mut gpu.ecc.dram, &mut gpu.ecc.sram] {
        *counts = EccCounts { volatile_corr: 0, volatile_uncorr: 0, ..counts.clone() };
    }
    gpu.ecc.sram_parity[0] = 0;
    gpu.nvlink.errors.clear();
    gpu.clocks.throttle_ns = ThrottleNs::default();
    gpu.pcie = Pcie {
        replay: 0,
        replay_rollover: 0,
        l0_to_recovery: 0,
        errors: [0; 11],
        tx_bytes: [0, gpu.pcie.tx_bytes[1]],
        rx_bytes: [0, gpu.pcie.rx_bytes[1]],
        ..gpu.pcie
    };
    if let Some(c2c) = &mut gpu.c2c {
        c2c.errors = [0; 3];
    }
    // A remap, a retirement and the modes of ECC and MIG wait for the next reset (nvml.h).
    if let Some(remap) = &mut gpu.remap {
        remap.pending = false;
    }
    if let Some(retired) = &mut gpu.retired {
        retired.pending = false;
    }
    gpu.ecc.enabled = gpu.ecc.pending.take().filter(|_| gpu.ecc.enabled.is_some()).or(gpu.ecc.enabled);
    gpu.mig.enabled = gpu.mig.pending.take().unwrap_or(gpu.mig.enabled);
    if what == ResetKind::Driver {
        gpu.power.energy_base_mj = gpu.power.energy_base_mj.map(|_| 0);
    }
    gpu
}
