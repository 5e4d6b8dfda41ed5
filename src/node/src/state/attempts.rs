//! Which prologs and epilogs are under way, so that one that was killed is noticed.
//!
//! A signal to the supervisor is a failed prolog to Slurm, and nobody is left to say why. The file of an attempt stays
//! behind then, and the next look reports it.

use crate::process::start_ticks;
use crate::{EdgeError, files};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// One attempt under way; its file goes when it is finished.
#[derive(Debug)]
pub struct Attempt {
    path: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
struct Note {
    what: String,
    job_id: Option<u32>,
    pid: u32,
    start_ticks: u64,
}

impl Attempt {
    /// Notes down that this process begins `what` for a job.
    ///
    /// # Errors
    /// The note cannot be written.
    pub fn begin(run: &Path, what: &str, job_id: Option<u32>) -> Result<Attempt, EdgeError> {
        let folder = run.join("attempts");
        files::own_folder(&folder, 0o700)?;
        let pid = std::process::id();
        let note = Note { what: what.into(), job_id, pid, start_ticks: start_ticks(pid).unwrap_or(0) };
        let path = folder.join(format!("{pid}.json"));
        files::write_atomic(&path, &serde_json::to_string(&note).unwrap_or_default(), 0o600)?;
        Ok(Attempt { path })
    }

    /// It came to a verdict.
    pub fn finish(self) {
        let _ = files::remove(&self.path);
    }
}

/// Takes away the notes of attempts whose process is gone, and says what they were: once each.
pub fn take_unfinished(run: &Path) -> Vec<String> {
    let mut unfinished = Vec::new();
    for entry in std::fs::read_dir(run.join("attempts")).into_iter().flatten().flatten() {
        let Ok(text) = files::read_own(&entry.path(), 4096) else { continue };
        let Ok(note) = serde_json::from_str::<Note>(&text) else { continue };
        if start_ticks(note.pid) == Some(note.start_ticks) {
            continue;
        }
        let job = note.job_id.map_or_else(|| "-".to_owned(), |job| job.to_string());
        let what = gpuward_core::text::escape(&note.what, 20);
        unfinished.push(format!("{what} of job={job} was started and came to no verdict"));
        let _ = files::remove(&entry.path());
    }
    unfinished
}
