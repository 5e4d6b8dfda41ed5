//! Checks of GPUs: ids, links, MIG instances.

use std::collections::HashSet;

use super::super::{Gpu, Machine, MigDevice};
use super::{Problem, listed, problem};

pub(super) fn check(machine: &Machine) -> Result<(), Problem> {
    let mut uuids = HashSet::new();
    for (i, gpu) in machine.gpus.iter().enumerate() {
        let at = format!("gpus[{i}]");
        essentials(&at, gpu)?;
        if let Some(cpus) = &gpu.cpus {
            near_cpus(&at, machine, cpus.iter())?;
        }
        if gpu.memory_numa_node.is_some_and(|node| machine.numa_node(node).is_none()) {
            let nodes = listed(machine.numa.iter().map(|node| node.node));
            return problem(
                format!("{at}.memory_numa_node"),
                format!("there is no such node; nodes are {nodes}"),
            );
        }
        links(&at, machine, gpu)?;
        mig(&at, gpu)?;
        uuid(&format!("{at}.uuid"), &gpu.uuid, "GPU-", &mut uuids)?;
        for (j, device) in gpu.mig.devices.iter().enumerate() {
            uuid(&format!("{at}.mig.devices[{j}].uuid"), &device.uuid, "MIG-", &mut uuids)?;
        }
        let others = &machine.gpus[..i];
        if others.iter().any(|other| other.slot == gpu.slot) {
            return problem(format!("{at}.slot"), format!("slot {} is used twice", gpu.slot()));
        }
        if others.iter().any(|other| other.minor == gpu.minor) {
            return problem(format!("{at}.minor"), format!("minor {} is used twice", gpu.minor));
        }
    }
    order(machine)
}

fn essentials(at: &str, gpu: &Gpu) -> Result<(), Problem> {
    let missing = [
        (gpu.pci == Default::default(), "pci"),
        (gpu.name.is_empty(), "name"),
        (gpu.memory.total_mib == 0, "memory.total_mib"),
        (gpu.power.default_limit_mw == 0, "power.default_limit_mw"),
        (gpu.pcie.max_width == 0, "pcie.max_width"),
    ];
    match missing.iter().find(|(missing, _)| *missing) {
        Some((_, key)) => problem(format!("{at}.{key}"), "is needed, here or in the model, and not 0"),
        None => Ok(()),
    }
}

fn near_cpus(at: &str, machine: &Machine, mut cpus: impl Iterator<Item = u32>) -> Result<(), Problem> {
    let last = machine.cpu.count() - 1;
    match cpus.find(|&cpu| cpu > last) {
        Some(cpu) => problem(format!("{at}.cpus"), format!("CPU {cpu} does not exist; CPUs are 0-{last}")),
        None => Ok(()),
    }
}

fn uuid<'a>(key: &str, uuid: &'a str, prefix: &str, seen: &mut HashSet<&'a str>) -> Result<(), Problem> {
    if uuid.len() != 40 || !uuid.starts_with(prefix) {
        return problem(key, format!("'{uuid}' is not {prefix} and 36 characters"));
    }
    if !seen.insert(uuid) {
        return problem(key, format!("{uuid} is used twice"));
    }
    Ok(())
}

fn links(at: &str, machine: &Machine, gpu: &Gpu) -> Result<(), Problem> {
    let switches = machine.nvswitches.iter().map(|switch| switch.pci);
    let others = machine.gpus.iter().map(|other| other.pci).filter(|&pci| pci != gpu.pci);
    let ends: Vec<_> = switches.chain(others).collect();
    for (j, group) in gpu.nvlink.links.iter().enumerate() {
        if !ends.contains(&group.to) {
            let ends = listed(ends.iter());
            let message =
                format!("{} is no other GPU and no NVSwitch of the machine; these are {ends}", group.to);
            return problem(format!("{at}.nvlink.links[{j}].to"), message);
        }
    }
    let mut numbers: Vec<u32> = gpu.nvlink.links.iter().flat_map(|group| group.links.iter()).collect();
    numbers.sort_unstable();
    if !(0..).zip(&numbers).all(|(number, link)| number == *link) {
        let message =
            format!("link numbers must run from 0, each once; these are {}", listed(numbers.iter()));
        return problem(format!("{at}.nvlink.links"), message);
    }
    if !numbers.is_empty() && gpu.nvlink.version.is_none() {
        return problem(format!("{at}.nvlink.version"), "is needed where there are links");
    }
    Ok(())
}

/// Instances fit onto the GPU. A machine that has been loaded before has no profiles any more, and was checked then.
fn mig(at: &str, gpu: &Gpu) -> Result<(), Problem> {
    const MEMORY_SLICES: u32 = 8;
    let mig = &gpu.mig;
    if mig.enabled && mig.max_devices == 0 {
        return problem(format!("{at}.mig.enabled"), format!("{} has no MIG", gpu.name));
    }
    if !mig.enabled && !mig.devices.is_empty() {
        return problem(format!("{at}.mig.devices"), "there are instances, but MIG is off");
    }
    let mut memory_slices = 0;
    for (j, device) in mig.devices.iter().enumerate() {
        let key = format!("{at}.mig.devices[{j}]");
        let same_ids = |other: &MigDevice| {
            (other.gpu_instance, other.compute_instance) == (device.gpu_instance, device.compute_instance)
        };
        if mig.devices[..j].iter().any(same_ids) {
            return problem(format!("{key}.gpu_instance"), "two instances have the same ids");
        }
        let Some(profile) = mig.profiles.iter().find(|profile| profile.name == device.profile) else {
            if mig.profiles.is_empty() {
                continue;
            }
            let known = listed(mig.profiles.iter().map(|profile| &profile.name));
            let message = format!("'{}' is no profile of {}; these are {known}", device.profile, gpu.name);
            return problem(format!("{key}.profile"), message);
        };
        memory_slices += profile.memory_slices;
        let count = mig.devices[..=j].iter().filter(|other| other.profile == device.profile).count();
        if count > profile.max as usize {
            let message = format!("at most {} of {} fit onto one GPU", profile.max, profile.name);
            return problem(format!("{key}.profile"), message);
        }
    }
    let slices: u32 = mig.devices.iter().map(|device| device.slices).sum();
    if slices > mig.max_devices || memory_slices > MEMORY_SLICES {
        let most = mig.max_devices;
        let message = format!(
            "instances take {slices} of {most} GPU slices and {memory_slices} of {MEMORY_SLICES} memory slices"
        );
        return problem(format!("{at}.mig.devices"), message);
    }
    Ok(())
}

fn order(machine: &Machine) -> Result<(), Problem> {
    let sorted = |mut slots: Vec<u32>| {
        slots.sort_unstable();
        slots
    };
    let slots = sorted(machine.gpus.iter().map(Gpu::slot).collect());
    if sorted(machine.nvml_slots()) != slots {
        return problem(
            "nvml_order",
            format!("must name each slot once; slots are {}", listed(slots.iter())),
        );
    }
    Ok(())
}
