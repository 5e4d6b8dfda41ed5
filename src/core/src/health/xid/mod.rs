//! XIDs: what the driver writes into the kernel log when a GPU is in trouble.
//!
//! `grammar` reads a log line; `catalog.tsv` says what each number means. The catalogue follows NVIDIA's Xid
//! catalogue of October 2025; class and action are gpuward's reading of it.

mod grammar;

pub use grammar::{XidLine, parse_kernel_record, parse_message};

use super::finding::{Remedy, Severity};
use crate::model::PciAddress;
use serde::{Deserialize, Serialize};
use std::sync::LazyLock;

/// The largest number that is taken for an XID. Ours: NVIDIA's catalogue ends at 176 in 2026.
pub const MAX_XID: u32 = 9999;

static CATALOGUE: LazyLock<Vec<CatalogueRow>> =
    LazyLock::new(|| include_str!("catalog.tsv").lines().skip(1).filter_map(CatalogueRow::parse).collect());

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
    /// ignore, info, warn, fail-job-only, reset-when-idle, drain-reset, drain-reboot or drain-rma.
    pub action: &'static str,
    /// True where newer drivers also change the GPU's recovery action for it (and print an Xid 154).
    pub sets_recovery_action: bool,
}

impl CatalogueRow {
    fn parse(line: &'static str) -> Option<CatalogueRow> {
        let mut cells = line.split('\t');
        let number = cells.next()?;
        let (meaning, class, _user_app, action) =
            (cells.next()?, cells.next()?, cells.next()?, cells.next()?);
        let since = cells.nth(4)?;
        let code: &'static str = Box::leak(format!("XID{number}").into_boxed_str());
        Some(CatalogueRow {
            xid: number.parse().ok()?,
            code,
            meaning,
            class,
            action,
            sets_recovery_action: since != "-",
        })
    }
}

/// All rows, ascending.
pub fn catalogue() -> impl Iterator<Item = &'static CatalogueRow> {
    CATALOGUE.iter()
}

/// The row of one number.
pub fn lookup(xid: u32) -> Option<&'static CatalogueRow> {
    catalogue().find(|row| row.xid == xid)
}

/// Severity and remedy of one number; a number that the catalogue lacks is a warning.
pub fn judgement(xid: u32) -> (Severity, Remedy) {
    lookup(xid).map_or((Severity::Warn, Remedy::Admin), |row| judge_action(row.action))
}

fn judge_action(action: &str) -> (Severity, Remedy) {
    match action {
        "ignore" | "info" => (Severity::Info, Remedy::User),
        "fail-job-only" => (Severity::Info, Remedy::User),
        "reset-when-idle" => (Severity::Warn, Remedy::Reset),
        "drain-reset" => (Severity::Fail, Remedy::Reset),
        "drain-reboot" => (Severity::Fail, Remedy::Reboot),
        "drain-rma" => (Severity::Fail, Remedy::Rma),
        _ => (Severity::Warn, Remedy::Admin),
    }
}

/// One XID of this boot that nothing has cleared yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct XidEvent {
    /// The GPU; the function is always 0, since the log leaves it out.
    pub pci: PciAddress,
    /// The number.
    pub xid: u32,
    /// Sequence number of the kernel-log record.
    pub seq: u64,
    /// Time of the record since boot, microseconds.
    pub usec: u64,
    /// What an Xid 154 says the recovery action is now.
    pub action_to: Option<u32>,
    /// The line, escaped and cut.
    pub text: String,
    /// When this very event refused a job, CLOCK_BOOTTIME nanoseconds.
    #[serde(default)]
    pub acted_boottime_ns: Option<u64>,
    /// True where it was there before gpuward might have acted on it: seen in another mode than drain, or long before a
    /// first look. It warns and no more, unless the GPU itself confirms it.
    #[serde(default)]
    pub old: bool,
}

/// No node has more open events: one for each GPU and number that matters.
const MAX_OPEN: usize = 256;

/// Takes new kernel-log messages into the list of open events.
///
/// The same number on the same GPU counts once. An Xid 154 to "None" clears that GPU, a driver load clears the node.
pub fn absorb(open: &mut Vec<XidEvent>, seq: u64, usec: u64, message: &str) {
    for line in parse_kernel_record(message) {
        match line {
            XidLine::DriverLoaded => open.clear(),
            XidLine::Xid { pci, xid: 154, action_to: Some(0), .. } => open.retain(|event| event.pci != pci),
            XidLine::Xid { pci, xid, action_to, .. } => {
                let text = crate::text::escape(message, 200);
                let event =
                    XidEvent { pci, xid, seq, usec, action_to, text, acted_boottime_ns: None, old: false };
                open.retain(|known| known.pci != pci || known.xid != xid);
                // Users' own faults must not crowd out the hardware's.
                if open.len() >= MAX_OPEN {
                    let least = (0..open.len()).min_by_key(|&at| judgement(open[at].xid).0);
                    least.into_iter().for_each(|at| drop(open.remove(at)));
                }
                open.push(event);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOST: &str =
        "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.";

    #[test]
    fn the_catalogue_is_whole() {
        let numbers: Vec<u32> = catalogue().map(|row| row.xid).collect();
        assert_eq!(numbers, (1..=176).collect::<Vec<u32>>());
        let known = [
            "ignore",
            "info",
            "warn",
            "fail-job-only",
            "reset-when-idle",
            "drain-reset",
            "drain-reboot",
            "drain-rma",
        ];
        for row in catalogue() {
            assert!(known.contains(&row.action), "XID {} has action {}", row.xid, row.action);
        }
    }

    #[test]
    fn the_same_fault_counts_once_and_is_cleared_by_evidence_only() {
        let mut open = Vec::new();
        absorb(&mut open, 1, 10, LOST);
        absorb(&mut open, 2, 20, "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.");
        absorb(&mut open, 3, 30, "NVRM: Xid (PCI:0000:5e:00): 48, pid=1, name=x, DBE");
        assert_eq!(open.iter().map(|e| (e.xid, e.seq)).collect::<Vec<_>>(), [(79, 2), (48, 3)]);
        absorb(&mut open, 4, 40, "usb 1-1: new device");
        assert_eq!(open.len(), 2);
        absorb(
            &mut open,
            5,
            50,
            "NVRM: Xid (PCI:0000:5e:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",
        );
        assert_eq!(open.len(), 1);
        absorb(
            &mut open,
            6,
            60,
            "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.144.03  Mon Dec 30 17:44:08 UTC 2024",
        );
        assert!(open.is_empty());
    }

    #[test]
    fn a_flood_of_events_is_bounded() {
        let mut open = Vec::new();
        for bus in 0..=255u32 {
            for xid in [48, 79, 95] {
                absorb(&mut open, 1, 1, &format!("NVRM: Xid (PCI:0000:{bus:02x}:00): {xid}, x"));
            }
        }
        assert_eq!(open.len(), MAX_OPEN);
    }
}
