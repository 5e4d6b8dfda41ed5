//! Processes: who runs, what each does, and what the accounting ring keeps of those that have ended.

// Integration tests have no test module.
#![allow(clippy::tests_outside_test_module)]

mod common;

use common::readings::call;
use common::{Installed, scenario};
use nvidia_ml::scenario::{AccountingEntry, Machine, Process, ProcessKind};
use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;

/// The first GPU of an L40S machine with these processes, accounting on, and a ring of four.
fn machine(processes: &[(u32, ProcessKind)]) -> Machine {
    let mut machine = Machine::load(&scenario("l40s-pcie")).unwrap();
    let process = |&(pid, kind): &(u32, ProcessKind)| Process {
        pid,
        kind,
        name: format!("p{pid}"),
        memory_mib: 100,
        ..Process::default()
    };
    machine.gpus[0].processes = processes.iter().map(process).collect();
    machine.gpus[0].accounting.enabled = Some(true);
    machine.gpus[0].accounting.buffer_size = 4;
    machine
}

/// Busy times with a process, by pid and milliseconds since boot; 0 for no end.
fn ran(now_ms: u64, runs: &[(u32, u64, u64)]) -> String {
    let mut text = format!("frozen_boottime_ms = {now_ms}\nunix_us = 1_700_000_000_000_000\n");
    for (pid, from, until) in runs {
        let end = if *until == 0 { String::new() } else { format!("until_boottime_ms = {until}\n") };
        text += &format!("[[busy]]\ngpu = 0\nfrom_boottime_ms = {from}\n{end}");
        text += &format!("process = {{ pid = {pid}, name = \"train\", memory_mib = 512 }}\n");
        text += "util = { gpu_pct = 80, memory_pct = 30 }\n";
    }
    text
}

fn pids(device: &Device<'_>) -> Vec<u32> {
    device.accounting_pids().unwrap()
}

#[test]
fn a_process_enters_the_ring_and_stays_there_when_it_ends() {
    let fake = Installed::with(machine(&[]));
    let nvml = fake.open();
    let device = nvml.device_by_index(0).unwrap();
    let runs = [(4711, 10_000, 15_000), (4712, 20_000, 0)];
    fake.faults(&ran(9_999, &runs));
    assert!(pids(&device).is_empty());
    fake.faults(&ran(12_000, &runs));
    assert_eq!(pids(&device), [4711]);
    let running = device.accounting_stats_for(4711).unwrap();
    assert!(running.is_running);
    assert_eq!((running.time, running.start_time), (0, 1_700_000_000_000_000 - 2_000_000));
    fake.faults(&ran(25_000, &runs));
    assert_eq!(pids(&device), [4711, 4712]);
    let ended = device.accounting_stats_for(4711).unwrap();
    assert!(!ended.is_running);
    assert_eq!((ended.time, ended.start_time), (5000, 1_700_000_000_000_000 - 15_000_000));
    assert_eq!((ended.gpu_utilization, ended.memory_utilization), (Some(80), Some(30)));
    assert_eq!(ended.max_memory_usage, Some(512 << 20));
    assert!(matches!(device.accounting_stats_for(1), Err(NvmlError::NotFound)));
}

#[test]
fn version_2_of_the_statistics_can_be_summed_over_processes() {
    let fake = Installed::with(machine(&[]));
    let nvml = fake.open();
    fake.faults(&ran(25_000, &[(4711, 10_000, 15_000)]));
    // SAFETY: the handle only goes back into the library that it came from.
    let handle = unsafe { nvml.device_by_index(0).unwrap().handle() }.cast();
    // The process id stands in the first of the struct's 64 bytes.
    let mut words = [0_u64; 8];
    words[0] = 4711;
    let code =
        call(&nvml, "nvmlDeviceGetAccountingStats_v2", handle, &[words.as_mut_ptr().expose_provenance()]);
    assert_eq!(code, 0);
    let percents = 80 | 30 << 32;
    let (samples, hundredths) = (5, 100);
    let start = 1_700_000_000_000_000 - 15_000_000;
    let sums = [samples * 80 * hundredths, samples * 30 * hundredths];
    assert_eq!(words, [4711, percents, 512 << 20, samples, sums[0], sums[1], 5000, start]);
    words[0] = 1;
    let code =
        call(&nvml, "nvmlDeviceGetAccountingStats_v2", handle, &[words.as_mut_ptr().expose_provenance()]);
    assert_eq!(code, 6);
}

#[test]
fn the_oldest_falls_out_of_a_full_ring() {
    let mut full = machine(&[]);
    full.gpus[0].accounting.entries =
        [1, 2].map(|pid| AccountingEntry { pid, ..AccountingEntry::default() }).to_vec();
    let fake = Installed::with(full);
    let nvml = fake.open();
    let device = nvml.device_by_index(0).unwrap();
    assert_eq!(device.accounting_buffer_size().unwrap(), 4);
    // In the order of their start, whatever the order of the script.
    fake.faults(&ran(90_000, &[(12, 20_000, 30_000), (11, 10_000, 15_000), (13, 40_000, 0)]));
    assert_eq!(pids(&device), [2, 11, 12, 13]);
    // Of two with one pid the later one counts.
    fake.faults(&ran(90_000, &[(11, 10_000, 15_000), (11, 20_000, 21_000)]));
    assert_eq!(device.accounting_stats_for(11).unwrap().time, 1000);
}

#[test]
fn clearing_forgets_the_ended_and_switching_on_forgets_what_ran_before() {
    let fake = Installed::with(machine(&[]));
    let nvml = fake.open();
    let mut device = nvml.device_by_index(0).unwrap();
    let runs = [(11, 10_000, 15_000), (12, 20_000, 0)];
    fake.faults(&ran(30_000, &runs));
    assert_eq!(pids(&device), [11, 12]);
    device.clear_accounting_pids().unwrap();
    assert_eq!(pids(&device), [12]);
    device.set_accounting(false).unwrap();
    assert!(matches!(device.accounting_pids(), Err(NvmlError::NotSupported)));
    assert!(!device.is_accounting_enabled().unwrap());
    device.set_accounting(true).unwrap();
    assert!(pids(&device).is_empty(), "it started before the mode was on");
    fake.faults(&ran(40_000, &[runs[0], runs[1], (13, 35_000, 0)]));
    assert_eq!(pids(&device), [13]);
}

#[test]
fn each_kind_of_process_is_in_its_list_and_every_form_of_the_list_agrees() {
    use ProcessKind::{Compute, Graphics, Mps};
    let fake = Installed::with(machine(&[(11, Compute), (12, Graphics), (13, Mps), (14, Compute)]));
    let nvml = fake.open();
    // SAFETY: the handle only goes back into the library that it came from.
    let handle = unsafe { nvml.device_by_index(0).unwrap().handle() }.cast();
    for (mode, (kind, expected)) in
        [("Compute", vec![11, 14]), ("Graphics", vec![12]), ("MPSCompute", vec![13])].into_iter().enumerate()
    {
        for (version, words) in [("", 2), ("_v2", 3), ("_v3", 3)] {
            let function = format!("nvmlDeviceGet{kind}RunningProcesses{version}");
            let mut room = 0_u32;
            let mut list = [0_u64; 12];
            let count = (&raw mut room).expose_provenance();
            assert_eq!(call(&nvml, &function, handle, &[count, 0]), 7, "{function}");
            assert_eq!(room as usize, expected.len(), "{function}");
            let out = list.as_mut_ptr().expose_provenance();
            assert_eq!(call(&nvml, &function, handle, &[count, out]), 0, "{function}");
            let pids: Vec<u64> = list.chunks(words).map(|process| process[0]).take(expected.len()).collect();
            assert_eq!(pids, expected, "{function}");
            assert_eq!(list[1], 100 << 20, "{function}");
            assert!(list[words * expected.len()..].iter().all(|&word| word == 0), "{function}");
        }
        let mut details = [0_u64; 8];
        // Version and mode, room for two, where.
        let mut request =
            [0x0100_0018 | (mode as u64) << 32, 2, details.as_mut_ptr().expose_provenance() as u64];
        let place = request.as_mut_ptr().expose_provenance();
        assert_eq!(call(&nvml, "nvmlDeviceGetRunningProcessDetailList", handle, &[place]), 0);
        assert_eq!(request[1], expected.len() as u64);
        let pids: Vec<u64> = details.chunks(4).map(|process| process[0]).take(expected.len()).collect();
        assert_eq!(pids, expected);
        request[1] = 0;
        assert_eq!(call(&nvml, "nvmlDeviceGetRunningProcessDetailList", handle, &[place]), 7);
        assert_eq!(request[1], expected.len() as u64);
    }
}

#[test]
fn utilisation_is_shared_by_the_processes_and_told_once_a_period() {
    let fake = Installed::with(machine(&[(11, ProcessKind::Compute)]));
    let nvml = fake.open();
    let device = nvml.device_by_index(0).unwrap();
    // An idle process has no sample.
    fake.faults(&ran(5_000, &[]));
    assert!(matches!(device.process_utilization_stats(0), Err(NvmlError::NotFound)));
    fake.faults(&ran(25_000, &[(12, 20_000, 0)]));
    let samples = device.process_utilization_stats(0).unwrap();
    let read: Vec<_> = samples.iter().map(|sample| (sample.pid, sample.sm_util, sample.mem_util)).collect();
    assert_eq!(read, [(11, 40, 15), (12, 40, 15)]);
    let seen = samples[0].timestamp;
    assert!(matches!(device.process_utilization_stats(seen), Err(NvmlError::NotFound)), "nothing newer");
    assert!(device.process_utilization_stats(seen - 1).is_ok());
}

#[test]
fn too_little_room_for_samples_tells_how_much_is_needed_and_writes_nothing() {
    let fake = Installed::with(machine(&[(11, ProcessKind::Compute)]));
    let nvml = fake.open();
    // SAFETY: the handle only goes back into the library that it came from.
    let handle = unsafe { nvml.device_by_index(0).unwrap().handle() }.cast();
    fake.faults(&ran(25_000, &[(12, 20_000, 0)]));
    let mut list = [0_u64; 12];
    let out = list.as_mut_ptr().expose_provenance();
    for (place, room, code) in [(0, 0, 7), (0, 9, 7), (out, 1, 7), (out, 2, 0)] {
        let mut count = room;
        let asked = [place, (&raw mut count).expose_provenance(), 0];
        assert_eq!(call(&nvml, "nvmlDeviceGetProcessUtilization", handle, &asked), code, "room {room}");
        assert_eq!(count, 2);
        assert_eq!(list.iter().any(|&word| word != 0), code == 0);
    }
}
