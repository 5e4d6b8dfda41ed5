//! The pure core of gpuward: what is fit, where it runs, what NCCL must know, what the job used.
//!
//! Nothing here does I/O, asks for the time, the host name or the environment: whoever calls hands them in.
//! So every rule can be tested with whole machines as data.
//!
//! `model` holds the nouns, `config` reads gpuward.toml, `health` turns readings into findings, `drain` turns
//! findings into a verdict and a reason, `affinity` places tasks, `nccl` reads NCCL's environment,
//! `account` turns two counter readings into a job record.
#![forbid(unsafe_code)]

pub mod account;
pub mod affinity;
pub mod config;
pub mod drain;
pub mod health;
pub mod model;
pub mod nccl;
pub mod slurm_conf;
pub mod text;
