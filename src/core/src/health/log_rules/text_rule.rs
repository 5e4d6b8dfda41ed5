//! Texts without a number: driver, PCIe, IOMMU, hung tasks.

use super::{concerns, is_news, only_warn, only_warn_where_no_news, when};
use crate::health::finding::{Finding, Remedy, Severity, Subject};
use crate::health::kernel_log::What;
use crate::health::kernel_log::open::{Client, TextEvent};
use crate::model::snapshot::ProbedGpu;
use crate::model::{Reading, Snapshot};

/// More corrected PCIe errors in an hour than this are a warning. Ours (health_checks.md, check 35).
const CORRECTED_PER_HOUR: u32 = 1000;

/// Texts about one GPU or a port above it.
pub(super) fn of_gpu(snapshot: &Snapshot, gpu: &ProbedGpu) -> Vec<Finding> {
    let Some(pci) = gpu.pci() else { return Vec::new() };
    let mine = |event: &&TextEvent| event.pci.is_some_and(|device| concerns(snapshot, pci, device));
    let events = snapshot.log.log_texts.iter().filter(mine);
    events.filter_map(|event| about(event, gpu, snapshot.boottime_ns)).collect()
}

fn about(event: &TextEvent, gpu: &ProbedGpu, now_boottime_ns: u64) -> Option<Finding> {
    let mut finding = finding_of(event, Subject::of(gpu))?;
    if event.what == What::Aer {
        let kind = if event.fatal { "fatal" } else { "uncorrected, not fatal," };
        finding.what = format!("{kind} PCIe error");
        if event.fatal {
            (finding.severity, finding.remedy) = (Severity::Fail, Remedy::Reboot);
        }
    }
    // The kernel tries again with other windows; the driver's word is another thing.
    if event.what == What::BarUnassigned {
        finding = only_warn(finding, "; the kernel may have found room for it later");
    }
    let answers = gpu.reading.handle == Reading::Value(());
    let is_over_then = !matches!(event.what, What::GspRateLimit | What::Aer | What::IommuFault);
    if answers && is_over_then {
        finding = only_warn(finding, "; the GPU answers now");
    }
    let counts = finding.severity == Severity::Fail || is_news(event.seen.usec, now_boottime_ns);
    counts.then(|| only_warn_where_no_news(finding, &event.seen, now_boottime_ns))
}

fn finding_of(event: &TextEvent, subject: Subject) -> Option<Finding> {
    let mut finding = Finding::of(event.what.code()?, subject, event.what.meaning(), "kernel log");
    finding.value = Some(event.seen.text.clone());
    finding.why.push_str(&when(&event.seen));
    Some(finding)
}

/// Corrected errors that come too fast.
pub(super) fn corrected_errors(snapshot: &Snapshot, gpu: &ProbedGpu) -> Option<Finding> {
    let pci = gpu.pci()?;
    let mine = snapshot.log.aer.iter().filter(|count| concerns(snapshot, pci, count.pci));
    let most = mine.map(|count| count.in_last_hour(snapshot.boottime_ns / 1000)).max()?;
    let what = format!("{most} corrected PCIe errors within an hour");
    let finding = Finding::of("PCIE_AER", Subject::of(gpu), what, "kernel log");
    (most > CORRECTED_PER_HOUR).then(|| finding.measured(most, CORRECTED_PER_HOUR))
}

/// Texts that name no GPU.
pub(super) fn of_node(snapshot: &Snapshot) -> Vec<Finding> {
    let mut findings: Vec<Finding> = snapshot
        .log
        .log_texts
        .iter()
        .filter(|event| event.pci.is_none())
        // A stuck task is looked at anew each time.
        .filter(|event| event.what == What::HungTask || is_news(event.seen.usec, snapshot.boottime_ns))
        .filter_map(|event| {
            let finding = match event.what {
                What::HungTask => hung_task(event)?,
                What::LockdownRefusal if snapshot.host.module_loaded != Reading::Value(false) => return None,
                _ => finding_of(event, Subject::Node)?,
            };
            Some(only_warn_where_no_news(finding, &event.seen, snapshot.boottime_ns))
        })
        .collect();
    findings.sort_by(|a, b| (&a.code, &a.value).cmp(&(&b.code, &b.value)));
    findings
}

/// A task that waits for a file server with a GPU open is no fault of the GPU's.
fn hung_task(event: &TextEvent) -> Option<Finding> {
    let mut finding = finding_of(event, Subject::Node)?;
    let (name, pid) = (event.process.as_deref().unwrap_or("-"), event.pid.unwrap_or(0));
    match event.client {
        Some(Client::No) => return None,
        Some(Client::InDriver) => finding.what = format!("{name} pid {pid} is stuck in the driver"),
        Some(Client::HoldsGpu) => {
            finding.what = format!("{name} pid {pid} holds a GPU and is stuck elsewhere in the kernel");
            (finding.severity, finding.remedy) = (Severity::Warn, Remedy::Admin);
        }
        None => {
            finding.what = format!("{name} pid {pid} is stuck, nobody can tell where");
            finding.severity = Severity::Unknown;
        }
    }
    Some(finding)
}
