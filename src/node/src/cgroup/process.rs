//! The processes of a job, as /proc tells of them.

use super::path::{JobKey, Place};
use super::tree::{has_vanished, pids_below};
use super::{Hierarchies, Job, MAX_CGROUP_BYTES};
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

/// What is of use in /proc/PID/stat.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stat {
    name: String,
    is_zombie: bool,
    parent: u32,
    is_kernel: bool,
    start_ticks: u64,
}

/// PF_KTHREAD (include/linux/sched.h).
const KERNEL_THREAD: u64 = 0x0020_0000;
/// Name and 52 numbers.
const MAX_STAT_BYTES: u64 = 4096;
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
            let Some(stat) = self.stat(pid)? else { return Ok(None) };
            let Some(place) = self.place_of_pid(pid, &stat)? else { return Ok(None) };
            let owner = self.owner(pid, &stat, &place)?;
            // The same process before and after: what was read in between is its own.
            if self.stat(pid)?.is_some_and(|after| after.start_ticks == stat.start_ticks) {
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
            next = self.stat(next)?.map_or(0, |stat| stat.parent);
        }
        Ok(line)
    }

    fn place_of_pid(&self, pid: u32, stat: &Stat) -> Result<Option<Place>, EdgeError> {
        let folder = self.folder(pid);
        if let Some(place) = self.place_in(&folder.join("cgroup"))? {
            return Ok(Some(place));
        }
        if !stat.is_zombie {
            return Ok(None);
        }
        // The first thread has ended and counts as nowhere (v1); others may go on.
        for thread in self.threads(pid)? {
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

    fn stat(&self, pid: u32) -> Result<Option<Stat>, EdgeError> {
        let path = self.folder(pid).join("stat");
        let Some(text) = if_there(read_lossy(&path))? else { return Ok(None) };
        match parse_stat(&text) {
            Some(stat) => Ok(Some(stat)),
            None => Err(EdgeError::Content { path, why: "not in the form of proc_pid_stat(5)".into() }),
        }
    }

    /// The folders of a process's threads; none where it has ended.
    pub(super) fn threads(&self, pid: u32) -> Result<Vec<PathBuf>, EdgeError> {
        entries(&self.folder(pid).join("task"))
    }

    pub(super) fn folder(&self, pid: u32) -> PathBuf {
        self.procfs.join(pid.to_string())
    }
}

/// A process may call itself anything, also what is not UTF-8.
fn read_lossy(path: &Path) -> Result<String, EdgeError> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(EdgeError::io("open", path))?;
    file.take(MAX_STAT_BYTES).read_to_end(&mut bytes).map_err(EdgeError::io("read", path))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// What is in a folder of a process's; nothing where that has ended.
pub(super) fn entries(folder: &Path) -> Result<Vec<PathBuf>, EdgeError> {
    let mut paths = Vec::new();
    for entry in if_there(fs::read_dir(folder).map_err(EdgeError::io("list", folder)))?.into_iter().flatten()
    {
        let Some(entry) = if_there(entry.map_err(EdgeError::io("list", folder)))? else { break };
        paths.push(entry.path());
    }
    Ok(paths)
}

/// What was read, or `None` where the process has ended.
pub(super) fn if_there<T>(read: Result<T, EdgeError>) -> Result<Option<T>, EdgeError> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) if has_vanished(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// proc_pid_stat(5): `PID (NAME) STATE PPID PGRP SESSION TTY TPGID FLAGS ... STARTTIME`, the last being field 22.
fn parse_stat(text: &str) -> Option<Stat> {
    // The name may hold anything, blanks and parentheses too.
    let (start, rest) = text.rsplit_once(") ")?;
    let (_, name) = start.split_once(" (")?;
    let mut fields = rest.split_ascii_whitespace();
    let is_zombie = matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    let flags: u64 = fields.nth(4)?.parse().ok()?;
    let start_ticks = fields.nth(12)?.parse().ok()?;
    Some(Stat { name: name.into(), is_zombie, parent, is_kernel: flags & KERNEL_THREAD != 0, start_ticks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_may_call_itself_anything() {
        let text = "7 (a) R 9 (b) S 3 7 7 0 -1 2097216 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0 rest";
        let stat = parse_stat(text).unwrap();
        assert_eq!((stat.name.as_str(), stat.parent, stat.start_ticks), ("a) R 9 (b", 3, 4711));
        assert!(stat.is_kernel && !stat.is_zombie);
        let (start, _) = text.split_at(text.find("4711").unwrap());
        assert_eq!(parse_stat(start.trim_end()), None, "cut off");
        assert_eq!(parse_stat(""), None);
    }
}
