//! The edges of gpuward and its use cases.
//!
//! Everything that touches the outside is here, one folder for each kind: `nvml` (only ever in a child process with a
//! deadline), `sysfs`, `kmsg`, `cgroup`, `process`, `slurm`, `state`, `log`. Readers take root paths, so that whole
//! machines can be simulated. `flow` holds the use cases, `supervisor` the small program that slurmd waits for.
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod cgroup;
pub mod clock;
pub mod config;
mod error;
pub mod files;
pub mod flow;
pub mod kmsg;
pub mod log;
pub mod nvml;
pub mod process;
pub mod slurm;
pub mod state;
pub mod supervisor;
pub mod sysfs;
pub mod terminal;

pub use error::EdgeError;
