//! The exported symbols of the built library are exactly those of the golden list `symbols.txt`.

// Integration tests have no test module.
#![allow(clippy::tests_outside_test_module)]

use std::collections::BTreeSet;
use std::fs;

/// Little-endian number of `N` bytes at a place.
fn number<const N: usize>(file: &[u8], at: usize) -> usize {
    let mut bytes = [0; 8];
    bytes[..N].copy_from_slice(&file[at..at + N]);
    usize::try_from(u64::from_le_bytes(bytes)).unwrap()
}

/// First section of a type, as place in the section table.
fn section_of(file: &[u8], kind: usize) -> usize {
    let (sections, entry, count) =
        (number::<8>(file, 0x28), number::<2>(file, 0x3a), number::<2>(file, 0x3c));
    (0..count).map(|i| sections + i * entry).find(|&at| number::<4>(file, at + 4) == kind).unwrap()
}

/// Start and end in the file of a section.
fn extent(file: &[u8], section: usize) -> std::ops::Range<usize> {
    let start = number::<8>(file, section + 0x18);
    start..start + number::<8>(file, section + 0x20)
}

/// Start in the file of the string table that a section is linked to.
fn names_of(file: &[u8], section: usize) -> usize {
    let (sections, entry) = (number::<8>(file, 0x28), number::<2>(file, 0x3a));
    number::<8>(file, sections + number::<4>(file, section + 0x28) * entry + 0x18)
}

fn text(file: &[u8], at: usize) -> String {
    let bytes = file[at..].iter().copied().take_while(|&byte| byte != 0).collect();
    String::from_utf8(bytes).unwrap()
}

/// Names of the defined dynamic symbols of a 64-bit ELF file, read from its section table.
fn exported(file: &[u8]) -> BTreeSet<String> {
    const SHT_DYNSYM: usize = 11;
    const SYMBOL_SIZE: usize = 24;
    assert_eq!(&file[..5], b"\x7fELF\x02", "not a 64-bit ELF file");
    let dynsym = section_of(file, SHT_DYNSYM);
    let symbols = extent(file, dynsym).step_by(SYMBOL_SIZE);
    let defined = symbols.filter(|&at| number::<2>(file, at + 6) != 0);
    defined.map(|at| text(file, names_of(file, dynsym) + number::<4>(file, at))).collect()
}

fn soname(file: &[u8]) -> Option<String> {
    const SHT_DYNAMIC: usize = 6;
    const DT_SONAME: usize = 14;
    let dynamic = section_of(file, SHT_DYNAMIC);
    let entry = extent(file, dynamic).step_by(16).find(|&at| number::<8>(file, at) == DT_SONAME)?;
    Some(text(file, names_of(file, dynamic) + number::<8>(file, entry + 8)))
}

#[test]
fn exported_symbols_are_the_golden_list() {
    let library = nvidia_ml::built_library().unwrap();
    let found: Vec<String> = exported(&fs::read(library).unwrap()).into_iter().collect();
    let golden: Vec<&str> = include_str!("symbols.txt").lines().collect();
    assert!(found.iter().all(|name| name.starts_with("nvml")), "a symbol that is not NVML's: {found:?}");
    assert_eq!(
        found,
        golden,
        "exported symbols changed; if on purpose, put this into tests/symbols.txt:\n{}",
        found.join("\n")
    );
}

#[test]
fn the_soname_is_the_one_that_clients_open() {
    let library = nvidia_ml::built_library().unwrap();
    assert_eq!(soname(&fs::read(library).unwrap()).as_deref(), Some("libnvidia-ml.so.1"));
}
