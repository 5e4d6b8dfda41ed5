//! The log itself, and the switches: what concerns the node as a whole.

use super::{driver_branch, is_news, only_warn_where_no_news, when};
use crate::health::Expected;
use crate::health::finding::{Finding, Subject};
use crate::health::kernel_log::open::SxidEvent;
use crate::health::sxid;
use crate::model::{Reading, Snapshot};

/// A log that could not be read, or not from its start, may hide an XID: told, never a fault.
pub(super) fn log_itself(snapshot: &Snapshot) -> Vec<Finding> {
    let mut findings = Vec::new();
    let unread = |what: &str| Finding::of("KMSG_UNREAD", Subject::Node, what, "kernel log");
    match snapshot.host.kernel_log {
        Reading::Value(()) | Reading::NotRead => {}
        Reading::TimedOut => findings.push(unread("the kernel log was not read to its end in time")),
        Reading::NoPermission => findings.push(unread("the kernel log may not be read")),
        Reading::Failed(errno) => {
            let mut finding = unread("the kernel log could not be read");
            finding.value = Some(format!("errno {errno}"));
            findings.push(finding);
        }
        _ => findings.push(unread("the kernel log could not be read")),
    }
    let lost = snapshot.log.log_lost.filter(|lost| is_news(lost.before_usec, snapshot.boottime_ns));
    if let Some(lost) = lost {
        let what = format!("{} records were overwritten unread", lost.records);
        let mut finding =
            Finding::of("KMSG_LOST", Subject::Node, what, "kernel log").measured(lost.records, 0);
        finding.why.push_str(&format!("; the newest gap ends {} s after boot", lost.before_usec / 1_000_000));
        findings.push(finding);
    }
    findings
}

/// A switch serves all GPUs of the node: which partition a port belongs to is not in the log, and GPUs that are hit print
/// an Xid 74 of their own.
pub(super) fn switches(snapshot: &Snapshot, expected: &Expected) -> Vec<Finding> {
    let mut events: Vec<&SxidEvent> = snapshot.log.sxids.iter().collect();
    events.sort_by_key(|event| (event.pci, event.sxid));
    events.into_iter().map(|event| of_switch(event, snapshot, expected)).collect()
}

fn of_switch(event: &SxidEvent, snapshot: &Snapshot, expected: &Expected) -> Finding {
    let branch = driver_branch(snapshot);
    let row = sxid::lookup(event.sxid, branch);
    let meaning = row.map_or("SXid that the catalogue does not know", |row| row.meaning);
    let link = event.link.map_or_else(String::new, |link| format!(" link {link}"));
    let word = event.word.map_or("", |word| word.text());
    let short: String = meaning.chars().take(60).collect();
    let what = format!("NVSwitch {}{link} {short}", event.pci);
    let mut finding = Finding::of(&format!("SXID{}", event.sxid), Subject::Node, what, "kernel log");
    finding.value = Some(event.seen.text.clone());
    finding.why = format!(
        "{meaning}; the driver calls it {}{}; a fatal one needs a reset of all GPUs and switches together, or a reboot",
        if word.is_empty() { "nothing" } else { word },
        when(&event.seen),
    );
    let action = event.action(branch);
    (finding.severity, finding.remedy) = action.judgement();
    if let Some(action) = expected.overrides.sxid.get(&event.sxid) {
        (finding.severity, finding.remedy) = action.judgement();
        finding.why.push_str(&format!("; the site's catalogue says {}", action.word()));
    }
    only_warn_where_no_news(finding, &event.seen, snapshot.boottime_ns)
}
