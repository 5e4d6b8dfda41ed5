//! The numbers that the plugin relies on, as they are in every Slurm release from 22.05 to 26.05.
#![allow(clippy::tests_outside_test_module, reason = "the whole file is a test")]

use gpuward_slurm_sys as sys;
use std::fmt::Write;

/// One line a constant: name and value.
fn listing() -> String {
    let mut out = String::new();
    macro_rules! list {
        ($($name:ident)*) => {
            $( let _ = writeln!(out, "{} {}", stringify!($name), i64::from(sys::$name)); )*
        };
    }
    list! {
        ESPANK_SUCCESS ESPANK_ERROR ESPANK_BAD_ARG ESPANK_NOT_TASK ESPANK_ENV_EXISTS ESPANK_ENV_NOEXIST
        ESPANK_NOSPACE ESPANK_NOT_REMOTE ESPANK_NOEXIST ESPANK_NOT_EXECD ESPANK_NOT_AVAIL ESPANK_NOT_LOCAL
        S_CTX_ERROR S_CTX_LOCAL S_CTX_REMOTE S_CTX_ALLOCATOR S_CTX_SLURMD S_CTX_JOB_SCRIPT
        S_JOB_UID S_JOB_ID S_JOB_STEPID S_TASK_ID S_TASK_GLOBAL_ID S_SLURM_RESTART_COUNT S_JOB_ARRAY_TASK_ID
        SLURM_EXTERN_CONT SLURM_BATCH_SCRIPT SLURM_INTERACTIVE_STEP NO_VAL INFINITE SPANK_OPTION_MAXLEN
    }
    out
}

#[test]
fn the_constants_are_those_that_the_plugin_was_written_for() {
    assert_eq!(listing(), include_str!("constants.golden"));
}

#[test]
fn enums_are_as_wide_as_an_int() {
    // spank_get_item takes the item by value and a pointer by item: a wrong width corrupts the stack.
    assert_eq!(size_of::<sys::spank_item_t>(), size_of::<core::ffi::c_int>());
    assert_eq!(size_of::<sys::spank_err_t>(), size_of::<core::ffi::c_int>());
    assert_eq!(size_of::<sys::spank_context_t>(), size_of::<core::ffi::c_int>());
}

#[test]
fn an_option_has_the_documented_layout() {
    assert_eq!(core::mem::offset_of!(sys::spank_option, name), 0);
    assert_eq!(core::mem::offset_of!(sys::spank_option, has_arg), 3 * size_of::<usize>());
    assert_eq!(core::mem::offset_of!(sys::spank_option, cb), 4 * size_of::<usize>());
    assert_eq!(size_of::<sys::spank_option>(), 5 * size_of::<usize>());
}

#[test]
fn the_version_is_a_supported_one() {
    let major = sys::SLURM_VERSION_NUMBER >> 16;
    assert!((20..=26).contains(&major), "SLURM_VERSION_NUMBER {:#x}", sys::SLURM_VERSION_NUMBER);
}
