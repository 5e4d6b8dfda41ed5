//! Every reader of foreign text keeps its promises on the whole corpus and on what a small mutator makes of it.
//!
//! `GPUWARD_FUZZ_SECONDS=60 cargo test -p gpuward-tests --test fuzz` goes on mutating for that time for each target, or for
//! those in `GPUWARD_FUZZ_TARGETS`: what `make fuzz` does where there is no nightly toolchain.
#![allow(clippy::tests_outside_test_module)]

use gpuward_tests::fuzz::mutate::{Random, long_inputs, mutate};
use gpuward_tests::fuzz::{TARGETS, Target, corpus};
use std::panic::catch_unwind;
use std::path::Path;
use std::time::{Duration, Instant};

/// Runs one input; one that breaks a promise is left in a file, which is told.
fn check(target: &Target, input: &[u8], origin: &str) {
    if catch_unwind(|| (target.check)(input)).is_err() {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{}", target.name));
        std::fs::write(&file, input).unwrap();
        panic!(
            "{}: {origin} breaks a promise, see above. The input is in {}; copied to tests/fuzz-corpus/{}/ it is tried in \
             every run.",
            target.name,
            file.display(),
            target.name
        );
    }
}

fn seeds(target: &Target) -> Vec<Vec<u8>> {
    let seeds: Vec<Vec<u8>> = corpus(target.name).unwrap().into_iter().map(|(_, bytes)| bytes).collect();
    assert!(!seeds.is_empty(), "{}: no corpus", target.name);
    seeds
}

#[test]
fn every_input_that_was_ever_of_interest_keeps_every_promise() {
    for target in TARGETS {
        check(target, b"", "the empty input");
        for (file, input) in corpus(target.name).unwrap() {
            check(target, &input, &file.display().to_string());
        }
    }
}

#[test]
fn mutated_inputs_keep_every_promise() {
    let seconds = std::env::var("GPUWARD_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let wanted = std::env::var("GPUWARD_FUZZ_TARGETS").ok();
    let is_wanted =
        |name: &str| wanted.as_ref().is_none_or(|names| names.split_whitespace().any(|one| one == name));
    for target in TARGETS.iter().filter(|target| is_wanted(target.name)) {
        let seeds = seeds(target);
        let mut random = Random::new(0);
        let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        let mut round = 0;
        while round < target.rounds || until.is_some_and(|until| Instant::now() < until) {
            let input = mutate(&mut random, &seeds, target.words);
            check(target, &input, &format!("mutated input {round}"));
            round += 1;
        }
    }
}

#[test]
fn long_inputs_take_no_more_than_their_share_of_work() {
    for target in TARGETS {
        for (place, input) in long_inputs(target.words).iter().enumerate() {
            check(target, input, &format!("long input {place}"));
        }
    }
}
