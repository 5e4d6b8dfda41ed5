//! The kernel's log: records of /dev/kmsg and the text of dmesg, and what the catalogue says of the numbers in it.

use super::{shown, text};
use gpuward_core::health::kernel_log::{EventCode, OpenLog, parse_record};
use gpuward_core::health::overrides::parse_table;
use gpuward_core::health::xid::{self, MAX_XID};
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

/// Open events stay few and short however much there is, and a site's own table is read without a word of it lost.
pub fn check(data: &[u8]) {
    let text = text(data);
    let mut open = OpenLog::default();
    for line in text.lines() {
        // A bare line is a message; one with a head is a record of /dev/kmsg.
        let record = kmsg::parse(line);
        let (seq, usec) = record.as_ref().map_or((0, 0), |record| (record.seq, record.usec));
        let message = record.as_ref().map_or(line, |record| record.message.as_str());
        one_record(message);
        open.absorb(seq, usec, message);
    }
    for event in &open.xids {
        shown("the text of an event", &event.seen.text, 200);
    }
    let json = serde_json::to_string(&open).unwrap_or_default();
    assert!(json.len() < MAX_STATE_BYTES, "{} bytes of state", json.len());
    let again = serde_json::from_str::<OpenLog>(&json).map(|again| serde_json::to_string(&again));
    assert_eq!(again.ok().and_then(Result::ok), Some(json));
    let (rows, complaints) = parse_table(&text, "xid", MAX_XID, "f");
    assert!(rows.keys().all(|number| *number <= MAX_XID));
    complaints.iter().for_each(|complaint| shown("what is wrong with a row", complaint, 400));
}

/// What the state of a boot may grow to.
const MAX_STATE_BYTES: usize = 512 * 1024;

fn one_record(message: &str) {
    let Some(event) = parse_record(message) else { return };
    if let EventCode::Xid(number) = event.code {
        assert!(number <= MAX_XID && xid::lookup(number).is_none_or(|row| row.xid == number));
        let (severity, remedy) = xid::judgement(number);
        assert!(!severity.word().is_empty() && !remedy.word().is_empty());
    }
}
