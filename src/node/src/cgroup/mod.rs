//! Control groups: from a job to its processes and devices, and from a process to its job.
//!
//! Whoever ends processes by this must not be mistaken, so the rules are strict. A process belongs to a job only where
//! its own /proc/PID/cgroup says so, in Slurm's form, from the top of the tree (`path`). What cannot be read is an error
//! and never "no processes". A process is named by pid and start time, since a pid alone passes to others.
//!
//! Slurm has no tree on a node without proctrack/cgroup and task/cgroup: a job then has no group, which is not the same
//! as a job without processes.

mod devices;
mod holders;
mod mounts;
mod path;
mod process;
#[cfg(test)]
mod recorded;
#[cfg(test)]
mod tests;
mod tree;

pub use devices::{Device, JobDevices, Quality};
pub use holders::holders;
pub use path::{JobKey, Place, Sluid};
pub use process::{JobProcess, Owner};

use crate::{EdgeError, files};
use gpuward_core::model::JobId;
use mounts::{Mount, mounts};
use path::Version;
use std::path::{Path, PathBuf};

/// A host with thousands of containers has a line for each of their mounts.
const MAX_MOUNTINFO_BYTES: u64 = 16 * 1024 * 1024;
/// One line a hierarchy, of which there are about a dozen; a path has at most 4096 bytes.
const MAX_CGROUP_BYTES: u64 = 64 * 1024;

/// How this host's control groups are mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Version 1: a hierarchy for each controller.
    V1,
    /// Version 2: one hierarchy.
    V2,
    /// Version 1 with an additional hierarchy of version 2, as systemd's hybrid mode has it. Slurm uses version 1 then;
    /// its v2 plugin refuses to start [src/plugins/cgroup/v2].
    Hybrid,
}

/// Which job is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// `SLURM_JOB_SLUID`, which 25.11 and newer set. Without it the group of a 26.05 job is found by the title of its
    /// slurmstepd, as long as that lives.
    pub sluid: Option<Sluid>,
}

/// The control groups of a host.
#[derive(Debug, Clone)]
pub struct Hierarchies {
    procfs: PathBuf,
    node: Option<String>,
    layout: Layout,
    all: Vec<Hierarchy>,
}

#[derive(Debug, Clone)]
struct Hierarchy {
    mount: Mount,
    bases: Vec<Base>,
}

/// A group below which Slurm puts its tree.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Base {
    /// As /proc/PID/cgroup has it, without a slash at the end.
    path: String,
    /// Where it is in the file system.
    folder: PathBuf,
}

impl Hierarchies {
    /// Finds what is mounted at `cgroup_root` (usually /sys/fs/cgroup; cgroup.conf's CgroupMountpoint), seen by the
    /// processes of `procfs` (usually /proc).
    ///
    /// `node` is this node's name in Slurm: where several slurmd run on one host only that one's jobs count.
    ///
    /// # Errors
    /// No control groups are mounted there, or it cannot be read which.
    pub fn find(cgroup_root: &Path, procfs: &Path, node: Option<&str>) -> Result<Hierarchies, EdgeError> {
        // Of the thread: another one may be in another namespace.
        let mountinfo = files::read_text(&procfs.join("thread-self/mountinfo"), MAX_MOUNTINFO_BYTES)?;
        let init = files::read_text(&procfs.join("1/cgroup"), MAX_CGROUP_BYTES)?;
        let mounts: Vec<Mount> = mounts(&mountinfo, cgroup_root).into_iter().filter(is_visible).collect();
        let has = |version| mounts.iter().any(|mount| mount.version == version);
        let layout = match (has(Version::V1), has(Version::V2)) {
            (true, false) => Layout::V1,
            (false, true) => Layout::V2,
            (true, true) => Layout::Hybrid,
            (false, false) => {
                let why = "no control groups of Slurm's kind are mounted here".to_owned();
                return Err(EdgeError::Content { path: cgroup_root.into(), why });
            }
        };
        let all = mounts.into_iter().map(|mount| Hierarchy::new(mount, &init)).collect();
        Ok(Hierarchies { procfs: procfs.into(), node: node.map(str::to_owned), layout, all })
    }

    /// How they are mounted.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Where in Slurm's tree a process is, from the text of its /proc/PID/cgroup; `None` where it is in no job.
    ///
    /// # Errors
    /// Its hierarchies say different jobs: nobody can tell whose it is.
    pub fn place_of(&self, cgroup_text: &str) -> Result<Option<Place>, EdgeError> {
        let mut found: Option<Place> = None;
        for place in cgroup_text.lines().filter_map(|line| self.place_in_line(line)) {
            let Some(first) = &mut found else {
                found = Some(place);
                continue;
            };
            if (&first.job, &first.tree) != (&place.job, &place.tree) {
                let why =
                    format!("{} in {} and {} in {} at once", first.job, first.tree, place.job, place.tree);
                return Err(EdgeError::Content { path: self.procfs.clone(), why });
            }
            // Not every controller has groups for steps and tasks.
            first.step = first.step.take().or(place.step);
            first.task = first.task.or(place.task);
            first.is_slurms_part |= place.is_slurms_part;
        }
        Ok(found)
    }

    fn place_in_line(&self, line: &str) -> Option<Place> {
        // HIERARCHY:CONTROLLERS:PATH; in a path a colon may stand, too (cgroups(7)).
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        self.all.iter().filter(|one| one.is_meant_by(controllers)).find_map(|one| {
            one.bases.iter().find_map(|base| {
                let below = path.strip_prefix(base.path.as_str())?;
                path::place(one.mount.version, below, self.node.as_deref())
            })
        })
    }
}

impl Hierarchy {
    fn new(mount: Mount, init: &str) -> Hierarchy {
        // /proc/PID/cgroup and mountinfo tell paths from the same top, our control-group namespace's.
        let top = Base { path: mount.root.trim_end_matches('/').to_owned(), folder: mount.point.clone() };
        let mut bases = vec![];
        if mount.version == Version::V2 {
            bases.extend(beside_init(&top, init));
        }
        bases.push(top);
        Hierarchy { mount, bases }
    }

    fn is_meant_by(&self, controllers: &str) -> bool {
        match self.mount.version {
            Version::V2 => controllers.is_empty(),
            Version::V1 => {
                controllers.split(',').any(|name| self.mount.controllers.iter().any(|own| own == name))
            }
        }
    }
}

/// In a container without a control-group namespace Slurm's v2 tree lies where process 1 has its group
/// [src/plugins/cgroup/v2, 24.05 and newer].
fn beside_init(top: &Base, init: &str) -> Option<Base> {
    let path = init.lines().find_map(|line| line.strip_prefix("0::"))?;
    let (above, _) = path.strip_prefix(top.path.as_str())?.rsplit_once('/')?;
    let above = above.strip_prefix('/')?;
    // `..`: process 1 is outside of our namespace, and so is what lies beside it.
    let is_below = !above.is_empty() && above.split('/').all(|part| part != "..");
    is_below.then(|| Base { path: format!("{}/{above}", top.path), folder: top.folder.join(above) })
}

/// A later mount on a folder above hides an earlier one, which is listed all the same.
fn is_visible(mount: &Mount) -> bool {
    mount.point.join("cgroup.procs").exists()
}
