//! GPU memory: errors that ECC met. What the hardware does about them is in `repair`.

use super::finding::{Finding, Severity, Subject};
use super::{Case, RESUMED_AFTER_NS};
use crate::model::snapshot::ProbedGpu;

pub(super) fn judge_gpu(case: &Case<'_>, gpu: &ProbedGpu) -> Vec<Finding> {
    [uncorrected(case, gpu), corrected(case, gpu)].into_iter().flatten().collect()
}

/// Volatile uncorrected errors above 0 (gcm's limit; DCGM fails on any volatile double-bit error).
fn uncorrected(case: &Case<'_>, gpu: &ProbedGpu) -> Option<Finding> {
    let errors = *gpu.reading.counters.ecc_volatile_uncorr.value().filter(|&&errors| errors > 0)?;
    let what = format!("{errors} uncorrectable ECC errors");
    let finding = Finding::of("ECC_UNCORR", Subject::of(gpu), what, "NVML volatile ECC counters");
    let finding = finding.measured(errors, 0);
    Some(if resumed_with(case, gpu, errors) { finding.with_severity(Severity::Warn) } else { finding })
}

/// The rate since an earlier look; a high count by itself is only worth a line, fleets differ hugely.
fn corrected(case: &Case<'_>, gpu: &ProbedGpu) -> Option<Finding> {
    let errors = *gpu.reading.counters.ecc_aggregate_corr.value()?;
    let finding = |what| Finding::of("ECC_CORR", Subject::of(gpu), what, "NVML aggregate ECC counters");
    let most = case.limits.ecc_corr_per_s;
    match corrected_per_s(case, gpu, errors).filter(|&rate| rate > most) {
        Some(rate) => Some(finding(format!("{rate} corrected ECC errors a second")).measured(rate, most)),
        None => {
            let most = case.limits.ecc_corr_total;
            let found =
                || finding(format!("{errors} corrected ECC errors in its life")).measured(errors, most);
            (errors > most).then(|| found().with_severity(Severity::Info))
        }
    }
}

fn corrected_per_s(case: &Case<'_>, gpu: &ProbedGpu, errors: u64) -> Option<u64> {
    let seen = case.history.seen(gpu.uuid())?;
    let grown = errors.checked_sub(*seen.counters.ecc_aggregate_corr.value()?)?;
    Some(grown / (seen.age_ns(case.snapshot)? / 1_000_000_000))
}

/// The counter stays above 0 until a reset. One that drained the node, and has not grown since somebody resumed it, is not
/// news.
fn resumed_with(case: &Case<'_>, gpu: &ProbedGpu, errors: u64) -> bool {
    let same = |acted: &&super::ActedEcc| Some(acted.pci) == gpu.pci() && errors <= acted.errors;
    let mut acted = case.history.acted_ecc.iter().filter(same);
    acted.any(|acted| case.snapshot.boottime_ns.saturating_sub(acted.boottime_ns) > RESUMED_AFTER_NS)
}
