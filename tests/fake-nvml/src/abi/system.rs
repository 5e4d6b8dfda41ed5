//! Init, shutdown, versions, texts.

use std::ffi::c_char;

use super::pointers::{Out, OutText};
use super::{exported, guarded, runtime, submit};
use crate::code::Code;
use crate::scenario::Process;

/// The flags (no GPUs, no attach, force) change nothing here.
fn init(function: &str) -> Code {
    guarded(|| {
        let state = runtime::load()?;
        submit(&state, function, None)?;
        if !state.machine.driver.loaded {
            return Err(Code::DRIVER_NOT_LOADED);
        }
        if state.machine.library_version() != state.machine.driver.version {
            return Err(Code::LIB_RM_VERSION_MISMATCH);
        }
        runtime::initialized();
        Ok(())
    })
}

/// `nvmlInit`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit() -> Code {
    init("nvmlInit")
}

/// `nvmlInit_v2`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> Code {
    init("nvmlInit_v2")
}

/// `nvmlInitWithFlags`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInitWithFlags(_flags: u32) -> Code {
    init("nvmlInitWithFlags")
}

/// `nvmlErrorString`: works before init and under any fault, as callers use it to explain faults.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(code: Code) -> *const c_char {
    code.text().as_ptr()
}

exported! {
    /// `nvmlShutdown`.
    system nvmlShutdown() |_| runtime::shut_down();

    /// `nvmlSystemGetDriverVersion`.
    system nvmlSystemGetDriverVersion(version: OutText, room: u32) |state|
        version.put(room, &state.machine.driver.version);

    /// `nvmlSystemGetNVMLVersion`: major CUDA version and driver version.
    system nvmlSystemGetNVMLVersion(version: OutText, room: u32) |state| {
        let major = state.machine.driver.cuda / 1000;
        version.put(room, &format!("{major}.{}", state.machine.library_version()))
    };

    /// `nvmlSystemGetCudaDriverVersion`.
    system nvmlSystemGetCudaDriverVersion(version: Out<i32>) |state| version.put(state.machine.driver.cuda);

    /// `nvmlSystemGetCudaDriverVersion_v2`.
    system nvmlSystemGetCudaDriverVersion_v2(version: Out<i32>) |state| version.put(state.machine.driver.cuda);

    /// `nvmlSystemGetProcessName`: cut where it does not fit.
    system nvmlSystemGetProcessName(pid: u32, name: OutText, room: u32) |state| {
        let devices = state.machine.gpus.iter().filter_map(|gpu| state.device(gpu.slot(), None).ok());
        let all = devices.flat_map(|device| device.processes(None));
        let found = all.map(|(process, _)| process).find(|process: &&Process| process.pid == pid);
        let full = &found.ok_or(Code::NOT_FOUND)?.name;
        let end = cut(full, (room as usize).saturating_sub(1));
        name.put(room, &full[..end])
    };
}

/// Where to cut a text so that at most `room` bytes and whole characters remain.
fn cut(text: &str, room: usize) -> usize {
    (0..=room.min(text.len())).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0)
}
