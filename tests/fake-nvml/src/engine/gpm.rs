//! GPU performance monitoring: two samples, and the means between them.

use super::{Answer, Device, link_count};
use crate::code::Code;
use crate::scenario::Util;

/// What a sample keeps: sums that grow, so that a difference over time is a mean.
#[derive(Debug, Clone, PartialEq)]
pub struct GpmSample {
    slot: u32,
    boottime_ms: u64,
    busy_ms: u64,
    pcie_tx_bytes: u64,
    pcie_rx_bytes: u64,
    nvlink_kib: u64,
    util: Util,
}

/// A metric of the interval between two samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GpmMetric {
    /// The value in its unit.
    pub value: f64,
    /// `%` or `MiB/s`.
    pub percent: bool,
}

impl Device<'_> {
    /// Takes a sample, of the GPU or for a MIG device.
    pub fn gpm_sample(&self) -> Answer<GpmSample> {
        if !self.gpu.gpm {
            return Err(Code::NOT_SUPPORTED);
        }
        let pcie = &self.gpu.pcie;
        let up = u64::from(link_count(self.gpu)).saturating_sub(self.gpu.nvlink.down.0.len() as u64);
        Ok(GpmSample {
            slot: self.gpu.slot(),
            boottime_ms: self.now.boottime_ms,
            busy_ms: self.traffic(0, 1000),
            pcie_tx_bytes: self.traffic(pcie.tx_bytes[0], pcie.tx_bytes[1]),
            pcie_rx_bytes: self.traffic(pcie.rx_bytes[0], pcie.rx_bytes[1]),
            nvlink_kib: self.traffic(0, self.gpu.nvlink.busy_kib_per_s) * up,
            util: self.gpu.util.clone(),
        })
    }
}

impl GpmSample {
    /// One metric from this sample to a later one. Ids as in nvml.h; those that no model states are not supported.
    pub fn metric(&self, later: &Self, id: u32) -> Answer<GpmMetric> {
        let elapsed_ms = later.boottime_ms.saturating_sub(self.boottime_ms);
        if self.slot != later.slot || elapsed_ms == 0 {
            return Err(Code::INVALID_ARGUMENT);
        }
        let seconds = as_f64(elapsed_ms) / 1000.0;
        let busy = as_f64(later.busy_ms.saturating_sub(self.busy_ms)) / as_f64(elapsed_ms);
        let percent = |full: u32| Ok(GpmMetric { value: busy * f64::from(full), percent: true });
        let rate = |from: u64, to: u64, per_mib: f64| {
            Ok(GpmMetric { value: as_f64(to.saturating_sub(from)) / per_mib / seconds, percent: false })
        };
        const BYTES_PER_MIB: f64 = 1_048_576.0;
        const KIB_PER_MIB: f64 = 1024.0;
        match id {
            // Graphics and SM activity.
            1 | 2 => percent(self.util.gpu_pct),
            // Occupancy, tensor and FP32 pipes: half of the activity, a share of ours.
            3 | 5 | 12 => percent(self.util.gpu_pct / 2),
            10 => percent(self.util.memory_pct),
            20 => rate(self.pcie_tx_bytes, later.pcie_tx_bytes, BYTES_PER_MIB),
            21 => rate(self.pcie_rx_bytes, later.pcie_rx_bytes, BYTES_PER_MIB),
            // NVLink, all links, received and sent.
            60 | 61 => rate(self.nvlink_kib, later.nvlink_kib, KIB_PER_MIB),
            _ => Err(Code::NOT_SUPPORTED),
        }
    }
}

/// Rounding above 2^53 does not matter for a mean.
#[allow(clippy::cast_precision_loss)]
fn as_f64(number: u64) -> f64 {
    number as f64
}
