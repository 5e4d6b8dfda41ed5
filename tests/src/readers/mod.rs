//! Two more ways to read a machine, to prove the probe right: through nvml-wrapper's safe calls, and through bare C calls.
//!
//! Neither shares code with the probe, nor with the other: what all three say alike is what NVML says. Both are given the
//! library's path and PCI addresses, and make of them the model's readings.

pub mod diff;
pub mod raw;
pub mod wrapper;

use gpuward_core::model::{GpuReading, NodeReading};

/// What a reader made of a machine.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Seen {
    /// The node as a whole.
    pub node: NodeReading,
    /// One entry for each address, in their order.
    pub gpus: Vec<GpuReading>,
}
