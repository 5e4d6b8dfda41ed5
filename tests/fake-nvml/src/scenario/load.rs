//! Loading: read a machine file and the files that it names, merge them, fill in, validate.

use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::faults::named::Named;

use super::source::{Source, Sources};
use super::{Gpu, Machine, ScenarioError, validate};

impl Machine {
    /// Loads a scenario file and the board, host and model files that it names.
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        if path.extension().is_some_and(|extension| extension == "json") {
            let text = fs::read_to_string(path).map_err(ScenarioError::io("read", path))?;
            return Self::parse_compact(path, &text);
        }
        let folder = path.parent().unwrap_or_else(|| Path::new(""));
        let mut sources =
            Sources { layers: vec![Source::read::<Self>(path)?], models: Vec::new(), model_of: Vec::new() };
        for kind in ["board", "host"] {
            if let Some(part) = sources.part(folder, kind)? {
                sources.layers.push(part);
            }
        }
        let table = sources.merged(folder)?;
        let whole = |error: toml::de::Error| sources.complain("name", error.message());
        let mut machine: Self = table.try_into().map_err(whole)?;
        machine.fill_in();
        validate::check(&machine).map_err(|found| sources.complain(&found.key, &found.message))?;
        machine.forget_shorthand();
        machine.add_shared_faults(&folder.join("faults"))?;
        Ok(machine)
    }

    /// The text of a scenario file that needs no other file.
    pub fn flattened(&self) -> String {
        // Cannot fail: the types hold nothing that TOML lacks, which the round-trip test keeps true.
        toml::to_string(self).unwrap_or_default()
    }

    /// The same machine in the form that the library reads fastest: each process that loads it waits for this.
    /// Without the named faults, which are seldom asked for and have a file of their own.
    pub(crate) fn compact(&self) -> String {
        let lean = Self { faults: Named::new(), ..self.clone() };
        serde_json::to_string(&lean).unwrap_or_default()
    }

    fn parse_compact(path: &Path, text: &str) -> Result<Self, ScenarioError> {
        let mut machine: Self = serde_json::from_str(text).map_err(|error| ScenarioError::Syntax {
            path: path.to_path_buf(),
            line: error.line(),
            message: error.to_string(),
        })?;
        machine.fill_in();
        // One line, written by a program: the key says where.
        validate::check(&machine).map_err(|found| ScenarioError::Invalid {
            path: path.to_path_buf(),
            key: found.key,
            message: found.message,
        })?;
        Ok(machine)
    }
}

impl Sources {
    /// The file that the key `kind` names, if one does.
    fn part(&self, folder: &Path, kind: &str) -> Result<Option<Source>, ScenarioError> {
        let named: Vec<_> = self.layers.iter().filter_map(|layer| layer.table.get(kind)).collect();
        let Some(name) = named.first().and_then(|name| name.as_str()) else { return Ok(None) };
        let part = self.read::<Machine>(folder, kind, kind, name)?;
        let forbidden: &[&str] = if kind == "board" { &["board"] } else { &["board", "host"] };
        if let Some(key) = forbidden.iter().find(|key| part.table.contains_key(**key)) {
            return Err(part.complain(key, &format!("a {kind} cannot name a {key} itself")));
        }
        Ok(Some(part))
    }

    /// Reads `<kind>s/<name>.toml`; a name without a file is a wrong value of `key`.
    fn read<T: serde::de::DeserializeOwned>(
        &self,
        folder: &Path,
        kind: &str,
        key: &str,
        name: &str,
    ) -> Result<Source, ScenarioError> {
        let folder = folder.join(format!("{kind}s"));
        let file = folder.join(format!("{name}.toml"));
        if file.is_file() {
            return Source::read::<T>(&file);
        }
        let known = names_in(&folder).join(", ");
        Err(self.complain(key, &format!("there is no {kind} '{name}'; known are {known}")))
    }

    /// Everything in one table, as a scenario that needs no other file states it.
    fn merged(&mut self, folder: &Path) -> Result<Table, ScenarioError> {
        let mut table = Table::new();
        for layer in self.layers.iter().rev() {
            merge_machine(&mut table, layer.table.clone());
        }
        table.remove("board");
        table.remove("host");
        let defaults = match table.remove("gpu_defaults") {
            Some(Value::Table(defaults)) => defaults,
            _ => Table::new(),
        };
        let mut gpus = Vec::new();
        for (position, entry) in entries(&mut table).into_iter().enumerate() {
            let name = entry.get("model").or_else(|| defaults.get("model")).and_then(Value::as_str);
            let name = name.map(str::to_owned);
            let mut merged = match &name {
                Some(name) => self.model(folder, position, name)?,
                None => Table::new(),
            };
            self.model_of.push(name);
            merge(&mut merged, defaults.clone());
            merge(&mut merged, entry);
            merged.remove("model");
            let slot = merged.get("slot").cloned().unwrap_or_else(|| integer(position));
            merged.entry("minor").or_insert(slot);
            at_own_place(&mut merged);
            gpus.push(Value::Table(merged));
        }
        table.insert("gpus".into(), Value::Array(gpus));
        let nics = table.get_mut("nics").and_then(Value::as_array_mut);
        nics.into_iter().flatten().filter_map(Value::as_table_mut).for_each(at_own_place);
        Ok(table)
    }

    /// What a model file states; read once.
    fn model(&mut self, folder: &Path, gpu: usize, name: &str) -> Result<Table, ScenarioError> {
        if let Some((_, known)) = self.models.iter().find(|(known, _)| known == name) {
            return Ok(known.table.clone());
        }
        let source = self.read::<Gpu>(folder, "model", &format!("gpus[{gpu}].model"), name)?;
        let table = source.table.clone();
        self.models.push((name.to_owned(), source));
        Ok(table)
    }
}

/// A device that names no port is at its own address, on a root bus itself.
fn at_own_place(device: &mut Table) {
    if let (None, Some(pci)) = (device.get("under"), device.get("pci").cloned()) {
        device.insert("under".into(), pci);
    }
}

fn integer(number: usize) -> Value {
    Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

fn names_in(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let name = |path: PathBuf| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let mut names: Vec<_> = files.filter_map(name).collect();
    names.sort();
    names
}

/// Takes the list of GPUs out of a machine.
fn entries(table: &mut Table) -> Vec<Table> {
    let gpus = table.remove("gpus").and_then(|value| value.try_into::<Vec<Table>>().ok());
    gpus.unwrap_or_default()
}

/// Lays one file of a machine onto another: as `merge`, but GPUs one by one.
fn merge_machine(base: &mut Table, mut over: Table) {
    let (mut gpus, refined) = (entries(base), entries(&mut over));
    for (position, entry) in refined.into_iter().enumerate() {
        match gpus.get_mut(position) {
            Some(below) => merge(below, entry),
            None => gpus.push(entry),
        }
    }
    merge(base, over);
    base.insert("gpus".into(), Value::Array(gpus.into_iter().map(Value::Table).collect()));
}

/// Lays `over` onto `base`: tables are merged, everything else is replaced.
fn merge(base: &mut Table, over: Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => merge(below, above),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}
