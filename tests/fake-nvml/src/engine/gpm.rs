//! GPU performance monitoring: two samples, and the means between them.

use super::{Answer, Device, link_count};
use crate::code::Code;
use crate::faults::Busy;
use crate::scenario::{SmUtil, Util};

/// Metrics 1 to 13, percent of the time or of what is possible.
const ACTIVITIES: usize = 14;

/// First metric of the counters that grow since boot, and the CUDA version (13.2) whose nvml.h has them first.
const CUMULATIVE: u32 = 248;
const CUMULATIVE_CUDA: i32 = 13_020;

/// What a sample keeps: sums that grow, so that a difference over time is a mean.
#[derive(Debug, Clone, PartialEq)]
pub struct GpmSample {
    /// Slot, and the GPU instance where the sample is of one.
    of: (u32, Option<u32>),
    boottime_ms: u64,
    /// Percent times milliseconds, by metric.
    activity: [u64; ACTIVITIES],
    pcie_bytes: [u64; 2],
    /// Of each link, in either direction; nothing while it is down.
    link_kib: Vec<u64>,
    /// Highest SM clock, kHz: cycles a millisecond.
    sm_khz: u64,
    cumulative: bool,
}

/// A metric of the interval between two samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GpmMetric {
    /// The value in its unit.
    pub value: f64,
    /// Its unit as NVML writes it, nothing for plain counts.
    pub unit: Unit,
}

/// Unit of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// `%`.
    Percent,
    /// `MiB/s`.
    MibPerSecond,
    /// A number of cycles or bytes.
    Count,
}

/// By metric: what a GPU's SMs do. Where the scenario states nothing, shares of the activity that are ours.
fn activity(util: &Util) -> [u32; ACTIVITIES] {
    let gpu = util.gpu_pct;
    let sm = util.sm.clone().unwrap_or(SmUtil {
        occupancy_pct: gpu / 2,
        integer_pct: gpu / 5,
        tensor_pct: gpu / 2,
        dfma_pct: 0,
        hmma_pct: gpu / 2,
        imma_pct: 0,
        fp64_pct: 0,
        fp32_pct: gpu / 2,
        fp16_pct: gpu / 10,
    });
    let mut by_metric = [0; ACTIVITIES];
    by_metric[1..8].copy_from_slice(&[
        gpu,
        gpu,
        sm.occupancy_pct,
        sm.integer_pct,
        sm.tensor_pct,
        sm.dfma_pct,
        sm.hmma_pct,
    ]);
    // There is no metric 8.
    by_metric[9..].copy_from_slice(&[sm.imma_pct, util.memory_pct, sm.fp64_pct, sm.fp32_pct, sm.fp16_pct]);
    by_metric
}

impl Device<'_> {
    /// Takes a sample, of the GPU, or of a GPU instance in MIG mode, which is as busy as its GPU.
    pub fn gpm_sample(&self) -> Answer<GpmSample> {
        if !self.gpu.gpm {
            return Err(Code::NOT_SUPPORTED);
        }
        let own = activity(&self.gpu.util);
        let in_busy_time = |busy: &Busy| busy.util.as_ref().map_or(own, activity);
        let mut sums = [0; ACTIVITIES];
        for (metric, sum) in sums.iter_mut().enumerate() {
            let always = if self.gpu.busy { own[metric] } else { 0 };
            *sum =
                self.integral_ms(self.epoch.gpu_ms, always.into(), |busy| in_busy_time(busy)[metric].into());
        }
        let [tx, rx] = [self.gpu.pcie.tx_bytes, self.gpu.pcie.rx_bytes];
        let link = |link| if self.link_up(link) == Ok(true) { self.gpu.nvlink.busy_kib_per_s } else { 0 };
        let links = if self.mig.is_some() { 0 } else { link_count(self.gpu) };
        Ok(GpmSample {
            of: (self.gpu.slot(), self.mig.map(|mig| mig.gpu_instance)),
            boottime_ms: self.now.boottime_ms,
            activity: sums,
            pcie_bytes: [self.traffic(tx[0], tx[1]), self.traffic(rx[0], rx[1])],
            link_kib: (0..links).map(|number| self.traffic(0, link(number))).collect(),
            sm_khz: u64::from(self.gpu.clocks.max_mhz[1]) * 1000,
            cumulative: self.machine.driver.cuda >= CUMULATIVE_CUDA,
        })
    }
}

impl GpmSample {
    /// One metric from this sample to a later one. Ids as in nvml.h; those that no model states are not supported.
    pub fn metric(&self, later: &Self, id: u32) -> Answer<GpmMetric> {
        if self.of != later.of {
            return Err(Code::INVALID_ARGUMENT);
        }
        if id >= CUMULATIVE {
            return later.since_boot(id);
        }
        let elapsed_ms = later.boottime_ms.saturating_sub(self.boottime_ms);
        if elapsed_ms == 0 {
            return Err(Code::INVALID_ARGUMENT);
        }
        // A reset in between makes the later sum the smaller one.
        let grown = |from: u64, to: u64| as_f64(to.saturating_sub(from)) / as_f64(elapsed_ms);
        let rate = |[from, to]: [u64; 2], per_mib: f64| {
            Ok(GpmMetric { value: grown(from, to) * 1000.0 / per_mib, unit: Unit::MibPerSecond })
        };
        const BYTES_PER_MIB: f64 = 1_048_576.0;
        const KIB_PER_MIB: f64 = 1024.0;
        match id {
            1..=7 | 9..=13 => {
                let place = id as usize;
                // Busy times that overlap count twice.
                let value = grown(self.activity[place], later.activity[place]).min(100.0);
                Ok(GpmMetric { value, unit: Unit::Percent })
            }
            // What an instance moves over links that it shares is not known (an estimate of ours).
            20 | 21 | 60..=97 if self.of.1.is_some() => Err(Code::NOT_SUPPORTED),
            20 | 21 => {
                let direction = (id - 20) as usize;
                rate([self.pcie_bytes[direction], later.pcie_bytes[direction]], BYTES_PER_MIB)
            }
            60 | 61 if later.link_kib.is_empty() => Err(Code::NOT_SUPPORTED),
            60 | 61 => rate([self.link_kib.iter().sum(), later.link_kib.iter().sum()], KIB_PER_MIB),
            // Received and sent of each link.
            62..=97 => {
                let link = ((id - 62) / 2) as usize;
                let of = |sample: &Self| sample.link_kib.get(link).copied().ok_or(Code::NOT_SUPPORTED);
                rate([of(self)?, of(later)?], KIB_PER_MIB)
            }
            _ => Err(Code::NOT_SUPPORTED),
        }
    }

    /// Counters since boot, taken from one sample. The ids are nvml.h's; that the later sample alone gives the value,
    /// and that cycles pass at the highest SM clock, is our estimate.
    fn since_boot(&self, id: u32) -> Answer<GpmMetric> {
        if !self.cumulative || self.of.1.is_some() {
            return Err(Code::NOT_SUPPORTED);
        }
        let cycles = |metric: usize| as_f64(self.activity[metric]) / 100.0 * as_f64(self.sm_khz);
        const BYTES_PER_KIB: f64 = 1024.0;
        let value = match id {
            248 => as_f64(self.boottime_ms) * as_f64(self.sm_khz),
            // SM active, then the tensor pipes: any, DMMA, HMMA, IMMA, DFMA (which has no metric of its own).
            249 => cycles(2),
            250 => cycles(5),
            251 | 254 => cycles(6),
            252 => cycles(7),
            253 => cycles(9),
            255 | 256 => as_f64(self.pcie_bytes[(id - 255) as usize]),
            257 => cycles(4),
            258..=260 => cycles((id - 258) as usize + 11),
            261..=332 => {
                let link = self.link_kib.get(((id - 261) / 2) as usize);
                as_f64(*link.ok_or(Code::NOT_SUPPORTED)?) * BYTES_PER_KIB
            }
            _ => return Err(Code::INVALID_ARGUMENT),
        };
        Ok(GpmMetric { value, unit: Unit::Count })
    }
}

/// Rounding above 2^53 does not matter for a mean.
#[allow(clippy::cast_precision_loss)]
fn as_f64(number: u64) -> f64 {
    number as f64
}
