//! The driver's own word on what a GPU needs: NVML field 230.

use super::finding::{Finding, Remedy, Severity, Subject};
use crate::model::snapshot::ProbedGpu;

/// Severity and remedy of a recovery action: 1 and 4 reset, 2 reboot, 3 and 5 a warning (nvml.h API 13;
/// health_checks.md check 12).
pub(super) fn judgement(action: u64) -> (Severity, Remedy) {
    match action {
        0 => (Severity::Info, Remedy::Admin),
        1 | 4 => (Severity::Fail, Remedy::Reset),
        2 => (Severity::Fail, Remedy::Reboot),
        _ => (Severity::Warn, Remedy::Admin),
    }
}

/// The driver's name of an action.
pub(super) fn name(action: u64) -> String {
    match action {
        0 => "none".into(),
        1 => "GPU reset".into(),
        2 => "node reboot".into(),
        3 => "drain P2P".into(),
        4 => "drain and reset".into(),
        5 => "recover IMEX domain".into(),
        other => format!("{other} (unknown)"),
    }
}

/// A driver that does not know the field (before R565 to R570) says neither healthy nor broken.
pub(super) fn judge(gpu: &ProbedGpu) -> Option<Finding> {
    let action = *gpu.reading.recovery_action.value()?;
    if action == 0 {
        return None;
    }
    let what = format!("driver wants {}", name(action));
    let mut finding = Finding::of("RECOVERY", Subject::of(gpu), what, "NVML field 230").measured(action, 0);
    (finding.severity, finding.remedy) = judgement(action);
    Some(finding)
}
