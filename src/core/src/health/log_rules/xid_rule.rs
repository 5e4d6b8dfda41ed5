//! XIDs of the job's GPUs since they were last cleared.

use super::{driver_branch, only_warn, only_warn_where_no_news, when};
use crate::health::Expected;
use crate::health::finding::{Finding, Remedy, Severity, Subject};
use crate::health::kernel_log::open::XidEvent;
use crate::health::{recovery, xid};
use crate::model::snapshot::ProbedGpu;
use crate::model::{PciAddress, Snapshot};

/// A finding for each open XID of this GPU.
pub(super) fn judge(snapshot: &Snapshot, gpu: &ProbedGpu, expected: &Expected) -> Vec<Finding> {
    let Some(pci) = gpu.pci() else { return Vec::new() };
    let mine = |event: &&XidEvent| event.pci == PciAddress { function: 0, ..pci };
    snapshot.log.xids.iter().filter(mine).map(|event| of_event(event, gpu, snapshot, expected)).collect()
}

fn of_event(event: &XidEvent, gpu: &ProbedGpu, snapshot: &Snapshot, expected: &Expected) -> Finding {
    let row = xid::lookup(event.xid);
    let meaning = row.map_or("XID that the catalogue does not know", |row| row.meaning);
    let mut finding =
        Finding::of(&format!("XID{}", event.xid), Subject::of(gpu), short(event.xid, meaning), "kernel log");
    finding.value = Some(event.seen.text.clone());
    finding.why = format!("{meaning}{}", when(&event.seen));
    let (action, why) = event.action(driver_branch(snapshot));
    (finding.severity, finding.remedy) = action.judgement();
    if let Some(why) = why {
        finding.why.push_str(&format!("; {why}"));
    }
    if let Some(cause) = event.cause {
        finding.why.push_str(&format!("; the driver names XID {cause} as its cause"));
    }
    if let Some(action) = event.action_to {
        finding = recovery_severity(finding, action);
    }
    if let Some(action) = expected.overrides.xid.get(&event.xid) {
        (finding.severity, finding.remedy) = action.judgement();
        finding.why.push_str(&format!("; the site's catalogue says {}", action.word()));
    }
    if recovered(event, gpu) {
        finding = only_warn(finding, "; the driver says now that the GPU needs no recovery");
    }
    only_warn_where_no_news(finding, &event.seen, snapshot.boottime_ns)
}

/// "Recovery action None" is evidence that a fault is over, where the driver sets the action for this fault at all.
fn recovered(event: &XidEvent, gpu: &ProbedGpu) -> bool {
    let sets_action = event.xid == 154 || xid::lookup(event.xid).is_some_and(|row| row.sets_recovery_action);
    sets_action && gpu.reading.recovery_action.value() == Some(&0)
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
    (finding.severity, finding.remedy) = recovery::judgement(u64::from(action));
    finding.what = format!("recovery action {}", recovery::name(u64::from(action)));
    if finding.severity == Severity::Info {
        finding.remedy = Remedy::Admin;
    }
    finding
}
