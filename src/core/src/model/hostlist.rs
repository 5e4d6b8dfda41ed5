//! Slurm's bracket lists: `n[1-3,7]`, `/dev/nvidia[0-7]`, `gpu[01-16],login`.

/// No list in a configuration of ours is longer; a larger one is a mistake or an attack.
const MAX_NAMES: usize = 65_536;

/// All names of a bracket list, in the order written.
///
/// # Errors
/// A bracket that is not closed, a range that is not one, or more than 65,536 names.
pub fn expand(list: &str) -> Result<Vec<String>, HostlistError> {
    let mut names = Vec::new();
    for part in split_outside_brackets(list) {
        expand_part(part.trim(), list, &mut names)?;
    }
    Ok(names)
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

fn expand_part(part: &str, list: &str, names: &mut Vec<String>) -> Result<(), HostlistError> {
    let bad = |what: &str| HostlistError { list: crate::text::escape(list, 80), what: what.to_owned() };
    let Some(open) = part.find('[') else {
        if part.contains(']') {
            return Err(bad("a bracket is closed that was never opened"));
        }
        names.push(part.to_owned());
        return (names.len() <= MAX_NAMES).then_some(()).ok_or_else(|| bad("too many names"));
    };
    let close = part[open..].find(']').map(|at| open + at).ok_or_else(|| bad("a bracket is not closed"))?;
    let (head, inside, tail) = (&part[..open], &part[open + 1..close], &part[close + 1..]);
    for range in inside.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            digits
                .then(|| text.parse::<u32>().ok())
                .flatten()
                .ok_or_else(|| bad("a range is not two numbers"))
        };
        let (from, to) = (number(first)?, number(last)?);
        if to < from || usize::try_from(to - from).unwrap_or(MAX_NAMES) >= MAX_NAMES {
            return Err(bad("a range runs backwards or is too long"));
        }
        for value in from..=to {
            let name = format!("{head}{value:0width$}{tail}", width = first.len());
            expand_part(&name, list, names)?;
        }
    }
    Ok(())
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
    }
}
