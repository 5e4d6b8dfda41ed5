//! Machines from elsewhere as scenarios: a snapshot of a real node, the text of `nvidia-smi topo -m`, a table of facts.
//!
//! What the source does not say is filled in and told in the notes, never in silence.

mod cpus;
pub mod facts;
mod of_snapshot;
mod of_topology;
mod tree;

pub use of_snapshot::of_snapshot;
pub use of_topology::of_topology;

use nvidia_ml::scenario::Machine;

/// A machine and what was guessed, changed or left out.
#[derive(Debug, Clone)]
pub struct Imported {
    /// The machine.
    pub machine: Machine,
    /// For people.
    pub notes: Vec<String>,
}

impl Imported {
    /// The machine as a scenario file that needs no other, the notes as comments on top.
    pub fn to_toml(&self) -> String {
        let notes: String = self.notes.iter().map(|note| format!("# {note}\n")).collect();
        format!("{notes}{}", self.machine.flattened())
    }
}

/// An address of the other crate's kind.
fn address(pci: gpuward_core::model::PciAddress) -> nvidia_ml::scenario::PciAddress {
    nvidia_ml::scenario::PciAddress {
        domain: pci.domain,
        bus: pci.bus,
        device: pci.device,
        function: pci.function,
    }
}

fn cpu_list(cpus: &gpuward_core::model::CpuSet) -> nvidia_ml::scenario::CpuList {
    cpus.iter().collect()
}
