//! GPU memory: uncorrectable errors and failed row remaps.

use super::finding::{Finding, Subject};
use crate::model::snapshot::ProbedGpu;

/// Volatile uncorrected errors above 0 (gcm's limit; DCGM fails on any volatile double-bit error), and the remap
/// failure flag (NVIDIA's RMA policy: a bank out of spares, the same row again, or 512 rows in total).
pub(super) fn judge(gpu: &ProbedGpu) -> Vec<Finding> {
    let mut findings = Vec::new();
    match gpu.reading.counters.ecc_volatile_uncorr.value() {
        Some(&errors) if errors > 0 => {
            let what = format!("{errors} uncorrectable ECC errors");
            let finding = Finding::of("ECC_UNCORR", Subject::of(gpu), what, "NVML volatile ECC counters");
            findings.push(finding.measured(errors, 0));
        }
        _ => {}
    }
    if gpu.reading.remap_failed.value() == Some(&true) {
        let finding = Finding::of("REMAP_FAIL", Subject::of(gpu), "row remap failed", "NVML remapped rows");
        findings.push(finding.measured(1, 0));
    }
    findings
}
