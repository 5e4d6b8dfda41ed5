//! The kernel log as a source of findings.
//!
//! A record's message goes in, events come out: what the driver, the PCI layer, the IOMMU and the hung-task watchdog say
//! about a GPU or a switch. One file for each family. Other parts of the kernel print texts that a user chose (paths,
//! names), so a text counts only at the very beginning of a record, and what a driver's line says is read from its end,
//! behind any process name in it. Format strings: NVIDIA/open-gpu-kernel-modules 515 to 595; the kernel's own wording
//! differs by version and is accepted in every form known.

mod driver;
mod event;
pub mod export;
mod host;
pub mod lines;
pub mod open;
mod pcie;
mod scan;
mod sxid;
mod xid;

pub use event::{Event, EventCode, What};
pub use open::OpenLog;

/// The event in one record of the kernel's own, spelt as /dev/kmsg spells it (a line break is `\x0a`).
///
/// Most records are not ours, so the first letters decide before anything else is looked at. A text after a line break
/// never is an event by itself: a process name may hold one.
pub fn parse_record(message: &str) -> Option<Event> {
    match message.as_bytes().first()? {
        b'N' => {
            message.strip_prefix("NVRM: ").and_then(|text| xid::parse(text).or_else(|| driver::parse(text)))
        }
        b'n' => {
            sxid::parse(message).or_else(|| driver::parse_module(message)).or_else(|| pcie::parse(message))
        }
        b'p' | b'v' => pcie::parse(message),
        b'A' | b'D' | b'I' | b'L' => host::parse(message),
        b'{' => pcie::parse_firmware(message),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
