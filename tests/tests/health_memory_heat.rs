//! Memory, heat, clocks, power and modes on simulated machines: each fault gives its finding for its GPU, and nothing is
//! said of the others.
#![allow(clippy::tests_outside_test_module)]

use gpuward_core::health::{Case, Finding, History, Limits, SeenGpu, Severity, Subject, evaluate};
use gpuward_tests::sim::Bench;
use serde_json::Value;
use std::collections::BTreeMap;

/// The machine of most tests: eight GPUs with everything.
const MACHINE: &str = "hgx-h100";

/// The GPU that is sick.
const SICK: u32 = 3;

fn on(fault: &str) -> String {
    format!("on = [{{ fault = \"{fault}\", gpu = {SICK} }}]\n")
}

/// Makes the earlier looks `seconds` older than they are: a test does not wait for minutes.
fn age(bench: &Bench, seconds: u64) {
    let path = bench.node.dir.join("run/boot.json");
    let mut boot: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let seen = boot["seen"].as_array_mut().unwrap();
    assert_eq!(seen.len(), bench.node.machine.gpus.len());
    for look in seen {
        let at = look["boottime_ns"].as_u64().unwrap();
        look["boottime_ns"] = at.saturating_sub(seconds * 1_000_000_000).into();
    }
    std::fs::write(&path, boot.to_string()).unwrap();
}

/// The earlier looks that the node remembers.
fn seen(bench: &Bench) -> Vec<SeenGpu> {
    let text = std::fs::read_to_string(bench.node.dir.join("run/boot.json")).unwrap_or_default();
    let boot: Value = serde_json::from_str(&text).unwrap_or_default();
    serde_json::from_value(boot["seen"].clone()).unwrap_or_default()
}

/// What a full look says, by what the node remembers of earlier ones.
fn full_look(bench: &Bench) -> Vec<Finding> {
    let history = History { seen: seen(bench), ..History::default() };
    let file = bench.snapshot();
    evaluate(&Case {
        snapshot: &file.snapshot,
        expected: &file.expected,
        history: &history,
        limits: &Limits::default(),
        gpu_map_certain: true,
    })
}

/// Code and severity of findings, all of which must be about the sick GPU.
fn of_the_sick(bench: &Bench, findings: &[Finding]) -> Vec<(String, Severity)> {
    for finding in findings {
        let Subject::Gpu { pci, uuid, .. } = &finding.subject else { panic!("{finding:?}") };
        assert_eq!(pci.map(|pci| pci.to_string()), Some(bench.node.pci(SICK)), "{finding:?}");
        assert_eq!(uuid.as_ref().map(ToString::to_string), Some(bench.node.uuid(SICK)), "{finding:?}");
    }
    findings.iter().map(|finding| (finding.code.clone(), finding.severity)).collect()
}

/// What `gpuward check --json` on the node says, and its exit code.
fn check(bench: &Bench) -> (Vec<Finding>, Option<i32>) {
    let output = bench.admin("check").arg("--json").output().unwrap();
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    (serde_json::from_value(said["findings"].clone()).unwrap(), output.status.code())
}

fn warn(code: &str) -> (String, Severity) {
    (code.to_owned(), Severity::Warn)
}

fn fail(code: &str) -> (String, Severity) {
    (code.to_owned(), Severity::Fail)
}

#[test]
fn each_fault_that_one_full_look_shows_gives_its_finding_for_its_gpu() {
    let bench = Bench::new(MACHINE, "observe", "");
    assert_eq!(full_look(&bench), []);
    let faults = [
        ("ecc-uncorrectable", vec![fail("ECC_UNCORR")]),
        ("sram-threshold", vec![fail("SRAM_LIMIT"), fail("ECC_UNCORR")]),
        ("remap-failed", vec![fail("REMAP_FAIL")]),
        ("remap-pending", vec![warn("REMAP_PEND")]),
        ("remap-exhausted", vec![warn("REMAP_ROOM")]),
        ("repair-pending", vec![warn("MEM_REPAIR")]),
        ("ecc-off", vec![warn("ECC_MODE")]),
        ("memory-hot", vec![warn("TEMP_MEM")]),
        ("thermal-slowdown", vec![warn("TEMP_GPU")]),
        ("left-clocks", vec![warn("LEFT_CLOCKS")]),
        ("power-capped", vec![warn("POWER_LIMIT")]),
        ("power-unreadable", vec![warn("POWER_READ")]),
        ("persistence-off", vec![warn("PERSIST_OFF")]),
        ("compute-exclusive", vec![warn("COMPUTE_MODE")]),
    ];
    for (fault, mut expected) in faults {
        // Each for itself: what an earlier look has seen is not wanted here.
        std::fs::remove_file(bench.node.dir.join("run/boot.json")).unwrap();
        bench.node.fault(&on(fault));
        let mut found = of_the_sick(&bench, &full_look(&bench));
        for list in [&mut found, &mut expected] {
            list.sort_by(|a, b| a.0.cmp(&b.0));
        }
        assert_eq!(found, expected, "{fault}");
    }
}

#[test]
fn each_fault_that_two_full_looks_show_gives_its_finding_for_its_gpu() {
    let bench = Bench::new(MACHINE, "observe", "");
    // Whether the fault was there at the first look already: what is counted must grow between the two.
    let faults = [
        ("ecc-corrected", false, vec![warn("ECC_CORR")]),
        ("hot-idle", true, vec![warn("TEMP_GPU")]),
        ("power-brake", true, vec![fail("THROTTLE")]),
        ("power-brake", false, vec![warn("THROT_TIME")]),
        ("thermal-slowdown", true, vec![fail("THROTTLE"), warn("TEMP_GPU")]),
        ("power-over-limit", false, vec![warn("POWER_READ")]),
    ];
    for (fault, from_the_first, mut expected) in faults {
        bench.node.heal();
        if from_the_first {
            bench.node.fault(&on(fault));
        }
        let _ = std::fs::remove_file(bench.node.dir.join("run/boot.json"));
        full_look(&bench);
        age(&bench, 100);
        bench.node.fault(&on(fault));
        let mut found = of_the_sick(&bench, &full_look(&bench));
        for list in [&mut found, &mut expected] {
            list.sort_by(|a, b| a.0.cmp(&b.0));
        }
        assert_eq!(found, expected, "{fault}");
    }
}

#[test]
fn a_gpu_that_slows_down_without_any_error_is_found_by_its_siblings() {
    for machine in ["dgx-a100", MACHINE] {
        let bench = Bench::new(machine, "drain", "");
        let busy = "set = [{ field = \"busy\", value = true }]\n";
        bench.node.fault(busy);
        full_look(&bench);
        age(&bench, 100);
        assert_eq!(full_look(&bench), [], "{machine}: all work alike");
        bench.node.fault(&format!("{}{busy}", on("slow-without-error")));
        age(&bench, 100);
        assert_eq!(full_look(&bench), [], "{machine}: one look is no proof");
        age(&bench, 100);
        let findings = full_look(&bench);
        assert_eq!(of_the_sick(&bench, &findings), [warn("CLOCK_LOW")], "{machine}");
        let why = &findings[0].why;
        assert!(why.contains("inlet air") && why.contains("nvidia-smi -rgc"), "{why}");
    }
}

#[test]
fn clocks_that_are_locked_on_all_gpus_are_found_under_load() {
    let bench = Bench::new(MACHINE, "observe", "");
    let all: Vec<String> =
        (0..8).map(|slot| format!("{{ fault = \"clocks-locked\", gpu = {slot} }}")).collect();
    let script = format!("on = [{}]\nset = [{{ field = \"busy\", value = true }}]\n", all.join(", "));
    bench.node.fault(&script);
    assert_eq!(full_look(&bench), []);
    age(&bench, 100);
    let found: BTreeMap<String, usize> =
        full_look(&bench).into_iter().fold(BTreeMap::new(), |mut all, one| {
            *all.entry(one.code).or_default() += 1;
            all
        });
    assert_eq!(found, BTreeMap::from([("LEFT_CLOCKS".to_owned(), 8)]));
}

#[test]
fn retired_pages_are_judged_on_boards_that_have_them() {
    let bench = Bench::new("dgx-1v", "observe", "");
    bench.node.fault(&on("pages-retired"));
    let found = of_the_sick(&bench, &full_look(&bench));
    assert_eq!(found, [fail("PAGES_RETIRE"), warn("PAGES_RETIRE")]);
}

#[test]
fn what_a_prolog_reads_is_judged_before_a_job_and_only_the_boards_own_flags_refuse_it() {
    let faults = [
        ("sram-threshold", "SRAM_LIMIT", 1),
        ("remap-failed", "REMAP_FAIL", 1),
        ("remap-pending", "REMAP_PEND", 0),
        ("power-capped", "POWER_LIMIT", 0),
        ("persistence-off", "PERSIST_OFF", 0),
        ("compute-exclusive", "COMPUTE_MODE", 0),
    ];
    for (fault, code, exit) in faults {
        let bench = Bench::new(MACHINE, "drain", "");
        bench.node.fault(&on(fault));
        let run = bench.prolog(7, &bench.all_gpus());
        let log = bench.node.log();
        assert_eq!(run.code, Some(exit), "{fault}: {log}");
        assert!(
            log.contains(&format!("{code} GPU{} {}", bench.node.minor(SICK), bench.node.pci(SICK))),
            "{fault}: {log}"
        );
        let drained = bench.scontrol_calls().iter().any(|call| call.contains("DRAIN"));
        assert_eq!(drained, exit == 1, "{fault}: {:?}", bench.scontrol_calls());
    }
}

#[test]
fn an_idle_gpu_under_the_power_brake_fails_the_check_and_costs_no_job() {
    let bench = Bench::new(MACHINE, "drain", "");
    assert_eq!(check(&bench), (Vec::new(), Some(0)));
    bench.node.fault(&on("power-brake"));
    age(&bench, 100);
    let (findings, code) = check(&bench);
    assert_eq!((of_the_sick(&bench, &findings), code), (vec![warn("THROT_TIME")], Some(0)));
    age(&bench, 10);
    let (findings, code) = check(&bench);
    assert_eq!((of_the_sick(&bench, &findings), code), (vec![fail("THROTTLE")], Some(1)));
    let run = bench.prolog(7, &bench.all_gpus());
    assert_eq!(run.code, Some(0), "{}", bench.node.log());
    assert_eq!(bench.scontrol_calls(), Vec::<String>::new());
    let [state] = &bench.node.states()[..] else { panic!("{}", bench.node.log()) };
    assert_eq!(state.comments.len(), 1, "the user is told: {:?}", state.comments);
    assert!(
        state.comments[0].starts_with(&format!("THROTTLE GPU{} ", bench.node.minor(SICK))),
        "{:?}",
        state.comments
    );
}

#[test]
fn time_under_throttle_is_told_over_the_job_and_stands_in_its_record() {
    let bench = Bench::new(MACHINE, "drain", "");
    let gpus = bench.all_gpus();
    assert_eq!(bench.prolog(7, &gpus).code, Some(0), "{}", bench.node.log());
    let folder = bench.node.dir.join("run/jobs");
    let path = std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    let mut state: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let started = state["start_boottime_ns"].as_u64().unwrap();
    state["start_boottime_ns"] = started.saturating_sub(100_000_000_000).into();
    std::fs::write(&path, state.to_string()).unwrap();
    bench.node.fault(&on("power-brake"));
    assert_eq!(bench.epilog(7, &gpus).code, Some(0), "{}", bench.node.log());
    let log = bench.node.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("THROT_TIME")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    assert!(lines[0].contains(&bench.node.pci(SICK)), "{}", lines[0]);
    assert!(
        lines[0].contains("power brake for 5") || lines[0].contains("power brake for 60 %"),
        "{}",
        lines[0]
    );
    let [record] = &bench.node.records()[..] else { panic!("{log}") };
    for gpu in &record.gpus {
        let braked = gpu.uuid.as_deref() == Some(&bench.node.uuid(SICK));
        let expected = if braked { 60_000_000_000 } else { 0 };
        assert_eq!(gpu.throttle_power_brake_ns.value, Some(expected), "{gpu:?}");
        assert_eq!(gpu.throttle_hw_thermal_ns.value, Some(0), "{gpu:?}");
    }
}

#[test]
fn healthy_machines_have_no_finding_in_two_full_looks_idle_or_at_work() {
    // Ampere, Hopper, Blackwell with Grace, Volta, GeForce, MIG, a virtual machine, an old driver.
    let machines = [
        "dgx-a100",
        MACHINE,
        "gb200-tray",
        "dgx-1v",
        "rtx4090-8x-intel",
        "mig-a100",
        "h100-vm",
        "l40s-pcie",
        "old-driver",
    ];
    for machine in machines {
        let bench = Bench::new(machine, "observe", "");
        for script in ["", "set = [{ field = \"busy\", value = true }]\n"] {
            bench.node.heal();
            bench.node.fault(script);
            let _ = std::fs::remove_file(bench.node.dir.join("run/boot.json"));
            assert_eq!(full_look(&bench), [], "{machine} {script}");
            age(&bench, 600);
            assert_eq!(full_look(&bench), [], "{machine} {script}: the second look");
        }
    }
}
