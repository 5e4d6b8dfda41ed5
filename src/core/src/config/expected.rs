//! `[[expected]]`: what the nodes of a site should be.

use super::{Config, ConfigError};
use crate::health::Expected;
use crate::model::hostlist::Hostlist;
use serde::Deserialize;
use std::fmt;
use toml::Spanned;

/// One `[[expected]]` table. Every key but `nodes` may be left out: nothing is expected then.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedNodes {
    /// Slurm's names of the nodes, as a bracket list.
    pub nodes: Spanned<String>,
    /// How many GPUs.
    pub gpus: Option<Spanned<u32>>,
    /// What the model's name holds, whatever the case: "H100 80GB".
    pub model: Option<Spanned<String>>,
    /// NVLinks of every GPU.
    pub nvlinks: Option<Spanned<u32>>,
    /// PCIe lanes of every GPU.
    pub pcie_width: Option<Spanned<u32>>,
    /// MIG devices of every GPU by profile; empty: MIG is off.
    pub mig: Option<Spanned<Vec<String>>>,
    /// The power limit that the site sets, W.
    pub power_limit_w: Option<Spanned<u32>>,
    /// The compute mode that the site sets.
    pub compute_mode: Option<Spanned<ComputeMode>>,
}

/// Compute modes that a site may want; the fourth, exclusive thread, is gone since CUDA 8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ComputeMode {
    /// Any process may use the GPU.
    Default,
    /// One process at a time.
    ExclusiveProcess,
    /// None.
    Prohibited,
}

impl ComputeMode {
    /// `nvmlComputeMode_t` (nvml.h).
    pub fn number(self) -> u32 {
        match self {
            ComputeMode::Default => 0,
            ComputeMode::Prohibited => 2,
            ComputeMode::ExclusiveProcess => 3,
        }
    }

    /// The word in gpuward.toml; `None` for a mode that it has no word for.
    pub fn word_of(number: u32) -> Option<&'static str> {
        match number {
            0 => Some("default"),
            2 => Some("prohibited"),
            3 => Some("exclusive_process"),
            _ => None,
        }
    }
}

/// Two settings that say different things of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contradiction {
    node: String,
    key: &'static str,
    /// Value and place, the later one first.
    said: [(String, String); 2],
    /// Where the later one stands in the file.
    offset: usize,
}

impl fmt::Display for Contradiction {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [(value, place), (other, other_place)] = &self.said;
        let (key, node) = (self.key, crate::text::escape(&self.node, 64));
        write!(
            out,
            "{key} = {value} in {place}, but {other} in {other_place}: both name node {node}, allowed is one value for a node"
        )
    }
}

/// Where gpuward.toml says it, in findings.
const SOURCE: &str = "gpuward.toml";

/// One value, with the list of nodes that it is said of (`None`: all) and its place in the file.
struct Said<'a, T> {
    value: &'a T,
    nodes: Option<&'a str>,
    offset: usize,
}

impl<T: fmt::Debug> Said<'_, T> {
    fn names(&self, node: &str) -> bool {
        // A list that cannot be read is refused before it gets here.
        self.nodes.is_none_or(|list| Hostlist::parse(list).is_ok_and(|list| list.contains(node)))
    }

    fn told(&self) -> (String, String) {
        let place = self.nodes.map_or_else(
            || "[health] expected_gpus".to_owned(),
            |nodes| format!("[[expected]] nodes = \"{}\"", crate::text::escape(nodes, 60)),
        );
        (crate::text::escape(&format!("{:?}", self.value), 60), place)
    }
}

fn contradiction<T: fmt::Debug>(
    key: &'static str,
    node: &str,
    later: &Said<T>,
    first: &Said<T>,
) -> Contradiction {
    Contradiction { node: node.to_owned(), key, said: [later.told(), first.told()], offset: later.offset }
}

/// What is said of `node`, unless it is contradicted.
fn of_node<'a, T: PartialEq + fmt::Debug>(
    key: &'static str,
    all: Vec<Said<'a, T>>,
    node: &str,
    against: &mut Vec<Contradiction>,
) -> Option<&'a T> {
    let mut mine = all.into_iter().filter(|said| said.names(node));
    let first = mine.next()?;
    if let Some(other) = mine.find(|said| said.value != first.value) {
        against.push(contradiction(key, node, &other, &first));
        return None;
    }
    Some(first.value)
}

/// Everything that the tables say under one key.
macro_rules! said {
    ($config:expr, $key:ident) => {
        $config
            .expected
            .iter()
            .filter_map(|table| {
                let value = table.$key.as_ref()?;
                let nodes = Some(table.nodes.get_ref().as_str());
                Some(Said { value: value.get_ref(), nodes, offset: value.span().start })
            })
            .collect::<Vec<_>>()
    };
}

impl Config {
    /// What the file says of `node`. Of what it contradicts itself in nothing is expected.
    pub fn expected_for(&self, node: &str) -> (Expected, Vec<Contradiction>) {
        let mut against = Vec::new();
        macro_rules! mine {
            ($key:ident) => {
                of_node(stringify!($key), said!(self, $key), node, &mut against)
            };
        }
        let gpus = of_node("gpus", self.said_of_gpus(), node, &mut against);
        let by_file = |value: u32| (value, SOURCE.to_owned());
        let sorted = |profiles: &Vec<String>| {
            let mut profiles = profiles.clone();
            profiles.sort();
            (profiles, SOURCE.to_owned())
        };
        let expected = Expected {
            gpu_count: gpus.copied().map(by_file),
            model: mine!(model).map(|model| (model.clone(), SOURCE.to_owned())),
            nvlinks: mine!(nvlinks).copied().map(by_file),
            pcie_width: mine!(pcie_width).copied().map(by_file),
            mig: mine!(mig).map(sorted),
            power_limit_mw: mine!(power_limit_w).map(|watts| by_file(watts.saturating_mul(1000))),
            compute_mode: mine!(compute_mode).map(|mode| by_file(mode.number())),
            ..Expected::default()
        };
        (expected, against)
    }

    fn said_of_gpus(&self) -> Vec<Said<'_, u32>> {
        let of_all = self.health.expected_gpus.iter().map(|value| Said { value, nodes: None, offset: 0 });
        of_all.chain(said!(self, gpus)).collect()
    }

    /// Lists and values of the tables, each for itself.
    pub(super) fn validate_expected(&self, text: &str, file: &str) -> Result<(), ConfigError> {
        for table in &self.expected {
            let at = |span: std::ops::Range<usize>| (file, text, span.start);
            let list = Hostlist::parse(table.nodes.get_ref());
            if !list.as_ref().is_ok_and(|list| !list.is_empty()) {
                let why = list.err().map_or_else(|| "'' names no node".to_owned(), |error| error.to_string());
                let why = format!("nodes: {why}; allowed is a list like \"n[1-32],login\"");
                return Err(ConfigError::at(at(table.nodes.span()), why));
            }
            let ranges = [
                ("gpus", &table.gpus, 1, 1024),
                ("nvlinks", &table.nvlinks, 0, 128),
                ("power_limit_w", &table.power_limit_w, 1, 100_000),
            ];
            for (key, said, from, to) in ranges {
                let Some(said) = said else { continue };
                let value = said.get_ref();
                if !(from..=to).contains(value) {
                    let why = format!("{key} = {value}: allowed are {from} to {to}");
                    return Err(ConfigError::at(at(said.span()), why));
                }
            }
            let odd = table.pcie_width.as_ref().filter(|width| ![1, 2, 4, 8, 16].contains(width.get_ref()));
            if let Some(width) = odd {
                let why = format!("pcie_width = {}: allowed are 1, 2, 4, 8, 16", width.get_ref());
                return Err(ConfigError::at(at(width.span()), why));
            }
            if let Some(model) = table.model.as_ref().filter(|model| model.get_ref().trim().is_empty()) {
                let why = "model = '': allowed is a model's name or a part of it".to_owned();
                return Err(ConfigError::at(at(model.span()), why));
            }
            let profiles = table.mig.as_ref().map(|list| (list.get_ref(), list.span()));
            if let Some((profiles, span)) = profiles {
                if let Some(profile) = profiles.iter().find(|profile| !is_profile(profile)) {
                    let profile = crate::text::escape(profile, 40);
                    let why = format!(
                        "mig: '{profile}': allowed is a list of profiles like \"1g.10gb\", or [] for MIG off"
                    );
                    return Err(ConfigError::at(at(span), why));
                }
            }
        }
        Ok(())
    }

    /// Whether the file says one thing of every node; `text` is its own.
    ///
    /// Apart from [`Config::parse`], for people: a prolog asks about its own node only.
    ///
    /// # Errors
    /// Two settings that say different things of one node.
    pub fn check_fleet(&self, text: &str, file: &str) -> Result<(), ConfigError> {
        macro_rules! fleet {
            ($key:ident) => {
                of_fleet(stringify!($key), &said!(self, $key))
            };
        }
        let against = [
            of_fleet("gpus", &self.said_of_gpus()),
            fleet!(model),
            fleet!(nvlinks),
            fleet!(pcie_width),
            fleet!(mig),
            fleet!(power_limit_w),
            fleet!(compute_mode),
        ];
        let Some(first) = against.into_iter().flatten().min_by_key(|one| one.offset) else { return Ok(()) };
        Err(ConfigError::at((file, text, first.offset), first.to_string()))
    }
}

/// The first node of which different things are said under one key.
fn of_fleet<T: PartialEq + fmt::Debug>(key: &'static str, all: &[Said<'_, T>]) -> Option<Contradiction> {
    all.iter().enumerate().find_map(|(at, later)| {
        let names = Hostlist::parse(later.nodes?).ok()?.names();
        all[..at].iter().filter(|first| first.value != later.value).find_map(|first| {
            let node = match first.nodes.map(Hostlist::parse) {
                None => names.first(),
                Some(list) => list.ok().and_then(|list| names.iter().find(|name| list.contains(name))),
            };
            node.map(|node| contradiction(key, node, later, first))
        })
    })
}

/// `1g.10gb`, `1c.2g.20gb`, `1g.10gb+me`: slices of compute, slices of the GPU, memory, extras.
pub(super) fn is_profile(text: &str) -> bool {
    let parts: Vec<&str> = text.split('.').collect();
    let number_and = |part: &str, unit: &str| {
        let digits = part.strip_suffix(unit).unwrap_or("");
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    let (slices, memory) = match parts[..] {
        [compute, slices, memory] if number_and(compute, "c") => (slices, memory),
        [slices, memory] => (slices, memory),
        _ => return false,
    };
    let memory = memory.split(['+', '-']).next().unwrap_or("");
    number_and(slices, "g") && number_and(memory, "gb")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(text: &str) -> String {
        match Config::parse(text, "g.toml") {
            Err(error) => error.to_string(),
            Ok(config) => config.check_fleet(text, "g.toml").unwrap_err().to_string(),
        }
    }

    fn of(text: &str, node: &str) -> Expected {
        let config = Config::parse(text, "g.toml").unwrap();
        config.check_fleet(text, "g.toml").unwrap();
        let (expected, against) = config.expected_for(node);
        assert_eq!(against, []);
        expected
    }

    const FLEET: &str = "[[expected]]\nnodes = \"dgx[001-032],n5\"\ngpus = 8\nmodel = \"H100\"\n\n\
                         [[expected]]\nnodes = \"dgx[001-004]\"\nmig = [\"3g.40gb\", \"1g.10gb+me\"]\ngpus = 8\n\
                         power_limit_w = 500\ncompute_mode = \"exclusive_process\"\n";

    #[test]
    fn later_tables_add_to_earlier_ones_and_other_nodes_are_left_alone() {
        let by = |value: u32| Some((value, "gpuward.toml".to_owned()));
        let both = of(FLEET, "dgx003");
        assert_eq!((both.gpu_count, both.power_limit_mw, both.compute_mode), (by(8), by(500_000), by(3)));
        assert_eq!(both.model.unwrap().0, "H100");
        assert_eq!(both.mig.unwrap().0, ["1g.10gb+me", "3g.40gb"]);
        assert_eq!((of(FLEET, "n5").gpu_count, of(FLEET, "n5").mig), (by(8), None));
        assert_eq!(of(FLEET, "dgx3"), Expected::default());
        assert_eq!(of("[health]\nexpected_gpus = 4\n", "any").gpu_count, by(4));
    }

    #[test]
    fn a_contradiction_names_line_node_and_both_values() {
        let text = format!("{FLEET}\n[[expected]]\nnodes = \"dgx[030-040]\"\ngpus = 4\n");
        assert_eq!(
            error_of(&text),
            "g.toml:15: gpus = 4 in [[expected]] nodes = \"dgx[030-040]\", but 8 in [[expected]] nodes = \"dgx[001-032],n5\": \
             both name node dgx030, allowed is one value for a node"
        );
        let config = Config::parse(&text, "f").unwrap();
        let (expected, against) = config.expected_for("dgx031");
        assert_eq!((expected.gpu_count, against.len()), (None, 1), "neither value is made up");
        assert_eq!(expected.model.unwrap().0, "H100", "the rest still counts");
        assert_eq!(config.expected_for("dgx029").1, []);
        let error = error_of("[health]\nexpected_gpus = 4\n[[expected]]\nnodes = \"n1\"\ngpus = 8\n");
        assert!(
            error.starts_with("g.toml:5: gpus = 8") && error.contains("4 in [health] expected_gpus"),
            "{error}"
        );
    }

    #[test]
    fn a_mistake_names_its_line_and_what_is_allowed() {
        for (text, line, words) in [
            ("[[expected]]\ngpus = 8\n", 1, "missing field `nodes`"),
            ("[[expected]]\nnodes = \"n[1-\"\n", 2, "a bracket is not closed; allowed is a list like"),
            ("[[expected]]\nnodes = \"\"\n", 2, "'' names no node; allowed is"),
            ("[[expected]]\nnodes = \"n[1-99999]\"\n", 2, "too many names"),
            ("[[expected]]\nnodes = \"n1\"\ngpus = 0\n", 3, "gpus = 0: allowed are 1 to 1024"),
            ("[[expected]]\nnodes = \"n1\"\n\npcie_width = 7\n", 4, "allowed are 1, 2, 4, 8, 16"),
            ("[[expected]]\nnodes = \"n1\"\nmig = [\"10gb\"]\n", 3, "'10gb': allowed is a list of profiles"),
            ("[[expected]]\nnodes = \"n1\"\nmodel = \" \"\n", 3, "allowed is a model's name"),
            ("[[expected]]\nnodes = \"n1\"\ncompute_mode = \"off\"\n", 3, "`exclusive_process`"),
            ("[[expected]]\nnodes = \"n1\"\nnvlink = 7\n", 3, "did you mean 'nvlinks'"),
            ("[expected]\nnodes = \"n1\"\n", 1, "expected a sequence"),
        ] {
            let error = error_of(text);
            assert!(
                error.starts_with(&format!("g.toml:{line}: ")) && error.contains(words),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn profiles_are_known_by_their_form() {
        for text in ["1g.10gb", "7g.80gb", "1c.2g.20gb", "1g.10gb+me", "1g.12gb+gfx", "1g.23gb-me"] {
            assert!(is_profile(text), "{text}");
        }
        for text in ["", "1g", "g.10gb", "1g.gb", "x.1g.10gb", "1g.10", "1g.10gb.1"] {
            assert!(!is_profile(text), "{text}");
        }
    }
}
