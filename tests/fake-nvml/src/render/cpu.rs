//! /sys/devices/system/{cpu,node}.

use std::collections::HashMap;

use super::Tree;
use crate::scenario::{Cpu, CpuList, Machine, NumaNode, ScenarioError};

pub(super) fn render(machine: &Machine, tree: &mut Tree) -> Result<(), ScenarioError> {
    cpus(machine.cpu, tree)?;
    nodes(machine, tree)
}

fn cpus(cpu: Cpu, tree: &mut Tree) -> Result<(), ScenarioError> {
    let all: CpuList = (0..cpu.count()).collect();
    for name in ["online", "possible", "present"] {
        tree.file(&format!("sys/devices/system/cpu/{name}"), &all)?;
    }
    let same = |group: &dyn Fn(u32) -> u32| -> Vec<String> {
        let groups = all.iter().map(group).max().unwrap_or(0) + 1;
        let list = |number| all.iter().filter(|&cpu| group(cpu) == number).collect::<CpuList>().to_string();
        (0..groups).map(list).collect()
    };
    let cores = same(&|number| cpu.core_of(number));
    let packages = same(&|number| cpu.socket_of(number));
    let caches = same(&|number| l3_of(cpu, number));
    let mut first_of_core = HashMap::new();
    let mut first_of_cache = HashMap::new();
    for number in all.iter() {
        let folder = format!("sys/devices/system/cpu/cpu{number}");
        // Threads of one core, and cores of one cache, have files with the same text: links instead of files
        // save most of the time that a tree takes.
        let first = *first_of_cache.entry(l3_of(cpu, number)).or_insert(number);
        if first == number {
            tree.file(&format!("{folder}/cache/index3/level"), 3)?;
            tree.file(
                &format!("{folder}/cache/index3/shared_cpu_list"),
                &caches[l3_of(cpu, number) as usize],
            )?;
        } else {
            tree.link(&format!("{folder}/cache"), &format!("../cpu{first}/cache"))?;
        }
        let first = *first_of_core.entry(cpu.core_of(number)).or_insert(number);
        if first != number {
            tree.link(&format!("{folder}/topology"), &format!("../cpu{first}/topology"))?;
            continue;
        }
        let core = &cores[cpu.core_of(number) as usize];
        let package = cpu.socket_of(number);
        tree.file(&format!("{folder}/topology/physical_package_id"), package)?;
        tree.file(&format!("{folder}/topology/core_id"), cpu.core_of(number) % cpu.cores_per_socket)?;
        tree.file(&format!("{folder}/topology/thread_siblings_list"), core)?;
        tree.file(&format!("{folder}/topology/core_cpus_list"), core)?;
        tree.file(&format!("{folder}/topology/package_cpus_list"), &packages[package as usize])?;
    }
    Ok(())
}

/// Machine-wide number of a CPU's level-3 cache. Caches never span sockets.
fn l3_of(cpu: Cpu, number: u32) -> u32 {
    let per_socket = cpu.cores_per_socket.div_ceil(cpu.cores_per_l3);
    cpu.socket_of(number) * per_socket + cpu.core_of(number) % cpu.cores_per_socket / cpu.cores_per_l3
}

fn nodes(machine: &Machine, tree: &mut Tree) -> Result<(), ScenarioError> {
    let all: CpuList = machine.numa.iter().map(|node| node.node).collect();
    let with = |what: fn(&NumaNode) -> bool| -> CpuList {
        machine.numa.iter().filter(|node| what(node)).map(|node| node.node).collect()
    };
    let (with_cpus, with_memory) = (with(|node| !node.cpus.0.is_empty()), with(|node| node.memory_mib > 0));
    let lists = [("online", &all), ("possible", &all), ("has_memory", &with_memory), ("has_cpu", &with_cpus)];
    for (name, list) in lists {
        tree.file(&format!("sys/devices/system/node/{name}"), list)?;
    }
    for node in &machine.numa {
        let folder = format!("sys/devices/system/node/node{}", node.node);
        let distances: Vec<_> = node.distances.iter().map(u32::to_string).collect();
        tree.file(&format!("{folder}/cpulist"), &node.cpus)?;
        tree.file(&format!("{folder}/distance"), distances.join(" "))?;
        let (total, number) = (node.memory_mib * 1024, node.node);
        // A quiet machine: most of it free.
        let free = total / 100 * 95;
        let line = |name: &str, kib: u64| format!("Node {number} {:<15}{kib:>10} kB", format!("{name}:"));
        let lines = [line("MemTotal", total), line("MemFree", free), line("MemUsed", total - free)];
        tree.file(&format!("{folder}/meminfo"), lines.join("\n"))?;
    }
    Ok(())
}
