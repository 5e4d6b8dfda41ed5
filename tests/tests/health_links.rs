//! PCIe, NVLink and the fabric on simulated machines: each fault is told of its own GPU, and of no other.
#![allow(clippy::tests_outside_test_module)]

use gpuward_core::health::{Case, Expected, Finding, History, KnownGpu, Limits, Severity, Subject, evaluate};
use gpuward_core::model::{Reading, SnapshotFile};
use gpuward_tests::sim::Bench;
use serde_json::Value;
use std::process::Command;

/// Uptime is the host's: it may have booted a minute ago.
const NO_WAIT: &str = "[health.limits]\nfabric_wait_s = 0\n";

fn bench(scenario: &str) -> Bench {
    Bench::new(scenario, "drain", NO_WAIT)
}

/// Code, severity and slot in the scenario; none for the node.
type Short = (String, Severity, Option<usize>);

fn of(code: &str, severity: Severity, slot: impl Into<Option<usize>>) -> Short {
    (code.to_owned(), severity, slot.into())
}

fn short(bench: &Bench, findings: &[Finding]) -> Vec<Short> {
    let slot = |finding: &Finding| match &finding.subject {
        Subject::Node => None,
        Subject::Gpu { pci, .. } => {
            let pci = pci.unwrap().to_string();
            Some(bench.node.machine.gpus.iter().position(|gpu| gpu.pci.to_string() == pci).unwrap())
        }
    };
    findings.iter().map(|finding| (finding.code.clone(), finding.severity, slot(finding))).collect()
}

fn findings(command: &mut Command) -> Vec<Finding> {
    let output = command.arg("--json").output().unwrap();
    let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {}", String::from_utf8_lossy(&output.stderr));
    });
    serde_json::from_value(said["findings"].clone()).unwrap()
}

/// What `gpuward check` finds.
fn check(bench: &Bench) -> Vec<Short> {
    short(bench, &findings(&mut bench.admin("check")))
}

/// What `gpuward check --snapshot` finds in everything that can be read, where the node should be so.
fn judged_file(bench: &Bench, expected: Expected) -> Vec<Short> {
    let file = SnapshotFile { expected, ..bench.snapshot() };
    bench.write("file.json", &serde_json::to_string(&file).unwrap());
    let mut check = bench.admin("check");
    short(bench, &findings(check.arg("--snapshot").arg(bench.path("file.json"))))
}

/// What the rules find in everything that can be read, after earlier looks.
fn judged(bench: &Bench, history: &History) -> Vec<Short> {
    let file = bench.snapshot();
    let limits = Limits { fabric_wait_s: 0, ..Limits::default() };
    let case = Case {
        snapshot: &file.snapshot,
        expected: &file.expected,
        history,
        limits: &limits,
        gpu_map_certain: true,
    };
    short(bench, &evaluate(&case))
}

/// The history that a look at the machine as it is leaves behind.
fn looked_at(bench: &Bench) -> History {
    History { seen: History::default().seen_after(&bench.snapshot().snapshot), ..History::default() }
}

/// What the healthy node was known to be.
fn learned(bench: &Bench) -> Expected {
    let file = bench.snapshot();
    let known = |gpu: &gpuward_core::model::snapshot::ProbedGpu| {
        let detail = gpu.reading.detail.as_deref().unwrap();
        let up = detail.nvlinks.iter().filter(|link| link.up == Reading::Value(true)).count();
        KnownGpu {
            pcie_width: detail.pcie.width.value().copied(),
            pcie_generation: detail.pcie.max_generation.value().copied(),
            nvlinks: u32::try_from(up).ok(),
            bar1_mib: detail.memory.bar1_mib.value().copied(),
            ..KnownGpu::only(gpu.pci().unwrap(), gpu.uuid().unwrap().clone())
        }
    };
    Expected { known: file.snapshot.gpus.iter().map(known).collect(), ..file.expected }
}

fn fault(bench: &Bench, name: &str, slot: u32) {
    bench.node.fault(&format!("on = [{{ fault = \"{name}\", gpu = {slot} }}]\n"));
}

/// Makes what earlier looks left behind so much older.
fn let_time_pass(bench: &Bench, seconds: u64) {
    let path = "nodes/n1/run/boot.json";
    let text = std::fs::read_to_string(bench.path(path)).unwrap();
    let mut boot: Value = serde_json::from_str(&text).unwrap();
    let older = |number: &mut Value| {
        if let Some(ns) = number.as_u64().filter(|&ns| ns > 0) {
            *number = (ns - seconds * 1_000_000_000).into();
        }
    };
    for seen in boot["seen"].as_array_mut().unwrap() {
        older(&mut seen["boottime_ns"]);
        if let Some(since) = seen["fabric_waits_since_ns"].get_mut("value") {
            older(since);
        }
    }
    bench.write(path, &boot.to_string());
}

#[test]
fn half_the_lanes_are_a_fault_where_there_were_all_and_a_warning_where_nobody_knows() {
    let bench = bench("hgx-h100");
    let known = learned(&bench);
    assert_eq!(judged_file(&bench, known.clone()), []);
    fault(&bench, "pcie-half-width", 3);
    assert_eq!(judged_file(&bench, known), [of("PCIE_WIDTH", Severity::Fail, 3)]);
    assert_eq!(judged_file(&bench, Expected::default()), [of("PCIE_WIDTH", Severity::Warn, 3)]);
}

#[test]
fn half_the_lanes_are_seen_in_sysfs_too_and_a_slot_of_eight_lanes_is_none() {
    let mut bench = bench("l40s-pcie");
    bench.change_machine(|machine| machine.gpus[1].pcie.width = 8);
    assert_eq!(check(&bench), [of("PCIE_WIDTH", Severity::Warn, 1)]);
    bench.change_machine(|machine| machine.gpus[1].pcie.max_width = 8);
    assert_eq!(check(&bench), []);
}

#[test]
fn a_slow_link_is_told_of_a_gpu_at_work_and_not_of_an_idle_one() {
    let bench = bench("l40s-pcie");
    let known = learned(&bench);
    assert_eq!(judged_file(&bench, known.clone()), [], "idle GPUs are at generation 1");
    fault(&bench, "pcie-slow-link", 2);
    assert_eq!(judged_file(&bench, known), [of("PCIE_GEN", Severity::Warn, 2)]);
}

#[test]
fn replays_between_two_checks_are_told() {
    let bench = bench("hgx-h100");
    assert_eq!(check(&bench), []);
    fault(&bench, "pcie-replays", 5);
    assert_eq!(check(&bench), [], "too soon after the look before");
    let_time_pass(&bench, 120);
    assert_eq!(check(&bench), [of("PCIE_REPLAY", Severity::Warn, 5)]);
    assert_eq!(check(&bench), [], "none since");
}

#[test]
fn pcie_errors_that_the_kernel_counts_are_told_of_their_gpu() {
    let mut bench = bench("hgx-h100");
    let history = looked_at(&bench);
    bench.change_machine(|machine| machine.gpus[4].pcie.aer = [0, 0, 1]);
    assert_eq!(judged(&bench, &history), [of("PCIE_AER", Severity::Fail, 4)]);
    bench.change_machine(|machine| machine.gpus[4].pcie.aer = [1001, 7, 0]);
    assert_eq!(judged(&bench, &history), [of("PCIE_AER", Severity::Warn, 4)]);
    assert_eq!(judged(&bench, &History::default()), [], "a first look");
}

#[test]
fn a_small_bar1_is_told_where_it_was_large() {
    let bench = bench("l40s-pcie");
    let known = learned(&bench);
    fault(&bench, "pcie-bar1-small", 0);
    assert_eq!(judged_file(&bench, known), [of("BAR1", Severity::Warn, 0)]);
    assert_eq!(judged_file(&bench, Expected::default()), []);
}

#[test]
fn links_that_are_down_fail_a_gpu_that_had_them() {
    for scenario in ["hgx-h100", "dgx-a100", "hgx-b200", "h100nvl-bridge-pairs", "dgx-1v", "h100-vm"] {
        let bench = bench(scenario);
        let known = learned(&bench);
        fault(&bench, "nvlink-down", 2);
        assert_eq!(judged_file(&bench, known), [of("NVLINK_DOWN", Severity::Fail, 2)], "{scenario}");
    }
}

#[test]
fn links_that_are_down_warn_on_the_first_day_by_product() {
    for (scenario, told) in [("hgx-h100", true), ("dgx-a100", true), ("h100nvl-bridge-pairs", false)] {
        let bench = bench(scenario);
        fault(&bench, "nvlink-down", 2);
        let expected = if told { vec![of("NVLINK_DOWN", Severity::Warn, 2)] } else { vec![] };
        assert_eq!(check(&bench), expected, "{scenario}");
    }
}

#[test]
fn links_to_a_lost_gpu_are_told_by_that_gpu_alone() {
    let bench = bench("h100nvl-bridge-pairs");
    let known = learned(&bench);
    // GPUs 2 and 3 share a bridge.
    let links = &bench.node.machine.gpus[2].nvlink.links;
    assert_eq!(links[0].to, bench.node.machine.gpus[3].pci);
    bench.node.fault(
        "on = [{ fault = \"gpu-lost\", gpu = 3 }]\nset = [{ gpu = 2, field = \"nvlink.down\", value = \"0-17\" }]\n",
    );
    assert_eq!(judged_file(&bench, known), [of("GPU_LOST", Severity::Fail, 3)]);
}

#[test]
fn links_in_mig_mode_are_not_held_against_the_gpu() {
    let bench = bench("mig-a100");
    let known = learned(&bench);
    let mig: Vec<u32> =
        bench.node.machine.gpus.iter().filter(|gpu| gpu.mig.enabled).map(|gpu| gpu.slot()).collect();
    assert!(!mig.is_empty());
    fault(&bench, "nvlink-down", mig[0]);
    assert_eq!(judged_file(&bench, known), []);
}

#[test]
fn a_gpu_off_the_fabric_is_told_before_nccl_falls_back_to_pcie() {
    let bench = bench("hgx-h100");
    let known = learned(&bench);
    fault(&bench, "nvlink-off-fabric", 6);
    let first = [of("FABRIC", Severity::Warn, 6), of("NVLINK_DOWN", Severity::Warn, 6)];
    assert_eq!(check(&bench), first);
    let_time_pass(&bench, 61);
    let later = [of("FABRIC", Severity::Fail, 6), of("NVLINK_DOWN", Severity::Warn, 6)];
    assert_eq!(check(&bench), later);
    let both = [of("NVLINK_DOWN", Severity::Fail, 6), of("FABRIC", Severity::Warn, 6)];
    assert_eq!(judged_file(&bench, known), both);
}

#[test]
fn a_gpu_that_waits_for_the_fabric_fails_at_the_second_look() {
    let bench = bench("hgx-h100");
    fault(&bench, "fabric-in-progress", 1);
    assert_eq!(check(&bench), [of("FABRIC", Severity::Warn, 1)]);
    let_time_pass(&bench, 61);
    assert_eq!(check(&bench), [of("FABRIC", Severity::Fail, 1)]);
}

#[test]
fn a_prolog_refuses_a_gpu_whose_fabric_is_degraded_and_no_other() {
    let bench = bench("hgx-h100");
    fault(&bench, "fabric-degraded", 3);
    assert_eq!(check(&bench), [of("FABRIC", Severity::Fail, 3)]);
    // Slurm counts by device file.
    let [sick, fine, other] = [3, 0, 1].map(|slot| bench.node.minor(slot));
    assert_eq!(bench.prolog(7, &format!("{fine},{other}")).code, Some(0), "{}", bench.node.log());
    assert_ne!(bench.prolog(8, &sick.to_string()).code, Some(0), "{}", bench.node.log());
    let calls = bench.scontrol_calls().join("\n");
    let told = format!("gpuward:FABRIC GPU{sick} {} ", bench.node.pci(3));
    assert!(calls.contains(&told) && calls.contains("degraded bandwidth"), "{calls}");
}

#[test]
fn a_fabric_manager_that_does_not_run_is_one_finding_of_the_node() {
    let mut bench = bench("hgx-h100");
    let known = learned(&bench);
    bench.node.fault("on = [\"fabric-manager-off\"]\n");
    let each = [of("NVLINK_DOWN", Severity::Fail, None), of("FABRIC", Severity::Warn, None)];
    assert_eq!(judged_file(&bench, known.clone()), each, "seen from the GPUs alone");
    bench.change_machine(|machine| machine.driver.fabric_manager = Some(false));
    assert_eq!(judged_file(&bench, known.clone()), [of("FABRIC_MGR", Severity::Fail, None)]);
    bench.node.heal();
    assert_eq!(judged_file(&bench, known), [of("FABRIC_MGR", Severity::Warn, None)], "until the next reset");
}

#[test]
fn errors_of_links_between_two_looks_are_told() {
    let bench = bench("hgx-h100");
    let history = looked_at(&bench);
    fault(&bench, "nvlink-errors", 4);
    assert_eq!(judged(&bench, &history), [of("NVLINK_ERR", Severity::Warn, 4)], "perhaps link training");
    assert_eq!(judged(&bench, &History::default()), [], "a first look");
    let history = looked_at(&bench);
    bench.node.fault(
        "set = [{ gpu = 4, field = \"nvlink.errors\", value = [{ link = 2, replay = 4711, recovery = 13, crc_flit = 90210 }] }]\n",
    );
    assert_eq!(judged(&bench, &history), [of("NVLINK_ERR", Severity::Fail, 4)]);
}

#[test]
fn bit_errors_and_failed_recoveries_of_nvlink_5_are_told() {
    let bench = bench("hgx-b200");
    let history = looked_at(&bench);
    fault(&bench, "nvlink-recovery-failed", 1);
    assert_eq!(judged(&bench, &history), [of("NVLINK_BER", Severity::Fail, 1)]);
    assert_eq!(judged(&bench, &History::default()), [], "a first look");
    fault(&bench, "nvlink-symbol-errors", 7);
    assert_eq!(judged_file(&bench, Expected::default()), [of("NVLINK_BER", Severity::Warn, 7)]);
}

#[test]
fn a_gpu_whose_memory_the_others_cannot_reach_is_told_once() {
    let bench = bench("hgx-h100");
    fault(&bench, "p2p-refused", 5);
    assert_eq!(judged_file(&bench, Expected::default()), [of("P2P", Severity::Warn, 5)]);
}

#[test]
fn no_healthy_machine_has_a_finding_in_everything_that_can_be_read() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let machines = files.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
    for path in machines {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let bench = bench(name);
        let known = learned(&bench);
        assert_eq!(judged_file(&bench, Expected::default()), [], "{name}");
        assert_eq!(judged_file(&bench, known), [], "{name}");
        assert_eq!(judged(&bench, &looked_at(&bench)), [], "{name}");
    }
}
