//! The nouns: what a node is made of and what was read from it.

pub mod cpuset;
pub mod detail;
pub mod gpu;
pub mod gpu_map;
pub mod gres_conf;
pub mod hostlist;
pub mod ids;
pub mod job;
pub mod node_gres;
pub mod platform;
pub mod reading;
pub mod snapshot;
pub mod snapshot_file;
pub mod topology;

pub use cpuset::CpuSet;
pub use gpu::{Counters, GpuReading, NodeReading};
pub use ids::{GpuUuid, GresIndex, JobId, PciAddress};
pub use job::{JobGpu, JobState};
pub use reading::Reading;
pub use snapshot::Snapshot;
pub use snapshot_file::SnapshotFile;
pub use topology::Topology;
