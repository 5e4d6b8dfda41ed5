//! The journal's export format: fields as lines, an empty line behind each entry, binary values with their length.

/// One entry of the kernel's own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    /// The message as /dev/kmsg would spell it.
    pub message: String,
    /// Time since boot, microseconds; 0 where the entry lacks it.
    pub usec: u64,
    /// The journal's own position behind this entry.
    pub cursor: String,
}

/// A cursor is about 130 characters long.
const MAX_CURSOR: usize = 512;

/// Reads entries, oldest first; hands each of the kernel's own to `each`. A file that is cut off ends with its last whole
/// field. Text that is no export format gives nothing.
///
/// A record that a program wrote into /dev/kmsg comes as the kernel's, but with a facility other than 0.
pub fn read(mut bytes: &[u8], mut each: impl FnMut(Entry)) {
    let mut raw = Raw::default();
    while !bytes.is_empty() {
        let (line, rest) = split_line(bytes);
        bytes = rest;
        if line.is_empty() {
            std::mem::take(&mut raw).finish().into_iter().for_each(&mut each);
        } else if let Some(at) = line.iter().position(|&byte| byte == b'=') {
            raw.field(&line[..at], &line[at + 1..]);
        } else {
            let Some((value, rest)) = binary(bytes) else { break };
            raw.field(line, value);
            bytes = rest;
        }
    }
    raw.finish().into_iter().for_each(each);
}

/// True where a text begins as entries do.
pub fn is_export(start: &[u8]) -> bool {
    start.starts_with(b"__CURSOR=") || start.starts_with(b"__REALTIME_TIMESTAMP=")
}

fn split_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    match bytes.iter().position(|&byte| byte == b'\n') {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (bytes, &[]),
    }
}

/// Eight bytes of length, low byte first, then the value and a line break.
fn binary(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let value = rest.get(..length)?;
    let rest = &rest[length..];
    Some((value, rest.strip_prefix(b"\n").unwrap_or(rest)))
}

#[derive(Default)]
struct Raw {
    entry: Entry,
    has_message: bool,
    is_foreign: bool,
    is_kernels: bool,
}

impl Raw {
    fn field(&mut self, name: &[u8], value: &[u8]) {
        let text = || String::from_utf8_lossy(value);
        match name {
            b"MESSAGE" => {
                self.entry.message = as_kmsg(value);
                self.has_message = true;
            }
            b"_SOURCE_MONOTONIC_TIMESTAMP" => self.entry.usec = text().parse().unwrap_or(0),
            b"__CURSOR" if value.len() <= MAX_CURSOR => self.entry.cursor = text().into_owned(),
            b"_TRANSPORT" => self.is_kernels = value == b"kernel",
            b"SYSLOG_FACILITY" => self.is_foreign |= value != b"0",
            _ => {}
        }
    }

    fn finish(self) -> Option<Entry> {
        (self.has_message && self.is_kernels && !self.is_foreign).then_some(self.entry)
    }
}

/// Control bytes as `\xNN`; what is not UTF-8 is replaced.
fn as_kmsg(value: &[u8]) -> String {
    let mut out = String::with_capacity(value.len());
    for letter in String::from_utf8_lossy(value).chars() {
        match u32::from(letter) {
            code @ (0..0x20 | 0x7f) => out.push_str(&format!("\\x{code:02x}")),
            0x5c => out.push_str("\\x5c"),
            _ => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(bytes: &[u8]) -> Vec<Entry> {
        let mut found = Vec::new();
        read(bytes, |entry| found.push(entry));
        found
    }

    #[test]
    fn text_and_binary_values_are_read_and_foreign_entries_are_not() {
        let long = format!("NVRM: The NVIDIA GPU 0000:3b:00.0\n{}", "x".repeat(200));
        let mut bytes =
            b"__CURSOR=a\n_SOURCE_MONOTONIC_TIMESTAMP=12\n_TRANSPORT=kernel\nSYSLOG_FACILITY=0\nMESSAGE\n"
                .to_vec();
        bytes.extend((long.len() as u64).to_le_bytes());
        bytes.extend(long.as_bytes());
        bytes.extend(b"\n\n__CURSOR=b\n_TRANSPORT=kernel\nSYSLOG_FACILITY=1\nMESSAGE=NVRM: forged\n\n");
        bytes.extend(b"__CURSOR=c\n_TRANSPORT=syslog\nSYSLOG_FACILITY=0\nMESSAGE=NVRM: forged\n\n");
        bytes.extend(b"__CURSOR=d\n_TRANSPORT=kernel\nSYSLOG_FACILITY=0\nMESSAGE=a=b\\c\n");
        let found = entries(&bytes);
        assert_eq!(found.len(), 2);
        assert!(found[0].message.starts_with("NVRM: The NVIDIA GPU 0000:3b:00.0\\x0axxx"));
        assert_eq!((found[0].usec, found[0].cursor.as_str()), (12, "a"));
        assert_eq!((found[1].message.as_str(), found[1].cursor.as_str()), ("a=b\\x5cc", "d"));
    }

    #[test]
    fn what_is_cut_off_or_no_export_ends_quietly() {
        for bytes in [
            &b"MESSAGE\n\xff\xff\xff\xff\xff\xff\xff\xff"[..],
            b"MESSAGE\n\x05",
            b"x",
            b"\n\n\n",
            b"=",
            b"\xff\n",
        ] {
            assert_eq!(entries(bytes), []);
        }
    }
}
