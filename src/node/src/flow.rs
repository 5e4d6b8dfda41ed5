//! The use cases: before a job, after a job, and a look at a node.
//!
//! Each puts the edges and the core together: read, judge, act, write down. An error of ours ends as a log line and
//! lets the job go on.

mod act;
mod after_job;
mod before_job;
mod kernel_log;
mod look;
mod site;

pub use look::{Inspection, Learned, Look, accept, inspect_node, learn_from};
pub use site::Site;

use crate::clock::Deadline;
use crate::slurm::JobEnv;
use crate::supervisor::{Kind, say};
use std::io::Write;
use std::path::Path;

/// How long the worker may go on after the probe's deadline before the supervisor gives up on it. Ours: judging and
/// writing take a few milliseconds; the promise is deadline + 300 ms.
const AFTER_PROBE_MS: u64 = 220;

/// What the worker came to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    Pass,
    Refuse(String),
}

/// The worker of a prolog or epilog: says its verdict on standard output, where the supervisor listens.
pub fn worker(kind: Kind, env: &JobEnv, start_boottime_ns: u64, program: &str) {
    let site = Site::of_job(kind, env, Path::new(program), Some(tell_log));
    let deadline_ms = site.probe_deadline_ms;
    tell(&format!("{}{}", say::DEADLINE, deadline_ms + AFTER_PROBE_MS));
    let deadline = Deadline::after(start_boottime_ns, deadline_ms);
    let (outcome, finish) = match kind {
        Kind::Prolog => before_job::run(&site, start_boottime_ns, deadline),
        Kind::Epilog => after_job::run(&site, start_boottime_ns, deadline),
    };
    match outcome {
        Outcome::Pass => tell(say::PASS),
        Outcome::Refuse(why) => tell(&format!("{}{}", say::REFUSE, why.replace('\n', " "))),
    }
    finish();
}

/// What is left to do once the verdict is out.
type Finish = Box<dyn FnOnce()>;

/// Writes one line to the logs for a supervisor whose worker is gone.
pub fn note(kind: Kind, env: &JobEnv, program: &str, text: &str) {
    let _site = Site::of_job(kind, env, Path::new(program), None);
    log::error!("{text}");
}

fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    // A supervisor that is gone needs no answer, and we go with it.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn tell_log(text: &str) {
    tell(&format!("{}{text}", say::LOG));
}

/// Asks the supervisor for more time, counted from now, for what follows the driver's answer.
fn ask_for_time(start_boottime_ns: u64, more_ms: u64) {
    let since_start_ms = crate::clock::boottime_ns().saturating_sub(start_boottime_ns) / 1_000_000;
    tell(&format!("{}{}", say::DEADLINE, since_start_ms + more_ms));
}
