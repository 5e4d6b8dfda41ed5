//! Job state files: one for each run of a job on this node.

use crate::{EdgeError, files};
use gpuward_core::model::job::{JOB_STATE_MAX_BYTES, parse_file_name};
use gpuward_core::model::{JobId, JobState};
use std::path::{Path, PathBuf};

/// The folder of job state files.
#[derive(Debug, Clone)]
pub struct JobFiles {
    folder: PathBuf,
}

impl JobFiles {
    /// The files below `run`.
    ///
    /// # Errors
    /// The folder cannot be made or is not to be trusted.
    pub fn open(run: &Path) -> Result<JobFiles, EdgeError> {
        files::own_folder(run, 0o755)?;
        let folder = run.join("jobs");
        files::own_folder(&folder, 0o700)?;
        Ok(JobFiles { folder })
    }

    /// Writes a run's state.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, state: &JobState) -> Result<(), EdgeError> {
        let text = serde_json::to_string(state).unwrap_or_default();
        files::write_atomic(&self.folder.join(state.file_name()), &text, 0o600)
    }

    /// Removes a run's state.
    ///
    /// # Errors
    /// It is there and cannot be removed.
    pub fn remove(&self, state: &JobState) -> Result<(), EdgeError> {
        files::remove(&self.folder.join(state.file_name()))
    }

    /// All readable states of a job, oldest run first; one that cannot be read is named in the log and passed over.
    pub fn of_job(&self, job_id: JobId) -> Vec<JobState> {
        let mut states = Vec::new();
        for entry in std::fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name.to_str().and_then(parse_file_name).is_none_or(|(id, _)| id != job_id) {
                continue;
            }
            match self.read(&entry.path(), job_id) {
                Ok(state) => states.push(state),
                Err(error) => log::error!("job state is not used: {error}; job={job_id}"),
            }
        }
        states.sort_by_key(|state| state.start_boottime_ns);
        states
    }

    fn read(&self, path: &Path, job_id: JobId) -> Result<JobState, EdgeError> {
        let text = files::read_own(path, JOB_STATE_MAX_BYTES as u64)?;
        let content = |error: gpuward_core::model::job::JobStateError| EdgeError::Content {
            path: path.into(),
            why: error.to_string(),
        };
        JobState::parse(&text, job_id).map_err(content)
    }

    /// The state that an epilog belongs to: the run with its restart count.
    ///
    /// Where the epilog does not know its restart count the oldest run is meant: epilogs come in the order of the runs.
    /// Never a run with another count: a late epilog must not end the run that came after it.
    pub fn of_run(&self, job_id: JobId, restart_count: Option<u32>) -> Option<JobState> {
        let fits = |state: &JobState| {
            restart_count.is_none() || state.restart_count.is_none() || state.restart_count == restart_count
        };
        self.of_job(job_id).into_iter().find(fits)
    }
}

/// A name that no other run of a job has.
pub fn new_nonce() -> String {
    let mut bytes = [0u8; 8];
    // SAFETY: the buffer is live and as long as stated, and getrandom writes only to it.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), libc::GRND_NONBLOCK) };
    if got < 8 {
        // Early in boot there may be no entropy. The name needs to be new, not secret: its folder is root's.
        bytes = (crate::clock::boottime_ns() ^ (u64::from(std::process::id()) << 40)).to_ne_bytes();
    }
    format!("{:016x}", u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(restart: Option<u32>, start: u64) -> JobState {
        serde_json::from_value(serde_json::json!({
            "version": 1, "job_id": 7, "nonce": new_nonce(), "restart_count": restart, "node": "n1", "boot_id": "b",
            "start_unix_ms": 1, "start_boottime_ns": start, "gpu_map_certain": true, "gpus": [], "comments": []
        }))
        .unwrap()
    }

    #[test]
    fn an_epilog_finds_its_own_run_and_no_other() {
        let run = tempfile::tempdir().unwrap();
        let files = JobFiles::open(run.path()).unwrap();
        let (first, second) = (state(Some(0), 10), state(Some(1), 20));
        files.write(&second).unwrap();
        files.write(&first).unwrap();
        assert_eq!(files.of_run(JobId(7), Some(0)).unwrap().nonce, first.nonce);
        assert_eq!(files.of_run(JobId(7), Some(1)).unwrap().nonce, second.nonce);
        assert_eq!(files.of_run(JobId(7), None).unwrap().nonce, first.nonce);
        files.remove(&first).unwrap();
        assert!(files.of_run(JobId(7), Some(0)).is_none(), "a late epilog leaves the newer run alone");
        assert!(files.of_run(JobId(8), Some(0)).is_none());
    }

    #[test]
    fn a_file_that_is_not_ours_is_passed_over() {
        let run = tempfile::tempdir().unwrap();
        let files = JobFiles::open(run.path()).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", run.path().join("jobs/7.0123456789abcdef.json")).unwrap();
        std::fs::write(run.path().join("jobs/7.0123456789abcdee.json"), "{\"version\":1").unwrap();
        assert!(files.of_job(JobId(7)).is_empty());
    }
}
