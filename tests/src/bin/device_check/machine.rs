//! Machines on disk: a simulated one, and what NVML tells in place of a /sys that shows no GPU.

use super::calls::{GpuLine, Line};
use gpuward_core::model::PciAddress;
use nvidia_ml::built_library;
use nvidia_ml::scenario::Machine;
use std::fs;
use std::path::Path;

/// Makes `lib/`, `root/sys`, `root/proc` and `kmsg` of a scenario in `folder`.
pub fn make(scenario: &Path, folder: &Path) -> Result<(), String> {
    let machine = Machine::load(scenario).map_err(|error| error.to_string())?;
    let library = built_library().map_err(|error| error.to_string())?;
    machine.install(&library, &folder.join("lib")).map_err(|error| error.to_string())?;
    machine.render(&folder.join("root")).map_err(|error| error.to_string())?;
    write(&folder.join("kmsg"), "")
}

/// Writes the few files of /sys and /proc from which gpuward knows its GPUs, for the GPUs that NVML opened.
///
/// Some containers show none of them, although the driver answers. What gpuward reads from the driver can be checked
/// there all the same.
pub fn tree(calls: &Path, folder: &Path) -> Result<(), String> {
    let text = fs::read_to_string(calls).map_err(|error| format!("{}: {error}", calls.display()))?;
    for line in text.lines() {
        if let Ok(Line::Gpu(gpu)) = serde_json::from_str(line) {
            one(&gpu, folder)?;
        }
    }
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    write(&folder.join("proc/sys/kernel/random/boot_id"), &boot_id)
}

fn one(gpu: &GpuLine, folder: &Path) -> Result<(), String> {
    let pci: PciAddress = gpu.pci.parse().map_err(|_| format!("{}: no PCI address", gpu.pci))?;
    let device = folder.join("sys/bus/pci/devices").join(pci.to_string());
    write(&device.join("vendor"), "0x10de\n")?;
    write(&device.join("class"), "0x030200\n")?;
    write(&folder.join("sys/module/nvidia/version"), &gpu.driver)?;
    let about = format!("Model: {}\nGPU UUID: {}\nDevice Minor: {}\n", gpu.model, gpu.uuid, gpu.minor);
    write(&folder.join("proc/driver/nvidia/gpus").join(pci.to_string()).join("information"), &about)
}

/// Writes a file, its folders too.
pub fn write(path: &Path, text: &str) -> Result<(), String> {
    let folder = path.parent().unwrap_or_else(|| Path::new("/"));
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, text))
        .map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuward_core::model::Reading;
    use gpuward_node::sysfs;

    #[test]
    fn gpuward_finds_the_gpus_that_nvml_names_where_the_host_shows_none() {
        let folder = tempfile::tempdir().unwrap();
        let gpu = GpuLine {
            pci: "00000000:1B:00.0".into(),
            uuid: "GPU-5bc5a273-2709-92df-5232-6e6c70650302".into(),
            minor: 2,
            model: "NVIDIA H200".into(),
            driver: "580.159.03".into(),
        };
        let lines = [Line::Begin("x".into()), Line::Gpu(gpu.clone()), Line::End];
        let lines: Vec<String> = lines.iter().map(|line| serde_json::to_string(line).unwrap()).collect();
        let calls = folder.path().join("calls");
        write(&calls, &lines.join("\n")).unwrap();
        tree(&calls, folder.path()).unwrap();
        let (sys, proc) = (folder.path().join("sys"), folder.path().join("proc"));
        let host = sysfs::read_driver(&sys, &proc);
        assert_eq!(host.module_version, Reading::Value(gpu.driver));
        let [listed] = &host.driver_gpus[..] else { panic!("{host:?}") };
        assert_eq!(listed.minor, Some(2));
        assert_eq!(listed.uuid.as_ref().unwrap().as_str(), gpu.uuid);
        assert_eq!(sysfs::pci_gpus(&sys), Reading::Value(vec![listed.pci]));
        assert_eq!(sysfs::boot_id(&proc), sysfs::boot_id(Path::new("/proc")));
    }
}
