//! Whose the processes in the driver's lists are.

use super::Hierarchies;
use crate::process::Stat;
use gpuward_core::model::platform::{Holder, HolderOwner};
use std::path::Path;

/// Looks up `pids` below `procfs`. `groups` are the control groups where Slurm keeps its jobs in them; without, a process
/// may be any job's.
pub fn holders(procfs: &Path, groups: Option<&Hierarchies>, pids: &[u32]) -> Vec<Holder> {
    let holder = |&pid: &u32| {
        let (name, owner) = match Stat::read(&procfs.join(pid.to_string())) {
            Ok(Some(stat)) => (stat.name, owner(groups, pid)),
            Ok(None) => (String::new(), HolderOwner::Gone),
            Err(error) => {
                log::debug!("{error}; nobody can tell whose process {pid} is");
                (String::new(), HolderOwner::Unknown)
            }
        };
        Holder { pid, name, owner }
    };
    pids.iter().map(holder).collect()
}

fn owner(groups: Option<&Hierarchies>, pid: u32) -> HolderOwner {
    let Some(groups) = groups else { return HolderOwner::Unknown };
    match groups.process(pid) {
        Ok(Some(process)) => HolderOwner::Job(process.place.job.to_string()),
        Ok(None) => HolderOwner::NoJob,
        Err(error) => {
            log::debug!("{error}; nobody can tell whose process {pid} is");
            HolderOwner::Unknown
        }
    }
}
