//! Commands with a deadline.

use super::ClusterError;
use super::process::POLL;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What a command did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Its exit code, none where a signal ended it.
    pub code: Option<i32>,
    /// What it wrote to stdout.
    pub stdout: String,
    /// What it wrote to stderr.
    pub stderr: String,
}

impl Output {
    /// Whether it ended with exit code 0.
    pub fn ok(&self) -> bool {
        self.code == Some(0)
    }
}

/// Runs a command to its end, or kills it when the time is up.
///
/// # Errors
/// It cannot be started, or did not end in time. Any exit code is an answer, not an error.
pub fn run(command: &mut Command, input: &str, limit: Duration) -> Result<Output, ClusterError> {
    let name = describe(command);
    let spawn_error = |error| ClusterError::Spawn(name.clone(), error);
    // Files, not pipes: nobody has to read them meanwhile, and no background process can keep them from ending.
    let mut files = [(); 3].map(|()| tempfile::tempfile());
    let [stdin, stdout, stderr] = &mut files;
    let (stdin, stdout, stderr) = match (stdin, stdout, stderr) {
        (Ok(stdin), Ok(stdout), Ok(stderr)) => (stdin, stdout, stderr),
        _ => return Err(spawn_error(std::io::Error::other("no temporary file"))),
    };
    stdin.write_all(input.as_bytes()).and_then(|()| stdin.rewind()).map_err(spawn_error)?;
    command.stdin(copy(stdin)).stdout(copy(stdout)).stderr(copy(stderr));
    let mut child = command.spawn().map_err(spawn_error)?;
    let deadline = Instant::now() + limit;
    let status = loop {
        match child.try_wait().map_err(spawn_error)? {
            Some(status) => break Some(status),
            None if Instant::now() > deadline => break None,
            None => std::thread::sleep(POLL / 4),
        }
    };
    let output = Output {
        code: status.and_then(|status| status.code()),
        stdout: content(stdout),
        stderr: content(stderr),
    };
    if status.is_none() {
        // Fails only where it has ended just now.
        let _ = child.kill();
        let _ = child.wait();
        let last = format!("{}{}", output.stdout, output.stderr);
        return Err(ClusterError::Deadline { what: name, limit, last });
    }
    Ok(output)
}

/// The same for a command that must succeed; returns its stdout.
pub(super) fn run_ok(command: &mut Command, input: &str, limit: Duration) -> Result<String, ClusterError> {
    let output = run(command, input, limit)?;
    if output.ok() {
        return Ok(output.stdout);
    }
    let text = format!("{}{}", output.stdout, output.stderr);
    Err(ClusterError::Command {
        command: describe(command),
        code: output.code,
        output: text.trim().to_owned(),
    })
}

fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

fn copy(file: &File) -> Stdio {
    file.try_clone().map_or_else(|_| Stdio::null(), Stdio::from)
}

fn content(file: &mut File) -> String {
    let mut bytes = Vec::new();
    let read = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
    read.map_or_else(|error| format!("({error})"), |_| String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_hangs_is_ended_at_its_deadline() {
        let start = Instant::now();
        let mut command = Command::new("sh");
        command.args(["-c", "echo started; exec sleep 60"]);
        let error = run(&mut command, "", Duration::from_millis(300)).unwrap_err().to_string();
        assert!(error.contains("not within 300ms; last seen: started"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn input_output_and_exit_code_are_passed_on() {
        let output =
            run(Command::new("sh").args(["-c", "cat; echo no >&2; exit 3"]), "yes", Duration::from_secs(10));
        let wanted = Output { code: Some(3), stdout: "yes".into(), stderr: "no\n".into() };
        assert_eq!(output.unwrap(), wanted);
    }
}
