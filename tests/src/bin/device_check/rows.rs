//! The rows of the table that come of comparing readings.

use super::values::{Flat, Outcome, compare, flatten, show};
use super::{smi, values};
use gpuward_core::model::{GpuReading, SnapshotFile};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// One line of the table.
#[derive(Debug, Clone)]
pub struct Row {
    /// Which part of the check.
    pub step: &'static str,
    /// What was looked at.
    pub what: String,
    /// What was seen.
    pub says: String,
    /// What that means.
    pub verdict: Verdict,
    /// Where and how things differ, one line each.
    pub details: Vec<String>,
}

/// The last column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Both say the same.
    Agrees,
    /// They do not, or something is not as it should be.
    Differs,
    /// Nothing to compare with.
    NotComparable,
    /// A number, without an opinion.
    Measured,
    /// Not done, for the reason in the row.
    LeftOut,
}

impl Verdict {
    /// The word in the table.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Agrees => "agrees",
            Verdict::Differs => "**differs**",
            Verdict::NotComparable => "not comparable",
            Verdict::Measured => "measured",
            Verdict::LeftOut => "left out",
        }
    }
}

impl Row {
    /// A row without details.
    pub fn new(step: &'static str, what: &str, says: String, verdict: Verdict) -> Row {
        Row { step, what: what.to_owned(), says, verdict, details: Vec::new() }
    }
}

/// What one reader said of a machine: the node, and each GPU by address.
#[derive(Debug, Default)]
pub struct Said {
    /// Who.
    pub reader: String,
    /// Values of the node.
    pub node: Flat,
    /// Values of each GPU.
    pub gpus: BTreeMap<String, Flat>,
    /// How far off power may be by the reader's own rounding: nvidia-smi prints hundredths of a watt.
    pub exactness_mw: f64,
}

/// gpuward's snapshot.
pub fn snapshot(path: &Path) -> Option<(Said, SnapshotFile)> {
    let file = SnapshotFile::parse(&fs::read_to_string(path).ok()?).ok()?;
    let mut said = Said { reader: "gpuward".into(), ..Said::default() };
    flatten("", &serde_json::to_value(&file.snapshot.node).ok()?, &mut said.node);
    said.node.retain(|path, _| ["driver_version", "nvml_version", "gpu_count"].contains(&path.as_str()));
    for gpu in file.snapshot.gpus.iter().filter(|gpu| gpu.reading.handle.value().is_some()) {
        let flat = flat(&gpu.reading)?;
        said.gpus.insert(gpu.pci()?.to_string(), flat);
    }
    Some((said, file))
}

fn flat(reading: &GpuReading) -> Option<Flat> {
    let mut flat = Flat::new();
    flatten("", &serde_json::to_value(reading).ok()?, &mut flat);
    Some(flat)
}

/// The second reader's output: JSON of second.py, or nvidia-smi's XML.
pub fn second(path: &Path) -> Option<Said> {
    let text = fs::read_to_string(path).ok()?;
    if text.trim_start().starts_with('<') {
        let (node, gpus) = smi::parse(&text);
        return (!gpus.is_empty()).then(|| Said {
            reader: "nvidia-smi".into(),
            node,
            gpus,
            exactness_mw: 10.0,
        });
    }
    let all: Value = serde_json::from_str(&text).ok()?;
    let mut said = Said { reader: all["reader"].as_str()?.to_owned(), ..Said::default() };
    flatten("", &all["node"], &mut said.node);
    for gpu in all["gpus"].as_array()? {
        // Through the model, so that what is left out at its default is left out on both sides.
        let read = serde_json::from_value::<GpuReading>(gpu.clone()).ok().and_then(|reading| flat(&reading));
        let read = read.unwrap_or_else(|| {
            let mut raw = Flat::new();
            flatten("", gpu, &mut raw);
            raw
        });
        said.gpus.insert(gpu["pci"]["value"].as_str()?.to_owned(), read);
    }
    Some(said)
}

/// One value's comparison: where, what both said, what it came to.
#[derive(Debug, Clone)]
pub struct Compared {
    gpu: String,
    path: String,
    ours: String,
    theirs: String,
    outcome: Outcome,
}

/// Compares every value of two snapshots with what was said between them.
pub fn compared(before: &Said, second: &Said, after: &Said) -> Vec<Compared> {
    let mut all = Vec::new();
    let none = Flat::new();
    let mut one = |gpu: &str, before: &Flat, theirs: &Flat, after: &Flat| {
        let paths: BTreeSet<&String> = before.keys().chain(theirs.keys()).collect();
        for path in paths {
            let (a, s, b) = (before.get(path), theirs.get(path), after.get(path));
            let exactness = if path.contains("power.") { second.exactness_mw } else { 0.0 };
            all.push(Compared {
                gpu: gpu.to_owned(),
                path: path.clone(),
                ours: a.map_or_else(|| "-".to_owned(), show),
                theirs: s.map_or_else(|| "-".to_owned(), show),
                outcome: compare(path, a, b, s, exactness),
            });
        }
    };
    one("node", &before.node, &second.node, &after.node);
    for (gpu, ours) in &before.gpus {
        let theirs = second.gpus.get(gpu).unwrap_or(&none);
        one(gpu, ours, theirs, after.gpus.get(gpu).unwrap_or(&none));
    }
    all
}

/// Where a value agreed in one round it agrees: it moved in the others.
pub fn best(rounds: Vec<Vec<Compared>>) -> Vec<Compared> {
    let mut all: BTreeMap<(String, String), Compared> = BTreeMap::new();
    for compared in rounds.into_iter().flatten() {
        let key = (compared.gpu.clone(), compared.path.clone());
        let known = all.entry(key).or_insert_with(|| compared.clone());
        if known.outcome == Outcome::Differ && compared.outcome != Outcome::Differ {
            *known = compared;
        }
    }
    all.into_values().collect()
}

/// True where something differs.
pub fn any_differs(compared: &[Compared]) -> bool {
    compared.iter().any(|one| one.outcome == Outcome::Differ)
}

/// One row for each value, however many GPUs and links have it.
pub fn rows(step: &'static str, second: &str, compared: &[Compared]) -> Vec<Row> {
    let mut by_name: BTreeMap<String, Vec<&Compared>> = BTreeMap::new();
    for one in compared {
        by_name.entry(values::name(&one.path)).or_default().push(one);
    }
    by_name.iter().map(|(name, all)| row(step, second, name, all)).collect()
}

fn row(step: &'static str, second: &str, name: &str, all: &[&Compared]) -> Row {
    let of = |wanted: &dyn Fn(&Outcome) -> bool| all.iter().filter(|one| wanted(&one.outcome)).count();
    let agree = of(&|outcome| *outcome == Outcome::Agree);
    let differ = of(&|outcome| *outcome == Outcome::Differ);
    let open = all.iter().find_map(|one| match one.outcome {
        Outcome::Open(why) => Some(why),
        _ => None,
    });
    let first = all.first().map(|one| shorten(&one.ours, 60)).unwrap_or_default();
    let alike = all.iter().all(|one| all.first().is_some_and(|first| first.ours == one.ours));
    let example = match (all.len(), alike) {
        (1, _) => first,
        (count, true) => format!("all {count}: {first}"),
        (count, false) => format!("{count}, the first: {first}"),
    };
    let mut says = match (agree, differ) {
        (_, 0) if agree == all.len() || agree == 0 => example,
        (_, 0) => format!("{example}; {agree} compared"),
        _ => format!("{differ} of {} differ, {agree} agree", all.len()),
    };
    if let Some(why) = open {
        says.push_str(&format!("; {why}"));
    }
    let detail = |one: &&&Compared| {
        format!("{step}: `{}` of {}: gpuward {}, {second} {}", one.path, one.gpu, one.ours, one.theirs)
    };
    let verdict = match (agree, differ) {
        (_, 1..) => Verdict::Differs,
        (1.., 0) => Verdict::Agrees,
        (0, 0) => Verdict::NotComparable,
    };
    let details = all.iter().filter(|one| one.outcome == Outcome::Differ).map(|one| detail(&one)).collect();
    Row { step, what: format!("`{name}`"), says, verdict, details }
}

/// A long text cut for the table; the files beside it have the whole.
pub fn shorten(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let start: String = text.chars().take(most).collect();
    format!("{start}...")
}

/// GPUs that one of the two sees and the other does not, and what the kernel says of each.
pub fn sets_of_gpus(said: &Said, file: &SnapshotFile, second: &Said) -> Vec<Row> {
    let (ours, theirs): (BTreeSet<&String>, BTreeSet<&String>) =
        (said.gpus.keys().collect(), second.gpus.keys().collect());
    let mut row = Row::new("values", "GPUs that open", format!("{}", ours.len()), Verdict::Agrees);
    for gpu in ours.symmetric_difference(&theirs) {
        let who = if ours.contains(gpu) { "gpuward" } else { &second.reader };
        row.verdict = Verdict::Differs;
        row.details.push(format!("values: {gpu} is seen by {who} only"));
    }
    let mut kernel = Row::new(
        "values",
        "/proc/driver/nvidia/gpus",
        "UUID and minor number as NVML says them".into(),
        Verdict::Agrees,
    );
    if file.snapshot.host.driver_gpus.is_empty() {
        kernel.says = "lists no GPU".into();
        kernel.verdict = Verdict::NotComparable;
    }
    for listed in &file.snapshot.host.driver_gpus {
        let Some(gpu) = second.gpus.get(&listed.pci.to_string()) else { continue };
        let pairs = [
            ("uuid", listed.uuid.as_ref().map(ToString::to_string)),
            ("minor", listed.minor.map(|minor| minor.to_string())),
        ];
        for (key, kernel_says) in pairs {
            let nvml_says = gpu.get(key).map(show);
            if kernel_says.is_some() && nvml_says.is_some() && kernel_says != nvml_says {
                kernel.verdict = Verdict::Differs;
                kernel.details.push(format!(
                    "values: {key} of {}: the kernel says {}, {} {}",
                    listed.pci,
                    kernel_says.unwrap_or_default(),
                    second.reader,
                    nvml_says.unwrap_or_default()
                ));
            }
        }
    }
    vec![row, kernel]
}

/// The simulated machine made of this one, against this one.
pub fn of_fake(real: &Said, fake: &Said) -> Vec<Compared> {
    let mut all = compared(real, fake, real);
    // The counter goes on from boot at the draw of the moment: it says nothing about the library.
    all.retain(|one| one.path != "counters.energy_mj");
    for one in &mut all {
        if matches!(one.outcome, Outcome::Open(_)) {
            one.outcome = Outcome::Differ;
        }
    }
    all
}
