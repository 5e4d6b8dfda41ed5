//! Child processes: our own roles, other programs, and all of them under a deadline.
//!
//! A child gets /dev/null and one pipe, a process group of its own, and nothing else of ours. One that does not die of
//! SIGKILL is left behind, never waited for.

mod lines;
mod lock;

pub use lines::{Line, Lines};
pub use lock::Lock;

use crate::clock::Deadline;
use crate::{EdgeError, files};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// Roles that our programs start themselves in; the first argument.
pub mod role {
    /// Does the work of a prolog or epilog below its supervisor.
    pub const WORKER: &str = "gpuward-worker";
    /// Asks the driver.
    pub const PROBE: &str = "gpuward-probe";
    /// Writes one line to the logs for a supervisor.
    pub const NOTE: &str = "gpuward-note";
}

/// Starts this very program again in `role`, with a pipe from its standard output.
///
/// # Errors
/// The kernel refused.
pub fn spawn_role(
    role: &str,
    args: &[&str],
    keep_environment: bool,
) -> Result<(Child, ChildStdout), EdgeError> {
    let mut command = Command::new("/proc/self/exe");
    command.arg(role).args(args);
    if !keep_environment {
        command.env_clear();
    }
    spawn_piped(&mut command, "gpuward")
}

fn spawn_piped(command: &mut Command, name: &str) -> Result<(Child, ChildStdout), EdgeError> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .current_dir("/")
        .process_group(0);
    let failed = |why: String| EdgeError::Program { program: name.to_owned(), why };
    let mut child = command.spawn().map_err(|error| failed(format!("did not start: {error}")))?;
    let stdout = child.stdout.take().ok_or_else(|| failed("has no pipe".into()))?;
    Ok((child, stdout))
}

/// Ends `child` with SIGKILL and gives it `grace_ms` to be gone; false where it hangs on in the kernel.
pub fn kill_and_reap(child: &mut Child, grace_ms: u64) -> bool {
    let _ = child.kill();
    let grace = Deadline::in_ms(grace_ms);
    loop {
        match child.try_wait() {
            Ok(Some(_)) | Err(_) => return true,
            Ok(None) if grace.passed() => return false,
            // Short, because this wait is on the healthy path as well.
            Ok(None) => std::thread::sleep(Duration::from_micros(100)),
        }
    }
}

/// When a process was started, in clock ticks since boot; `None` where it is gone or a zombie.
///
/// Together with the pid it names one process for good.
pub fn start_ticks(pid: u32) -> Option<u64> {
    let stat = files::read_text(Path::new(&format!("/proc/{pid}/stat")), 4096).ok()?;
    // The name in parentheses may hold anything, blanks and parentheses too.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// Sends SIGKILL to the process `pid` if it is still the one started at `ticks`.
pub fn kill_exactly(pid: u32, ticks: u64) {
    let Ok(number) = i32::try_from(pid) else { return };
    if number > 1 && start_ticks(pid) == Some(ticks) {
        // SAFETY: kill takes two numbers and touches no memory; the pid is above 1, so it names one process.
        unsafe { libc::kill(number, libc::SIGKILL) };
    }
}

/// Makes the kernel end this process when the one that started it ends, and says whether that one is still there.
pub fn die_with_parent() -> bool {
    // SAFETY: getppid takes nothing, touches no memory and cannot fail.
    let parent = unsafe { libc::getppid() };
    // SAFETY: PR_SET_PDEATHSIG takes a signal number and touches no memory.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    // SAFETY: as above; asked again, because the parent may have ended before the prctl.
    parent > 1 && parent == unsafe { libc::getppid() }
}

/// linux/close_range.h; libc has it as another type than its own call takes.
const CLOSE_RANGE_CLOEXEC: libc::c_int = 1 << 2;

/// Marks every descriptor that whoever started us left open as not for our children.
pub fn keep_descriptors_from_children() {
    // SAFETY: with CLOSE_RANGE_CLOEXEC the call only sets a flag on descriptors and touches no memory. A kernel
    // before 5.11 refuses it, and then things are as they were.
    unsafe { libc::close_range(3, u32::MAX, CLOSE_RANGE_CLOEXEC) };
}

/// What a program printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// True where it exited with 0.
    pub success: bool,
    /// Its standard output, bounded.
    pub text: String,
}

/// No program of Slurm's prints more about one node.
const MAX_OUTPUT_BYTES: usize = 256 * 1024;

/// Runs a program by absolute path, without shell, with a closed standard input and only the environment given.
///
/// # Errors
/// It did not start, or did not end before the deadline; then it has been killed.
pub fn run(
    program: &Path,
    args: &[&str],
    env: &[(&str, &str)],
    deadline: Deadline,
) -> Result<Output, EdgeError> {
    let name = program.display().to_string();
    let mut command = Command::new(program);
    command.args(args).env_clear().envs(env.iter().copied());
    let (mut child, stdout) = spawn_piped(&mut command, &name)?;
    let mut lines = Lines::new(stdout);
    let mut text = String::new();
    let failed = |child: &mut Child, why: &str| {
        kill_and_reap(child, 20);
        Err(EdgeError::Program { program: name.clone(), why: why.to_owned() })
    };
    loop {
        match lines.next(deadline) {
            Line::Text(line) if text.len() + line.len() < MAX_OUTPUT_BYTES => {
                text.push_str(&line);
                text.push('\n');
            }
            Line::Text(_) => return failed(&mut child, "printed too much"),
            Line::End => break,
            Line::TimedOut => return failed(&mut child, "did not answer in time"),
        }
    }
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(Output { success: status.success(), text }),
            Ok(None) if deadline.passed() => return failed(&mut child, "did not end in time"),
            Ok(None) => std::thread::sleep(Duration::from_millis(1)),
            Err(_) => return failed(&mut child, "could not be waited for"),
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
}
