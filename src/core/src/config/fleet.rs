//! `[[expected]]` tables from the snapshots of a fleet.
//!
//! What is alike is folded into one table. What differs from its siblings is told apart: whether it is a fault or another
//! kind of node is not for a program to say.

use super::ComputeMode;
use crate::health::known::links_up;
use crate::model::detail::GpuDetail;
use crate::model::snapshot::ProbedGpu;
use crate::model::{Reading, SnapshotFile, hostlist};
use crate::text::escape;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Why no tables can be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FleetError {
    /// Two snapshots of one node.
    #[error("node {0} is in two of the snapshots; name one for each node")]
    Twice(String),
    /// A name that Slurm would not take.
    #[error("'{0}' is no name of a node: allowed are letters, digits, '.', '_' and '-'")]
    Name(String),
}

/// What a node is like; `None` where its GPUs differ or do not tell.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Shape {
    gpus: usize,
    model: Option<String>,
    nvlinks: Option<u32>,
    pcie_width: Option<u32>,
    mig: Option<Vec<String>>,
    power_limit_w: Option<u32>,
    compute_mode: Option<&'static str>,
}

/// The text of the tables, one for each kind of node.
///
/// # Errors
/// Two snapshots of one node, or a node without a proper name.
pub fn expected_tables(files: &[SnapshotFile]) -> Result<String, FleetError> {
    let mut kinds: BTreeMap<Shape, BTreeSet<&str>> = BTreeMap::new();
    let mut left_out = Vec::new();
    let mut seen = BTreeSet::new();
    for file in files {
        let name = file.node.as_str();
        let proper = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if name.is_empty() || !name.bytes().all(proper) {
            return Err(FleetError::Name(escape(name, 64)));
        }
        if !seen.insert(name) {
            return Err(FleetError::Twice(name.to_owned()));
        }
        match shape(file) {
            Ok(shape) => {
                kinds.entry(shape).or_default().insert(name);
            }
            Err(why) => left_out.push(format!("# {name} is left out: {why}.\n")),
        }
    }
    let mut out = format!(
        "# What {} nodes should be, made from their snapshots by 'gpuward gen expected'. Read it before it goes into\n\
         # gpuward.toml: it says what was there when the snapshots were taken, not what was ordered.\n",
        files.len()
    );
    for family in families(&kinds) {
        family.iter().for_each(|kind| write_kind(&mut out, *kind, family[0]));
    }
    if !left_out.is_empty() {
        out.push('\n');
        out.extend(left_out);
    }
    Ok(out)
}

type Kind<'a> = (&'a Shape, &'a BTreeSet<&'a str>);

/// Kinds of one model together, the most frequent first.
fn families<'a>(kinds: &'a BTreeMap<Shape, BTreeSet<&'a str>>) -> Vec<Vec<Kind<'a>>> {
    let mut by_model: BTreeMap<&Option<String>, Vec<Kind<'a>>> = BTreeMap::new();
    for kind in kinds {
        by_model.entry(&kind.0.model).or_default().push(kind);
    }
    let mut families: Vec<Vec<Kind<'a>>> = by_model.into_values().collect();
    for family in &mut families {
        // With as many nodes of two kinds the one with more GPUs counts as the whole one.
        family.sort_by_key(|(shape, nodes)| std::cmp::Reverse((nodes.len(), shape.gpus)));
    }
    families.sort_by_key(|family| family[0].1.first().copied());
    families
}

/// So many more siblings make a node an odd one rather than one of another kind. Ours.
const ODD_ONE_IN: usize = 4;

fn write_kind(out: &mut String, kind: Kind<'_>, siblings: Kind<'_>) {
    let (shape, nodes) = kind;
    let names = hostlist::fold(nodes.iter().copied());
    let count = if nodes.len() == 1 { "1 node".to_owned() } else { format!("{} nodes", nodes.len()) };
    let table = table(&names, shape);
    if shape == siblings.0 {
        let _ = write!(out, "\n# {count}\n{table}");
        return;
    }
    let _ = writeln!(out, "\n# {names} {}.", differs(shape, nodes.len(), siblings));
    if nodes.len() * (ODD_ONE_IN - 1) <= siblings.1.len() {
        out.push_str("# A fault: then the names belong into the list above. Another kind of node: then take off these '#'.\n");
        table.lines().for_each(|line| {
            let _ = writeln!(out, "# {line}");
        });
    } else {
        out.push_str(&table);
    }
}

/// `has 7 GPUs, its 31 siblings 8`.
fn differs(shape: &Shape, count: usize, (siblings, their_nodes): Kind<'_>) -> String {
    let number = |value: &Option<u32>| {
        value.map_or_else(|| "different numbers of".to_owned(), |value| value.to_string())
    };
    let power =
        |value: &Option<u32>| value.map_or_else(|| "the default".to_owned(), |watts| format!("{watts} W"));
    let mode = |value: &Option<&str>| value.unwrap_or("default").to_owned();
    let mig =
        |value: &Option<Vec<String>>| value.as_ref().map_or_else(|| "none".to_owned(), |list| list.join("+"));
    let pairs = [
        ("GPUs", shape.gpus.to_string(), siblings.gpus.to_string()),
        ("NVLinks for each GPU", number(&shape.nvlinks), number(&siblings.nvlinks)),
        ("PCIe lanes for each GPU", number(&shape.pcie_width), number(&siblings.pcie_width)),
        ("as MIG devices", mig(&shape.mig), mig(&siblings.mig)),
        ("as power limit", power(&shape.power_limit_w), power(&siblings.power_limit_w)),
        ("as compute mode", mode(&shape.compute_mode), mode(&siblings.compute_mode)),
    ];
    let (mut own, mut other) = (Vec::new(), Vec::new());
    for (what, mine, theirs) in pairs.into_iter().filter(|(_, mine, theirs)| mine != theirs) {
        own.push(format!("{mine} {what}"));
        other.push(theirs);
    }
    let (verb, whose) = if count == 1 { ("has", "its") } else { ("have", "their") };
    let who = if their_nodes.len() == 1 {
        "one sibling".to_owned()
    } else {
        format!("{} siblings", their_nodes.len())
    };
    format!("{verb} {}, {whose} {who} {}", own.join(" and "), other.join(" and "))
}

fn table(names: &str, shape: &Shape) -> String {
    let mut out = format!("[[expected]]\nnodes = {}\ngpus = {}\n", quoted(names), shape.gpus);
    let mut line = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = writeln!(out, "{key} = {value}");
        }
    };
    line("model", shape.model.as_deref().map(quoted));
    line("nvlinks", shape.nvlinks.filter(|&links| links > 0).map(|links| links.to_string()));
    line("pcie_width", shape.pcie_width.map(|lanes| lanes.to_string()));
    let profiles = |list: &Vec<String>| list.iter().map(|one| quoted(one)).collect::<Vec<_>>().join(", ");
    line("mig", shape.mig.as_ref().map(|list| format!("[{}]", profiles(list))));
    line("power_limit_w", shape.power_limit_w.map(|watts| watts.to_string()));
    line("compute_mode", shape.compute_mode.map(quoted));
    out
}

/// A TOML string.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            _ if letter.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(letter));
            }
            _ => out.push(letter),
        }
    }
    out + "\""
}

fn shape(file: &SnapshotFile) -> Result<Shape, String> {
    let gpus = &file.snapshot.gpus;
    if gpus.is_empty() {
        return Err("its snapshot has no GPU".into());
    }
    if let Some(silent) = gpus.iter().find(|gpu| gpu.reading.handle != Reading::Value(())) {
        return Err(format!("{} did not answer", crate::health::Subject::of(silent)));
    }
    let detail = |read: &dyn Fn(&GpuDetail) -> Option<u32>| {
        alike(gpus.iter().map(|gpu| gpu.reading.detail.as_deref().and_then(read)))
    };
    let lanes = |detail: &GpuDetail| {
        detail.pcie.width.value().copied().filter(|lanes| [1, 2, 4, 8, 16].contains(lanes))
    };
    let mode = detail(&|detail| detail.compute_mode.value().copied().filter(|&mode| mode != 0));
    Ok(Shape {
        gpus: gpus.len(),
        model: alike(gpus.iter().map(|gpu| gpu.reading.model.value().map(|model| escape(model, 96)))),
        nvlinks: detail(&links_up),
        pcie_width: detail(&lanes),
        mig: alike(gpus.iter().map(profiles)),
        power_limit_w: detail(&site_limit_w),
        compute_mode: mode.and_then(ComputeMode::word_of),
    })
}

/// The value that all have.
fn alike<T: PartialEq>(values: impl Iterator<Item = Option<T>>) -> Option<T> {
    let mut values = values;
    let first = values.next()??;
    values.all(|value| value.as_ref() == Some(&first)).then_some(first)
}

/// A limit that is not the factory's: somebody set it.
fn site_limit_w(detail: &GpuDetail) -> Option<u32> {
    let (limit, default) = (detail.power.limit_mw.value()?, detail.power.default_limit_mw.value()?);
    (limit != default && limit % 1000 == 0).then_some(limit / 1000)
}

/// The profiles of a GPU in MIG mode, ascending.
fn profiles(gpu: &ProbedGpu) -> Option<Vec<String>> {
    if gpu.reading.mig.value() != Some(&true) {
        return None;
    }
    let devices = &gpu.reading.detail.as_ref()?.mig.devices;
    let mut profiles: Vec<String> =
        devices.iter().map(|device| profile_of(device.name.value()?)).collect::<Option<_>>()?;
    profiles.sort();
    (!profiles.is_empty()).then_some(profiles)
}

/// `NVIDIA A100-SXM4-40GB MIG 1g.5gb` is a 1g.5gb.
fn profile_of(name: &str) -> Option<String> {
    let profile = name.rsplit(' ').next()?;
    super::expected::is_profile(profile).then(|| profile.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::health::Expected;
    use crate::model::Snapshot;

    fn node(name: &str, gpus: usize, links: u32) -> SnapshotFile {
        let links: Vec<_> =
            (0..links).map(|link| serde_json::json!({ "link": link, "up": { "value": true } })).collect();
        let gpu = serde_json::json!({ "target": {}, "reading": {
            "handle": { "value": null }, "model": { "value": "NVIDIA \"H\" 100" },
            "detail": { "nvlinks": links, "pcie": { "width": { "value": 16 } } },
        }});
        let gpu: ProbedGpu = serde_json::from_value(gpu).unwrap();
        SnapshotFile::new(
            name,
            Expected::default(),
            Snapshot { gpus: vec![gpu; gpus], ..Snapshot::default() },
        )
    }

    #[test]
    fn equal_nodes_are_one_table_and_an_odd_one_is_told_apart() {
        let mut fleet: Vec<SnapshotFile> = (1..=32).map(|at| node(&format!("n{at}"), 8, 18)).collect();
        fleet[6] = node("n7", 7, 18);
        let text = expected_tables(&fleet).unwrap();
        assert!(text.contains("# 31 nodes\n[[expected]]\nnodes = \"n[1-6,8-32]\"\ngpus = 8\n"), "{text}");
        assert!(text.contains("\n# n7 has 7 GPUs, its 31 siblings 8.\n# A fault: then"), "{text}");
        assert!(text.contains("\n# [[expected]]\n# nodes = \"n7\"\n# gpus = 7\n"), "{text}");
        let config = Config::parse_whole(&text, "made").unwrap();
        let of = |node: &str| config.expected_for(node).0;
        assert_eq!((of("n8").gpu_count.unwrap().0, of("n7")), (8, Expected::default()));
        assert_eq!(of("n8").model.unwrap().0, "NVIDIA \"H\" 100");
    }

    #[test]
    fn two_kinds_of_one_model_are_two_tables() {
        let fleet = [node("a1", 8, 18), node("a2", 8, 18), node("b1", 4, 6), node("b2", 4, 6)];
        let text = expected_tables(&fleet).unwrap();
        assert!(
            text.contains("# b[1-2] have 4 GPUs and 6 NVLinks for each GPU, their 2 siblings 8 and 18."),
            "{text}"
        );
        let config = Config::parse_whole(&text, "made").unwrap();
        let count = |node: &str| config.expected_for(node).0.gpu_count.map(|(count, _)| count);
        assert_eq!((count("a1"), count("b2")), (Some(8), Some(4)));
    }

    #[test]
    fn what_cannot_go_into_a_table_is_left_out_or_refused() {
        let mut silent = node("n2", 8, 18);
        silent.snapshot.gpus[3].reading.handle = Reading::TimedOut;
        let text = expected_tables(&[node("n1", 8, 0), silent]).unwrap();
        assert!(
            text.contains("# n2 is left out: GPU did not answer.") && !text.contains("nvlinks"),
            "{text}"
        );
        let error = |files: &[SnapshotFile]| expected_tables(files).unwrap_err().to_string();
        assert!(error(&[node("n1", 8, 0), node("n1", 8, 0)]).starts_with("node n1 is in two"));
        assert!(error(&[node("n[1]", 8, 0)]).starts_with("'n[1]' is no name"));
        assert!(error(&[node("", 8, 0)]).starts_with("'' is no name"));
    }
}
