//! Whether a GPU is at work, and how fast it runs then.

use crate::model::Reading;
use crate::model::detail::{ClockReading, GpuDetail};
use crate::model::snapshot::{ProbedGpu, Snapshot};

/// From this utilisation on a GPU counts as under load, percent. Ours.
const BUSY_PCT: u32 = 90;

/// A sibling more or less must not decide: with fewer there is no median to speak of. Ours.
const SIBLINGS: usize = 2;

/// `nvmlClocksEventReason*` (nvml.h): what holds a clock down. Idle (0x1), application clocks (0x2), sync boost (0x10) and
/// display clocks (0x100) are no faults, and the software power cap (0x4) under load is normal.
pub(super) mod reason {
    pub const POWER_CAP: u64 = 0x4;
    pub const HW_SLOWDOWN: u64 = 0x8;
    pub const SYNC_BOOST: u64 = 0x10;
    pub const SW_THERMAL: u64 = 0x20;
    pub const HW_THERMAL: u64 = 0x40;
    pub const POWER_BRAKE: u64 = 0x80;
    pub const BAD: u64 = HW_SLOWDOWN | SW_THERMAL | HW_THERMAL | POWER_BRAKE;
}

/// Whether nothing runs on a GPU: no process holds it, and its utilisation, where that was read, is 0.
pub(super) fn idle(gpu: &ProbedGpu) -> Reading<bool> {
    let Some(detail) = gpu.reading.detail.as_deref() else { return Reading::NotRead };
    let used = detail.clocks.util_pct.value().is_some_and(|util| util[0] > 0);
    match &detail.processes {
        Reading::Value(processes) => Reading::Value(processes.is_empty() && !used),
        _ => Reading::NotRead,
    }
}

/// The SM clock of a GPU under load, MHz. MIG GPUs tell no utilisation, so they have none.
fn busy_sm_mhz(gpu: &ProbedGpu) -> Option<u64> {
    let clocks = &gpu.reading.detail.as_deref()?.clocks;
    let [_, sm_mhz, ..] = *clocks.now_mhz.value()?;
    (clocks.util_pct.value()?[0] >= BUSY_PCT).then_some(u64::from(sm_mhz))
}

/// The clock of a GPU under load, percent of the median of its siblings: the GPUs of the same model under load.
pub(super) fn of_siblings_pct(snapshot: &Snapshot, gpu: &ProbedGpu) -> Option<u64> {
    let own = busy_sm_mhz(gpu)?;
    let model = gpu.reading.model.value()?;
    let is_sibling = |other: &&ProbedGpu| {
        other.pci() != gpu.pci() && other.reading.model.value().is_some_and(|name| name == model)
    };
    let mut clocks: Vec<u64> =
        snapshot.gpus.iter().filter(is_sibling).filter_map(busy_sm_mhz).filter(|&mhz| mhz > 0).collect();
    clocks.sort_unstable();
    // Of an even number the lower one: in doubt for the GPU.
    let median = clocks.get(clocks.len().checked_sub(1)? / 2)?;
    (clocks.len() >= SIBLINGS).then(|| own * 100 / median)
}

/// The clock of a GPU under load, percent of its default application clock.
pub(super) fn of_default_pct(gpu: &ProbedGpu) -> Option<u64> {
    let [graphics_mhz, _] = *gpu.reading.detail.as_deref()?.clocks.app_default_mhz.value()?;
    let own = busy_sm_mhz(gpu)?;
    (graphics_mhz > 0).then(|| own * 100 / u64::from(graphics_mhz))
}

/// Whether the application clocks are others than by default.
pub(super) fn has_other_app_clocks(clocks: &ClockReading) -> bool {
    matches!((clocks.app_mhz, clocks.app_default_mhz), (Reading::Value(now), Reading::Value(default)) if now != default)
}

/// Whether the power cap explains a low clock: the driver says so, and the draw, where it is known, is near the limit. At
/// 90 percent of it, which is ours.
pub(super) fn is_at_its_power_cap(detail: &GpuDetail) -> bool {
    let capped = detail.clocks.event_reasons.value().is_some_and(|bits| bits & reason::POWER_CAP != 0);
    let far_below = match (detail.power.draw_mw.value(), detail.power.enforced_limit_mw.value()) {
        (Some(&draw), Some(&limit)) => u64::from(draw) * 100 < u64::from(limit) * 90,
        _ => false,
    };
    capped && !far_below
}
