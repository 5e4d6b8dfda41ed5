//! What the schema cannot say: ids are unique, addresses exist, lists fit together.

use std::collections::HashSet;
use std::path::Path;

use super::{Gpu, Machine, NumaNode, PciAddress, ScenarioError};

/// First contradiction of a loaded machine.
pub(super) fn check(machine: &Machine, path: &Path, text: &str) -> Result<(), ScenarioError> {
    let found = numa(machine)
        .and_then(|()| ports(machine))
        .and_then(|()| unique_addresses(machine))
        .and_then(|()| gpus(machine));
    found.map_err(|Problem { key, value, message }| {
        // Merged tables have no positions any more: the line is found again by the value that is wrong.
        let line = text.lines().position(|line| !value.is_empty() && line.contains(&value));
        let key = match line {
            Some(line) => format!("line {}: {key}", line + 1),
            None => key,
        };
        ScenarioError::Invalid { path: path.to_path_buf(), key, message }
    })
}

struct Problem {
    key: String,
    value: String,
    message: String,
}

fn problem<T>(key: String, value: impl ToString, message: impl Into<String>) -> Result<T, Problem> {
    Err(Problem { key, value: value.to_string(), message: message.into() })
}

fn numa(machine: &Machine) -> Result<(), Problem> {
    let cpu = machine.cpu;
    if cpu.count() == 0 || cpu.cores_per_l3 == 0 {
        return problem("cpu".into(), "", "sockets, cores and threads must be at least 1");
    }
    let mut seen = HashSet::new();
    for (i, NumaNode { node, cpus, distances, .. }) in machine.numa.iter().enumerate() {
        if machine.numa.iter().filter(|other| other.node == *node).count() > 1 {
            return problem(format!("numa[{i}].node"), "", format!("node {node} is described twice"));
        }
        if distances.len() != machine.numa.len() {
            return problem(format!("numa[{i}].distances"), "", "needs one number for each node");
        }
        for cpu_number in cpus.iter() {
            if cpu_number >= cpu.count() || !seen.insert(cpu_number) {
                let message = format!("CPU {cpu_number} does not exist or is in two nodes");
                return problem(format!("numa[{i}].cpus"), cpus, message);
            }
        }
    }
    if seen.len() != cpu.count() as usize {
        return problem("numa".into(), "", "some CPUs are in no node");
    }
    Ok(())
}

fn ports(machine: &Machine) -> Result<(), Problem> {
    for (i, port) in machine.root_ports.iter().enumerate() {
        let known =
            u32::try_from(port.numa).map_or(port.numa == -1, |node| machine.numa_node(node).is_some());
        if !known {
            return problem(format!("root_ports[{i}].numa"), port.at, format!("no node {}", port.numa));
        }
    }
    let mut plugs: Vec<(String, PciAddress)> = Vec::new();
    plugs.extend(machine.switches.iter().enumerate().map(|(i, s)| (format!("switches[{i}].under"), s.under)));
    plugs.extend(
        machine.nvswitches.iter().enumerate().map(|(i, s)| (format!("nvswitches[{i}].under"), s.under)),
    );
    plugs.extend(machine.nics.iter().enumerate().map(|(i, n)| (format!("nics[{i}].under"), n.under)));
    plugs.extend(machine.gpus.iter().enumerate().map(|(i, g)| (format!("gpus[{i}].under"), g.under)));
    match plugs.into_iter().find(|(_, port)| machine.ports_above(*port).is_empty()) {
        Some((key, port)) => problem(key, port, format!("{port} is no root port or switch port")),
        None => Ok(()),
    }
}

fn unique_addresses(machine: &Machine) -> Result<(), Problem> {
    let mut seen = HashSet::new();
    let addresses = (machine.root_ports.iter().map(|port| port.at))
        .chain(machine.switches.iter().flat_map(|switch| switch.down.iter().copied().chain([switch.up])))
        .chain(machine.nvswitches.iter().map(|switch| switch.pci))
        .chain(machine.nics.iter().map(|nic| nic.pci))
        .chain(machine.gpus.iter().map(|gpu| gpu.pci));
    for address in addresses {
        if !seen.insert(address) {
            return problem("pci".into(), address, format!("{address} is used twice"));
        }
    }
    Ok(())
}

fn gpus(machine: &Machine) -> Result<(), Problem> {
    let mut uuids = HashSet::new();
    for (i, gpu) in machine.gpus.iter().enumerate() {
        one_gpu(machine, i, gpu)?;
        let migs = gpu.mig.devices.iter().map(|mig| (&mig.uuid, "MIG-"));
        for (uuid, prefix) in migs.chain([(&gpu.uuid, "GPU-")]) {
            if uuid.len() != 40 || !uuid.starts_with(prefix) {
                return problem(
                    format!("gpus[{i}].uuid"),
                    uuid,
                    format!("'{uuid}' is not {prefix} and 36 characters"),
                );
            }
            if !uuids.insert(uuid) {
                return problem(format!("gpus[{i}].uuid"), uuid, format!("{uuid} is used twice"));
            }
        }
        let same = |other: &&Gpu| other.slot == gpu.slot || other.minor == gpu.minor;
        if machine.gpus.iter().filter(same).count() > 1 {
            return problem(format!("gpus[{i}]"), &gpu.uuid, "slot or minor is used twice");
        }
    }
    let mut order = machine.nvml_slots();
    order.sort_unstable();
    let mut slots: Vec<u32> = machine.gpus.iter().map(Gpu::slot).collect();
    slots.sort_unstable();
    if order != slots {
        return problem("nvml_order".into(), "nvml_order", "must name each slot once");
    }
    Ok(())
}

fn one_gpu(machine: &Machine, i: usize, gpu: &Gpu) -> Result<(), Problem> {
    let missing = [
        (gpu.name.is_empty(), "name"),
        (gpu.memory.total_mib == 0, "memory.total_mib"),
        (gpu.power.default_limit_mw == 0, "power.default_limit_mw"),
        (gpu.pcie.max_width == 0, "pcie.max_width"),
    ];
    if let Some((_, key)) = missing.iter().find(|(missing, _)| *missing) {
        return problem(format!("gpus[{i}].{key}"), &gpu.uuid, "is needed, here or in the model");
    }
    let ends =
        machine.nvswitches.iter().map(|switch| switch.pci).chain(machine.gpus.iter().map(|gpu| gpu.pci));
    let ends: HashSet<_> = ends.collect();
    for group in &gpu.nvlink.links {
        if !ends.contains(&group.to) {
            let message = format!("{} is no GPU or NVSwitch of the machine", group.to);
            return problem(format!("gpus[{i}].nvlink.links"), group.to, message);
        }
    }
    let mut links: Vec<u32> = gpu.nvlink.links.iter().flat_map(|group| group.links.iter()).collect();
    links.sort_unstable();
    if !(0..).zip(&links).all(|(number, link)| number == *link) {
        return problem(format!("gpus[{i}].nvlink.links"), "", "link numbers must run from 0, each once");
    }
    Ok(())
}
