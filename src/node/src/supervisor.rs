//! The small program that slurmd waits for.
//!
//! Configuration, parsing, rules and NVML live in a worker below it. The supervisor exits 1 only for an explicit
//! refusal of the worker's; a worker that panics, is killed, hangs or cannot be started means exit 0. Whatever hangs is
//! left behind: nothing here waits without a deadline.

use crate::clock::{Deadline, boottime_ns};
use crate::flow;
use crate::process::{Line, Lines, fork_role};
use crate::slurm::JobEnv;
use std::io::Write;
use std::process::ExitCode;

/// Which of the two programs this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Before a job.
    Prolog,
    /// After a job.
    Epilog,
}

impl Kind {
    /// The word used in logs.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Prolog => "prolog",
            Kind::Epilog => "epilog",
        }
    }
}

/// Until the worker has said how long it may take. Ours: the default probe deadline of 2 s and what comes after it.
const FIRST_CAP_MS: u64 = 2250;

/// However long the worker asks for. Ours: below the 60 s that slurm.conf should allow a prolog.
const HARD_CAP_MS: u64 = 30_000;

/// How long a worker that has refused may still write its history and log.
const AFTER_REFUSAL_MS: u64 = 500;

/// How long a line for the log may take when there is no worker to write it.
const NOTE_MS: u64 = 200;

/// What a worker says to its supervisor, one line each.
pub mod say {
    /// `deadline MS`: how long after its start the supervisor shall wait at most.
    pub const DEADLINE: &str = "deadline ";
    /// `log TEXT`: for slurmd's log.
    pub const LOG: &str = "log ";
    /// `pass`: let the job go on.
    pub const PASS: &str = "pass";
    /// `refuse TEXT`: do not use this node.
    pub const REFUSE: &str = "refuse ";
}

/// The whole of a prolog or epilog program.
pub fn main(kind: Kind) -> ExitCode {
    let mut args = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned());
    let program = args.next().unwrap_or_default();
    match args.next().as_deref() {
        None => return supervise_safely(kind, &program),
        Some("--version" | "-V") => println!("gpuward {} {}", kind.word(), env!("CARGO_PKG_VERSION")),
        Some(_) => print_help(kind),
    }
    ExitCode::SUCCESS
}

fn print_help(kind: Kind) {
    let (word, setting) = match kind {
        Kind::Prolog => ("prolog", "Prolog"),
        Kind::Epilog => ("epilog", "Epilog"),
    };
    println!("gpuward's {word}, version {}", env!("CARGO_PKG_VERSION"));
    println!();
    println!(
        "It takes no arguments. slurmd starts it, by {setting}= in slurm.conf, with the job in its environment."
    );
    println!("Exit code 0: the job goes on. Exit code 1: this node must not be used, and has been drained.");
    println!("Its settings are in gpuward.toml.");
}

/// A panic of the supervisor's own is no refusal either.
fn supervise_safely(kind: Kind, program: &str) -> ExitCode {
    std::panic::set_hook(Box::new(|_| {}));
    // SAFETY: SIG_DFL is a valid disposition. A parent that ignores SIGCHLD would make every wait of ours fail.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    std::panic::catch_unwind(|| supervise(kind, program)).unwrap_or(ExitCode::SUCCESS)
}

/// Says `text` to slurmd's log if that can be had without waiting: a full disk or a reader that hangs costs the line.
fn to_stderr(text: &str) {
    let mut wanted = libc::pollfd { fd: 2, events: libc::POLLOUT, revents: 0 };
    // SAFETY: `wanted` is one live pollfd, and poll writes only to it.
    let ready = unsafe { libc::poll(&raw mut wanted, 1, 0) };
    // A pipe that is ready takes PIPE_BUF (4096) bytes without blocking.
    let line: String = format!("gpuward {text}").chars().take(1000).collect();
    if ready == 1 && wanted.revents & libc::POLLOUT != 0 {
        let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
    }
}

fn supervise(kind: Kind, program: &str) -> ExitCode {
    let start_boottime_ns = boottime_ns();
    let env = JobEnv::of_process();
    if !env.has_gpus() {
        return ExitCode::SUCCESS;
    }
    let started = fork_role(c"gpuward-worker", || flow::worker(kind, &env, start_boottime_ns, program));
    let (mut worker, mut lines) = match started {
        Ok((worker, pipe)) => (worker, Lines::new(pipe)),
        Err(error) => {
            to_stderr(&format!("{}: {error}; the job goes on unchecked", kind.word()));
            return ExitCode::SUCCESS;
        }
    };
    match listen(&mut lines, start_boottime_ns) {
        Heard::Pass => ExitCode::SUCCESS,
        Heard::Refuse(why) => {
            to_stderr(&format!("{}: {why}", kind.word()));
            let _ = until_end(&mut lines);
            ExitCode::FAILURE
        }
        Heard::Nothing(why) => {
            worker.kill_and_reap(20);
            let text = format!("{}: {why}; the job goes on unchecked", kind.word());
            to_stderr(&text);
            note(kind, &env, program, &text);
            ExitCode::SUCCESS
        }
    }
}

enum Heard {
    Pass,
    Refuse(String),
    Nothing(&'static str),
}

fn listen(lines: &mut Lines, start_boottime_ns: u64) -> Heard {
    let mut cap_ms = FIRST_CAP_MS;
    loop {
        let line = match lines.next(Deadline::after(start_boottime_ns, cap_ms)) {
            Line::Text(line) => line,
            Line::End => return Heard::Nothing("the worker ended without a verdict"),
            Line::TimedOut => return Heard::Nothing("the worker did not come to a verdict in time"),
        };
        if line == say::PASS {
            return Heard::Pass;
        } else if let Some(why) = line.strip_prefix(say::REFUSE) {
            return Heard::Refuse(why.to_owned());
        } else if let Some(text) = line.strip_prefix(say::LOG) {
            to_stderr(text);
        } else if let Some(ms) = line.strip_prefix(say::DEADLINE) {
            cap_ms = ms.parse().unwrap_or(cap_ms).min(HARD_CAP_MS);
        }
    }
}

/// Lets a worker that has refused finish its writing: it dies with us.
fn until_end(lines: &mut Lines) -> Line {
    let deadline = Deadline::in_ms(AFTER_REFUSAL_MS);
    loop {
        match lines.next(deadline) {
            Line::Text(line) => {
                if let Some(text) = line.strip_prefix(say::LOG) {
                    to_stderr(text);
                }
            }
            other => return other,
        }
    }
}

/// Has a child write `text` to the logs: a log that hangs must not hang us.
fn note(kind: Kind, env: &JobEnv, program: &str, text: &str) {
    let noted = fork_role(c"gpuward-note", || flow::note(kind, env, program, text));
    let Ok((mut child, pipe)) = noted else { return };
    let _ = Lines::new(pipe).next(Deadline::in_ms(NOTE_MS));
    child.kill_and_reap(20);
}
