//! NVIDIA's own Python binding walks every machine of tests/scenarios and compares every value that it can read: a check
//! from outside that the fake has the ABI it claims, with values that Python works out of the scenario by itself.
//!
//! The binding (nvidia-ml-py) is looked for in the folder named by GPUWARD_PYNVML, else in `.cache/pynvml` of the
//! workspace, where `make` puts it.

// Integration tests have no test module.
#![allow(clippy::tests_outside_test_module)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Installed, scenario};
use nvidia_ml::scenario::{
    AccountingEntry, Fabric, Gpu, LinkErrors, Machine, Mig, MigDevice, NvLink, Process, ProcessKind, Remap,
    Retired, ThrottleNs,
};
use serde::Deserialize;

fn binding() -> PathBuf {
    let usual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/pynvml");
    let folder = std::env::var_os("GPUWARD_PYNVML").map_or(usual, PathBuf::from);
    assert!(
        folder.join("pynvml.py").exists(),
        "nvidia-ml-py is not in {}: run `make tools`, or name its folder in GPUWARD_PYNVML",
        folder.display(),
    );
    folder
}

/// What a walk found.
#[derive(Debug, Deserialize)]
struct Walk {
    /// Everything compared.
    rows: BTreeSet<String>,
    /// Those that no fault script reaches.
    constant: BTreeSet<String>,
    /// Functions of the library that were called.
    called: BTreeSet<String>,
    /// What the library says otherwise than the scenario, by row.
    differ: BTreeMap<String, String>,
}

fn walk(fake: &Installed) -> Walk {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python_binding/walk.py");
    let mut python = Command::new("python3");
    python.arg("-B").arg(script).arg(fake.folder().join("scenario.json")).args(unsimulated());
    python.env("PYTHONPATH", binding()).env("LD_LIBRARY_PATH", fake.folder());
    let output = python.output().unwrap_or_else(|error| panic!("python3 does not start: {error}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The functions that the library exports and does not simulate.
fn unsimulated() -> Vec<&'static str> {
    let source = include_str!("../src/abi/unsimulated.rs");
    let list = source.split("unsimulated! {").nth(1).unwrap();
    list.split_whitespace().filter(|word| word.starts_with("nvml")).collect()
}

/// Every scenario file there is.
fn scenarios() -> Vec<String> {
    let folder = scenario("any");
    let entries = std::fs::read_dir(folder.parent().unwrap()).unwrap().flatten();
    let files =
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "toml"));
    let mut names: Vec<String> =
        files.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    assert!(names.len() >= 4, "{names:?}");
    names
}

fn load(name: &str) -> Machine {
    Machine::load(&scenario(name)).unwrap()
}

/// The same machine after hard use: every value stated, as few as possible alike, and a newer driver.
fn worn(mut machine: Machine) -> Machine {
    machine.driver.version = "580.95.05".into();
    let mut next = 1000_u32;
    let mut number = || {
        next += 7;
        next
    };
    for gpu in &mut machine.gpus {
        wear(gpu, &mut number);
    }
    machine
}

fn wear(gpu: &mut Gpu, number: &mut impl FnMut() -> u32) {
    let slot = gpu.slot();
    gpu.busy = slot % 2 == 1;
    gpu.gpm = slot % 4 != 3;
    gpu.inforom_corrupt = slot == 1;
    gpu.persistence = slot % 2 == 0;
    gpu.compute_mode = 3;
    gpu.gsp = Some(slot % 2 == 0);
    gpu.recovery_action = Some(1 + slot % 4);
    gpu.memory_numa_node = Some(0);
    gpu.cpus = Some("1".parse().unwrap());
    gpu.memory.used_mib = 77;
    gpu.power.limit_mw = Some(gpu.power.default_limit_mw - 1000 - slot);
    gpu.power.enforced_limit_mw = Some(gpu.power.default_limit_mw - 2000 - slot);
    gpu.power.energy_base_mj = Some(u64::from(number()) << 20);
    gpu.clocks.app_mhz = Some([number(), number()]);
    gpu.clocks.event_reasons = Some(u64::from(number()));
    gpu.clocks.throttle_ns = throttled(number);
    gpu.ecc.pending = Some(false);
    gpu.ecc.repair_pending = Some([true, slot % 2 == 0]);
    gpu.ecc.sram_threshold_exceeded = true;
    gpu.ecc.sram_parity = [1, 2];
    for counts in [&mut gpu.ecc.dram, &mut gpu.ecc.sram] {
        counts.volatile_corr = number().into();
        counts.volatile_uncorr = number().into();
        counts.aggregate_corr = number().into();
        counts.aggregate_uncorr = number().into();
    }
    let histogram = [number(), number(), number(), number(), number()];
    gpu.remap =
        Some(Remap { corr: number(), uncorr: number(), pending: true, failure: slot % 2 == 1, histogram });
    gpu.retired = Some(Retired { single_bit: vec![4096, 8192], double_bit: vec![12288], pending: true });
    let pcie = &mut gpu.pcie;
    (pcie.replay, pcie.replay_rollover, pcie.l0_to_recovery) = (number(), number(), number());
    pcie.errors = std::array::from_fn(|_| number());
    pcie.tx_bytes[0] = u64::from(number()) << 20;
    wear_links(gpu, number);
    gpu.fabric = Some(Fabric {
        state: 3,
        status: number(),
        clique: number(),
        cluster_uuid: "0e2d1b3c-4a5f-4c6d-8e7f-102132435465".into(),
        health_mask: number(),
        health_summary: 2,
    });
    let accounted = |pid, number: &mut dyn FnMut() -> u32| AccountingEntry {
        pid,
        gpu_pct: 80,
        memory_pct: 40,
        max_memory_mib: number().into(),
        time_ms: number().into(),
        start_unix_us: number().into(),
        running: pid % 2 == 0,
    };
    // MIG forces it off.
    gpu.accounting.enabled = Some(slot != 2);
    gpu.accounting.entries = vec![accounted(number(), number), accounted(number(), number)];
    let kinds = [ProcessKind::Compute, ProcessKind::Graphics, ProcessKind::Mps];
    gpu.processes = kinds.map(|kind| process(number(), kind)).into();
    if slot == 2 {
        cut_up(gpu, number);
    }
}

fn throttled(number: &mut impl FnMut() -> u32) -> ThrottleNs {
    let mut ns = || u64::from(number()) << 24;
    ThrottleNs {
        power: ns(),
        thermal: ns(),
        sync_boost: ns(),
        board_limit: ns(),
        low_utilization: ns(),
        reliability: ns(),
        sw_thermal: ns(),
        hw_thermal: ns(),
        hw_power_brake: ns(),
    }
}

fn wear_links(gpu: &mut Gpu, number: &mut impl FnMut() -> u32) {
    if gpu.nvlink.links.is_empty() {
        return;
    }
    gpu.nvlink.down = if gpu.slot() == 0 { "1,3" } else { "2" }.parse().unwrap();
    gpu.nvlink.errors = vec![LinkErrors::default(); 4];
    for (errors, link) in gpu.nvlink.errors.iter_mut().zip([0, 2, 7, 11]) {
        errors.link = link;
        (errors.replay, errors.recovery) = (number().into(), number().into());
        errors.crc_flit = number().into();
        (errors.crc_data, errors.ecc_data) = (number().into(), number().into());
    }
}

fn process(pid: u32, kind: ProcessKind) -> Process {
    Process {
        pid,
        name: format!("work {pid}"),
        memory_mib: 100 + u64::from(pid % 50),
        kind,
        only_while_alive: false,
    }
}

/// MIG on any board, since nothing else of a board depends on it.
fn cut_up(gpu: &mut Gpu, number: &mut impl FnMut() -> u32) {
    gpu.processes.clear();
    gpu.mig.max_devices = 7;
    gpu.mig.enabled = true;
    gpu.mig.pending = Some(false);
    let mut device = |at: u32, profile: &str, slices| MigDevice {
        uuid: format!("MIG-{}{at}", &gpu.uuid[4..39]),
        profile: profile.to_owned(),
        gpu_instance: number(),
        compute_instance: at,
        slices,
        multiprocessors: number(),
        memory_mib: u64::from(number()),
        processes: vec![process(number(), ProcessKind::Compute)],
    };
    gpu.mig.devices = vec![device(0, "3g.40gb", 3), device(1, "1g.10gb", 1)];
}

/// The same machine with whatever a board may lack: not supported, everywhere.
fn bare(mut machine: Machine) -> Machine {
    for gpu in &mut machine.gpus {
        (gpu.serial, gpu.board_part_number, gpu.inforom, gpu.gsp) = (None, None, None, None);
        (gpu.recovery_action, gpu.remap, gpu.fabric, gpu.power.energy_base_mj) = (None, None, None, None);
        (gpu.temp.memory_c, gpu.temp.memory_busy_c, gpu.temp.tlimit_c) = (None, None, None);
        (gpu.temp.shutdown_c, gpu.temp.slowdown_c) = (None, None);
        (gpu.temp.memory_max_c, gpu.temp.gpu_max_c) = (None, None);
        (gpu.clocks.app_default_mhz, gpu.clocks.supported_graphics_mhz) = (None, [0; 3]);
        gpu.clocks.supported_memory_mhz.clear();
        gpu.ecc.enabled = None;
        gpu.accounting.enabled = None;
        gpu.mig = Mig::default();
        gpu.nvlink = NvLink::default();
        gpu.gpm = false;
    }
    machine
}

/// Walks every scenario, changed in this way.
fn assert_as_described(change: impl Fn(Machine) -> Machine) {
    let mut told = String::new();
    for name in scenarios() {
        let Walk { rows, differ, .. } = walk(&Installed::with(change(load(&name))));
        if !differ.is_empty() {
            writeln!(told, "{name}: {} of {} values differ", differ.len(), rows.len()).unwrap();
        }
        for (row, difference) in differ.iter().take(10) {
            writeln!(told, "  {row}: {difference}").unwrap();
        }
    }
    assert!(told.is_empty(), "\n{told}");
}

#[test]
fn every_value_of_every_machine_is_as_described() {
    assert_as_described(|machine| machine);
}

#[test]
fn every_value_of_a_worn_machine_is_as_described() {
    assert_as_described(worn);
}

#[test]
fn what_a_board_lacks_is_not_supported() {
    assert_as_described(bare);
}

/// A machine with everything on it, small enough to be walked often.
fn full() -> Machine {
    worn(load("nvswitch-2cpu"))
}

/// Makes every function answer "unknown" that a walk calls, once the walk has the handles that it needs.
fn break_all(fake: &Installed, called: &BTreeSet<String>, wanted: impl Fn(&str) -> bool) {
    let gpus = fake.machine.gpus.len();
    let migs: usize = fake.machine.gpus.iter().map(|gpu| gpu.mig.devices.len()).sum();
    let mut script = String::new();
    for function in called.iter().filter(|name| wanted(name)) {
        let after = match function.as_str() {
            "nvmlInitWithFlags" | "nvmlShutdown" => continue,
            "nvmlDeviceGetCount_v2" => 1,
            "nvmlDeviceGetHandleByIndex_v2" => gpus,
            "nvmlDeviceGetMigDeviceHandleByIndex" => migs,
            _ => 0,
        };
        writeln!(script, "[[return]]\nfunction = \"{function}\"\ncode = 999\nafter = {after}").unwrap();
    }
    fake.faults(&script);
}

#[test]
fn no_row_passes_where_its_function_answers_something_else() {
    let fake = Installed::with(full());
    let healthy = walk(&fake);
    assert!(healthy.differ.is_empty(), "{:?}", healthy.differ);
    // Samples are taken first and compared by another function, so they have a round of their own.
    let is_sample = |name: &str| name.ends_with("SampleGet") || name.ends_with("SampleAlloc");
    break_all(&fake, &healthy.called, |name| !is_sample(name));
    let broken = walk(&fake);
    let judged = |row: &&String| !broken.constant.contains(*row) && !is_sample(row);
    let passed: Vec<_> =
        broken.rows.iter().filter(judged).filter(|row| !broken.differ.contains_key(*row)).collect();
    assert!(passed.is_empty(), "{passed:?}");
    assert!(broken.rows.iter().filter(judged).count() > 4000);
    break_all(&fake, &healthy.called, is_sample);
    let broken = walk(&fake);
    assert!(broken.rows.iter().filter(|row| is_sample(row)).all(|row| broken.differ.contains_key(row)));
}

#[test]
fn a_wrong_value_is_caught_where_it_is_wrong_and_nowhere_else() {
    let fake = Installed::new("nvswitch-2cpu");
    let cases: [(&str, &str, &[&str]); 12] = [
        ("temp.gpu_c", "32", &["MarginTemperature", "Temperature", "TemperatureV"]),
        (
            "ecc.dram.volatile_uncorr",
            "3",
            &["DetailedEccErrors 1 0", "MemoryErrorCounter 1 0 2", "TotalEccErrors 1 0", "field 4"],
        ),
        ("ecc.sram_threshold_exceeded", "true", &["SramEccErrorStatus"]),
        ("remap.histogram", "[2559, 1, 0, 0, 0]", &["RowRemapperHistogram"]),
        ("remap.pending", "true", &["RemappedRows", "field 144"]),
        ("fabric.health_summary", "2", &["GpuFabricInfoV 3"]),
        ("pcie.replay", "1", &["PcieReplayCounter", "field 94"]),
        ("power.energy_base_mj", "900000000", &["TotalEnergyConsumption", "field 191", "field 83"]),
        ("recovery_action", "2", &["field 230"]),
        ("serial", "\"1652923077009\"", &["HandleBySerial", "Serial"]),
        ("clocks.throttle_ns.hw_thermal", "5", &["field 252"]),
        ("memory.used_mib", "5", &["MemoryInfo", "MemoryInfo_v2"]),
    ];
    for (field, value, rows) in cases {
        fake.faults(&format!("[[set]]\ngpu = 1\nfield = \"{field}\"\nvalue = {value}\n"));
        let found: Vec<String> = walk(&fake).differ.into_keys().collect();
        let wanted: Vec<String> = rows.iter().map(|row| format!("GPU1 {row}")).collect();
        assert_eq!(found, wanted, "{field}");
    }
    fake.faults("[[set]]\ngpu = 1\nfield = \"nvlink.down\"\nvalue = \"7\"\n");
    let mut found = walk(&fake).differ;
    // What it carried before (138 to 141) is nobody's word.
    found.retain(|row, _| !row.starts_with("GPU1 field 13") || row == "GPU1 field 133");
    found.retain(|row, _| !row.starts_with("GPU1 field 14"));
    // Link 7 ends at a switch to which other links go too, so the GPUs stay joined.
    let wanted = ["GPU1 NvLinkState 7", "GPU1 field 133", "GPU1 field 164 of 7", "GPU1 field 165 of 7"];
    assert_eq!(found.keys().collect::<Vec<_>>(), wanted);
}

/// Functions with an effect or a wait, which no scenario states a value for.
const NO_VALUE: [&str; 6] = [
    "nvmlDeviceSet",
    "nvmlDeviceReset",
    "nvmlDeviceClear",
    "nvmlDeviceRegisterEvents",
    "nvmlDeviceGetSupportedEventTypes",
    "nvmlEventSet",
];

#[test]
fn every_function_that_the_binding_knows_and_the_library_simulates_is_walked() {
    let called = walk(&Installed::with(full())).called;
    let source = std::fs::read_to_string(binding().join("pynvml.py")).unwrap();
    let unsimulated = unsimulated();
    let simulated = include_str!("symbols.txt").lines().filter(|name| !unsimulated.contains(name));
    let known = simulated.filter(|name| source.contains(&format!("_nvmlGetFunctionPointer(\"{name}\")")));
    let valued = known.filter(|name| !NO_VALUE.iter().any(|prefix| name.starts_with(prefix)));
    let missing: Vec<&str> = valued.filter(|name| !called.contains(*name)).collect();
    assert_eq!(missing, Vec::<&str>::new());
}
