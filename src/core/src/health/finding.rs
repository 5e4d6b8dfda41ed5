//! One thing found about a node or a GPU.

use crate::model::snapshot::ProbedGpu;
use crate::model::{GpuUuid, PciAddress};
use serde::{Deserialize, Serialize};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth a line in the log.
    Info,
    /// Could not be told. Never drains.
    Unknown,
    /// Shown to the admin, touches neither job nor node.
    Warn,
    /// The hardware or the driver is not fit.
    Fail,
}

impl Severity {
    /// The word in tables, files and output.
    pub fn word(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Unknown => "unknown",
            Severity::Warn => "warn",
            Severity::Fail => "fail",
        }
    }

    pub(super) fn of_word(word: &str) -> Option<Severity> {
        [Severity::Info, Severity::Unknown, Severity::Warn, Severity::Fail]
            .into_iter()
            .find(|one| one.word() == word)
    }
}

/// What the admin has to do: the word behind `do=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Remedy {
    /// The user's own affair.
    User,
    /// A GPU reset.
    Reset,
    /// A reboot or a power cycle.
    Reboot,
    /// The vendor: replace, reseat, cable.
    Rma,
    /// Something that an admin must look at.
    Admin,
}

impl Remedy {
    /// The word used in drain reasons.
    pub fn word(self) -> &'static str {
        match self {
            Remedy::User => "user",
            Remedy::Reset => "reset",
            Remedy::Reboot => "reboot",
            Remedy::Rma => "rma",
            Remedy::Admin => "admin",
        }
    }

    pub(super) fn of_word(word: &str) -> Option<Remedy> {
        let all = [Remedy::User, Remedy::Reset, Remedy::Reboot, Remedy::Rma, Remedy::Admin];
        all.into_iter().find(|one| one.word() == word)
    }
}

/// What a finding is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// The node as a whole.
    Node,
    /// One GPU.
    Gpu {
        /// What people call it: Slurm's index, else the number in /dev/nvidiaN.
        slot: Option<u32>,
        /// PCI address.
        pci: Option<PciAddress>,
        /// UUID.
        uuid: Option<GpuUuid>,
    },
}

impl Subject {
    /// The subject for a probed GPU.
    pub fn of(gpu: &ProbedGpu) -> Subject {
        let minor = gpu.target.minor.or_else(|| gpu.reading.minor.value().copied());
        Subject::Gpu {
            slot: gpu.target.gres_index.map(|index| index.0).or(minor),
            pci: gpu.pci(),
            uuid: gpu.uuid().cloned(),
        }
    }
}

impl std::fmt::Display for Subject {
    /// `GPU3 0000:3b:00.0 GPU-8932f937`, or `node`.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Subject::Gpu { slot, pci, uuid } = self else {
            return out.write_str("node");
        };
        match slot {
            Some(slot) => write!(out, "GPU{slot}")?,
            None => out.write_str("GPU")?,
        }
        if let Some(pci) = pci {
            write!(out, " {pci}")?;
        }
        if let Some(uuid) = uuid {
            write!(out, " {}", uuid.short())?;
        }
        Ok(())
    }
}

/// One finding: what, about what, how bad, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Stable code of at most 12 characters.
    pub code: String,
    /// How bad.
    pub severity: Severity,
    /// About what.
    pub subject: Subject,
    /// What was seen, in a few words, already escaped.
    pub what: String,
    /// The value read, where there is one.
    pub value: Option<String>,
    /// The limit it was held against.
    pub limit: Option<String>,
    /// Where it was read.
    pub source: String,
    /// What it means and what follows.
    pub why: String,
    /// What to do.
    pub remedy: Remedy,
}

impl Finding {
    /// A finding of `code` with the severity, remedy and meaning of the code table.
    pub(super) fn of(code: &str, subject: Subject, what: impl Into<String>, source: &str) -> Finding {
        let entry = super::codes::entry(code);
        Finding {
            code: code.to_owned(),
            severity: entry.severity,
            subject,
            what: what.into(),
            value: None,
            limit: None,
            source: source.to_owned(),
            why: entry.why.to_owned(),
            remedy: entry.remedy,
        }
    }

    pub(super) fn measured(mut self, value: impl ToString, limit: impl ToString) -> Finding {
        self.value = Some(value.to_string());
        self.limit = Some(limit.to_string());
        self
    }

    pub(super) fn with_severity(mut self, severity: Severity) -> Finding {
        self.severity = severity;
        self
    }
}
