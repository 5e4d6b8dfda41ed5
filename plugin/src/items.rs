//! Slurm's handle and what can be asked of it: one typed function for each item.
//!
//! `spank_get_item` is variadic. A pointer of another width than the item's would make Slurm write over the stack, so
//! nothing else in the plugin calls it.

use gpuward_core::model::JobId;
use gpuward_slurm_sys as sys;
use std::ffi::{CStr, c_char, c_int};

/// Which of Slurm's programs has loaded the plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Context {
    /// srun
    Local,
    /// sbatch, salloc, scrontab
    Allocator,
    /// slurmd
    Slurmd,
    /// slurmstepd
    Remote,
    /// The SPANK prolog and epilog, and whatever is not known.
    Other,
}

/// Where we are.
pub fn context() -> Context {
    // SAFETY: takes nothing, keeps nothing; exported by every program that loads SPANK plugins.
    match unsafe { sys::spank_context() } {
        sys::S_CTX_LOCAL => Context::Local,
        sys::S_CTX_ALLOCATOR => Context::Allocator,
        sys::S_CTX_SLURMD => Context::Slurmd,
        sys::S_CTX_REMOTE => Context::Remote,
        _ => Context::Other,
    }
}

/// True where `code` means `wanted`: the codes lie at 3000 and above since 22.05, the same ones at 1 and above before.
pub fn is_code(code: sys::spank_err_t, wanted: sys::spank_err_t) -> bool {
    let short = |code: sys::spank_err_t| code.checked_sub(2999).unwrap_or(code);
    short(code) == short(wanted)
}

/// One call of a hook: the handle and the arguments of the plugstack.conf line.
pub struct Call {
    /// Slurm's handle.
    pub spank: Spank,
    argc: c_int,
    argv: *mut *mut c_char,
}

impl Call {
    /// # Safety
    /// The three must be what Slurm passed to a hook, and the result must not outlive that hook.
    pub unsafe fn new(spank: sys::spank_t, argc: c_int, argv: *mut *mut c_char) -> Call {
        Call { spank: Spank(spank), argc, argv }
    }

    /// The arguments, at most 32 of them (ours; two exist).
    pub fn args(&self) -> Vec<String> {
        let count = usize::try_from(self.argc).unwrap_or(0).min(32);
        if self.argv.is_null() {
            return Vec::new();
        }
        // SAFETY: Slurm passes an array of argc pointers that lives through the hook.
        let pointers = unsafe { std::slice::from_raw_parts(self.argv, count) };
        pointers.iter().filter_map(|&pointer| copy(pointer)).collect()
    }
}

/// A copy of a string that belongs to Slurm; bytes that are not UTF-8 are replaced.
pub fn copy(pointer: *const c_char) -> Option<String> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: not null, and Slurm's strings end with a NUL; the copy is made before the hook returns.
    Some(unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned())
}

/// Slurm's handle, valid for the time of one hook.
#[derive(Clone, Copy)]
pub struct Spank(sys::spank_t);

impl Spank {
    /// The handle for a direct call.
    pub fn raw(self) -> sys::spank_t {
        self.0
    }

    /// Job id; of a heterogeneous job that of the component.
    pub fn job_id(self) -> Option<JobId> {
        self.uint32(sys::S_JOB_ID).map(JobId)
    }

    /// Step id, or one of Slurm's numbers for the batch, interactive and extern step.
    pub fn step_id(self) -> Option<u32> {
        self.uint32(sys::S_JOB_STEPID)
    }

    /// How often the job was started again; `None` where Slurm does not know. That includes 0: 22.05.8 says 0 in every
    /// run of a requeued job (seen in batch and srun steps), because only the batch step's variable gets the count.
    pub fn restart_count(self) -> Option<u32> {
        let unknown = [0, sys::NO_VAL, sys::INFINITE];
        self.uint32(sys::S_SLURM_RESTART_COUNT).filter(|count| !unknown.contains(count))
    }

    /// The task's rank in the whole step; only in task_init.
    pub fn global_rank(self) -> Option<u32> {
        self.uint32(sys::S_TASK_GLOBAL_ID)
    }

    /// For the items that spank.h declares as `(uint32_t *)`.
    fn uint32(self, item: sys::spank_item_t) -> Option<u32> {
        let mut value = 0u32;
        // SAFETY: every caller above names an item whose only argument is a `uint32_t *`, which lives through the call.
        let code = unsafe { sys::spank_get_item(self.0, item, &raw mut value) };
        (code == sys::ESPANK_SUCCESS).then_some(value)
    }
}
