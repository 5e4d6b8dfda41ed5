//! Xid 144 to 150 (NVLink 5): unit, interrupt info and error status decide.
//!
//! The severity word of the line comes first: Fatal asks for a reset, Nonfatal warns. `decode_144_150.tsv` (NVIDIA's Xid
//! catalogue) then refines it. The interrupt info has two layouts, for drivers before R575 and from R575 on.

use crate::health::action::Action;
use serde::{Deserialize, Serialize};
use std::sync::LazyLock;

const TABLE: &str = include_str!("decode_144_150.tsv");

static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| TABLE.lines().skip(1).filter_map(Row::parse).collect());

/// The first driver branch with the second layout.
const SECOND_LAYOUT: u32 = 575;

/// What such a line says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// The unit, as printed.
    pub unit: String,
    /// True for Fatal, false for Nonfatal.
    pub fatal: bool,
    /// The link; -1 is the whole GPU.
    pub link: i32,
    /// Interrupt info.
    pub intrinfo: u32,
    /// Error status.
    pub status: u32,
}

/// What the table makes of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    /// What to do.
    pub action: Action,
    /// NVIDIA's bucket for what to look into, where a row fits.
    pub investigate: Option<&'static str>,
    /// Why, for people.
    pub why: String,
}

#[derive(Debug)]
struct Row {
    xid: u32,
    layouts: [Layout; 2],
    status: &'static str,
    action: &'static str,
    action2: &'static str,
    mark: &'static str,
    investigate: &'static str,
}

/// Unit and masks of one layout.
#[derive(Debug)]
struct Layout {
    unit: &'static str,
    mask: Mask,
    mask2: Option<Mask>,
}

/// Bits that must have a value; the others may have any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mask {
    care: u32,
    value: u32,
}

impl Mask {
    /// 32 characters, bit 31 first, `-` for any.
    fn parse(text: &str) -> Option<Mask> {
        let mut mask = Mask { care: 0, value: 0 };
        for letter in text.bytes() {
            let (care, value) = match letter {
                b'-' => (0, 0),
                b'0' => (1, 0),
                b'1' => (1, 1),
                _ => return None,
            };
            mask = Mask { care: mask.care << 1 | care, value: mask.value << 1 | value };
        }
        (text.len() == 32).then_some(mask)
    }

    fn fits(self, word: u32) -> bool {
        word & self.care == self.value
    }
}

impl Row {
    fn parse(line: &'static str) -> Option<Row> {
        let cells: Vec<&'static str> = line.split('\t').collect();
        let [
            xid,
            unit1,
            unit2,
            mask1,
            mask2,
            status,
            action,
            action2,
            other1,
            other2,
            _,
            mark,
            _,
            investigate,
        ] = cells[..]
        else {
            return None;
        };
        let layout = |unit, mask, other| -> Option<Layout> {
            Some(Layout { unit, mask: Mask::parse(mask)?, mask2: Mask::parse(other) })
        };
        let layouts = [layout(unit1, mask1, other1)?, layout(unit2, mask2, other2)?];
        Some(Row { xid: xid.parse().ok()?, layouts, status, action, action2, mark, investigate })
    }

    fn status_fits(&self, status: u32) -> bool {
        let hex = |text: &str| u32::from_str_radix(text.trim_start_matches("0x"), 16).ok();
        self.status == "-" || self.status.split('/').any(|text| hex(text) == Some(status))
    }

    /// How well the row fits a line in a layout: 0 not, 1 by its bits, 2 by the unit's name as well.
    ///
    /// The second mask has bits that the first leaves open, so a row fits where either does.
    fn fit(&self, xid: u32, line: &Line, layout: usize) -> u32 {
        let Some(layout) = self.layouts.get(layout) else { return 0 };
        let by_bits =
            layout.mask.fits(line.intrinfo) || layout.mask2.is_some_and(|mask| mask.fits(line.intrinfo));
        let fits = self.xid == xid && by_bits && self.status_fits(line.status);
        u32::from(fits) + u32::from(fits && layout.unit == line.unit)
    }

    fn action_of(&self, line: &Line, layout: usize) -> &'static str {
        let second = self.layouts.get(layout).and_then(|layout| layout.mask2);
        if second.is_some_and(|mask| mask.fits(line.intrinfo)) { self.action2 } else { self.action }
    }
}

/// True for the numbers that are decoded here.
pub fn is_ours(xid: u32) -> bool {
    (144..=150).contains(&xid)
}

/// What to do about a line; `driver_branch` is the major number of the driver's version, where it is known.
pub fn decode(xid: u32, line: &Line, driver_branch: Option<u32>) -> Decoded {
    let by_word = if line.fatal { Action::DrainReset } else { Action::Warn };
    let word = if line.fatal { "Fatal" } else { "Nonfatal" };
    let Some((row, layout)) = best_row(xid, line, driver_branch) else {
        let why = format!("{} {word}; the decode table has no row for it", line.unit);
        return Decoded { action: by_word, investigate: None, why };
    };
    let wanted = row.action_of(line, layout);
    let action = match (wanted, line.fatal) {
        ("IGNORE", false) => Action::Info,
        // The word asks for a reset and the table for nothing: told, not acted on.
        ("IGNORE", true) => Action::Warn,
        ("RESET_GPU", true) => Action::DrainReset,
        _ => by_word,
    };
    let advice = match (wanted, line.fatal) {
        ("XID_154_EVAL", false) => {
            "; follow an Xid 154 of this GPU if there is one, else restart the program"
        }
        ("RESET_GPU", false) if row.mark == "usually" => "; usually fatal, this time not",
        _ => "",
    };
    let why = format!(
        "{} {word}, the decode table says {wanted}, investigate {}{advice}",
        line.unit, row.investigate
    );
    Decoded { action, investigate: Some(row.investigate), why }
}

/// The row that fits best, in the driver's own layout first; where the driver is not known the older layout comes first,
/// and the unit's name settles it.
fn best_row(xid: u32, line: &Line, driver_branch: Option<u32>) -> Option<(&'static Row, usize)> {
    let own = usize::from(driver_branch.is_some_and(|branch| branch >= SECOND_LAYOUT));
    let mut best: Option<(u32, &'static Row, usize)> = None;
    for layout in [own, 1 - own] {
        for row in ROWS.iter() {
            let fit = row.fit(xid, line, layout);
            if fit > best.map_or(0, |(known, ..)| known) {
                best = Some((fit, row, layout));
            }
        }
        if best.is_some() && driver_branch.is_some() {
            break;
        }
    }
    best.map(|(_, row, layout)| (row, layout))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(unit: &str, fatal: bool, intrinfo: u32, status: u32) -> Line {
        Line { unit: unit.into(), fatal, link: 9, intrinfo, status }
    }

    #[test]
    fn the_table_is_whole() {
        assert!(TABLE.lines().all(|line| line.split('\t').count() == 14));
        assert_eq!(ROWS.len(), 95);
        for row in ROWS.iter() {
            assert!(is_ours(row.xid));
            assert!(["IGNORE", "RESET_GPU", "XID_154_EVAL"].contains(&row.action), "{row:?}");
            assert_eq!(
                row.action2 != "-",
                row.layouts.iter().all(|layout| layout.mask2.is_some()),
                "{row:?}"
            );
        }
    }

    #[test]
    fn the_worked_examples_come_out_as_published() {
        let peer = decode(149, &line("NETIR_LINK_EVT", true, 0x0255_25c6, 0), Some(570));
        assert_eq!((peer.action, peer.investigate), (Action::DrainReset, Some("INVESTIGATE_PEER_DEVICE")));
        let whole = decode(149, &line("NETIR", true, 0x000f_e406, 0), Some(570));
        assert_eq!((whole.action, whole.investigate), (Action::DrainReset, Some("SYMPATHETIC_REPORT_SOLO")));
        let ignored = decode(145, &line("RLW_RXPIPE", false, 0x0409_a0c2, 8), Some(570));
        assert_eq!((ignored.action, ignored.investigate), (Action::Info, Some("CONTACT_SUPPORT")));
        assert_eq!(
            decode(145, &line("RLW_RXPIPE", false, 0x0409_a0c2, 8), None),
            ignored,
            "driver not known"
        );
    }

    #[test]
    fn both_layouts_are_read_by_the_drivers_version() {
        // RLW_SRC_TRACK, status 1: 0x0e2 in bits 9..0 before R575, 0x07 in bits 6..0 since.
        let old = line("RLW_SRC_TRACK", true, 0x0000_00e2, 1);
        let new = line("RLW_SRC_TRACK", true, 0x0000_0007, 1);
        for (line, branch) in [(&old, Some(570)), (&new, Some(575)), (&old, None), (&new, None)] {
            let decoded = decode(145, line, branch);
            assert_eq!((decoded.action, decoded.investigate), (Action::DrainReset, Some("CONTACT_SUPPORT")));
        }
    }

    #[test]
    fn a_promotable_error_is_a_reset_only_with_its_second_mask_and_the_word() {
        // Bit 9 set in the first layout: the second mask.
        let promoted = 0x0000_02c2;
        assert_eq!(decode(145, &line("RLW_RXPIPE", true, promoted, 1), Some(570)).action, Action::DrainReset);
        assert_eq!(decode(145, &line("RLW_RXPIPE", false, promoted, 1), Some(570)).action, Action::Warn);
        assert_eq!(decode(145, &line("RLW_RXPIPE", false, 0x0000_00c2, 1), Some(570)).action, Action::Info);
    }

    #[test]
    fn without_a_row_the_word_decides_and_a_link_that_the_table_ignores_warns() {
        assert_eq!(decode(148, &line("NEW_UNIT", true, 0, 7), Some(570)).action, Action::DrainReset);
        assert_eq!(decode(148, &line("NEW_UNIT", false, 0, 7), Some(570)).action, Action::Warn);
        // Bits 25..20 = 100110: the user's software.
        let user = line("NETIR_LINK_EVT", true, 0b100110 << 20 | 0x1c6, 0);
        assert_eq!(decode(149, &user, Some(570)).action, Action::Warn);
        assert_eq!(decode(150, &line("MSE_WATCHDOG", true, 0, 0), Some(580)).action, Action::DrainReset);
    }
}
