//! What Slurm's loader reads before it calls anything: name, type and the release that the plugin is for.
//!
//! Slurm refuses a plugin whose `plugin_version` is of another release than its own (major and minor; from 22.05 on
//! always). The plugin uses only what is the same in all releases from 20.11 to 26.05, so a constructor asks the
//! program that loads it for its release and answers with the same. A release that is not in the table is refused by
//! Slurm, which is harmless in an `optional` line.
#![allow(non_upper_case_globals, reason = "Slurm looks these names up")]

use crate::{fault, guard};
use gpuward_slurm_sys::SLURM_VERSION_NUMBER;
use std::ffi::c_long;
use std::sync::atomic::{AtomicU32, Ordering};

/// The plugin's name; part of the names of the variables that carry its option.
#[unsafe(no_mangle)]
pub static plugin_name: [u8; 8] = *b"gpuward\0";

/// What every SPANK plugin says.
#[unsafe(no_mangle)]
pub static plugin_type: [u8; 6] = *b"spank\0";

/// The release that the plugin is for: at first that of the headers it was built with. An atomic lies in writable
/// memory, where the constructor can change it.
#[unsafe(no_mangle)]
pub static plugin_version: AtomicU32 = AtomicU32::new(SLURM_VERSION_NUMBER);

/// Run by the dynamic loader, before Slurm reads `plugin_version`.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = construct;

extern "C" fn construct() {
    guard::run_silently(|| {
        fault::inject_constructor();
        if let Some(number) = host_api().and_then(version_of) {
            plugin_version.store(number, Ordering::Relaxed);
        }
    });
}

/// `API_CURRENT` of the program that loads the plugin; `None` where it is no program of Slurm.
fn host_api() -> Option<i64> {
    // SAFETY: the name is a C string, and RTLD_DEFAULT a documented handle; dlsym may be called in a constructor.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"slurm_api_version".as_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: slurm.h of every release declares `extern long slurm_api_version(void)`.
    let function = unsafe { std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> c_long>(found) };
    Some(function() >> 16)
}

/// The release that belongs to a value of `API_CURRENT`, as `SLURM_VERSION_NUM(major, minor, 0)`.
///
/// From the release trees of github.com/SchedMD/slurm; the number has grown by one with each release.
fn version_of(api: i64) -> Option<u32> {
    let (major, minor) = match api {
        36 => (20, 11),
        37 => (21, 8),
        38 => (22, 5),
        39 => (23, 2),
        40 => (23, 11),
        41 => (24, 5),
        42 => (24, 11),
        43 => (25, 5),
        44 => (25, 11),
        45 => (26, 5),
        _ => return None,
    };
    Some(major << 16 | minor << 8)
}
