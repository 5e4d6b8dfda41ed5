//! The exported symbols of the built library are exactly those of the golden list `symbols.txt`.

// Integration tests have no test module.
#![allow(clippy::tests_outside_test_module)]

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use common::{Installed, scenario};
use nvidia_ml::elf::{exported, soname};
use nvidia_ml::scenario::Machine;
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::error::NvmlError;

#[test]
fn exported_symbols_are_the_golden_list() {
    let library = nvidia_ml::built_library().unwrap();
    let found: Vec<String> = exported(&fs::read(library).unwrap()).unwrap().into_iter().collect();
    let golden: Vec<&str> = include_str!("symbols.txt").lines().collect();
    assert!(found.iter().all(|name| name.starts_with("nvml")), "a symbol that is not NVML's: {found:?}");
    assert_eq!(
        found,
        golden,
        "exported symbols changed; if on purpose, put this into tests/symbols.txt:\n{}",
        found.join("\n")
    );
}

#[test]
fn the_soname_is_the_one_that_clients_open() {
    let library = nvidia_ml::built_library().unwrap();
    assert_eq!(soname(&fs::read(library).unwrap()).unwrap().as_deref(), Some("libnvidia-ml.so.1"));
}

/// The HGX machine with a library that lacks functions.
fn lacking(functions: &[&str]) -> Machine {
    let mut machine = Machine::load(&scenario("hgx-h100")).unwrap();
    machine.driver.missing_symbols = functions.iter().map(|name| (*name).to_owned()).collect();
    machine
}

#[test]
fn a_missing_symbol_is_missing_for_the_loader_and_the_others_work() {
    let fake = Installed::with(lacking(&["nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetPowerUsage"]));
    let nvml = fake.open();
    let device = nvml.device_by_index(0).unwrap();
    assert!(
        matches!(device.power_usage(), Err(NvmlError::FailedToLoadSymbol(_))),
        "{:?}",
        device.power_usage()
    );
    assert!(nvml.lib().nvmlDeviceGetGpuFabricInfoV.is_err());
    assert!(nvml.lib().nvmlDeviceGetGpuFabricInfo.is_ok(), "the name that begins alike stays");
    assert_eq!(device.temperature(TemperatureSensor::Gpu).unwrap(), 31);
    // What is in the library besides stays as it was built.
    let full = exported(&fs::read(nvidia_ml::built_library().unwrap()).unwrap()).unwrap();
    let left = exported(&fs::read(fake.library()).unwrap()).unwrap();
    let gone: Vec<_> = full.difference(&left).cloned().collect();
    assert_eq!(gone, ["nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetPowerUsage"]);
    assert_eq!(soname(&fs::read(fake.library()).unwrap()).unwrap().as_deref(), Some("libnvidia-ml.so.1"));
}

#[test]
fn any_function_can_be_missing() {
    let full = exported(&fs::read(nvidia_ml::built_library().unwrap()).unwrap()).unwrap();
    // Without nvmlShutdown nvml-wrapper panics when it lets go.
    let names: Vec<&str> = full
        .iter()
        .map(String::as_str)
        .filter(|name| *name != "nvmlInit_v2" && *name != "nvmlShutdown")
        .collect();
    let fake = Installed::with(lacking(&names));
    assert!(matches!(fake.open().device_count(), Err(NvmlError::FailedToLoadSymbol(_))));
}

#[test]
fn a_library_without_some_symbols_is_sound_for_ldd_and_valgrind() {
    let fake = Installed::with(lacking(&["nvmlDeviceGetGpuFabricInfoV"]));
    let said = |output: &Output| [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
    let ldd = Command::new("ldd").arg("-r").arg(fake.library()).output().unwrap();
    assert!(ldd.status.success() && !said(&ldd).contains("undefined symbol"), "{}", said(&ldd));
    let program = common::example("read_first_gpu");
    let valgrind =
        Command::new("valgrind").arg("--error-exitcode=9").arg(program).arg(fake.library()).output().unwrap();
    assert!(valgrind.status.success(), "{}", said(&valgrind));
}

#[test]
fn a_missing_symbol_that_never_was_is_an_error_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let installed =
        lacking(&["nvmlDeviceGetFabric"]).install(&nvidia_ml::built_library().unwrap(), folder.path());
    let message = installed.unwrap_err().to_string();
    let expected = "hgx-h100: driver.missing_symbols: the library exports no function nvmlDeviceGetFabric";
    assert_eq!(message, expected);
    assert!(!Path::new(&folder.path().join("libnvidia-ml.so.1")).exists());
}
