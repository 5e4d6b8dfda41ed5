//! The job state file: what the prolog leaves behind for the plugin and the epilog.

use super::{Counters, GpuUuid, GresIndex, JobId, PciAddress};
use crate::text::escape;
use serde::{Deserialize, Serialize};

/// Version of [`JobState`]; a reader refuses any other.
pub const JOB_STATE_VERSION: u32 = 1;

/// No state file is larger: 16 GPUs with all counters take less than 40 KiB (measured).
pub const JOB_STATE_MAX_BYTES: usize = 256 * 1024;

/// One run of one job on one node: `/run/gpuward/jobs/<job id>.<nonce>.json`.
///
/// Written by the prolog, read by the plugin as root, removed by the epilog of the same run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobState {
    /// [`JOB_STATE_VERSION`].
    pub version: u32,
    /// Slurm's job id.
    pub job_id: JobId,
    /// 16 hexadecimal digits that tell this run's file from any other run of the same job.
    pub nonce: String,
    /// Slurm's restart count of this run; absent where the release does not tell it (before 22.05).
    pub restart_count: Option<u32>,
    /// Slurm's SLUID of this run (25.11 and newer).
    pub sluid: Option<String>,
    /// Cluster name.
    pub cluster: Option<String>,
    /// Slurm's node name.
    pub node: String,
    /// The job's user id.
    pub uid: Option<u32>,
    /// The job's user name.
    pub user: Option<String>,
    /// Account.
    pub account: Option<String>,
    /// Partition.
    pub partition: Option<String>,
    /// Boot id at the start: another one later means that the node rebooted.
    pub boot_id: String,
    /// Driver version at the start.
    pub driver_version: Option<String>,
    /// Wall clock of the prolog, milliseconds since 1970.
    pub start_unix_ms: u64,
    /// CLOCK_BOOTTIME of the prolog, nanoseconds.
    pub start_boottime_ns: u64,
    /// True where the job's GPUs are known for certain.
    pub gpu_map_certain: bool,
    /// The job's GPUs on this node, in the order of Slurm's list.
    pub gpus: Vec<JobGpu>,
    /// What was found and let pass, for the user: one line each, already escaped.
    pub comments: Vec<String>,
}

/// One GPU of a job, identified so that it is found again whatever the indices do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobGpu {
    /// UUID of the GPU, or of the MIG device where the job got one.
    pub uuid: Option<GpuUuid>,
    /// UUID of the whole GPU that a MIG device is part of.
    pub parent_uuid: Option<GpuUuid>,
    /// PCI address of the (parent) GPU.
    pub pci: PciAddress,
    /// Slurm's index, where it is known.
    pub gres_index: Option<GresIndex>,
    /// The number in /dev/nvidiaN, where it is known.
    pub minor: Option<u32>,
    /// The model as the driver names it.
    pub model: Option<String>,
    /// The board's serial number.
    pub serial: Option<String>,
    /// NUMA node beside the GPU, where firmware says it.
    pub numa_node: Option<u32>,
    /// CPUs beside the GPU, as a Linux CPU list.
    pub local_cpus: Option<String>,
    /// Counters at the start.
    pub counters: Counters,
}

impl JobState {
    /// Reads a state file's text.
    ///
    /// # Errors
    /// Text that is too long, not JSON, of another version, or for another job than `job_id`.
    pub fn parse(text: &str, job_id: JobId) -> Result<JobState, JobStateError> {
        if text.len() > JOB_STATE_MAX_BYTES {
            return Err(JobStateError::TooLong(text.len()));
        }
        let state: JobState = serde_json::from_str(text)
            .map_err(|error| JobStateError::Json(escape(&error.to_string(), 300)))?;
        if state.version != JOB_STATE_VERSION {
            return Err(JobStateError::Version(state.version));
        }
        if state.job_id != job_id {
            return Err(JobStateError::OtherJob(state.job_id));
        }
        Ok(state)
    }

    /// The file's name inside the jobs folder.
    pub fn file_name(&self) -> String {
        format!("{}.{}.json", self.job_id, self.nonce)
    }
}

/// The job id and nonce in a state file's name, `None` for any other file.
pub fn parse_file_name(name: &str) -> Option<(JobId, &str)> {
    let (job, nonce) = name.strip_suffix(".json")?.split_once('.')?;
    let hex = nonce.len() == 16 && nonce.bytes().all(|byte| byte.is_ascii_hexdigit());
    let digits = !job.is_empty() && job.bytes().all(|byte| byte.is_ascii_digit());
    if hex && digits { Some((JobId(job.parse().ok()?), nonce)) } else { None }
}

/// Why a state file was not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobStateError {
    /// Larger than any that gpuward writes.
    #[error("{0} bytes, allowed are {JOB_STATE_MAX_BYTES}")]
    TooLong(usize),
    /// Truncated, or not JSON of this shape.
    #[error("not a job state: {0}")]
    Json(String),
    /// Written by another release of gpuward.
    #[error("state version {0}, this release reads {JOB_STATE_VERSION}")]
    Version(u32),
    /// The name says one job, the content another.
    #[error("the file is about job {0}")]
    OtherJob(JobId),
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn state() -> JobState {
        JobState {
            version: JOB_STATE_VERSION,
            job_id: JobId(7),
            nonce: "0123456789abcdef".into(),
            restart_count: Some(0),
            sluid: None,
            cluster: Some("c".into()),
            node: "n1".into(),
            uid: Some(1000),
            user: None,
            account: None,
            partition: None,
            boot_id: "b".into(),
            driver_version: Some("570.124.06".into()),
            start_unix_ms: 1,
            start_boottime_ns: 2,
            gpu_map_certain: true,
            gpus: Vec::new(),
            comments: Vec::new(),
        }
    }

    #[test]
    fn a_state_reads_back_as_written() {
        let text = serde_json::to_string(&state()).unwrap();
        assert_eq!(JobState::parse(&text, JobId(7)).unwrap(), state());
    }

    #[test]
    fn truncated_foreign_and_newer_states_are_refused() {
        let text = serde_json::to_string(&state()).unwrap();
        for length in 0..text.len() {
            assert!(JobState::parse(&text[..length], JobId(7)).is_err(), "cut at {length}");
        }
        assert_eq!(JobState::parse(&text, JobId(8)), Err(JobStateError::OtherJob(JobId(7))));
        let newer = serde_json::to_string(&JobState { version: 2, ..state() }).unwrap();
        assert_eq!(JobState::parse(&newer, JobId(7)), Err(JobStateError::Version(2)));
        let long = " ".repeat(JOB_STATE_MAX_BYTES + 1);
        assert!(matches!(JobState::parse(&long, JobId(7)), Err(JobStateError::TooLong(_))));
    }

    #[test]
    fn what_is_wrong_with_a_state_is_told_on_one_line() {
        let text = serde_json::to_string(&state()).unwrap();
        let text = text.replace(
            "\"version\":1",
            "\"version\":1,\"gpus\":[{\"counters\":{\"energy_mj\":\"a\\u001b[31m\"}}]",
        );
        let error = JobState::parse(&text, JobId(7)).unwrap_err().to_string();
        assert!(error.contains("unknown variant") && !error.contains('\u{1b}'), "{error:?}");
    }

    #[test]
    fn only_our_own_file_names_are_taken() {
        assert_eq!(parse_file_name("7.0123456789abcdef.json"), Some((JobId(7), "0123456789abcdef")));
        assert_eq!(parse_file_name(&state().file_name()).unwrap().0, JobId(7));
        for name in [
            "7.json",
            "7.0123.json",
            ".0123456789abcdef.json",
            "7.0123456789abcdef.tmp",
            "+7.0123456789abcdef.json",
        ] {
            assert_eq!(parse_file_name(name), None, "{name}");
        }
    }
}
