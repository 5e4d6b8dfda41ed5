//! Jobs of a real Slurm and their control groups: whose a process is must be told exactly.
#![allow(clippy::tests_outside_test_module)]

use gpuward_core::model::JobId;
use gpuward_node::cgroup::{
    Device, Hierarchies, Job, JobDevices, JobKey, JobProcess, Layout, Owner, Quality,
};
use gpuward_tests::cluster::{Cluster, ClusterBuilder, Containment, NodeSpec, run};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(40);

/// A batch script that starts two steps. Each task has a device open, without a driver as O_PATH only, and a child that
/// has left its session and its parent. Whoever is ready says so in a file of its own.
const TWO_STEPS: &str = r#"
cat > $OUT/$SLURM_JOB_ID.py <<'END'
import os, signal
device = os.open(os.environ["DEV"] + "/nvidia" + os.environ["SLURM_PROCID"], os.O_PATH)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(os.environ["OUT"] + "/ready.child" + os.environ["SLURM_PROCID"], "w")
        signal.pause()
    os._exit(0)
os.wait()
open(os.environ["OUT"] + "/ready.task" + os.environ["SLURM_PROCID"], "w")
signal.pause()
END
srun -n2 --exact --overlap --gpus-per-task=1 python3 $OUT/$SLURM_JOB_ID.py &
srun -n1 --exact --overlap --gres=gpu:1 sh -c 'touch $OUT/ready.other; exec sleep 600' &
wait
"#;

/// The same user's other job. Its first thread ends while another one goes on.
const OTHER_JOB: &str = r#"
exec python3 -c '
import ctypes, os, threading, time
device = os.open(os.environ["DEV"] + "/nvidia2", os.O_PATH)
def go_on():
    while open("/proc/self/stat").read().rsplit(") ")[1][0] != "Z":
        time.sleep(0.01)
    open(os.environ["OUT"] + "/ready.headless", "w").write(str(os.getpid()))
    time.sleep(600)
threading.Thread(target=go_on).start()
ctypes.CDLL(None).pthread_exit(None)
'
"#;

/// Two jobs of one user on one node, all of whose processes run and wait.
struct TwoJobs {
    two_steps: Job,
    other: Job,
    headless_pid: u32,
    /// The name of the node's own control group.
    group: String,
}

impl Drop for TwoJobs {
    /// A process without its first thread looks dead to everybody who could end it if this test does not come to its end.
    fn drop(&mut self) {
        let threads =
            fs::read_dir(format!("/proc/{}/task", self.headless_pid)).into_iter().flatten().flatten();
        let texts =
            threads.map(|thread| fs::read_to_string(thread.path().join("cgroup")).unwrap_or_default());
        if texts.into_iter().any(|text| text.contains(&self.group)) {
            let pid = libc::pid_t::try_from(self.headless_pid).unwrap();
            // SAFETY: kill takes two numbers and touches no memory; the process is in a group of our own.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    }
}

/// What the harness calls the control group of n1.
fn group_of(cluster: &Cluster) -> String {
    format!("{}-n1", cluster.path().file_name().unwrap().to_string_lossy())
}

fn two_jobs(cluster: &Cluster) -> TwoJobs {
    let out = cluster.path().join("out");
    let export =
        format!("--export=ALL,OUT={},DEV={}", out.display(), cluster.node_dir("n1").join("dev").display());
    let submit = |gpus: &str, tasks: &str, script| {
        let id = cluster.sbatch(&["--uid=65534", gpus, tasks, &export], script).unwrap();
        Job { id, sluid: None }
    };
    let two_steps = submit("--gres=gpu:2", "-n3", TWO_STEPS);
    let other = submit("--gres=gpu:1", "-n1", OTHER_JOB);
    for name in ["child0", "child1", "task0", "task1", "other", "headless"] {
        let path = out.join(format!("ready.{name}"));
        wait_for(
            name,
            || path.exists(),
            || {
                let logs = cluster.log_tail("slurmd n1");
                format!("{}{}{logs}", cluster.job_output(two_steps.id), cluster.job_output(other.id))
            },
        );
    }
    let mut headless_pid = None;
    wait_for(
        "a pid",
        || {
            headless_pid = fs::read_to_string(out.join("ready.headless")).unwrap().parse().ok();
            headless_pid.is_some()
        },
        String::new,
    );
    TwoJobs { two_steps, other, headless_pid: headless_pid.unwrap(), group: group_of(cluster) }
}

fn wait_for(what: &str, mut look: impl FnMut() -> bool, why: impl Fn() -> String) {
    let start = Instant::now();
    while !look() {
        assert!(start.elapsed() < LIMIT, "{what}: {}", why());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs `body` where the process `pid` sees its control groups.
fn as_seen_by<T: Send>(pid: u32, body: impl FnOnce() -> T + Send) -> T {
    let open = |kind: &str| File::open(format!("/proc/{pid}/ns/{kind}")).unwrap();
    let (mounts, cgroups) = (open("mnt"), open("cgroup"));
    let inside = move || {
        // A thread that shares its working folder with others may not enter another mount namespace.
        // SAFETY: unshare touches no memory, and this thread is ours alone.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_FS) }, 0);
        // SAFETY: the descriptor is open as long as the file; setns touches no memory.
        assert_eq!(unsafe { libc::setns(mounts.as_raw_fd(), libc::CLONE_NEWNS) }, 0);
        // SAFETY: as above.
        assert_eq!(unsafe { libc::setns(cgroups.as_raw_fd(), libc::CLONE_NEWCGROUP) }, 0);
        body()
    };
    std::thread::scope(|scope| scope.spawn(inside).join().unwrap())
}

/// Whose environment says that they are of this job, which Slurm gives to every task and no one takes away here.
fn pids_by_environment(cluster: &Cluster, id: JobId) -> BTreeSet<u32> {
    let wanted = [
        format!("SLURM_JOB_ID={id}").into_bytes(),
        format!("SLURM_CONF={}", cluster.slurm_conf().display()).into_bytes(),
    ];
    let has_all = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        wanted.iter().all(|entry| environment.split(|&byte| byte == 0).any(|found| found == entry.as_slice()))
    };
    let pids = fs::read_dir("/proc").unwrap().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(has_all).collect()
}

fn pids_of(processes: &[JobProcess], owner: Owner) -> BTreeSet<u32> {
    processes.iter().filter(|process| process.owner == owner).map(|process| process.pid).collect()
}

/// Names of Slurm's own, with their steps.
fn slurms(processes: &[JobProcess]) -> Vec<String> {
    let own = processes.iter().filter(|process| process.owner == Owner::Slurm);
    let mut names: Vec<String> = own
        .map(|process| format!("{} {}", process.name, process.place.step.as_deref().unwrap_or("-")))
        .collect();
    names.sort();
    names
}

fn gpus(minors: &[u32]) -> Option<JobDevices> {
    let devices = minors.iter().map(|&minor| Device::Gpu { minor }).collect();
    Some(JobDevices { devices, quality: Quality::Open })
}

/// What is promised of any version of control groups.
fn check(cluster: &Cluster, groups: &Hierarchies, jobs: &TwoJobs) {
    let TwoJobs { two_steps, other, headless_pid, .. } = jobs;
    let keys: BTreeSet<JobKey> = [two_steps, other].map(|job| JobKey::Id(job.id)).into();
    assert_eq!(groups.jobs().unwrap(), keys);

    let processes = groups.processes_of(two_steps).unwrap().unwrap();
    let by_environment = pids_by_environment(cluster, two_steps.id);
    // The script, two srun with a child each, two tasks with a child each, and the other step's task.
    assert_eq!(by_environment.len(), 10, "{by_environment:?}");
    assert_eq!(pids_of(&processes, Owner::User), by_environment);
    let at = |step: &str, task| {
        let is_there = |process: &&JobProcess| {
            process.owner == Owner::User
                && process.place.step.as_deref() == Some(step)
                && process.place.task == Some(task)
        };
        processes.iter().filter(is_there).count()
    };
    let (first, second) = if at("0", 1) == 2 { ("0", "1") } else { ("1", "0") };
    assert_eq!((at("batch", 0), at(first, 0), at(first, 1), at(second, 0)), (5, 2, 2, 1), "{processes:?}");

    let others = groups.processes_of(other).unwrap().unwrap();
    // A process without its first thread shows no environment.
    assert_eq!(pids_of(&others, Owner::User), [*headless_pid].into());
    for process in processes.iter().chain(&others) {
        assert_eq!(groups.process(process.pid).unwrap().as_ref(), Some(process), "both ways agree");
    }
    assert_eq!(groups.process(std::process::id()).unwrap(), None, "who asks is in no job");

    assert_eq!(groups.devices_of(two_steps).unwrap(), gpus(&[0, 1]));
    assert_eq!(groups.devices_of(other).unwrap(), gpus(&[2]));
}

fn cancel(cluster: &Cluster, id: JobId) {
    let scancel = run(cluster.command("scancel").arg(id.to_string()), "", LIMIT).unwrap();
    assert!(scancel.ok(), "{}", scancel.stderr);
    cluster.wait_job_end(id, LIMIT).unwrap();
}

/// A job that has ended leaves nothing behind, and the other is untouched.
fn check_after(cluster: &Cluster, find: impl Fn() -> Hierarchies, jobs: &TwoJobs) {
    cancel(cluster, jobs.two_steps.id);
    wait_for("the group stays", || find().processes_of(&jobs.two_steps).unwrap().is_none(), String::new);
    let others = find().processes_of(&jobs.other).unwrap().unwrap();
    assert_eq!(pids_of(&others, Owner::User), [jobs.headless_pid].into());
}

#[test]
fn on_v1_a_job_has_exactly_its_own_processes_and_devices() {
    let builder = ClusterBuilder::new("groups1").set("PrologFlags+=Contain").node(NodeSpec::gpus("n1", 4));
    let cluster = builder.start().unwrap_or_else(|error| panic!("{error}"));
    if let Containment::Processes(why) = &cluster.containment {
        println!("no control groups v1 here: {why}");
        return;
    }
    let jobs = two_jobs(&cluster);
    let slurmd =
        fs::read_to_string(cluster.node_dir("n1").join("slurmd.pid")).unwrap().trim().parse().unwrap();
    let find = || Hierarchies::find(Path::new("/sys/fs/cgroup"), Path::new("/proc"), Some("n1")).unwrap();
    as_seen_by(slurmd, || {
        let groups = find();
        assert_eq!(groups.layout(), Layout::V1);
        check(&cluster, &groups, &jobs);
        let own = slurms(&groups.processes_of(&jobs.two_steps).unwrap().unwrap());
        let steps = ["0", "1", "batch", "extern"].map(|step| format!("slurmstepd {step}"));
        assert_eq!(own, [&["sleep extern".to_owned()], &steps[..]].concat());
        check_after(&cluster, find, &jobs);
    });
    let groups = find();
    assert_eq!(groups.jobs().unwrap(), BTreeSet::new(), "from outside this is no tree of Slurm's");
    assert_eq!(groups.process(jobs.headless_pid).unwrap(), None);
    cancel(&cluster, jobs.other.id);
}

/// slurmd of a node with control groups v2, which end with this.
struct V2 {
    slurmd: Child,
    script: PathBuf,
    group: String,
}

impl Drop for V2 {
    fn drop(&mut self) {
        let removed = run(Command::new("sh").arg(&self.script).args(["--remove", &self.group]), "", LIMIT);
        if !removed.as_ref().is_ok_and(|output| output.ok()) {
            eprintln!("control group {} stays: {removed:?}", self.group);
        }
        // It has been killed with its group.
        let _ = self.slurmd.kill();
        let _ = self.slurmd.wait();
    }
}

/// Starts n1's slurmd again, with control groups v2; an error says why that cannot be.
fn restart_with_v2(cluster: &mut Cluster) -> Result<V2, String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("cgroups");
    let (script, library) = (here.join("in-v2.sh"), cluster.path().join("only-v2.so"));
    // As the harness calls a node's groups: so it ends their processes, too, if we cannot.
    let group = group_of(cluster);
    let tried = run(Command::new("sh").arg(&script).args([&group, "true"]), "", LIMIT).unwrap();
    if !tried.ok() {
        return Err(tried.stderr);
    }
    let mut gcc = Command::new("gcc");
    gcc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(here.join("only-v2.c")).arg("-ldl");
    let built = run(&mut gcc, "", LIMIT).unwrap();
    assert!(built.ok(), "{}", built.stderr);
    cluster.stop_slurmd("n1").unwrap();
    let conf = fs::read_to_string(cluster.slurm_conf()).unwrap();
    let conf = conf.replace("proctrack/linuxproc", "proctrack/cgroup");
    fs::write(
        cluster.slurm_conf(),
        conf.replace("TaskPlugin=task/affinity", "TaskPlugin=task/affinity,task/cgroup"),
    )
    .unwrap();
    let cgroup_conf = "CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\nConstrainDevices=yes\n";
    fs::write(cluster.path().join("etc/cgroup.conf"), cgroup_conf).unwrap();
    let log = File::create(cluster.path().join("log/slurmd.v2.out")).unwrap();
    let mut slurmd = cluster.command("setsid");
    slurmd.arg("sh").arg(&script).arg(&group).arg("env").arg(format!("LD_PRELOAD={}", library.display()));
    slurmd
        .args(["slurmd", "-D", "-N", "n1"])
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log);
    Ok(V2 { slurmd: slurmd.spawn().unwrap(), script, group })
}

#[test]
fn on_v2_a_job_has_exactly_its_own_processes_and_devices() {
    let builder = ClusterBuilder::new("groups2").without_cgroups().node(NodeSpec::gpus("n1", 4));
    let mut cluster = builder.start().unwrap_or_else(|error| panic!("{error}"));
    let mut v2 = match restart_with_v2(&mut cluster) {
        Ok(v2) => v2,
        Err(why) => {
            println!("no control groups v2 here: {why}");
            return;
        }
    };
    let jobs = two_jobs(&cluster);
    assert_eq!(v2.slurmd.try_wait().unwrap(), None);
    let find = || Hierarchies::find(Path::new("/sys/fs/cgroup"), Path::new("/proc"), Some("n1")).unwrap();
    as_seen_by(v2.slurmd.id(), || {
        let groups = find();
        assert_eq!(groups.layout(), Layout::V2);
        check(&cluster, &groups, &jobs);
        let own = slurms(&groups.processes_of(&jobs.two_steps).unwrap().unwrap());
        assert_eq!(own, ["slurmstepd 0", "slurmstepd 1", "slurmstepd batch"]);
        check_after(&cluster, find, &jobs);
    });
    cancel(&cluster, jobs.other.id);
}
