//! NVIDIA's own Python binding reads both machines: a check from outside that the fake has the ABI it claims.
//!
//! The binding (nvidia-ml-py) is looked for in the folder named by GPUWARD_PYNVML, else in `.cache/pynvml` of the
//! workspace, where `make` puts it.

// Integration tests have no test module.
#![allow(clippy::tests_outside_test_module)]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Installed, SCENARIOS};
use nvidia_ml::scenario::{Gpu, Machine};
use serde_json::{Value, json};

fn binding() -> PathBuf {
    let usual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/pynvml");
    let folder = std::env::var_os("GPUWARD_PYNVML").map_or(usual, PathBuf::from);
    assert!(
        folder.join("pynvml.py").exists(),
        "nvidia-ml-py is not in {}: run `pip install --target .cache/pynvml nvidia-ml-py==13.615.71` in the \
         workspace, or name its folder in GPUWARD_PYNVML",
        folder.display(),
    );
    folder
}

/// What the binding sees of an installed fake.
fn seen(fake: &Installed) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python_binding.py");
    let output = Command::new("python3")
        .arg("-B")
        .arg(script)
        .env("PYTHONPATH", binding())
        .env("LD_LIBRARY_PATH", fake.folder())
        .output()
        .unwrap_or_else(|error| panic!("python3 does not start: {error}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Compares one GPU key by key, so that a failure names the key.
fn compare(index: usize, seen: &Value, gpu: &Gpu, machine: &Machine) {
    let mib = |mib: u64| mib << 20;
    let memory = &gpu.memory;
    let free = memory.total_mib - memory.reserved_mib;
    let links = match gpu.nvlink.version {
        Some(_) => {
            let lanes =
                gpu.nvlink.links.iter().flat_map(|group| group.links.iter().map(|_| group.to.bus_id()));
            json!(lanes.collect::<Vec<_>>())
        }
        None => json!("NVMLError_NotSupported"),
    };
    let fabric = match &gpu.fabric {
        Some(fabric) => json!([fabric.state, fabric.health_summary]),
        None => json!("NVMLError_NotSupported"),
    };
    let mut affinity = [0_u64; 8];
    for cpu in machine.numa_node(machine.numa_under(gpu.under).unwrap()).unwrap().cpus.iter() {
        affinity[cpu as usize / 64] |= 1 << (cpu % 64);
    }
    let expected = json!({
        "name": gpu.name, "uuid": gpu.uuid, "serial": gpu.serial, "minor": gpu.minor, "vbios": gpu.vbios,
        "bus_id": gpu.pci.bus_id(), "bus_id_legacy": &gpu.pci.bus_id()[4..], "by_uuid": index,
        "pci": [gpu.pci.domain, gpu.pci.bus, gpu.pci.device, gpu.pci_device_id],
        "compute_capability": gpu.compute_capability,
        "memory": [mib(memory.total_mib), mib(memory.reserved_mib), mib(free), 0],
        "memory_v1": [mib(memory.total_mib), mib(free), mib(memory.reserved_mib)],
        "power": gpu.power.idle_mw, "limits": [gpu.power.default_limit_mw, gpu.power.default_limit_mw],
        "temperature": gpu.temp.gpu_c, "temperature_v": gpu.temp.gpu_c,
        "margin": gpu.temp.gpu_max_c.unwrap() - gpu.temp.gpu_c,
        "ecc_mode": [1, 1], "ecc": [0, 0, 0, 0], "sram_threshold": 0, "remapped": [0, 0, 0, 0],
        "fabric_state": fabric,
        "throttle": [1, 1],
        "pcie": [gpu.pcie.idle_generation, gpu.pcie.width, gpu.pcie.max_generation, 0],
        "links": links, "affinity": affinity, "persistence": 1, "compute_mode": 0, "processes": [],
        "mig": if gpu.mig.max_devices > 0 { json!([0, 0]) } else { json!("NVMLError_NotSupported") },
    });
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&seen[key], value, "GPU{index} {key}");
    }
    fields(&seen["fields"], gpu);
    energy(seen, gpu);
}

/// Fields 230, 83, 82, 144, 190, 193, 165 of link 3, and one that no driver knows.
fn fields(seen: &Value, gpu: &Gpu) {
    let codes: Vec<_> =
        seen.as_array().unwrap().iter().map(|field| field["code"].as_u64().unwrap()).collect();
    let (memory, link) = (gpu.temp.memory_c, gpu.nvlink.version);
    let code = |there: bool| if there { 0 } else { 3 };
    assert_eq!(codes, [0, 0, code(memory.is_some()), 0, 0, 0, code(link.is_some()), 2]);
    assert_eq!(seen[0]["uint"], 0);
    if let Some(celsius) = memory {
        assert_eq!(seen[2]["uint"], celsius);
    }
    assert_eq!(seen[4]["uint"], gpu.power.default_limit_mw);
    let shutdown = gpu.temp.tlimit_c.unwrap()[0];
    assert_eq!(seen[5]["uint"], u32::from_ne_bytes(shutdown.to_ne_bytes()));
}

/// Energy grows by power times time; both ends are read a few milliseconds beside the clock.
fn energy(seen: &Value, gpu: &Gpu) {
    let [start, end] = [0, 1].map(|i| seen["energy"][i].as_f64().unwrap());
    let watts = (end - start) / 1000.0 / seen["elapsed"].as_f64().unwrap();
    let idle = f64::from(u32::try_from(gpu.power.idle_mw).unwrap()) / 1000.0;
    assert!((watts / idle - 1.0).abs() < 0.2, "{watts} W instead of {idle} W");
}

#[test]
fn the_python_binding_sees_both_machines_as_described() {
    for name in SCENARIOS {
        let fake = Installed::new(name);
        let machine = &fake.machine;
        let seen = seen(&fake);
        assert_eq!(seen["driver"], machine.driver.version);
        assert_eq!(seen["nvml"], format!("12.{}", machine.driver.version));
        assert_eq!(seen["cuda"], machine.driver.cuda);
        assert_eq!(seen["beyond"], "NVMLError_InvalidArgument");
        assert_eq!(seen["error_text"], "GPU is lost");
        let slots = machine.nvml_slots();
        assert_eq!(seen["gpus"].as_array().unwrap().len(), slots.len());
        for (index, slot) in slots.into_iter().enumerate() {
            compare(index, &seen["gpus"][index], machine.gpu(slot).unwrap(), machine);
        }
    }
}
