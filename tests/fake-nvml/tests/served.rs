//! Every machine of tests/scenarios through the library, as nvml-wrapper reads it.

// Integration tests have no test module.
#![allow(clippy::tests_outside_test_module)]

mod common;

use common::{Installed, all_machines};
use nvidia_ml::scenario::{Gpu, Machine};
use nvml_wrapper::enum_wrappers::device::{Clock, EccCounter, MemoryError, RetirementCause};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::{Device, Nvml};

/// What is stated is answered, what is not is "not supported".
fn same<T: PartialEq + std::fmt::Debug>(what: &str, answer: Result<T, NvmlError>, stated: Option<T>) {
    match answer {
        Ok(answer) => assert_eq!(Some(answer), stated, "{what}"),
        Err(NvmlError::NotSupported) => assert_eq!(stated, None, "{what}"),
        Err(error) => panic!("{what}: {error}"),
    }
}

fn field(device: &Device<'_>, id: u32) -> Result<(), NvmlError> {
    let answer = device.field_values_for(&[FieldId(id)]).unwrap().remove(0);
    answer.and_then(|sample| sample.value).map(|_| ())
}

fn whole(device: &Device<'_>, gpu: &Gpu, machine: &Machine) {
    assert_eq!(device.uuid().unwrap(), gpu.uuid);
    assert_eq!(device.name().unwrap(), gpu.name);
    assert_eq!(device.minor_number().unwrap(), gpu.minor);
    assert_eq!(device.pci_info().unwrap().bus_id, gpu.pci.bus_id());
    same("serial", device.serial(), gpu.serial.clone());
    same("ECC", device.is_ecc_enabled().map(|mode| mode.currently_enabled), gpu.ecc.enabled);
    let dram = |counter| device.total_ecc_errors(MemoryError::Uncorrected, counter);
    same(
        "volatile errors",
        dram(EccCounter::Volatile),
        gpu.ecc.enabled.filter(|_| !gpu.mig.enabled).map(|_| 0),
    );
    same("aggregate errors", dram(EccCounter::Aggregate), gpu.ecc.enabled.map(|_| 0));
    let remap = gpu.remap.as_ref().filter(|_| !gpu.mig.enabled);
    same("remapped rows", field(device, 143), remap.map(|_| ()));
    same("retired pages", field(device, 30), gpu.retired.as_ref().map(|_| ()));
    let pages = device.retired_pages(RetirementCause::DoubleBitEccError).map(|pages| pages.len());
    same("list of retired pages", pages, gpu.retired.as_ref().map(|_| 0));
    let clock = gpu.clocks.app_default_mhz.map(|clocks| clocks[0]);
    same("application clock", device.applications_clock(Clock::Graphics), clock);
    same("energy", device.total_energy_consumption().map(|_| ()), gpu.power.energy_base_mj.map(|_| ()));
    if !machine.driver.missing_symbols.iter().any(|name| name == "nvmlDeviceGetNumaNodeId") {
        same("node of the memory", device.numa_node_id(), gpu.memory_numa_node);
    }
    assert_eq!(device.current_pcie_link_gen().unwrap(), gpu.pcie.idle_generation);
    assert_eq!(device.current_pcie_link_width().unwrap(), 16);
    assert_eq!(u64::from(device.power_usage().unwrap()), gpu.power.idle_mw);
    match field(device, 230) {
        Ok(()) => assert_eq!(gpu.recovery_action, Some(0)),
        Err(NvmlError::NotSupported | NvmlError::InvalidArg) => assert_eq!(gpu.recovery_action, None),
        Err(error) => panic!("recovery action: {error}"),
    }
}

/// Bits of NVML's masks.
fn bits(words: &[u64]) -> Vec<u32> {
    let all = (0..).zip(words);
    all.flat_map(|(word, bits)| {
        (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| word * 64 + bit)
    })
    .collect()
}

fn placement(device: &Device<'_>, gpu: &Gpu, machine: &Machine) {
    let node = machine.numa_node(machine.numa_under(gpu.under).unwrap()).unwrap();
    assert_eq!(bits(&device.cpu_affinity(512).unwrap()), node.cpus.iter().collect::<Vec<_>>());
    let links: u32 = gpu.nvlink.links.iter().map(|group| u32::try_from(group.links.0.len()).unwrap()).sum();
    for group in &gpu.nvlink.links {
        for number in group.links.iter() {
            let link = device.link_wrapper_for(number);
            assert!(link.is_active().unwrap());
            assert_eq!(link.remote_pci_info().unwrap().bus_id, group.to.bus_id());
        }
    }
    let beyond = device.link_wrapper_for(links).is_active();
    assert!(matches!(beyond, Err(NvmlError::InvalidArg | NvmlError::NotSupported)), "{beyond:?}");
}

fn instances(nvml: &Nvml, device: &Device<'_>, gpu: &Gpu) {
    let mode = device.mig_mode().map(|mode| mode.current == 1);
    same("MIG mode", mode, (gpu.mig.max_devices > 0).then_some(gpu.mig.enabled));
    for (index, mig) in (0..).zip(&gpu.mig.devices) {
        let found = device.mig_device_by_index(index).unwrap();
        assert_eq!(found.uuid().unwrap(), mig.uuid);
        assert!(found.name().unwrap().ends_with(&mig.profile));
        let attributes = found.attributes().unwrap();
        assert_eq!(attributes.memory_size_mb, mig.memory_mib);
        assert_eq!(
            (attributes.gpu_instance_slice_count, attributes.multiprocessor_count),
            (mig.slices, mig.multiprocessors)
        );
        let by_uuid = nvml.device_by_uuid(mig.uuid.as_str()).unwrap();
        assert_eq!(by_uuid.mig_parent_device().unwrap().uuid().unwrap(), gpu.uuid);
        assert!(matches!(found.total_energy_consumption(), Err(NvmlError::NotSupported)));
    }
    let beyond = u32::try_from(gpu.mig.devices.len()).unwrap();
    assert!(device.mig_device_by_index(beyond).is_err());
}

#[test]
fn every_machine_is_served_as_it_is_described() {
    for name in all_machines() {
        let fake = Installed::new(&name);
        let nvml = fake.open();
        let machine = &fake.machine;
        assert_eq!(nvml.sys_driver_version().unwrap(), machine.driver.version);
        let slots = machine.nvml_slots();
        assert_eq!(nvml.device_count().unwrap() as usize, slots.len(), "{name}");
        for (index, slot) in (0..).zip(slots) {
            let (device, gpu) = (nvml.device_by_index(index).unwrap(), machine.gpu(slot).unwrap());
            whole(&device, gpu, machine);
            placement(&device, gpu, machine);
            instances(&nvml, &device, gpu);
        }
    }
}
