//! The prolog and the epilog as programs, on a simulated machine, without Slurm.

use gpuward_core::account::{Quality, RecordStatus};
use gpuward_tests::sim::{Bench, NODE};

#[cfg(test)]
mod healthy {
    use super::*;

    #[test]
    fn a_healthy_node_lets_the_job_go_on_without_any_rpc_and_leaves_its_state() {
        let bench = Bench::new("hgx-h100", "drain", "");
        let run = bench.prolog(7, "0,3");
        assert_eq!(run.code, Some(0), "{}\n{}", run.stderr, bench.node.log());
        assert_eq!(bench.scontrol_calls(), Vec::<String>::new());
        let [state] = &bench.node.states()[..] else { panic!("{}", bench.node.log()) };
        assert!(state.gpu_map_certain);
        assert_eq!((state.job_id.0, state.node.as_str(), state.user.as_deref()), (7, NODE, Some("alice")));
        let minors: Vec<Option<u32>> = state.gpus.iter().map(|gpu| gpu.minor).collect();
        assert_eq!(minors, [Some(0), Some(3)], "the GRES index goes through gres.conf's File to the minor");
        for gpu in &state.gpus {
            let slot = (0..8).find(|&slot| Some(bench.node.minor(slot)) == gpu.minor).unwrap();
            assert_eq!(gpu.uuid.as_ref().unwrap().as_str(), bench.node.uuid(slot));
            assert_eq!(gpu.pci.to_string(), bench.node.pci(slot));
            assert!(gpu.counters.energy_mj.value().is_some_and(|&energy| energy > 0));
            assert!(gpu.numa_node.is_some() && gpu.local_cpus.is_some());
        }
    }

    #[test]
    fn a_job_without_gpus_is_left_alone() {
        let bench = Bench::new("l40s-pcie", "drain", "");
        bench.node.fault("[[hang]]\nfunction = \"*\"\n");
        let run = bench.prolog(7, "");
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
        assert_eq!(bench.node.log(), "");
    }

    #[test]
    fn prolog_and_epilog_make_one_exact_record_however_often_the_epilog_runs() {
        let bench = Bench::new("l40s-pcie", "drain", "");
        assert_eq!(bench.prolog(7, "1,2").code, Some(0));
        assert_eq!(bench.epilog(7, "1,2").code, Some(0));
        let [record] = &bench.node.records()[..] else { panic!("{}", bench.node.log()) };
        assert_eq!(
            (record.status, record.job_id, record.restart_count),
            (RecordStatus::Complete, 7, Some(0))
        );
        assert_eq!((record.exit_code.as_deref(), record.user.as_deref()), (Some("0:0"), Some("alice")));
        assert_eq!(record.gpus.len(), 2);
        for gpu in &record.gpus {
            assert_eq!(gpu.energy_mj.quality, Quality::Exact);
            assert!(gpu.energy_mj.value.is_some());
            assert_eq!((gpu.ecc_uncorr.value, gpu.ecc_uncorr.quality.clone()), (Some(0), Quality::Exact));
        }
        assert!(bench.node.states().is_empty());
        let before = bench.node.records();
        assert_eq!(bench.epilog(7, "1,2").code, Some(0));
        assert_eq!(bench.node.records(), before, "a second epilog changes nothing");
    }

    #[test]
    fn an_old_driver_that_lacks_calls_is_neither_healthy_nor_broken() {
        let bench = Bench::new("l40s-pcie", "drain", "");
        bench.node.fault(
            "[[missing]]\nfunction = \"nvmlDeviceGetFieldValues\"\n[[missing]]\nfunction = \"nvmlDeviceGetMigMode\"\n",
        );
        assert_eq!(bench.prolog(7, "0").code, Some(0));
        assert!(!bench.node.log().contains("error:"), "{}", bench.node.log());
        assert_eq!(bench.epilog(7, "0").code, Some(0));
        assert_eq!(bench.node.records()[0].gpus[0].energy_mj.quality, Quality::Missing);
    }
}

#[cfg(test)]
mod mapping {
    use super::*;

    fn pcis(bench: &Bench) -> Vec<String> {
        bench.node.states().iter().flat_map(|state| &state.gpus).map(|gpu| gpu.pci.to_string()).collect()
    }

    #[test]
    fn gres_order_minors_and_nvml_order_may_all_differ() {
        let bench = Bench::new("hgx-h100", "drain", "");
        bench.write("etc/gres.conf", "NodeName=n[1-2] Name=gpu File=/dev/nvidia[7,2,0-1,3-6]\n");
        assert_eq!(bench.prolog(7, "0,1").code, Some(0));
        let slot_of = |minor| (0..8).find(|&slot| bench.node.minor(slot) == minor).unwrap();
        assert_eq!(pcis(&bench), [bench.node.pci(slot_of(7)), bench.node.pci(slot_of(2))]);
    }

    #[test]
    fn gpu_uuids_in_cuda_visible_devices_are_taken_as_they_are() {
        let bench = Bench::new("hgx-h100", "drain", "");
        let mut command = bench.command("gpuward-prolog", 7, "1,0");
        command.env("CUDA_VISIBLE_DEVICES", format!("{},{}", bench.node.uuid(5), bench.node.uuid(2)));
        assert_eq!(gpuward_tests::sim::run(&mut command).code, Some(0));
        assert_eq!(pcis(&bench), [bench.node.pci(5), bench.node.pci(2)]);
    }

    #[test]
    fn a_mig_uuid_leads_to_its_whole_gpu_and_its_counters_are_shared() {
        let mut bench = Bench::new("hgx-h100", "drain", "");
        let uuid = "MIG-2a3b4c5d-0000-1111-2222-333344445555";
        bench.change_machine(|machine| {
            machine.gpus[5].mig.enabled = true;
            machine.gpus[5].mig.devices = vec![nvidia_ml::scenario::MigDevice {
                uuid: uuid.into(),
                profile: "1g.10gb".into(),
                gpu_instance: 9,
                compute_instance: 0,
                slices: 1,
                multiprocessors: 16,
                memory_mib: 9728,
                processes: Vec::new(),
            }];
        });
        bench.write("etc/gres.conf", "AutoDetect=nvml\n");
        let mut command = bench.command("gpuward-prolog", 7, "4");
        let run = gpuward_tests::sim::run(command.env("CUDA_VISIBLE_DEVICES", uuid));
        assert_eq!(run.code, Some(0), "{}", bench.node.log());
        let state = bench.node.states().remove(0);
        assert!(state.gpu_map_certain);
        assert_eq!(state.gpus[0].uuid.as_ref().unwrap().as_str(), uuid);
        assert_eq!(state.gpus[0].parent_uuid.as_ref().unwrap().as_str(), bench.node.uuid(5));
        assert_eq!(state.gpus[0].pci.to_string(), bench.node.pci(5));
        assert_eq!(bench.epilog(7, "4").code, Some(0));
        assert_eq!(bench.node.records()[0].gpus[0].energy_mj.quality, Quality::Shared);
        bench.node.fault("[[lost]]\ngpu = 5\n");
        let run = gpuward_tests::sim::run(command.env("SLURM_JOB_ID", "8"));
        assert_eq!(run.code, Some(1), "the whole GPU is lost: {}", bench.node.log());
    }

    #[test]
    fn a_map_that_is_not_certain_judges_only_the_node() {
        let bench = Bench::new("l40s-pcie", "drain", "");
        bench.write("etc/gres.conf", "include other.conf\n");
        bench.node.fault("[[lost]]\ngpu = 0\n");
        assert_eq!(bench.prolog(7, "0").code, Some(0));
        let [state] = &bench.node.states()[..] else { panic!() };
        assert!(!state.gpu_map_certain);
        assert!(bench.node.log().contains("partial(gpu_map)"), "{}", bench.node.log());
        bench.node.fault("init_code = 9\n");
        assert_eq!(bench.prolog(8, "0").code, Some(1), "a driver that is not loaded is the node's affair");
    }
}

#[cfg(test)]
mod faults {
    use super::*;

    /// The drain reason of a bench on which one prolog must have refused.
    fn refused(bench: &Bench, gpus: &str) -> String {
        let run = bench.prolog(1234, gpus);
        assert_eq!(run.code, Some(1), "{}", bench.node.log());
        let calls = bench.scontrol_calls();
        assert_eq!(calls.len(), 2, "{calls:?}");
        assert_eq!(calls[0], format!("-o show node {NODE}"));
        let reason = calls[1].strip_prefix(&format!("update NodeName={NODE} State=DRAIN Reason="));
        let reason = reason.unwrap_or_else(|| panic!("{calls:?}")).to_owned();
        assert!(run.stderr.contains(&reason), "slurmd's log has the reason too: {}", run.stderr);
        reason
    }

    /// A driver that does not know the recovery action, by which newer ones say that a fault is over.
    const OLD_DRIVER: &str = "[[set]]\nfield = \"recovery_action\"\n";

    #[test]
    fn each_fault_drains_with_its_own_reason() {
        for (fault, start) in [
            ("[[lost]]\ngpu = 2\n", "gpuward:GPU_LOST GPU2 "),
            (
                "[[return]]\nfunction = \"nvmlDeviceGetHandleByPciBusId_v2\"\ngpu = 2\ncode = 16\n",
                "gpuward:RESET_REQ GPU2 ",
            ),
            ("[[set]]\ngpu = 2\nfield = \"recovery_action\"\nvalue = 2\n", "gpuward:RECOVERY GPU2 "),
            (
                "[[set]]\ngpu = 2\nfield = \"ecc.dram.volatile_uncorr\"\nvalue = 3\n",
                "gpuward:ECC_UNCORR GPU2 ",
            ),
            ("[[set]]\ngpu = 2\nfield = \"remap.failure\"\nvalue = true\n", "gpuward:REMAP_FAIL GPU2 "),
            ("init_code = 9\n", "gpuward:DRV_UNLOADED nvidia "),
            ("init_code = 18\n", "gpuward:DRV_MISMATCH "),
            ("[[lost]]\ngpu = 0\nvanish = true\n", "gpuward:GPU_MISS_DRV "),
            (
                "[[return]]\nfunction = \"nvmlDeviceGetHandleByPciBusId_v2\"\ngpu = 2\ncode = 999\n",
                "gpuward:GPU_OPEN GPU2 ",
            ),
        ] {
            let bench = Bench::new("l40s-pcie", "drain", "");
            bench.node.fault(fault);
            let reason = refused(&bench, "2");
            assert!(reason.starts_with(start), "{fault}: {reason}");
            assert!(reason.contains("; job=1234 do=") && reason.len() <= 255, "{reason}");
            assert!(bench.node.states().is_empty(), "a refused job has no state");
        }
    }

    #[test]
    fn an_xid_in_the_kernel_log_drains_and_names_the_gpu() {
        let bench = Bench::new("l40s-pcie", "drain", "");
        let pci = bench.node.pci(2);
        bench.node.fault(OLD_DRIVER);
        bench.node.kernel_says(&format!("NVRM: Xid (PCI:{}): 79, GPU has fallen off the bus.", &pci[..10]));
        let reason = refused(&bench, "2");
        let uuid = &bench.node.uuid(2)[..12];
        let start = format!("gpuward:XID79 GPU2 {pci} {uuid} fallen off the bus; job=1234 do=reboot id=");
        assert!(reason.starts_with(&start), "{reason}");
        let history: Vec<_> =
            std::fs::read_dir(bench.node.dir.join("state/history")).unwrap().flatten().collect();
        let text = std::fs::read_to_string(history[0].path()).unwrap();
        let id = reason.rsplit_once("id=").unwrap().1;
        assert!(text.contains(id) && text.contains("\"action\": \"drained\""), "{text}");
    }

    #[test]
    fn another_jobs_broken_gpu_does_not_fail_this_job() {
        let bench = Bench::new("l40s-pcie", "drain", "");
        bench.node.fault("[[lost]]\ngpu = 3\n");
        bench.node.kernel_says(&format!("NVRM: Xid (PCI:{}): 79, x", &bench.node.pci(3)[..10]));
        assert_eq!(bench.prolog(7, "0,1,2").code, Some(0), "{}", bench.node.log());
        bench.node.fault(OLD_DRIVER);
        assert_eq!(
            bench.prolog(8, "3").code,
            Some(1),
            "and the log line is not forgotten by the look before"
        );
    }

    #[test]
    fn a_fresh_install_only_observes() {
        let bench = Bench::new("l40s-pcie", "observe", "");
        bench.node.fault("[[lost]]\ngpu = 0\n");
        assert_eq!(bench.prolog(7, "0").code, Some(0));
        assert!(bench.scontrol_calls().is_empty());
        assert!(bench.node.log().contains("GPU_LOST") && bench.node.log().contains("mode=observe"));
        bench.write_config("comment", "");
        assert_eq!(bench.prolog(8, "0").code, Some(0));
        let commented = bench.node.states().into_iter().find(|state| state.job_id.0 == 8).unwrap();
        assert!(commented.comments[0].starts_with("GPU_LOST GPU0 "), "{:?}", commented.comments);
    }

    #[test]
    fn an_admins_drain_keeps_its_reason_and_the_job_is_still_refused() {
        for (state, reason) in [
            ("IDLE+DRAIN", Some("maintenance of the cooling")),
            ("IDLE", Some("watch this node")),
            ("DOWN", None),
        ] {
            let bench = Bench::new("l40s-pcie", "drain", "");
            bench.node.fault("[[lost]]\ngpu = 0\n");
            bench.set_node_state(state, reason);
            assert_eq!(bench.prolog(7, "0").code, Some(1));
            assert_eq!(bench.scontrol_calls(), [format!("-o show node {NODE}")], "{state}: only read");
        }
    }

    #[test]
    fn without_slurmctld_only_a_certain_fault_refuses() {
        let bench = Bench::new("l40s-pcie", "drain", "");
        bench.silence_slurmctld();
        bench.node.fault("[[lost]]\ngpu = 0\n");
        assert_eq!(bench.prolog(7, "0").code, Some(1));
        bench.node.fault("init_code = 18\n");
        let run = bench.prolog(8, "0");
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        let state = bench.node.states().into_iter().find(|state| state.job_id.0 == 8).unwrap();
        assert!(state.comments[0].starts_with("gpuward:DRV_MISMATCH"), "{:?}", state.comments);
    }

    #[test]
    fn a_resumed_node_is_not_drained_again_by_what_drained_it() {
        let bench = Bench::new("l40s-pcie", "drain", "");
        bench.node.fault(OLD_DRIVER);
        for xid in [48, 95] {
            bench.node.kernel_says(&format!("NVRM: Xid (PCI:{}): {xid}, x", &bench.node.pci(1)[..10]));
        }
        bench.node.kernel_says(&format!("NVRM: Xid (PCI:{}): 48, x", &bench.node.pci(2)[..10]));
        assert_eq!(bench.prolog(7, "1").code, Some(1));
        let path = bench.node.dir.join("run/boot.json");
        let text = std::fs::read_to_string(&path).unwrap();
        let mut boot: serde_json::Value = serde_json::from_str(&text).unwrap();
        for event in boot["xids"].as_array_mut().unwrap() {
            if let Some(acted) = event["acted_boottime_ns"].as_u64() {
                event["acted_boottime_ns"] = (acted - 61_000_000_000).into();
            }
        }
        std::fs::write(&path, boot.to_string()).unwrap();
        assert_eq!(bench.prolog(8, "1").code, Some(0), "{}", bench.node.log());
        assert_eq!(bench.prolog(9, "2").code, Some(1), "the other GPU's fault was never acted on");
    }

    #[test]
    fn what_was_seen_while_observing_does_not_drain_on_the_first_day_of_drain_mode() {
        let bench = Bench::new("l40s-pcie", "observe", "");
        bench.node.fault(OLD_DRIVER);
        bench.node.kernel_says(&format!("NVRM: Xid (PCI:{}): 48, x", &bench.node.pci(1)[..10]));
        assert_eq!(bench.prolog(7, "1").code, Some(0));
        bench.write_config("drain", "");
        assert_eq!(bench.prolog(8, "1").code, Some(0), "{}", bench.node.log());
        bench.node.kernel_says(&format!("NVRM: Xid (PCI:{}): 48, x", &bench.node.pci(1)[..10]));
        assert_eq!(bench.prolog(9, "1").code, Some(1), "it happened again");
    }

    #[test]
    fn a_wrong_path_of_ours_and_another_vendors_node_drain_nothing() {
        let bench = Bench::new("l40s-pcie", "drain", "");
        let config = std::fs::read_to_string(bench.path("etc/gpuward.toml")).unwrap();
        bench.write("etc/gpuward.toml", &config.replace("/root/sys", "/root/sis"));
        assert_eq!(bench.prolog(7, "0").code, Some(0), "{}", bench.node.log());
        let mut bench = Bench::new("l40s-pcie", "drain", "");
        bench.change_machine(|machine| {
            machine.gpus.clear();
            machine.driver.loaded = false;
        });
        bench.write("etc/gres.conf", "Name=gpu File=/dev/dri/renderD[128-135]\n");
        assert_eq!(bench.prolog(8, "0").code, Some(0), "{}", bench.node.log());
        assert!(bench.scontrol_calls().is_empty());
    }

    #[test]
    fn nvml_that_does_not_start_is_told_and_drains_only_the_second_time() {
        let bench = Bench::new("l40s-pcie", "drain", "");
        bench.node.fault("init_code = 999\n");
        assert_eq!(bench.prolog(7, "0").code, Some(0));
        assert!(bench.node.log().contains("NVML_INIT"), "{}", bench.node.log());
    }

    #[test]
    fn the_real_library_on_a_host_without_driver_is_a_driver_that_is_not_loaded() {
        let bench = Bench::new("l40s-pcie", "drain", "");
        let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../.cache/libnvidia-ml/libnvidia-ml.so.1");
        let library = std::env::var("GPUWARD_REAL_NVML").unwrap_or_else(|_| default.to_owned());
        assert!(std::path::Path::new(&library).exists(), "{library} is missing: run `make tools`");
        let text = std::fs::read_to_string(bench.path("etc/gpuward.toml")).unwrap();
        let ours = bench.node.dir.join("lib/libnvidia-ml.so.1").display().to_string().replace(NODE, "%n");
        assert!(text.contains(&ours), "{text}");
        bench.write("etc/gpuward.toml", &text.replace(&ours, &library));
        assert!(refused(&bench, "0").starts_with("gpuward:DRV_UNLOADED "));
    }
}

#[cfg(test)]
mod epilogs {
    use super::*;

    #[test]
    fn a_late_epilog_touches_only_its_own_run() {
        let bench = Bench::new("l40s-pcie", "drain", "");
        assert_eq!(bench.prolog(7, "0").code, Some(0));
        let mut second = bench.command("gpuward-prolog", 7, "0");
        assert_eq!(gpuward_tests::sim::run(second.env("SLURM_JOB_RESTART_COUNT", "1")).code, Some(0));
        assert_eq!(bench.epilog(7, "0").code, Some(0));
        let left = bench.node.states();
        assert_eq!(left.iter().map(|state| state.restart_count).collect::<Vec<_>>(), [Some(1)]);
        assert_eq!(bench.epilog(7, "0").code, Some(0), "and once more");
        assert_eq!((bench.node.states().len(), bench.node.records().len()), (1, 1));
    }

    #[test]
    fn an_epilog_whose_requeue_is_counted_already_ends_its_own_run() {
        let bench = Bench::new("l40s-pcie", "drain", "");
        assert_eq!(bench.prolog(7, "0").code, Some(0));
        for _ in 0..2 {
            let mut epilog = bench.command("gpuward-epilog", 7, "0");
            assert_eq!(gpuward_tests::sim::run(epilog.env("SLURM_JOB_RESTART_COUNT", "1")).code, Some(0));
        }
        let [record] = &bench.node.records()[..] else { panic!("{:?}", bench.node.records()) };
        assert_eq!((record.restart_count, record.status), (Some(0), RecordStatus::Complete));
        assert!(bench.node.states().is_empty());
    }

    #[test]
    fn an_epilog_without_a_prolog_says_that_it_knows_no_start() {
        let bench = Bench::new("l40s-pcie", "drain", "");
        assert_eq!(bench.epilog(7, "1").code, Some(0));
        let [record] = &bench.node.records()[..] else { panic!() };
        assert_eq!((record.status, record.start_unix_ms), (RecordStatus::NoStart, None));
        assert_eq!(record.gpus[0].energy_mj.quality, Quality::Partial("no_start".into()));
        assert_eq!(record.gpus[0].uuid.as_deref(), Some(bench.node.uuid(1).as_str()));
    }

    #[test]
    fn a_reboot_between_prolog_and_epilog_gives_no_wrong_number() {
        let bench = Bench::new("l40s-pcie", "drain", "");
        assert_eq!(bench.prolog(7, "0").code, Some(0));
        let boot_id = bench.node.dir.join("root/proc/sys/kernel/random/boot_id");
        std::fs::remove_file(&boot_id).unwrap();
        std::fs::write(&boot_id, "11111111-2222-3333-4444-555555555555\n").unwrap();
        assert_eq!(bench.epilog(7, "0").code, Some(0));
        let [record] = &bench.node.records()[..] else { panic!() };
        assert_eq!((record.status, record.elapsed_ms), (RecordStatus::NodeReboot, None));
        assert_eq!(record.gpus[0].energy_mj.quality, Quality::Partial("node_reboot".into()));
    }

    #[test]
    fn a_gpu_lost_during_the_job_is_in_the_record_and_drains_the_node() {
        let bench = Bench::new("l40s-pcie", "drain", "");
        assert_eq!(bench.prolog(7, "0,1").code, Some(0));
        bench.node.fault("[[lost]]\ngpu = 1\n");
        assert_eq!(bench.epilog(7, "0,1").code, Some(1));
        let [record] = &bench.node.records()[..] else { panic!() };
        assert_eq!(record.gpus[0].energy_mj.quality, Quality::Exact);
        assert_eq!(record.gpus[1].energy_mj.quality, Quality::Partial("gpu_lost".into()));
        assert!(bench.scontrol_calls()[1].contains("gpuward:GPU_LOST GPU1"));
    }

    #[test]
    fn a_refused_run_used_nothing_and_leaves_no_record() {
        let bench = Bench::new("l40s-pcie", "drain", "");
        bench.node.fault("[[lost]]\ngpu = 0\n");
        assert_eq!(bench.prolog(7, "0").code, Some(1));
        for count in ["0", "1", "1"] {
            // slurmctld counts the requeue before it sends the epilog.
            let mut epilog = bench.command("gpuward-epilog", 7, "0");
            let run = gpuward_tests::sim::run(epilog.env("SLURM_JOB_RESTART_COUNT", count));
            assert_eq!(run.code, Some(0));
        }
        assert!(bench.node.records().is_empty() && bench.node.states().is_empty());
    }
}
