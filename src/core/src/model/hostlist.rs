//! Slurm's bracket lists: `n[1-3,7]`, `/dev/nvidia[0-7]`, `gpu[01-16],login`.

/// No list in a configuration of ours is longer; a larger one is a mistake or an attack.
const MAX_NAMES: usize = 65_536;
/// Nor longer when its names are written out: 32 bytes for each of the most names. Ours.
const MAX_BYTES: usize = 2 * 1024 * 1024;
/// No name has more brackets. Ours: Slurm's own machines of several dimensions have up to five.
const MAX_BRACKETS: usize = 8;
/// As many digits as the largest number has.
const MAX_DIGITS: usize = 10;

/// All names of a bracket list, in the order written.
///
/// # Errors
/// A bracket that is not closed, a range that is not one, more than 65,536 names, or 2 MiB of them.
pub fn expand(list: &str) -> Result<Vec<String>, HostlistError> {
    let mut names = Names { list, all: Vec::new(), bytes: 0 };
    for part in split_outside_brackets(list) {
        names.expand(part.trim(), MAX_BRACKETS)?;
    }
    Ok(names.all)
}

fn split_outside_brackets(list: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0u32);
    for (at, byte) in list.bytes().enumerate() {
        match byte {
            b'[' => depth += 1,
            b']' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                parts.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[start..]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

struct Names<'a> {
    list: &'a str,
    all: Vec<String>,
    bytes: usize,
}

impl Names<'_> {
    fn bad(&self, what: &str) -> HostlistError {
        HostlistError { list: crate::text::escape(self.list, 80), what: what.to_owned() }
    }

    fn add(&mut self, name: &str) -> Result<(), HostlistError> {
        self.bytes += name.len();
        if self.all.len() >= MAX_NAMES || self.bytes > MAX_BYTES {
            return Err(self.bad("too many names"));
        }
        self.all.push(name.to_owned());
        Ok(())
    }

    fn expand(&mut self, part: &str, brackets_left: usize) -> Result<(), HostlistError> {
        let Some(open) = part.find('[') else {
            if part.contains(']') {
                return Err(self.bad("a bracket is closed that was never opened"));
            }
            return self.add(part);
        };
        if brackets_left == 0 {
            return Err(self.bad("too many brackets in one name"));
        }
        let close = part[open..].find(']').map(|at| open + at);
        let close = close.ok_or_else(|| self.bad("a bracket is not closed"))?;
        let (head, inside, tail) = (&part[..open], &part[open + 1..close], &part[close + 1..]);
        for range in inside.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (from, to) = (self.number(first)?, self.number(last)?);
            if to < from || usize::try_from(to - from).unwrap_or(MAX_NAMES) >= MAX_NAMES {
                return Err(self.bad("a range runs backwards or is too long"));
            }
            for value in from..=to {
                let name = format!("{head}{value:0width$}{tail}", width = first.len());
                self.expand(&name, brackets_left - 1)?;
            }
        }
        Ok(())
    }

    fn number(&self, text: &str) -> Result<u32, HostlistError> {
        let fits = (1..=MAX_DIGITS).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        fits.then(|| text.parse().ok()).flatten().ok_or_else(|| self.bad("a range is not two numbers"))
    }
}

/// A bracket list that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{list}': {what}")]
pub struct HostlistError {
    list: String,
    what: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_keep_order_and_leading_zeros() {
        assert_eq!(expand("n[1-3,7]").unwrap(), ["n1", "n2", "n3", "n7"]);
        assert_eq!(expand("/dev/nvidia[3,0-1]").unwrap(), ["/dev/nvidia3", "/dev/nvidia0", "/dev/nvidia1"]);
        assert_eq!(expand("gpu[08-10],login").unwrap(), ["gpu08", "gpu09", "gpu10", "login"]);
        assert_eq!(expand("r[1-2]n[1-2]").unwrap(), ["r1n1", "r1n2", "r2n1", "r2n2"]);
        assert_eq!(expand("").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn broken_lists_are_refused_and_do_not_explode() {
        for list in [
            "n[1-",
            "n1]",
            "n[3-1]",
            "n[a-b]",
            "n[1-4294967295]",
            "n[1-999999]",
            "n[0-255][0-255][0-255]",
            "n[]",
        ] {
            assert!(expand(list).is_err(), "{list}");
        }
        let zeros = "0".repeat(70_000);
        for list in [format!("n[{zeros}]"), format!("n[0-65535]{zeros}"), "[0-0]".repeat(20_000)] {
            assert!(expand(&list).is_err(), "{}", list.len());
        }
    }
}
