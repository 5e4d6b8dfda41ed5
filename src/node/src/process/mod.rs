//! Child processes: forked roles of our own, other programs, and all of them under a deadline.
//!
//! A child gets /dev/null and one pipe, a process group of its own, and nothing else of ours. One that does not die of
//! SIGKILL is left behind, never waited for.

mod fork;
mod lines;
mod lock;
pub(crate) mod stat;
mod stuck;
mod waiting;

pub use fork::{Forked, fork_role};
pub use lines::{Line, Lines};
pub use lock::Lock;
pub use stat::Stat;
pub use stuck::{Stuck, look_at};
pub use waiting::{is_running, stuck_processes};

use crate::EdgeError;
use crate::clock::Deadline;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// When a process was started, in clock ticks since boot; `None` where it is gone, or nothing of it but what its parent
/// has yet to wait for.
///
/// Together with the pid it names one process for good. One whose first thread has ended lives as long as another one
/// does: it may hold a GPU.
pub fn start_ticks(pid: u32) -> Option<u64> {
    let folder = Path::new("/proc").join(pid.to_string());
    let stat = Stat::read(&folder).ok()??;
    stat::is_alive(&folder, &stat).ok()?.then_some(stat.start_ticks)
}

/// Sends SIGKILL to the process `pid` if it is still the one started at `ticks`.
pub fn kill_exactly(pid: u32, ticks: u64) {
    let Ok(number) = i32::try_from(pid) else { return };
    if number > 1 && start_ticks(pid) == Some(ticks) {
        // SAFETY: kill takes two numbers and touches no memory; the pid is above 1, so it names one process.
        unsafe { libc::kill(number, libc::SIGKILL) };
    }
}

/// What a program printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// True where it exited with 0.
    pub success: bool,
    /// Its standard output, bounded; bytes that are no UTF-8 are replaced.
    pub text: String,
}

/// No program of Slurm's prints more about one node.
const MAX_OUTPUT_BYTES: usize = 256 * 1024;

/// Runs a program by absolute path, without shell, with a closed standard input and only the environment given.
///
/// # Errors
/// It did not start, printed too much, or did not end before the deadline; then it has been killed.
pub fn run(
    program: &Path,
    args: &[&str],
    env: &[(&str, &str)],
    deadline: Deadline,
) -> Result<Output, EdgeError> {
    let (success, bytes) = run_bytes(program, args, env, MAX_OUTPUT_BYTES, deadline)?;
    Ok(Output { success, text: String::from_utf8_lossy(&bytes).into_owned() })
}

/// The same for a program that prints up to `max_bytes`, which need not be text; says whether it exited with 0.
///
/// # Errors
/// As [`run`].
pub fn run_bytes(
    program: &Path,
    args: &[&str],
    env: &[(&str, &str)],
    max_bytes: usize,
    deadline: Deadline,
) -> Result<(bool, Vec<u8>), EdgeError> {
    let name = program.display().to_string();
    let failed = |why: String| EdgeError::Program { program: name.clone(), why };
    let mut command = Command::new(program);
    command.args(args).env_clear().envs(env.iter().copied()).current_dir("/").process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| failed(format!("did not start: {error}")))?;
    let pipe = child.stdout.take().ok_or_else(|| failed("has no pipe".into()))?;
    let mut lines = Lines::new(OwnedFd::from(pipe));
    let read = lines.rest(max_bytes, deadline).and_then(|bytes| Ok((wait(&mut child, deadline)?, bytes)));
    read.map_err(|why| {
        let _ = child.kill();
        let _ = child.try_wait();
        failed(why.to_owned())
    })
}

fn wait(child: &mut std::process::Child, deadline: Deadline) -> Result<bool, &'static str> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status.success()),
            Ok(None) if deadline.passed() => return Err("did not end in time"),
            Ok(None) => std::thread::sleep(Duration::from_millis(1)),
            Err(_) => return Err("could not be waited for"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_exit_code_are_told() {
        let output =
            run(Path::new("/bin/sh"), &["-c", "echo $A; exit 3"], &[("A", "b c")], Deadline::in_ms(5000));
        assert_eq!(output.unwrap(), Output { success: false, text: "b c\n".into() });
        assert!(run(Path::new("/no/such/program"), &[], &[], Deadline::in_ms(5000)).is_err());
    }

    #[test]
    fn a_program_that_hangs_or_keeps_its_pipe_open_ends_at_the_deadline() {
        for script in ["trap '' TERM; sleep 30", "sleep 30 & exit 0", "exec 1>&-; sleep 30"] {
            let start = crate::clock::boottime_ns();
            let error = run(Path::new("/bin/sh"), &["-c", script], &[], Deadline::in_ms(200)).unwrap_err();
            assert!(error.to_string().contains("in time"), "{error}");
            let took_ms = (crate::clock::boottime_ns() - start) / 1_000_000;
            assert!((200..5000).contains(&took_ms), "{script} took {took_ms} ms");
        }
    }

    #[test]
    fn a_program_that_floods_its_pipe_is_stopped() {
        let error = run(Path::new("/bin/sh"), &["-c", "yes"], &[], Deadline::in_ms(5000)).unwrap_err();
        assert!(error.to_string().contains("too much"), "{error}");
    }

    #[test]
    fn pid_and_start_time_name_one_process() {
        let mut child = Command::new("/bin/sleep").arg("30").spawn().unwrap();
        let ticks = start_ticks(child.id()).unwrap();
        kill_exactly(child.id(), ticks + 1);
        assert!(child.try_wait().unwrap().is_none());
        kill_exactly(child.id(), ticks);
        child.wait().unwrap();
        assert_eq!(start_ticks(child.id()), None);
    }

    /// Its first thread ends and another one goes on; then a pipe tells so.
    const HEADLESS: &str = r#"
import ctypes, threading, time
def go_on():
    while open("/proc/self/stat").read().rsplit(") ")[1][0] != "Z":
        time.sleep(0.001)
    print("headless", flush=True)
    time.sleep(600)
threading.Thread(target=go_on).start()
ctypes.CDLL(None).pthread_exit(None)
"#;

    #[test]
    fn a_process_whose_first_thread_has_ended_is_alive_and_can_be_killed() {
        let mut command = Command::new("python3");
        let mut child = command.args(["-c", HEADLESS]).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = Lines::new(OwnedFd::from(child.stdout.take().unwrap()));
        assert_eq!(lines.next(Deadline::in_ms(60_000)), Line::Text("headless".into()));
        let ticks = start_ticks(child.id());
        // Not the kill under test: the child must not outlive a failure.
        let end = |child: &mut std::process::Child| {
            child.kill().unwrap();
            child.wait().unwrap()
        };
        if ticks.is_none() {
            end(&mut child);
        }
        kill_exactly(child.id(), ticks.expect("another thread of it lives"));
        // The pipe ends with the last thread.
        let gone = lines.next(Deadline::in_ms(60_000));
        end(&mut child);
        assert_eq!(gone, Line::End);
        assert_eq!(start_ticks(child.id()), None);
    }
}
