//! A driver that does not answer.
//!
//! One silent look is not proof: parallel prologs share driver locks, a cold GPU takes seconds. The same subject
//! silent again in a later look is. A child of ours that even SIGKILL does not end is stuck in the driver: while it
//! hangs it is the evidence, and the whole node's.

use super::finding::{Finding, Severity, Subject};
use super::{Case, SilentMark};
use crate::model::snapshot::ProbeOutcome;
use crate::model::{Reading, Snapshot};

/// Findings about silence in this snapshot.
pub(super) fn judge(case: &Case<'_>) -> Vec<Finding> {
    let Case { snapshot, history, gpu_map_certain, .. } = *case;
    let recheck_s = case.limits.silent_recheck_s;
    let long_ago = |since_ns: u64| snapshot.boottime_ns.saturating_sub(since_ns) >= recheck_s * 1_000_000_000;
    if let ProbeOutcome::Blocked { pid, since_boottime_ns } = snapshot.probe {
        let what = format!("driver not answering, probe {pid} hangs in it");
        return vec![of_subject(Subject::Node, what, long_ago(since_boottime_ns))];
    }
    let silent_again =
        |pci| history.silent.iter().any(|mark| mark.pci == pci && long_ago(mark.first_boottime_ns));
    let mut findings = Vec::new();
    if node_silent(snapshot) {
        findings.push(of_subject(Subject::Node, "driver not answering".into(), silent_again(None)));
    }
    if let Some(code) = not_starting(snapshot) {
        let what = format!("NVML does not start, code {code}");
        let severity = if silent_again(None) { Severity::Fail } else { Severity::Unknown };
        findings.push(
            Finding::of("NVML_INIT", Subject::Node, what, "NVML init")
                .with_severity(severity)
                .measured(code, 0),
        );
    }
    let judged = snapshot.gpus.iter().filter(|_| gpu_map_certain);
    for gpu in judged.filter(|gpu| gpu.silent() && !node_silent(snapshot)) {
        let again = gpu.pci().is_some_and(|pci| silent_again(Some(pci)));
        findings.push(of_subject(Subject::of(gpu), "GPU not answering".into(), again));
    }
    findings
}

fn of_subject(subject: Subject, what: String, proven: bool) -> Finding {
    let severity = if proven { Severity::Fail } else { Severity::Unknown };
    Finding::of("PROBE_HANG", subject, what, "probe deadline").with_severity(severity)
}

/// The code with which NVML refuses to start, where no other rule speaks of it: 9 and 18 are the driver's state, 4 and 17
/// our own permissions.
fn not_starting(snapshot: &Snapshot) -> Option<i64> {
    match snapshot.node.nvml {
        Reading::Failed(9 | 17 | 18) => None,
        Reading::Failed(code) => Some(code),
        Reading::Lost => Some(15),
        Reading::ResetRequired => Some(16),
        Reading::NotSupported => Some(3),
        _ => None,
    }
}

fn node_silent(snapshot: &Snapshot) -> bool {
    matches!(snapshot.probe, ProbeOutcome::TimedOut { .. }) && snapshot.node.nvml == Reading::TimedOut
}

/// The silent marks after this look: what answered is struck off, what is silent for the first time is added, what was
/// not asked keeps its mark.
pub fn remember(snapshot: &Snapshot, before: &[SilentMark]) -> Vec<SilentMark> {
    let mut silent_now = Vec::new();
    let mut answered = Vec::new();
    let asked_driver =
        matches!(snapshot.probe, ProbeOutcome::TimedOut { .. } | ProbeOutcome::Finished { .. });
    if asked_driver {
        if node_silent(snapshot) || not_starting(snapshot).is_some() {
            silent_now.push(None)
        } else {
            answered.push(None)
        }
        for gpu in snapshot.gpus.iter().filter(|gpu| gpu.pci().is_some() && !node_silent(snapshot)) {
            if gpu.silent() { silent_now.push(gpu.pci()) } else { answered.push(gpu.pci()) }
        }
    }
    let mut marks: Vec<SilentMark> =
        before.iter().filter(|mark| !answered.contains(&mark.pci)).cloned().collect();
    for pci in silent_now {
        if !marks.iter().any(|mark| mark.pci == pci) {
            marks.push(SilentMark { pci, first_boottime_ns: snapshot.boottime_ns });
        }
    }
    marks
}
