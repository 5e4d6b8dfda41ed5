//! Heat: temperatures, and what slows a GPU down to bear them.

use super::Case;
use super::finding::{Finding, Severity, Subject};
use super::load::{self, reason};
use crate::model::Reading;
use crate::model::snapshot::ProbedGpu;

/// How far apart two looks must be for a bit in both to count, ns: hardware slowdown also shows for a moment when the
/// performance state changes (nvml.h). 2 s are ours.
const CONFIRM_NS: u64 = 2_000_000_000;

/// A mean draw below this share of the default power limit between two looks means that nothing heavy ran in between, so
/// that heat is not a job's. 30 percent is ours.
const IDLE_DRAW_PCT: u64 = 30;

pub(super) fn judge_gpu(case: &Case<'_>, gpu: &ProbedGpu) -> Vec<Finding> {
    let core = at_its_limit(gpu).or_else(|| hot_while_idle(case, gpu));
    let rest = [memory_at_its_limit(case, gpu), throttled_twice(case, gpu), throttled_for_long(case, gpu)];
    core.into_iter().chain(rest.into_iter().flatten()).collect()
}

/// The core at the limit of its own board: by its margin where there is one (0 or less, as gpud; boards from Ada on state
/// the limit on the same scale in field 196), else by the threshold call, which is on its way out.
fn at_its_limit(gpu: &ProbedGpu) -> Option<Finding> {
    let temp = &gpu.reading.detail.as_deref()?.temp;
    let now = gpu.reading.temp_c;
    if let Some(&margin) = temp.margin_c.value() {
        let limit = temp.tlimit_c.value().map_or(0, |limits| limits[3]);
        let what = format!("{now} C is at its limit, margin {margin} C");
        let finding = || Finding::of("TEMP_GPU", Subject::of(gpu), what, "NVML temperature margin");
        return (margin <= limit).then(|| finding().measured(margin, limit));
    }
    let (&now, &limit) = (now.value()?, temp.gpu_max_c.value().or_else(|| temp.slowdown_c.value())?);
    let finding =
        || Finding::of("TEMP_GPU", Subject::of(gpu), format!("{now} C is at its limit"), "NVML temperature");
    (now >= limit && limit > 0).then(|| finding().measured(now, limit))
}

/// Hot although nothing runs, in two looks between which nothing heavy ran either: air, fans, a neighbour.
fn hot_while_idle(case: &Case<'_>, gpu: &ProbedGpu) -> Option<Finding> {
    let seen = case.history.seen(gpu.uuid())?;
    let (&now, &before) = (gpu.reading.temp_c.value()?, seen.temp_c.value()?);
    let limit = case.limits.idle_temp_c;
    let idle = load::idle(gpu) == Reading::Value(true) && seen.idle == Reading::Value(true);
    if now <= limit || before <= limit || !idle {
        return None;
    }
    let default_mw = gpu.reading.detail.as_deref()?.power.default_limit_mw.value()?;
    let mean_mw = super::power::mean_mw(case, gpu)?;
    let finding =
        || Finding::of("TEMP_GPU", Subject::of(gpu), format!("{now} C while idle"), "NVML temperature");
    (mean_mw * 100 < u64::from(*default_mw) * IDLE_DRAW_PCT).then(|| finding().measured(now, limit))
}

/// The memory at the limit of its board; where the driver says that it has none to tell, at the configured one. 0 is what
/// boards without the sensor answer.
fn memory_at_its_limit(case: &Case<'_>, gpu: &ProbedGpu) -> Option<Finding> {
    let temp = &gpu.reading.detail.as_deref()?.temp;
    let now = *temp.memory_c.value().filter(|&&now| now > 0)?;
    let limit = match temp.memory_max_c {
        Reading::Value(limit) if limit > 0 => limit,
        Reading::Value(_) | Reading::NotSupported => case.limits.memory_temp_c,
        _ => return None,
    };
    let finding = || Finding::of("TEMP_MEM", Subject::of(gpu), format!("memory at {now} C"), "NVML field 82");
    (now >= limit).then(|| finding().measured(now, limit))
}

/// Bits are momentary, so only those count that an earlier look showed as well. Hardware heat or the power brake on a GPU
/// that was idle both times is beyond doubt: no load of a job explains it.
fn throttled_twice(case: &Case<'_>, gpu: &ProbedGpu) -> Option<Finding> {
    let seen = case.history.seen(gpu.uuid())?;
    let apart_ns = case.snapshot.boottime_ns.saturating_sub(seen.boottime_ns);
    let now = gpu.reading.detail.as_deref()?.clocks.event_reasons;
    let both = now.value()? & seen.event_reasons.value()? & reason::BAD;
    if both == 0 || apart_ns < CONFIRM_NS {
        return None;
    }
    let idle = load::idle(gpu) == Reading::Value(true) && seen.idle == Reading::Value(true);
    let hard = both & (reason::HW_THERMAL | reason::POWER_BRAKE) != 0;
    let what = format!("slowed down by {}{}", causes(both), if idle { " while idle" } else { "" });
    let finding = Finding::of("THROTTLE", Subject::of(gpu), what, "NVML clock event reasons, two looks");
    let finding = finding.measured(format!("{both:#x}"), 0);
    Some(if idle && hard { finding.with_severity(Severity::Fail) } else { finding })
}

fn causes(bits: u64) -> String {
    let names = [
        (reason::HW_THERMAL, "hardware heat"),
        (reason::POWER_BRAKE, "power brake"),
        (reason::SW_THERMAL, "software heat"),
        (reason::HW_SLOWDOWN, "hardware"),
    ];
    let mut told: Vec<&str> =
        names.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect();
    // Hardware slowdown is set along with the cause that it has.
    if told.len() > 1 {
        told.retain(|name| *name != "hardware");
    }
    told.join(", ")
}

/// The time spent throttled since the job's start, or since an earlier look. A counter that went down was reset.
fn throttled_for_long(case: &Case<'_>, gpu: &ProbedGpu) -> Option<Finding> {
    let start = case.history.job_start_or_seen(gpu.uuid())?;
    let age_ns = start.age_ns(case.snapshot)?;
    let (before, now) = (&start.counters, &gpu.reading.counters);
    let times = [
        ("hardware heat", before.throttle_hw_thermal_ns, now.throttle_hw_thermal_ns),
        ("software heat", before.throttle_sw_thermal_ns, now.throttle_sw_thermal_ns),
        ("power brake", before.throttle_power_brake_ns, now.throttle_power_brake_ns),
    ];
    let grown = times.iter().filter_map(|(name, before, now)| {
        Some((now.value()?.checked_sub(*before.value()?)?.saturating_mul(100), *name))
    });
    let (hundredfold_ns, name) = grown.max_by_key(|(hundredfold_ns, _)| *hundredfold_ns)?;
    let limit = u64::from(case.limits.throttle_pct);
    let share = hundredfold_ns / age_ns;
    let what = format!("slowed down by {name} for {share} % of {} s", age_ns / 1_000_000_000);
    let finding = || Finding::of("THROT_TIME", Subject::of(gpu), what, "NVML throttle times");
    (hundredfold_ns > limit.saturating_mul(age_ns)).then(|| finding().measured(share, limit))
}
