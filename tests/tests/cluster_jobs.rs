//! What Slurm really gives to a Prolog and does after one, on which the rest of gpuward stands. The prologs and epilogs
//! here are small shell scripts.
#![allow(clippy::tests_outside_test_module)]

use gpuward_core::model::JobId;
use gpuward_tests::cluster::{Cluster, ClusterBuilder, Containment, Info, NodeSpec};
use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(30);

/// Writes its environment into the node's folder; fails as a Prolog where that holds a file `bad`.
const SCRIPT: &str = "#!/bin/sh
node={root}/nodes/$SLURMD_NODENAME
/usr/bin/env > $node/$SLURM_SCRIPT_CONTEXT.$SLURM_JOB_ID
[ $SLURM_SCRIPT_CONTEXT = epilog_slurmd ] || [ ! -e $node/bad ]
";

fn cluster(name: &str) -> ClusterBuilder {
    ClusterBuilder::new(name).file("script", SCRIPT).prolog("{root}/etc/script").epilog("{root}/etc/script")
}

/// The environment that a node's `prolog` or `epilog` had for a job, once that has run.
fn env_of(cluster: &Cluster, node: &str, program: &str, id: JobId) -> BTreeMap<String, String> {
    let path = cluster.node_dir(node).join(format!("{program}_slurmd.{id}"));
    let deadline = Instant::now() + LIMIT;
    loop {
        let text = fs::read_to_string(&path).unwrap_or_default();
        if text.contains("SLURM_JOB_ID=") && text.ends_with('\n') {
            return text
                .lines()
                .filter_map(|line| line.split_once('='))
                .map(|(k, v)| (k.into(), v.into()))
                .collect();
        }
        assert!(
            Instant::now() < deadline,
            "no {}: {}",
            path.display(),
            cluster.log_tail(&format!("slurmd {node}"))
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn names(env: &BTreeMap<String, String>) -> Vec<&str> {
    // The shell adds these two.
    env.keys().map(String::as_str).filter(|name| !["PWD", "_"].contains(name)).collect()
}

/// The minor numbers whose device file a job can open. Without a driver an open that is allowed ends in ENXIO.
fn opened(cluster: &Cluster, node: &str, gres: &str) -> String {
    let dev = cluster.node_dir(node).join("dev").display().to_string();
    let script = format!(
        "for i in 0 1 2 3; do cat {dev}/nvidia$i 2>&1 | grep -q 'No such device' && echo -n $i; done"
    );
    let output = cluster.srun(&["-w", node, gres, "sh", "-c", &script]).unwrap();
    output.stdout
}

#[test]
fn slurm_job_gpus_is_the_position_in_gres_conf_and_not_the_minor() {
    let shuffled = NodeSpec::gpus("n2", 4).minors(&[2, 0, 3, 1]);
    let cluster = cluster("gres").node(NodeSpec::gpus("n1", 4)).node(shuffled).start().unwrap();
    let held = cluster.sbatch(&["-wn2", "--gres=gpu:1"], "exec sleep 300").unwrap();
    cluster.wait_job(held, |job| job.is("RUNNING"), LIMIT).unwrap();
    let id = cluster.sbatch(&["-wn2", "--gres=gpu:2"], "env | grep ^SLURM_JOB_GPUS").unwrap();
    cluster.wait_job_end(id, LIMIT).unwrap();
    assert_eq!(env_of(&cluster, "n2", "prolog", held)["SLURM_JOB_GPUS"], "0");
    let env = env_of(&cluster, "n2", "prolog", id);
    assert_eq!((&*env["SLURM_JOB_GPUS"], &*env["CUDA_VISIBLE_DEVICES"]), ("1,2", "1,2"));
    assert_eq!(cluster.job_output(id), "SLURM_JOB_GPUS=1,2\n");
    if cluster.containment == Containment::Cgroups {
        // Positions 1 and 2 of [2, 0, 3, 1].
        assert_eq!(opened(&cluster, "n2", "--gres=gpu:2"), "03");
        assert_eq!(opened(&cluster, "n1", "--gres=gpu:2"), "01");
        assert_eq!(opened(&cluster, "n1", "--gres=none"), "");
    }
    let id = cluster.sbatch(&["-wn1"], "true").unwrap();
    let env = env_of(&cluster, "n1", "prolog", id);
    assert!(!env.contains_key("SLURM_JOB_GPUS") && !env.contains_key("CUDA_VISIBLE_DEVICES"), "{env:?}");
}

#[test]
fn a_job_whose_prolog_failed_runs_on_another_node_under_the_same_id() {
    let cluster =
        cluster("requeue").node(NodeSpec::gpus("n1", 2)).node(NodeSpec::gpus("n2", 2)).start().unwrap();
    fs::write(cluster.node_dir("n1").join("bad"), "").unwrap();
    let start = Instant::now();
    let id = cluster.sbatch(&["--gres=gpu:1"], "echo on $SLURMD_NODENAME").unwrap();
    let is_requeued = |job: &Info| job.get("Restarts") == "1" && job.is("PENDING");
    let requeued = cluster.wait_job(id, is_requeued, LIMIT).unwrap();
    // It waits until the credential of its first run has expired; a held job would have priority 0.
    assert_eq!(requeued.get("Reason"), "BeginTime");
    assert_ne!(requeued.get("Priority"), "0");
    let job = cluster.wait_job_end(id, LIMIT).unwrap();
    println!("requeued job done after {:?}", start.elapsed());
    assert_eq!((job.state(), job.get("Restarts"), job.get("NodeList")), ("COMPLETED", "1", "n2"));
    assert_eq!(cluster.job_output(id), "on n2\n");
    let node = cluster.node("n1").unwrap();
    assert!(node.is("DRAIN") && node.reason() == "Prolog error", "{node:?}");

    let restarts = |node, program| env_of(&cluster, node, program, id)["SLURM_JOB_RESTART_COUNT"].clone();
    assert_eq!((restarts("n1", "prolog"), restarts("n2", "prolog")), ("0".into(), "1".into()));
    // The count goes up while the first run's epilog starts: prolog and epilog of one run may differ in it.
    let (first, second) = (restarts("n1", "epilog"), restarts("n2", "epilog"));
    assert!((first == "0" || first == "1") && second == "1", "{first} {second}");
}

#[test]
fn prolog_and_epilog_get_these_variables_and_no_others() {
    let cluster = cluster("environ").node(NodeSpec::gpus("n1", 1)).start().unwrap();
    let id = cluster.sbatch(&["--gres=gpu:1", "--comment=c", "-n2"], "exit 3").unwrap();
    let job = cluster.wait_job_end(id, LIMIT).unwrap();
    assert_eq!((job.state(), job.get("ExitCode")), ("FAILED", "3:0"));
    let prolog = env_of(&cluster, "n1", "prolog", id);
    let epilog = env_of(&cluster, "n1", "epilog", id);
    if cluster.node("n1").unwrap().get("Version").starts_with("22.05") {
        let both = "CUDA_VISIBLE_DEVICES GPU_DEVICE_ORDINAL ROCR_VISIBLE_DEVICES SLURMD_NODENAME SLURM_CLUSTER_NAME \
                    SLURM_CONF SLURM_JOBID SLURM_JOB_COMMENT SLURM_JOB_CPUS_PER_NODE SLURM_JOB_GID SLURM_JOB_GPUS \
                    SLURM_JOB_ID SLURM_JOB_NTASKS SLURM_JOB_NUM_NODES SLURM_JOB_PARTITION SLURM_JOB_RESTART_COUNT \
                    SLURM_JOB_STDIN SLURM_JOB_UID SLURM_JOB_USER SLURM_JOB_WORK_DIR SLURM_NODELIST \
                    SLURM_SCRIPT_CONTEXT SLURM_UID ZE_AFFINITY_MASK";
        assert_eq!(names(&prolog).join(" "), both);
        let only_epilog: Vec<&str> =
            names(&epilog).into_iter().filter(|name| !prolog.contains_key(*name)).collect();
        assert_eq!(only_epilog, ["SLURM_JOB_DERIVED_EC", "SLURM_JOB_EXIT_CODE", "SLURM_JOB_EXIT_CODE2"]);
        assert_eq!(names(&epilog).len(), names(&prolog).len() + 3);
    }
    assert_eq!((&*epilog["SLURM_JOB_EXIT_CODE"], &*epilog["SLURM_JOB_EXIT_CODE2"]), ("768", "3:0"));
    assert_eq!(prolog["SLURM_CONF"], cluster.slurm_conf().display().to_string());
}

#[test]
fn a_job_outlives_a_restart_of_its_slurmd() {
    let mut cluster = cluster("restart").node(NodeSpec::cpu_only("n1")).start().unwrap();
    let go = cluster.path().join("out/go");
    let script = format!("while [ ! -e {} ]; do sleep 0.05; done; echo done", go.display());
    let id = cluster.sbatch(&[], &script).unwrap();
    env_of(&cluster, "n1", "prolog", id);
    cluster.restart_slurmd("n1").unwrap();
    cluster.wait_node("n1", |node| node.is("MIXED") || node.is("ALLOCATED"), LIMIT).unwrap();
    fs::write(&go, "").unwrap();
    let job = cluster.wait_job_end(id, LIMIT).unwrap();
    assert_eq!((job.state(), job.get("Restarts")), ("COMPLETED", "0"));
    assert_eq!(cluster.job_output(id), "done\n");
}
