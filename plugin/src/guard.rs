//! The wall between Rust and Slurm: no panic gets through, and none is printed.
//!
//! A panic that leaves an `extern "C"` function aborts the whole process: srun, or the slurmstepd that holds the job.

use gpuward_core::text::escape;
use std::any::Any;
use std::cell::Cell;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook};
use std::sync::Once;

/// What Slurm calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// `slurm_spank_init`
    Init,
    /// The callback of `--gpuward`.
    Option,
    /// `slurm_spank_init_post_opt`
    InitPostOpt,
    /// `slurm_spank_task_init`
    TaskInit,
}

impl Hook {
    /// As it is written in logs and in `panic=`.
    pub fn name(self) -> &'static str {
        match self {
            Hook::Init => "init",
            Hook::Option => "option",
            Hook::InitPostOpt => "init_post_opt",
            Hook::TaskInit => "task_init",
        }
    }
}

/// Runs one hook. After a panic the answer is 0: Slurm goes on as if the plugin were not there.
pub fn run(hook: Hook, body: impl FnOnce() -> i32) -> i32 {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        silence();
        crate::log::install();
        body()
    }));
    outcome.unwrap_or_else(|payload| {
        report(hook, payload);
        0
    })
}

/// For the constructor: catches, says nothing, allocates nothing.
pub fn run_silently(body: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(body)) {
        std::mem::forget(payload);
    }
}

/// Logs a caught panic. The payload is leaked on purpose: its destructor is code that may panic again.
fn report(hook: Hook, payload: Box<dyn Any + Send>) {
    let logged = catch_unwind(AssertUnwindSafe(|| {
        let what = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
            (Some(text), _) => text,
            (_, Some(text)) => text.as_str(),
            _ => "no message",
        };
        let place = PLACE.get();
        let line = format!(
            "internal error in {}: {} at {}; the job goes on without gpuward",
            hook.name(),
            escape(what, 200),
            place.text()
        );
        // slurmstepd shows errors of a task's process to the user, who can do nothing about it.
        if hook == Hook::TaskInit { ::log::warn!("{line}") } else { ::log::error!("{line}") }
    }));
    std::mem::forget(payload);
    if let Err(second) = logged {
        std::mem::forget(second);
    }
}

/// Replaces std's panic hook, once: it would print to fd 2, which may be the user's output.
///
/// The plugin has its own copy of std, so nobody else's hook is touched.
fn silence() {
    static ONCE: Once = Once::new();
    if !ONCE.is_completed() {
        ONCE.call_once(|| set_hook(Box::new(record)));
    }
}

fn record(info: &PanicHookInfo<'_>) {
    let mut place = Place::EMPTY;
    if let Some(location) = info.location() {
        let _ = write!(place, "{}:{}", location.file(), location.line());
    }
    PLACE.set(place);
}

thread_local! {
    // Plain bytes without a destructor: a thread's end has nothing to run in this object.
    static PLACE: Cell<Place> = const { Cell::new(Place::EMPTY) };
}

/// Where the last panic of this thread came from. Of a long text the end is cut.
#[derive(Clone, Copy)]
struct Place {
    bytes: [u8; 120],
    len: usize,
}

impl Place {
    const EMPTY: Place = Place { bytes: [0; 120], len: 0 };

    fn text(&self) -> String {
        gpuward_core::text::escape_bytes(self.bytes.get(..self.len).unwrap_or_default(), 200)
    }
}

impl Write for Place {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for (slot, byte) in self.bytes.iter_mut().skip(self.len).zip(text.bytes()) {
            *slot = byte;
            self.len += 1;
        }
        Ok(())
    }
}
