//! gpuward on real Slurm: jobs cross prolog, plugin and epilog.

use gpuward_core::account::{Quality, RecordStatus};
use gpuward_tests::cluster::Info;
use gpuward_tests::stack::{Stack, StackBuilder};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

fn start(builder: StackBuilder) -> Stack {
    builder.start().unwrap_or_else(|error| panic!("{error}"))
}

fn ended(job: &Info) -> bool {
    job.is("COMPLETED") || job.is("FAILED")
}

fn wait_for(what: &str, mut look: impl FnMut() -> bool) {
    let start = Instant::now();
    while !look() {
        assert!(start.elapsed() < LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod healthy {
    use super::*;

    #[test]
    fn a_step_gets_what_its_user_did_not_set_and_its_job_one_exact_record() {
        let stack = start(StackBuilder::new("healthy").node("n1", "hgx-h100"));
        let script = "echo $CUDA_DEVICE_ORDER/$GPUWARD_SET/$SLURM_STEP_GPUS; exit 7";
        let output = stack.cluster.srun(&["--uid=65534", "--gres=gpu:2", "sh", "-c", script]).unwrap();
        assert_eq!(output.stdout, "PCI_BUS_ID/CUDA_DEVICE_ORDER/0,1\n", "{}", output.stderr);
        assert_eq!(output.code, Some(7), "the job's own exit code: {}", output.stderr);
        let node = stack.node("n1");
        wait_for("no record", || node.records().len() == 1);
        let record = &node.records()[0];
        assert_eq!(
            (record.status, record.uid, record.exit_code.as_deref()),
            (RecordStatus::Complete, Some(65534), Some("7:0"))
        );
        assert_eq!(record.gpus.len(), 2);
        assert!(record.gpus.iter().all(|gpu| gpu.energy_mj.quality == Quality::Exact));
        wait_for("the state is left behind", || node.states().is_empty());

        let own = ["--gres=gpu:1", "sh", "-c", "echo $CUDA_DEVICE_ORDER/$GPUWARD_SET"];
        let mut command = stack.cluster.command("srun");
        let output = command.args(own).env("CUDA_DEVICE_ORDER", "FASTEST_FIRST").output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "FASTEST_FIRST/\n", "the user's word wins");
        let off = ["--gpuward=off", "--gres=gpu:1", "sh", "-c", "echo $CUDA_DEVICE_ORDER/"];
        assert_eq!(stack.cluster.srun(&off).unwrap().stdout, "/\n");
        let none = stack.cluster.srun(&["sh", "-c", "echo $CUDA_DEVICE_ORDER/"]).unwrap();
        assert_eq!(none.stdout, "/\n", "a job without GPUs is left alone");

        let id = stack.cluster.sbatch(&["--gres=gpu:1"], "srun sh -c 'echo $GPUWARD_SET'; exit 3").unwrap();
        let job = stack.cluster.wait_job_end(id, LIMIT).unwrap();
        assert_eq!((job.state(), job.get("ExitCode")), ("FAILED", "3:0"));
        assert_eq!(stack.cluster.job_output(id), "CUDA_DEVICE_ORDER\n");
        let help = stack.cluster.srun(&["--help"]).unwrap();
        assert!(help.stdout.contains("--gpuward="), "{}", help.stdout);
        let salloc = stack
            .cluster
            .command("salloc")
            .args(["--gres=gpu:1", "srun", "sh", "-c", "echo $GPUWARD_SET"])
            .output()
            .unwrap();
        assert_eq!(
            String::from_utf8_lossy(&salloc.stdout),
            "CUDA_DEVICE_ORDER\n",
            "{}",
            String::from_utf8_lossy(&salloc.stderr)
        );
    }

    #[test]
    fn a_job_over_two_nodes_leaves_a_record_on_each() {
        let stack = start(StackBuilder::new("two").node("n1", "l40s-pcie").node("n2", "l40s-pcie"));
        let output = stack.cluster.srun(&["-N2", "--gres=gpu:1", "hostname"]).unwrap();
        assert!(output.ok(), "{}", output.stderr);
        for name in ["n1", "n2"] {
            wait_for("no record", || stack.node(name).records().len() == 1);
            assert_eq!(stack.node(name).records()[0].node, name);
        }
    }
}

#[cfg(test)]
mod broken {
    use super::*;

    #[test]
    fn a_lost_gpu_drains_with_our_reason_and_the_job_finishes_elsewhere_under_the_same_id() {
        let stack = start(StackBuilder::new("lost").node("n1", "hgx-h100").node("n2", "hgx-h100"));
        stack.node("n1").fault("[[lost]]\ngpu = 3\n");
        let id = stack.cluster.sbatch(&["--gres=gpu:8"], "echo ran on $SLURMD_NODENAME; exit 5").unwrap();
        let held = |job: &Info| job.get("Priority") == "0" || job.get("Reason").contains("held");
        let job = stack.cluster.wait_job(id, |job| ended(job) || held(job), LIMIT).unwrap();
        assert!(!held(&job), "the job is held: {job:?}");
        assert_eq!((job.state(), job.get("ExitCode"), job.get("NodeList")), ("FAILED", "5:0", "n2"));
        assert_eq!(job.get("Restarts"), "1");
        assert_eq!(stack.cluster.job_output(id), "ran on n2\n");
        let node = stack.cluster.node("n1").unwrap();
        let slot = 3;
        let machine = stack.node("n1");
        let index = machine.minor(slot);
        let start = format!(
            "gpuward:GPU_LOST GPU{index} {} {} GPU is lost; job={id} do=reboot id=",
            machine.pci(slot),
            &machine.uuid(slot)[..12]
        );
        assert!(node.is("DRAIN") && node.reason().starts_with(&start), "{} != {start}", node.reason());
        wait_for("no record", || stack.node("n2").records().len() == 1);
        assert!(machine.states().is_empty() && machine.records().is_empty(), "a refused run used nothing");
    }

    #[test]
    fn an_admins_drain_keeps_its_reason_byte_for_byte() {
        let stack = start(StackBuilder::new("admin").node("n1", "l40s-pcie").node("n2", "l40s-pcie"));
        // Slow enough for an admin to come between allocation and verdict.
        stack.node("n1").fault("latency_us = 100000\n[[lost]]\ngpu = 0\n");
        let id = stack.cluster.sbatch(&["--gres=gpu:4"], "echo ran on $SLURMD_NODENAME").unwrap();
        let probe = stack.node("n1").dir.join("run/probe.json");
        wait_for("the prolog does not begin", || probe.exists());
        let reason = "gpu tray: look, don't touch = [ticket 7]; id=1";
        stack
            .cluster
            .scontrol(&["update", "nodename=n1", "state=drain", &format!("reason={reason}")])
            .unwrap();
        let job = stack.cluster.wait_job(id, ended, LIMIT).unwrap();
        assert_eq!(
            (job.state(), job.get("NodeList")),
            ("COMPLETED", "n2"),
            "the job was refused all the same"
        );
        let node = stack.cluster.node("n1").unwrap();
        assert!(node.get("Reason").starts_with(&format!("{reason} [")), "{}", node.get("Reason"));
        assert!(stack.node("n1").log().contains("left_alone"), "{}", stack.node("n1").log());
    }

    #[test]
    fn a_hung_driver_and_a_fresh_install_let_the_job_run_to_its_end() {
        let hung =
            start(StackBuilder::new("hung").node("n1", "l40s-pcie").settings("[probe]\ndeadline_ms = 500\n"));
        hung.node("n1").fault("[[hang]]\nfunction = \"*\"\n");
        let output = hung.cluster.srun(&["--gres=gpu:1", "sh", "-c", "exit 9"]).unwrap();
        assert_eq!(output.code, Some(9), "{}", output.stderr);
        let node = hung.cluster.node("n1").unwrap();
        assert!(!node.is("DRAIN"), "{}", node.reason());
        wait_for("no record", || hung.node("n1").records().len() == 1);
        assert_eq!(
            hung.node("n1").records()[0].gpus[0].energy_mj.quality,
            Quality::Partial("no_start".into())
        );

        let fresh = start(StackBuilder::new("fresh").node("n1", "l40s-pcie").mode("observe"));
        fresh.node("n1").fault("[[lost]]\ngpu = 0\n");
        let output = fresh.cluster.srun(&["--gres=gpu:1", "sh", "-c", "exit 9"]).unwrap();
        assert_eq!(output.code, Some(9), "{}", output.stderr);
        assert!(!fresh.cluster.node("n1").unwrap().is("DRAIN"));
    }

    #[test]
    fn in_mode_comment_the_user_is_told_and_the_job_goes_on() {
        let stack = start(StackBuilder::new("comment").node("n1", "l40s-pcie").mode("comment"));
        stack.node("n1").fault("[[set]]\ngpu = 0\nfield = \"ecc.dram.volatile_uncorr\"\nvalue = 3\n");
        let output = stack.cluster.srun(&["--gres=gpu:1", "-n2", "true"]).unwrap();
        assert!(output.ok(), "{}", output.stderr);
        assert_eq!(output.stderr.matches("ECC_UNCORR GPU0").count(), 1, "told once: {}", output.stderr);
    }
}

#[cfg(test)]
mod faults_of_ours {
    use super::*;
    use std::path::PathBuf;

    fn fault_plugin() -> PathBuf {
        let tests = std::env::current_exe().unwrap();
        let profile = tests.ancestors().nth(2).unwrap();
        let name = profile.file_name().unwrap();
        let plugin = profile.with_file_name("fault").join(name).join("libspank_gpuward.so");
        assert!(plugin.exists(), "{} is missing: run `make build`", plugin.display());
        plugin
    }

    #[test]
    fn a_panic_in_each_hook_leaves_the_job_its_own_exit_code() {
        let stack = start(StackBuilder::new("panic").node("n1", "l40s-pcie"));
        let conf = stack.cluster.path().join("etc/plugstack.conf");
        for hook in ["init", "option", "init_post_opt", "task_init"] {
            let line = format!(
                "optional {} config={}/etc/gpuward.toml panic={hook}\n",
                fault_plugin().display(),
                stack.cluster.path().display()
            );
            std::fs::write(conf.with_extension("new"), line).unwrap();
            std::fs::rename(conf.with_extension("new"), &conf).unwrap();
            let output = stack
                .cluster
                .srun(&["--gpuward=on", "--gres=gpu:1", "-n2", "sh", "-c", "echo ran; exit 9"])
                .unwrap();
            assert_eq!(
                (output.code, output.stdout.matches("ran").count()),
                (Some(9), 2),
                "{hook}: {}",
                output.stderr
            );
            let id = stack.cluster.sbatch(&["--gpuward=on", "--gres=gpu:1"], "echo ran; exit 9").unwrap();
            let job = stack.cluster.wait_job_end(id, LIMIT).unwrap();
            assert_eq!(
                (job.get("ExitCode"), stack.cluster.job_output(id).as_str()),
                ("9:0", "ran\n"),
                "{hook}"
            );
            assert!(!stack.cluster.node("n1").unwrap().is("DRAIN"), "{hook}");
        }
        let log = std::fs::read_to_string(stack.cluster.log_path("slurmd n1")).unwrap();
        for hook in ["init", "option", "init_post_opt", "task_init"] {
            assert!(
                log.contains(&format!("internal error in {hook}: ")),
                "the log says what happened in {hook}: {log}"
            );
        }
    }

    #[test]
    fn a_state_file_that_is_not_to_be_trusted_is_not_used_and_is_told() {
        let script = "#!/bin/sh\n\
            {gpuward} || exit 1\n\
            cd ${SLURM_CONF%/etc/slurm.conf}/nodes/$SLURMD_NODENAME/run/jobs || exit 0\n\
            file=$(echo $SLURM_JOB_ID.*.json)\n\
            case $(/bin/cat ../breakage) in\n\
            missing) /bin/rm $file ;;\n\
            truncated) /bin/dd if=/dev/null of=$file bs=1 seek=100 2>/dev/null ;;\n\
            foreign) /bin/chown 65534 $file ;;\n\
            symlink) /bin/mv $file ../moved.json; /bin/ln -s ../moved.json $file ;;\n\
            esac\n";
        let stack = start(StackBuilder::new("state").node("n1", "l40s-pcie").prolog_script(script));
        let breakage = stack.node("n1").dir.join("run/breakage");
        for kind in ["missing", "truncated", "foreign", "symlink"] {
            std::fs::create_dir_all(breakage.parent().unwrap()).unwrap();
            std::fs::write(&breakage, kind).unwrap();
            let log = stack.cluster.log_path("slurmd n1");
            let before = std::fs::read_to_string(&log).unwrap().len();
            let output =
                stack.cluster.srun(&["--gres=gpu:1", "sh", "-c", "echo $GPUWARD_SET/; exit 9"]).unwrap();
            assert_eq!((output.code, output.stdout.as_str()), (Some(9), "/\n"), "{kind}: {}", output.stderr);
            let text = std::fs::read_to_string(&log).unwrap()[before..].to_owned();
            let told = text.lines().filter(|line| line.contains("gpuward") && line.contains("error")).count();
            assert_eq!(told, usize::from(kind != "missing"), "{kind}: {text}");
        }
    }

    #[test]
    fn a_wrong_configuration_stops_no_job() {
        let stack = start(StackBuilder::new("config").node("n1", "l40s-pcie"));
        std::fs::write(stack.cluster.path().join("etc/gpuward.toml"), "[paths\nrun = 1\n").unwrap();
        let output = stack.cluster.srun(&["--gres=gpu:1", "sh", "-c", "exit 9"]).unwrap();
        assert_eq!(output.code, Some(9), "{}", output.stderr);
        assert!(!stack.cluster.node("n1").unwrap().is("DRAIN"));
        let log = std::fs::read_to_string(stack.cluster.log_path("slurmd n1")).unwrap();
        assert_eq!(log.matches("gpuward.toml").count(), 1, "told once: {log}");
    }
}
