//! Machines from elsewhere become scenarios, and gpuward sees there what the source said.
#![allow(clippy::tests_outside_test_module)]

use gpuward_core::model::topology::{Path, PathClass, matrix};
use gpuward_core::model::{Snapshot, SnapshotFile, Topology};
use gpuward_tests::import::{Imported, facts, of_snapshot, of_topology};
use gpuward_tests::sim::{Bench, scenario};
use nvidia_ml::scenario::Machine;
use std::path::{Path as FilePath, PathBuf};

/// The files of a folder of tests/ with this extension.
fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let folder = FilePath::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|found| found == extension));
    files.sort();
    assert!(!files.is_empty());
    files
}

fn stem(file: &FilePath) -> String {
    file.file_stem().unwrap().to_string_lossy().into_owned()
}

/// What gpuward says of an imported machine that it finds itself on.
fn seen(bench: &mut Bench, imported: &Imported) -> SnapshotFile {
    let machine = imported.machine.clone();
    bench.change_machine(|old| *old = machine);
    bench.snapshot()
}

/// A file that is no listing is a table of facts.
fn topologies(file: &FilePath) -> Vec<(String, Topology)> {
    let text = std::fs::read_to_string(file).unwrap();
    match matrix::parse(&text) {
        Ok(topology) => vec![(stem(file), topology)],
        Err(_) => {
            let machines = facts::parse(&text).unwrap_or_default();
            machines.into_iter().map(|(part, topology)| (format!("{}{part}", stem(file)), topology)).collect()
        }
    }
}

#[test]
fn gpuward_sees_the_distances_of_every_listing_on_the_machine_made_from_it() {
    let like = Machine::load(&scenario("hgx-h100")).unwrap();
    let mut bench = Bench::new("hgx-h100", "observe", "");
    let mut refused = Vec::new();
    for file in files("topologies", "txt") {
        let topologies = topologies(&file);
        if topologies.is_empty() {
            refused.push(stem(&file));
        }
        for (name, listed) in topologies {
            let imported =
                of_topology(&name, &listed, &like).unwrap_or_else(|error| panic!("{name}: {error}"));
            let shown = Topology::of_snapshot(&seen(&mut bench, &imported).snapshot);
            compare(&name, &listed, &shown);
        }
    }
    // The one table that is about NICs only.
    assert_eq!(refused, ["gcp_a3high_facts"]);
}

fn compare(name: &str, listed: &Topology, shown: &Topology) {
    assert_eq!((shown.gpus.len(), shown.nics.len()), (listed.gpus.len(), listed.nics.len()), "{name}");
    for (place, gpu) in listed.gpus.iter().enumerate() {
        // The listing's order is not always that of the addresses: minors keep it.
        let found = shown.gpus.iter().find(|found| found.minor == u32::try_from(place).ok()).unwrap();
        if gpu.cpus.is_some() && !name.contains("wrong_affinity") {
            assert_eq!(found.cpus, gpu.cpus, "{name} {}", gpu.name);
        }
        assert_eq!(found.memory_node, gpu.memory_node, "{name} {}", gpu.name);
    }
    let order: Vec<usize> = (0..listed.gpus.len())
        .map(|place| shown.gpus.iter().position(|gpu| gpu.minor == u32::try_from(place).ok()).unwrap())
        .chain((0..listed.nics.len()).map(|nic| {
            let device = listed.nics[nic].device.clone().unwrap_or_else(|| format!("mlx5_{nic}"));
            let place = shown.nics.iter().position(|shown| shown.device.as_ref() == Some(&device)).unwrap();
            listed.gpus.len() + place
        }))
        .collect();
    let names = listed.device_names();
    for a in 0..names.len() {
        for b in 0..names.len() {
            let same = match (listed.path(a, b), shown.path(order[a], order[b])) {
                (Path::Unknown, _) => true,
                (Path::NvLink { links, .. }, Path::NvLink { links: found, .. }) => links == found,
                // The one difference that the importer allows itself and tells.
                (Path::Pcie(PathClass::Sys), Path::Pcie(PathClass::Node)) => true,
                // No firmware says where such a device is; a listing prints SYS.
                (Path::Pcie(PathClass::Sys), Path::Unknown) => true,
                (listed, found) => listed == found,
            };
            let (l, s) = (listed.path(a, b), shown.path(order[a], order[b]));
            assert!(
                same,
                "{name}: {} to {} is {l} in the listing and {s} on the machine",
                names[a], names[b]
            );
        }
    }
}

#[test]
fn the_machine_of_a_snapshot_gives_the_same_snapshot() {
    let mut all = Vec::new();
    for file in files("scenarios", "toml") {
        let name = stem(&file);
        let mut bench = Bench::new(&name, "observe", "");
        let first = bench.snapshot();
        let imported = of_snapshot(&first).unwrap_or_else(|error| panic!("{name}: {error}"));
        let again = seen(&mut bench, &imported);
        let (first, again) = (at_rest(first.snapshot), at_rest(again.snapshot));
        let differences = differences("", &json(&first), &json(&again));
        all.extend(differences.iter().map(|difference| format!("{name} {difference}")));
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

/// Without what time changes.
fn at_rest(mut snapshot: Snapshot) -> Snapshot {
    snapshot.boottime_ns = 0;
    snapshot.probe = gpuward_core::model::snapshot::ProbeOutcome::NotStarted;
    for gpu in &mut snapshot.gpus {
        gpu.reading.took_us = 0;
        gpu.reading.counters.energy_mj = gpu.reading.counters.energy_mj.map(|_| 0);
    }
    snapshot
}

fn json(snapshot: &Snapshot) -> serde_json::Value {
    serde_json::to_value(snapshot).unwrap()
}

/// Where two values differ, by path.
fn differences(at: &str, a: &serde_json::Value, b: &serde_json::Value) -> Vec<String> {
    use serde_json::Value;
    match (a, b) {
        (Value::Object(left), Value::Object(right)) if left.keys().eq(right.keys()) => left
            .iter()
            .flat_map(|(key, value)| differences(&format!("{at}.{key}"), value, &right[key]))
            .collect(),
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            let pairs = left.iter().zip(right).enumerate();
            pairs
                .flat_map(|(place, (left, right))| differences(&format!("{at}[{place}]"), left, right))
                .collect()
        }
        _ if a == b => Vec::new(),
        _ => vec![format!("{at}: {a} became {b}")],
    }
}
