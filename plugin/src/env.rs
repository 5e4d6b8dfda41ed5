//! The environment of the step or task, through Slurm: never the process's own, which slurmstepd's threads read.

use crate::items::{Spank, is_code};
use gpuward_slurm_sys as sys;
use std::ffi::{CStr, CString, c_char, c_int};

/// Longer values are seen to be there, but not read; ours are all shorter.
const BUFFER_BYTES: c_int = 512;

/// What the environment holds under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// Nothing.
    Unset,
    /// This text; bytes that are not UTF-8 are replaced.
    Value(String),
    /// Something that is too long for us, or that Slurm does not tell: to be left alone.
    Unknown,
}

/// Looks a variable up in the environment of the step (before the tasks are forked) or of the task (in task_init).
pub fn get(spank: Spank, name: &CStr) -> Lookup {
    let mut buffer = [0u8; BUFFER_BYTES as usize];
    let target = buffer.as_mut_ptr().cast::<c_char>();
    // SAFETY: Slurm writes at most the given length, the NUL included, into a buffer of that length.
    let code = unsafe { sys::spank_getenv(spank.raw(), name.as_ptr(), target, BUFFER_BYTES) };
    if is_code(code, sys::ESPANK_ENV_NOEXIST) {
        return Lookup::Unset;
    }
    if code != sys::ESPANK_SUCCESS {
        return Lookup::Unknown;
    }
    match CStr::from_bytes_until_nul(&buffer) {
        Ok(text) => Lookup::Value(text.to_string_lossy().into_owned()),
        Err(_) => Lookup::Unknown,
    }
}

/// Sets a variable that is not set yet. False where Slurm did not do it.
pub fn set(spank: Spank, name: &CStr, value: &str) -> bool {
    let Ok(value) = CString::new(value) else { return false };
    // SAFETY: both are C strings that live through the call; Slurm copies them.
    let code = unsafe { sys::spank_setenv(spank.raw(), name.as_ptr(), value.as_ptr(), 0) };
    code == sys::ESPANK_SUCCESS
}
