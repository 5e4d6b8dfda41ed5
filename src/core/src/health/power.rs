//! Power: the limit in force, and a reading that cannot be true.

use super::Case;
use super::finding::{Finding, Subject};
use crate::model::Reading;
use crate::model::snapshot::ProbedGpu;

pub(super) fn judge_gpu(case: &Case<'_>, gpu: &ProbedGpu) -> Vec<Finding> {
    [limit(case, gpu), unreadable(gpu), over(case, gpu)].into_iter().flatten().collect()
}

/// The limit in force against the board's default, or against the lower one that the site set on purpose. A cap of the BMC
/// shows in the enforced limit only.
fn limit(case: &Case<'_>, gpu: &ProbedGpu) -> Option<Finding> {
    let power = &gpu.reading.detail.as_deref()?.power;
    let (&enforced, &default) = (power.enforced_limit_mw.value()?, power.default_limit_mw.value()?);
    let on_purpose = case.expected.power_limit_mw.as_ref().filter(|(limit, _)| *limit < default);
    let (wanted, by) = on_purpose.map_or((default, "default"), |(limit, by)| (*limit, by.as_str()));
    if u64::from(enforced) * 100 >= u64::from(wanted) * u64::from(case.limits.power_limit_pct) {
        return None;
    }
    let watts = |mw: u32| mw / 1000;
    let what = format!("power limit {} W, {} W by {by}", watts(enforced), watts(wanted));
    Some(Finding::of("POWER_LIMIT", Subject::of(gpu), what, "NVML power limits").measured(enforced, wanted))
}

/// The driver answers the question for the draw with an error, as DCGM judges. "Not supported" is no error.
fn unreadable(gpu: &ProbedGpu) -> Option<Finding> {
    let Reading::Failed(code) = gpu.reading.detail.as_deref()?.power.draw_mw else { return None };
    let what = format!("draw not readable, NVML code {code}");
    Some(Finding::of("POWER_READ", Subject::of(gpu), what, "NVML power"))
}

/// More than the limit allows: now, and as a mean since an earlier look, which the energy counter gives without caring for
/// short peaks.
fn over(case: &Case<'_>, gpu: &ProbedGpu) -> Option<Finding> {
    let power = &gpu.reading.detail.as_deref()?.power;
    let (&now_mw, &limit_mw) = (power.draw_mw.value()?, power.enforced_limit_mw.value()?);
    let mean_mw = mean_mw(case, gpu)?;
    let most_mw = u64::from(limit_mw) * u64::from(case.limits.power_over_pct) / 100;
    if u64::from(now_mw) <= most_mw || mean_mw <= most_mw {
        return None;
    }
    let what = format!("draws {} W at a limit of {} W", mean_mw / 1000, limit_mw / 1000);
    Some(
        Finding::of("POWER_READ", Subject::of(gpu), what, "NVML power and energy").measured(mean_mw, most_mw),
    )
}

/// Mean draw since an earlier look, mW; nothing where the counter was reset in between.
pub(super) fn mean_mw(case: &Case<'_>, gpu: &ProbedGpu) -> Option<u64> {
    let seen = case.history.seen(gpu.uuid())?;
    let age_ms = seen.age_ns(case.snapshot)? / 1_000_000;
    let used_mj = gpu.reading.counters.energy_mj.value()?.checked_sub(*seen.counters.energy_mj.value()?)?;
    Some(used_mj.saturating_mul(1000) / age_ms)
}
