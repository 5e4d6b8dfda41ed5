//! Slurm's folders below the mounted hierarchies.

use super::path::{JobKey, Version, is_slice_below, is_v1_tree, is_v2_scope, number};
use super::{Base, Hierarchies, Job};
use crate::{EdgeError, files};
use gpuward_core::model::JobId;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// A node has at most 4,194,304 processes (PID_MAX_LIMIT), seven digits and a line end each.
const MAX_PROCS_BYTES: u64 = 8 * 4_194_304;

/// A job's folder in one hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JobFolder {
    pub key: JobKey,
    /// The folder of all jobs.
    pub tree: PathBuf,
    /// The hierarchy's own top.
    pub top: PathBuf,
    pub version: Version,
    pub path: PathBuf,
}

impl Hierarchies {
    /// The jobs that have a control group on this node.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub fn jobs(&self) -> Result<BTreeSet<JobKey>, EdgeError> {
        Ok(self.job_folders()?.into_iter().map(|folder| folder.key).collect())
    }

    /// The folders of one job. Empty where it has none.
    ///
    /// # Errors
    /// A folder cannot be read, two slurmd have such a job, or there are groups of which nobody can tell whether they
    /// are this job's.
    pub(super) fn folders_of(&self, job: &Job) -> Result<Vec<JobFolder>, EdgeError> {
        let (mut found, mut unknown) = (Vec::new(), None);
        for folder in self.job_folders()? {
            match (&folder.key, &job.sluid) {
                (JobKey::Id(id), _) if *id == job.id => found.push(folder),
                (JobKey::Sluid(sluid), Some(own)) if sluid == own => found.push(folder),
                (JobKey::Sluid(_), None) => match self.id_by_title(&folder)? {
                    Some(id) if id == job.id => found.push(folder),
                    Some(_) => {}
                    None => unknown = Some(folder.path),
                },
                _ => {}
            }
        }
        if let (true, Some(path)) = (found.is_empty(), unknown) {
            let why = format!("without SLURM_JOB_SLUID nobody can tell whether this is job {}", job.id);
            return Err(EdgeError::Content { path, why });
        }
        let trees: BTreeSet<_> =
            found.iter().filter_map(|folder| folder.tree.strip_prefix(&folder.top).ok()).collect();
        match found.first() {
            Some(first) if trees.len() > 1 => {
                let why = format!("job {} is in other trees, too: is it one and the same?", job.id);
                Err(EdgeError::Content { path: first.tree.clone(), why })
            }
            _ => Ok(found),
        }
    }

    fn job_folders(&self) -> Result<Vec<JobFolder>, EdgeError> {
        let mut all = Vec::new();
        for hierarchy in &self.all {
            // It was there: without it nothing below can be known.
            fs::read_dir(&hierarchy.mount.point).map_err(EdgeError::io("list", &hierarchy.mount.point))?;
            for base in &hierarchy.bases {
                let (top, version) = (&hierarchy.mount.point, hierarchy.mount.version);
                for (tree, above) in self.trees(base, version)? {
                    for path in folders_in(&above)? {
                        let Some(key) = JobKey::parse(name_of(&path)) else { continue };
                        if version == Version::V2 || matches!(key, JobKey::Id(_)) {
                            let (tree, top) = (tree.clone(), top.clone());
                            all.push(JobFolder { key, tree, top, version, path });
                        }
                    }
                }
            }
        }
        Ok(all)
    }

    /// The trees of Slurm's, and the folders in them that hold those of jobs.
    fn trees(&self, base: &Base, version: Version) -> Result<Vec<(PathBuf, PathBuf)>, EdgeError> {
        let node = self.node.as_deref();
        let mut found = Vec::new();
        if version == Version::V1 {
            for tree in folders_in(&base.folder)?.into_iter().filter(|path| is_v1_tree(name_of(path), node)) {
                let is_user = |path: &PathBuf| name_of(path).strip_prefix("uid_").and_then(number).is_some();
                let users = folders_in(&tree)?.into_iter().filter(is_user);
                found.extend(users.map(|user| (tree.clone(), user)));
            }
            return Ok(found);
        }
        let mut slices: Vec<PathBuf> = vec![base.folder.clone()];
        while let Some(folder) = slices.pop() {
            let above = (folder != base.folder).then(|| name_of(&folder));
            for path in folders_in(&folder)? {
                if above.is_some() && is_v2_scope(name_of(&path), node) {
                    found.push((path.clone(), path));
                } else if is_slice_below(name_of(&path), above) {
                    slices.push(path);
                }
            }
        }
        Ok(found)
    }

    /// The job's id from the titles of its slurmstepd, `slurmstepd: [7.batch]` [recorded with 22.05.8; the same in
    /// 26.05]. They sit in the half of a step that users cannot get into.
    fn id_by_title(&self, folder: &JobFolder) -> Result<Option<JobId>, EdgeError> {
        let mut ids = BTreeSet::new();
        for step in folders_in(&folder.path)?.iter().filter(|path| name_of(path).starts_with("step_")) {
            for pid in pids_in(&step.join("slurm"))? {
                ids.extend(self.id_in_title(pid));
            }
        }
        let only = if ids.len() == 1 { ids.pop_first() } else { None };
        Ok(only.map(JobId))
    }

    fn id_in_title(&self, pid: u32) -> Option<u32> {
        let title = fs::read(self.procfs.join(pid.to_string()).join("cmdline")).ok()?;
        let title = String::from_utf8_lossy(&title);
        title.strip_prefix("slurmstepd: [")?.split(['.', ']']).next().and_then(number)
    }
}

/// The pids in a group and in all groups below it.
///
/// # Errors
/// A group cannot be read. One that vanishes meanwhile is empty: only a group without processes can be removed.
pub(super) fn pids_below(group: &Path) -> Result<BTreeSet<u32>, EdgeError> {
    let (mut pids, mut waiting) = (BTreeSet::new(), vec![group.to_path_buf()]);
    while let Some(group) = waiting.pop() {
        pids.extend(pids_in(&group)?);
        waiting.extend(folders_in(&group)?);
    }
    Ok(pids)
}

fn pids_in(group: &Path) -> Result<Vec<u32>, EdgeError> {
    let path = group.join("cgroup.procs");
    let text = match files::read_text(&path, MAX_PROCS_BYTES) {
        Ok(text) => text,
        Err(error) if error.has_vanished() || is_threaded(&error) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let pid = |line: &str| match number(line) {
        Some(0) => Err("a process of it is in another pid namespace and cannot be seen from here".to_owned()),
        Some(pid) => Ok(pid),
        None => Err(format!("'{line}' is no pid")),
    };
    let pids: Result<Vec<u32>, String> = text.lines().map(pid).collect();
    pids.map_err(|why| EdgeError::Content { path, why })
}

/// The folders in a folder; none where that is not there.
fn folders_in(folder: &Path) -> Result<Vec<PathBuf>, EdgeError> {
    let entries = match fs::read_dir(folder).map_err(EdgeError::io("list", folder)) {
        Ok(entries) => entries,
        Err(error) if error.has_vanished() => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut folders = Vec::new();
    for entry in entries {
        match entry.map_err(EdgeError::io("list", folder)) {
            Ok(entry) if entry.file_type().is_ok_and(|kind| kind.is_dir()) => folders.push(entry.path()),
            Ok(_) => {}
            Err(error) if error.has_vanished() => {}
            Err(error) => return Err(error),
        }
    }
    folders.sort();
    Ok(folders)
}

/// A folder's name; none of Slurm's where it is not UTF-8.
fn name_of(folder: &Path) -> &str {
    folder.file_name().and_then(OsStr::to_str).unwrap_or_default()
}

/// A threaded group has no list of processes: the group above it that is no such one has them all (kernel
/// documentation, cgroup-v2, "Threads").
fn is_threaded(error: &EdgeError) -> bool {
    error.errno() == Some(libc::EOPNOTSUPP)
}
