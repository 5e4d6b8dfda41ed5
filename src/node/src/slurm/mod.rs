//! Slurm, seen from a node: the environment of a prolog or epilog, gres.conf, and scontrol.

mod env;
mod gres;
mod scontrol;

pub use env::JobEnv;
pub use gres::{read_gres_conf, read_slurm_conf_gpus};
pub use scontrol::{Scontrol, find_bin};
