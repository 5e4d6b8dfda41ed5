//! The side that waits for the probe.
//!
//! One probe at a time on a node, and never a second one while a first hangs: its pid and start time stand in a file
//! from before it can hang until it is gone for certain.

use super::message::{Message, Request};
use crate::clock::{Deadline, boottime_ns};
use crate::process::{Forked, Line, Lines, fork_role, kill_exactly, start_ticks};
use crate::{EdgeError, files};
use gpuward_core::model::snapshot::{ProbeOutcome, ProbedGpu};
use gpuward_core::model::{GpuReading, NodeReading, Reading};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// How long a killed child may take to be gone before it counts as stuck. 50 ms is ours: a killed process that is not
/// stuck in the kernel is gone within a few.
const GRACE_MS: u64 = 50;

/// Everything that came out of a probe before the deadline.
#[derive(Debug, Default)]
pub struct Answer {
    /// How it went.
    pub outcome: ProbeOutcome,
    /// What the driver says about the node.
    pub node: NodeReading,
    /// One entry for each target, in their order.
    pub gpus: Vec<ProbedGpu>,
    /// The child that has said everything and is about to be gone.
    ending: Option<Ending>,
}

/// A probe that is done, but not yet waited for.
#[derive(Debug)]
struct Ending {
    child: Forked,
    record: PathBuf,
}

impl Answer {
    /// Waits for the child's end, which is not worth waiting for before everything else is done.
    pub fn settle(&mut self) {
        if let Some(mut ending) = self.ending.take() {
            end(&mut ending.child, &ending.record);
        }
    }
}

/// Ends a child; true once it is gone. One that stays is left behind, and the file goes on naming it.
fn end(child: &mut Forked, record: &Path) -> bool {
    let gone = child.kill_and_reap(GRACE_MS);
    if gone {
        let _ = files::remove(record);
    }
    gone
}

impl Answer {
    /// Nobody answered, for the reason given.
    pub fn nothing(outcome: ProbeOutcome) -> Answer {
        Answer { outcome, ..Answer::default() }
    }
}

/// The file that names the probe at work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct AtWork {
    pid: u32,
    start_ticks: u64,
    since_boottime_ns: u64,
}

/// A probe that has been started and not yet been waited for.
#[derive(Debug)]
pub struct Watch {
    child: Option<(Forked, Lines)>,
    answer: Answer,
    record: PathBuf,
    start_boottime_ns: u64,
}

impl Watch {
    /// Starts the probe, unless one that was started earlier hangs on in the kernel.
    ///
    /// `run` is the folder of files that last until the next boot. The caller holds the node's probe lock.
    ///
    /// # Errors
    /// The child could not be started or noted down: ours, not the driver's.
    pub fn start(run: &Path, request: &Request) -> Result<Watch, EdgeError> {
        let record = run.join("probe.json");
        let start_boottime_ns = boottime_ns();
        if let Some(stuck) = still_at_work(&record) {
            let outcome =
                ProbeOutcome::Blocked { pid: stuck.pid, since_boottime_ns: stuck.since_boottime_ns };
            let answer = Answer::nothing(outcome);
            return Ok(Watch { child: None, answer, record, start_boottime_ns });
        }
        let (child, stdout) = fork_role(c"gpuward-probe", || super::probe::main(request))?;
        let mut watch = Watch {
            child: Some((child, Lines::new(stdout))),
            answer: Answer { gpus: unanswered(request), ..Answer::default() },
            record,
            start_boottime_ns,
        };
        watch.answer.node.nvml = Reading::TimedOut;
        watch.note_down()?;
        Ok(watch)
    }

    fn note_down(&mut self) -> Result<(), EdgeError> {
        let Some((child, _)) = &self.child else { return Ok(()) };
        let pid = child.id();
        let Some(start_ticks) = start_ticks(pid) else { return Ok(()) };
        let at_work = AtWork { pid, start_ticks, since_boottime_ns: self.start_boottime_ns };
        let text = serde_json::to_string(&at_work).unwrap_or_default();
        let written = files::write_atomic(&self.record, &text, 0o600);
        if written.is_err() {
            // A child that nobody could find again must not be left to hang.
            if let Some((mut child, _)) = self.child.take() {
                child.kill_and_reap(GRACE_MS);
            }
        }
        written
    }

    /// Waits for the probe until the deadline, then ends it. `told` hears how many GPUs have answered.
    pub fn finish(mut self, deadline: Deadline, deadline_ms: u64, told: &mut dyn FnMut(usize)) -> Answer {
        let Some((mut child, mut lines)) = self.child.take() else { return self.answer };
        let mut answered = 0;
        let ended = loop {
            match lines.next(deadline) {
                Line::Text(text) => match serde_json::from_str(&text) {
                    Ok(Message::End) => break Ended::Whole,
                    Ok(message) => {
                        if matches!(message, Message::Gpu { .. }) {
                            answered += 1;
                            told(answered);
                        }
                        take(&mut self.answer, message);
                    }
                    Err(error) => break Ended::Died(format!("unreadable answer: {error}")),
                },
                Line::End => break Ended::Died("it ended without an answer".into()),
                Line::TimedOut => break Ended::Late,
            }
        };
        match ended {
            Ended::Whole => {
                let took_ms = (boottime_ns() - self.start_boottime_ns) / 1_000_000;
                self.answer.outcome = ProbeOutcome::Finished { took_ms };
                self.answer.ending = Some(Ending { child, record: self.record });
            }
            Ended::Late => {
                let gone = end(&mut child, &self.record);
                self.answer.outcome = ProbeOutcome::TimedOut { deadline_ms, unkillable: !gone };
            }
            Ended::Died(why) => {
                end(&mut child, &self.record);
                // What it said before it died stands; about the rest nobody was asked.
                let unanswered = |gpu: &&mut ProbedGpu| gpu.silent();
                self.answer
                    .gpus
                    .iter_mut()
                    .filter(unanswered)
                    .for_each(|gpu| gpu.reading.handle = Reading::NotRead);
                if self.answer.node.nvml == Reading::TimedOut {
                    self.answer.node.nvml = Reading::NotRead;
                }
                self.answer.outcome = ProbeOutcome::Died { why };
            }
        }
        self.answer
    }
}

enum Ended {
    Whole,
    Late,
    Died(String),
}

fn unanswered(request: &Request) -> Vec<ProbedGpu> {
    let silent = |target: &gpuward_core::model::snapshot::GpuTarget| ProbedGpu {
        target: target.clone(),
        reading: GpuReading { handle: Reading::TimedOut, ..GpuReading::default() },
    };
    request.targets.iter().map(silent).collect()
}

fn take(answer: &mut Answer, message: Message) {
    match message {
        Message::Node(node) => {
            if node.nvml != Reading::Value(()) {
                // Nobody was asked: that NVML does not start is the node's affair, not the GPUs'.
                answer.gpus.iter_mut().for_each(|gpu| gpu.reading.handle = Reading::NotRead);
            }
            answer.node = node;
        }
        Message::Gpu { target, reading } => {
            if let Some(gpu) = answer.gpus.get_mut(target) {
                gpu.reading = *reading;
            }
        }
        Message::Detail { target, detail } => {
            if let Some(gpu) = answer.gpus.get_mut(target) {
                gpu.reading.detail = Some(detail);
            }
        }
        Message::Peers { target, peers } => {
            if let Some(detail) = answer.gpus.get_mut(target).and_then(|gpu| gpu.reading.detail.as_mut()) {
                detail.peers = peers;
            }
        }
        Message::End => {}
    }
}

/// The noted probe, if it is still there. Whoever started it is gone, since we hold the lock, so it is told to go, too.
fn still_at_work(record: &Path) -> Option<AtWork> {
    let text = files::read_own(record, 4096).ok()?;
    let at_work: AtWork = serde_json::from_str(&text).ok()?;
    kill_exactly(at_work.pid, at_work.start_ticks);
    let grace = Deadline::in_ms(GRACE_MS);
    while start_ticks(at_work.pid) == Some(at_work.start_ticks) {
        if grace.passed() {
            return Some(at_work);
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let _ = files::remove(record);
    None
}
