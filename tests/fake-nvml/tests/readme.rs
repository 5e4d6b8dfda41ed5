//! The examples of README.md are true.

// Integration tests have no test module.
#![allow(clippy::tests_outside_test_module)]

mod common;

use std::path::Path;

use common::{Installed, scenario};
use nvidia_ml::faults::Faults;
use nvidia_ml::scenario::Machine;

const README: &str = include_str!("../README.md");

/// The TOML examples, in their order.
fn examples() -> Vec<&'static str> {
    README.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

#[test]
fn the_scenario_of_the_readme_loads_and_its_fault_can_be_switched_on() {
    let folder = tempfile::tempdir().unwrap();
    let models = scenario("models").with_extension("").canonicalize().unwrap();
    std::os::unix::fs::symlink(models, folder.path().join("models")).unwrap();
    let path = folder.path().join("small.toml");
    std::fs::write(&path, examples()[0]).unwrap();
    let fake = Installed::with(Machine::load(&path).unwrap());
    fake.faults("on = [{ fault = \"hot\", gpu = 0 }]");
    let nvml = fake.open();
    let sensor = nvml_wrapper::enum_wrappers::device::TemperatureSensor::Gpu;
    assert_eq!(nvml.device_by_index(0).unwrap().temperature(sensor).unwrap(), 89);
}

#[test]
fn the_script_of_the_readme_is_one() {
    let machine = Machine::load(&scenario("hgx-h100")).unwrap();
    let path = Path::new("README.md");
    let changed = Faults::parse(path, examples()[1]).unwrap().apply(&machine, path).unwrap();
    assert_eq!(changed.gpus[0].ecc.dram.volatile_uncorr, 3);
}

#[test]
fn the_readme_names_every_field_of_use_as_it_is() {
    let machine = Machine::load(&scenario("hgx-h100")).unwrap();
    let path = Path::new("README.md");
    let list = README.split("Fields of use: ").nth(1).unwrap().split(".\n").next().unwrap();
    let fields: Vec<&str> =
        list.split('`').skip(1).step_by(2).filter(|field| !field.ends_with('*')).collect();
    assert!(fields.len() > 10, "{fields:?}");
    for field in fields {
        // A value of the wrong kind: the schema knows the name where it complains of the kind only.
        let script = format!("set = [{{ gpu = 0, field = \"{field}\", value = {{ x = [[1]] }} }}]");
        let error = Faults::parse(path, &script).unwrap().apply(&machine, path).unwrap_err().to_string();
        assert!(error.contains("invalid type"), "{error}");
    }
}
