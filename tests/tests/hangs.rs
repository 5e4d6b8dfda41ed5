//! A driver that hangs, processes that are killed, disks that are full: the prolog comes back, and the job goes on.

use gpuward_tests::sim::{Bench, Freezer, Run, forget_default_state, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// A short deadline, so that the tests are quick; how exactly it is kept is measured by `make bench`.
const SHORT: &str = "[probe]\ndeadline_ms = 400\n";

/// Only a hang takes this long.
const HANG: Duration = Duration::from_secs(10);

fn hang(function: &str) -> String {
    format!("[[hang]]\nfunction = \"{function}\"\n")
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < HANG, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The pid of the probe at work.
fn probe_pid(bench: &Bench) -> u32 {
    wait_for("no probe", || {
        let text = fs::read_to_string(bench.node.dir.join("run/probe.json")).ok()?;
        serde_json::from_str::<serde_json::Value>(&text).ok()?["pid"].as_u64()?.try_into().ok()
    })
}

fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

fn parent_of(pid: u32) -> u32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process is there");
    stat.rsplit_once(") ").expect("a state").1.split(' ').nth(1).expect("a parent").parse().expect("a pid")
}

fn kill(pid: u32) {
    let status = Command::new("/bin/kill").args(["-KILL", &pid.to_string()]).status();
    assert!(status.expect("kill starts").success());
}

fn start(bench: &Bench, job: u32, gpus: &str) -> Child {
    bench.command("gpuward-prolog", job, gpus).spawn().expect("the prolog starts")
}

fn finish(child: Child) -> Run {
    let start = Instant::now();
    let output = child.wait_with_output().expect("the prolog ends");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    Run { code: output.status.code(), stderr, took: start.elapsed() }
}

/// Moves every silent mark into the past, as if the first look had been `seconds` earlier.
fn age_silence(bench: &Bench, seconds: u64) {
    let path = bench.node.dir.join("run/boot.json");
    let mut state: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    for mark in state["silent"].as_array_mut().expect("marks") {
        let first = mark["first_boottime_ns"].as_u64().expect("a moment");
        mark["first_boottime_ns"] = (first - seconds * 1_000_000_000).into();
    }
    fs::write(&path, state.to_string()).unwrap();
}

#[cfg(test)]
mod driver {
    use super::*;

    #[test]
    fn a_hang_in_any_call_does_not_hold_the_prolog() {
        for function in [
            "nvmlInit_v2",
            "nvmlSystemGetDriverVersion",
            "nvmlDeviceGetCount_v2",
            "nvmlDeviceGetHandleByPciBusId_v2",
            "nvmlDeviceGetUUID",
            "nvmlDeviceGetTemperature",
            "nvmlDeviceGetFieldValues",
            "*",
        ] {
            let bench = Bench::new("l40s-pcie", "drain", SHORT);
            bench.node.fault(&hang(function));
            let run = bench.prolog(7, "0,1,2,3");
            assert_eq!(run.code, Some(0), "{function}: cannot tell is no refusal: {}", run.stderr);
            assert!(run.took < HANG, "{function}: {:?}", run.took);
            assert!(bench.node.log().contains("PROBE_HANG"), "{function}: {}", bench.node.log());
            assert!(bench.scontrol_calls().is_empty());
            assert_eq!(bench.node.states().len(), 1, "{function}: the job still has its state");
            assert!(!bench.node.dir.join("run/probe.json").exists(), "{function}: the probe was ended");
        }
    }

    #[test]
    fn a_hung_gpu_hides_no_other() {
        let bench = Bench::new("l40s-pcie", "drain", SHORT);
        bench.node.fault("[[hang]]\nfunction = \"nvmlDeviceGetTemperature\"\ngpu = 1\n[[lost]]\ngpu = 2\n");
        let run = bench.prolog(7, "0,1,2");
        assert_eq!(run.code, Some(1), "{}", bench.node.log());
        assert!(bench.scontrol_calls()[1].contains("gpuward:GPU_LOST GPU2"));
    }

    #[test]
    fn the_same_gpu_silent_in_a_later_look_drains() {
        let bench = Bench::new("l40s-pcie", "drain", SHORT);
        bench.node.fault("[[hang]]\nfunction = \"nvmlDeviceGetTemperature\"\ngpu = 1\n");
        assert_eq!(bench.prolog(7, "1").code, Some(0));
        assert_eq!(bench.prolog(8, "1").code, Some(0), "too soon to count");
        assert_eq!(bench.prolog(9, "0").code, Some(0), "the others are fine");
        age_silence(&bench, 30);
        assert_eq!(bench.prolog(10, "1").code, Some(1));
        assert!(
            bench.scontrol_calls()[1].contains("gpuward:PROBE_HANG GPU1"),
            "{:?}",
            bench.scontrol_calls()
        );
    }

    #[test]
    fn an_answer_in_between_clears_the_silence() {
        let bench = Bench::new("l40s-pcie", "drain", SHORT);
        bench.node.fault("[[hang]]\nfunction = \"nvmlDeviceGetTemperature\"\ngpu = 1\n");
        assert_eq!(bench.prolog(7, "1").code, Some(0));
        age_silence(&bench, 30);
        bench.node.heal();
        assert_eq!(bench.prolog(8, "1").code, Some(0));
        bench.node.fault("[[hang]]\nfunction = \"nvmlDeviceGetTemperature\"\ngpu = 1\n");
        assert_eq!(bench.prolog(9, "1").code, Some(0), "a first silent look again");
    }

    #[test]
    fn two_prologs_at_once_never_run_two_probes() {
        let bench = Bench::new("l40s-pcie", "drain", SHORT);
        bench.node.fault(&hang("nvmlDeviceGetTemperature"));
        let first = start(&bench, 7, "0");
        probe_pid(&bench);
        let second = bench.prolog(8, "1");
        assert_eq!((finish(first).code, second.code), (Some(0), Some(0)));
        let log = bench.node.log();
        assert!(log.contains("another look was at work") || log.matches("PROBE_HANG").count() == 2, "{log}");
    }
}

#[cfg(test)]
mod unkillable {
    use super::*;

    #[test]
    fn a_child_that_sigkill_does_not_end_is_left_behind_and_no_second_one_is_started() {
        let freezer = Freezer::new("stuck");
        let bench = Bench::new("l40s-pcie", "drain", SHORT);
        let script =
            format!("[[hang]]\nfunction = \"nvmlDeviceGetTemperature\"\nunkillable = {:?}\n", freezer.path());
        bench.node.fault(&script);
        let first = bench.prolog(7, "0");
        assert_eq!((first.code, first.took < HANG), (Some(0), true), "{}", first.stderr);
        let stuck = freezer.members();
        assert_eq!(stuck.len(), 1, "the probe hangs on although it was killed");
        assert!(is_alive(stuck[0].parse().unwrap()));

        let second = bench.prolog(8, "1");
        assert_eq!((second.code, second.took < HANG), (Some(0), true), "{}", second.stderr);
        assert_eq!(freezer.members(), stuck, "no second probe joined it");
        let evidence = format!("probe {} hangs in it", stuck[0]);
        assert!(bench.node.log().contains(&evidence), "{}", bench.node.log());

        let record = bench.node.dir.join("run/probe.json");
        let mut noted: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(&record).unwrap()).unwrap();
        let since = noted["since_boottime_ns"].as_u64().unwrap();
        noted["since_boottime_ns"] = (since - 30_000_000_000).into();
        fs::write(&record, noted.to_string()).unwrap();
        assert_eq!(bench.prolog(9, "2").code, Some(1), "30 s later it is a finding about the node");
        assert!(bench.scontrol_calls()[1].contains("gpuward:PROBE_HANG driver not answering"));

        bench.node.heal();
        freezer.thaw();
        let calls = bench.scontrol_calls().len();
        assert_eq!(bench.prolog(10, "0").code, Some(0), "{}", bench.node.log());
        assert_eq!(bench.scontrol_calls().len(), calls, "once it is gone the driver is asked again");
        assert_eq!(
            bench.prolog(11, "1").code,
            Some(0),
            "and a note that a finished look left stands in nobody's way"
        );
        assert!(!bench.node.log().lines().last().unwrap().contains("PROBE_HANG"), "{}", bench.node.log());
    }
}

#[cfg(test)]
mod killed {
    use super::*;

    #[test]
    fn kill_9_of_the_probe_lets_the_job_go_on_and_is_told_once() {
        let bench = Bench::new("l40s-pcie", "drain", "");
        bench.node.fault(&hang("nvmlDeviceGetTemperature"));
        let prolog = start(&bench, 7, "0");
        kill(probe_pid(&bench));
        let run = finish(prolog);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        assert_eq!(bench.node.log().matches("PROBE_DIED").count(), 1, "{}", bench.node.log());
        assert_eq!(bench.node.states().len(), 1);
    }

    #[test]
    fn kill_9_of_the_worker_lets_the_job_go_on_is_told_once_and_leaves_no_probe() {
        let bench = Bench::new("l40s-pcie", "drain", "");
        bench.node.fault(&hang("nvmlDeviceGetTemperature"));
        let prolog = start(&bench, 7, "0");
        let probe = probe_pid(&bench);
        let worker = parent_of(probe);
        assert_eq!(parent_of(worker), prolog.id());
        kill(worker);
        let run = finish(prolog);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        let said = "the worker ended without a verdict; the job goes on unchecked";
        assert_eq!(bench.node.log().matches(said).count(), 1, "{}", bench.node.log());
        wait_for("the probe outlives its worker", || (!is_alive(probe)).then_some(()));
        bench.node.heal();
        assert_eq!(bench.prolog(8, "0").code, Some(0));
        assert!(
            bench.node.log().contains("gpuward-prolog of job=7 was started and came to no verdict"),
            "{}",
            bench.node.log()
        );
    }

    #[test]
    fn kill_9_of_the_supervisor_takes_everything_with_it() {
        let bench = Bench::new("l40s-pcie", "drain", "");
        bench.node.fault(&hang("nvmlDeviceGetTemperature"));
        let prolog = start(&bench, 7, "0");
        let probe = probe_pid(&bench);
        let worker = parent_of(probe);
        kill(prolog.id());
        assert_eq!(finish(prolog).code, None);
        wait_for("worker or probe is left", || (!is_alive(worker) && !is_alive(probe)).then_some(()));
    }
}

/// A file system of 64 KiB that is full.
struct FullDisk(PathBuf);

impl FullDisk {
    fn on(path: &Path) -> FullDisk {
        fs::create_dir_all(path).expect("the folder is made");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k,mode=0755", "tmpfs"]).arg(path);
        assert!(mount.status().expect("mount starts").success(), "this test needs root");
        fs::write(path.join("filler"), vec![0u8; 70_000]).expect_err("it holds 64 KiB");
        FullDisk(path.to_owned())
    }
}

impl Drop for FullDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[cfg(test)]
mod set_up {
    use super::*;

    #[test]
    fn a_full_disk_costs_the_state_or_the_record_and_nothing_else() {
        let bench = Bench::new("l40s-pcie", "drain", "");
        let full = FullDisk::on(&bench.node.dir.join("run"));
        let run = bench.prolog(7, "0");
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        assert!(run.stderr.contains("No space left on device"), "{}", run.stderr);
        assert!(bench.node.log().contains("PROBE_DIED"), "a probe that cannot be noted down is not started");
        bench.node.kernel_says(&format!("NVRM: Xid (PCI:{}): 79, x", &bench.node.pci(1)[..10]));
        assert_eq!(bench.prolog(8, "1").code, Some(1), "what the kernel says is seen all the same");
        drop(full);
        let full = FullDisk::on(&bench.node.dir.join("spool"));
        assert_eq!(bench.prolog(9, "0").code, Some(0));
        let run = bench.epilog(9, "0");
        assert_eq!(run.code, Some(0));
        assert!(run.stderr.contains("the record of this run is lost"), "{}", run.stderr);
        drop(full);
    }

    #[test]
    fn a_wrong_configuration_means_the_last_valid_one_and_is_told() {
        let bench = Bench::new("l40s-pcie", "drain", "");
        assert_eq!(bench.prolog(7, "0").code, Some(0));
        bench.node.fault("[[lost]]\ngpu = 0\n");
        let valid = fs::read_to_string(bench.path("etc/gpuward.toml")).unwrap();
        bench.write("etc/gpuward.toml", &valid.replace("mode = \"drain\"", "mod = \"drain\""));
        let run = bench.prolog(8, "0");
        assert_eq!(run.code, Some(1), "the last valid copy says drain: {}", run.stderr);
        assert!(run.stderr.contains("unknown key 'mod', did you mean 'mode'?"), "{}", run.stderr);
        assert!(run.stderr.contains("its last valid copy is in force"), "{}", run.stderr);
    }

    /// Far from any job that a real slurmd on this host could have.
    const DEFAULT_JOB: u32 = 4_000_000_007;

    #[test]
    fn a_configuration_that_was_never_valid_or_not_roots_observes() {
        for breakage in ["content", "link", "mode", "folder"] {
            let bench = Bench::new("l40s-pcie", "drain", "");
            let path = bench.path("etc/gpuward.toml");
            match breakage {
                "content" => fs::write(&path, "[paths\n").unwrap(),
                "link" => {
                    fs::rename(&path, bench.path("etc/other.toml")).unwrap();
                    std::os::unix::fs::symlink(bench.path("etc/other.toml"), &path).unwrap();
                }
                "mode" => {
                    use std::os::unix::fs::PermissionsExt;
                    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
                }
                _ => {
                    fs::remove_file(&path).unwrap();
                    fs::create_dir(&path).unwrap();
                }
            }
            bench.node.fault("[[lost]]\ngpu = 0\n");
            let run = bench.prolog(DEFAULT_JOB, "0");
            forget_default_state(DEFAULT_JOB);
            assert_eq!(run.code, Some(0), "{breakage}: {}", run.stderr);
            assert!(
                run.stderr.contains("the defaults, which only observe, is in force"),
                "{breakage}: {}",
                run.stderr
            );
            assert!(bench.scontrol_calls().is_empty());
        }
    }

    #[test]
    fn a_missing_library_is_our_set_up_and_never_drains() {
        let bench = Bench::new("l40s-pcie", "drain", "");
        fs::remove_file(bench.node.dir.join("lib/libnvidia-ml.so.1")).unwrap();
        assert_eq!(bench.prolog(7, "0").code, Some(0));
        assert!(bench.node.log().contains("NVML_LIB"), "{}", bench.node.log());
    }

    #[test]
    fn a_log_that_takes_nothing_refuses_no_job_and_holds_none() {
        let bench = Bench::new("l40s-pcie", "drain", SHORT);
        bench.node.fault(&hang("nvmlDeviceGetTemperature"));
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let status = bench.command("gpuward-prolog", 7, "0").stderr(full).status().unwrap();
        assert_eq!(status.code(), Some(0), "standard error on a full disk");

        // A pipe that is full and that nobody reads.
        let mut reader =
            Command::new("/bin/sleep").arg("30").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pipe = std::os::fd::OwnedFd::from(reader.stdin.take().unwrap());
        let mut filler = fs::File::from(pipe.try_clone().unwrap());
        let fill = std::thread::spawn(move || {
            use std::io::Write;
            let _ = filler.write_all(&vec![b'x'; 1 << 20]);
        });
        std::thread::sleep(Duration::from_millis(200));
        let began = Instant::now();
        let status = bench.command("gpuward-prolog", 8, "1").stderr(pipe).status().unwrap();
        assert_eq!((status.code(), began.elapsed() < HANG), (Some(0), true), "a reader that hangs");
        reader.kill().unwrap();
        reader.wait().unwrap();
        fill.join().unwrap();
    }

    #[test]
    fn nothing_of_ours_keeps_slurmds_pipe_open() {
        // slurmd reads the pipe until its end: a child that held it would hold the job.
        let freezer = Freezer::new("pipe");
        let bench = Bench::new("l40s-pcie", "drain", SHORT);
        let script =
            format!("[[hang]]\nfunction = \"nvmlDeviceGetTemperature\"\nunkillable = {:?}\n", freezer.path());
        bench.node.fault(&script);
        let result = run(&mut bench.command("gpuward-prolog", 7, "0"));
        assert_eq!((result.code, result.took < HANG), (Some(0), true));
        assert_eq!(freezer.members().len(), 1, "the child is still there, the pipe is not");
        freezer.thaw();
    }
}
