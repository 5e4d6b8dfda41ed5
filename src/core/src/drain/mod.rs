//! From findings to a verdict: go on, tell, or refuse and drain; and the reason that an admin reads.

mod node_state;
mod reason;

pub use node_state::{NodeState, parse_show_node};
pub use reason::{MAX_REASON_BYTES, PREFIX, reason};

use crate::config::Mode;
use crate::health::{Finding, Severity, codes};

/// What becomes of the job on this node.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Fit, as far as it could be told; what could not be told stands in the findings.
    Pass,
    /// Not beyond doubt: the job goes on, admin and user are told of these.
    Comment(Vec<Finding>),
    /// Not fit: refuse the job and drain the node for this finding.
    Refuse(Box<Finding>),
}

/// The verdict for findings that are sorted most telling first. Only severity `fail` acts, and only as far as its mode
/// allows.
pub fn decide(findings: &[Finding], mode_of: impl Fn(&str) -> Mode) -> Verdict {
    let failed = || findings.iter().filter(|finding| finding.severity == Severity::Fail);
    if let Some(worst) = failed().find(|finding| mode_of(&finding.code) == Mode::Drain) {
        return Verdict::Refuse(Box::new(worst.clone()));
    }
    let told: Vec<Finding> =
        failed().filter(|finding| mode_of(&finding.code) == Mode::Comment).cloned().collect();
    if told.is_empty() { Verdict::Pass } else { Verdict::Comment(told) }
}

/// What to do to the node once a job is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DrainAction {
    /// Set the state to drain with our reason, then refuse.
    Drain,
    /// The node is drained, failing or down already, or somebody left a reason: refuse, touch nothing.
    LeaveAlone(String),
    /// slurmctld does not answer: refuse all the same, the fault is certain and this node's own.
    RefuseOnly,
    /// slurmctld does not answer and a whole fleet could show this fault at once: tell, and let the job go on.
    CommentInstead,
}

/// The action for `finding`, given what slurmctld says about the node; `None` where it did not answer.
pub fn plan_action(finding: &Finding, state: Option<&NodeState>) -> DrainAction {
    match state {
        Some(state) if state.is_out_of_service() => {
            DrainAction::LeaveAlone(format!("the node is {} already", state.state))
        }
        Some(state) if state.reason.as_deref().is_some_and(|reason| !reason.starts_with(PREFIX)) => {
            DrainAction::LeaveAlone("the node has a reason that is not ours".into())
        }
        Some(_) => DrainAction::Drain,
        None if codes::entry(&finding.code).certain => DrainAction::RefuseOnly,
        None => DrainAction::CommentInstead,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::{Remedy, Subject};

    fn finding(code: &str, severity: Severity) -> Finding {
        Finding {
            code: code.into(),
            severity,
            subject: Subject::Node,
            what: "x".into(),
            value: None,
            limit: None,
            source: "x".into(),
            why: "x".into(),
            remedy: Remedy::Reboot,
        }
    }

    #[test]
    fn only_a_fail_in_mode_drain_refuses() {
        let fail = finding("XID79", Severity::Fail);
        assert_eq!(decide(std::slice::from_ref(&fail), |_| Mode::Observe), Verdict::Pass);
        assert_eq!(
            decide(std::slice::from_ref(&fail), |_| Mode::Comment),
            Verdict::Comment(vec![fail.clone()])
        );
        assert_eq!(decide(std::slice::from_ref(&fail), |_| Mode::Drain), Verdict::Refuse(Box::new(fail)));
        for severity in [Severity::Info, Severity::Warn, Severity::Unknown] {
            assert_eq!(decide(&[finding("XID79", severity)], |_| Mode::Drain), Verdict::Pass);
        }
    }

    #[test]
    fn a_finding_in_mode_drain_is_not_hidden_by_one_that_only_comments() {
        let both = [finding("ECC_UNCORR", Severity::Fail), finding("XID79", Severity::Fail)];
        let mode_of = |code: &str| if code == "XID79" { Mode::Drain } else { Mode::Comment };
        assert_eq!(decide(&both, mode_of), Verdict::Refuse(Box::new(both[1].clone())));
    }

    #[test]
    fn an_admins_drain_and_reason_are_left_alone() {
        let lost = finding("XID79", Severity::Fail);
        let state = |state: &str, reason: Option<&str>| NodeState {
            state: state.into(),
            reason: reason.map(Into::into),
        };
        for (name, reason) in [
            ("IDLE+DRAIN", Some("maintenance")),
            ("DOWN", None),
            ("IDLE+FAIL", None),
            ("IDLE", Some("look at me")),
        ] {
            let action = plan_action(&lost, Some(&state(name, reason)));
            assert!(matches!(action, DrainAction::LeaveAlone(_)), "{name} {reason:?}");
        }
        assert_eq!(plan_action(&lost, Some(&state("ALLOCATED", None))), DrainAction::Drain);
        assert_eq!(
            plan_action(&lost, Some(&state("MIXED+CLOUD", Some("gpuward:XID48 old")))),
            DrainAction::Drain
        );
    }

    #[test]
    fn without_slurmctld_only_a_certain_fault_refuses() {
        assert_eq!(plan_action(&finding("XID79", Severity::Fail), None), DrainAction::RefuseOnly);
        assert_eq!(plan_action(&finding("DRV_MISMATCH", Severity::Fail), None), DrainAction::CommentInstead);
    }
}
