//! From readings to findings: which rule says what about a node, and why.
//!
//! Rules are pure functions, one file per family. A finding that names a broken GPU or driver has severity `fail`;
//! what could not be read has severity `unknown` and never drains.

pub mod action;
pub mod codes;
mod driver;
pub mod finding;
mod gpu_set;
mod handle;
pub mod kernel_log;
pub mod log_rules;
mod memory;
pub mod overrides;
mod recovery;
pub mod silence;
pub mod sxid;
pub mod xid;

pub use finding::{Finding, Remedy, Severity, Subject};

use crate::model::Snapshot;
use crate::model::snapshot::ProbedGpu;

/// What a node should be: from configuration, never from what is alive now.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Expected {
    /// How many GPUs, and which setting says so; `None` where nothing says it.
    pub gpu_count: Option<(u32, String)>,
    /// What the site says in the place of catalogue rows.
    #[serde(default)]
    pub overrides: overrides::Overrides,
}

/// What earlier looks of the same boot left behind.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    /// When a subject was first silent, and has been ever since.
    pub silent: Vec<SilentMark>,
    /// ECC counts that drained the node before.
    pub acted_ecc: Vec<ActedEcc>,
    /// Users' XIDs of the last days, over boots.
    pub app_xids: Vec<log_rules::repeat::AppXid>,
}

/// An ECC count that drained the node.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct ActedEcc {
    /// The GPU.
    pub pci: crate::model::PciAddress,
    /// The count.
    pub errors: u64,
    /// When, CLOCK_BOOTTIME nanoseconds.
    pub boottime_ns: u64,
}

/// A drained node gets no jobs. So a job that starts this long after a drain means that somebody resumed the node: their
/// word counts, and the same evidence drains no second time. A minute is ours: it spans the prologs already under way.
const RESUMED_AFTER_NS: u64 = 60_000_000_000;

/// A subject that has not answered since a moment.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct SilentMark {
    /// The GPU, or `None` for the driver as a whole.
    pub pci: Option<crate::model::PciAddress>,
    /// The first silent look, CLOCK_BOOTTIME nanoseconds.
    pub first_boottime_ns: u64,
}

/// All findings about a snapshot, most telling first.
///
/// Only node-wide rules judge where `gpu_map_certain` is false: a GPU that may be another job's fails no job.
pub fn evaluate(
    snapshot: &Snapshot,
    expected: &Expected,
    history: &History,
    gpu_map_certain: bool,
    silent_recheck_s: u64,
) -> Vec<Finding> {
    let mut findings = driver::judge(snapshot);
    findings.extend(gpu_set::judge(snapshot, expected));
    findings.extend(log_rules::judge_node(snapshot, expected));
    findings.extend(silence::judge(snapshot, history, gpu_map_certain, silent_recheck_s));
    for gpu in snapshot.gpus.iter().filter(|_| gpu_map_certain) {
        findings.extend(judge_gpu(snapshot, gpu, expected, history));
    }
    findings.sort_by_key(|finding| (std::cmp::Reverse(finding.severity), codes::rank(&finding.code)));
    findings
}

fn judge_gpu(snapshot: &Snapshot, gpu: &ProbedGpu, expected: &Expected, history: &History) -> Vec<Finding> {
    let mut findings = log_rules::judge_gpu(snapshot, gpu, expected, history);
    findings.extend(handle::judge(gpu));
    findings.extend(recovery::judge(gpu));
    findings.extend(memory::judge(gpu, history, snapshot.boottime_ns));
    findings
}

#[cfg(test)]
mod tests;
