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
use nvml_wrapper::gpm::GpmSample;
use nvml_wrapper::{Device, Nvml};

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
            let Some(gpus) = fault.gpus.as_ref().filter(|gpus| !gpus.is_empty()) else { continue };
            let middle = gpus[gpus.len() / 2];
            let heard = answers(&fake.machine.faults[fault.name]);
            // One that is broken in this way already (MIG on, say) would show nothing new.
            let shows =
                |slot: &&u32| own_reading_changes(&fake, &fault.switched_on(**slot), **slot, &healthy);
            let slot = if heard { gpus.iter().find(shows).copied() } else { Some(middle) };
            let Some(slot) = slot else {
                panic!("{} {}: nothing of any GPU changes", fake.machine.name, fault.name);
            };
            let others = some_others(&fake.machine, slot);
            fake.no_faults();
            let after = read_in_time(&fake, &fault.switched_on(slot), &others);
            let changed = differing(&healthy, &after, |key| !is_about(key, &others));
            assert!(changed.is_empty(), "{} {}: {changed:?}", fake.machine.name, fault.name);
        }
    }
}

/// The neighbours of a GPU and one that is far: all of sixteen would take minutes over all machines and faults.
fn some_others(machine: &Machine, slot: u32) -> Vec<u32> {
    let others = slots_but(machine, Some(slot));
    let at = others.iter().filter(|other| **other < slot).count();
    let mut some: Vec<u32> =
        [at, at + others.len() - 1, at + others.len() / 2].map(|place| others[place % others.len()]).to_vec();
    some.sort_unstable();
    some.dedup();
    some
}

/// Whether a reading is of these GPUs only.
fn is_about(key: &str, slots: &[u32]) -> bool {
    let of = key.split(':').next().unwrap();
    of.split(' ').skip(1).all(|slot| slots.contains(&slot.parse().unwrap()))
}

/// The fault is there at all: something of its GPU, or of the pairs that it makes, reads otherwise.
fn own_reading_changes(fake: &Installed, on: &str, slot: u32, healthy: &Readings) -> bool {
    let nvml = fake.open();
    fake.faults(&script(on, 5_001_000));
    let gpu = fake.machine.gpu(slot).unwrap();
    let sick = readings::of_gpu(&nvml, &gpu.uuid, &gpu.pci.to_string());
    let own = sick.iter().any(|(what, read)| healthy.get(&format!("GPU {slot}: {what}")) != Some(read));
    own || pairs_change(&nvml, fake, slot, healthy)
}

fn pairs_change(nvml: &Nvml, fake: &Installed, slot: u32, healthy: &Readings) -> bool {
    let Ok(device) = nvml.device_by_uuid(fake.machine.gpu(slot).unwrap().uuid.as_str()) else { return false };
    slots_but(&fake.machine, Some(slot)).into_iter().any(|other| {
        let peer = nvml.device_by_uuid(fake.machine.gpu(other).unwrap().uuid.as_str()).unwrap();
        // SAFETY: handles only go back into the library that they came from.
        let handle = |device: &Device<'_>| unsafe { device.handle() }.cast();
        let pair = readings::of_pair(nvml, handle(&device), handle(&peer));
        pair.iter().any(|(what, read)| healthy.get(&format!("GPUs {slot} {other}: {what}")) != Some(read))
    })
}
