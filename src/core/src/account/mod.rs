//! What a job used: two counter readings become one record.
//!
//! A value is `exact` only where a whole GPU was the job's from the first reading to the second and nothing was reset
//! between them. Everything else says so: a value that is not known is never a number.

mod delta;
mod record;

pub use delta::{Reset, delta};
pub use record::{
    GpuUse, JobRecord, Quality, RECORD_VERSION, RecordStatus, Used, file_name, record_file_prefix,
};

use crate::model::snapshot::ProbedGpu;
use crate::model::{Counters, JobGpu, JobState, Reading, Snapshot};

/// What the epilog knows about itself and the job, besides counters.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EndOfJob {
    /// Slurm's job id.
    pub job_id: u32,
    /// Slurm's restart count, where the release tells it.
    pub restart_count: Option<u32>,
    /// Slurm's SLUID (25.11 and newer).
    pub sluid: Option<String>,
    /// Cluster name.
    pub cluster: Option<String>,
    /// Node name.
    pub node: String,
    /// The job's user id.
    pub uid: Option<u32>,
    /// User name.
    pub user: Option<String>,
    /// Account.
    pub account: Option<String>,
    /// Partition.
    pub partition: Option<String>,
    /// Exit code and signal as Slurm writes them, "0:0".
    pub exit_code: Option<String>,
    /// Wall clock, milliseconds since 1970.
    pub end_unix_ms: u64,
}

/// The record of one run of a job on one node. `start` is what the prolog left; `end` is read by the epilog.
pub fn record(job: &EndOfJob, start: Option<&JobState>, end: &Snapshot) -> JobRecord {
    let same_boot = start.is_none_or(|state| state.boot_id == end.boot_id);
    let driver = end.node.driver_version.value().cloned();
    let status = match start {
        None => RecordStatus::NoStart,
        Some(_) if !same_boot => RecordStatus::NodeReboot,
        Some(_) => RecordStatus::Complete,
    };
    let reset = whole_node_reset(start, end);
    let gpus = match start {
        Some(state) => state.gpus.iter().map(|gpu| of_gpu(gpu, end, reset)).collect(),
        None => end.gpus.iter().map(of_unknown_start).collect(),
    };
    JobRecord {
        version: RECORD_VERSION,
        status,
        cluster: job.cluster.clone().or_else(|| start?.cluster.clone()),
        job_id: job.job_id,
        sluid: job.sluid.clone().or_else(|| start?.sluid.clone()),
        // slurmctld counts a requeue before it sends the epilog, so the prolog's count is the run's.
        restart_count: start.and_then(|state| state.restart_count).or(job.restart_count),
        uid: job.uid.or_else(|| start?.uid),
        user: job.user.clone().or_else(|| start?.user.clone()),
        account: job.account.clone().or_else(|| start?.account.clone()),
        partition: job.partition.clone().or_else(|| start?.partition.clone()),
        node: job.node.clone(),
        boot_id: end.boot_id.clone(),
        driver_version: driver,
        start_unix_ms: start.map(|state| state.start_unix_ms),
        end_unix_ms: job.end_unix_ms,
        elapsed_ms: start.filter(|_| same_boot).map(|state| elapsed_ms(state, end)),
        exit_code: job.exit_code.clone(),
        gpu_map_certain: start.is_none_or(|state| state.gpu_map_certain),
        gpus,
    }
}

fn elapsed_ms(state: &JobState, end: &Snapshot) -> u64 {
    end.boottime_ns.saturating_sub(state.start_boottime_ns) / 1_000_000
}

/// What makes every counter of the node worthless for this job.
fn whole_node_reset(start: Option<&JobState>, end: &Snapshot) -> Option<Reset> {
    let state = start?;
    if state.boot_id != end.boot_id {
        return Some(Reset::NodeReboot);
    }
    match (&state.driver_version, end.node.driver_version.value()) {
        (Some(before), Some(after)) if before != after => Some(Reset::DriverReload),
        _ => None,
    }
}

fn of_gpu(start: &JobGpu, end: &Snapshot, reset: Option<Reset>) -> GpuUse {
    let after = end.gpus.iter().find(|gpu| gpu.pci() == Some(start.pci));
    let same_board = after.and_then(|gpu| gpu.uuid()).is_none_or(|uuid| {
        let whole = start.parent_uuid.as_ref().or(start.uuid.as_ref());
        whole.is_none_or(|known| known == uuid)
    });
    let reset = if same_board { reset } else { Some(Reset::GpuReplaced) };
    let counters = after.map(counters_at_end);
    let is_mig = start.uuid.as_ref().is_some_and(crate::model::GpuUuid::is_mig);
    let mut used = GpuUse::between(&start.counters, counters.as_ref(), reset);
    if is_mig {
        used.share();
    }
    used.identify(start)
}

/// A GPU that does not even open has no counters; why it does not open is why they are missing.
fn counters_at_end(gpu: &ProbedGpu) -> Counters {
    let lost = gpu.reading.handle == Reading::Lost;
    let mut counters = gpu.reading.counters.clone();
    if lost {
        counters.each_mut().into_iter().for_each(|counter| *counter = Reading::Lost);
    }
    counters
}

fn of_unknown_start(gpu: &ProbedGpu) -> GpuUse {
    let unknown = Counters::default();
    let mut used = GpuUse::between(&unknown, Some(&gpu.reading.counters), Some(Reset::NoStart));
    used.uuid = gpu.uuid().map(ToString::to_string);
    used.pci = gpu.pci().map(|pci| pci.to_string());
    used.serial = gpu.reading.serial.value().cloned();
    used.model = gpu.reading.model.value().cloned();
    used
}

#[cfg(test)]
mod tests;
