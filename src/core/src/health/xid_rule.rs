//! XIDs of the job's GPUs since they were last cleared.

use super::finding::{Finding, Remedy, Severity, Subject};
use super::xid::{self, XidEvent};
use crate::model::Snapshot;
use crate::model::snapshot::ProbedGpu;

/// A finding for each open XID of this GPU. XIDs of other GPUs say nothing about this job.
pub(super) fn judge(snapshot: &Snapshot, gpu: &ProbedGpu) -> Vec<Finding> {
    let Some(pci) = gpu.pci() else { return Vec::new() };
    let mine = |event: &&XidEvent| event.pci == crate::model::PciAddress { function: 0, ..pci };
    snapshot.xids.iter().filter(mine).map(|event| of_event(event, gpu, snapshot.boottime_ns)).collect()
}

fn of_event(event: &XidEvent, gpu: &ProbedGpu, now_boottime_ns: u64) -> Finding {
    let row = xid::lookup(event.xid);
    let meaning = row.map_or("XID that the catalogue does not know", |row| row.meaning);
    let mut finding =
        Finding::of(&format!("XID{}", event.xid), Subject::of(gpu), short(event.xid, meaning), "kernel log");
    finding.value = Some(event.text.clone());
    finding.why = format!("{meaning}; seen {} s after boot", event.usec / 1_000_000);
    if let Some(action) = event.action_to {
        finding = recovery_severity(finding, action);
    }
    let mut only_warn = |why: &str| {
        finding.severity = finding.severity.min(Severity::Warn);
        finding.why.push_str(why);
    };
    if recovered(event, gpu) {
        only_warn("; the driver says now that the GPU needs no recovery");
    }
    if event.old {
        only_warn("; it was in the log before gpuward was to act on it");
    }
    if resumed_since(event, now_boottime_ns) {
        only_warn("; it drained the node before, and the node was resumed since");
    }
    finding
}

/// "Recovery action None" is evidence that a fault is over, where the driver sets the action for this fault at all.
fn recovered(event: &XidEvent, gpu: &ProbedGpu) -> bool {
    let sets_action = event.xid == 154 || xid::lookup(event.xid).is_some_and(|row| row.sets_recovery_action);
    sets_action && gpu.reading.recovery_action.value() == Some(&0)
}

fn resumed_since(event: &XidEvent, now_boottime_ns: u64) -> bool {
    event
        .acted_boottime_ns
        .is_some_and(|acted| now_boottime_ns.saturating_sub(acted) > super::RESUMED_AFTER_NS)
}

/// Drain reasons are short: the commonest meanings in a few words, else the catalogue's.
fn short(number: u32, meaning: &str) -> String {
    match number {
        79 => "fallen off the bus".to_owned(),
        48 => "uncorrectable ECC error".to_owned(),
        95 => "uncontained memory error".to_owned(),
        119 | 120 => "GSP does not answer".to_owned(),
        _ => meaning.chars().take(60).collect(),
    }
}

/// An Xid 154 means what its target says, as field 230 does.
fn recovery_severity(mut finding: Finding, action: u32) -> Finding {
    (finding.severity, finding.remedy) = super::recovery::judgement(u64::from(action));
    finding.what = format!("recovery action {}", super::recovery::name(u64::from(action)));
    if finding.severity == Severity::Info {
        finding.remedy = Remedy::Admin;
    }
    finding
}
