//! XIDs: what the driver writes into the kernel log when a GPU is in trouble, as a catalogue.
//!
//! `catalog.tsv` says what each number means. It follows NVIDIA's Xid catalogue of October 2025; class and action are
//! gpuward's reading of it. `nvlink4` reads the registers of Xid 74, `nvlink5` the numbers 144 to 150, which mean
//! something else with each unit.

pub mod nvlink4;
pub mod nvlink5;

use super::action::Action;
use super::finding::{Remedy, Severity};
use std::sync::LazyLock;

/// The largest number that is taken for an XID. Ours: NVIDIA's catalogue ends at 176 in 2026.
pub const MAX_XID: u32 = 9999;

const TABLE: &str = include_str!("catalog.tsv");

static CATALOGUE: LazyLock<Vec<CatalogueRow>> =
    LazyLock::new(|| TABLE.lines().skip(1).filter_map(CatalogueRow::parse).collect());

/// What the catalogue says about one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CatalogueRow {
    /// The number.
    pub xid: u32,
    /// The finding code, `XID79`.
    pub code: &'static str,
    /// The meaning in a few words.
    pub meaning: &'static str,
    /// application, driver, firmware, hardware-bus, hardware-memory, hardware-nvlink, thermal-power or unknown.
    pub class: &'static str,
    /// Whether a user's program can cause it: yes, maybe, no.
    pub user_app: &'static str,
    /// What to do.
    pub action: Action,
    /// GPU generations that raise it.
    pub generations: &'static str,
    /// First driver whose header gives the number this meaning.
    pub named_since: &'static str,
    /// NVIDIA's bucket for what to do at once.
    pub nvidia_immediate: &'static str,
    /// NVIDIA's bucket for what to look into.
    pub nvidia_investigate: &'static str,
    /// True where newer drivers also change the GPU's recovery action for it (and print an Xid 154).
    pub sets_recovery_action: bool,
    /// Where the row comes from: catalogue or driver-header.
    pub source: &'static str,
    /// Remarks; `-` where there are none.
    pub notes: &'static str,
}

impl CatalogueRow {
    fn parse(line: &'static str) -> Option<CatalogueRow> {
        let cells: Vec<&'static str> = line.split('\t').collect();
        let [
            number,
            meaning,
            class,
            user_app,
            action,
            generations,
            named_since,
            now,
            later,
            since,
            source,
            notes,
        ] = cells[..]
        else {
            return None;
        };
        Some(CatalogueRow {
            xid: number.parse().ok()?,
            code: Box::leak(format!("XID{number}").into_boxed_str()),
            meaning,
            class,
            user_app,
            action: Action::parse(action)?,
            generations,
            named_since,
            nvidia_immediate: now,
            nvidia_investigate: later,
            sets_recovery_action: since != "-",
            source,
            notes,
        })
    }

    /// True for a fault that the user's own program brings about: it never drains by itself.
    pub fn is_application(&self) -> bool {
        self.class == "application"
    }
}

/// All rows, ascending.
pub fn catalogue() -> impl Iterator<Item = &'static CatalogueRow> {
    CATALOGUE.iter()
}

/// The row of one number.
pub fn lookup(xid: u32) -> Option<&'static CatalogueRow> {
    let at = CATALOGUE.binary_search_by_key(&xid, |row| row.xid).ok()?;
    CATALOGUE.get(at)
}

/// Severity and remedy of one number; a number that the catalogue lacks is a warning.
pub fn judgement(xid: u32) -> (Severity, Remedy) {
    lookup(xid).map_or(Action::Warn, |row| row.action).judgement()
}

/// True for the numbers whose repetition on one GPU, with different users, points at the GPU: 13, 31, 32 and the copy
/// engines (health_checks.md, check 14). Not 43 and 45: a cancelled job prints them as well.
pub fn counts_for_repeats(xid: u32) -> bool {
    matches!(xid, 13 | 31 | 32) || lookup(xid).is_some_and(|row| row.meaning.starts_with("copy engine"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_is_whole() {
        assert!(TABLE.lines().all(|line| line.split('\t').count() == 12));
        let numbers: Vec<u32> = catalogue().map(|row| row.xid).collect();
        assert_eq!(numbers, (1..=176).collect::<Vec<u32>>());
        for row in catalogue() {
            assert_eq!(lookup(row.xid), Some(row));
        }
    }

    #[test]
    fn a_users_own_fault_never_drains() {
        for row in catalogue().filter(|row| row.is_application()) {
            assert!(judgement(row.xid).0 < Severity::Fail, "XID {}", row.xid);
        }
    }

    #[test]
    fn user_code_and_copy_engines_count_for_repeats_and_a_cancelled_job_does_not() {
        for xid in [13, 31, 32, 39, 70, 85, 135] {
            assert!(counts_for_repeats(xid), "{xid}");
        }
        for xid in [43, 45, 48, 79, 94, 999] {
            assert!(!counts_for_repeats(xid), "{xid}");
        }
    }
}
