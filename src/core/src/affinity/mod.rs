//! Placement: which CPUs lie beside which GPUs.

use crate::model::CpuSet;

/// What is known about the place of one GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// NUMA node, where firmware says it.
    pub numa_node: Option<u32>,
    /// CPUs beside the GPU; `None` where nothing is known, which is not the same as far away.
    pub cpus: Option<CpuSet>,
}

/// The CPUs of `allowed` that lie beside any of the GPUs.
///
/// `None` where the place of a GPU is unknown or where none of its CPUs is allowed: then every allowed CPU is as good
/// as any other, and a mask would only do harm.
pub fn beside(gpus: &[Place], allowed: &CpuSet) -> Option<CpuSet> {
    let mut near = CpuSet::default();
    for gpu in gpus {
        near = near.union(gpu.cpus.as_ref()?);
    }
    let usable = near.intersection(allowed);
    if usable.is_empty() { None } else { Some(usable) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(cpus: &str) -> Place {
        Place { numa_node: None, cpus: Some(cpus.parse().unwrap()) }
    }

    #[test]
    fn several_gpus_give_the_union_of_their_cpus_within_what_is_allowed() {
        let allowed: CpuSet = "0-7".parse().unwrap();
        let near = beside(&[place("0-3"), place("6-9")], &allowed).unwrap();
        assert_eq!(near.to_string(), "0-3,6-7");
    }

    #[test]
    fn an_unknown_place_or_no_overlap_gives_no_mask() {
        let allowed: CpuSet = "0-7".parse().unwrap();
        assert_eq!(beside(&[place("0-3"), Place { numa_node: None, cpus: None }], &allowed), None);
        assert_eq!(beside(&[place("8-9")], &allowed), None);
        assert_eq!(beside(&[], &allowed), None);
    }
}
