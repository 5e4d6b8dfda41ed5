//! Text that others wrote, made safe to show.
//!
//! Job names, comments, process names and kernel-log lines are under a user's control. Whatever ends in a log line, a
//! drain reason or a terminal goes through here first.

/// `text` on one line with control characters, backslashes and non-ASCII shown as `\xNN`, at most `max_bytes` long.
///
/// A text that had to be cut ends in `...`.
pub fn escape(text: &str, max_bytes: usize) -> String {
    escape_bytes(text.as_bytes(), max_bytes)
}

/// The same for bytes that need not be UTF-8.
pub fn escape_bytes(bytes: &[u8], max_bytes: usize) -> String {
    let mut out = String::new();
    for &byte in bytes {
        let piece = match byte {
            b' '..=b'~' if byte != b'\\' => char::from(byte).to_string(),
            _ => format!("\\x{byte:02x}"),
        };
        if out.len() + piece.len() > max_bytes {
            while out.len() + 3 > max_bytes && out.pop().is_some() {}
            out.push_str(&"..."[..max_bytes.min(3)]);
            return out;
        }
        out.push_str(&piece);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_stays_on_one_printable_line() {
        assert_eq!(escape("a\nb\x1b[31m\\", 100), "a\\x0ab\\x1b[31m\\x5c");
        assert_eq!(escape("ü", 100), "\\xc3\\xbc");
    }

    #[test]
    fn long_text_is_cut_within_the_bound() {
        for max in 0..12 {
            assert!(escape("abcdefghijkl", max).len() <= max, "max {max}");
        }
        assert_eq!(escape("abcdefghijkl", 8), "abcde...");
        assert_eq!(escape("abcdefgh", 8), "abcdefgh");
    }
}
