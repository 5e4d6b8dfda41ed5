//! What the probe is asked, and what it answers: one JSON text a line.

use gpuward_core::model::detail::{GpuDetail, PeerReading};
use gpuward_core::model::snapshot::GpuTarget;
use gpuward_core::model::{GpuReading, NodeReading};
use serde::{Deserialize, Serialize};

/// What the probe is to read.
#[derive(Debug, Clone)]
pub struct Request {
    /// The library's name or path.
    pub library: String,
    /// The GPUs to open. No other is opened: it may be another job's.
    pub targets: Vec<GpuTarget>,
    /// At leisure: read everything, not only what a prolog needs.
    pub detail: bool,
    /// With `detail`: also what is slow or disturbs, such as the InfoROM's check and the pairs of GPUs.
    pub deep: bool,
}

/// One line of the probe's answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// NVML answered, or said why not.
    Node(NodeReading),
    /// One GPU is read.
    Gpu {
        /// Its place among the request's targets.
        target: usize,
        /// What was read.
        reading: Box<GpuReading>,
    },
    /// The rest about a GPU that was read before.
    Detail {
        /// Its place among the request's targets.
        target: usize,
        /// What was read.
        detail: Box<GpuDetail>,
    },
    /// Peer-to-peer status of a GPU whose detail was told before.
    Peers {
        /// Its place among the request's targets.
        target: usize,
        /// Towards the others.
        peers: Vec<PeerReading>,
    },
    /// Nothing else will come.
    End,
}
