//! Slurm's bracket lists: `n[1-3,7]`, `/dev/nvidia[0-7]`, `gpu[01-16],login`.

use std::collections::{BTreeMap, BTreeSet};

/// No list in a configuration of ours is longer; a larger one is a mistake or an attack.
const MAX_NAMES: usize = 65_536;
/// Nor longer when its names are written out: 32 bytes for each of the most names. Ours.
const MAX_BYTES: usize = 2 * 1024 * 1024;
/// No name has more brackets. Ours: Slurm's own machines of several dimensions have up to five.
const MAX_BRACKETS: usize = 8;
/// As many digits as the largest number has.
const MAX_DIGITS: usize = 10;

/// A bracket list that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hostlist {
    parts: Vec<Vec<Piece>>,
}

/// Text as it stands, or a bracket.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Ranges(Vec<Range>),
}

/// `08-10`: from, to, and how many digits at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    from: u32,
    to: u32,
    width: usize,
}

impl Hostlist {
    /// Reads a list without writing out its names, so that a long one costs a prolog nothing.
    ///
    /// # Errors
    /// A bracket that is not closed, a range that is not one, more than 65,536 names, or 2 MiB of them.
    pub fn parse(list: &str) -> Result<Hostlist, HostlistError> {
        let bad = |what: &str| HostlistError { list: crate::text::escape(list, 80), what: what.to_owned() };
        let parts = split_outside_brackets(list);
        let parts: Vec<Vec<Piece>> =
            parts.iter().map(|part| pieces(part.trim()).map_err(bad)).collect::<Result<_, _>>()?;
        let count =
            |part: &Vec<Piece>| part.iter().fold(1usize, |all, piece| all.saturating_mul(piece.count()));
        let names = parts.iter().fold(0usize, |all, part| all.saturating_add(count(part)));
        let bytes = |part: &Vec<Piece>| {
            let longest = part.iter().map(Piece::longest).fold(0, usize::saturating_add);
            count(part).saturating_mul(longest)
        };
        let bytes = parts.iter().fold(0usize, |all, part| all.saturating_add(bytes(part)));
        if names > MAX_NAMES || bytes > MAX_BYTES {
            return Err(bad("too many names"));
        }
        Ok(Hostlist { parts })
    }

    /// All names, in the order written.
    pub fn names(&self) -> Vec<String> {
        let mut all = Vec::new();
        for part in &self.parts {
            let mut names = vec![String::new()];
            for piece in part {
                names = names.iter().flat_map(|head| piece.spelled(head)).collect();
            }
            all.extend(names);
        }
        all
    }

    /// True where the list names `name`.
    pub fn contains(&self, name: &str) -> bool {
        self.parts.iter().any(|part| fits(part, name))
    }

    /// True for a list without names.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}

impl Piece {
    fn count(&self) -> usize {
        let Piece::Ranges(ranges) = self else { return 1 };
        let of = |range: &Range| {
            usize::try_from(range.to - range.from).map_or(usize::MAX, |more| more.saturating_add(1))
        };
        ranges.iter().fold(0, |all, range| all.saturating_add(of(range)))
    }

    /// Bytes of the longest text that it stands for.
    fn longest(&self) -> usize {
        match self {
            Piece::Text(text) => text.len(),
            Piece::Ranges(ranges) => {
                ranges.iter().map(|range| range.width.max(MAX_DIGITS)).max().unwrap_or(0)
            }
        }
    }

    /// `head` followed by everything that this piece stands for.
    fn spelled(&self, head: &str) -> Vec<String> {
        match self {
            Piece::Text(text) => vec![format!("{head}{text}")],
            Piece::Ranges(ranges) => ranges
                .iter()
                .flat_map(|range| {
                    (range.from..=range.to).map(|value| format!("{head}{value:0width$}", width = range.width))
                })
                .collect(),
        }
    }
}

/// All names of a bracket list, in the order written.
///
/// # Errors
/// A bracket that is not closed, a range that is not one, more than 65,536 names, or 2 MiB of them.
pub fn expand(list: &str) -> Result<Vec<String>, HostlistError> {
    Hostlist::parse(list).map(|list| list.names())
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

fn pieces(part: &str) -> Result<Vec<Piece>, &'static str> {
    let mut pieces = Vec::new();
    let mut rest = part;
    while let Some(open) = rest.find('[') {
        if pieces.len() >= 2 * MAX_BRACKETS {
            return Err("too many brackets");
        }
        let close = rest[open..].find(']').map(|at| open + at).ok_or("a bracket is not closed")?;
        pieces.push(text(&rest[..open])?);
        pieces.push(Piece::Ranges(rest[open + 1..close].split(',').map(range).collect::<Result<_, _>>()?));
        rest = &rest[close + 1..];
    }
    pieces.push(text(rest)?);
    Ok(pieces)
}

fn text(text: &str) -> Result<Piece, &'static str> {
    if text.contains(']') {
        return Err("a bracket is closed that was never opened");
    }
    Ok(Piece::Text(text.to_owned()))
}

fn range(text: &str) -> Result<Range, &'static str> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| {
        let digits = (1..=MAX_DIGITS).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse::<u32>().ok()).flatten().ok_or("a range is not two numbers")
    };
    let (from, to) = (number(first)?, number(last)?);
    if to < from {
        return Err("a range runs backwards");
    }
    Ok(Range { from, to, width: first.len() })
}

fn fits(pieces: &[Piece], name: &str) -> bool {
    let Some((first, rest)) = pieces.split_first() else { return name.is_empty() };
    match first {
        Piece::Text(text) => name.strip_prefix(text.as_str()).is_some_and(|tail| fits(rest, tail)),
        Piece::Ranges(ranges) => {
            // Digits may follow a bracket, so every length is tried; a u32 has at most ten.
            let digits = name.bytes().take_while(u8::is_ascii_digit).count();
            (1..=digits).any(|length| {
                let (number, tail) = name.split_at(length);
                let is_in = |range: &Range| {
                    let spelled = length == range.width || (length > range.width && !number.starts_with('0'));
                    spelled && number.parse().is_ok_and(|value: u32| (range.from..=range.to).contains(&value))
                };
                ranges.iter().any(is_in) && fits(rest, tail)
            })
        }
    }
}

/// The bracket list of these names, by what comes before their last number; [`expand`] gives them back, sorted.
pub fn fold<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut plain = BTreeSet::new();
    let mut numbered: BTreeMap<(&str, usize), BTreeSet<u32>> = BTreeMap::new();
    let split: Vec<(&str, &str)> = names.into_iter().map(split_number).collect();
    // A number of two digits goes with 08 and 09 where there are such, else with 8 and 9.
    let padded: BTreeSet<(&str, usize)> = split
        .iter()
        .filter(|(_, digits)| digits.len() > 1 && digits.starts_with('0'))
        .map(|(head, digits)| (*head, digits.len()))
        .collect();
    for (head, digits) in split {
        let width = if padded.contains(&(head, digits.len())) { digits.len() } else { 1 };
        match digits.parse() {
            Ok(number) => {
                numbered.entry((head, width)).or_default().insert(number);
            }
            Err(_) => {
                plain.insert(head);
            }
        }
    }
    let of_numbers = numbered.iter().map(|((head, width), numbers)| bracket(head, *width, numbers));
    plain.iter().map(ToString::to_string).chain(of_numbers).collect::<Vec<_>>().join(",")
}

/// What comes before the last number, and that number; no number where there is none or one too large.
fn split_number(name: &str) -> (&str, &str) {
    let start = name.rfind(|letter: char| !letter.is_ascii_digit()).map_or(0, |at| at + 1);
    let (head, digits) = name.split_at_checked(start).unwrap_or((name, ""));
    if digits.parse::<u32>().is_ok() { (head, digits) } else { (name, "") }
}

fn bracket(head: &str, width: usize, numbers: &BTreeSet<u32>) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let run = |&(from, to): &(u32, u32)| match from == to {
        true => format!("{from:0width$}"),
        false => format!("{from:0width$}-{to:0width$}"),
    };
    let inside = runs.iter().map(run).collect::<Vec<_>>().join(",");
    if numbers.len() == 1 { format!("{head}{inside}") } else { format!("{head}[{inside}]") }
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
            "[1][1][1][1][1][1][1][1][1][1][1][1][1]",
        ] {
            assert!(expand(list).is_err(), "{list}");
        }
        let zeros = "0".repeat(70_000);
        for list in [format!("n[{zeros}]"), format!("n[0-65535]{zeros}"), "[0-0]".repeat(20_000)] {
            assert!(expand(&list).is_err(), "{}", list.len());
        }
    }

    #[test]
    fn a_list_contains_just_the_names_that_it_expands_to() {
        let mut candidates: Vec<String> =
            ["n", "n1x", "", "n[1-3]", "n4294967296", "n-1"].map(String::from).to_vec();
        for head in ["n", "gpu", "r1n", "r2n"] {
            for number in 0..25 {
                candidates.extend([
                    format!("{head}{number}"),
                    format!("{head}{number:02}"),
                    format!("{head}{number:03}"),
                ]);
            }
        }
        for text in
            ["n[1-3,7]", "gpu[08-10],login", "r[1-2]n[1-2]", "n[1-12]2", "n[001-020],n5", "n[9-11][0-1]", ""]
        {
            let list = Hostlist::parse(text).unwrap();
            let names = list.names();
            assert!(names.iter().all(|name| list.contains(name)), "{text}");
            for name in &candidates {
                assert_eq!(list.contains(name), names.contains(name), "{text}: {name}");
            }
        }
    }

    #[test]
    fn folded_names_expand_to_the_same_names() {
        assert_eq!(fold(["n3", "n1", "n2", "n7", "n2"]), "n[1-3,7]");
        assert_eq!(fold(["gpu08", "gpu10", "gpu09", "login"]), "login,gpu[08-10]");
        assert_eq!(fold(["n8", "n9", "n10"]), "n[8-10]");
        assert_eq!(fold(["a-b", "n1-ib", "n99999999999"]), "a-b,n1-ib,n99999999999");
        assert_eq!(fold([]), "");
        for seed in 0..500u32 {
            let name = |at: u32| {
                let number = seed.wrapping_mul(2_654_435_761).wrapping_add(at.wrapping_mul(40_503)) >> 7;
                let head = ["n", "r1n", "gpu-"][usize::try_from(number % 3).unwrap()];
                let number = number / 3 % 130;
                if seed % 2 == 0 { format!("{head}{number}") } else { format!("{head}{number:03}") }
            };
            let names: BTreeSet<String> = (0..seed % 40).map(name).collect();
            let folded = fold(names.iter().map(String::as_str));
            assert_eq!(expand(&folded).unwrap().into_iter().collect::<BTreeSet<_>>(), names, "{folded}");
        }
    }
}
