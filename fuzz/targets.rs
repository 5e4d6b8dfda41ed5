//! The fuzz target that `GPUWARD_FUZZ_TARGET` names, under libFuzzer.
#![no_main]

// The file itself and not the tests' library, which would bring the simulated driver along: minutes under a sanitizer. Of
// its own, corpus and mutator are for the other runner.
#[path = "../tests/src/fuzz/mod.rs"]
#[allow(dead_code)]
mod fuzz;

use fuzz::{Target, target};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static TARGET: LazyLock<&'static Target> = LazyLock::new(|| {
    let name = std::env::var("GPUWARD_FUZZ_TARGET").unwrap_or_default();
    target(&name).unwrap_or_else(|| panic!("GPUWARD_FUZZ_TARGET={name} is no target of tests/src/fuzz"))
});

fuzz_target!(|data: &[u8]| (TARGET.check)(data));
