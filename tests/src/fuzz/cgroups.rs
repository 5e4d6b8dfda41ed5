//! The text of /proc/PID/cgroup, by which processes are ended.

use super::text;
use gpuward_node::cgroup::{Hierarchies, JobKey, Place};
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

pub const WORDS: &[&str] = &[
    "5:devices:/slurm_n1/uid_1000/job_7/step_0/task_0\n",
    "6:freezer:/slurm/uid_0/job_8/step_batch\n",
    "0::/system.slice/n1_slurmstepd.scope/job_7/step_0/user/task_1\n",
    "0::/system.slice/slurmstepd.scope/job_7/step_0/slurm\n",
    "0::/user.slice/user-1000.slice",
    "/slurm_n2",
    "/..",
    " (deleted)",
    "4294967296",
    "s0123456789ABCD",
    "/job_7",
    "/step_",
];

/// A host with version 1, and one with version 2, both of node n1.
static HOSTS: LazyLock<Vec<Hierarchies>> = LazyLock::new(|| {
    let v1 = "36 35 0:30 / {root}/cgroup/devices rw - cgroup cgroup rw,devices\n\
              37 35 0:31 / {root}/cgroup/freezer rw - cgroup cgroup rw,freezer\n";
    let v2 = "36 35 0:30 / {root}/cgroup rw - cgroup2 cgroup2 rw\n";
    [v1, v2].into_iter().filter_map(|mounts| host(mounts).ok()).collect()
});

fn host(mounts: &str) -> Result<Hierarchies, Box<dyn std::error::Error>> {
    let root = tempfile::tempdir()?;
    let (cgroup, proc) = (root.path().join("cgroup"), root.path().join("proc"));
    for folder in ["devices", "freezer", "."] {
        fs::create_dir_all(cgroup.join(folder))?;
        fs::write(cgroup.join(folder).join("cgroup.procs"), "")?;
    }
    fs::create_dir_all(proc.join("thread-self"))?;
    fs::create_dir_all(proc.join("1"))?;
    let mounts = mounts.replace("{root}", &root.path().display().to_string());
    fs::write(proc.join("thread-self/mountinfo"), mounts)?;
    fs::write(proc.join("1/cgroup"), "0::/\n")?;
    // Paths are only compared as text from here on.
    Ok(Hierarchies::find(&cgroup, &proc, Some("n1"))?)
}

/// A process is in a job only where a line says so in Slurm's form, and lines that say two jobs say none.
pub fn check(data: &[u8]) {
    let text = text(data);
    assert_eq!(HOSTS.len(), 2, "no simulated hosts");
    for host in HOSTS.iter() {
        match host.place_of(&text) {
            Ok(Some(place)) => place_is_sound(host, &place, &text),
            Ok(None) => {
                let alone = |line: &str| host.place_of(line).is_ok_and(|place| place.is_none());
                assert!(text.lines().all(alone), "a line for itself is in a job");
            }
            Err(_) => assert!(text.lines().count() > 1, "one line cannot contradict itself"),
        }
    }
}

fn place_is_sound(host: &Hierarchies, place: &Place, text: &str) {
    let key = match &place.job {
        JobKey::Id(id) => format!("/job_{id}"),
        JobKey::Sluid(sluid) => format!("/{sluid}"),
    };
    let own =
        |line: &&str| Path::new(line.splitn(3, ':').nth(2).unwrap_or_default()).starts_with(&place.tree);
    // Leading zeros are digits as well.
    let zeros = text.replace("job_0", "job_");
    assert!(text.lines().any(|line| own(&line)), "{place:?}");
    assert!(text.contains(&key) || zeros.contains("job_"), "{place:?}");
    assert!(
        ["/slurm", "/slurm_n1"].contains(&place.tree.as_str()) || place.tree.ends_with("slurmstepd.scope"),
        "{place:?}"
    );
    assert!(
        place.tree.split('/').all(|part| !["..", "user.slice", "machine.slice"].contains(&part)),
        "{place:?}"
    );
    assert!(place.task.is_none() || place.step.is_some(), "{place:?}");
    assert_eq!(host.place_of(&format!("{text}\n{text}")).ok().flatten().as_ref(), Some(place));
    let foreign = format!(
        "{text}\n7:devices,freezer:/slurm_n1/uid_5/job_4000000000\n0::/system.slice/slurmstepd.scope/job_4000000000"
    );
    assert!(
        place.job == JobKey::Id(gpuward_core::model::JobId(4_000_000_000))
            || host.place_of(&foreign).is_err()
    );
}
