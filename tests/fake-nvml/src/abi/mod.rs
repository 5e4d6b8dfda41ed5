//! The C functions. Each is a thin door: judge the call by the fault script, decode the handle, ask the engine,
//! write the answer. Unsafe code is in `pointers` and `runtime` only.

// The names are NVML's.
#![allow(non_snake_case)]

mod accounting;
mod clocks;
mod events;
mod fields;
mod gpm;
mod handles;
mod hang;
mod identity;
mod links;
mod memory;
mod modes;
mod placement;
mod pointers;
mod processes;
mod runtime;
mod system;
mod types;
mod unsimulated;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use crate::code::Code;
use crate::engine::{Answer, Device};
use crate::faults::{Judgement, Outcome};
use pointers::Handle;
use runtime::State;

/// Declares exported functions: the name becomes the symbol, the body an `Answer<()>`.
///
/// `system name(args) |state| body` for functions without a GPU, `gpu name(args) |device| body` for those whose
/// first argument is a handle.
macro_rules! exported {
    () => {};
    ($(#[$doc:meta])* system $name:ident($($arg:ident: $type:ty),*) |$state:pat_param| $body:expr; $($rest:tt)*) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($arg: $type),*) -> $crate::code::Code {
            $crate::abi::without_gpu(stringify!($name), |$state| $body)
        }
        $crate::abi::exported! { $($rest)* }
    };
    ($(#[$doc:meta])* gpu $name:ident($($arg:ident: $type:ty),*) |$device:pat_param| $body:expr; $($rest:tt)*) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(device: $crate::abi::pointers::Handle $(, $arg: $type)*) -> $crate::code::Code {
            $crate::abi::on_gpu(stringify!($name), device, |$device, _| $body)
        }
        $crate::abi::exported! { $($rest)* }
    };
    ($(#[$doc:meta])* setter $name:ident($($arg:ident: $type:ty),*)
        |$device:ident, $set:ident| $body:expr; $($rest:tt)*) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(device: $crate::abi::pointers::Handle $(, $arg: $type)*) -> $crate::code::Code {
            $crate::abi::on_gpu(stringify!($name), device, |$device, state| {
                let $set = |field: &str, value: Option<toml::Value>| {
                    $crate::abi::runtime::store(state, $device.gpu.slot(), field, value)
                };
                $body
            })
        }
        $crate::abi::exported! { $($rest)* }
    };
}
use exported;

/// Runs one exported function: whatever happens inside, the caller gets a code and no panic.
fn guarded(body: impl FnOnce() -> Answer<()>) -> Code {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => Code::SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => Code::UNKNOWN,
    }
}

/// A call that names no GPU.
fn without_gpu(function: &str, body: impl FnOnce(&State) -> Answer<()>) -> Code {
    guarded(|| {
        let state = runtime::state()?;
        submit(&state, function, None)?;
        body(&state)
    })
}

/// A call on a GPU or MIG device.
fn on_gpu(function: &str, handle: Handle, body: impl FnOnce(&Device<'_>, &State) -> Answer<()>) -> Code {
    guarded(|| {
        let state = runtime::state()?;
        // An unknown handle names no GPU, but a function that is missing is missing for it, too.
        let device = device(&state, handle);
        submit(&state, function, device.as_ref().ok().map(|device| device.gpu.slot()))?;
        body(&device?, &state)
    })
}

/// The device that a handle means.
fn device(state: &State, handle: Handle) -> Answer<Device<'_>> {
    let (slot, mig) = handle.parts()?;
    state.device(slot, mig)
}

/// Lets the fault script act on a call: sleep, hang, or end it with a code.
fn submit(state: &State, function: &str, slot: Option<u32>) -> Answer<()> {
    let Judgement { sleep_us, outcome } = state.script.judge(function, slot);
    if sleep_us > 0 {
        thread::sleep(Duration::from_micros(sleep_us));
    }
    match outcome {
        Outcome::Answer => Ok(()),
        Outcome::Fail(code) => Err(code),
        Outcome::Hang(freezer) => hang::forever(freezer.as_deref()),
    }
}
