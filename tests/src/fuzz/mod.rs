//! What every reader of foreign text must keep to, whatever it is given.
//!
//! A target takes any bytes, hands them to one reader of gpuward, and panics where a promise is broken: what parses
//! serialises and parses to the same, an error names a line that is there, no text from outside leaves the one printable
//! line that it is shown on, and output stays in proportion to input. Two runners share the targets: `tests/tests/fuzz.rs`
//! on any toolchain, with the corpus and [`mutate`], and `fuzz/` with libFuzzer.

mod cgroups;
mod config;
mod ids;
mod jobs;
mod judging;
mod kernel_log;
mod lists;
mod matrix;
pub mod mutate;
mod slurm;
mod snapshots;

use std::path::{Path, PathBuf};

/// One reader under test.
#[derive(Debug)]
pub struct Target {
    /// The name of its folder in the corpus.
    pub name: &'static str,
    /// Checks one input.
    pub check: fn(&[u8]),
    /// Words that its texts are made of.
    pub words: &'static [&'static str],
    /// How many mutated inputs every test run tries: fewer where one takes longer.
    pub rounds: u32,
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target { name: "cgroup", check: cgroups::check, words: cgroups::WORDS, rounds: 1500 },
    Target { name: "config", check: config::check, words: config::WORDS, rounds: 1500 },
    Target { name: "cpu_list", check: lists::cpu_list, words: lists::WORDS, rounds: 2000 },
    Target { name: "gres_conf", check: slurm::gres_conf, words: slurm::GRES_WORDS, rounds: 700 },
    Target { name: "hostlist", check: lists::hostlist, words: lists::WORDS, rounds: 700 },
    Target { name: "ids", check: ids::check, words: ids::WORDS, rounds: 3000 },
    Target { name: "job_record", check: jobs::record, words: jobs::WORDS, rounds: 700 },
    Target { name: "job_state", check: jobs::state, words: jobs::WORDS, rounds: 700 },
    Target { name: "kernel_log", check: kernel_log::check, words: kernel_log::WORDS, rounds: 2000 },
    Target { name: "probe_message", check: jobs::probe_message, words: jobs::WORDS, rounds: 700 },
    Target { name: "slurm_conf", check: slurm::slurm_conf, words: slurm::CONF_WORDS, rounds: 1500 },
    Target { name: "snapshot", check: snapshots::check, words: jobs::WORDS, rounds: 500 },
    Target { name: "topo_matrix", check: matrix::check, words: matrix::WORDS, rounds: 700 },
];

/// Longer inputs tell nothing new: libFuzzer is given the same bound.
pub const MAX_INPUT_BYTES: usize = 64 * 1024;

/// The target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// The inputs of a target that are kept, in the order of their names.
///
/// # Errors
/// The folder or a file cannot be read.
pub fn corpus(name: &str) -> std::io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz-corpus").join(name);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let bytes = std::fs::read(&path)?;
        files.push((path, bytes));
    }
    files.sort();
    Ok(files)
}

/// As the edges hand bytes on: what is not UTF-8 is replaced.
fn text(data: &[u8]) -> String {
    String::from_utf8_lossy(&data[..data.len().min(MAX_INPUT_BYTES)]).into_owned()
}

/// Shown to people: one line of printable ASCII, at most so long.
fn shown(what: &str, text: &str, max_bytes: usize) {
    assert!(text.len() <= max_bytes, "{what} is {} bytes long, {max_bytes} are promised", text.len());
    assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{what} leaves its line: {text:?}");
}

/// A line number in a message must be one of the text's, or the one behind its end.
fn line_is_there(line: usize, text: &str) {
    let lines = text.bytes().filter(|byte| *byte == b'\n').count() + 1;
    assert!((1..=lines).contains(&line), "line {line} of {lines}");
}
