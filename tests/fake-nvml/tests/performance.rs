//! Performance samples (GPM): means between two samples, on whole GPUs and MIG instances.

// Integration tests have no test module.
#![allow(clippy::tests_outside_test_module)]

mod common;

use common::readings::metrics;
use common::{Installed, scenario};
use nvidia_ml::scenario::{Machine, MigDevice};
use nvml_wrapper::error::NvmlError;

fn at(fake: &Installed, ms: u64, rules: &str) {
    fake.faults(&format!("frozen_boottime_ms = {ms}\n{rules}"));
}

#[track_caller]
fn close(read: Result<f64, u32>, expected: f64) {
    let value = read.unwrap();
    assert!((value - expected).abs() < 1e-6 * expected.max(1.0), "{value} instead of {expected}");
}

const NOT_SUPPORTED: Result<f64, u32> = Err(3);
const MIB: f64 = 1_048_576.0;

/// Three of ten seconds busy.
const BUSY: &str = r#"
    [[busy]]
    gpu = 0
    from_boottime_ms = 101_000
    until_boottime_ms = 104_000
"#;

#[test]
fn metrics_are_means_over_the_time_between_two_samples() {
    let fake = Installed::new("hgx-h100");
    let nvml = fake.open();
    let device = nvml.device_by_index(0).unwrap();
    assert!(device.gpm_support().unwrap());
    at(&fake, 100_000, BUSY);
    let first = device.gpm_sample().unwrap();
    at(&fake, 110_000, BUSY);
    let read = metrics(&nvml, &first, &device.gpm_sample().unwrap());
    // The model says 97 and 46 percent; the parts of an SM are shares of ours.
    for (id, busy_pct) in
        [(1, 97.0), (2, 97.0), (3, 48.0), (4, 19.0), (5, 48.0), (6, 0.0), (7, 48.0), (9, 0.0)]
    {
        close(read[&id], 0.3 * busy_pct);
    }
    for (id, busy_pct) in [(10, 46.0), (11, 0.0), (12, 48.0), (13, 9.0)] {
        close(read[&id], 0.3 * busy_pct);
    }
    close(read[&20], 0.3 * 900e6 / MIB);
    close(read[&21], 0.3 * 1400e6 / MIB);
    let link = 0.3 * 5e6 / 1024.0;
    close(read[&60], 18.0 * link);
    close(read[&61], 18.0 * link);
    (62..98).for_each(|id| close(read[&id], link));
    assert_eq!([read[&8], read[&30], read[&248]], [NOT_SUPPORTED; 3]);
}

#[test]
fn a_busy_time_says_what_each_pipe_does() {
    let fake = Installed::new("hgx-h100");
    let nvml = fake.open();
    let device = nvml.device_by_index(0).unwrap();
    let util =
        "util = { gpu_pct = 80, memory_pct = 20, sm = { occupancy_pct = 40, fp64_pct = 60, dfma_pct = 30 } }";
    let rules = format!("{BUSY}{util}");
    at(&fake, 101_000, &rules);
    let first = device.gpm_sample().unwrap();
    at(&fake, 103_000, &rules);
    let read = metrics(&nvml, &first, &device.gpm_sample().unwrap());
    let expected = [(2, 80.0), (3, 40.0), (6, 30.0), (10, 20.0), (11, 60.0), (12, 0.0)];
    expected.into_iter().for_each(|(id, pct)| close(read[&id], pct));
}

#[test]
fn a_link_that_is_down_moves_nothing_and_links_that_are_not_there_have_no_metric() {
    let mut machine = Machine::load(&scenario("hgx-h100")).unwrap();
    machine.gpus[0].nvlink.down = "4".parse().unwrap();
    machine.gpus[0].nvlink.links.truncate(2);
    let fake = Installed::with(machine);
    let nvml = fake.open();
    let device = nvml.device_by_index(0).unwrap();
    at(&fake, 101_000, BUSY);
    let first = device.gpm_sample().unwrap();
    at(&fake, 102_000, BUSY);
    let read = metrics(&nvml, &first, &device.gpm_sample().unwrap());
    let link = 5e6 / 1024.0;
    close(read[&60], 8.0 * link);
    close(read[&(62 + 2 * 3)], link);
    close(read[&(62 + 2 * 4)], 0.0);
    assert_eq!(read[&(62 + 2 * 9)], NOT_SUPPORTED);
}

#[test]
fn counters_since_boot_come_with_cuda_13_2() {
    let mut machine = Machine::load(&scenario("hgx-h100")).unwrap();
    machine.driver.cuda = 13_020;
    let fake = Installed::with(machine);
    let nvml = fake.open();
    let device = nvml.device_by_index(0).unwrap();
    at(&fake, 200_000, BUSY);
    let sample = device.gpm_sample().unwrap();
    let read = metrics(&nvml, &sample, &sample);
    let cycles_per_second = 1.98e9;
    close(read[&248], 200.0 * cycles_per_second);
    close(read[&249], 3.0 * 0.97 * cycles_per_second);
    close(read[&255], 3.0 * 900e6);
    close(read[&259], 3.0 * 0.48 * cycles_per_second);
    close(read[&261], 3.0 * 5e6 * 1024.0);
    assert_eq!(read[&2], Err(2), "a mean needs two times");
}

#[test]
fn instances_have_samples_of_their_own_without_what_they_share() {
    let mut machine = Machine::load(&scenario("hgx-h100")).unwrap();
    machine.gpus[0].mig.enabled = true;
    machine.gpus[0].mig.devices = vec![MigDevice {
        uuid: "MIG-3f8a7f4e-0b7c-5c9e-8a53-6a2f0c1d2e3f".into(),
        profile: "1g.10gb".into(),
        gpu_instance: 7,
        slices: 1,
        memory_mib: 9728,
        ..MigDevice::default()
    }];
    let fake = Installed::with(machine);
    let nvml = fake.open();
    let device = nvml.device_by_index(0).unwrap();
    at(&fake, 101_000, BUSY);
    let first = device.gpm_mig_sample(7).unwrap();
    let whole = device.gpm_sample().unwrap();
    at(&fake, 102_000, BUSY);
    let second = device.gpm_mig_sample(7).unwrap();
    let read = metrics(&nvml, &first, &second);
    close(read[&2], 97.0);
    assert_eq!([read[&20], read[&60], read[&62]], [NOT_SUPPORTED; 3]);
    assert_eq!(metrics(&nvml, &whole, &second)[&2], Err(2), "samples of two kinds do not go together");
    assert!(matches!(device.gpm_mig_sample(8), Err(NvmlError::InvalidArg)));
}

#[test]
fn boards_before_hopper_have_no_samples() {
    let fake = Installed::new("l40s-pcie");
    let nvml = fake.open();
    let device = nvml.device_by_index(0).unwrap();
    assert!(!device.gpm_support().unwrap());
    assert!(matches!(device.gpm_sample(), Err(NvmlError::NotSupported)));
}
