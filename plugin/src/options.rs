//! `--gpuward=off|on|verbose`: the user's word about one step.
//!
//! It has to be registered in every context, else a command that does not know it refuses it. Slurm may call the
//! callback once, twice or not at all for the same value (22.05: twice in srun's steps, never in the batch step of
//! `sbatch --export=NONE`), so it only stores.

use crate::env::{self, Lookup};
use crate::fault;
use crate::guard::{self, Hook};
use crate::items::{Spank, copy};
use gpuward_core::text::escape;
use gpuward_slurm_sys as sys;
use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicU8, Ordering};

/// What the user chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// This step's environment stays as Slurm made it.
    Off,
    /// As configured.
    On,
    /// As configured, and the user is told what was set.
    Verbose,
}

impl Choice {
    fn parse(text: &str) -> Option<Choice> {
        match text {
            "off" => Some(Choice::Off),
            "on" => Some(Choice::On),
            "verbose" => Some(Choice::Verbose),
            _ => None,
        }
    }
}

/// 0: nothing chosen; else the choice + 1.
static CHOSEN: AtomicU8 = AtomicU8::new(0);

/// Slurm keeps the pointers of the table, so it is static; `spank_option_register` takes it as writable.
struct Table(UnsafeCell<sys::spank_option>);

// SAFETY: nothing of ours writes to the table, and Slurm reads it in the thread that calls the hooks.
unsafe impl Sync for Table {}

static TABLE: Table = Table(UnsafeCell::new(sys::spank_option {
    name: c"gpuward".as_ptr().cast_mut(),
    arginfo: c"off|on|verbose".as_ptr().cast_mut(),
    usage: c"gpuward: leave this step's environment alone, treat it as the site configured (on), or also say what was set"
        .as_ptr()
        .cast_mut(),
    has_arg: 1,
    val: 0,
    cb: Some(callback),
}));

/// Registers the option and forgets what an earlier load of the object in this process stored.
pub fn register(spank: Spank) {
    CHOSEN.store(0, Ordering::Relaxed);
    // SAFETY: the table and all it points to are static.
    let code = unsafe { sys::spank_option_register(spank.raw(), TABLE.0.get()) };
    if code != sys::ESPANK_SUCCESS {
        log::debug!("cannot register --gpuward: Slurm's code {code}; steps are treated as configured");
    }
}

/// What the user chose for this step.
///
/// Where no callback came, the copy that sbatch leaves in the job's environment is looked at: with `--export=NONE` it
/// is all that reaches the batch step, and a job that came through slurmrestd can set it.
pub fn chosen(spank: Spank) -> Choice {
    match CHOSEN.load(Ordering::Relaxed) {
        1 => Choice::Off,
        2 => Choice::On,
        3 => Choice::Verbose,
        _ => match env::get(spank, c"SLURM_SPANK__SLURM_SPANK_OPTION_gpuward_gpuward") {
            Lookup::Value(text) => Choice::parse(&text).unwrap_or(Choice::On),
            Lookup::Unset | Lookup::Unknown => Choice::On,
        },
    }
}

unsafe extern "C" fn callback(_val: c_int, value: *const c_char, remote: c_int) -> c_int {
    guard::run(Hook::Option, || {
        fault::inject_option();
        store(copy(value).unwrap_or_default().as_str(), remote != 0)
    })
}

/// A wrong value stops the command where the user typed it; on the node it is ignored, since nothing there may fail.
fn store(value: &str, remote: bool) -> i32 {
    match Choice::parse(value) {
        Some(choice) => {
            CHOSEN.store(choice as u8 + 1, Ordering::Relaxed);
            0
        }
        None if remote => {
            log::warn!("--gpuward={} is not known; the step is treated as configured", escape(value, 60));
            0
        }
        None => {
            log::error!("--gpuward={}: allowed are off, on and verbose", escape(value, 60));
            -1
        }
    }
}
