//! The kernel log: /dev/kmsg, or a file in its format.
//!
//! A record is `PRIO,SEQ,USEC,FLAGS;MESSAGE`, then continuation lines that begin with a blank. Only facility 0 (PRIO
//! below 8) is the kernel speaking: whoever may write to /dev/kmsg can print any text, but not in the kernel's name.

use crate::EdgeError;
use crate::clock::Deadline;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// One record of the kernel's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Sequence number since boot.
    pub seq: u64,
    /// Time since boot, microseconds.
    pub usec: u64,
    /// The message, with control bytes as `\xNN`.
    pub message: String,
}

/// A plain file is read up to this size, from its end.
const MAX_FILE_BYTES: usize = 16 * 1024 * 1024;

/// Hands every kernel record behind sequence number `after` to `each`, oldest first, until the deadline.
///
/// # Errors
/// The log cannot be opened or read (`dmesg_restrict`, containers).
pub fn read_since(
    path: &Path,
    after: Option<u64>,
    deadline: Deadline,
    mut each: impl FnMut(Record),
) -> Result<(), EdgeError> {
    let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
    let mut file =
        OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(EdgeError::io("open", path))?;
    let device = file.metadata().map_err(EdgeError::io("look at", path))?.file_type().is_char_device();
    let mut take = |text: &str| {
        if let Some(record) = parse(text).filter(|record| after.is_none_or(|after| record.seq > after)) {
            each(record);
        }
    };
    if !device {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(EdgeError::io("read", path))?;
        let start = bytes.len().saturating_sub(MAX_FILE_BYTES);
        let text = String::from_utf8_lossy(bytes.get(start..).unwrap_or_default());
        text.lines().for_each(take);
        return Ok(());
    }
    // One read gives one record; 8 KiB is the kernel's largest.
    let mut buffer = [0u8; 8192];
    while !deadline.passed() {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => take(&String::from_utf8_lossy(buffer.get(..count).unwrap_or_default())),
            // EAGAIN: no more. EPIPE: records were overwritten before we came; go on with the next that is there.
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN) => break,
                Some(libc::EPIPE | libc::EINTR | libc::EINVAL) => {}
                _ => return Err(EdgeError::io("read", path)(error)),
            },
        }
    }
    Ok(())
}

/// Reads one record's first line; `None` for continuation lines, for text that is no record, and for records that are
/// not the kernel's own.
pub fn parse(text: &str) -> Option<Record> {
    let first = text.lines().next()?;
    let (head, message) = first.split_once(';')?;
    let mut fields = head.split(',');
    let priority: u32 = fields.next()?.parse().ok()?;
    let seq = fields.next()?.parse().ok()?;
    let usec = fields.next()?.parse().ok()?;
    (priority < 8).then(|| Record { seq, usec, message: message.to_owned() })
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
            read_since(&path, after, Deadline::in_ms(1000), |record| seen.push((record.seq, record.message)))
                .unwrap();
            seen
        };
        assert_eq!(since(None).iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), [339, 340, 342]);
        assert_eq!(since(Some(340)), [(342, "a;b".to_owned())]);
        assert!(read_since(&folder.path().join("none"), None, Deadline::in_ms(1000), |_| {}).is_err());
    }

    #[test]
    fn what_is_no_record_is_passed_over() {
        for text in ["", ";", "a,b,c,d;x", "6,1;x", " SUBSYSTEM=pci", "6,1,2,-"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
