//! Many clients of one fake at once, while a writer switches faults.

// Integration tests have no test module.
#![allow(clippy::tests_outside_test_module)]

mod common;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use common::Installed;
use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::error::NvmlError;

/// What the writer goes round in. GPU 0 alone is concerned.
const FAULTS: [&str; 4] = [
    "on = [{ fault = \"gpu-lost\", gpu = 0 }]",
    "set = [{ gpu = 0, field = \"temp.gpu_c\", value = 77 }]",
    "latency_us = 10",
    "",
];

#[test]
fn sixty_four_threads_read_whole_answers_while_faults_change() {
    let fake = Installed::new("hgx-h100");
    let nvml = fake.open();
    let over = AtomicBool::new(false);
    let read = |index: u32, last: &mut u64| {
        let device = nvml.device_by_index(index)?;
        let energy = device.total_energy_consumption()?;
        assert!(energy >= *last, "GPU {index}: energy fell from {last} to {energy}");
        *last = energy;
        device.temperature(TemperatureSensor::Gpu)
    };
    thread::scope(|scope| {
        for thread in 0..64 {
            let (over, read) = (&over, &read);
            scope.spawn(move || {
                let mut last = 0;
                while !over.load(Relaxed) {
                    match (read(thread % 8, &mut last), thread % 8) {
                        (Ok(31), _) | (Ok(77) | Err(NvmlError::GpuLost), 0) => {}
                        (other, index) => panic!("GPU {index}: {other:?}"),
                    }
                }
            });
        }
        for round in 0..200 {
            fake.faults(FAULTS[round % FAULTS.len()]);
        }
        over.store(true, Relaxed);
    });
}

#[test]
fn a_change_is_obeyed_by_the_very_next_call_of_every_thread() {
    let fake = Installed::new("l40s-pcie");
    let nvml = fake.open();
    let device = nvml.device_by_index(0).unwrap();
    for round in 0..200 {
        let celsius = 40 + round % 50;
        fake.faults(&format!("set = [{{ gpu = 0, field = \"temp.gpu_c\", value = {celsius} }}]"));
        let all: Vec<u32> = thread::scope(|scope| {
            let ask = || device.temperature(TemperatureSensor::Gpu).unwrap();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(all, [celsius; 4], "round {round}");
    }
}

#[test]
fn eight_processes_of_eight_threads_read_whole_answers_while_faults_change() {
    let fake = Installed::new("hgx-h100");
    let stop = fake.folder().join("stop");
    let start = || {
        let mut command = Command::new(common::example("hammer"));
        command.arg(fake.library()).arg(&stop).stdout(Stdio::piped()).spawn().unwrap()
    };
    let processes: Vec<Child> = (0..8).map(|_| start()).collect();
    let mut outputs: Vec<_> = processes
        .into_iter()
        .map(|mut process| {
            let mut output = BufReader::new(process.stdout.take().unwrap());
            let mut ready = String::new();
            output.read_line(&mut ready).unwrap();
            assert_eq!(ready, "ready\n");
            (process, output)
        })
        .collect();
    for round in 0..100 {
        fake.faults(FAULTS[round % FAULTS.len()]);
    }
    std::fs::write(&stop, "").unwrap();
    for (process, output) in &mut outputs {
        let mut said = String::new();
        output.read_to_string(&mut said).unwrap();
        assert!(process.wait().unwrap().success(), "{said}");
        assert!(!said.contains("bad"), "{said}");
        assert_eq!(said.matches(" rounds\n").count(), 8, "{said}");
    }
}

#[test]
fn what_two_processes_set_at_once_both_holds() {
    let fake = Installed::new("l40s-pcie");
    // A second copy beside the first is another library to the loader, with a state of its own: as good as a process.
    let copy = fake.folder().join("copy.so");
    std::fs::copy(fake.library(), &copy).unwrap();
    thread::scope(|scope| {
        for (slot, library) in [(0, fake.library()), (1, copy)] {
            scope.spawn(move || {
                let nvml = Nvml::builder().lib_path(library.as_os_str()).init().unwrap();
                let mut device = nvml.device_by_index(slot).unwrap();
                for limit in (100_000..300_000).step_by(5000) {
                    device.set_power_management_limit(limit).unwrap();
                    assert_eq!(device.power_management_limit().unwrap(), limit, "GPU {slot}");
                }
            });
        }
    });
}

#[test]
fn several_threads_write_scripts_at_once_and_each_call_sees_a_whole_one() {
    let fake = Installed::new("l40s-pcie");
    let nvml = fake.open();
    let device = nvml.device_by_index(0).unwrap();
    thread::scope(|scope| {
        for celsius in 50..58 {
            let fake = &fake;
            scope.spawn(move || {
                for _ in 0..20 {
                    fake.faults(&format!("set = [{{ gpu = 0, field = \"temp.gpu_c\", value = {celsius} }}]"));
                }
            });
        }
        for _ in 0..100 {
            let read = device.temperature(TemperatureSensor::Gpu).unwrap();
            assert!(read == 30 || (50..58).contains(&read), "{read}");
        }
    });
    let left = std::fs::read_dir(fake.folder()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!left.into_iter().any(|name| name.to_string_lossy().contains("tmp")));
}
