//! Refusing a job: our reason first, then the exit code.

use super::look::{Look, mark_acted};
use super::{Outcome, Site, ask_for_time};
use crate::clock::unix_ms;
use crate::slurm::Scontrol;
use crate::state::{Entry, finding_id, write_entry};
use gpuward_core::drain::{DrainAction, NodeState, Verdict, decide, plan_action, reason};
use gpuward_core::health::{Finding, Severity};
use std::path::Path;

/// What a look led to.
pub(super) struct Judged {
    pub outcome: Outcome,
    /// What the user is told where the job goes on.
    pub comments: Vec<String>,
    /// For the history, to be written once a refusal is out.
    pub entry: Option<Entry>,
}

/// Judges a look and acts on it: reports the findings, saves what was seen, and refuses where the mode says so.
pub(super) fn judge(site: &Site, look: &mut Look, start_boottime_ns: u64) -> Judged {
    report(site, look);
    look.remember(site);
    let goes_on = |comments| Judged { outcome: Outcome::Pass, comments, entry: None };
    match decide(&look.findings, |code| site.config.mode_of(code)) {
        Verdict::Pass => goes_on(Vec::new()),
        Verdict::Comment(findings) => goes_on(findings.iter().map(comment).collect()),
        Verdict::Refuse(finding) => {
            // slurmctld may take seconds: the next look must not wait for that.
            look.settle();
            refuse(site, &finding, look, start_boottime_ns)
        }
    }
}

fn comment(finding: &Finding) -> String {
    format!("{} {}: {}; do={}", finding.code, finding.subject, finding.what, finding.remedy.word())
}

/// Refuses the job for `finding`: reads the node, drains it unless somebody else has a hand on it, and says what to do
/// if slurmctld does not answer.
fn refuse(site: &Site, finding: &Finding, look: &Look, start_boottime_ns: u64) -> Judged {
    // Three calls, and a little for starting them and for noting down what was done.
    ask_for_time(start_boottime_ns, 3 * site.config.slurm.scontrol_deadline_ms + 1000);
    let now_ms = unix_ms();
    let id = finding_id(&site.env.node, finding, now_ms);
    let text = reason(finding, site.env.job_id, &id);
    let (action, note) = act(site, finding, &text);
    let goes_on = action == DrainAction::CommentInstead;
    log::error!(
        "{}: {text}{}{}",
        word(&action),
        note.as_deref().map_or_else(String::new, |note| format!("; {note}")),
        if goes_on { "; the job goes on" } else { "; the job is refused" },
    );
    let entry = Entry {
        id,
        unix_ms: now_ms,
        boot_id: site.boot_id.clone(),
        node: site.env.node.clone(),
        job_id: site.env.job_id.map(|job| job.0),
        reason: text.clone(),
        action: word(&action).to_owned(),
        note,
        finding: finding.clone(),
        all_findings: look.findings.clone(),
    };
    if goes_on {
        // A pass ends us at once, so this is the moment.
        write_down(Path::new(&site.paths.state), &entry);
        return Judged { outcome: Outcome::Pass, comments: vec![text], entry: None };
    }
    mark_acted(site, look, finding);
    Judged { outcome: Outcome::Refuse(text), comments: Vec::new(), entry: Some(entry) }
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
            // It may have been carried out all the same, after we stopped waiting.
            Err(error) if reason_stands(&slurm, &site.env.node, text) => (action, Some(error.to_string())),
            Err(error) => (plan_action(finding, None), Some(error.to_string())),
        },
        (DrainAction::LeaveAlone(why), _) => {
            let note = why.clone();
            (action, Some(note))
        }
        _ => (action, state.err()),
    }
}

fn reason_stands(slurm: &Scontrol, node: &str, text: &str) -> bool {
    slurm
        .node_state(node)
        .is_ok_and(|state| state.is_out_of_service() && state.reason.as_deref() == Some(text))
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

/// Each finding with its why, once, as loud as it is severe.
fn report(site: &Site, look: &Look) {
    if let Some(why) = &look.map.uncertain {
        log::warn!("partial(gpu_map): {why}; only node-wide rules judge;{}", site.job_text());
    }
    for finding in &look.findings {
        let mode = site.config.mode_of(&finding.code).word();
        let value = finding.value.as_deref().unwrap_or("-");
        let text = format!(
            "{} {}: {}; {}; mode={mode} source={} value={value}{}",
            finding.code,
            finding.subject,
            finding.what,
            finding.why,
            finding.source,
            site.job_text(),
        );
        match finding.severity {
            Severity::Fail => log::error!("{text}"),
            Severity::Warn | Severity::Unknown => log::warn!("{text}"),
            Severity::Info => log::info!("{text}"),
        }
    }
}
