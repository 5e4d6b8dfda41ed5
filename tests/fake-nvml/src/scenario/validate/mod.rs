//! What the schema cannot say: ids are unique, addresses exist, lists fit together.

mod gpu;

use std::collections::HashSet;
use std::fmt::Display;

use super::{Machine, NumaNode, PciAddress};

/// What is wrong, and with which key.
#[derive(Debug)]
pub(super) struct Problem {
    /// `gpus[3].pci`.
    pub(super) key: String,
    /// What is wrong, with the values that are allowed where they can be listed.
    pub(super) message: String,
}

/// More is a typing error, and would eat the memory of the test machine.
const MAX_CPUS: u32 = 1 << 16;

/// First contradiction of a loaded machine.
pub(super) fn check(machine: &Machine) -> Result<(), Problem> {
    essentials(machine)?;
    numa(machine)?;
    ports(machine)?;
    plugs(machine)?;
    unique_addresses(machine)?;
    nics(machine)?;
    gpu::check(machine)
}

fn problem<T>(key: impl Into<String>, message: impl Into<String>) -> Result<T, Problem> {
    Err(Problem { key: key.into(), message: message.into() })
}

/// `a, b, c`, for messages.
fn listed(values: impl Iterator<Item = impl Display>) -> String {
    let all: Vec<_> = values.map(|value| value.to_string()).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

fn essentials(machine: &Machine) -> Result<(), Problem> {
    let cpu = machine.cpu;
    let missing = [
        (machine.name.is_empty(), "name"),
        (machine.driver.version.is_empty(), "driver.version"),
        (machine.driver.cuda == 0, "driver.cuda"),
        (cpu.sockets == 0, "cpu.sockets"),
        (cpu.cores_per_socket == 0, "cpu.cores_per_socket"),
        (cpu.threads_per_core == 0, "cpu.threads_per_core"),
        (cpu.cores_per_l3 == 0, "cpu.cores_per_l3"),
        (machine.numa.is_empty(), "numa"),
    ];
    if let Some((_, key)) = missing.into_iter().find(|(missing, _)| *missing) {
        return problem(key, "is needed, and not 0");
    }
    if cpu.count() > MAX_CPUS {
        return problem(
            "cpu.sockets",
            format!("{} CPUs in all; at most {MAX_CPUS} are rendered", cpu.count()),
        );
    }
    wrong_symbol(machine)
}

fn wrong_symbol(machine: &Machine) -> Result<(), Problem> {
    let wrong = machine.driver.missing_symbols.iter().position(|name| !name.starts_with("nvml"));
    match wrong {
        Some(i) => problem(
            format!("driver.missing_symbols[{i}]"),
            "is no function of NVML: wanted is an exported name, as nvmlDeviceGetMemoryInfo_v2",
        ),
        None => Ok(()),
    }
}

fn numa(machine: &Machine) -> Result<(), Problem> {
    let last = machine.cpu.count() - 1;
    let mut seen = HashSet::new();
    for (i, NumaNode { node, cpus, distances, .. }) in machine.numa.iter().enumerate() {
        if machine.numa[..i].iter().any(|other| other.node >= *node) {
            // Distances are in the order of the list, and the kernel's in that of the numbers.
            let message = format!("node {node} is described twice or after a higher one");
            return problem(format!("numa[{i}].node"), message);
        }
        if distances.len() != machine.numa.len() {
            let wanted = machine.numa.len();
            let message =
                format!("has {}, needs {wanted}: one for each node, or [numa_distance]", distances.len());
            return problem(format!("numa[{i}].distances"), message);
        }
        for cpu in cpus.iter() {
            if cpu > last {
                let message = format!("CPU {cpu} does not exist; CPUs are 0-{last}");
                return problem(format!("numa[{i}].cpus"), message);
            }
            if !seen.insert(cpu) {
                return problem(format!("numa[{i}].cpus"), format!("CPU {cpu} is in two nodes"));
            }
        }
    }
    match (0..=last).find(|cpu| !seen.contains(cpu)) {
        Some(cpu) => problem("numa", format!("CPU {cpu} of 0-{last} is in no node")),
        None => Ok(()),
    }
}

fn ports(machine: &Machine) -> Result<(), Problem> {
    for (i, port) in machine.root_ports.iter().enumerate() {
        let known =
            u32::try_from(port.numa).map_or(port.numa == -1, |node| machine.numa_node(node).is_some());
        if !known {
            let nodes = listed(machine.numa.iter().map(|node| node.node));
            let message = format!("there is no node {}; nodes are {nodes}, -1 = not said", port.numa);
            return problem(format!("root_ports[{i}].numa"), message);
        }
        let devices = (machine.gpus.iter().map(|gpu| gpu.pci))
            .chain(machine.nics.iter().map(|nic| nic.pci))
            .chain(machine.nvswitches.iter().map(|switch| switch.pci));
        if port.bare && !devices.into_iter().any(|pci| pci == port.at) {
            let message = format!("bare, but no GPU, NIC or NVSwitch has the address {}", port.at);
            return problem(format!("root_ports[{i}].at"), message);
        }
    }
    Ok(())
}

/// Whatever is plugged in is plugged into a port, and a bare place holds its own device only.
fn plugs(machine: &Machine) -> Result<(), Problem> {
    type Plug = (String, PciAddress, Option<PciAddress>);
    let mut plugs: Vec<Plug> = Vec::new();
    let named = |list: &str, i: usize| format!("{list}[{i}].under");
    let (switches, nics) = (machine.switches.iter().enumerate(), machine.nics.iter().enumerate());
    let nvswitches = machine.nvswitches.iter().enumerate();
    plugs.extend(switches.map(|(i, s)| (named("switches", i), s.under, None)));
    plugs.extend(nvswitches.filter_map(|(i, s)| Some((named("nvswitches", i), s.under?, Some(s.pci)))));
    plugs.extend(nics.map(|(i, n)| (named("nics", i), n.under, Some(n.pci))));
    plugs.extend(machine.gpus.iter().enumerate().map(|(i, g)| (named("gpus", i), g.under, Some(g.pci))));
    let bare = |port| machine.root_ports.iter().any(|root| root.bare && root.at == port);
    let wrong =
        |(_, port, own): &Plug| machine.ports_above(*port).is_empty() || (bare(*port) && Some(*port) != *own);
    match plugs.into_iter().find(wrong) {
        Some((key, port, _)) => {
            let ports = listed(machine.ports().filter(|&port| !bare(port)));
            problem(key, format!("{port} is no root port or switch port; ports are {ports}"))
        }
        None => Ok(()),
    }
}

fn unique_addresses(machine: &Machine) -> Result<(), Problem> {
    let mut all: Vec<(String, PciAddress)> = Vec::new();
    let roots = machine.root_ports.iter().enumerate().filter(|(_, port)| !port.bare);
    all.extend(roots.map(|(i, port)| (format!("root_ports[{i}].at"), port.at)));
    for (i, switch) in machine.switches.iter().enumerate() {
        all.push((format!("switches[{i}].up"), switch.up));
        all.extend(switch.down.iter().enumerate().map(|(j, at)| (format!("switches[{i}].down[{j}]"), *at)));
    }
    let nvswitches = machine.nvswitches.iter().enumerate();
    all.extend(nvswitches.map(|(i, switch)| (format!("nvswitches[{i}].pci"), switch.pci)));
    all.extend(machine.nics.iter().enumerate().map(|(i, nic)| (format!("nics[{i}].pci"), nic.pci)));
    all.extend(machine.gpus.iter().enumerate().map(|(i, gpu)| (format!("gpus[{i}].pci"), gpu.pci)));
    let mut seen = HashSet::new();
    match all.into_iter().find(|(_, address)| !seen.insert(*address)) {
        Some((key, address)) => problem(key, format!("{address} is used twice")),
        None => Ok(()),
    }
}

/// What the kernel prints for a port.
const LINK_LAYERS: [&str; 3] = ["InfiniBand", "Ethernet", "Unknown"];

fn nics(machine: &Machine) -> Result<(), Problem> {
    for (i, nic) in machine.nics.iter().enumerate() {
        if !LINK_LAYERS.contains(&nic.link_layer.as_str()) {
            let message = format!("'{}' is none of {}", nic.link_layer, listed(LINK_LAYERS.iter()));
            return problem(format!("nics[{i}].link_layer"), message);
        }
        if machine.nics[..i].iter().any(|other| other.name == nic.name) {
            return problem(format!("nics[{i}].name"), format!("'{}' is used twice", nic.name));
        }
    }
    Ok(())
}
