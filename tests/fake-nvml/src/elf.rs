//! The dynamic symbols of a 64-bit ELF file: which there are, and how to take one away.
//!
//! A driver's library that lacks a function is played by a copy in which the function's name is another one. The
//! dynamic loader finds a name through its hash and then compares the text: an altered text is not found.

use std::collections::BTreeSet;
use std::ops::Range;

/// A file that is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ElfError {
    /// Not ELF, not 64 bits, not little-endian, or cut off.
    #[error("not a whole 64-bit ELF shared library: {0}")]
    Malformed(&'static str),
    /// No such symbol.
    #[error("the library exports no function {0}")]
    Unknown(String),
    /// Cannot be renamed alone.
    #[error("the name {0} is part of another name in the library")]
    Shared(String),
}

use ElfError::Malformed;

/// One entry of the dynamic symbol table.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Symbol {
    /// Where its name starts in the file.
    name_at: usize,
    name: String,
    defined: bool,
}

const SHT_DYNAMIC: u64 = 6;
const SHT_DYNSYM: u64 = 11;
const SYMBOL_BYTES: usize = 24;

/// What a defined symbol's name begins with once it is taken away: no name of NVML begins so.
const GONE: u8 = b'-';

/// Names of the functions that a library exports.
pub fn exported(file: &[u8]) -> Result<BTreeSet<String>, ElfError> {
    let known = symbols(file)?.into_iter().filter(|symbol| symbol.defined);
    Ok(known.map(|symbol| symbol.name).filter(|name| !name.starts_with(char::from(GONE))).collect())
}

/// The name that clients know the library by.
pub fn soname(file: &[u8]) -> Result<Option<String>, ElfError> {
    const DT_SONAME: u64 = 14;
    let Some(dynamic) = section(file, SHT_DYNAMIC)? else { return Ok(None) };
    let names = linked(file, dynamic)?;
    for entry in content(file, dynamic)?.step_by(16) {
        if number::<8>(file, entry)? == DT_SONAME {
            return text(file, &names, number::<8>(file, entry + 8)?).map(|(_, name)| Some(name));
        }
    }
    Ok(None)
}

/// Takes functions away: the loader does not find them any more, and everything else stays.
pub fn take_away(file: &mut [u8], functions: &[String]) -> Result<(), ElfError> {
    let all = symbols(file)?;
    for function in functions {
        let found = all.iter().find(|symbol| symbol.defined && symbol.name == *function);
        let Symbol { name_at, .. } = *found.ok_or_else(|| ElfError::Unknown(function.clone()))?;
        // A linker may keep one text for two names where one ends as the other does.
        let own = name_at..=name_at + function.len();
        let shared = all.iter().any(|other| other.name != *function && own.contains(&other.name_at));
        let tail = file.get(name_at.wrapping_sub(1)) != Some(&0);
        if shared || tail {
            return Err(ElfError::Shared(function.clone()));
        }
        *file.get_mut(name_at).ok_or(Malformed("a name lies outside"))? = GONE;
    }
    Ok(())
}

fn symbols(file: &[u8]) -> Result<Vec<Symbol>, ElfError> {
    const CLASS_64_LITTLE: &[u8] = b"\x7fELF\x02\x01";
    if !file.starts_with(CLASS_64_LITTLE) {
        return Err(Malformed("wrong head"));
    }
    let table = section(file, SHT_DYNSYM)?.ok_or(Malformed("no dynamic symbols"))?;
    let names = linked(file, table)?;
    let one = |at: usize| {
        let (name_at, name) = text(file, &names, number::<4>(file, at)?)?;
        Ok(Symbol { name_at, name, defined: number::<2>(file, at + 6)? != 0 })
    };
    content(file, table)?.step_by(SYMBOL_BYTES).map(one).collect()
}

/// Where the head of the first section of a kind lies.
fn section(file: &[u8], kind: u64) -> Result<Option<usize>, ElfError> {
    for index in 0..number::<2>(file, 0x3c)? {
        let head = section_head(file, index)?;
        if number::<4>(file, head + 4)? == kind {
            return Ok(Some(head));
        }
    }
    Ok(None)
}

fn section_head(file: &[u8], index: u64) -> Result<usize, ElfError> {
    let (table, entry_bytes) = (number::<8>(file, 0x28)?, number::<2>(file, 0x3a)?);
    let head = index.checked_mul(entry_bytes).and_then(|offset| offset.checked_add(table));
    // The head itself has 64 bytes, so that places inside it can be added to.
    let head = head.filter(|head| head.checked_add(64).is_some_and(|end| end <= file.len() as u64));
    head.and_then(|head| usize::try_from(head).ok()).ok_or(Malformed("a section lies outside"))
}

/// The part of the file that a section holds.
fn content(file: &[u8], head: usize) -> Result<Range<usize>, ElfError> {
    let (start, length) = (number::<8>(file, head + 0x18)?, number::<8>(file, head + 0x20)?);
    let end = start.checked_add(length).filter(|&end| end <= file.len() as u64);
    match (usize::try_from(start), end.and_then(|end| usize::try_from(end).ok())) {
        (Ok(start), Some(end)) => Ok(start..end),
        _ => Err(Malformed("a section lies outside")),
    }
}

/// The table of texts that a section refers to.
fn linked(file: &[u8], head: usize) -> Result<Range<usize>, ElfError> {
    content(file, section_head(file, number::<4>(file, head + 0x28)?)?)
}

/// A text of a table: where it starts in the file, and itself.
fn text(file: &[u8], table: &Range<usize>, offset: u64) -> Result<(usize, String), ElfError> {
    let outside = Malformed("a name lies outside");
    let start = usize::try_from(offset).ok().and_then(|offset| table.start.checked_add(offset));
    let Some(rest) = start.and_then(|start| file.get(start..table.end)) else { return Err(outside) };
    let length = rest.iter().position(|&byte| byte == 0);
    let bytes = length.and_then(|length| rest.get(..length));
    match (start, bytes.map(|bytes| String::from_utf8(bytes.to_vec()))) {
        (Some(start), Some(Ok(name))) => Ok((start, name)),
        _ => Err(outside),
    }
}

/// Little-endian number of `N` bytes.
fn number<const N: usize>(file: &[u8], at: usize) -> Result<u64, ElfError> {
    let bytes = at.checked_add(N).and_then(|end| file.get(at..end)).ok_or(Malformed("cut off"))?;
    Ok(bytes.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_cut_off_or_garbage_are_refused_and_never_panic() {
        assert_eq!(exported(b""), Err(Malformed("wrong head")));
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(exported(&own).is_ok());
        for length in [6, 0x30, 0x3d, 64, 4096, own.len() / 2] {
            assert!(exported(&own[..length]).is_err(), "{length}");
        }
        // Heads with every byte wrong in turn.
        for at in 0..64 {
            let mut bent = own.clone();
            bent[at] ^= 0xff;
            let _ = exported(&bent);
        }
    }

    #[test]
    fn a_name_that_another_symbol_shares_is_not_touched() {
        let mut file = std::fs::read(crate::built_library().unwrap()).unwrap();
        let table = section(&file, SHT_DYNSYM).unwrap().unwrap();
        let names = symbols(&file).unwrap();
        let entry = |name: &str| {
            let place = names.iter().position(|symbol| symbol.name == name).unwrap();
            content(&file, table).unwrap().start + place * SYMBOL_BYTES
        };
        // nvmlShutdown becomes the end of nvmlDeviceGetName, as a linker does where two names end alike.
        let (long, short) = (entry("nvmlDeviceGetName"), entry("nvmlShutdown"));
        let inside = u32::try_from(number::<4>(&file, long).unwrap()).unwrap() + 10;
        file[short..short + 4].copy_from_slice(&inside.to_le_bytes());
        let before = file.clone();
        let refused = Err(ElfError::Shared("nvmlDeviceGetName".into()));
        assert_eq!(take_away(&mut file, &["nvmlDeviceGetName".into()]), refused);
        assert_eq!(take_away(&mut file, &["GetName".into()]), Err(ElfError::Shared("GetName".into())));
        assert!(file == before);
    }
}
