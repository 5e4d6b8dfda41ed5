//! spank_gpuward.so: gpuward inside Slurm's own programs.
//!
//! Purpose: give the tasks of a job with GPUs the environment that matches what the prolog found, and tell the user
//! what the prolog let pass. Input: the job state file that the prolog wrote, gpuward.toml, the option `--gpuward`.
//! Called by Slurm: this page holds every hook that is exported, and hands each to the file of its context.
//!
//! Whatever goes wrong here, the hook returns 0, the task starts as Slurm made it, and one line is logged. It never
//! exports `job_prolog` or `job_epilog`, which would hide the options from the prolog, nor a symbol called `init`,
//! which Slurm's loader would call.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod allocator;
mod args;
mod env;
mod fault;
mod files;
mod guard;
mod items;
mod local;
mod log;
mod options;
mod remote;
mod slurmd;
mod state;
mod step;
mod version;

use gpuward_slurm_sys::spank_t;
use guard::Hook;
use items::{Call, Context};
use std::ffi::{c_char, c_int};

/// Every context: registers the option.
///
/// # Safety
/// Called by Slurm with its own handle and the arguments of the plugstack.conf line.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_spank_init(spank: spank_t, argc: c_int, argv: *mut *mut c_char) -> c_int {
    // SAFETY: Slurm's own arguments, handed on for the time of this call.
    dispatch(Hook::Init, unsafe { Call::new(spank, argc, argv) })
}

/// slurmstepd, as root, before any task is forked: reads the configuration and the job state file.
///
/// # Safety
/// As [`slurm_spank_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_spank_init_post_opt(
    spank: spank_t,
    argc: c_int,
    argv: *mut *mut c_char,
) -> c_int {
    // SAFETY: Slurm's own arguments, handed on for the time of this call.
    dispatch(Hook::InitPostOpt, unsafe { Call::new(spank, argc, argv) })
}

/// The task's own process, as the user, just before its program starts: sets the task's environment.
///
/// # Safety
/// As [`slurm_spank_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_spank_task_init(spank: spank_t, argc: c_int, argv: *mut *mut c_char) -> c_int {
    // SAFETY: Slurm's own arguments, handed on for the time of this call.
    dispatch(Hook::TaskInit, unsafe { Call::new(spank, argc, argv) })
}

fn dispatch(hook: Hook, call: Call) -> c_int {
    match items::context() {
        Context::Slurmd => slurmd::enter(),
        Context::Local => guard::run(hook, || local::enter(hook, &call)),
        Context::Allocator => guard::run(hook, || allocator::enter(hook, &call)),
        Context::Remote => guard::run(hook, || remote::enter(hook, &call)),
        Context::Other => 0,
    }
}
