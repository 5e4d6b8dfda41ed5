//! Clocks: a GPU that runs slower than its siblings, and clocks that somebody left over.

use super::finding::{Finding, Subject};
use super::load::{self, reason};
use super::{Case, SeenGpu};
use crate::model::Reading;
use crate::model::snapshot::ProbedGpu;

pub(super) fn judge_gpu(case: &Case<'_>, gpu: &ProbedGpu) -> Vec<Finding> {
    slower_than_siblings(case, gpu)
        .or_else(|| left_over(gpu))
        .or_else(|| held(case, gpu))
        .into_iter()
        .collect()
}

/// The slowdown that shows no XID and no error: warm inlet air, a tired board, a clock that somebody locked. Twice, at
/// least a minute apart, since load comes and goes. What explains it otherwise is not this: a power cap at work, sync
/// boost, application clocks of its own.
fn slower_than_siblings(case: &Case<'_>, gpu: &ProbedGpu) -> Option<Finding> {
    let share = load::of_siblings_pct(case.snapshot, gpu)?;
    let detail = gpu.reading.detail.as_deref()?;
    let explained = load::has_other_app_clocks(&detail.clocks)
        || load::is_at_its_power_cap(detail)
        || detail.clocks.event_reasons.value().is_some_and(|bits| bits & reason::SYNC_BOOST != 0);
    let limit = u64::from(case.limits.clock_low_pct);
    let before = minute_ago(case, gpu)?.clock_pct[0];
    if explained || share >= limit || before.value().is_none_or(|&before| before >= limit) {
        return None;
    }
    let what = format!("SM clock at {share} % of its siblings' under load");
    Some(Finding::of("CLOCK_LOW", Subject::of(gpu), what, "NVML clocks").measured(share, limit))
}

/// Application clocks other than by default while nothing runs: a running job may have asked for them.
fn left_over(gpu: &ProbedGpu) -> Option<Finding> {
    let clocks = &gpu.reading.detail.as_deref()?.clocks;
    if !load::has_other_app_clocks(clocks) || load::idle(gpu) != Reading::Value(true) {
        return None;
    }
    let text = |[graphics, memory]: [u32; 2]| format!("{graphics}/{memory} MHz");
    let (now, default) = (text(*clocks.app_mhz.value()?), text(*clocks.app_default_mhz.value()?));
    let what = format!("application clocks {now}, default {default}");
    Some(Finding::of("LEFT_CLOCKS", Subject::of(gpu), what, "NVML application clocks").measured(now, default))
}

/// Locked clocks cannot be asked for. They show as a clock far below the default under load for which the driver names
/// no reason, twice, at least a minute apart.
fn held(case: &Case<'_>, gpu: &ProbedGpu) -> Option<Finding> {
    let share = load::of_default_pct(gpu)?;
    let detail = gpu.reading.detail.as_deref()?;
    let bits = *detail.clocks.event_reasons.value()?;
    let told = bits & (reason::BAD | reason::SYNC_BOOST) != 0 || load::is_at_its_power_cap(detail);
    let limit = u64::from(case.limits.clock_low_pct);
    let before = minute_ago(case, gpu)?.clock_pct[1];
    let slow = share < limit && before.value().is_some_and(|&before| before < limit);
    if !slow || told || load::has_other_app_clocks(&detail.clocks) {
        return None;
    }
    let what = format!("SM clock at {share} % of its default under load, for no reason that is told");
    Some(Finding::of("LEFT_CLOCKS", Subject::of(gpu), what, "NVML clocks").measured(share, limit))
}

fn minute_ago<'a>(case: &Case<'a>, gpu: &ProbedGpu) -> Option<&'a SeenGpu> {
    case.history.seen(gpu.uuid()).filter(|seen| seen.age_ns(case.snapshot).is_some())
}
