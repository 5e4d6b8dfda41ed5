//! Many clients of one fake at once, while a writer switches faults.

// Integration tests have no test module.
#![allow(clippy::tests_outside_test_module)]

mod common;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use common::Installed;
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
