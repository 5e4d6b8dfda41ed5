//! CPUs and memory near a GPU.

use super::exported;
use super::pointers::Out;
use crate::code::Code;
use crate::engine::{Answer, Device, near_cpus, socket_cpus};
use crate::scenario::CpuList;

/// Bits of one word of NVML's masks, `unsigned long`.
const WORD_BITS: u32 = u64::BITS;

/// Fills a mask of `words` words: all cleared, then the bits that fit. Slurm asks for more words than CPUs exist.
fn put_mask(mask: Out<u64>, words: u32, bits: impl Iterator<Item = u32>) -> Answer<()> {
    if words == 0 {
        return Err(Code::INVALID_ARGUMENT);
    }
    let mut all = vec![0_u64; words as usize];
    for bit in bits {
        if let Some(word) = all.get_mut((bit / WORD_BITS) as usize) {
            *word |= 1 << (bit % WORD_BITS);
        }
    }
    mask.fill(&all)
}

/// What is left of a CPU list for the calling process: NVML leaves out what its CPU set does, which makes the mask of
/// a far GPU empty in a confined step.
fn within<'a>(device: &'a Device<'_>, cpus: &'a CpuList) -> impl Iterator<Item = u32> + 'a {
    let own = device.script.caller_cpus();
    cpus.iter().filter(move |cpu| own.is_none_or(|own| own.0.contains(cpu)))
}

/// `nvmlAffinityScope_t`.
const SCOPE_NODE: u32 = 0;
const SCOPE_SOCKET: u32 = 1;

exported! {
    /// `nvmlDeviceGetCpuAffinity`.
    gpu nvmlDeviceGetCpuAffinity(words: u32, mask: Out<u64>) |device|
        put_mask(mask, words, within(device, &near_cpus(device.machine, device.gpu)));

    /// `nvmlDeviceGetCpuAffinityWithinScope`.
    gpu nvmlDeviceGetCpuAffinityWithinScope(words: u32, mask: Out<u64>, scope: u32) |device| {
        let near = near_cpus(device.machine, device.gpu);
        match scope {
            SCOPE_NODE => put_mask(mask, words, within(device, &near)),
            SCOPE_SOCKET => put_mask(mask, words, within(device, &socket_cpus(device.machine, &near))),
            _ => Err(Code::INVALID_ARGUMENT),
        }
    };

    /// `nvmlDeviceGetMemoryAffinity`: NUMA nodes whose CPUs are near.
    gpu nvmlDeviceGetMemoryAffinity(words: u32, mask: Out<u64>, scope: u32) |device| {
        let machine = device.machine;
        let near = near_cpus(machine, device.gpu);
        let cpus = match scope {
            SCOPE_NODE => near,
            SCOPE_SOCKET => socket_cpus(machine, &near),
            _ => return Err(Code::INVALID_ARGUMENT),
        };
        let nodes = machine.numa.iter().filter(|node| !node.cpus.0.is_disjoint(&cpus.0));
        put_mask(mask, words, nodes.map(|node| node.node))
    };

    /// `nvmlDeviceGetNumaNodeId`: of the GPU's own memory, so only where that is a NUMA node.
    gpu nvmlDeviceGetNumaNodeId(node: Out<u32>) |device|
        node.put(device.whole()?.memory_numa_node.ok_or(Code::NOT_SUPPORTED)?);
}
