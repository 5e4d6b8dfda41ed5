//! Everything known about a node at one moment.

use super::{GpuReading, NodeReading};
use serde::{Deserialize, Serialize};

/// What was read from a node, before anything is judged.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    pub node: NodeReading,
    pub gpus: Vec<GpuReading>,
}
