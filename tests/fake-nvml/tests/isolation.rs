//! A fault of one GPU changes nothing that is read of any other.

// Integration tests have no test module.
#![allow(clippy::tests_outside_test_module)]

mod common;

use std::ffi::c_void;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use common::readings::{self, Readings};
use common::{Installed, all_scenarios};
use nvidia_ml::faults::Faults;
use nvidia_ml::scenario::{Gpu, Machine};
use nvml_wrapper::Device;
use nvml_wrapper::gpm::GpmSample;

/// Values of their own in as many fields as possible on all GPUs, and a time that stands still.
const EVERYWHERE: &str = r#"
    set = [
        { field = "accounting.enabled", value = true },
        { field = "ecc.dram.volatile_uncorr", value = 7 },
        { field = "clocks.throttle_ns", value = { power = 11, hw_thermal = 12, hw_power_brake = 13 } },
        { field = "pcie.replay", value = 3 },
        { field = "nvlink.errors", value = [{ link = 1, replay = 5, crc_flit = 6, symbol = 7 }] },
    ]
    [[busy]]
    from_boottime_ms = 1000
    process = { pid = 4711, name = "train", memory_mib = 1024 }
"#;

fn script(fault: &str, frozen_ms: u64) -> String {
    format!("frozen_boottime_ms = {frozen_ms}\n{fault}\n{EVERYWHERE}")
}

/// Everything that is read of the GPUs at these slots, and of each pair of them.
fn read(fake: &Installed, fault: &str, slots: &[u32]) -> Readings {
    let nvml = fake.open();
    let gpu = |slot: u32| fake.machine.gpu(slot).unwrap();
    // By UUID: indices move when a GPU vanishes.
    let devices: Vec<Device<'_>> = slots
        .iter()
        .map(|&slot| {
            nvml.device_by_uuid(gpu(slot).uuid.as_str()).unwrap_or_else(|error| panic!("{fault}: {error}"))
        })
        .collect();
    fake.faults(&script(fault, 5_000_000));
    let first: Vec<Option<GpmSample<'_>>> = devices.iter().map(|device| device.gpm_sample().ok()).collect();
    fake.faults(&script(fault, 5_001_000));
    let mut all = Readings::new();
    let mut add = |of: String, readings: Readings| {
        all.extend(readings.into_iter().map(|(what, read)| (format!("{of}: {what}"), read)));
    };
    for ((device, first), &slot) in devices.iter().zip(&first).zip(slots) {
        let (uuid, pci) = (&gpu(slot).uuid, gpu(slot).pci.to_string());
        add(format!("GPU {slot}"), readings::of_gpu(&nvml, uuid, &pci));
        if let Some(first) = first {
            add(format!("GPU {slot}"), readings::performance(&nvml, first, &device.gpm_sample().unwrap()));
        }
    }
    // SAFETY: handles only go back into the library that they came from.
    let handles = devices.iter().map(|device| unsafe { device.handle() }.cast());
    let handles: Vec<(u32, *mut c_void)> = slots.iter().copied().zip(handles).collect();
    for (left, first) in &handles {
        for (right, second) in handles.iter().filter(|(right, _)| right != left) {
            add(format!("GPUs {left} {right}"), readings::of_pair(&nvml, *first, *second));
        }
    }
    all
}

/// Reads with a limit that only a failure reaches: a fault that hangs must not hang what it does not concern.
fn read_in_time(fake: &Installed, fault: &str, slots: &[u32]) -> Readings {
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || sender.send(read(fake, fault, slots)));
        match receiver.recv_timeout(Duration::from_secs(60)) {
            Ok(readings) => readings,
            // Not a panic: the scope would wait for the thread that hangs.
            Err(error) => {
                eprintln!("{fault}: reading the other GPUs: {error}");
                std::process::exit(101);
            }
        }
    })
}

/// What differs, by name, leaving out what the fault concerns.
fn differing(before: &Readings, after: &Readings, concerns: impl Fn(&str) -> bool) -> Vec<String> {
    let gone = before.keys().filter(|key| !after.contains_key(*key) && !concerns(key));
    let other = after.iter().filter(|(key, read)| before.get(*key) != Some(*read)).map(|(key, _)| key);
    gone.chain(other).cloned().collect()
}

fn slots_but(machine: &Machine, but: Option<u32>) -> Vec<u32> {
    machine.gpus.iter().map(Gpu::slot).filter(|slot| Some(*slot) != but).collect()
}

/// A call on the GPU comes back in its own time.
fn answers(fault: &Faults) -> bool {
    fault.hang.is_empty() && fault.latency.is_empty()
}

#[test]
fn a_fault_of_one_gpu_changes_no_reading_of_any_other() {
    for path in all_scenarios() {
        let fake = Installed::with(Machine::load(&path).unwrap());
        let healthy = read_in_time(&fake, "", &slots_but(&fake.machine, None));
        assert!(healthy.values().filter(|(code, _)| *code == 0).count() > 200 * fake.machine.gpus.len());
        for fault in fake.machine.named_faults() {
            let Some(&slot) = fault.gpus.as_ref().and_then(|gpus| gpus.get(gpus.len() / 2)) else { continue };
            let others = slots_but(&fake.machine, Some(slot));
            let concerns = |key: &str| {
                key.strip_prefix("GPU ").is_some_and(|rest| rest.starts_with(&format!("{slot}:")))
                    || key.strip_prefix("GPUs ").is_some_and(|rest| {
                        rest.split([' ', ':']).take(2).any(|part| part == slot.to_string())
                    })
            };
            fake.no_faults();
            let after = read_in_time(&fake, &fault.switched_on(slot), &others);
            let changed = differing(&healthy, &after, concerns);
            assert!(changed.is_empty(), "{} {}: {changed:?}", fake.machine.name, fault.name);
            if answers(&fake.machine.faults[fault.name]) {
                own_reading_changes(&fake, fault.name, &fault.switched_on(slot), slot, &healthy);
            }
        }
    }
}

/// The fault is there at all: something of its GPU reads otherwise.
fn own_reading_changes(fake: &Installed, name: &str, on: &str, slot: u32, healthy: &Readings) {
    let nvml = fake.open();
    fake.faults(&script(on, 5_001_000));
    let gpu = fake.machine.gpu(slot).unwrap();
    let sick = readings::of_gpu(&nvml, &gpu.uuid, &gpu.pci.to_string());
    let changed = sick.iter().any(|(what, read)| healthy.get(&format!("GPU {slot}: {what}")) != Some(read));
    assert!(changed, "{} {name}: nothing of GPU {slot} has changed", fake.machine.name);
}
