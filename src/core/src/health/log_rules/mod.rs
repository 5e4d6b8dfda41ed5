//! What the kernel log says about a node and its GPUs.

mod node;
pub mod repeat;
mod text_rule;
mod xid_rule;

use super::finding::{Finding, Severity};
use super::kernel_log::open::Seen;
use super::{Expected, History, RESUMED_AFTER_NS};
use crate::model::snapshot::ProbedGpu;
use crate::model::{PciAddress, Snapshot};

/// Findings about the node as a whole: the log itself, switches, tasks, what names no GPU.
pub(super) fn judge_node(snapshot: &Snapshot, expected: &Expected) -> Vec<Finding> {
    let mut findings = node::log_itself(snapshot);
    findings.extend(node::switches(snapshot, expected));
    findings.extend(text_rule::of_node(snapshot));
    findings
}

/// Findings about one GPU. What the log says of other GPUs says nothing about this job.
pub(super) fn judge_gpu(
    snapshot: &Snapshot,
    gpu: &ProbedGpu,
    expected: &Expected,
    history: &History,
) -> Vec<Finding> {
    let mut findings = xid_rule::judge(snapshot, gpu, expected);
    findings.extend(text_rule::of_gpu(snapshot, gpu));
    findings.extend(text_rule::corrected_errors(snapshot, gpu));
    findings.extend(repeat::judge(gpu, &history.app_xids));
    findings
}

/// True where an event at `device` is about the GPU at `gpu`: its own function, or a port above it.
pub fn concerns(snapshot: &Snapshot, gpu: PciAddress, device: PciAddress) -> bool {
    let same = |a: PciAddress| PciAddress { function: 0, ..a } == device;
    let above = snapshot.host.gpu_ports.iter().filter(|ports| ports.gpu == gpu);
    same(gpu) || above.flat_map(|ports| &ports.ports).any(|port| same(*port))
}

/// The major number of the driver's version.
fn driver_branch(snapshot: &Snapshot) -> Option<u32> {
    let version = snapshot.node.driver_version.value().or_else(|| snapshot.host.module_version.value())?;
    version.split('.').next()?.parse().ok()
}

/// What is no fault by itself is told for a day. Ours: later it only fills the log of every job.
const NEWS_USEC: u64 = 24 * 3600 * 1_000_000;

fn is_news(usec: u64, now_boottime_ns: u64) -> bool {
    (now_boottime_ns / 1000).saturating_sub(usec) <= NEWS_USEC
}

/// An event that is no news only warns; says why.
fn only_warn_where_no_news(mut finding: Finding, seen: &Seen, now_boottime_ns: u64) -> Finding {
    let resumed = |acted: u64| now_boottime_ns.saturating_sub(acted) > RESUMED_AFTER_NS;
    if seen.old {
        finding = only_warn(finding, "; it was in the log before gpuward was to act on it");
    }
    if seen.acted_boottime_ns.is_some_and(resumed) {
        finding = only_warn(finding, "; it drained the node before, and the node was resumed since");
    }
    finding
}

fn only_warn(mut finding: Finding, why: &str) -> Finding {
    finding.severity = finding.severity.min(Severity::Warn);
    finding.why.push_str(why);
    finding
}

/// `; seen 12 s after boot, 64 lines`
fn when(seen: &Seen) -> String {
    let seconds = seen.usec / 1_000_000;
    let lines = if seen.lines > 1 { format!(", {} lines", seen.lines) } else { String::new() };
    format!("; seen {seconds} s after boot{lines}")
}

#[cfg(test)]
mod tests;
