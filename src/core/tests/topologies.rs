//! Every listing in tests/topologies is read, and what is missing or odd is said.
#![allow(clippy::tests_outside_test_module)]

use gpuward_core::model::topology::{Path, matrix};
use std::fmt::Write;
use std::path::Path as FilePath;

/// `UPDATE_GOLDEN=1` writes the list anew.
#[test]
fn every_listing_reads_as_its_golden_says() {
    let root = FilePath::new(env!("CARGO_MANIFEST_DIR"));
    let golden = root.join("tests/golden/topologies.txt");
    let mut files: Vec<_> =
        std::fs::read_dir(root.join("../../tests/topologies")).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    let mut out = String::new();
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        writeln!(out, "{}\n{}", file.file_name().unwrap().to_string_lossy(), of(&text)).unwrap();
        let facts = text.contains("# completeness: facts");
        assert_eq!(matrix::parse(&text).is_err(), facts, "{}", file.display());
    }
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&golden, &out).unwrap();
    }
    assert_eq!(out, std::fs::read_to_string(&golden).unwrap(), "UPDATE_GOLDEN=1 writes it");
}

fn of(text: &str) -> String {
    let topology = match matrix::parse(text) {
        Ok(topology) => topology,
        Err(error) => return format!("  refused: {error}\n"),
    };
    let known = topology.paths.iter().flatten().filter(|path| **path != Path::Unknown).count();
    let mut out = format!(
        "  {} GPUs, {} NICs, {known} of {} cells\n",
        topology.gpus.len(),
        topology.nics.len(),
        topology.paths.len().pow(2)
    );
    for gpu in &topology.gpus {
        let cpus = gpu.cpus.as_ref().map_or_else(|| "?".to_owned(), ToString::to_string);
        let _ = writeln!(
            out,
            "  {} cpus {cpus} numa {:?} memory {:?}",
            gpu.name, gpu.numa_nodes, gpu.memory_node
        );
    }
    for note in &topology.notes {
        let _ = writeln!(out, "  note: {note}");
    }
    out
}
