//! The driver's own word on what a GPU needs: NVML field 230.

use super::action::Action;
use super::finding::{Finding, Remedy, Severity, Subject};
use crate::model::snapshot::ProbedGpu;

/// What a recovery action asks for: 1 and 4 reset, 2 reboot, 3 and 5 a warning (nvml.h API 13; health_checks.md check 12).
pub(super) fn action(action: u64) -> Action {
    match action {
        0 => Action::Ignore,
        1 | 4 => Action::DrainReset,
        2 => Action::DrainReboot,
        _ => Action::Warn,
    }
}

/// Severity and remedy of a recovery action.
pub(super) fn judgement(number: u64) -> (Severity, Remedy) {
    action(number).judgement()
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
