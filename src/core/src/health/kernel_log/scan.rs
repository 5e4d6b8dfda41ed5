//! Small steps through a line.

use crate::model::PciAddress;

/// What stands behind the first `mark`.
pub(super) fn after<'a>(text: &'a str, mark: &str) -> Option<&'a str> {
    text.split_once(mark).map(|(_, rest)| rest)
}

/// What stands behind the last `mark`: in a line with a process name in it, that name cannot come after it.
pub(super) fn after_last<'a>(text: &'a str, mark: &str) -> Option<&'a str> {
    text.rsplit_once(mark).map(|(_, rest)| rest)
}

/// The decimal number at the start, and the rest.
pub(super) fn number(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    Some((digits.parse().ok()?, rest))
}

/// The hexadecimal number at the start, with or without `0x`, and the rest.
pub(super) fn hex(text: &str) -> Option<(u64, &str)> {
    let text = text.strip_prefix("0x").unwrap_or(text);
    let end = text.find(|letter: char| !letter.is_ascii_hexdigit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    Some((u64::from_str_radix(digits, 16).ok()?, rest))
}

/// The PCI address at the start, and what follows its last digit.
pub(super) fn address(text: &str) -> Option<(PciAddress, &str)> {
    let part_of_it = |letter: char| letter.is_ascii_hexdigit() || letter == ':' || letter == '.';
    let end = text.find(|letter: char| !part_of_it(letter)).unwrap_or(text.len());
    // A sentence may go on with a colon or a full stop.
    let word = text[..end].trim_end_matches([':', '.']);
    Some((word.parse().ok()?, &text[word.len()..]))
}

/// An address that may lack its domain, as the IOMMU prints it.
pub(super) fn short_address(text: &str) -> Option<PciAddress> {
    text.parse().or_else(|_| format!("0000:{text}").parse()).ok()
}
