//! The throw-away cluster starts, tells why if it cannot, and leaves nothing behind.
#![allow(clippy::tests_outside_test_module)]

use gpuward_tests::cluster::{Cluster, ClusterBuilder, Containment, NodeSpec};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(20);

/// Leaves a process behind that has left the prolog's session and pipe, as a sampler does.
const PROLOG_WITH_SAMPLER: &str = "#!/bin/sh
/usr/bin/setsid /bin/sleep 300 </dev/null >/dev/null 2>&1 &
exit 0
";

fn two_nodes(name: &str) -> ClusterBuilder {
    ClusterBuilder::new(name).node(NodeSpec::gpus("n1", 1)).node(NodeSpec::cpu_only("n2"))
}

/// The processes that know the folder, by cgroup, environment or command line. Dead ones have neither.
fn processes_of(folder: &Path) -> Vec<String> {
    let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let read = |file: &str| fs::read(entry.path().join(file)).unwrap_or_default();
        let is_number = entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit());
        let text = [read("cgroup"), read("environ"), read("cmdline")].concat();
        if is_number && !read("cmdline").is_empty() && String::from_utf8_lossy(&text).contains(&name) {
            found.push(String::from_utf8_lossy(&read("comm")).trim().to_owned());
        }
    }
    found
}

fn assert_nothing_is_left(folder: &Path) {
    let deadline = Instant::now() + SOON;
    while !processes_of(folder).is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(processes_of(folder), Vec::<String>::new());
    assert!(!folder.exists(), "{}", folder.display());
    let name = folder.file_name().unwrap().to_str().unwrap();
    let find = Command::new("find").args(["/sys/fs/cgroup", "-name", &format!("{name}*")]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&find.stdout), "");
}

fn long_job(cluster: &Cluster) {
    let id = cluster.sbatch(&["-wn1", "--gres=gpu:1"], "sleep 301 & exec sleep 302").unwrap();
    let started = |pid: String| pid.contains("sleep");
    let deadline = Instant::now() + SOON;
    while processes_of(cluster.path()).into_iter().filter(|name| started(name.clone())).count() < 2 {
        assert!(Instant::now() < deadline, "job {id} did not start: {}", cluster.log_tail("slurmd n1"));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn two_clusters_with_equal_node_names_and_job_ids_run_side_by_side_and_leave_nothing() {
    let sampled =
        |name| two_nodes(name).file("prolog", PROLOG_WITH_SAMPLER).prolog("{root}/etc/prolog").start();
    let (one, two) = (sampled("one").unwrap(), sampled("two").unwrap());
    println!("started in {:?} and {:?}, {:?}", one.start_time, two.start_time, one.containment);
    long_job(&one);
    long_job(&two);
    let (one_folder, two_folder) = (one.path().to_owned(), two.path().to_owned());
    drop(one);
    assert_nothing_is_left(&one_folder);
    // The end of job 1 in one cluster is not the end of job 1 in the other.
    let names = processes_of(&two_folder);
    for wanted in ["munged", "slurmctld", "slurmd", "slurmstepd", "sleep"] {
        assert!(names.iter().any(|name| name == wanted), "{wanted} not in {names:?}");
    }
    let output = two.srun(&["-N2", "-n4", "hostname"]).unwrap();
    assert!(output.ok() && output.stdout.lines().count() == 4, "{output:?}");
    drop(two);
    assert_nothing_is_left(&two_folder);
}

#[test]
fn a_panic_ends_the_cluster_too() {
    let (send, receive) = std::sync::mpsc::channel();
    let panicked = std::thread::spawn(move || {
        let cluster = two_nodes("panic").start().unwrap();
        send.send(cluster.path().to_owned()).unwrap();
        panic!("on purpose");
    });
    assert!(panicked.join().is_err());
    assert_nothing_is_left(&receive.recv().unwrap());
}

#[test]
fn a_daemon_that_refuses_its_configuration_is_quoted() {
    let error = two_nodes("bad").conf_line("SchedulerType=sched/nonsense").start().unwrap_err().to_string();
    assert!(error.contains("slurmctld ended") && error.contains("sched/nonsense"), "{error}");
    let error = two_nodes("bad").set("PrologFlags+=Nonsense").start().unwrap_err().to_string();
    assert!(error.contains("PrologFlags=Nonsense: Slurm"), "{error}");
    let error = two_nodes("bad").conf_line("Prolog=/bin/false").start().unwrap_err().to_string();
    assert!(error.contains("prolog is there already"), "{error}");
}

#[test]
fn a_cluster_that_is_kept_can_be_used_and_ended_by_hand() {
    let cluster = two_nodes("kept").start().unwrap();
    let (folder, conf) = (cluster.path().to_owned(), cluster.slurm_conf());
    long_job(&cluster);
    let told = cluster.keep().unwrap();
    assert!(told.contains(&format!("export SLURM_CONF={}", conf.display())), "{told}");
    let sinfo = Command::new("sinfo").env("SLURM_CONF", &conf).args(["-h", "-o", "%D"]).output().unwrap();
    assert!(sinfo.status.success() && folder.exists(), "{sinfo:?}");
    let stop = told.lines().find_map(|line| line.strip_prefix("end it: sh ")).unwrap();
    let stopped = Command::new("sh").arg(stop).output().unwrap();
    assert!(stopped.status.success(), "{stopped:?}");
    assert_nothing_is_left(&folder);
}

#[test]
fn a_cluster_whose_owner_was_killed_is_cleared_away_by_the_next_one() {
    let me = std::env::current_exe().unwrap();
    let program = me.parent().unwrap().with_file_name("examples").join("leave_cluster");
    let died = Command::new(program).output().unwrap();
    let output = String::from_utf8_lossy(&died.stdout).into_owned();
    let folder =
        output.lines().find_map(|line| line.split_once("left in ")).map(|(_, folder)| Path::new(folder));
    let folder = folder.unwrap_or_else(|| panic!("{died:?}"));
    assert!(!died.status.success(), "{died:?}");
    let next = two_nodes("next").start().unwrap();
    assert_nothing_is_left(folder);
    drop(next);
}

#[test]
fn without_cgroups_jobs_run_and_nothing_is_left_either() {
    let cluster = two_nodes("plain").without_cgroups().start().unwrap();
    assert!(matches!(cluster.containment, Containment::Processes(_)));
    long_job(&cluster);
    let output = cluster.srun(&["-wn2", "-n4", "--uid=65534", "--gid=65534", "id", "-u"]).unwrap();
    assert_eq!((output.code, &*output.stdout), (Some(0), "65534\n".repeat(4).as_str()), "{output:?}");
    let folder = cluster.path().to_owned();
    drop(cluster);
    assert_nothing_is_left(&folder);
}
