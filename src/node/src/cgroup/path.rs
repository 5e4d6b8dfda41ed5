//! Slurm's form of control-group paths, as text.
//!
//! Only places that nobody but root can make count, and always from the top: below their own tasks and sessions users
//! may make folders of any name, `job_7` too (Slurm 22.05 gives a v2 task folder to the user [recorded]).
//!
//! * v1: `/slurm[_NODE]/uid_U/job_J[/step_S[/task_T]]` [recorded with 22.05.8; src/plugins/cgroup/v1]
//! * v2: `/SLICE/[NODE_]slurmstepd.scope/JOB[/step_S[/slurm | /user/task_T]]` [recorded with 22.05.8;
//!   src/plugins/cgroup/v2]. SLICE is system.slice, or cgroup.conf's CgroupSlice in new releases. NODE stands there where
//!   Slurm was built with --enable-multiple-slurmd, as Debian's is.
//! * JOB is `job_J`, or from 26.05 the job's bare SLUID unless cgroup.conf says CgroupJobIdPaths=yes (26.05.2).
//!
//! Components of a heterogeneous job and tasks of an array have job ids of their own; the step of a component reads
//! `step_S+C`.

use gpuward_core::model::JobId;
use std::fmt;

/// Which generation of control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    V1,
    V2,
}

/// Slurm's unique id of one run of a job, as `SLURM_JOB_SLUID` has it from 25.11.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sluid(String);

impl Sluid {
    /// `s` and 13 digits of Crockford's base 32, in capitals: the form that Slurm prints [src/common/sluid.c, 25.11].
    pub fn parse(text: &str) -> Option<Sluid> {
        let digits = text.strip_prefix('s')?;
        let is_digit = |byte: u8| b"0123456789ABCDEFGHJKMNPQRSTVWXYZ".contains(&byte);
        (digits.len() == 13 && digits.bytes().all(is_digit)).then(|| Sluid(text.to_owned()))
    }
}

impl fmt::Display for Sluid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// What a job's control group is called.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobKey {
    /// By its id.
    Id(JobId),
    /// By its SLUID, which does not hold the id.
    Sluid(Sluid),
}

impl JobKey {
    pub(super) fn parse(name: &str) -> Option<JobKey> {
        let by_id = || name.strip_prefix("job_").and_then(number).filter(|&id| id > 0);
        by_id().map(|id| JobKey::Id(JobId(id))).or_else(|| Sluid::parse(name).map(JobKey::Sluid))
    }
}

impl fmt::Display for JobKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobKey::Id(id) => write!(out, "job {id}"),
            JobKey::Sluid(sluid) => write!(out, "job {sluid}"),
        }
    }
}

/// Where in Slurm's tree something is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The folder that holds all jobs, for example `/slurm_n1` or `/system.slice/slurmstepd.scope`.
    pub tree: String,
    /// Which job.
    pub job: JobKey,
    /// `0`, `batch`, `extern`, `interactive`, `0+1`; `None` where it is in no step.
    pub step: Option<String>,
    /// The task's number; `None` where it is in none, or in one that Slurm does not number.
    pub task: Option<u32>,
    /// True in the half of a step that is Slurm's own (v2).
    pub is_slurms_part: bool,
}

/// The place of a path as /proc/PID/cgroup has it, from which what is above Slurm's tree has been cut.
///
/// With a node's name only that node's tree counts, or the one without a name: several slurmd on one host may each have
/// a part of the same job.
pub(super) fn place(version: Version, path: &str, node: Option<&str>) -> Option<Place> {
    // The kernel says so of a group that was removed after the process ended (cgroups(7)).
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    let mut parts = path.strip_prefix('/')?.split('/');
    let tree = match version {
        Version::V1 => v1_tree(&mut parts, node)?,
        Version::V2 => v2_tree(&mut parts, node)?,
    };
    let job = JobKey::parse(parts.next()?)?;
    if version == Version::V1 && matches!(job, JobKey::Sluid(_)) {
        return None;
    }
    let mut place = Place { tree, job, step: None, task: None, is_slurms_part: false };
    place.step = parts.next().and_then(|part| part.strip_prefix("step_")).map(str::to_owned);
    if place.step.is_none() {
        return Some(place);
    }
    let mut part = parts.next();
    if version == Version::V2 {
        place.is_slurms_part = part == Some("slurm");
        part = if part == Some("user") { parts.next() } else { None };
    }
    place.task = part.and_then(|part| part.strip_prefix("task_")).and_then(number);
    Some(place)
}

fn v1_tree<'a>(parts: &mut impl Iterator<Item = &'a str>, node: Option<&str>) -> Option<String> {
    let tree = parts.next().filter(|name| is_v1_tree(name, node))?;
    parts.next().and_then(|part| part.strip_prefix("uid_")).and_then(number)?;
    Some(format!("/{tree}"))
}

fn v2_tree<'a>(parts: &mut impl Iterator<Item = &'a str>, node: Option<&str>) -> Option<String> {
    let mut tree = String::new();
    let mut above = None;
    for part in parts {
        let is_scope = above.is_some() && is_v2_scope(part, node);
        if !is_scope && !is_slice_below(part, above) {
            return None;
        }
        tree.push('/');
        tree.push_str(part);
        if is_scope {
            return Some(tree);
        }
        above = Some(part);
    }
    None
}

/// Whether this is what Slurm calls the folder of all its jobs (v1).
pub(super) fn is_v1_tree(name: &str, node: Option<&str>) -> bool {
    name == "slurm" || name.strip_prefix("slurm_").is_some_and(|of| is_node(of, node))
}

/// Whether this is what Slurm calls the folder of all its jobs (v2).
pub(super) fn is_v2_scope(name: &str, node: Option<&str>) -> bool {
    let of_node = || name.strip_suffix("_slurmstepd.scope").is_some_and(|of| is_node(of, node));
    name == "slurmstepd.scope" || of_node()
}

fn is_node(name: &str, node: Option<&str>) -> bool {
    is_plain(name) && node.is_none_or(|node| node == name)
}

/// The characters that names of systemd's units have (systemd.unit(5)), and of Slurm's nodes.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b":-_.\\".contains(&byte))
}

/// Whether systemd would put the slice `name` into the slice `above`: `a-b.slice` into `a.slice` (systemd.slice(5)).
/// Users' and machines' slices are theirs, not Slurm's.
pub(super) fn is_slice_below(name: &str, above: Option<&str>) -> bool {
    let Some(stem) = name.strip_suffix(".slice").filter(|stem| is_plain(stem)) else { return false };
    match above {
        None => !["user", "machine"].contains(&stem) && !stem.contains('-'),
        Some(above) => {
            let above = above.strip_suffix(".slice").unwrap_or(above);
            let last = stem.strip_prefix(above).and_then(|rest| rest.strip_prefix('-'));
            last.is_some_and(|last| !last.is_empty() && !last.contains('-'))
        }
    }
}

/// A number as Slurm prints it: no sign, no blanks, no leading zeros.
pub(super) fn number(text: &str) -> Option<u32> {
    let canonical = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if canonical { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(version: Version, path: &str) -> Option<(u32, String, Option<u32>)> {
        let place = place(version, path, None)?;
        let JobKey::Id(JobId(id)) = place.job else { return None };
        Some((id, place.step.unwrap_or_default(), place.task))
    }

    #[test]
    fn job_step_and_task_are_read_in_both_versions() {
        let v1 = |path: &str| read(Version::V1, path);
        let v2 = |path: &str| read(Version::V2, path);
        assert_eq!(v1("/slurm/uid_0/job_12/step_extern"), Some((12, "extern".into(), None)));
        assert_eq!(v1("/slurm_n1/uid_7/job_1/step_0+1/task_3"), Some((1, "0+1".into(), Some(3))));
        assert_eq!(v1("/slurm/uid_7/job_1"), Some((1, String::new(), None)));
        let scope = "/system.slice/n1_slurmstepd.scope";
        assert_eq!(v2(&format!("{scope}/job_7/step_0/user/task_2")), Some((7, "0".into(), Some(2))));
        assert_eq!(v2(&format!("{scope}/job_7/step_0/user/task_special")), Some((7, "0".into(), None)));
        assert_eq!(
            v2(&format!("{scope}/job_7/step_0/user/task_2 (deleted)")),
            Some((7, "0".into(), Some(2)))
        );
        assert_eq!(v2("/a.slice/a-b.slice/slurmstepd.scope/job_7"), Some((7, String::new(), None)));
        let own = place(Version::V2, &format!("{scope}/job_7/step_batch/slurm"), None).unwrap();
        assert!(own.is_slurms_part && own.tree == scope);
        let sluid = place(Version::V2, "/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0/slurm", None);
        assert_eq!(sluid.unwrap().job, JobKey::Sluid(Sluid::parse("sEKNKTV3WPV500").unwrap()));
    }

    #[test]
    fn what_a_user_makes_below_his_own_job_stays_in_that_job() {
        let below =
            "/system.slice/slurmstepd.scope/job_5/step_0/user/task_0/system.slice/slurmstepd.scope/job_7";
        assert_eq!(read(Version::V2, below), Some((5, "0".into(), Some(0))));
        assert_eq!(
            read(Version::V1, "/slurm/uid_1/job_5/step_0/task_0/job_7"),
            Some((5, "0".into(), Some(0)))
        );
    }

    #[test]
    fn no_other_path_is_a_job() {
        for path in [
            "",
            "/",
            "job_7",
            "/job_7",
            "/system.slice/slurmd.service",
            "/system.slice/slurmstepd.scope",
            "/system.slice/slurmstepd.scope/system",
            "/system.slice/n1_slurmstepd.scope/slurmd",
            "/system.slice/_slurmstepd.scope/job_7",
            "/slurmstepd.scope/job_7",
            "/user.slice/job_7",
            "/user.slice/slurmstepd.scope/job_7",
            "/user.slice/user-1.slice/slurmstepd.scope/job_7",
            "/user.slice/user-1.slice/user@1.service/system.slice/slurmstepd.scope/job_7",
            "/machine.slice/libpod-ab.scope/system.slice/slurmstepd.scope/job_7",
            "/docker/ab/system.slice/slurmstepd.scope/job_7",
            "/system.slice/docker-ab.scope/system.slice/slurmstepd.scope/job_7",
            "/system.slice/other-b.slice/slurmstepd.scope/job_7",
            "/system.slice/slurmstepd.scope/job_07",
            "/system.slice/slurmstepd.scope/job_+7",
            "/system.slice/slurmstepd.scope/job_0",
            "/system.slice/slurmstepd.scope/job_4294967296",
            "/system.slice/slurmstepd.scope/job_7 ",
            "/system.slice/slurmstepd.scope//job_7",
            "/system.slice/slurmstepd.scope/../job_7",
            "/system.slice/slurmstepd.scope/sEKNKTV3WPV50",
            "/system.slice/slurmstepd.scope/sEKNKTV3WPV50I",
            "/system.slice/slurmstepd.scope/sekNKTV3WPV500",
            "/slurm/job_7",
            "/slurm/uid_/job_7",
            "/slurm/uid_x/job_7",
            "/slurm_/uid_0/job_7",
            "/slurmd/uid_0/job_7",
            "/lxc/a/slurm/uid_0/job_7",
            "/slurm/uid_0/sEKNKTV3WPV500",
            "/slurm/system",
        ] {
            assert_eq!(place(Version::V2, path, None), None, "{path}");
            assert_eq!(place(Version::V1, path, None), None, "{path}");
        }
    }

    #[test]
    fn another_slurmds_tree_is_not_ours() {
        let v1 = |node| place(Version::V1, "/slurm_n2/uid_0/job_7", Some(node)).is_some();
        let v2 = |node| place(Version::V2, "/system.slice/n2_slurmstepd.scope/job_7", Some(node)).is_some();
        assert!(v1("n2") && v2("n2") && !v1("n1") && !v2("n1"));
        assert!(place(Version::V1, "/slurm/uid_0/job_7", Some("n1")).is_some());
    }
}
