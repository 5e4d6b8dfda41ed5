//! /proc: the driver's own files, modules, boot id, uptime. And /sys/fs/cgroup: whose service runs.

use super::Tree;
use crate::scenario::{Gpu, Isa, Machine, ScenarioError};

pub(super) fn render(machine: &Machine, tree: &mut Tree) -> Result<(), ScenarioError> {
    tree.file("proc/sys/kernel/random/boot_id", &machine.boot_id)?;
    tree.file("proc/sys/kernel/osrelease", KERNEL)?;
    tree.file("proc/cpuinfo", cpuinfo(machine))?;
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap_or_else(|_| "1000.00 1000.00".into());
    tree.file("proc/uptime", uptime.trim_end())?;
    let loaded = loaded_modules(machine);
    let lines: Vec<_> = loaded.iter().map(|name| module_line(name)).collect();
    tree.file("proc/modules", lines.join("\n"))?;
    if !machine.driver.loaded {
        return Ok(());
    }
    tree.file("proc/driver/nvidia/version", version(machine))?;
    for gpu in &machine.gpus {
        let path = format!("proc/driver/nvidia/gpus/{}/information", gpu.pci);
        tree.file(&path, information(machine, gpu))?;
    }
    for gpu in &machine.gpus {
        mig_instances(gpu, tree)?;
    }
    mig_minors(machine, tree)
}

/// systemd's control groups, as far as they show the fabric manager's service.
pub(super) fn services(machine: &Machine, tree: &mut Tree) -> Result<(), ScenarioError> {
    const SLICE: &str = "sys/fs/cgroup/system.slice";
    tree.folder(SLICE)?;
    let on_pci = machine.nvswitches.iter().any(|switch| switch.under.is_some());
    if machine.driver.fabric_manager.unwrap_or(on_pci) {
        // The last pid that the kernel hands out: no process of the host has it.
        tree.file(&format!("{SLICE}/nvidia-fabricmanager.service/cgroup.procs"), 4_194_303)?;
    }
    Ok(())
}

/// Debian 12's kernel.
const KERNEL: &str = "6.1.0-18-amd64";

/// The first CPU's entry, with the few lines that tell one kind of machine from another.
fn cpuinfo(machine: &Machine) -> String {
    match (machine.cpu.isa, machine.hypervisor) {
        (Isa::X86, true) => "processor\t: 0\nflags\t\t: fpu vme hypervisor lahf_lm",
        (Isa::X86, false) => "processor\t: 0\nflags\t\t: fpu vme lahf_lm",
        (Isa::Aarch64, _) => "processor\t: 0\nFeatures\t: fp asimd evtstrm",
        (Isa::Ppc64le, _) => "processor\t: 0\ncpu\t\t: POWER9, altivec supported",
    }
    .to_owned()
}

/// Modules that are loaded, the driver's first as the newest are on top.
pub(super) fn loaded_modules(machine: &Machine) -> Vec<&str> {
    let driver = machine.driver.modules.iter().filter(|_| machine.driver.loaded);
    driver.chain(&machine.driver.other_modules).map(String::as_str).collect()
}

fn module_line(name: &str) -> String {
    let taint = if name.starts_with("nvidia") { " (POE)" } else { "" };
    format!("{name} 1048576 8 - Live 0x0000000000000000{taint}")
}

/// Both wordings of the first line exist in the field; the version is the field before `Release` or the date.
fn version(machine: &Machine) -> String {
    let version = &machine.driver.version;
    let isa = match machine.cpu.isa {
        Isa::X86 => "x86_64",
        Isa::Aarch64 => "aarch64",
        Isa::Ppc64le => "ppc64le",
    };
    let first = if machine.driver.open {
        let build = "Release Build  (dvs-builder@build)  Wed Feb 26 01:48:22 UTC 2025";
        format!("NVIDIA UNIX Open Kernel Module for {isa}  {version}  {build}")
    } else {
        format!("NVIDIA UNIX {isa} Kernel Module  {version}  Wed Feb 26 02:04:04 UTC 2025")
    };
    format!("NVRM version: {first}\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14) ")
}

fn information(machine: &Machine, gpu: &Gpu) -> String {
    let firmware = match gpu.gsp {
        Some(true) => machine.driver.version.as_str(),
        _ => "N/A",
    };
    let lines = [
        format!("Model: \t\t {}", gpu.name),
        format!("IRQ:   \t\t {}", 256 + gpu.minor),
        format!("GPU UUID: \t {}", gpu.uuid),
        format!("Video BIOS: \t {}", gpu.vbios),
        "Bus Type: \t PCIe".to_owned(),
        "DMA Size: \t 52 bits".to_owned(),
        "DMA Mask: \t 0xfffffffffffff".to_owned(),
        format!("Bus Location: \t {}", gpu.pci),
        format!("Device Minor: \t {}", gpu.minor),
        format!("GPU Firmware: \t {firmware}"),
        "GPU Excluded:\t No".to_owned(),
    ];
    lines.join("\n")
}

/// A folder for each GPU instance, with one for each compute instance (NVIDIA's MIG User Guide).
fn mig_instances(gpu: &Gpu, tree: &mut Tree) -> Result<(), ScenarioError> {
    for device in gpu.mig.devices.iter().filter(|_| gpu.mig.enabled) {
        let (number, instance) = (gpu.minor, device.gpu_instance);
        let folder = format!("proc/driver/nvidia/capabilities/gpu{number}/mig/gi{instance}");
        let first = first_minor(number, instance);
        let access =
            |minor: u32| format!("DeviceFileMinor: {minor}\nDeviceFileMode: 256\nDeviceFileModify: 1");
        tree.file(&format!("{folder}/access"), access(first))?;
        let compute = device.compute_instance;
        tree.file(&format!("{folder}/ci{compute}/access"), access(first + 1 + compute))?;
    }
    Ok(())
}

/// The number of a GPU instance's own capability file.
fn first_minor(gpu: u32, instance: u32) -> u32 {
    3 + gpu * 135 + instance * 9
}

/// Minor numbers of MIG's capability files, in the driver's fixed numbering: 9 for each GPU instance (itself and
/// eight compute instances), 15 instances for each GPU, from 3 on.
fn mig_minors(machine: &Machine, tree: &mut Tree) -> Result<(), ScenarioError> {
    if !machine.gpus.iter().any(|gpu| gpu.mig.enabled) {
        return Ok(());
    }
    let mut lines = vec!["config 1".to_owned(), "monitor 2".to_owned()];
    for minor in machine.gpus.iter().filter(|gpu| gpu.mig.enabled).map(|gpu| gpu.minor) {
        for instance in 0..15 {
            let first = first_minor(minor, instance);
            lines.push(format!("gpu{minor}/gi{instance}/access {first}"));
            lines
                .extend((0..8).map(|ci| format!("gpu{minor}/gi{instance}/ci{ci}/access {}", first + 1 + ci)));
        }
    }
    tree.file("proc/driver/nvidia-caps/mig-minors", lines.join("\n"))
}
