//! From readings to findings: which rule says what about a node, and why.
//!
//! Rules are pure functions, one file per family. A finding that names a broken GPU or driver has severity `fail`;
//! what could not be read has severity `unknown` and never drains.

pub mod action;
mod changed;
mod clocks;
pub mod codes;
pub mod coverage;
mod driver;
mod expected;
mod fabric;
pub mod finding;
mod gpu_set;
mod handle;
mod heat;
mod history;
pub mod kernel_log;
pub mod known;
mod leftovers;
mod limits;
mod load;
pub mod log_rules;
mod memory;
mod modes;
mod modules;
mod nic;
mod nvlink;
pub mod overrides;
mod pcie;
mod platform;
mod power;
mod promise;
mod recovery;
mod repair;
pub mod silence;
pub mod sxid;
pub mod xid;

pub use expected::{Expected, KnownGpu, KnownNic, LEARNED};
pub use finding::{Finding, Remedy, Severity, Subject};
pub use history::{ActedEcc, History, SeenGpu, SeenLinks, SilentMark, StuckMark};
pub use limits::Limits;

use crate::model::Snapshot;
use crate::model::snapshot::ProbedGpu;

/// A drained node gets no jobs. So a job that starts this long after a drain means that somebody resumed the node: their
/// word counts, and the same evidence drains no second time. A minute is ours: it spans the prologs already under way.
const RESUMED_AFTER_NS: u64 = 60_000_000_000;

/// Everything that the rules judge by.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    /// What was read.
    pub snapshot: &'a Snapshot,
    /// What the node should be.
    pub expected: &'a Expected,
    /// What earlier looks left behind.
    pub history: &'a History,
    /// Where the limits lie.
    pub limits: &'a Limits,
    /// Whether it is certain which GPUs are meant. Only node-wide rules judge where it is not: a GPU that may be another
    /// job's fails no job.
    pub gpu_map_certain: bool,
}

/// All findings about a snapshot, most telling first.
///
/// Each family of rules has two entries where it needs them: `judge` for the node as a whole, `judge_gpu` for one GPU. A
/// rule whose reading is missing says nothing: only the rules about the driver and the handles say what could not be told.
pub fn evaluate(case: &Case<'_>) -> Vec<Finding> {
    let mut findings = driver::judge(case.snapshot);
    findings.extend(gpu_set::judge(case.snapshot, case.expected));
    findings.extend(log_rules::judge_node(case.snapshot, case.expected));
    findings.extend(promise::judge(case));
    findings.extend(silence::judge(case));
    findings.extend(nvlink::judge(case));
    findings.extend(modules::judge(case));
    findings.extend(changed::judge(case));
    findings.extend(leftovers::judge(case));
    findings.extend(platform::judge(case));
    findings.extend(nic::judge(case));
    for gpu in case.snapshot.gpus.iter().filter(|_| case.gpu_map_certain) {
        findings.extend(judge_gpu(case, gpu));
    }
    findings.sort_by_key(|finding| (std::cmp::Reverse(finding.severity), codes::rank(&finding.code)));
    findings
}

fn judge_gpu(case: &Case<'_>, gpu: &ProbedGpu) -> Vec<Finding> {
    let mut findings = log_rules::judge_gpu(case.snapshot, gpu, case.expected, case.history);
    findings.extend(handle::judge(gpu));
    findings.extend(promise::judge_gpu(case, gpu));
    findings.extend(recovery::judge(gpu));
    findings.extend(memory::judge_gpu(case, gpu));
    findings.extend(repair::judge_gpu(gpu));
    findings.extend(heat::judge_gpu(case, gpu));
    findings.extend(clocks::judge_gpu(case, gpu));
    findings.extend(power::judge_gpu(case, gpu));
    findings.extend(modes::judge_gpu(case, gpu));
    findings.extend(pcie::judge_gpu(case, gpu));
    findings.extend(leftovers::judge_gpu(case, gpu));
    findings.extend(changed::judge_gpu(case, gpu));
    findings
}

#[cfg(test)]
mod tests;
