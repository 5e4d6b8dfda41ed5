//! Faults by name: the shared ones of `tests/scenarios/faults` and those that a scenario brings along.

// Integration tests have no test module.
#![allow(clippy::tests_outside_test_module)]

mod common;

use common::{Installed, all_scenarios, scenario};
use nvidia_ml::scenario::Machine;
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::error::NvmlError;

/// What a script comes to on the HGX machine, as the library complains of it.
fn complaint(script: &str) -> String {
    let fake = Installed::new("hgx-h100");
    fake.faults(script);
    let output =
        std::process::Command::new(common::example("read_first_gpu")).arg(fake.library()).output().unwrap();
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).replace(&fake.folder().display().to_string(), "")
}

fn names(machine: &Machine) -> Vec<&str> {
    machine.named_faults().into_iter().map(|fault| fault.name).collect()
}

#[test]
fn a_fault_goes_on_for_one_gpu_and_off_again() {
    let fake = Installed::new("hgx-h100");
    let nvml = fake.open();
    let temperature =
        |index: u32| nvml.device_by_index(index).and_then(|gpu| gpu.temperature(TemperatureSensor::Gpu));
    fake.faults("on = [{ fault = \"gpu-lost\", gpu = 3 }]");
    assert!(matches!(temperature(3), Err(NvmlError::GpuLost)));
    assert_eq!(temperature(2).unwrap(), 31);
    fake.faults(&format!(
        "on = [{{ fault = \"thermal-slowdown\", gpu = \"{}\" }}]",
        fake.machine.gpus[2].uuid
    ));
    assert_eq!(temperature(2).unwrap(), 92);
    assert_eq!(temperature(3).unwrap(), 31);
    fake.faults("on = [\"driver-mismatch\"]");
    assert!(matches!(fake.try_open(), Err(NvmlError::LibRmVersionMismatch)));
    fake.no_faults();
    assert_eq!(temperature(2).unwrap(), 31);
}

#[test]
fn several_faults_and_own_rules_hold_at_once() {
    let fake = Installed::new("hgx-h100");
    let nvml = fake.open();
    fake.faults(
        r#"
        on = [{ fault = "gpu-lost", gpu = 0 }, { fault = "pcie-half-width", gpu = 1 }]
        set = [{ gpu = 2, field = "temp.gpu_c", value = 77 }]
        "#,
    );
    assert!(matches!(nvml.device_by_index(0), Err(NvmlError::GpuLost)));
    assert_eq!(nvml.device_by_index(1).unwrap().current_pcie_link_width().unwrap(), 8);
    assert_eq!(nvml.device_by_index(2).unwrap().temperature(TemperatureSensor::Gpu).unwrap(), 77);
}

#[test]
fn a_scenario_brings_faults_of_its_own_that_may_switch_on_others() {
    let folder = tempfile::tempdir().unwrap();
    let models = scenario("models").with_extension("").canonicalize().unwrap();
    std::os::unix::fs::symlink(models, folder.path().join("models")).unwrap();
    let text = std::fs::read_to_string(scenario("l40s-pcie")).unwrap();
    let own = r#"
        [faults.gpu-lost]
        about = "The scenario's own wins over the shared one."
        set = [{ gpu = "THIS", field = "temp.gpu_c", value = 99 }]

        [faults.hot-and-throttled]
        about = "Two at once."
        on = [{ fault = "gpu-lost", gpu = "THIS" }]
        set = [{ gpu = "THIS", field = "clocks.event_reasons", value = 64 }]
    "#;
    let path = folder.path().join("machine.toml");
    std::fs::write(&path, text + own).unwrap();
    let fake = Installed::with(Machine::load(&path).unwrap());
    let nvml = fake.open();
    fake.faults("on = [{ fault = \"hot-and-throttled\", gpu = 1 }]");
    let device = nvml.device_by_index(1).unwrap();
    assert_eq!(device.temperature(TemperatureSensor::Gpu).unwrap(), 99);
    assert_eq!(device.current_throttle_reasons().unwrap().bits(), 64);
}

#[test]
fn every_shared_fault_says_what_it_is_and_can_be_switched_on() {
    let mut able = std::collections::BTreeSet::new();
    for path in all_scenarios() {
        let fake = Installed::with(Machine::load(&path).unwrap());
        for fault in fake.machine.named_faults() {
            assert!(fault.about.ends_with('.'), "{} says nothing of itself", fault.name);
            let slot = fault.gpus.as_ref().map_or(0, |gpus| gpus[0]);
            let mut machine = fake.machine.clone();
            machine.faults.retain(|name, _| name == fault.name);
            let path = std::path::Path::new("faults.toml");
            let script = nvidia_ml::faults::Faults::parse(path, &fault.switched_on(slot)).unwrap();
            let resolved = script.resolved(&machine, &machine.faults, path).unwrap();
            resolved.apply(&machine, path).unwrap_or_else(|error| panic!("{}: {error}", fault.name));
            able.insert(fault.name.to_owned());
        }
    }
    let hgx = Machine::load(&scenario("hgx-h100")).unwrap();
    for needed in ["gpu-lost", "nvlink-off-fabric", "mig-changed", "sram-threshold", "cold-start"] {
        assert!(able.contains(needed) && hgx.faults.contains_key(needed), "{needed}");
    }
}

#[test]
fn a_machine_offers_only_the_faults_that_make_sense_on_it() {
    let (hgx, l40s) = ["hgx-h100", "l40s-pcie"].map(|name| Machine::load(&scenario(name)).unwrap()).into();
    for linked in ["nvlink-down", "nvlink-off-fabric", "fabric-in-progress", "mig-changed"] {
        assert!(names(&hgx).contains(&linked), "{linked}");
        assert!(!names(&l40s).contains(&linked), "{linked}");
    }
    assert!(!names(&hgx).contains(&"c2c-down") && !names(&hgx).contains(&"nvlink-symbol-errors"));
    assert!(names(&l40s).contains(&"gpu-lost"));
    // Only the GPUs that have what it needs.
    let mut mixed = hgx;
    mixed.gpus[1].fabric = None;
    let faults = mixed.named_faults();
    let fabric = faults.iter().find(|fault| fault.name == "fabric-in-progress").unwrap();
    assert_eq!(fabric.gpus.as_deref().unwrap(), [0, 2, 3, 4, 5, 6, 7]);
    assert_eq!(faults.iter().find(|fault| fault.name == "nvml-hangs").unwrap().gpus, None);
}

#[test]
fn what_cannot_be_switched_on_is_said_with_its_reason() {
    let unknown = complaint("on = [\"gpu-lots\"]");
    assert!(
        unknown.contains("faults.toml: on.gpu-lots: no such fault; there are: c2c-down, clocks-locked,"),
        "{unknown}"
    );
    let no_gpu = complaint("on = [\"gpu-lost\"]");
    assert!(no_gpu.contains("on.gpu-lost: is for one GPU: state gpu"), "{no_gpu}");
    let one_gpu = complaint("on = [{ fault = \"nvml-hangs\", gpu = 1 }]");
    assert!(one_gpu.contains("on.nvml-hangs: is for the whole machine: state no gpu"), "{one_gpu}");
    let lacking = complaint("on = [{ fault = \"c2c-down\", gpu = 1 }]");
    assert!(lacking.contains("on.c2c-down: GPU 1 lacks C2c"), "{lacking}");
    let nobody = complaint("on = [{ fault = \"gpu-lost\", gpu = 11 }]");
    assert!(nobody.contains("the machine has no GPU 11"), "{nobody}");
    let this = complaint("[[lost]]\ngpu = \"THIS\"");
    assert!(this.contains("THIS stands for a GPU only in named faults"), "{this}");
}

#[test]
fn faults_that_go_round_in_a_circle_are_refused() {
    let mut machine = Machine::load(&scenario("l40s-pcie")).unwrap();
    let parse = |text: &str| nvidia_ml::faults::Faults::parse(std::path::Path::new("x.toml"), text).unwrap();
    machine.faults.insert("a".into(), parse("on = [\"b\"]"));
    machine.faults.insert("b".into(), parse("on = [\"a\"]"));
    let path = std::path::Path::new("faults.toml");
    let error = parse("on = [\"a\"]").resolved(&machine, &machine.faults, path).unwrap_err().to_string();
    assert!(error.contains("in a circle"), "{error}");
}
