//! Loading: read, merge models and defaults, fill in, validate; and the machine of one simulated node.

use std::fs;
use std::path::Path;

use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::values::{derived_serial, derived_uuid};
use super::{Gpu, Machine, ScenarioError, validate};

impl Machine {
    /// Loads a scenario file and the model files that it names.
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        let text = fs::read_to_string(path).map_err(ScenarioError::io("read", path))?;
        if path.extension().is_some_and(|extension| extension == "json") {
            return Self::parse_compact(path, &text);
        }
        let models = path.parent().unwrap_or_else(|| Path::new("")).join("models");
        Self::parse(path, &text, |model| {
            let file = models.join(format!("{model}.toml"));
            let text = fs::read_to_string(&file).map_err(ScenarioError::io("read", &file))?;
            read_typed::<Gpu>(&file, &text)
        })
    }

    /// The same from a text; `model` gives the table of a model by name.
    pub(crate) fn parse(
        path: &Path,
        text: &str,
        model: impl Fn(&str) -> Result<Table, ScenarioError>,
    ) -> Result<Self, ScenarioError> {
        let mut table = read_typed::<Self>(path, text)?;
        let defaults = match table.remove("gpu_defaults") {
            Some(Value::Table(defaults)) => defaults,
            _ => Table::new(),
        };
        let entries = table.remove("gpus").and_then(|value| value.try_into::<Vec<Table>>().ok());
        let mut gpus = Vec::new();
        for entry in entries.unwrap_or_default() {
            let name = entry.get("model").or_else(|| defaults.get("model")).and_then(Value::as_str);
            let mut merged = match name {
                Some(name) => model(name)?,
                None => Table::new(),
            };
            merge(&mut merged, defaults.clone());
            merge(&mut merged, entry);
            merged.remove("model");
            gpus.push(Value::Table(merged));
        }
        table.insert("gpus".into(), Value::Array(gpus));
        let machine: Self = table.try_into().map_err(|error| ScenarioError::toml(path, text, &error))?;
        machine.completed(path, text)
    }

    fn completed(mut self, path: &Path, text: &str) -> Result<Self, ScenarioError> {
        self.fill_in();
        validate::check(&self, path, text)?;
        Ok(self)
    }

    fn fill_in(&mut self) {
        for (position, gpu) in (0..).zip(&mut self.gpus) {
            gpu.slot.get_or_insert(position);
        }
        if self.boot_id.is_empty() {
            self.boot_id = derived_uuid(&["boot", &self.name]);
        }
    }

    /// The same machine as another node has it: other UUIDs, serial numbers and boot id, the same for the same name.
    pub fn for_node(&self, node: &str) -> Self {
        let mut machine = self.clone();
        machine.boot_id = derived_uuid(&["boot", &self.boot_id, node]);
        for gpu in &mut machine.gpus {
            gpu.uuid = format!("GPU-{}", derived_uuid(&[&gpu.uuid, node]));
            gpu.serial = gpu.serial.as_deref().map(|serial| derived_serial(serial, node));
            for mig in &mut gpu.mig.devices {
                mig.uuid = format!("MIG-{}", derived_uuid(&[&mig.uuid, node]));
            }
        }
        machine
    }

    /// The text of a scenario file that needs no other file.
    pub fn flattened(&self) -> String {
        // Cannot fail: the types hold nothing that TOML lacks, which the round-trip test keeps true.
        toml::to_string(self).unwrap_or_default()
    }

    /// The same machine in the form that the library reads fastest: each process that loads it waits for this.
    pub(crate) fn compact(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    fn parse_compact(path: &Path, text: &str) -> Result<Self, ScenarioError> {
        let machine: Self = serde_json::from_str(text).map_err(|error| ScenarioError::Syntax {
            path: path.to_path_buf(),
            line: error.line(),
            message: error.to_string(),
        })?;
        machine.completed(path, text)
    }
}

/// Checks a text against the schema, so that errors have a line, and returns what it states and nothing more.
fn read_typed<T: DeserializeOwned>(path: &Path, text: &str) -> Result<Table, ScenarioError> {
    let wrong = |error| ScenarioError::toml(path, text, &error);
    toml::from_str::<T>(text).map_err(wrong)?;
    toml::from_str(text).map_err(wrong)
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
