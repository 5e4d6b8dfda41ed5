//! The `log` facade onto Slurm's own loggers, and what the user shall see.
//!
//! Where a line ends up (Slurm 22.05): in srun, sbatch and salloc on the user's terminal; in slurmstepd's init hooks in
//! slurmd's log only; in task_init an error goes to the user's terminal as well, so there nothing above `warn` is used.

use gpuward_slurm_sys as sys;
use log::{Level, LevelFilter, Log, Metadata, Record};
use std::ffi::CString;

/// No line is longer: slurm cuts nothing, and part of a line may be what a user wrote.
const MAX_LINE_BYTES: usize = 1000;

struct SlurmLog;

static SLURM_LOG: SlurmLog = SlurmLog;

/// Sends what is logged to Slurm. The facade's logger is this object's own copy; to install it again does nothing.
pub fn install() {
    if log::max_level() == LevelFilter::Off && log::set_logger(&SLURM_LOG).is_ok() {
        log::set_max_level(LevelFilter::Debug);
    }
}

impl Log for SlurmLog {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let line = line(&record.args().to_string());
        let text = line.as_ptr();
        // Loggers are printf: the text goes behind "%s", never into the format.
        let format = c"%s".as_ptr();
        match record.level() {
            // SAFETY: both are C strings that live through the call, and the format takes exactly one string.
            Level::Error => unsafe { sys::slurm_error(format, text) },
            // SAFETY: as above.
            Level::Warn => unsafe { sys::slurm_info(format, text) },
            // SAFETY: as above.
            Level::Info => unsafe { sys::slurm_verbose(format, text) },
            // SAFETY: as above.
            Level::Debug | Level::Trace => unsafe { sys::slurm_debug(format, text) },
        }
    }

    fn flush(&self) {}
}

/// One line for the user: in task_init it ends in the job's standard error. It is logged as well.
pub fn tell_user(text: &str) {
    let line = line(text);
    // SAFETY: both are C strings that live through the call, and the format takes exactly one string.
    unsafe { sys::slurm_spank_log(c"%s".as_ptr(), line.as_ptr()) }
}

/// `gpuward: text`, printable, bounded and without NULs.
fn line(text: &str) -> CString {
    CString::new(format!("gpuward: {}", printable(text, MAX_LINE_BYTES))).unwrap_or_default()
}

/// `text` escaped, unless it is printable and short already: then it may have been escaped before, and twice would
/// spoil it.
pub fn printable(text: &str, max_bytes: usize) -> String {
    let clean = text.len() <= max_bytes && text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if clean { text.to_owned() } else { gpuward_core::text::escape(text, max_bytes) }
}
