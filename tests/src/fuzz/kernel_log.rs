//! The kernel's log: records of /dev/kmsg and the text of dmesg, and what the catalogue says of the numbers in it.

use super::{shown, text};
use gpuward_core::health::xid::{self, MAX_XID, XidEvent, XidLine};
use gpuward_node::kmsg;

pub const WORDS: &[&str] = &[
    "6,339,5140900,-;",
    "\n SUBSYSTEM=pci\n",
    "NVRM: Xid (PCI:0000:3b:00): 79, ",
    "NVRM: Xid (PCI:0000:3b:00 GPU-I:05 GPU-CI:01): 31, ",
    "pid='<unknown>', name=<unknown>, ",
    "pid=12, name=x, ",
    "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
    "NVRM: loading NVIDIA UNIX",
    " 154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)",
    "\\x0a",
    "\\x0aNVRM: Xid (PCI:0000:3b:00): 48, x",
    " to 0x",
    "NVRM: ",
];

/// Open events stay few and short however much there is, and only the driver's own lines make any.
pub fn check(data: &[u8]) {
    let text = text(data);
    let mut open = Vec::new();
    for line in text.lines() {
        // A bare line is a message; one with a head is a record of /dev/kmsg.
        let record = kmsg::parse(line);
        let (seq, usec) = record.as_ref().map_or((0, 0), |record| (record.seq, record.usec));
        let message = record.as_ref().map_or(line, |record| record.message.as_str());
        one_record(message);
        xid::absorb(&mut open, seq, usec, message);
        events(&open);
    }
    for event in &open {
        let json = serde_json::to_string(event).unwrap_or_default();
        assert_eq!(serde_json::from_str::<XidEvent>(&json).ok().as_ref(), Some(event));
    }
}

fn one_record(message: &str) {
    let lines = xid::parse_kernel_record(message);
    assert!(lines.is_empty() || message.starts_with("NVRM: "), "not the driver's word: {message}");
    assert!(lines.len() <= message.len() / "NVRM: ".len());
    for line in lines {
        let XidLine::Xid { pci, xid, .. } = line else { continue };
        assert!(pci.function == 0 && xid <= MAX_XID);
        let (severity, remedy) = xid::judgement(xid);
        assert!(xid::lookup(xid).is_none_or(|row| row.xid == xid));
        assert!(!severity.word().is_empty() && !remedy.word().is_empty());
    }
}

fn events(open: &[XidEvent]) {
    assert!(open.len() <= 256, "{} events", open.len());
    if let Some(event) = open.last() {
        shown("the text of an event", &event.text, 200);
        let same = open.iter().filter(|other| (other.pci, other.xid) == (event.pci, event.xid));
        assert_eq!(same.count(), 1, "one fault of one GPU counts once");
    }
}
