//! The small program that slurmd waits for.
//!
//! Configuration, parsing, rules and NVML live in a worker below it. The supervisor exits 1 only for an explicit
//! refusal of the worker's; a worker that panics, is killed, hangs or cannot be started means exit 0. Whatever hangs is
//! left behind: nothing here waits without a deadline.

use crate::clock::{Deadline, boottime_ns};
use crate::flow;
use crate::process::{Line, Lines, fork_role};
use crate::slurm::JobEnv;
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
    let args: Vec<String> = std::env::args().take(2).collect();
    match args.get(1).map(String::as_str) {
        None => return supervise(kind, args.first().map_or("", String::as_str)),
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
            eprintln!("gpuward {}: {error}; the job goes on unchecked", kind.word());
            return ExitCode::SUCCESS;
        }
    };
    match listen(&mut lines, start_boottime_ns) {
        Heard::Pass => ExitCode::SUCCESS,
        Heard::Refuse(why) => {
            eprintln!("gpuward {}: {why}", kind.word());
            let _ = until_end(&mut lines);
            ExitCode::FAILURE
        }
        Heard::Nothing(why) => {
            worker.kill_and_reap(20);
            let text = format!("{}: {why}; the job goes on unchecked", kind.word());
            eprintln!("gpuward {text}");
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
            eprintln!("gpuward: {text}");
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
                    eprintln!("gpuward: {text}");
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
