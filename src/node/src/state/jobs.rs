//! Job state files: one for each run of a job on this node.

use crate::{EdgeError, files};
use gpuward_core::model::job::{JOB_STATE_MAX_BYTES, parse_file_name};
use gpuward_core::model::{JobId, JobState};
use std::path::{Path, PathBuf};

/// The folder of job state files.
#[derive(Debug, Clone)]
pub struct JobFiles {
    folder: PathBuf,
    refused: PathBuf,
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
        Ok(JobFiles { folder, refused: run.join("refused") })
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

    /// The state of the run that an epilog belongs to: the oldest that is not newer than its restart count.
    ///
    /// The two counts need not be equal: slurmctld counts a requeue before it sends the epilog of the run that ends, so
    /// that one comes with the next run's number (seen on 22.05). But an epilog with a lower number than a run's is
    /// late, and must not end the run that came after it. Without a number the oldest run is meant: epilogs come in the
    /// order of the runs.
    pub fn of_run(&self, job_id: JobId, restart_count: Option<u32>) -> Option<JobState> {
        let fits = |state: &JobState| match (state.restart_count, restart_count) {
            (Some(of_state), Some(of_epilog)) => of_state <= of_epilog,
            _ => true,
        };
        self.of_job(job_id).into_iter().find(fits)
    }

    /// Notes down that this job was refused here, so that its epilog makes no record of a run that used nothing.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn note_refusal(&self, job_id: JobId) -> Result<(), EdgeError> {
        files::own_folder(&self.refused, 0o700)?;
        for entry in std::fs::read_dir(&self.refused).into_iter().flatten().flatten() {
            let age =
                entry.metadata().and_then(|found| found.modified()).ok().and_then(|when| when.elapsed().ok());
            if age.is_some_and(|age| age > REFUSAL_LASTS) {
                files::remove(&entry.path())?;
            }
        }
        files::write_atomic(&self.refused.join(job_id.to_string()), "", 0o600)
    }

    /// True where this job was refused here not long ago.
    pub fn was_refused(&self, job_id: JobId) -> bool {
        self.refused.join(job_id.to_string()).exists()
    }
}

/// How long a refusal is remembered. Ours: far longer than slurmctld repeats the termination of a job.
const REFUSAL_LASTS: std::time::Duration = std::time::Duration::from_secs(3600);

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
        assert_eq!(files.of_run(JobId(7), Some(1)).unwrap().nonce, first.nonce, "the oldest first");
        assert_eq!(files.of_run(JobId(7), None).unwrap().nonce, first.nonce);
        files.remove(&first).unwrap();
        assert!(files.of_run(JobId(7), Some(0)).is_none(), "a late epilog leaves the newer run alone");
        assert_eq!(files.of_run(JobId(7), Some(2)).unwrap().nonce, second.nonce, "counted before it ended");
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
