//! slurmstepd: reads the job state file as root, once per step, and gives each task its environment.

use crate::env::{self, Lookup};
use crate::guard::Hook;
use crate::items::{Call, Spank};
use crate::options::{self, Choice};
use crate::state::{self, Wanted};
use crate::step::{self, Step};
use crate::{args, fault, files, log as slurm_log};
use gpuward_core::config::{Config, EnvironmentMode};
use gpuward_core::model::JobState;
use gpuward_core::text::escape;
use gpuward_slurm_sys::SLURM_EXTERN_CONT;
use std::ffi::CStr;
use std::path::Path;

/// No gpuward.toml is larger. Ours: every setting with its comment takes less than 8 KiB.
const CONFIG_MAX_BYTES: usize = 256 * 1024;

/// At most so many comments reach the user, each at most so long. Ours: a screen stays readable.
const MAX_COMMENTS: usize = 3;
const MAX_COMMENT_BYTES: usize = 240;

/// One hook in slurmstepd.
pub fn enter(hook: Hook, call: &Call) -> i32 {
    if hook == Hook::Init {
        // First, so that whatever happens next the option is known and nothing of an earlier load is left.
        step::keep(None);
        options::register(call.spank);
    }
    fault::inject(hook, call);
    match hook {
        Hook::InitPostOpt => prepare(call),
        Hook::TaskInit => task(call.spank),
        Hook::Init | Hook::Option => {}
    }
    0
}

/// Reads everything while we are root and before any task is forked.
fn prepare(call: &Call) {
    let spank = call.spank;
    // The extern step starts no tasks.
    if spank.step_id() == Some(SLURM_EXTERN_CONT) {
        return;
    }
    match read(spank, &args::config_path(&call.args())) {
        Ok(step) => step::keep(step),
        Err(why) => log::error!("{why}; tasks keep Slurm's environment job={}", job_text(spank)),
    }
}

fn job_text(spank: Spank) -> String {
    spank.job_id().map_or_else(|| "-".to_owned(), |job| job.to_string())
}

/// What there is to know about the step; `None` where the prolog left nothing for this job.
fn read(spank: Spank, config_path: &Path) -> Result<Option<Step>, String> {
    let config = match files::read(config_path, CONFIG_MAX_BYTES) {
        Ok(text) => {
            Config::parse(&text, &config_path.display().to_string()).map_err(|error| error.to_string())?
        }
        // The file is optional.
        Err(files::FileError::Missing(_)) => Config::default(),
        Err(error) => return Err(error.to_string()),
    };
    let job = spank.job_id().ok_or("Slurm does not tell the job id")?;
    let node = node_name();
    let paths = config.paths.for_node(node.as_deref().unwrap_or_default(), &cluster_name(spank));
    let wanted = Wanted { job, restart_count: spank.restart_count(), node };
    let Some(state) = state::find(Path::new(&paths.run), &wanted)? else {
        log::debug!("no job state in {}/jobs job={job}; nothing to do", escape(&paths.run, 200));
        return Ok(None);
    };
    log::debug!("job state read job={job} nonce={} gpus={}", escape(&state.nonce, 16), state.gpus.len());
    Ok(Some(digest(&config, &state)))
}

fn digest(config: &Config, state: &JobState) -> Step {
    let comments = state.comments.iter().take(MAX_COMMENTS);
    Step {
        mode: config.environment.mode,
        gpu_count: state.gpus.len(),
        comments: comments.map(|comment| slurm_log::printable(comment, MAX_COMMENT_BYTES)).collect(),
    }
}

/// The node's name from slurmstepd's own environment, where slurmd put it.
///
/// The step's environment is no source at this point: until the task starts, `SLURMD_NODENAME` there is what srun
/// inherited, that is the node on which the batch script runs.
fn node_name() -> Option<String> {
    std::env::var("SLURMD_NODENAME").ok().filter(|name| !name.is_empty())
}

/// The cluster's name from the step's environment. It is only used to fill in `%c`, and a user who changes it finds
/// another folder of root's, or none.
fn cluster_name(spank: Spank) -> String {
    match env::get(spank, c"SLURM_CLUSTER_NAME") {
        Lookup::Value(name) => name,
        Lookup::Unset | Lookup::Unknown => String::new(),
    }
}

/// One task, as the user. Nothing is logged as an error here: slurmstepd would show it to the user.
fn task(spank: Spank) {
    let choice = options::chosen(spank);
    let first = spank.global_rank() == Some(0);
    let Some(step) = step::kept() else {
        if first && choice == Choice::Verbose {
            slurm_log::tell_user("nothing set: nothing is known about this job's GPUs on this node");
        }
        return;
    };
    if first {
        step.comments.iter().for_each(|comment| slurm_log::tell_user(comment));
    }
    if choice == Choice::Off {
        log::debug!("--gpuward=off: the environment stays as it is job={}", job_text(spank));
        return;
    }
    let outcome = edit(spank, step);
    log::debug!("{outcome} job={}", job_text(spank));
    if first && choice == Choice::Verbose {
        slurm_log::tell_user(&outcome);
    }
}

/// What gpuward sets, where the user did not: one line a variable.
///
/// `CUDA_DEVICE_ORDER`: CUDA otherwise sorts the fastest GPU first, while Slurm, NVML and gpuward count by PCI address.
const EDITS: [(&CStr, &str); 1] = [(c"CUDA_DEVICE_ORDER", "PCI_BUS_ID")];

/// Names what was set, for whoever looks at the job later.
const SET_LIST: &CStr = c"GPUWARD_SET";

/// Edits the task's environment and says in one line what was done.
fn edit(spank: Spank, step: &Step) -> String {
    if step.gpu_count == 0 {
        return "nothing set: the job has no GPUs on this node".to_owned();
    }
    let unset = EDITS.iter().filter(|(name, _)| env::get(spank, name) == Lookup::Unset);
    let observing = step.mode == EnvironmentMode::Observe;
    let done: Vec<_> = unset.filter(|(name, value)| observing || env::set(spank, name, value)).collect();
    if done.is_empty() {
        return "nothing set: the job's own environment stands".to_owned();
    }
    let names: Vec<_> = done.iter().map(|(name, _)| name.to_string_lossy()).collect();
    let pairs: Vec<_> =
        done.iter().map(|(name, value)| format!("{}={value}", name.to_string_lossy())).collect();
    if observing {
        return format!("would set {} (environment.mode is observe)", pairs.join(" "));
    }
    env::set(spank, SET_LIST, &names.join(","));
    format!("set {}", pairs.join(" "))
}
