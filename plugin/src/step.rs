//! What is known about the step: read once as root, looked at by every task after the fork.

use gpuward_core::config::EnvironmentMode;
use std::sync::atomic::{AtomicPtr, Ordering};

/// All that a task needs to know.
#[derive(Debug)]
pub struct Step {
    /// `[environment] mode`.
    pub mode: EnvironmentMode,
    /// How many GPUs the job has on this node.
    pub gpu_count: usize,
    /// What the user shall be told, escaped and bounded.
    pub comments: Vec<String>,
}

static STEP: AtomicPtr<Step> = AtomicPtr::new(std::ptr::null_mut());

/// Keeps the step of this load; `None` forgets that of an earlier load in the same process.
///
/// The step is never freed. Slurm's process ends with the step anyway, and a forked task, or another thread, may look
/// at it without a lock that some thread might have held during the fork.
pub fn keep(step: Option<Step>) {
    let pointer = step.map_or(std::ptr::null_mut(), |step| Box::into_raw(Box::new(step)));
    STEP.store(pointer, Ordering::Release);
}

/// The step of this load; `None` before it was read and where it could not be.
pub fn kept() -> Option<&'static Step> {
    // SAFETY: null, or a box that was leaked by `keep` and is never changed or freed.
    unsafe { STEP.load(Ordering::Acquire).as_ref() }
}
