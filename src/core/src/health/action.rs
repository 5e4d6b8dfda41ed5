//! What a catalogue row asks for.

use super::finding::{Remedy, Severity};
use serde::{Deserialize, Serialize};

/// The action of a row of the XID or SXid catalogue; also what a site may write in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "&'static str", try_from = "String")]
pub enum Action {
    /// Nothing for the node.
    Ignore,
    /// Worth a line.
    Info,
    /// Shown to the admin.
    Warn,
    /// The job is hurt, the node is fit.
    FailJobOnly,
    /// Reset the GPU at the next idle moment.
    ResetWhenIdle,
    /// Drain, then reset the GPU.
    DrainReset,
    /// Drain, then reboot or power cycle.
    DrainReboot,
    /// Drain, then the vendor.
    DrainRma,
}

impl From<Action> for &'static str {
    fn from(action: Action) -> &'static str {
        action.word()
    }
}

impl TryFrom<String> for Action {
    type Error = String;

    fn try_from(word: String) -> Result<Action, String> {
        Action::parse(&word).ok_or_else(|| unknown(&word))
    }
}

/// What is said about a word that is no action.
pub(super) fn unknown(word: &str) -> String {
    let allowed: Vec<&str> = Action::ALL.iter().map(|action| action.word()).collect();
    format!("unknown action '{}', allowed are {}", crate::text::escape(word, 40), allowed.join(", "))
}

impl Action {
    /// All of them, mildest first.
    pub const ALL: [Action; 8] = [
        Action::Ignore,
        Action::Info,
        Action::Warn,
        Action::FailJobOnly,
        Action::ResetWhenIdle,
        Action::DrainReset,
        Action::DrainReboot,
        Action::DrainRma,
    ];

    /// The word in catalogues and in gpuward.toml.
    pub fn word(self) -> &'static str {
        match self {
            Action::Ignore => "ignore",
            Action::Info => "info",
            Action::Warn => "warn",
            Action::FailJobOnly => "fail-job-only",
            Action::ResetWhenIdle => "reset-when-idle",
            Action::DrainReset => "drain-reset",
            Action::DrainReboot => "drain-reboot",
            Action::DrainRma => "drain-rma",
        }
    }

    /// The action that `word` names.
    pub fn parse(word: &str) -> Option<Action> {
        Action::ALL.into_iter().find(|action| action.word() == word)
    }

    /// What an admin does about it, in words.
    pub fn in_words(self) -> &'static str {
        match self {
            Action::Ignore | Action::Info => "nothing to do for the node",
            Action::Warn => "look at it; the node stays in service",
            Action::FailJobOnly => "the job is hurt, the node is fit; look at the program",
            Action::ResetWhenIdle => "reset the GPU when it is idle",
            Action::DrainReset => "drain the node and reset the GPU",
            Action::DrainReboot => "drain the node and reboot it; power cycle it if the GPU stays away",
            Action::DrainRma => "drain the node and call the vendor: cables, seat, replacement",
        }
    }

    /// Severity and remedy of a finding with this action.
    pub fn judgement(self) -> (Severity, Remedy) {
        match self {
            Action::Ignore | Action::Info | Action::FailJobOnly => (Severity::Info, Remedy::User),
            Action::Warn => (Severity::Warn, Remedy::Admin),
            Action::ResetWhenIdle => (Severity::Warn, Remedy::Reset),
            Action::DrainReset => (Severity::Fail, Remedy::Reset),
            Action::DrainReboot => (Severity::Fail, Remedy::Reboot),
            Action::DrainRma => (Severity::Fail, Remedy::Rma),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_names_its_own_action() {
        for action in Action::ALL {
            assert_eq!(Action::parse(action.word()), Some(action));
            assert_eq!(serde_json::to_string(&action).unwrap(), format!("\"{}\"", action.word()));
        }
        assert_eq!(Action::parse("drain"), None);
    }
}
