//! The files that a machine comes from, and where in them a key stands.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use toml::Table;
use toml::de::{DeTable, DeValue};

use super::ScenarioError;

/// One file, checked against the schema.
#[derive(Debug)]
pub(super) struct Source {
    path: PathBuf,
    text: String,
    /// What it states and nothing more.
    pub(super) table: Table,
}

impl Source {
    /// Reads a file whose form is `T`.
    pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<Self, ScenarioError> {
        let text = fs::read_to_string(path).map_err(ScenarioError::io("read", path))?;
        let wrong = |error: toml::de::Error| {
            let key = error.span().and_then(|span| key_at(&text, span.start));
            ScenarioError::toml(path, &text, &error).at_key(key.as_deref())
        };
        toml::from_str::<T>(&text).map_err(wrong)?;
        let table = toml::from_str(&text).map_err(wrong)?;
        Ok(Self { path: path.to_path_buf(), text, table })
    }

    /// A complaint about a key of this file.
    pub(super) fn complain(&self, key: &str, message: &str) -> ScenarioError {
        let (_, line) = self.find(&steps_of(key));
        ScenarioError::Syntax { path: self.path.clone(), line, message: format!("{key}: {message}") }
    }

    /// How many of the steps this file states, and the line of the last of them.
    fn find(&self, steps: &[Step]) -> (usize, usize) {
        let found = DeTable::parse(&self.text).map_or((0, 0), |table| walk(table.get_ref(), steps));
        (found.0, line_at(&self.text, found.1))
    }
}

/// All files of a machine, the one that wins first.
#[derive(Debug)]
pub(super) struct Sources {
    /// The machine file, then its board and its host.
    pub(super) layers: Vec<Source>,
    /// Models by name.
    pub(super) models: Vec<(String, Source)>,
    /// Name of the model of each GPU.
    pub(super) model_of: Vec<Option<String>>,
}

impl Sources {
    /// A complaint about a key, with the place where its value stands; where nothing states it, the nearest key
    /// around it.
    pub(super) fn complain(&self, key: &str, message: &str) -> ScenarioError {
        let places = self.places(&steps_of(key));
        // The first of the best: `max_by_key` would take the last.
        let best = places.iter().map(|(depth, ..)| *depth).max().unwrap_or(0);
        let place = places.into_iter().find(|(depth, ..)| *depth == best);
        let (path, line) = place.map_or((PathBuf::new(), 1), |(_, path, line)| (path, line));
        ScenarioError::Syntax { path, line, message: format!("{key}: {message}") }
    }

    /// For each place that may state the key: how much of it is there, the file and the line.
    fn places(&self, steps: &[Step]) -> Vec<(usize, PathBuf, usize)> {
        let mut places = Vec::new();
        let mut look = |source: &Source, prefix: &[Step], rest: &[Step]| {
            let whole: Vec<_> = prefix.iter().chain(rest).cloned().collect();
            let (depth, line) = source.find(&whole);
            if depth >= prefix.len() {
                places.push((depth - prefix.len(), source.path.clone(), line));
            }
        };
        let (gpu, rest) = match steps {
            [Step::Name(list), Step::Index(gpu), rest @ ..] if list == "gpus" => (Some(*gpu), rest),
            _ => (None, steps),
        };
        let Some(gpu) = gpu else {
            self.layers.iter().for_each(|layer| look(layer, &[], rest));
            return places;
        };
        let prefixes = [vec![steps[0].clone(), steps[1].clone()], vec![Step::Name("gpu_defaults".into())]];
        for prefix in prefixes {
            self.layers.iter().for_each(|layer| look(layer, &prefix, rest));
        }
        let model = self.model_of.get(gpu).and_then(Option::as_ref);
        if let Some((_, source)) = self.models.iter().find(|(name, _)| Some(name) == model) {
            look(source, &[], rest);
        }
        places
    }
}

/// One step of a path like `gpus[3].nvlink.links[0].to`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Name(String),
    Index(usize),
}

fn steps_of(key: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    for part in key.split(['.', '[']) {
        let index = part.strip_suffix(']').and_then(|number| number.parse().ok());
        steps.push(index.map_or_else(|| Step::Name(part.to_owned()), Step::Index));
    }
    steps
}

/// Follows the steps from a table as far as they exist: how many, and where the last one stands.
fn walk(table: &DeTable<'_>, steps: &[Step]) -> (usize, usize) {
    let Some((Step::Name(name), rest)) = steps.split_first() else { return (0, 0) };
    let Some((key, value)) = table.iter().find(|(key, _)| key.get_ref() == name) else { return (0, 0) };
    let (more, at) = walk_value(value.get_ref(), rest);
    (1 + more, if more == 0 { key.span().start } else { at })
}

fn walk_value(value: &DeValue<'_>, steps: &[Step]) -> (usize, usize) {
    match (value, steps.split_first()) {
        (DeValue::Table(table), Some(_)) => walk(table, steps),
        (DeValue::Array(array), Some((Step::Index(index), rest))) => {
            let Some(entry) = array.get(*index) else { return (0, 0) };
            let (more, at) = walk_value(entry.get_ref(), rest);
            (1 + more, if more == 0 { entry.span().start } else { at })
        }
        _ => (0, 0),
    }
}

/// The path of the innermost key whose name or value lies at a place of the text.
fn key_at(text: &str, at: usize) -> Option<String> {
    let table = DeTable::parse(text).ok()?;
    let mut key = String::new();
    descend(table.get_ref(), at, &mut key);
    (!key.is_empty()).then_some(key)
}

/// Appends the step that leads to the place; whether there is one. Values of `[table]` headers do not span their
/// keys, so that every table is searched.
fn descend(table: &DeTable<'_>, at: usize, key: &mut String) -> bool {
    for (name, value) in table {
        let before = key.len();
        let dot = if before == 0 { "" } else { "." };
        let _ = write!(key, "{dot}{}", name.get_ref());
        let inside = name.span().contains(&at) || value.span().contains(&at);
        if descend_value(value.get_ref(), at, key) || inside {
            return true;
        }
        key.truncate(before);
    }
    false
}

fn descend_value(value: &DeValue<'_>, at: usize, key: &mut String) -> bool {
    match value {
        DeValue::Table(table) => descend(table, at, key),
        DeValue::Array(array) => (0_usize..).zip(array.iter()).any(|(index, entry)| {
            let before = key.len();
            let _ = write!(key, "[{index}]");
            let found = descend_value(entry.get_ref(), at, key) || entry.span().contains(&at);
            if !found {
                key.truncate(before);
            }
            found
        }),
        _ => false,
    }
}

/// The line of a place, from 1.
pub(super) fn line_at(text: &str, at: usize) -> usize {
    text.get(..at).map_or(1, |before| before.matches('\n').count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "a = 1\n[b]\nc = [\n  { d = 2 },\n  { d = 3 },\n]\n[[e]]\nf = 4\n[[e]]\nf = 5\n";

    #[test]
    fn a_key_is_found_by_its_path_and_by_its_place() {
        let found = |key: &str| {
            let (depth, at) = walk(DeTable::parse(TEXT).unwrap().get_ref(), &steps_of(key));
            (depth, line_at(TEXT, at))
        };
        assert_eq!(found("a"), (1, 1));
        assert_eq!(found("b.c"), (2, 3));
        assert_eq!(found("b.c[1].d"), (4, 5));
        assert_eq!(found("b.c[1].x"), (3, 5), "the entry around it");
        assert_eq!(found("e[1].f"), (3, 10));
        assert_eq!(found("e[1].g"), (2, 9), "the header of the entry");
        assert_eq!(found("x"), (0, 1));
        let named = |text: &str| key_at(TEXT, TEXT.find(text).unwrap()).unwrap();
        assert_eq!(named("d = 3"), "b.c[1].d");
        assert_eq!(named("3 }"), "b.c[1].d");
        assert_eq!(named("f = 5"), "e[1].f");
    }
}
