//! What earlier looks left behind.

use crate::model::snapshot::ProbedGpu;
use crate::model::{Counters, GpuUuid, PciAddress, Reading, Snapshot};
use serde::{Deserialize, Serialize};

/// What earlier looks of the same boot left behind.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    /// When a subject was first silent, and has been ever since.
    pub silent: Vec<SilentMark>,
    /// ECC counts that drained the node before.
    pub acted_ecc: Vec<ActedEcc>,
    /// Counters of the GPUs at an earlier look, for rates.
    pub seen: Vec<SeenGpu>,
}

impl History {
    /// The earlier look at this GPU.
    pub fn seen(&self, uuid: Option<&GpuUuid>) -> Option<&SeenGpu> {
        self.seen.iter().find(|seen| Some(&seen.uuid) == uuid)
    }

    /// The counters to remember after this look. An earlier look stays until it is a minute old: rates over less say
    /// little, and a busy node need not write with every job.
    pub fn seen_after(&self, snapshot: &Snapshot) -> Vec<SeenGpu> {
        let mut seen = self.seen.clone();
        for now in snapshot.gpus.iter().filter_map(|gpu| SeenGpu::of(gpu, snapshot)) {
            match seen.iter_mut().find(|before| before.uuid == now.uuid) {
                Some(before) if now.boottime_ns.saturating_sub(before.boottime_ns) < RESAMPLE_NS => {}
                Some(before) => *before = now,
                None => seen.push(now),
            }
        }
        seen
    }
}

/// Ours: a minute.
const RESAMPLE_NS: u64 = 60_000_000_000;

/// An ECC count that drained the node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ActedEcc {
    /// The GPU.
    pub pci: PciAddress,
    /// The count.
    pub errors: u64,
    /// When, CLOCK_BOOTTIME nanoseconds.
    pub boottime_ns: u64,
}

/// A subject that has not answered since a moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SilentMark {
    /// The GPU, or `None` for the driver as a whole.
    pub pci: Option<PciAddress>,
    /// The first silent look, CLOCK_BOOTTIME nanoseconds.
    pub first_boottime_ns: u64,
}

/// Counters of one GPU at an earlier look of the same boot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SeenGpu {
    /// The GPU.
    pub uuid: GpuUuid,
    /// When, CLOCK_BOOTTIME nanoseconds.
    pub boottime_ns: u64,
    /// The counters then.
    pub counters: Counters,
    /// DL replays, recoveries, flit CRC errors of all NVLinks together.
    #[serde(default)]
    pub nvlink_errors: Reading<[u64; 3]>,
    /// Clock event bits, for those that must be seen twice.
    #[serde(default)]
    pub event_reasons: Reading<u64>,
    /// AER totals of the GPU and of the port above it: correctable, non-fatal, fatal.
    #[serde(default)]
    pub aer: Reading<[u64; 3]>,
}

impl SeenGpu {
    /// What this look showed of a GPU; nothing where it did not say who it is.
    fn of(gpu: &ProbedGpu, snapshot: &Snapshot) -> Option<SeenGpu> {
        let detail = gpu.reading.detail.as_deref();
        let links = detail.map_or(&[][..], |detail| detail.nvlinks.as_slice());
        let each: Vec<[u64; 3]> = links.iter().filter_map(|link| link.errors.value().copied()).collect();
        let sum = each
            .iter()
            .fold([0u64; 3], |sum, link| std::array::from_fn(|at| sum[at].saturating_add(link[at])));
        Some(SeenGpu {
            uuid: gpu.reading.uuid.value()?.clone(),
            boottime_ns: snapshot.boottime_ns,
            counters: gpu.reading.counters.clone(),
            nvlink_errors: if each.is_empty() { Reading::NotRead } else { Reading::Value(sum) },
            event_reasons: detail.map_or(Reading::NotRead, |detail| detail.clocks.event_reasons),
            aer: Reading::NotRead,
        })
    }
}
