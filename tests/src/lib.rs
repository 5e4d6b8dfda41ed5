//! What gpuward's integration tests and its demo share.

pub mod cluster;
pub mod fuzz;
pub mod import;
pub mod measure;
pub mod readers;
pub mod sim;
pub mod stack;
