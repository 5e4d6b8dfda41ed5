//! gpuward's prolog: what slurmd starts before a job that has GPUs. See `gpuward_node::supervisor`.

use gpuward_node::supervisor::{Kind, main as supervise};
use std::process::ExitCode;

fn main() -> ExitCode {
    supervise(Kind::Prolog)
}
