//! What slurmd tells a prolog or an epilog.
//!
//! Everything but the node name and the job id is optional: releases differ, and on some paths slurmd has no credential
//! to read from. Texts are bounded; none of them is ever run or expanded.

use gpuward_core::model::JobId;
use std::collections::HashMap;
use std::ffi::OsString;

/// No value that we use is longer; a longer one is cut.
const MAX_VALUE_BYTES: usize = 4096;

/// The environment of a prolog or epilog, as far as gpuward uses it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobEnv {
    /// SLURM_JOB_ID.
    pub job_id: Option<JobId>,
    /// SLURMD_NODENAME.
    pub node: String,
    /// SLURM_CLUSTER_NAME.
    pub cluster: Option<String>,
    /// SLURM_CONF: the path of slurm.conf.
    pub slurm_conf: Option<String>,
    /// SLURM_JOB_GPUS: GRES indices (22.05 and newer).
    pub job_gpus: Option<String>,
    /// CUDA_VISIBLE_DEVICES: indices, GPU UUIDs or MIG UUIDs.
    pub visible_devices: Option<String>,
    /// SLURM_JOB_RESTART_COUNT (22.05 and newer).
    pub restart_count: Option<u32>,
    /// SLURM_JOB_SLUID (25.11 and newer).
    pub sluid: Option<String>,
    /// SLURM_JOB_UID.
    pub uid: Option<u32>,
    /// SLURM_JOB_USER.
    pub user: Option<String>,
    /// SLURM_JOB_ACCOUNT.
    pub account: Option<String>,
    /// SLURM_JOB_PARTITION.
    pub partition: Option<String>,
    /// SLURM_JOB_EXIT_CODE2, "code:signal" (epilog, 22.05 and newer).
    pub exit_code: Option<String>,
}

impl JobEnv {
    /// Reads the process's own environment.
    pub fn of_process() -> JobEnv {
        JobEnv::of(std::env::vars_os())
    }

    /// Reads an environment.
    pub fn of(vars: impl IntoIterator<Item = (OsString, OsString)>) -> JobEnv {
        let vars: HashMap<String, String> = vars
            .into_iter()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, bounded(&value))))
            .collect();
        let text = |name: &str| vars.get(name).filter(|value| !value.is_empty()).cloned();
        let number = |name: &str| text(name)?.parse::<u32>().ok();
        JobEnv {
            job_id: number("SLURM_JOB_ID").map(JobId),
            node: text("SLURMD_NODENAME").unwrap_or_default(),
            cluster: text("SLURM_CLUSTER_NAME"),
            slurm_conf: text("SLURM_CONF"),
            job_gpus: text("SLURM_JOB_GPUS"),
            visible_devices: text("CUDA_VISIBLE_DEVICES"),
            restart_count: number("SLURM_JOB_RESTART_COUNT"),
            sluid: text("SLURM_JOB_SLUID"),
            uid: number("SLURM_JOB_UID"),
            user: text("SLURM_JOB_USER"),
            account: text("SLURM_JOB_ACCOUNT"),
            partition: text("SLURM_JOB_PARTITION"),
            exit_code: text("SLURM_JOB_EXIT_CODE2"),
        }
    }

    /// True where Slurm gave the job a GPU of this node.
    pub fn has_gpus(&self) -> bool {
        self.job_gpus.is_some() || self.visible_devices.is_some()
    }

    /// The cluster's name, empty where it is not known.
    pub fn cluster_name(&self) -> &str {
        self.cluster.as_deref().unwrap_or("")
    }
}

fn bounded(value: &OsString) -> String {
    let mut text = value.to_string_lossy().into_owned();
    let mut end = text.len().min(MAX_VALUE_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> JobEnv {
        JobEnv::of(pairs.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))))
    }

    #[test]
    fn an_empty_environment_is_no_error_and_no_gpu() {
        assert_eq!(env(&[]), JobEnv::default());
        assert!(!env(&[("CUDA_VISIBLE_DEVICES", "")]).has_gpus());
    }

    #[test]
    fn each_release_says_what_it_says() {
        let env = env(&[
            ("SLURM_JOB_ID", "12"),
            ("SLURMD_NODENAME", "n1"),
            ("SLURM_JOB_GPUS", "0,3"),
            ("SLURM_JOB_RESTART_COUNT", "1"),
            ("SLURM_JOB_UID", "x"),
        ]);
        assert_eq!((env.job_id, env.node.as_str()), (Some(JobId(12)), "n1"));
        assert_eq!((env.restart_count, env.uid), (Some(1), None));
        assert!(env.has_gpus());
    }

    #[test]
    fn long_values_are_cut_between_letters() {
        let env = env(&[("SLURM_JOB_USER", &"ü".repeat(5000))]);
        assert!(env.user.unwrap().len() <= MAX_VALUE_BYTES);
    }
}
