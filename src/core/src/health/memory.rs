//! GPU memory: uncorrectable errors and failed row remaps.

use super::finding::{Finding, Severity, Subject};
use super::{Case, RESUMED_AFTER_NS};
use crate::model::snapshot::ProbedGpu;

/// Volatile uncorrected errors above 0 (gcm's limit; DCGM fails on any volatile double-bit error), and the remap
/// failure flag (NVIDIA's RMA policy: a bank out of spares, the same row again, or 512 rows in total).
pub(super) fn judge_gpu(case: &Case<'_>, gpu: &ProbedGpu) -> Vec<Finding> {
    let mut findings = Vec::new();
    match gpu.reading.counters.ecc_volatile_uncorr.value() {
        Some(&errors) if errors > 0 => {
            let what = format!("{errors} uncorrectable ECC errors");
            let finding = Finding::of("ECC_UNCORR", Subject::of(gpu), what, "NVML volatile ECC counters");
            let finding = finding.measured(errors, 0);
            let known = resumed_with(case, gpu, errors);
            findings.push(if known { finding.with_severity(Severity::Warn) } else { finding });
        }
        _ => {}
    }
    if gpu.reading.remap_failed.value() == Some(&true) {
        let finding = Finding::of("REMAP_FAIL", Subject::of(gpu), "row remap failed", "NVML remapped rows");
        findings.push(finding.measured(1, 0));
    }
    findings
}

/// The counter stays above 0 until a reset. One that drained the node, and has not grown since somebody resumed it, is not
/// news.
fn resumed_with(case: &Case<'_>, gpu: &ProbedGpu, errors: u64) -> bool {
    let same = |acted: &&super::ActedEcc| Some(acted.pci) == gpu.pci() && errors <= acted.errors;
    let mut acted = case.history.acted_ecc.iter().filter(same);
    acted.any(|acted| case.snapshot.boottime_ns.saturating_sub(acted.boottime_ns) > RESUMED_AFTER_NS)
}
