//! What gpuward's integration tests and its demo share.

pub mod cluster;
pub mod sim;
pub mod stack;
