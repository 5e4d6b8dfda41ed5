//! The small program that slurmd waits for.
//!
//! Configuration, parsing, rules and NVML live in a worker below it. The supervisor exits 1 only for an explicit
//! refusal of the worker's; a worker that panics, is killed, hangs or cannot be started means exit 0. Whatever hangs is
//! left behind: nothing here waits without a deadline.

use crate::clock::{Deadline, boottime_ns};
use crate::flow;
use crate::nvml::probe_main;
use crate::process::{self, Line, Lines, kill_and_reap, role, spawn_role};
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

/// The whole of a prolog or epilog program: supervisor, worker, probe or note, by the first argument.
pub fn main(kind: Kind) -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let arg = |at: usize| args.get(at).map_or("", String::as_str);
    match arg(1) {
        "" => return supervise(kind, arg(0)),
        role::WORKER => flow::worker(kind, arg(2).parse().unwrap_or(0), arg(3)),
        role::PROBE => probe_main(arg(2)),
        role::NOTE => flow::note(kind, arg(2), arg(3)),
        "--version" | "-V" => println!("gpuward {} {}", kind.word(), env!("CARGO_PKG_VERSION")),
        _ => print_help(kind),
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
    if !JobEnv::of_process().has_gpus() {
        return ExitCode::SUCCESS;
    }
    process::keep_descriptors_from_children();
    let started = spawn_role(role::WORKER, &[&start_boottime_ns.to_string(), program], true);
    let (mut worker, mut lines) = match started {
        Ok((worker, stdout)) => (worker, Lines::new(stdout)),
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
            kill_and_reap(&mut worker, 20);
            let text = format!("{}: {why}; the job goes on unchecked", kind.word());
            eprintln!("gpuward {text}");
            note(program, &text);
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
fn note(program: &str, text: &str) {
    let Ok((mut child, stdout)) = spawn_role(role::NOTE, &[program, text], true) else { return };
    let _ = Lines::new(stdout).next(Deadline::in_ms(NOTE_MS));
    kill_and_reap(&mut child, 20);
}
