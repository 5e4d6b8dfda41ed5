//! The finding codes: stable names with severity, remedy, limit and meaning, as data in `codes.tsv`. Codes are never
//! renamed. The order of the rows is the order in which equally severe findings are told.
//!
//! Limits and guards follow NVIDIA's documents and the peers that the table names; what says neither is gpuward's own.
//! **Costs are estimates**: none was measured on a GPU.

use super::finding::{Remedy, Severity};
use super::{sxid, xid};
use crate::config::Mode;
use std::sync::LazyLock;

/// One row of the code table.
#[derive(Debug, Clone, Copy)]
pub struct Code {
    /// The name, at most 12 characters, so that it fits into the 20 that `sinfo -R` shows.
    pub name: &'static str,
    /// Default severity.
    pub severity: Severity,
    /// Default remedy.
    pub remedy: Remedy,
    /// True where the code names a fault of this very node beyond doubt, so that it may refuse a job even while
    /// slurmctld does not answer. False for what a bad roll-out could show on a whole fleet.
    pub certain: bool,
    /// The most that the overall mode leads to for this code. A mode of its own in gpuward.toml goes beyond it.
    pub cap: Mode,
    /// The cheapest look that judges it.
    pub runs: Runs,
    /// What reading it costs, for people.
    pub cost: &'static str,
    /// The limit and who says so, for people.
    pub limit: &'static str,
    /// What keeps it from crying wolf, for people.
    pub guard: &'static str,
    /// What it means and what follows, for the admin.
    pub why: &'static str,
    /// Which of several equally severe findings is told first: lower comes first.
    rank: usize,
}

/// The cheapest look that judges a code; the dearer ones judge it as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Runs {
    /// Before and after a job, and in every check.
    Prolog,
    /// After a job, and in every check.
    Epilog,
    /// In `gpuward check`.
    Check,
    /// In `gpuward check --deep`.
    Deep,
}

impl Runs {
    /// The word of the table.
    pub fn word(self) -> &'static str {
        match self {
            Runs::Prolog => "prolog",
            Runs::Epilog => "epilog",
            Runs::Check => "check",
            Runs::Deep => "deep",
        }
    }
}

static CODES: LazyLock<Vec<Code>> = LazyLock::new(|| {
    include_str!("codes.tsv")
        .lines()
        .skip(1)
        .enumerate()
        .filter_map(|(rank, line)| parse(rank, line))
        .collect()
});

/// A row; `None` where it is not as it should be, which a test makes sure of.
fn parse(rank: usize, line: &'static str) -> Option<Code> {
    let cells: Vec<&'static str> = line.split('\t').collect();
    let [name, severity, remedy, certain, cap, runs, cost, limit, guard, why] = cells[..] else {
        return None;
    };
    Some(Code {
        name,
        severity: Severity::of_word(severity)?,
        remedy: Remedy::of_word(remedy)?,
        certain: match certain {
            "yes" => true,
            "no" => false,
            _ => return None,
        },
        cap: [Mode::Observe, Mode::Comment, Mode::Drain].into_iter().find(|mode| mode.word() == cap)?,
        runs: [Runs::Prolog, Runs::Epilog, Runs::Check, Runs::Deep]
            .into_iter()
            .find(|place| place.word() == runs)?,
        cost,
        limit,
        guard,
        why,
        // 0 is for the XIDs, which name the cause of what follows them.
        rank: rank + 1,
    })
}

/// What the table says about `code`; an XID of the catalogue or one that it lacks is an entry as well.
pub fn entry(code: &str) -> Code {
    if let Some(known) = CODES.iter().find(|row| row.name == code) {
        return *known;
    }
    if sxid_number(code).is_some() {
        return Code {
            name: "SXID",
            rank: 1,
            limit: "by number and word, NVIDIA's fabric manager guide",
            why: "an SXid in the kernel log",
            ..of_log(Severity::Warn, Remedy::Admin)
        };
    }
    let (severity, remedy) = xid_number(code).map_or((Severity::Warn, Remedy::Admin), xid::judgement);
    // XID 79 and the lost GPU are the same fault; the XID is told first because it names the cause.
    Code { certain: code == "XID79", ..of_log(severity, remedy) }
}

/// What is true of every number in the kernel log.
fn of_log(severity: Severity, remedy: Remedy) -> Code {
    Code {
        name: "XID",
        severity,
        remedy,
        certain: false,
        cap: Mode::Drain,
        runs: Runs::Prolog,
        cost: "2 to 30 ms, no driver call",
        limit: "by number, NVIDIA's catalogue of October 2025",
        guard: "cleared by reboot, driver load, Xid 154 to None",
        why: "an XID in the kernel log",
        rank: 0,
    }
}

/// All rows of the table, in its order.
pub fn all() -> impl Iterator<Item = &'static Code> {
    CODES.iter()
}

/// Position among equally severe findings.
pub(super) fn rank(code: &str) -> usize {
    entry(code).rank
}

/// True for a code that gpuward.toml may name.
pub fn is_known(code: &str) -> bool {
    CODES.iter().any(|row| row.name == code) || xid_number(code).is_some() || sxid_number(code).is_some()
}

/// All names that may be suggested for a misspelt code.
pub fn all_names() -> impl Iterator<Item = &'static str> {
    CODES.iter().map(|row| row.name).chain(xid::catalogue().map(|row| row.code))
}

fn xid_number(code: &str) -> Option<u32> {
    number_behind("XID", code).filter(|&number| number <= xid::MAX_XID)
}

fn sxid_number(code: &str) -> Option<u32> {
    number_behind("SXID", code).filter(|&number| number <= sxid::MAX_SXID)
}

fn number_behind(prefix: &str, code: &str) -> Option<u32> {
    let digits = code.strip_prefix(prefix)?;
    let plain = !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_table_is_a_code() {
        let rows: Vec<&str> = include_str!("codes.tsv").lines().skip(1).collect();
        for (rank, row) in rows.iter().enumerate() {
            assert!(parse(rank, row).is_some(), "{row}");
        }
        assert_eq!(all().count(), rows.len());
    }

    #[test]
    fn names_are_unique_short_and_upper_case() {
        let mut names: Vec<&str> = all_names().collect();
        assert!(names.iter().all(|name| name.len() <= 12), "{names:?}");
        let clean =
            |name: &&str| name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
        assert!(names.iter().all(clean));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn xids_take_their_severity_from_the_catalogue() {
        assert_eq!(entry("XID79").severity, Severity::Fail);
        assert_eq!(entry("XID79").remedy, Remedy::Reboot);
        assert_eq!(entry("XID48").remedy, Remedy::Reset);
        assert!(entry("XID13").severity < Severity::Fail);
        assert!(entry("XID63").severity < Severity::Fail);
        assert!(is_known("SXID20034") && !is_known("SXID") && !is_known("SXID020034"));
        assert!(is_known("XID999") && !is_known("XID7O") && !is_known("XID") && !is_known("XID079"));
    }

    #[test]
    fn only_faults_beyond_doubt_are_certain() {
        assert!(entry("XID79").certain && entry("GPU_LOST").certain && entry("REMAP_FAIL").certain);
        for code in ["DRV_UNLOADED", "DRV_MISMATCH", "GPU_MISS_PCI", "PROBE_HANG", "XID48"] {
            assert!(!entry(code).certain, "{code}");
        }
    }
}
