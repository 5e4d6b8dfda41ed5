//! What earlier jobs left on a node: processes outside of any job, memory that no process holds, processes that hang in
//! the kernel.

use super::Case;
use super::finding::{Finding, Severity, Subject};
use crate::model::detail::ProcessReading;
use crate::model::platform::{Holder, HolderOwner};
use crate::model::snapshot::ProbedGpu;
use crate::model::{Reading, Snapshot};
use crate::text::escape;
use std::sync::LazyLock;

/// Daemons that hold GPUs on purpose, by the 15 bytes that the kernel keeps of a name.
static DAEMONS: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    include_str!("daemons.tsv").lines().skip(1).filter_map(|line| line.split('\t').next()).collect()
});

/// A name may come from anybody: a process that borrows a daemon's name only escapes a warning.
fn is_daemon(name: &str) -> bool {
    DAEMONS.contains(&name)
}

/// Processes that hang in the kernel, whichever GPU they hold.
pub(super) fn judge(case: &Case<'_>) -> Vec<Finding> {
    let stuck = case.snapshot.host.platform.stuck.value().map_or(&[][..], Vec::as_slice);
    let limit_s = case.limits.stuck_s;
    let finding = |process: &crate::model::platform::StuckProcess| {
        let since_ns = case.history.stuck_since_ns(process)?;
        let seconds = case.snapshot.boottime_ns.saturating_sub(since_ns) / 1_000_000_000;
        if seconds <= limit_s {
            return None;
        }
        let what = format!("process {} {} hangs in the kernel", process.pid, escape(&process.name, 20));
        let place = process
            .waits_in
            .as_deref()
            .map_or_else(String::new, |place| format!(", in {}", escape(place, 40)));
        let finding = Finding::of("PROC_STUCK", Subject::Node, what, "procfs, state D in every look since")
            .with_severity(Severity::Warn);
        Some(finding.measured(format!("{seconds} s{place}"), format!("{limit_s} s")))
    };
    stuck.iter().filter_map(finding).collect()
}

/// Leftovers on one GPU.
pub(super) fn judge_gpu(case: &Case<'_>, gpu: &ProbedGpu) -> Vec<Finding> {
    // A job on a part of a GPU shares the rest with others.
    if gpu.target.uuid.as_ref().is_some_and(|uuid| uuid.is_mig()) {
        return Vec::new();
    }
    processes(case.snapshot, gpu).into_iter().chain(memory(case, gpu)).collect()
}

fn listed(gpu: &ProbedGpu) -> Option<&[ProcessReading]> {
    gpu.reading.detail.as_ref()?.processes.value().map(Vec::as_slice)
}

fn holder(snapshot: &Snapshot, pid: u32) -> Option<&Holder> {
    snapshot.host.platform.holders.value()?.iter().find(|holder| holder.pid == pid)
}

/// Processes that are in no job's control group. Those of jobs are Slurm's to end, whichever job's they are.
fn processes(snapshot: &Snapshot, gpu: &ProbedGpu) -> Option<Finding> {
    let is_left = |holder: &&Holder| holder.owner == HolderOwner::NoJob && !is_daemon(&holder.name);
    let mut left: Vec<&Holder> =
        listed(gpu)?.iter().filter_map(|process| holder(snapshot, process.pid)).filter(is_left).collect();
    left.sort_by_key(|holder| holder.pid);
    left.dedup_by_key(|holder| holder.pid);
    let first = left.first()?;
    let more = if left.len() > 1 { format!(" and {} more", left.len() - 1) } else { String::new() };
    let what = format!("process {} {}{more} of no job", first.pid, escape(&first.name, 20));
    let source = "NVML's process lists, control groups";
    Some(Finding::of("LEFT_PROC", Subject::of(gpu), what, source).measured(left.len(), 0))
}

/// Device memory in use while no process holds any; `None` where one does or may, and where the number means something
/// else: under MIG it is the sum of instances, on Grace the kernel itself uses it.
pub(super) fn unheld_mib(snapshot: &Snapshot, gpu: &ProbedGpu) -> Option<u64> {
    let detail = gpu.reading.detail.as_ref()?;
    let is_whole = gpu.reading.mig.value() != Some(&true);
    let is_own_node = !matches!(detail.memory_node, Reading::Value(_) | Reading::NotRead);
    // The driver may list for a moment who has ended.
    let is_gone = |process: &ProcessReading| {
        holder(snapshot, process.pid).is_some_and(|holder| holder.owner == HolderOwner::Gone)
    };
    let unheld = is_whole && is_own_node && listed(gpu)?.iter().all(is_gone);
    // The reading has what the driver keeps for itself beside it, not in it.
    unheld.then(|| detail.memory.used_mib.value().copied()).flatten()
}

/// Once is worth a line: a process that has just ended gives its memory back a little later. Twice is a warning.
fn memory(case: &Case<'_>, gpu: &ProbedGpu) -> Option<Finding> {
    let used = unheld_mib(case.snapshot, gpu)?;
    let idle = case.expected.known_at(gpu.pci()).and_then(|known| known.idle_memory_mib);
    let limit = idle.map_or(case.limits.left_memory_mib, |idle| idle + case.limits.left_memory_over_idle_mib);
    if used <= limit {
        return None;
    }
    let before = case.history.seen(gpu.uuid()).filter(|seen| {
        let age_ns = case.snapshot.boottime_ns.saturating_sub(seen.boottime_ns);
        age_ns >= case.limits.silent_recheck_s * 1_000_000_000
    });
    let again = before.is_some_and(|seen| seen.unheld_mib.value().is_some_and(|&then| then > limit));
    let what = format!("{used} MiB held by no process{}", if again { ", again" } else { "" });
    let finding = Finding::of("LEFT_MEM", Subject::of(gpu), what, "NVML memory and process lists");
    let finding = finding.measured(format!("{used} MiB"), format!("{limit} MiB"));
    Some(if again { finding } else { finding.with_severity(Severity::Info) })
}

#[cfg(test)]
mod tests;
