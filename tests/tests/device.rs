//! The check on a real GPU, tests/device/check.sh, on simulated ones.
#![allow(clippy::tests_outside_test_module)]

use gpuward_core::model::Snapshot;
use gpuward_tests::cluster::built;
use gpuward_tests::readers::diff::differences;
use gpuward_tests::sim::{Bench, scenario};
use nvidia_ml::scenario::{Gpu, Machine};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// What a run of the check came to.
struct Checked {
    folder: TempDir,
    code: Option<i32>,
    printed: String,
    said: String,
}

impl Checked {
    /// Runs the check with `options`; `%` in them stands for the run's own folder.
    fn run(prepare: impl FnOnce(&Path), options: &[&str]) -> Checked {
        let folder = tempfile::tempdir().unwrap();
        prepare(folder.path());
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("device/check.sh");
        let programs = built("gpuward").unwrap().parent().unwrap().to_owned();
        let own = folder.path().display().to_string();
        let mut check = Command::new(script);
        check.args(options.iter().map(|option| option.replace('%', &own)));
        check.arg("--out").arg(folder.path().join("out")).arg(programs);
        let output = check.output().unwrap();
        Checked {
            code: output.status.code(),
            printed: String::from_utf8_lossy(&output.stdout).into_owned(),
            said: String::from_utf8_lossy(&output.stderr).into_owned(),
            folder,
        }
    }

    /// Step, what and verdict of each row.
    fn rows(&self) -> Vec<[&str; 4]> {
        let table = self.printed.lines().filter(|line| line.starts_with('|')).skip(2);
        table
            .map(|line| {
                let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
                <[&str; 4]>::try_from(cells).unwrap_or_else(|cells| panic!("{cells:?}"))
            })
            .collect()
    }

    fn row(&self, step: &str, what: &str) -> [&str; 4] {
        let found = self.rows().into_iter().find(|row| row[0] == step && row[1] == what);
        found.unwrap_or_else(|| panic!("no row {step} {what}\n{}\n{}", self.printed, self.said))
    }

    fn differing(&self) -> Vec<&str> {
        self.rows().into_iter().filter(|row| row[3] == "**differs**").map(|row| row[1]).collect()
    }
}

/// A program in the run's own folder.
fn program(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_healthy_machine_agrees_in_every_row_and_every_call_is_timed() {
    let checked = Checked::run(|_| (), &["--fake", "hgx-h100"]);
    assert_eq!(checked.code, Some(0), "{}\n{}", checked.printed, checked.said);
    assert_eq!(checked.differing(), Vec::<&str>::new());
    assert!(checked.printed.contains("SIMULATED"), "nobody takes it for a measurement");
    assert_eq!(checked.row("values", "GPUs that open")[2], "8");
    for value in ["temp_c", "counters.energy_mj", "power.draw_mw", "nvlinks[].up", "peers[].read", "fabric"] {
        assert_eq!(checked.row("values", &format!("`{value}`"))[3], "agrees", "{value}");
    }
    assert!(checked.rows().iter().filter(|row| row[0] == "values").all(|row| row[3] == "agrees"));
    assert!(checked.row("job", "exit codes and records")[2].starts_with("11 jobs"));
    assert!(checked.row("job", "prolog")[2].contains("on 8 GPUs"));
    assert_eq!(checked.row("fake", "the machine made of the snapshot")[3], "agrees");
    assert!(checked.row("trials", "throttle times as fields 269 to 271")[2].contains("invalid argument"));
    assert!(checked.row("costs", "`nvmlDeviceGetNvLinkState` (link 0)")[2].contains("prolog x19"));
    assert!(checked.row("costs", "`nvmlInit_v2`")[2].starts_with("first "));
    assert_eq!(fs::read_to_string(checked.folder.path().join("out/report.md")).unwrap(), checked.printed);
}

#[test]
fn one_wrong_value_is_named_and_nothing_else_differs() {
    let stand_in = "#!/bin/sh\npython3 \"$@\" | sed 's/\"temp_c\": {\"value\": /&1/g'\n";
    let wrong = |folder: &Path| program(folder, "python", stand_in);
    let checked = Checked::run(wrong, &["--fake", "mig-a100", "--python", "%/python"]);
    assert_eq!(checked.code, Some(1), "{}\n{}", checked.printed, checked.said);
    assert_eq!(checked.differing(), ["`temp_c`"]);
    assert_eq!(checked.row("values", "`temp_c`")[2], "4 of 4 differ, 0 agree");
    let named = |line: &str| line.starts_with("* values: `temp_c` of 0000:01:00.0: gpuward ");
    assert!(checked.printed.lines().any(named), "{}", checked.printed);
    assert_eq!(checked.row("values", "`mig.devices[].uuid`")[3], "agrees");
    assert!(checked.said.contains("second opinion, round 3"), "what may have moved is read again");
}

#[test]
fn without_python_nvidia_smi_is_asked_and_what_it_does_not_say_is_not_compared() {
    let smi = "#!/bin/sh\ncat \"${0%/*}/log.xml\"\n";
    let machine = Machine::load(&scenario("l4-vm")).unwrap();
    let gpu = |gpu: &Gpu| {
        let (pci, uuid) = (gpu.pci.to_string().to_uppercase(), &gpu.uuid);
        format!(
            "<gpu id=\"0000{pci}\">\n<uuid>{uuid}</uuid>\n<serial>N/A</serial>\n\
             <mig_mode>\n<current_mig>Enabled</current_mig>\n</mig_mode>\n</gpu>\n"
        )
    };
    let gpus: String = machine.gpus.iter().map(gpu).collect();
    let prepare = |folder: &Path| {
        program(folder, "smi", smi);
        fs::write(folder.join("log.xml"), format!("<nvidia_smi_log>{gpus}</nvidia_smi_log>")).unwrap();
    };
    let checked = Checked::run(prepare, &["--fake", "l4-vm", "--python", "/bin/false", "--smi", "%/smi"]);
    assert_eq!(checked.code, Some(1), "{}\n{}", checked.printed, checked.said);
    assert_eq!(checked.differing(), ["`mig`"]);
    assert_eq!(checked.row("values", "`uuid`")[3], "agrees");
    assert_eq!(checked.row("values", "`temp_c`")[3], "not comparable");
}

#[test]
fn where_no_gpu_answers_the_check_says_so_and_leaves_no_report() {
    let checked = Checked::run(|_| (), &["--library", "%/no-such-library.so"]);
    assert_eq!(checked.code, Some(2), "{}\n{}", checked.printed, checked.said);
    assert!(checked.printed.starts_with("No NVIDIA GPU answers here"), "{}", checked.printed);
    assert!(checked.printed.contains("no-such-library.so"), "{}", checked.printed);
    assert!(!checked.folder.path().join("out/report.md").exists());
}

/// All functions but those that the check times, and those whose cost is another's.
fn not_timed(library: &Path) -> Vec<&'static str> {
    let output = Command::new(built("device_check").unwrap()).arg("calls").arg(library).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let timed: BTreeSet<&str> = lines.iter().filter_map(|line| line["timing"]["function"].as_str()).collect();
    assert!(timed.len() > 60, "{timed:?}");
    // The end of the process, a text for people, opening a MIG device, and the older form of a timed call.
    let beside = [
        "nvmlShutdown",
        "nvmlErrorString",
        "nvmlDeviceGetMigDeviceHandleByIndex",
        "nvmlDeviceGetGpuFabricInfo",
    ];
    let all = include_str!("../fake-nvml/tests/symbols.txt").split_whitespace();
    all.filter(|name| name.starts_with("nvml") && !timed.contains(name) && !beside.contains(name)).collect()
}

#[test]
fn gpuward_calls_no_function_that_the_check_does_not_time() {
    for name in ["mig-a100", "gb200-tray"] {
        let bench = Bench::new(name, "observe", "");
        let library: PathBuf = bench.node.dir.join("lib/libnvidia-ml.so.1");
        let others = not_timed(&library);
        assert!(others.len() > 100, "{others:?}");
        let still = "frozen_boottime_ms = 86400000\n";
        let snapshot = |script: &str| -> Snapshot {
            bench.node.fault(&format!("{still}{script}"));
            let mut snapshot = bench.snapshot().snapshot;
            snapshot.gpus.iter_mut().for_each(|gpu| gpu.reading.took_us = 0);
            Snapshot {
                boottime_ns: 0,
                probe: gpuward_core::model::snapshot::ProbeOutcome::NotStarted,
                ..snapshot
            }
        };
        let healthy = snapshot("");
        let refuse = |name: &&str| format!("[[return]]\nfunction = \"{name}\"\ncode = 999\n");
        let refused = snapshot(&others.iter().map(refuse).collect::<String>());
        assert_eq!(differences(("healthy", &healthy), ("refused", &refused)), Vec::<String>::new(), "{name}");
    }
}
