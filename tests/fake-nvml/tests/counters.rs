//! Time that stands still, and counters that start again.

// Integration tests have no test module.
#![allow(clippy::tests_outside_test_module)]

mod common;

use common::{Installed, fields};
use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError};
use nvml_wrapper::{Device, Nvml};

/// Volatile and aggregate ECC, remapped rows, NVLink replays, PCIe replays, throttle time, energy, PCIe and NVLink
/// traffic.
const COUNTERS: [(u32, u32); 9] =
    [(4, 0), (6, 0), (143, 0), (161, 2), (94, 0), (252, 0), (83, 0), (197, 0), (138, 2)];

fn counters(nvml: &Nvml, device: &Device<'_>) -> Vec<u64> {
    fields(nvml, device, &COUNTERS)
}

/// What the GPU at slot 0 has counted before, and a busy time from the boot to the tenth second.
const COUNTED: &str = r#"
    set = [
        { gpu = 0, field = "ecc.dram.volatile_uncorr", value = 3 },
        { gpu = 0, field = "ecc.dram.aggregate_uncorr", value = 9 },
        { gpu = 0, field = "remap.uncorr", value = 2 },
        { gpu = 0, field = "remap.pending", value = true },
        { gpu = 0, field = "nvlink.errors", value = [{ link = 2, replay = 7 }] },
        { gpu = 0, field = "pcie.replay", value = 5 },
        { gpu = 0, field = "clocks.throttle_ns.hw_thermal", value = 6 },
        { gpu = 0, field = "power.energy_base_mj", value = 1000 },
        { gpu = 0, field = "pcie.replay", value = 1, after_reset = true },
    ]

    [[busy]]
    gpu = 0
    until_boottime_ms = 10_000
    power_mw = 700_000
"#;

#[test]
fn while_time_stands_still_every_client_reads_the_same_numbers() {
    let fake = Installed::new("hgx-h100");
    fake.faults("frozen_boottime_ms = 123_456\nunix_us = 1_700_000_000_000_000\nbusy = [{ gpu = 0 }]");
    let nvml = fake.open();
    let device = nvml.device_by_index(0).unwrap();
    let energy = device.total_energy_consumption().unwrap();
    assert_eq!(energy, 640_000 * 123_456 / 1000);
    let other =
        std::process::Command::new(common::example("read_first_gpu")).arg(fake.library()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&other.stdout), format!("temperature 62\nenergy {energy}\n"));
    let taken =
        device.violation_status(nvml_wrapper::enum_wrappers::device::PerformancePolicy::Power).unwrap();
    assert_eq!(taken.reference_time, 1_700_000_000_000_000);
    fake.faults("frozen_boottime_ms = 123_457\nbusy = [{ gpu = 0 }]");
    assert_eq!(device.total_energy_consumption().unwrap(), energy + 640);
}

#[test]
fn a_wall_clock_without_frozen_time_is_refused() {
    let fake = Installed::new("l40s-pcie");
    let error = nvidia_ml::faults::write(fake.folder(), "unix_us = 5").unwrap_err().to_string();
    assert!(error.contains("unix_us: means something only beside frozen_boottime_ms"), "{error}");
}

#[test]
fn a_gpu_reset_clears_what_it_clears_and_nothing_else() {
    let fake = Installed::new("hgx-h100");
    let nvml = fake.open();
    let (device, other) = (nvml.device_by_index(0).unwrap(), nvml.device_by_index(1).unwrap());
    let at = |ms: u64, more: &str| fake.faults(&format!("frozen_boottime_ms = {ms}\n{COUNTED}\n{more}"));
    let busy_mj = 700 * 10_000;
    let reset = "[[reset]]\ngpu = 0\nat_boottime_ms = 12_000\nwhat = \"gpu\"";
    at(11_999, reset);
    let idle = |ms: u64| 70 * (ms - 10_000);
    assert_eq!(
        counters(&nvml, &device),
        [3, 9, 2, 7, 5, 6, 1000 + busy_mj + idle(11_999), 9_000_000_000, 50_000_000]
    );
    assert!(device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile).unwrap() == 3);
    at(12_000, reset);
    let energy = 1000 + busy_mj + idle(12_000);
    assert_eq!(counters(&nvml, &device), [0, 9, 2, 0, 1, 0, energy, 0, 0]);
    assert_eq!(fields(&nvml, &device, &[(144, 0)]), [0], "the remap that waited is done");
    assert_eq!(device.serial().unwrap(), fake.machine.gpus[0].serial.clone().unwrap());
    // Traffic counts from the reset on; energy goes on.
    at(13_000, &format!("{reset}\n[[busy]]\ngpu = 0\nfrom_boottime_ms = 12_500\nuntil_boottime_ms = 13_000"));
    let after = counters(&nvml, &device);
    assert_eq!(after[6..], [energy + 35_000 + 320_000, 450_000_000, 2_500_000]);
    assert_eq!(counters(&nvml, &other)[6], 70 * 13_000);
}

#[test]
fn a_driver_reload_also_clears_energy_and_does_so_on_all_gpus() {
    let fake = Installed::new("hgx-h100");
    let nvml = fake.open();
    fake.faults(&format!(
        "frozen_boottime_ms = 15_000\n{COUNTED}\n[[reset]]\nat_boottime_ms = 12_000\nwhat = \"driver\""
    ));
    let energy = |index: u32| nvml.device_by_index(index).unwrap().total_energy_consumption().unwrap();
    assert_eq!([energy(0), energy(1)], [70 * 3000, 70 * 3000]);
    assert_eq!(counters(&nvml, &nvml.device_by_index(0).unwrap())[..6], [0, 9, 2, 0, 1, 0]);
}
