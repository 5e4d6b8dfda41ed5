use super::recorded::{Recorded, job};
use super::*;
use std::collections::BTreeSet;

/// `PID NAME STEP TASK OWNER` of each process.
fn short(processes: Option<Vec<JobProcess>>) -> Vec<String> {
    let line = |process: JobProcess| {
        let JobProcess { pid, place, owner, .. } = process;
        let task = place.task.map_or_else(|| "-".to_owned(), |task| task.to_string());
        format!("{pid} {} {} {task} {owner:?}", process.name, place.step.as_deref().unwrap_or("-"))
    };
    processes.unwrap().into_iter().map(line).collect()
}

fn ids(jobs: BTreeSet<JobKey>) -> Vec<String> {
    jobs.iter().map(ToString::to_string).collect()
}

fn gpus(minors: &[u32]) -> BTreeSet<Device> {
    minors.iter().map(|&minor| Device::Gpu { minor }).collect()
}

mod processes {
    use super::*;

    #[test]
    fn a_job_on_v1_has_exactly_its_own_processes() {
        let recorded = Recorded::load("v1-22.05");
        let groups = recorded.find(Some("n1"));
        assert_eq!(groups.layout(), Layout::V1);
        assert_eq!(ids(groups.jobs().unwrap()), ["job 1", "job 2"]);
        assert_eq!(
            short(groups.processes_of(&job(1)).unwrap()),
            [
                "3515 slurmstepd extern - Slurm",
                "3522 sleep extern - Slurm",
                "3533 slurmstepd batch - Slurm",
                "3539 slurm_script batch 0 User",
                "3540 srun batch 0 User",
                "3541 srun batch 0 User",
                "3546 srun batch 0 User",
                "3550 srun batch 0 User",
                "3560 slurmstepd 1 - Slurm",
                "3561 slurmstepd 0 - Slurm",
                "3573 sh 1 0 User",
                "3574 sh 1 1 User",
                "3575 sleep 0 0 User",
                "3576 python3 1 0 User",
                "3577 python3 1 1 User",
                "3582 python3 1 1 User",
                "3584 python3 1 0 User",
            ]
        );
        assert_eq!(
            short(groups.processes_of(&job(2)).unwrap()),
            [
                "3686 slurmstepd extern - Slurm",
                "3693 sleep extern - Slurm",
                "3701 slurmstepd batch - Slurm",
                "3707 slurm_script batch 0 User",
                "3709 sleep batch 0 User",
            ]
        );
        assert_eq!(groups.processes_of(&job(3)).unwrap(), None, "no group is not the same as no process");
    }

    #[test]
    fn a_job_on_v2_has_exactly_its_own_processes() {
        let recorded = Recorded::load("v2-22.05");
        let groups = recorded.find(Some("n1"));
        assert_eq!(groups.layout(), Layout::V2);
        assert_eq!(ids(groups.jobs().unwrap()), ["job 3", "job 4"]);
        let all = short(groups.processes_of(&job(3)).unwrap());
        let of = |owner: &str| -> Vec<&str> {
            all.iter().filter_map(|line| line.strip_suffix(owner)).map(str::trim_end).collect()
        };
        assert_eq!(of("Slurm"), ["997 slurmstepd batch -", "1027 slurmstepd 0 -", "1030 slurmstepd 1 -"]);
        assert_eq!(
            of("User"),
            [
                "1006 slurm_script batch 0",
                "1008 srun batch 0",
                "1009 srun batch 0",
                "1014 srun batch 0",
                "1015 srun batch 0",
                "1042 sh 1 0",
                "1043 sh 1 1",
                "1044 sleep 0 0",
                "1045 python3 1 0",
                "1046 python3 1 1",
                "1054 python3 1 1",
                "1055 python3 1 0",
            ]
        );
        assert_eq!(
            short(groups.processes_of(&job(4)).unwrap()),
            ["992 slurmstepd batch - Slurm", "1005 slurm_script batch 0 User", "1007 sleep batch 0 User"]
        );
    }

    #[test]
    fn slurms_own_are_told_from_users_and_look_alikes_are_not_believed() {
        let recorded = Recorded::load("v2-24.11");
        let groups = recorded.find(Some("n1"));
        assert_eq!(ids(groups.jobs().unwrap()), ["job 20", "job 21"]);
        assert_eq!(
            short(groups.processes_of(&job(20)).unwrap()),
            [
                "20 slurmstepd extern - Slurm",
                "21 sleep extern - Slurm",
                "22 sshd extern - User",
                "23 slurmstepd interactive - Slurm",
                "24 bash interactive 0 User",
                "25 slurmstepd 0 - Slurm",
                "26 train 0 0 User",
                "27 slurmstepd 0 0 User",
            ]
        );
        assert_eq!(
            short(groups.processes_of(&job(21)).unwrap()),
            ["30 slurmstepd 0+1 - Slurm", "31 a) b (c 0+1 0 User"]
        );
        for outside in [1, 10, 11, 40, 41, 42] {
            assert_eq!(groups.process(outside).unwrap(), None, "{outside}");
        }
    }

    #[test]
    fn a_job_of_26_05_is_found_by_sluid_and_by_the_title_of_its_slurmstepd() {
        let recorded = Recorded::load("v2-26.05");
        let groups = recorded.find(Some("n1"));
        let names = ["job sEKNKTV3WPV500", "job sEKNKTV3WPV501", "job sEKNKTV3WPV502"];
        assert_eq!(ids(groups.jobs().unwrap()), names);
        let by_title = groups.processes_of(&job(501)).unwrap();
        let sluid = Sluid::parse("sEKNKTV3WPV500");
        assert_eq!(groups.processes_of(&Job { sluid, ..job(501) }).unwrap(), by_title);
        assert_eq!(short(by_title), ["50 slurmstepd 0 - Slurm", "51 python3 0 0 User"]);
        let sluid = Sluid::parse("sEKNKTV3WPV502");
        assert_eq!(short(groups.processes_of(&Job { sluid, ..job(503) }).unwrap()), ["54 left 0 0 User"]);
        let error = groups.processes_of(&job(503)).unwrap_err().to_string();
        assert!(error.contains("sEKNKTV3WPV502: without SLURM_JOB_SLUID"), "{error}");
    }

    #[test]
    fn a_pid_that_has_passed_to_somebody_else_is_not_the_jobs() {
        let recorded = Recorded::load("v2-24.11");
        let other = "/system.slice/slurmstepd.scope/job_20/step_0/user/task_0";
        for elsewhere in ["/", "/system.slice/cron.service", other, "/../x"] {
            recorded.add(&format!("proc/31/cgroup: 0::{elsewhere}"));
            let all = short(recorded.find(None).processes_of(&job(21)).unwrap());
            assert_eq!(all, ["30 slurmstepd 0+1 - Slurm"], "{elsewhere}");
        }
    }

    #[test]
    fn groups_and_processes_that_vanish_are_gone_and_nothing_more() {
        let recorded = Recorded::load("v2-24.11");
        std::fs::remove_dir_all(recorded.path("proc/31")).unwrap();
        let scope = "cgroup/system.slice/slurmstepd.scope";
        std::fs::remove_file(recorded.path(&format!("{scope}/job_21/cgroup.procs"))).unwrap();
        let groups = recorded.find(None);
        assert_eq!(short(groups.processes_of(&job(21)).unwrap()), ["30 slurmstepd 0+1 - Slurm"]);
        std::fs::remove_dir_all(recorded.path(&format!("{scope}/job_21/step_0+1"))).unwrap();
        assert_eq!(groups.processes_of(&job(21)).unwrap(), Some(Vec::new()), "a group without processes");
        std::fs::remove_dir_all(recorded.path(&format!("{scope}/job_21"))).unwrap();
        assert_eq!(groups.processes_of(&job(21)).unwrap(), None);
    }

    #[test]
    fn what_cannot_be_read_is_an_error_and_never_nothing() {
        let task = "cgroup/system.slice/slurmstepd.scope/job_21/step_0+1/user/task_0/cgroup.procs";
        for (path, content) in [
            (task, "0"),
            (task, "31 ; x"),
            (task, "-31"),
            (task, "31 ; 4294967296"),
            ("proc/31/stat", "31 (a) S 30"),
            ("proc/31/cgroup", "\u{0}".repeat(70_000).as_str()),
        ] {
            let recorded = Recorded::load("v2-24.11");
            recorded.add(&format!("{path}: {content}"));
            let groups = recorded.find(None);
            let error = groups.processes_of(&job(21)).unwrap_err().to_string();
            assert!(error.contains(path), "{error}");
            assert!(groups.devices_of(&job(21)).is_err(), "{path}");
        }
        let gone = Recorded::load("v2-24.11");
        let groups = gone.find(None);
        std::fs::remove_dir_all(gone.path("cgroup")).unwrap();
        assert!(groups.jobs().is_err() && groups.processes_of(&job(21)).is_err(), "unmounted");
        let recorded = Recorded::load("v2-24.11");
        std::fs::remove_file(recorded.path(task)).unwrap();
        std::fs::create_dir(recorded.path(task)).unwrap();
        assert!(recorded.find(None).processes_of(&job(21)).is_err());
        assert_eq!(
            short(recorded.find(None).processes_of(&job(20)).unwrap()).len(),
            8,
            "another job is known"
        );
    }

    #[test]
    fn a_process_of_two_jobs_is_nobodys() {
        let recorded = Recorded::load("v1-22.05");
        recorded.add(
            "proc/3709/cgroup: 6:freezer:/slurm_n1/uid_65534/job_2/step_batch ; \
             5:devices:/slurm_n1/uid_65534/job_1/step_batch/task_0",
        );
        let error = recorded.find(None).processes_of(&job(2)).unwrap_err().to_string();
        assert!(error.contains("3709/cgroup: job 2 in /slurm_n1 and job 1 in /slurm_n1 at once"), "{error}");
    }

    #[test]
    fn a_job_that_two_slurmds_of_one_host_share_is_taken_apart() {
        let recorded = Recorded::load("v1-22.05");
        recorded.add(
            "cgroup/freezer/slurm_n2/uid_65534/job_2/step_batch/cgroup.procs: 9\n\
             proc/9/stat: 9 (x) S 1 9 9 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 90\n\
             proc/9/cgroup: 6:freezer:/slurm_n2/uid_65534/job_2/step_batch\n",
        );
        assert_eq!(short(recorded.find(Some("n2")).processes_of(&job(2)).unwrap()), ["9 x batch - User"]);
        assert_eq!(short(recorded.find(Some("n1")).processes_of(&job(2)).unwrap()).len(), 5);
        assert_eq!(recorded.find(Some("n1")).process(9).unwrap(), None);
        let error = recorded.find(None).processes_of(&job(2)).unwrap_err().to_string();
        assert!(error.contains("job 2 is in other trees, too"), "{error}");
    }

    #[test]
    fn a_process_whose_first_thread_has_ended_is_still_the_jobs() {
        let recorded = Recorded::load("v1-22.05");
        recorded.add(
            "proc/3709/stat: 3709 (sleep) Z 3707 3707 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 2 0 90\n\
             proc/3709/cgroup: 6:freezer:/ ; 5:devices:/\n\
             proc/3709/task/3709/cgroup: 6:freezer:/ ; 5:devices:/\n\
             proc/3709/task/3710/cgroup: 6:freezer:/slurm_n1/uid_65534/job_2/step_batch\n",
        );
        let process = recorded.find(None).process(3709).unwrap().unwrap();
        assert_eq!((process.place.job, process.owner), (JobKey::Id(JobId(2)), Owner::User));
    }

    #[test]
    fn a_kernel_thread_in_a_jobs_group_is_told() {
        let recorded = Recorded::load("v2-24.11");
        recorded.add("proc/26/stat: 26 (vhost-25) S 2 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 260");
        assert_eq!(recorded.find(None).process(26).unwrap().unwrap().owner, Owner::Kernel);
    }
}

mod devices {
    use super::*;

    #[test]
    fn what_is_open_counts_where_the_limits_cannot_be_read() {
        let recorded = Recorded::load("v1-22.05");
        let groups = recorded.find(Some("n1"));
        let open = JobDevices { devices: gpus(&[0, 1]), quality: Quality::Open };
        assert_eq!(groups.devices_of(&job(1)).unwrap(), Some(open));
        assert_eq!(groups.open_devices(3582).unwrap(), gpus(&[1]));
        let recorded = Recorded::load("v2-24.11");
        let groups = recorded.find(None);
        let open = JobDevices { devices: gpus(&[4, 5]), quality: Quality::Open };
        assert_eq!(groups.devices_of(&job(20)).unwrap(), Some(open));
        let none = JobDevices { devices: gpus(&[]), quality: Quality::Open };
        assert_eq!(groups.devices_of(&job(21)).unwrap(), Some(none));
        assert_eq!(groups.devices_of(&job(22)).unwrap(), None);
    }

    #[test]
    fn without_a_process_of_the_users_nothing_is_known() {
        let recorded = Recorded::load("v2-24.11");
        std::fs::remove_dir_all(recorded.path("proc/31")).unwrap();
        let unknown = JobDevices { devices: gpus(&[]), quality: Quality::Unknown };
        assert_eq!(recorded.find(None).devices_of(&job(21)).unwrap(), Some(unknown));
    }

    #[test]
    fn what_all_levels_list_is_allowed() {
        let recorded = Recorded::load("v1-22.05");
        let top = "cgroup/devices/slurm_n1";
        recorded.add(&format!(
            "{top}/devices.list: c 1:3 rwm ; c 195:0 rwm ; c 195:1 rwm ; c 195:2 rw ; c 195:255 rwm\n\
             {top}/uid_65534/job_2/devices.list: c 195:2 rwm ; c 195:3 rwm ; c 195:0 m ; c 195:255 rw\n"
        ));
        let groups = recorded.find(None);
        let allowed = |minors| Some(JobDevices { devices: gpus(minors), quality: Quality::Allowed });
        assert_eq!(groups.devices_of(&job(2)).unwrap(), allowed(&[2]));
        assert_eq!(groups.devices_of(&job(1)).unwrap(), allowed(&[0, 1, 2]));
        recorded.add(&format!("{top}/uid_65534/job_2/devices.list: all of them"));
        assert!(groups.devices_of(&job(2)).is_err());
    }

    #[test]
    fn an_open_mig_device_is_known_by_its_number_wherever_its_file_lies() {
        let recorded = Recorded::load("v2-24.11");
        recorded
            .add("proc/31/fd/4 -> {root}/dev/nvidia-caps/nvidia-cap31\nproc/31/fd/5 -> {root}/dev/nvidia9\n");
        std::fs::create_dir_all(recorded.path("dev/nvidia-caps")).unwrap();
        for (path, major, minor) in
            [("dev/nvidia-caps/nvidia-cap31", "234", "31"), ("dev/nvidia9", "195", "2")]
        {
            let mut mknod = std::process::Command::new("mknod");
            // Only root can make a device; the tests run as root.
            assert!(mknod.arg(recorded.path(path)).args(["c", major, minor]).status().unwrap().success());
        }
        let open = recorded.find(None).open_devices(31).unwrap();
        let mig = Device::ComputeInstance { gpu_minor: 2, gi: 3, ci: 0 };
        assert_eq!(open, [Device::Gpu { minor: 2 }, mig].into());
    }
}

mod hosts {
    use super::*;

    #[test]
    fn a_container_without_a_namespace_of_its_own_has_slurm_beside_its_first_process() {
        let recorded = Recorded::load("v2-24.11");
        let inside = "/docker.slice/docker-1f.scope";
        recorded.add(&format!(
            "proc/1/cgroup: 0::{inside}/init.scope\n\
             cgroup{inside}/system.slice/slurmstepd.scope/job_9/step_0/user/task_0/cgroup.procs: 90\n\
             proc/90/stat: 90 (x) S 1 9 9 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 90\n\
             proc/90/cgroup: 0::{inside}/system.slice/slurmstepd.scope/job_9/step_0/user/task_0\n"
        ));
        assert_eq!(short(recorded.find(None).processes_of(&job(9)).unwrap()), ["90 x 0 0 User"]);
        recorded.add("proc/1/cgroup: 0::/init.scope");
        assert_eq!(
            recorded.find(None).process(90).unwrap(),
            None,
            "seen from the host it is another Slurm's"
        );
    }

    #[test]
    fn a_v1_container_sees_its_own_group_as_the_top() {
        let recorded = Recorded::load("v1-22.05");
        recorded.add(
            "proc/thread-self/mountinfo: 1 2 0:3 /docker/1f {root}/cgroup/freezer rw - cgroup none rw,freezer\n\
             proc/3709/cgroup: 6:freezer:/docker/1f/slurm_n1/uid_65534/job_2/step_batch\n",
        );
        let all = short(recorded.find(None).processes_of(&job(2)).unwrap());
        assert_eq!(all, ["3709 sleep batch - User"], "the others are not in the container");
    }

    #[test]
    fn a_hybrid_host_is_told_and_one_without_control_groups_is_an_error() {
        let recorded = Recorded::load("v1-22.05");
        recorded.add("cgroup/unified/cgroup.procs:");
        assert_eq!(recorded.find(None).layout(), Layout::Hybrid);
        assert_eq!(short(recorded.find(None).processes_of(&job(2)).unwrap()).len(), 5);
        recorded.add("proc/thread-self/mountinfo: 1 2 0:3 / / rw - ext4 /dev/vda rw");
        let error = Hierarchies::find(&recorded.path("cgroup"), &recorded.path("proc"), None).unwrap_err();
        assert!(error.to_string().ends_with("no control groups of Slurm's kind are mounted here"), "{error}");
    }

    #[test]
    fn our_own_ancestry_ends_at_process_1_and_never_runs_in_circles() {
        let recorded = Recorded::load("v2-24.11");
        let groups = recorded.find(None);
        assert_eq!(groups.ancestry(26).unwrap(), [26, 25, 1]);
        assert_eq!(groups.ancestry(4711).unwrap(), [4711], "one that has ended");
        let recorded = Recorded::load("v2-24.11");
        recorded.add("proc/25/stat: 25 (x) S 26 25 25 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 250");
        assert_eq!(recorded.find(None).ancestry(26).unwrap(), [26, 25]);
    }

    #[test]
    fn this_host_can_be_read() {
        // Wherever this runs: every process has an answer, and that of this one has its parent.
        let Ok(groups) = Hierarchies::find(Path::new("/sys/fs/cgroup"), Path::new("/proc"), None) else {
            return;
        };
        let pids = std::fs::read_dir("/proc").unwrap().flatten();
        for pid in pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
            groups.process(pid).unwrap();
        }
        let line = groups.ancestry(std::process::id()).unwrap();
        assert_eq!(line.get(1), Some(&std::os::unix::process::parent_id()));
    }
}

mod any_text {
    use super::*;

    /// xorshift64: the same texts in every run.
    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            usize::try_from(self.0 % u64::try_from(limit).unwrap()).unwrap()
        }

        fn path(&mut self) -> String {
            const PARTS: [&str; 28] = [
                "",
                ".",
                "..",
                "slurm",
                "slurm_n1",
                "slurm_",
                "uid_0",
                "uid_x",
                "job_7",
                "job_8",
                "job_07",
                "job_",
                "job_99999999999",
                "step_0",
                "step_batch",
                "step_",
                "task_0",
                "user",
                "system.slice",
                "user.slice",
                "user-1.slice",
                "machine.slice",
                "slurmstepd.scope",
                "n1_slurmstepd.scope",
                "docker-1f.scope",
                "sEKNKTV3WPV500",
                "ü (deleted)",
                "a:b",
            ];
            // Often what is right so far, so that the end is reached.
            let start = [
                "",
                "",
                "/system.slice/slurmstepd.scope",
                "/slurm/uid_0",
                "/slurm/uid_0/job_7",
                "/slurm/uid_0/job_8",
                "/slurm_n1/uid_0/job_7",
                "/system.slice/n1_slurmstepd.scope/job_7",
                "/user.slice/user-1.slice/user@1.service",
                "/docker/1f",
                "/system.slice/docker-1f.scope",
            ];
            let mut path = start[self.below(start.len())].to_owned();
            for _ in 0..self.below(6) {
                path.push_str(["/", "/", "/", "/", "/", "/", "", "\u{0}"][self.below(8)]);
                path.push_str(PARTS[self.below(PARTS.len())]);
            }
            path
        }

        fn text(&mut self) -> String {
            let controllers = ["", "", "freezer", "devices", "x,freezer", "pids", "x:"];
            let mut text = String::new();
            for number in 0..self.below(5) {
                let path = self.path();
                text.push_str(&format!("{number}:{}:{path}\n", controllers[self.below(controllers.len())]));
            }
            // Cut anywhere, as a torn read would be.
            let end = self.below(text.len() * 4 + 1).min(text.len());
            text.chars().take(end).collect()
        }
    }

    /// Slurm's form in other words than `path` has it.
    fn says_so(line: &str, place: &Place) -> bool {
        let job = match &place.job {
            JobKey::Id(id) => format!("job_{id}"),
            JobKey::Sluid(sluid) => sluid.to_string(),
        };
        let scopes = ["slurmstepd.scope", "n1_slurmstepd.scope"];
        let is_v2 = match place.tree.split('/').collect::<Vec<_>>()[..] {
            ["", slice, scope] => {
                slice.ends_with(".slice") && slice != "user.slice" && scopes.contains(&scope)
            }
            _ => false,
        };
        let is_v1 = ["/slurm", "/slurm_n1"].contains(&&*place.tree);
        let middle = if is_v1 { "/uid_0" } else { "" };
        let path = line.splitn(3, ':').nth(2).unwrap_or_default();
        let rest = path.strip_prefix(&format!("{}{middle}/{job}", place.tree));
        (is_v1 || is_v2) && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', ' ']))
    }

    #[test]
    fn only_slurms_form_is_a_job_and_no_text_is_a_panic() {
        let recorded = Recorded::load("v1-22.05");
        recorded.add("cgroup/unified/cgroup.procs:");
        let groups = recorded.find(Some("n1"));
        let mut random = Random(0x9E37_79B9_7F4A_7C15);
        let (mut found, mut doubts) = (0, 0);
        for _ in 0..20_000 {
            let text = random.text();
            match groups.place_of(&text) {
                Ok(Some(place)) => {
                    assert!(text.lines().any(|line| says_so(line, &place)), "{text:?} is not {place:?}");
                    found += 1;
                }
                Ok(None) => {}
                Err(_) => doubts += 1,
            }
        }
        assert!(found > 1000 && doubts > 10, "too few texts were to the point: {found}, {doubts}");
    }
}
