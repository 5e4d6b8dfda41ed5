//! CPUs and NUMA nodes of a machine of which only the CPUs beside its GPUs are known.

use gpuward_core::model::topology::{Path, PathClass};
use gpuward_core::model::{CpuSet, Topology};
use nvidia_ml::scenario::{Cpu, CpuNumbering, NumaNode};
use std::collections::{BTreeMap, BTreeSet};

/// Distances that firmware commonly states: within a socket, between sockets. A listing says none.
const WITHIN_SOCKET: u32 = 12;
const BETWEEN_SOCKETS: u32 = 32;

/// Memory of a node with CPUs, and of one of GPU memory: ours.
const NODE_MIB: u64 = 262_144;
const GPU_NODE_MIB: u64 = 95_000;

/// CPUs, NUMA nodes, and where each device sits.
#[derive(Debug)]
pub(super) struct Places {
    pub cpu: Cpu,
    pub numa: Vec<NumaNode>,
    /// NUMA node of each device, GPUs first.
    pub nodes: Vec<Option<u32>>,
    pub notes: Vec<String>,
}

/// What the affinity of the GPUs and the distances between devices say.
pub(super) fn places(topology: &Topology) -> Places {
    let mut notes = Vec::new();
    let mut by_node = BTreeMap::new();
    let mut nodes = gpu_nodes(topology, &mut by_node, &mut notes);
    let cores = second_threads(by_node.values());
    let highest = by_node.values().flat_map(CpuSet::iter).max().unwrap_or(7);
    let count = cores.map_or(highest + 1, |cores| 2 * cores.max(highest / 2));
    fill_up(&mut by_node, count, cores, &mut notes);
    let memory_only = memory_nodes(topology, &by_node);
    nodes.extend(vec![None; topology.nics.len()]);
    spread(topology, &mut nodes);
    let cpu = cpu(&by_node, count, cores);
    let numa = numa(cpu, &by_node, &memory_only);
    if by_node.values().map(CpuSet::len).collect::<BTreeSet<_>>().len() > 1 {
        notes.push("the NUMA nodes differ in size: the listing may have been taken inside a job".to_owned());
    }
    if numa.len() > 1 {
        notes.push(format!(
            "NUMA distances are ours: {WITHIN_SOCKET} within a socket, {BETWEEN_SOCKETS} between sockets"
        ));
    }
    Places { cpu, numa, nodes, notes }
}

/// NUMA node of each GPU, and the CPUs of each node that has a GPU.
fn gpu_nodes(
    topology: &Topology,
    by_node: &mut BTreeMap<u32, CpuSet>,
    notes: &mut Vec<String>,
) -> Vec<Option<u32>> {
    let lists: BTreeSet<&CpuSet> = topology.gpus.iter().filter_map(|gpu| gpu.cpus.as_ref()).collect();
    let named = topology.gpus.iter().any(|gpu| !gpu.numa_nodes.is_empty());
    let neighbours = groups(topology, PathClass::Node);
    let known = |device: &usize| topology.gpus.get(*device).is_some_and(|gpu| gpu.cpus.is_some());
    let with_gpus: Vec<&Vec<usize>> = neighbours.iter().filter(|group| group.iter().any(known)).collect();
    if named {
        for gpu in &topology.gpus {
            if let (Some(&node), Some(cpus)) = (gpu.numa_nodes.first(), &gpu.cpus) {
                by_node.entry(node).or_insert_with(|| cpus.clone());
            }
        }
        return topology.gpus.iter().map(|gpu| gpu.numa_nodes.first().copied()).collect();
    }
    if lists.len() == 1 && with_gpus.len() > 1 && with_gpus.iter().any(|group| group.len() > 1) {
        notes.push(
            "the CPU affinity is the same for all GPUs, but the distances put them on several NUMA nodes: the distances \
             are believed"
                .to_owned(),
        );
        let list = lists.first().map(|list| (*list).clone()).unwrap_or_default();
        by_node.insert(0, list);
        let of = |gpu: usize| with_gpus.iter().position(|group| group.contains(&gpu));
        return (0..topology.gpus.len())
            .map(|gpu| of(gpu).and_then(|node| u32::try_from(node).ok()))
            .collect();
    }
    notes.push("no NUMA column: one node for each list of CPUs, in the order of their first CPU".to_owned());
    let mut ordered: Vec<&CpuSet> = lists.into_iter().collect();
    ordered.sort_by_key(|list| list.iter().next());
    for (node, list) in (0..).zip(&ordered) {
        by_node.insert(node, (*list).clone());
    }
    let of = |list: &CpuSet| ordered.iter().position(|known| *known == list);
    let node = |gpu: &gpuward_core::model::topology::PlacedGpu| u32::try_from(of(gpu.cpus.as_ref()?)?).ok();
    topology.gpus.iter().map(node).collect()
}

/// Number of cores where every list is two runs of equal length, so far apart: the second threads come after all cores.
fn second_threads<'a>(lists: impl Iterator<Item = &'a CpuSet>) -> Option<u32> {
    let mut apart = None;
    for list in lists {
        let cpus: Vec<u32> = list.iter().collect();
        let (first, second) = cpus.split_at(cpus.len() / 2);
        let gap = second.first()?.checked_sub(*first.first()?)?;
        let same = first.iter().zip(second).all(|(low, high)| low + gap == *high);
        let contiguous = first.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        if first.len() != second.len() || !same || !contiguous || (gap as usize) < first.len() {
            return None;
        }
        // One run split in the middle is no pair of runs.
        if gap as usize == first.len() || apart.is_some_and(|known| known != gap) {
            return None;
        }
        apart = Some(gap);
    }
    apart
}

/// CPUs that no GPU is beside go to the node numbers that are missing, in order.
fn fill_up(by_node: &mut BTreeMap<u32, CpuSet>, count: u32, cores: Option<u32>, notes: &mut Vec<String>) {
    let covered: BTreeSet<u32> = by_node.values().flat_map(CpuSet::iter).collect();
    let first_threads = cores.unwrap_or(count);
    let free: Vec<u32> = (0..first_threads).filter(|cpu| !covered.contains(cpu)).collect();
    if free.is_empty() {
        return;
    }
    let highest = by_node.keys().max().copied();
    let mut missing: Vec<u32> =
        (0..highest.unwrap_or(0)).filter(|node| !by_node.contains_key(node)).collect();
    if missing.is_empty() {
        missing.push(highest.map_or(0, |node| node + 1));
    }
    let names: Vec<String> = missing.iter().map(ToString::to_string).collect();
    notes.push(format!("CPUs beside no GPU were put on NUMA nodes {}", names.join(", ")));
    if let Some(stride) = by_node.values().next().and_then(stride) {
        return fill_up_strided(by_node, count, stride, &missing);
    }
    let each = free.len().div_ceil(missing.len());
    for (node, part) in missing.iter().zip(free.chunks(each)) {
        let second = part.iter().filter_map(|cpu| Some(cpu + cores?));
        by_node.insert(*node, part.iter().copied().chain(second).collect());
    }
}

/// The distance between neighbours of a list like 6,14,22,30.
fn stride(list: &CpuSet) -> Option<u32> {
    let cpus: Vec<u32> = list.iter().collect();
    let step = cpus.get(1)? - cpus.first()?;
    (step > 1 && cpus.windows(2).all(|pair| pair[0] + step == pair[1])).then_some(step)
}

/// CPUs are dealt over the sockets in turn, so the lower half of the nodes has the even ones.
fn fill_up_strided(by_node: &mut BTreeMap<u32, CpuSet>, count: u32, stride: u32, missing: &[u32]) {
    let half = (u32::try_from(by_node.len() + missing.len()).unwrap_or(2)) / 2;
    let taken: BTreeSet<u32> =
        by_node.values().filter_map(|list| Some(list.iter().next()? % stride)).collect();
    let mut free: Vec<u32> = (0..stride).filter(|residue| !taken.contains(residue)).collect();
    for &node in missing {
        let socket = u32::from(node >= half);
        let fits = free.iter().position(|residue| residue % 2 == socket).unwrap_or(0);
        if free.is_empty() {
            return;
        }
        let residue = free.remove(fits);
        by_node.insert(node, (residue..count).step_by(stride as usize).collect());
    }
}

/// Nodes that are named but have no CPUs: GPU memory.
fn memory_nodes(topology: &Topology, by_node: &BTreeMap<u32, CpuSet>) -> BTreeSet<u32> {
    let gpus = topology.gpus.iter();
    let named = gpus.flat_map(|gpu| gpu.numa_nodes.iter().copied().chain(gpu.memory_node));
    named.filter(|node| !by_node.contains_key(node)).collect()
}

/// A device without a node of its own sits where one at NODE or nearer sits.
fn spread(topology: &Topology, nodes: &mut [Option<u32>]) {
    for group in groups(topology, PathClass::Node) {
        let known = group.iter().find_map(|&device| nodes[device]);
        for device in group {
            nodes[device] = nodes[device].or(known);
        }
    }
}

/// Devices that are joined by paths of this class or nearer.
pub(super) fn groups(topology: &Topology, class: PathClass) -> Vec<Vec<usize>> {
    let count = topology.paths.len();
    let near = |a: usize, b: usize| match topology.path(a, b) {
        Path::Pcie(found) | Path::NvLink { pcie: Some(found), .. } => found <= class,
        _ => false,
    };
    let mut group_of: Vec<Option<usize>> = vec![None; count];
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for start in 0..count {
        if group_of[start].is_some() {
            continue;
        }
        let number = groups.len();
        let mut open = vec![start];
        let mut members = Vec::new();
        group_of[start] = Some(number);
        while let Some(device) = open.pop() {
            members.push(device);
            for other in (0..count).filter(|&other| near(device, other)) {
                if group_of[other].is_none() {
                    group_of[other] = Some(number);
                    open.push(other);
                }
            }
        }
        members.sort_unstable();
        groups.push(members);
    }
    groups
}

fn cpu(by_node: &BTreeMap<u32, CpuSet>, count: u32, cores: Option<u32>) -> Cpu {
    let nodes = u32::try_from(by_node.len()).unwrap_or(1).max(1);
    let threads_per_core = if cores.is_some() { 2 } else { 1 };
    let all_cores = count / threads_per_core;
    // Two sockets where the nodes can be halved; such a listing does not say.
    let sizes: BTreeSet<usize> = by_node.values().map(CpuSet::len).collect();
    let sockets = if nodes % 2 == 0 && all_cores % 2 == 0 && sizes.len() == 1 { 2 } else { 1 };
    let interleaved = sockets > 1 && by_node.values().all(|list| stride(list).is_some());
    let cores_per_socket = all_cores / sockets;
    let per_node = all_cores / nodes;
    Cpu {
        sockets,
        cores_per_socket,
        threads_per_core,
        cores_per_l3: per_node.clamp(1, cores_per_socket.max(1)),
        numbering: if interleaved { CpuNumbering::SocketsInterleaved } else { CpuNumbering::ThreadsLast },
        ..Cpu::default()
    }
}

fn numa(cpu: Cpu, by_node: &BTreeMap<u32, CpuSet>, memory_only: &BTreeSet<u32>) -> Vec<NumaNode> {
    let socket = |list: &CpuSet| list.iter().next().map(|first| cpu.socket_of(first));
    let mut all: Vec<(u32, CpuSet)> = by_node.iter().map(|(node, cpus)| (*node, cpus.clone())).collect();
    all.extend(memory_only.iter().map(|node| (*node, CpuSet::default())));
    all.sort_by_key(|(node, _)| *node);
    let distance = |a: &(u32, CpuSet), b: &(u32, CpuSet)| match (socket(&a.1), socket(&b.1)) {
        _ if a.0 == b.0 => 10,
        (Some(left), Some(right)) if left == right => WITHIN_SOCKET,
        _ => BETWEEN_SOCKETS,
    };
    let node = |own: &(u32, CpuSet)| NumaNode {
        node: own.0,
        cpus: super::cpu_list(&own.1),
        memory_mib: if own.1.is_empty() { GPU_NODE_MIB } else { NODE_MIB },
        distances: all.iter().map(|other| distance(own, other)).collect(),
    };
    all.iter().map(node).collect()
}
