//! Finds the job state file of this run of the job: what the prolog left for us.

use crate::files::{FileError, Folder};
use gpuward_core::model::JobId;
use gpuward_core::model::job::{JOB_STATE_MAX_BYTES, JobState, parse_file_name};
use std::path::Path;

/// No more names are looked at. Ours: a node runs hundreds of jobs, not thousands, at a time.
const MAX_NAMES: usize = 16_384;

/// No more files of one job are read. Ours: there is one, and one more for each run whose epilog is late.
const MAX_RUNS: usize = 16;

/// Which run of which job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The job.
    pub job: JobId,
    /// Its restart count; absent where Slurm does not tell it for certain.
    pub restart_count: Option<u32>,
    /// This node; absent where it is not known.
    pub node: Option<String>,
}

/// The state of the wanted run in the folder `run` of gpuward.toml; `None` where the prolog left none.
///
/// # Errors
/// Where there is no usable file, and one or the folder was refused: what is wrong with it.
pub fn find(run: &Path, wanted: &Wanted) -> Result<Option<JobState>, String> {
    let jobs = match Folder::open(run).and_then(|run| run.folder("jobs")) {
        Ok(jobs) => jobs,
        Err(FileError::Missing(_)) => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let names = jobs.names(MAX_NAMES).map_err(|error| error.to_string())?;
    let ours = |name: &&String| parse_file_name(name).is_some_and(|(job, _)| job == wanted.job);
    let mut refused = None;
    let mut states = Vec::new();
    for name in names.iter().filter(ours).take(MAX_RUNS) {
        match read(&jobs, name, wanted.job) {
            Ok(state) => states.extend(state),
            Err(why) => refused = Some(why),
        }
    }
    match (choose(states, wanted), refused) {
        (None, Some(why)) => Err(why),
        (found, _) => Ok(found),
    }
}

/// `None` for a file that its epilog has just removed.
fn read(jobs: &Folder, name: &str, job: JobId) -> Result<Option<JobState>, String> {
    match jobs.read(name, JOB_STATE_MAX_BYTES) {
        Ok(text) => {
            JobState::parse(&text, job).map(Some).map_err(|error| format!("cannot use {name}: {error}"))
        }
        Err(FileError::Missing(_)) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// The run with the wanted restart count, else the newest of those that do not say another count.
fn choose(states: Vec<JobState>, wanted: &Wanted) -> Option<JobState> {
    let this_node = |state: &JobState| {
        wanted.node.as_deref().is_none_or(|node| state.node.is_empty() || state.node == node)
    };
    let this_run = |state: &JobState| match (wanted.restart_count, state.restart_count) {
        (Some(wanted), Some(found)) => wanted == found,
        _ => true,
    };
    let candidates = states.into_iter().filter(|state| this_node(state) && this_run(state));
    candidates.max_by_key(|state| {
        let exact = wanted.restart_count.is_some() && state.restart_count == wanted.restart_count;
        (exact, state.start_boottime_ns)
    })
}
