//! The processes of a job, as /proc tells of them.

use super::path::{JobKey, Place};
use super::tree::pids_below;
use super::{Hierarchies, Job, MAX_CGROUP_BYTES};
use crate::files::if_there;
use crate::process::Stat;
use crate::process::stat::threads;
use crate::{EdgeError, files};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Whose a process in a job's group is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The job's user started it, or it came out of one that he started.
    User,
    /// slurmstepd, or something that it runs for itself. Slurm ends these; nobody else may.
    Slurm,
    /// A kernel thread that works for a process of the job, such as vhost. Signals do nothing to it.
    Kernel,
}

/// A process of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobProcess {
    /// Its pid, which names it only together with the next.
    pub pid: u32,
    /// When it was started, in clock ticks since boot.
    pub start_ticks: u64,
    /// Its name, which it can choose itself: not to be trusted, to be escaped where it is shown.
    pub name: String,
    /// Where it is.
    pub place: Place,
    /// Whose it is.
    pub owner: Owner,
}

/// About 60 lines.
const MAX_STATUS_BYTES: u64 = 64 * 1024;
/// A pid passes to another process only after all others were used: twice within one look does not happen.
const TRIES: u32 = 3;

impl Hierarchies {
    /// The processes of a job on this node, in the order of their pids; `None` where the job has no control group here.
    ///
    /// They come and go: a process may have ended since, and those that live may have started others.
    ///
    /// # Errors
    /// Something cannot be read, or nobody can tell whose it is: then the whole is unknown, not empty.
    pub fn processes_of(&self, job: &Job) -> Result<Option<Vec<JobProcess>>, EdgeError> {
        let folders = self.folders_of(job)?;
        let keys: BTreeSet<&JobKey> = folders.iter().map(|folder| &folder.key).collect();
        let mut pids = BTreeSet::new();
        for folder in &folders {
            pids.extend(pids_below(&folder.path)?);
        }
        let mut processes = Vec::new();
        for pid in pids {
            // A pid that has passed to a process outside of the job, or that was moved out of it, is not the job's.
            processes.extend(self.process(pid)?.filter(|process| keys.contains(&process.place.job)));
        }
        Ok((!folders.is_empty()).then_some(processes))
    }

    /// The job that a process is in; `None` where it is in none, or has ended.
    ///
    /// Whoever holds an older answer can see from pid and start time whether it is still the same process, and from the
    /// place whether it is still there.
    ///
    /// # Errors
    /// It lives and cannot be read, or nobody can tell whose it is.
    pub fn process(&self, pid: u32) -> Result<Option<JobProcess>, EdgeError> {
        for _ in 0..TRIES {
            let Some(stat) = Stat::read(&self.folder(pid))? else { return Ok(None) };
            let Some(place) = self.place_of_pid(pid, &stat)? else { return Ok(None) };
            let owner = self.owner(pid, &stat, &place)?;
            // The same process before and after: what was read in between is its own.
            if Stat::read(&self.folder(pid))?.is_some_and(|after| after.start_ticks == stat.start_ticks) {
                let Stat { name, start_ticks, .. } = stat;
                return Ok(Some(JobProcess { pid, start_ticks, name, place, owner }));
            }
        }
        Ok(None)
    }

    /// This process and those that it comes from, up to process 1: the first is `pid`.
    ///
    /// With `PrologFlags=RunInJob` a prolog or epilog is in the job's group itself, and so is what started it.
    ///
    /// # Errors
    /// One of them cannot be read.
    pub fn ancestry(&self, pid: u32) -> Result<Vec<u32>, EdgeError> {
        let (mut line, mut next) = (Vec::new(), pid);
        // 0: whoever started process 1, or one of another pid namespace. A pid that was used anew may close a ring.
        while next > 0 && !line.contains(&next) {
            line.push(next);
            next = Stat::read(&self.folder(next))?.map_or(0, |stat| stat.parent);
        }
        Ok(line)
    }

    fn place_of_pid(&self, pid: u32, stat: &Stat) -> Result<Option<Place>, EdgeError> {
        let folder = self.folder(pid);
        if let Some(place) = self.place_in(&folder.join("cgroup"))? {
            return Ok(Some(place));
        }
        if !stat.first_thread_has_ended() {
            return Ok(None);
        }
        // The first thread has ended and counts as nowhere (v1); others may go on.
        for thread in threads(&self.folder(pid))? {
            if let Some(place) = self.place_in(&thread.join("cgroup"))? {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    fn place_in(&self, cgroup_file: &Path) -> Result<Option<Place>, EdgeError> {
        let Some(text) = if_there(files::read_text(cgroup_file, MAX_CGROUP_BYTES))? else { return Ok(None) };
        self.place_of(&text).map_err(|error| match error {
            EdgeError::Content { why, .. } => EdgeError::Content { path: cgroup_file.into(), why },
            other => other,
        })
    }

    fn owner(&self, pid: u32, stat: &Stat, place: &Place) -> Result<Owner, EdgeError> {
        // The extern step runs a placeholder of its own, as root: `sleep 100000000` [recorded with 22.05.8]. Sessions
        // that pam_slurm_adopt puts there have another parent.
        let is_externs = || place.step.as_deref() == Some("extern");
        Ok(if stat.is_kernel {
            Owner::Kernel
        } else if place.is_slurms_part
            || self.is_stepd(pid)?
            || (is_externs() && self.is_stepd(stat.parent)?)
        {
            Owner::Slurm
        } else {
            Owner::User
        })
    }

    /// Whether this is slurmstepd: root's, and by its program (Debian's is called slurmstepd-wlm). A task is a copy of it
    /// only until it becomes its user.
    fn is_stepd(&self, pid: u32) -> Result<bool, EdgeError> {
        let folder = self.folder(pid);
        let link = folder.join("exe");
        // A kernel thread and a process whose first thread has ended have none.
        let Some(program) = if_there(fs::read_link(&link).map_err(EdgeError::io("read", link)))? else {
            return Ok(false);
        };
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let rest = name.strip_prefix("slurmstepd");
        // `slurmstepd (deleted)`: replaced by an update while it runs.
        if !rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', ' '])) {
            return Ok(false);
        }
        let status =
            if_there(files::read_text(&folder.join("status"), MAX_STATUS_BYTES))?.unwrap_or_default();
        let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        Ok(uids.and_then(|uids| uids.split_whitespace().next()) == Some("0"))
    }

    pub(super) fn folder(&self, pid: u32) -> PathBuf {
        self.procfs.join(pid.to_string())
    }
}
