//! Refusing a job: our reason first, then the exit code.

use super::look::Look;
use super::{Outcome, Site, ask_for_time};
use crate::clock::unix_ms;
use crate::slurm::Scontrol;
use crate::state::{Entry, finding_id, write_entry};
use gpuward_core::drain::{DrainAction, NodeState, plan_action, reason};
use gpuward_core::health::Finding;
use std::path::Path;

/// What refusing came to.
pub(super) struct Acted {
    pub outcome: Outcome,
    /// What is told to the user where the job goes on after all.
    pub comment: Option<String>,
    /// For the history, written once the verdict is out.
    pub entry: Entry,
}

/// Refuses the job for `finding`: reads the node, drains it unless somebody else has a hand on it, and says what to do
/// if slurmctld does not answer.
pub(super) fn refuse(site: &Site, finding: &Finding, look: &Look, start_boottime_ns: u64) -> Acted {
    // Two calls, and a little for starting them.
    ask_for_time(start_boottime_ns, 2 * site.config.slurm.scontrol_deadline_ms + 500);
    let now_ms = unix_ms();
    let id = finding_id(&site.env.node, finding, now_ms);
    let text = reason(finding, site.env.job_id, &id);
    let (action, note) = act(site, finding, &text);
    log::error!(
        "{}: {text}{}{}",
        word(&action),
        note.as_deref().map_or_else(String::new, |note| format!("; {note}")),
        if action == DrainAction::CommentInstead { "; the job goes on" } else { "; the job is refused" },
    );
    let outcome = match action {
        DrainAction::CommentInstead => Outcome::Pass,
        _ => Outcome::Refuse(text.clone()),
    };
    let comment = (action == DrainAction::CommentInstead).then(|| text.clone());
    let entry = Entry {
        id,
        unix_ms: now_ms,
        boot_id: site.boot_id.clone(),
        node: site.env.node.clone(),
        job_id: site.env.job_id.map(|job| job.0),
        reason: text,
        action: word(&action).to_owned(),
        note,
        finding: finding.clone(),
        all_findings: look.findings.clone(),
    };
    Acted { outcome, comment, entry }
}

fn act(site: &Site, finding: &Finding, text: &str) -> (DrainAction, Option<String>) {
    let slurm = Scontrol::find(&site.config.slurm, site.env.slurm_conf.as_deref());
    let state = slurm
        .as_ref()
        .map_err(ToString::to_string)
        .and_then(|slurm| slurm.node_state(&site.env.node).map_err(|error| error.to_string()));
    let known: Option<&NodeState> = state.as_ref().ok();
    let action = plan_action(finding, known);
    match (&action, slurm) {
        (DrainAction::Drain, Ok(slurm)) => match slurm.drain(&site.env.node, text) {
            Ok(()) => (action, None),
            Err(error) => (plan_action(finding, None), Some(error.to_string())),
        },
        (DrainAction::LeaveAlone(why), _) => {
            let note = why.clone();
            (action, Some(note))
        }
        _ => (action, state.err()),
    }
}

fn word(action: &DrainAction) -> &'static str {
    match action {
        DrainAction::Drain => "drained",
        DrainAction::LeaveAlone(_) => "left_alone",
        DrainAction::RefuseOnly => "refused_without_slurmctld",
        DrainAction::CommentInstead => "commented",
    }
}

/// Writes the history; a disk that is full costs the history and nothing else.
pub(super) fn write_down(state: &Path, entry: &Entry) {
    if let Err(error) = write_entry(state, entry) {
        log::error!("{error}; this refusal is missing in the node's history: {}", entry.reason);
    }
}
