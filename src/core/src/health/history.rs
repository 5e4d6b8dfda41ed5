//! What earlier looks left behind.

use super::load;
use super::log_rules::repeat::AppXid;
use crate::model::platform::StuckProcess;
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
    /// Users' XIDs of the last days, over boots.
    pub app_xids: Vec<AppXid>,
    /// Counters of the job's GPUs at its start, after a job.
    pub job_start: Vec<SeenGpu>,
    /// Processes that were seen waiting in the kernel, at every look since.
    pub stuck: Vec<StuckMark>,
}

impl History {
    /// The earlier look at this GPU.
    pub fn seen(&self, uuid: Option<&GpuUuid>) -> Option<&SeenGpu> {
        self.seen.iter().find(|seen| Some(&seen.uuid) == uuid)
    }

    /// Where a rate over the job begins: at the job's start where this look is after a job, else at the earlier look.
    pub fn job_start_or_seen(&self, uuid: Option<&GpuUuid>) -> Option<&SeenGpu> {
        self.job_start.iter().find(|start| Some(&start.uuid) == uuid).or_else(|| self.seen(uuid))
    }

    /// The counters to remember after this look. An earlier look stays until it is a minute old: rates over less say
    /// little, and a busy node need not write with every job.
    pub fn seen_after(&self, snapshot: &Snapshot) -> Vec<SeenGpu> {
        let mut seen = self.seen.clone();
        for now in snapshot.gpus.iter().filter_map(|gpu| SeenGpu::of(gpu, snapshot)) {
            match seen.iter_mut().find(|before| before.uuid == now.uuid) {
                Some(before) => before.follow(now),
                None => seen.push(now),
            }
        }
        seen
    }
}

/// Ours: a minute. A rate over less says little.
impl History {
    /// When this process was first seen waiting in the kernel.
    pub fn stuck_since_ns(&self, process: &StuckProcess) -> Option<u64> {
        self.stuck.iter().find(|mark| mark.is_of(process)).map(|mark| mark.first_boottime_ns)
    }

    /// The marks after this look: who no longer waits is struck off. A look that did not ask keeps them.
    pub fn stuck_after(&self, snapshot: &Snapshot) -> Vec<StuckMark> {
        let Some(stuck) = snapshot.host.platform.stuck.value() else { return self.stuck.clone() };
        let mark = |process: &StuckProcess| StuckMark {
            pid: process.pid,
            start_ticks: process.start_ticks,
            first_boottime_ns: self.stuck_since_ns(process).unwrap_or(snapshot.boottime_ns),
        };
        stuck.iter().map(mark).collect()
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

/// A process that has been seen waiting in the kernel since a moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StuckMark {
    /// Process id.
    pub pid: u32,
    /// When it was started, in clock ticks since boot.
    pub start_ticks: u64,
    /// The first look that saw it so, CLOCK_BOOTTIME nanoseconds.
    pub first_boottime_ns: u64,
}

impl StuckMark {
    fn is_of(&self, process: &StuckProcess) -> bool {
        (self.pid, self.start_ticks) == (process.pid, process.start_ticks)
    }
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
    /// Clock event bits, for those that must be seen twice.
    #[serde(default)]
    pub event_reasons: Reading<u64>,
    /// Whether nothing ran on it.
    #[serde(default)]
    pub idle: Reading<bool>,
    /// Core temperature.
    #[serde(default)]
    pub temp_c: Reading<u32>,
    /// SM clock under load, percent of the siblings' median and of the default application clock.
    #[serde(default)]
    pub clock_pct: [Reading<u64>; 2],
    /// Device memory in use that no process holds, MiB.
    #[serde(default)]
    pub unheld_mib: Reading<u64>,
    /// Since which look the GPU has waited for the NVLink fabric; 0 where it does not.
    #[serde(default)]
    pub fabric_waits_since_ns: Reading<u64>,
    /// Counters of its links at the last look that read them.
    #[serde(default)]
    pub links: Option<SeenLinks>,
}

/// Error counters of a GPU's links, which only a look at leisure reads.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SeenLinks {
    /// When, CLOCK_BOOTTIME nanoseconds.
    pub boottime_ns: u64,
    /// DL replays, recoveries, flit CRC errors of all NVLinks together.
    pub nvlink_errors: Reading<[u64; 3]>,
    /// Recoveries of all NVLinks together that failed.
    pub nvlink_not_recovered: Reading<u64>,
    /// AER totals of the GPU and of the port above it: correctable, non-fatal, fatal.
    pub aer: Reading<[u64; 3]>,
}

impl SeenLinks {
    /// What this look read of a GPU; nothing where it read none of it.
    pub(super) fn of(gpu: &ProbedGpu, snapshot: &Snapshot) -> Option<SeenLinks> {
        let links = gpu.reading.detail.as_deref().map_or(&[][..], |detail| detail.nvlinks.as_slice());
        let not_recovered = sum(links.iter().map(|link| link.recoveries.map(|[_, failed]| [failed])));
        let of_host = snapshot.host.driver_gpus.iter().find(|known| Some(known.pci) == gpu.pci());
        let seen = SeenLinks {
            boottime_ns: snapshot.boottime_ns,
            nvlink_errors: sum(links.iter().map(|link| link.errors)).map_or(Reading::NotRead, Reading::Value),
            nvlink_not_recovered: not_recovered.map_or(Reading::NotRead, |[sum]| Reading::Value(sum)),
            aer: of_host.map_or(Reading::NotRead, |known| known.aer),
        };
        let any = seen.nvlink_errors.value().is_some()
            || seen.nvlink_not_recovered.value().is_some()
            || seen.aer.value().is_some();
        any.then_some(seen)
    }
}

/// Counters of all links together. Nothing where one link does not tell: it would look as if errors had come, once it
/// tells again.
fn sum<const N: usize>(links: impl Iterator<Item = Reading<[u64; N]>>) -> Option<[u64; N]> {
    let mut sum: Option<[u64; N]> = None;
    for link in links {
        let link = *link.value()?;
        let so_far = sum.get_or_insert([0; N]);
        so_far.iter_mut().zip(link).for_each(|(sum, count)| *sum = sum.saturating_add(count));
    }
    sum
}

impl SeenGpu {
    /// Counters alone, as a job's start has them.
    pub fn of_counters(uuid: GpuUuid, boottime_ns: u64, counters: Counters) -> SeenGpu {
        SeenGpu {
            uuid,
            boottime_ns,
            counters,
            event_reasons: Reading::NotRead,
            fabric_waits_since_ns: Reading::NotRead,
            links: None,
            unheld_mib: Reading::NotRead,
            idle: Reading::NotRead,
            temp_c: Reading::NotRead,
            clock_pct: [Reading::NotRead; 2],
        }
    }

    /// How long before `snapshot` this look was, ns; nothing where that is too short for a rate.
    pub fn age_ns(&self, snapshot: &Snapshot) -> Option<u64> {
        Some(snapshot.boottime_ns.saturating_sub(self.boottime_ns)).filter(|&age_ns| age_ns >= RESAMPLE_NS)
    }

    /// This look, with what only a look under load shows kept from the one before.
    fn keeping(mut self, before: &SeenGpu) -> SeenGpu {
        for (now, before) in self.clock_pct.iter_mut().zip(before.clock_pct) {
            if now.value().is_none() {
                *now = before;
            }
        }
        self
    }

    /// What this look showed of a GPU; nothing where it did not say who it is.
    fn of(gpu: &ProbedGpu, snapshot: &Snapshot) -> Option<SeenGpu> {
        let detail = gpu.reading.detail.as_deref();
        Some(SeenGpu {
            uuid: gpu.reading.uuid.value()?.clone(),
            boottime_ns: snapshot.boottime_ns,
            counters: gpu.reading.counters.clone(),
            event_reasons: detail.map_or(Reading::NotRead, |detail| detail.clocks.event_reasons),
            idle: load::idle(gpu),
            temp_c: gpu.reading.temp_c,
            clock_pct: [load::of_siblings_pct(snapshot, gpu), load::of_default_pct(gpu)]
                .map(|share| share.map_or(Reading::NotRead, Reading::Value)),
            fabric_waits_since_ns: detail.map_or(Reading::NotRead, |detail| {
                let fabric = detail.fabric.clone();
                fabric.map(|fabric| if fabric.waits() { snapshot.boottime_ns } else { 0 })
            }),
            links: SeenLinks::of(gpu, snapshot),
            unheld_mib: super::leftovers::unheld_mib(snapshot, gpu).map_or(Reading::NotRead, Reading::Value),
        })
    }

    /// Takes over a later look at the same GPU. Most looks do not read everything: what they do not read stays.
    fn follow(&mut self, now: SeenGpu) {
        let waits_since_ns = match (self.fabric_waits_since_ns, now.fabric_waits_since_ns) {
            (Reading::Value(since), Reading::Value(again)) if since > 0 && again > 0 => Reading::Value(since),
            (_, Reading::Value(since)) => Reading::Value(since),
            (before, _) => before,
        };
        if now.boottime_ns.saturating_sub(self.boottime_ns) < RESAMPLE_NS {
            self.links = self.links.take().or(now.links);
        } else {
            let links = now.links.clone().or_else(|| self.links.take());
            *self = SeenGpu { links, ..now.keeping(self) };
        }
        self.fabric_waits_since_ns = waits_since_ns;
    }
}
