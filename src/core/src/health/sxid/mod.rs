//! SXids: what the driver writes into the kernel log when an NVSwitch is in trouble, as a catalogue.
//!
//! `catalog.tsv` joins NVIDIA's Fabric Manager User Guide and the open driver's NVSwitch part. The severity word in the
//! line decides first; the table refines it, and decides where the driver prints no word.

use super::action::Action;
use std::sync::LazyLock;

/// The largest number that is taken for an SXid; the driver prints five digits.
pub const MAX_SXID: u32 = 99_999;

const TABLE: &str = include_str!("catalog.tsv");

static CATALOGUE: LazyLock<Vec<SxidRow>> =
    LazyLock::new(|| TABLE.lines().skip(1).filter_map(SxidRow::parse).collect());

/// The driver branch that gave the numbers 28000 to 29999 a new meaning (driver source, 525.47 to 595.45).
const RENUMBERED_AT: u32 = 550;

/// What the catalogue says about one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SxidRow {
    /// The number.
    pub sxid: u32,
    /// The meaning in a few words.
    pub meaning: &'static str,
    /// hardware-nvlink, firmware, driver or thermal-power.
    pub class: &'static str,
    /// What to do.
    pub action: Action,
    /// Where the row comes from.
    pub source: &'static str,
    /// Remarks; `-` where there are none.
    pub notes: &'static str,
}

impl SxidRow {
    fn parse(line: &'static str) -> Option<SxidRow> {
        let cells: Vec<&'static str> = line.split('\t').collect();
        let [number, meaning, class, _user_app, action, _, _, _, _, _, source, notes] = cells[..] else {
            return None;
        };
        let (sxid, action) = (number.parse().ok()?, Action::parse(action)?);
        Some(SxidRow { sxid, meaning, class, action, source, notes })
    }

    /// Guide and driver disagree about the severity: the table goes before the word.
    fn is_conflict(&self) -> bool {
        self.notes.starts_with("CONFLICT")
    }
}

/// The severity word of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Word {
    /// `Fatal`
    Fatal,
    /// `Non-fatal`
    NonFatal,
    /// `Correctable`
    Correctable,
}

impl Word {
    /// The word as printed.
    pub fn text(self) -> &'static str {
        match self {
            Word::Fatal => "Fatal",
            Word::NonFatal => "Non-fatal",
            Word::Correctable => "Correctable",
        }
    }

    /// The word that `text` is.
    pub fn parse(text: &str) -> Option<Word> {
        [Word::Fatal, Word::NonFatal, Word::Correctable].into_iter().find(|word| word.text() == text)
    }
}

/// The row of a number as a driver of this branch means it; `None` where the catalogue has none, or where the number
/// changed its meaning and the driver is not known.
pub fn lookup(sxid: u32, driver_branch: Option<u32>) -> Option<&'static SxidRow> {
    let meant = match (sxid, driver_branch) {
        (28_000..30_000, None) => return None,
        (28_000..30_000, Some(branch)) if branch < RENUMBERED_AT => sxid + 1000,
        _ => sxid,
    };
    let at = CATALOGUE.binary_search_by_key(&meant, |row| row.sxid).ok()?;
    CATALOGUE.get(at)
}

/// What to do about a number with or without a severity word.
pub fn action(row: Option<&SxidRow>, word: Option<Word>) -> Action {
    let Some(row) = row else {
        return match word {
            Some(Word::Fatal) => Action::DrainReset,
            Some(Word::Correctable) => Action::Info,
            Some(Word::NonFatal) | None => Action::Warn,
        };
    };
    match word {
        _ if row.is_conflict() => row.action,
        None => row.action,
        Some(Word::Correctable) => Action::Info,
        Some(Word::Fatal) if is_drain(row.action) => row.action,
        Some(Word::Fatal) => Action::DrainReset,
        Some(Word::NonFatal) if is_drain(row.action) => Action::Warn,
        Some(Word::NonFatal) => row.action,
    }
}

fn is_drain(action: Action) -> bool {
    matches!(action, Action::DrainReset | Action::DrainReboot | Action::DrainRma)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: Option<u32> = Some(570);

    fn judged(sxid: u32, word: Option<Word>) -> Action {
        action(lookup(sxid, NEW), word)
    }

    #[test]
    fn the_catalogue_is_whole() {
        assert!(TABLE.lines().all(|line| line.split('\t').count() == 12));
        assert_eq!(CATALOGUE.len(), 420);
        assert!(CATALOGUE.is_sorted_by_key(|row| row.sxid));
        assert_eq!(CATALOGUE.iter().filter(|row| row.is_conflict()).count(), 7);
    }

    #[test]
    fn the_word_decides_before_the_table() {
        assert_eq!(judged(20_034, Some(Word::Fatal)), lookup(20_034, NEW).unwrap().action);
        assert_eq!(judged(10_001, Some(Word::Fatal)), Action::DrainReset, "the table says warn");
        assert_eq!(judged(20_034, Some(Word::NonFatal)), Action::Warn, "the table says drain");
        assert_eq!(judged(12_021, Some(Word::Correctable)), Action::Info);
    }

    #[test]
    fn where_guide_and_driver_disagree_the_table_decides() {
        assert_eq!(judged(19_055, Some(Word::Fatal)), Action::Warn);
        assert_eq!(judged(19_061, Some(Word::NonFatal)), Action::DrainReset);
    }

    #[test]
    fn numbers_without_a_word_go_by_the_table() {
        assert_eq!(judged(10_006, None), Action::DrainReboot);
        assert_eq!(judged(26_007, None), Action::DrainReset);
        assert_eq!(judged(27_001, None), Action::Warn);
        assert_eq!(judged(99_000, None), Action::Warn, "a number nobody knows");
        assert_eq!(judged(99_000, Some(Word::Fatal)), Action::DrainReset);
    }

    #[test]
    fn numbers_that_changed_their_meaning_are_looked_up_by_the_drivers_version() {
        assert!(lookup(28_001, NEW).unwrap().meaning.contains("osfp"));
        assert_eq!(lookup(28_001, Some(535)), lookup(29_001, NEW));
        assert_eq!(lookup(28_001, None), None);
        assert_eq!(lookup(27_001, None), lookup(27_001, NEW));
    }
}
