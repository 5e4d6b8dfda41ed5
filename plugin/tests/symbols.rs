//! What the object exports, what it needs, and how it is linked.
#![allow(clippy::tests_outside_test_module, reason = "the whole file is a test")]
#![allow(clippy::disallowed_methods, reason = "the test starts programs, not the plugin")]

mod common;

use common::plugin;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

fn tool(program: &str, args: &[&str], file: &Path) -> String {
    let output = Command::new(program)
        .args(args)
        .arg(file)
        .output()
        .unwrap_or_else(|error| panic!("cannot run {program}: {error}; install the package binutils"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Names in an `nm` listing, without the symbol's version.
fn names(listing: &str) -> BTreeSet<&str> {
    listing.lines().filter_map(|line| line.split_whitespace().last()?.split('@').next()).collect()
}

/// Where Debian, Ubuntu, RHEL and a build from source keep it.
fn libslurmfull() -> Option<std::path::PathBuf> {
    let folders =
        ["/usr/lib/x86_64-linux-gnu/slurm-wlm", "/usr/lib64/slurm", "/usr/lib/slurm", "/usr/local/lib/slurm"];
    folders.iter().map(|folder| Path::new(folder).join("libslurmfull.so")).find(|path| path.is_file())
}

#[test]
fn exactly_the_hooks_and_the_version_data_are_exported() {
    let listing = tool("nm", &["-D", "--defined-only"], &plugin());
    let golden: BTreeSet<&str> = include_str!("exported.golden").lines().collect();
    assert_eq!(names(&listing), golden);
}

#[test]
fn nothing_is_needed_that_a_supported_slurm_lacks() {
    let listing = tool("nm", &["-D", "--undefined-only"], &plugin());
    let slurm: BTreeSet<&str> = names(&listing)
        .into_iter()
        .filter(|name| name.starts_with("spank_") || name.starts_with("slurm_"))
        .collect();
    let golden: BTreeSet<&str> = include_str!("needed.golden").lines().collect();
    assert_eq!(slurm, golden);
    let library =
        libslurmfull().expect("libslurmfull.so: install slurm-wlm-basic-plugins (Debian) or slurm (RHEL)");
    let offered = tool("nm", &["-D", "--defined-only"], &library);
    let missing: Vec<_> = golden.difference(&names(&offered)).copied().collect();
    assert!(missing.is_empty(), "{missing:?} not in {}", library.display());
    // What is not Slurm's carries the version of the C library's or of libgcc's symbols, or is weak.
    for line in listing.lines() {
        let name = line.split_whitespace().last().unwrap_or_default();
        let known = name.contains("@GLIBC_") || name.contains("@GCC_") || line.contains(" w ");
        assert!(known || golden.contains(name), "{line}");
    }
}

#[test]
fn libslurm_is_not_linked() {
    let dynamic = tool("readelf", &["-dW"], &plugin());
    let needed: Vec<&str> = dynamic.lines().filter(|line| line.contains("(NEEDED)")).collect();
    assert!(!needed.is_empty() && needed.iter().all(|line| !line.contains("slurm")), "{needed:?}");
}

#[test]
fn the_object_stays_mapped_and_binds_at_once() {
    let dynamic = tool("readelf", &["-dW"], &plugin());
    assert!(dynamic.contains("BIND_NOW") && dynamic.contains("NODELETE"), "{dynamic}");
    assert!(dynamic.contains("Library soname: [spank_gpuward.so]"), "{dynamic}");
}

#[test]
fn the_highest_symbol_version_of_the_c_library_is_shown() {
    // Not asserted: it is that of the machine that builds. Releases are built on the oldest one supported.
    let listing = tool("nm", &["-D", "--undefined-only"], &plugin());
    let version = |line: &str| -> Option<Vec<u32>> {
        line.split_once("@GLIBC_")?.1.split('.').map(|part| part.parse().ok()).collect()
    };
    let highest = listing.lines().filter_map(version).max().expect("symbols of the C library");
    let text: Vec<String> = highest.iter().map(u32::to_string).collect();
    show(&format!("highest symbol version: GLIBC_{}", text.join(".")));
}

#[allow(clippy::disallowed_macros, reason = "a test's output, not the plugin's")]
fn show(text: &str) {
    println!("{text}");
}
