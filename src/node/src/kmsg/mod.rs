//! The kernel log: /dev/kmsg, or a file in its format; `journal` asks the journal where neither can be opened.
//!
//! A record is `PRIO,SEQ,USEC,FLAGS;MESSAGE`, then continuation lines that begin with a blank. Only facility 0 (PRIO
//! below 8) is the kernel speaking: whoever may write to /dev/kmsg can print any text, but not in the kernel's name.

pub mod journal;

use crate::EdgeError;
use crate::clock::Deadline;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Sequence number since boot.
    pub seq: u64,
    /// Time since boot, microseconds.
    pub usec: u64,
    /// True where the kernel speaks, and not a program that wrote to /dev/kmsg.
    pub is_kernels: bool,
    /// The message, with control bytes as `\xNN`.
    pub message: String,
}

/// How far a read came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// Sequence number of the last record, whoever wrote it.
    pub last_seq: Option<u64>,
    /// How many records had been overwritten before they could be read.
    pub lost: u64,
    /// Time since boot of the record behind the newest gap, microseconds.
    pub lost_before_usec: u64,
    /// False where the deadline came before the end of the log: the rest is there for the next read.
    pub complete: bool,
}

/// A plain file is read up to this size, from its end.
const MAX_FILE_BYTES: usize = 16 * 1024 * 1024;

/// The kernel's largest record is 8 KiB; a shorter buffer is an error (EINVAL), and stays one.
const RECORD_BYTES: usize = 16 * 1024;

/// Hands every kernel record behind sequence number `after` to `each`, oldest first, until the deadline.
///
/// Sequence numbers count from 0 in each boot and leave none out, so a gap is what was overwritten, also before a first
/// read.
///
/// # Errors
/// The log cannot be opened or read (`dmesg_restrict`, containers).
pub fn read_since(
    path: &Path,
    after: Option<u64>,
    deadline: Deadline,
    mut each: impl FnMut(Record),
) -> Result<Progress, EdgeError> {
    let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
    let mut file =
        OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(EdgeError::io("open", path))?;
    let device = file.metadata().map_err(EdgeError::io("look at", path))?.file_type().is_char_device();
    let mut progress = Progress { last_seq: after, complete: true, ..Progress::default() };
    let mut take = |text: &str| {
        let is_new = |record: &Record| progress.last_seq.is_none_or(|last| record.seq > last);
        let Some(record) = parse(text).filter(is_new) else { return };
        let next = progress.last_seq.map_or(0, |last| last + 1);
        if record.seq > next {
            progress.lost = progress.lost.saturating_add(record.seq - next);
            progress.lost_before_usec = record.usec;
        }
        progress.last_seq = Some(record.seq);
        if record.is_kernels {
            each(record);
        }
    };
    if !device {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(EdgeError::io("read", path))?;
        let start = bytes.len().saturating_sub(MAX_FILE_BYTES);
        let text = String::from_utf8_lossy(bytes.get(start..).unwrap_or_default());
        text.lines().for_each(take);
        return Ok(progress);
    }
    // One read gives one record.
    let mut buffer = [0u8; RECORD_BYTES];
    loop {
        if deadline.passed() {
            progress.complete = false;
            return Ok(progress);
        }
        match file.read(&mut buffer) {
            Ok(0) => return Ok(progress),
            Ok(count) => take(&String::from_utf8_lossy(buffer.get(..count).unwrap_or_default())),
            // EAGAIN: no more. EPIPE: records were overwritten before we came; go on with the next that is there.
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN) => return Ok(progress),
                Some(libc::EPIPE | libc::EINTR) => {}
                _ => return Err(EdgeError::io("read", path)(error)),
            },
        }
    }
}

/// Reads one record's first line; `None` for continuation lines and for text that is no record.
pub fn parse(text: &str) -> Option<Record> {
    let first = text.lines().next()?;
    let (head, message) = first.split_once(';')?;
    let mut fields = head.split(',');
    let priority: u32 = fields.next()?.parse().ok()?;
    let seq = fields.next()?.parse().ok()?;
    let usec = fields.next()?.parse().ok()?;
    Some(Record { seq, usec, is_kernels: priority < 8, message: message.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "6,339,5140900,-;NVRM: loading\n SUBSYSTEM=pci\n3,340,5690716,-;NVRM: Xid (PCI:0000:3b:00): 79, x\n12,341,5690717,-;NVRM: Xid (PCI:0000:3b:00): 48, forged\ngarbage\n4,342,5690718,-,extra;a;b\n";

    #[test]
    fn only_the_kernels_own_records_behind_the_cursor_count() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kmsg");
        std::fs::write(&path, LOG).unwrap();
        let since = |after| {
            let mut seen = Vec::new();
            let take = |record: Record| seen.push((record.seq, record.message));
            let progress = read_since(&path, after, Deadline::in_ms(1000), take).unwrap();
            assert!(progress.complete && progress.last_seq == Some(342));
            seen
        };
        assert_eq!(since(None).iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), [339, 340, 342]);
        assert_eq!(since(Some(340)), [(342, "a;b".to_owned())]);
        assert!(read_since(&folder.path().join("none"), None, Deadline::in_ms(1000), |_| {}).is_err());
    }

    #[test]
    fn what_was_overwritten_is_counted_and_what_a_program_wrote_is_not_missing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kmsg");
        std::fs::write(&path, LOG).unwrap();
        let lost = |after| {
            let progress = read_since(&path, after, Deadline::in_ms(1000), |_| {}).unwrap();
            (progress.lost, progress.lost_before_usec)
        };
        assert_eq!(lost(None), (339, 5_140_900), "overwritten before the first look");
        assert_eq!(lost(Some(338)), (0, 0));
        assert_eq!(lost(Some(330)), (8, 5_140_900));
        assert_eq!(lost(Some(342)), (0, 0));
        std::fs::write(&path, "6,1,1,-;a\n6,5,9,-;b\n6,8,12,-;c\n").unwrap();
        assert_eq!(lost(Some(0)), (5, 12));
    }

    #[test]
    fn the_kernels_own_log_is_read_to_its_end() {
        let own = Path::new("/dev/kmsg");
        // A container may hide it, and then there is nothing to try this on.
        if std::fs::File::open(own).is_err() {
            return;
        }
        let mut last = None;
        let progress =
            read_since(own, None, Deadline::in_ms(10_000), |record| last = Some(record.seq)).unwrap();
        assert!(progress.complete && progress.last_seq >= last);
        let passed = Deadline::in_ms(0);
        let progress = read_since(own, None, passed, |_| {}).unwrap();
        assert!(!progress.complete, "the deadline came first");
    }

    #[test]
    fn what_is_no_record_is_passed_over() {
        for text in ["", ";", "a,b,c,d;x", "6,1;x", " SUBSYSTEM=pci", "6,1,2,-"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
