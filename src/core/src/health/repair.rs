//! What the hardware does about bad memory: remapped rows, retired pages, repairs, and where it can do no more.

use super::finding::{Finding, Remedy, Severity, Subject};
use crate::model::snapshot::ProbedGpu;

/// Rows that a board can remap for uncorrectable errors in all (NVIDIA's RMA policy).
const MAX_REMAPS: u64 = 512;

/// Pages in all, and pages for double-bit errors, from which on DCGM fails a board; the InfoROM has no room for many more.
const MAX_PAGES: u64 = 63;
const MAX_DOUBLE_BIT_PAGES: u64 = 15;

pub(super) fn judge_gpu(gpu: &ProbedGpu) -> Vec<Finding> {
    let rules = [sram_limit, remap_pending, remap_failed, remap_room, pages, pages_pending, repair_pending];
    rules.iter().filter_map(|rule| rule(gpu)).collect()
}

fn finding(code: &str, gpu: &ProbedGpu, what: impl Into<String>, source: &str) -> Finding {
    Finding::of(code, Subject::of(gpu), what, source)
}

/// The driver's own word: more than 4 unique uncorrectable errors in a bank by parity, or more than 2 by SECDED (NVIDIA's
/// RMA policy).
fn sram_limit(gpu: &ProbedGpu) -> Option<Finding> {
    let over = gpu.reading.detail.as_deref()?.ecc.sram_threshold_exceeded.value() == Some(&true);
    let found = || finding("SRAM_LIMIT", gpu, "over the limit of SRAM errors", "NVML SRAM error status");
    over.then(|| found().measured(1, 0))
}

/// Work may go on: the remap happens at the next reset (NVIDIA).
fn remap_pending(gpu: &ProbedGpu) -> Option<Finding> {
    let pending = gpu.reading.remap_pending.value() == Some(&true);
    let found = || finding("REMAP_PEND", gpu, "a row remap waits for a reset", "NVML remapped rows");
    pending.then(|| found().measured(1, 0))
}

/// A bank out of spares, the same row again, or 512 rows in total (NVIDIA's RMA policy).
fn remap_failed(gpu: &ProbedGpu) -> Option<Finding> {
    let failed = gpu.reading.remap_failed.value() == Some(&true);
    let found = || finding("REMAP_FAIL", gpu, "row remap failed", "NVML remapped rows");
    failed.then(|| found().measured(1, 0))
}

/// The next error in such a bank, or the next one at all, cannot be remapped any more.
fn remap_room(gpu: &ProbedGpu) -> Option<Finding> {
    let banks = gpu.reading.detail.as_deref().and_then(|detail| detail.ecc.remap_histogram.value());
    let full = banks.map_or(0, |[.., none]| *none);
    let rows = gpu.reading.counters.remapped_uncorr.value().copied().unwrap_or(0);
    if full > 0 {
        let what = format!("{full} memory banks without a spare row");
        return Some(finding("REMAP_ROOM", gpu, what, "NVML row remapper histogram").measured(full, 0));
    }
    let found = || finding("REMAP_ROOM", gpu, format!("{rows} rows remapped"), "NVML remapped rows");
    (rows >= MAX_REMAPS).then(|| found().measured(rows, MAX_REMAPS))
}

fn pages(gpu: &ProbedGpu) -> Option<Finding> {
    let &[single, double] = gpu.reading.detail.as_deref()?.ecc.retired_pages.value()?;
    let all = single.saturating_add(double);
    let what = format!("{all} memory pages retired, {double} for double-bit errors");
    let found = || finding("PAGES_RETIRE", gpu, what, "NVML retired pages");
    if all >= MAX_PAGES {
        return Some(found().measured(all, MAX_PAGES));
    }
    (double > MAX_DOUBLE_BIT_PAGES).then(|| found().measured(double, MAX_DOUBLE_BIT_PAGES))
}

fn pages_pending(gpu: &ProbedGpu) -> Option<Finding> {
    let pending = gpu.reading.detail.as_deref()?.ecc.retire_pending.value() == Some(&true);
    let found = || finding("PAGES_RETIRE", gpu, "a page retirement waits for a reset", "NVML retired pages");
    pending.then(|| {
        let warning = found().measured(1, 0).with_severity(Severity::Warn);
        Finding { remedy: Remedy::Reset, ..warning }
    })
}

fn repair_pending(gpu: &ProbedGpu) -> Option<Finding> {
    let &[channel, tpc] = gpu.reading.detail.as_deref()?.ecc.repair_pending.value()?;
    let what = match (channel, tpc) {
        (true, true) => "repairs of a memory channel and of a TPC wait for a reset",
        (true, false) => "a repair of a memory channel waits for a reset",
        (false, true) => "a repair of a TPC waits for a reset",
        (false, false) => return None,
    };
    Some(finding("MEM_REPAIR", gpu, what, "NVML repair status").measured(1, 0))
}
