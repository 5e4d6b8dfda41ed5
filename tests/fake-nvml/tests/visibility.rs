//! What a job's cgroup keeps from a process: GPUs and CPUs.

// Integration tests have no test module.
#![allow(clippy::tests_outside_test_module)]

mod common;

use std::process::Command;

use common::Installed;
use common::readings::call;
use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::error::NvmlError;

/// The count by the function's first form, which leaves out what may not be opened.
fn first_count(nvml: &Nvml) -> u32 {
    let mut count = 0_u32;
    let out = (&raw mut count).cast();
    assert_eq!(call(nvml, "nvmlDeviceGetCount", out, &[]), 0);
    count
}

#[test]
fn a_hidden_gpu_is_counted_and_cannot_be_opened() {
    let fake = Installed::new("hgx-h100");
    let nvml = fake.open();
    fake.faults("hidden = [{ gpu = 2 }, { gpu = 5, code = 17 }]");
    assert_eq!(nvml.device_count().unwrap(), 8);
    assert_eq!(first_count(&nvml), 6);
    let gpu = &fake.machine.gpus[2];
    assert!(matches!(nvml.device_by_index(2), Err(NvmlError::NoPermission)));
    assert!(matches!(nvml.device_by_uuid(gpu.uuid.as_str()), Err(NvmlError::NoPermission)));
    assert!(matches!(nvml.device_by_pci_bus_id(gpu.pci.bus_id()), Err(NvmlError::NoPermission)));
    assert!(matches!(nvml.device_by_index(5), Err(NvmlError::OperatingSystem)));
    assert_eq!(nvml.device_by_index(3).unwrap().uuid().unwrap(), fake.machine.gpus[3].uuid);
    // The index of the first form runs over those that may be opened.
    let mut handle: *mut std::ffi::c_void = std::ptr::null_mut();
    let index = std::ptr::without_provenance_mut(2);
    assert_eq!(call(&nvml, "nvmlDeviceGetHandleByIndex", index, &[(&raw mut handle).expose_provenance()]), 0);
    let mut minor = 0_u32;
    assert_eq!(call(&nvml, "nvmlDeviceGetMinorNumber", handle, &[(&raw mut minor).expose_provenance()]), 0);
    assert_eq!(minor, fake.machine.gpus[3].minor);
}

#[test]
fn a_gpu_that_is_hidden_from_then_on_is_refused_on_handles_of_before() {
    let fake = Installed::new("hgx-h100");
    let nvml = fake.open();
    let device = nvml.device_by_index(2).unwrap();
    fake.faults("hidden = [{ gpu = 2 }]\n[[hang]]\nfunction = \"*\"\ngpu = 2");
    assert!(matches!(device.temperature(TemperatureSensor::Gpu), Err(NvmlError::NoPermission)));
}

#[test]
fn only_the_processes_of_the_group_are_confined() {
    let fake = Installed::new("hgx-h100");
    let nvml = fake.open();
    let group = fake.folder().join("cgroup.procs");
    let open = || nvml.device_by_index(2).is_ok();
    fake.faults(&format!("hidden = [{{ gpu = 2, pids_in = {group:?} }}]"));
    assert!(open(), "no such file: nobody is in the group");
    std::fs::write(&group, "1\n2\n").unwrap();
    assert!(open());
    std::fs::write(&group, format!("1\n{}\n", std::process::id())).unwrap();
    assert!(!open());
}

#[test]
fn the_environment_names_the_gpus_that_a_process_may_use() {
    let fake = Installed::new("hgx-h100");
    let run = |visible: &str| {
        let mut command = Command::new(common::example("read_first_gpu"));
        command.arg(fake.library()).env("FAKE_NVML_VISIBLE", visible).output().unwrap()
    };
    assert!(run("0,3").status.success());
    assert!(run(&fake.machine.gpus[0].uuid).status.success());
    let refused = run("3");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("NoPermission"), "{refused:?}");
    let wrong = run("3,GPU-x");
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("no GPU GPU-x"), "{wrong:?}");
}

#[test]
fn affinity_tells_only_of_the_cpus_that_the_caller_has() {
    let fake = Installed::new("hgx-h100");
    let nvml = fake.open();
    let words = |index: u32| nvml.device_by_index(index).unwrap().cpu_affinity(4).unwrap();
    assert_eq!(words(0)[0], (1 << 56) - 1);
    fake.faults("cpuset = [{ cpus = \"1-2,113\" }]");
    assert_eq!(words(0), [0b110, 1 << (113 - 64), 0, 0]);
    // All CPUs of a far GPU are gone: the mask is empty, as in a confined step.
    assert_eq!(words(4), [0; 4]);
}
