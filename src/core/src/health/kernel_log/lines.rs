//! Kernel-log text as programs print it: dmesg in its forms, journalctl, syslog, /dev/kmsg.
//!
//! Only what stands in front of the message is taken off, and only where it is what such a program prints: a line of
//! another program that quotes the kernel is not the kernel's.

use super::{Event, parse_record};

/// One event with the time that its line showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// As printed; `None` where the line showed none.
    pub time: Option<String>,
    /// The event.
    pub event: Event,
}

/// Reads line by line. A record of several lines, which programs print apart, is put together again.
#[derive(Debug, Default)]
pub struct Reader {
    pending: Option<Pending>,
}

#[derive(Debug)]
struct Pending {
    time: Option<String>,
    record: String,
    end: &'static str,
    lines: usize,
}

/// Records of several lines: how they begin, and what their last line holds.
const LONG: [(&str, &str); 3] = [
    ("NVRM: The NVIDIA GPU ", "fallen off the bus"),
    ("NVRM: API mismatch: the client", "kernel module has the version"),
    ("NVRM: This PCI I/O region assigned to your NVIDIA device is invalid", "(PCI:"),
];
const MAX_LINES: usize = 5;

impl Reader {
    /// The events that are complete with this line: none, one, or one that was waiting and one of its own.
    pub fn feed(&mut self, line: &str) -> Vec<Line> {
        let Some((time, message)) = strip(line.trim_end_matches(['\r', '\n'])) else { return Vec::new() };
        let mut found = Vec::new();
        if let Some(mut pending) = self.pending.take() {
            let goes_on = message.trim_start().strip_prefix("NVRM: ").filter(|text| !is_own(text));
            let Some(text) = goes_on else {
                found.extend(pending.finish());
                found.extend(self.begin(time, message));
                return found;
            };
            pending.record.push_str("\\x0aNVRM: ");
            pending.record.push_str(text);
            pending.lines += 1;
            if text.contains(pending.end) || pending.lines >= MAX_LINES {
                found.extend(pending.finish());
            } else {
                self.pending = Some(pending);
            }
            return found;
        }
        found.extend(self.begin(time, message));
        found
    }

    /// What was still waiting for its next line at the end.
    pub fn end(&mut self) -> Option<Line> {
        self.pending.take()?.finish()
    }

    fn begin(&mut self, time: Option<&str>, message: &str) -> Option<Line> {
        let time = time.map(ToOwned::to_owned);
        let long = LONG.iter().find(|(start, end)| message.starts_with(start) && !message.contains(end));
        if let Some((_, end)) = long {
            self.pending = Some(Pending { time, record: message.to_owned(), end, lines: 1 });
            return None;
        }
        parse_record(message).map(|event| Line { time, event })
    }
}

impl Pending {
    fn finish(self) -> Option<Line> {
        parse_record(&self.record).map(|event| Line { time: self.time, event })
    }
}

/// True for a text that begins a record of its own.
fn is_own(text: &str) -> bool {
    text.starts_with("Xid (") || text.starts_with("GPU ") || text.starts_with("loading ")
}

/// The time and the message of a line; `None` for a line that is not the kernel's.
fn strip(line: &str) -> Option<(Option<&str>, &str)> {
    if let Some(record) = kmsg(line) {
        return record;
    }
    let line = match line.strip_prefix('<').and_then(|rest| rest.split_once('>')) {
        Some((priority, rest)) if priority.parse::<u32>().is_ok_and(|priority| priority < 8) => rest,
        Some((priority, _)) if priority.parse::<u32>().is_ok() => return None,
        _ => line,
    };
    let line = match facility(line) {
        Some(("kern", rest)) => rest,
        Some(_) => return None,
        None => line,
    };
    if let Some((time, rest)) = bracket(line) {
        let rest = caller(rest);
        return Some((Some(time), by_journal(rest).unwrap_or(rest)));
    }
    let Some((time, rest)) = date(line) else { return Some((None, line)) };
    match by_journal(rest) {
        Some(message) => Some((Some(time), bracket(message).map_or(message, |(_, message)| caller(message)))),
        // `dmesg --time-format iso` names neither host nor program; a date as syslog writes it comes with both.
        None if time.starts_with(|letter: char| letter.is_ascii_digit()) => Some((Some(time), rest)),
        None => None,
    }
}

/// `PRIO,SEQ,USEC,FLAGS;MESSAGE`
fn kmsg(line: &str) -> Option<Option<(Option<&str>, &str)>> {
    if !line.starts_with(|letter: char| letter.is_ascii_digit()) {
        return None;
    }
    let (head, message) = line.split_once(';')?;
    let mut fields = head.split(',');
    let priority: u32 = fields.next()?.parse().ok()?;
    let _seq: u64 = fields.next()?.parse().ok()?;
    let usec = fields.next().filter(|usec| usec.parse::<u64>().is_ok())?;
    Some((priority < 8).then_some((Some(usec), message)))
}

/// `kern  :err   : ` of `dmesg -x`.
fn facility(line: &str) -> Option<(&str, &str)> {
    const LEVELS: [&str; 8] = ["emerg", "alert", "crit", "err", "warn", "notice", "info", "debug"];
    let (name, rest) = line.split_once(':').filter(|(name, _)| name.len() <= 10)?;
    let (level, rest) = rest.split_once(':')?;
    LEVELS.contains(&level.trim_end()).then(|| (name.trim_end(), rest.trim_start()))
}

/// `[ 1234.567890] `, `[Tue Dec  1 18:09:17 2026] `
fn bracket(line: &str) -> Option<(&str, &str)> {
    const DAYS: [&str; 7] = ["Mon ", "Tue ", "Wed ", "Thu ", "Fri ", "Sat ", "Sun "];
    let (inside, rest) = line.strip_prefix('[')?.split_once(']')?;
    let inside = inside.trim();
    let is_seconds = !inside.is_empty() && inside.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let is_date = DAYS.iter().any(|day| inside.starts_with(day));
    (is_seconds || is_date).then(|| (inside, rest.strip_prefix(' ').unwrap_or(rest)))
}

/// Takes off `[  T1234] ` or `[    C0] `, which some kernels print.
fn caller(line: &str) -> &str {
    let inside = line.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let is_caller = |inside: &str| {
        let digits = inside.trim().strip_prefix(['T', 'C']);
        digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
    };
    match inside {
        Some((inside, rest)) if is_caller(inside) => rest.strip_prefix(' ').unwrap_or(rest),
        _ => line,
    }
}

/// `Dec  1 18:09:17 `, `2026-12-01T18:09:17+0000 `
fn date(line: &str) -> Option<(&str, &str)> {
    const MONTHS: [&str; 12] =
        ["Jan ", "Feb ", "Mar ", "Apr ", "May ", "Jun ", "Jul ", "Aug ", "Sep ", "Oct ", "Nov ", "Dec "];
    if MONTHS.iter().any(|month| line.starts_with(month)) {
        let end = line.get(..15).filter(|time| time.as_bytes().get(9) == Some(&b':'))?.len();
        // Fractions of a second may follow.
        let end = line[end..].find(' ').map(|more| end + more)?;
        return Some((&line[..end], &line[end + 1..]));
    }
    let (word, rest) = line.split_once(' ')?;
    let bytes = word.as_bytes();
    let is_iso = bytes.len() >= 19 && bytes.get(4) == Some(&b'-') && bytes.get(10) == Some(&b'T');
    is_iso.then_some((word, rest))
}

/// `HOST kernel: MESSAGE`
fn by_journal(line: &str) -> Option<&str> {
    let (host, rest) = line.split_once(' ')?;
    let is_host = !host.is_empty() && !host.ends_with(':');
    rest.strip_prefix("kernel: ").filter(|_| is_host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_quote_the_kernel_are_not_the_kernels() {
        let text = "NVRM: Xid (PCI:0000:3b:00): 79, x";
        for line in [
            format!("12,1,2,-;{text}"),
            format!("<12>[ 1.0] {text}"),
            format!("user  :err   : [ 1.0] {text}"),
            format!("Dec  1 18:09:17 node7 sshd[12]: {text}"),
            format!("Dec  1 18:09:17 node7 sshd[12]: node7 kernel: {text}"),
            format!("2026-12-01T18:09:17+0000 node7 python3[7]: {text}"),
            format!("[ 1.0] overlayfs: '{text}'"),
            format!("x {text}"),
            format!("    {text}"),
        ] {
            assert_eq!(Reader::default().feed(&line), [], "{line}");
        }
    }

    #[test]
    fn a_record_that_never_ends_does_not_swallow_the_next() {
        let mut reader = Reader::default();
        assert_eq!(reader.feed("NVRM: The NVIDIA GPU 0000:3b:00.0"), []);
        let found = reader.feed("NVRM: Xid (PCI:0000:5e:00): 48, x");
        assert_eq!(found.len(), 1);
        assert_eq!(reader.end(), None);
    }
}
