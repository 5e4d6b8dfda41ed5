//! `[[set]]` rules and resets: the machine as the script makes it.

use std::path::Path;

use super::{Faults, Set};
use crate::scenario::{Gpu, Machine, ScenarioError};

impl Faults {
    /// The machine with all `[[set]]` rules applied that hold without a reset.
    pub fn apply(&self, machine: &Machine, path: &Path) -> Result<Machine, ScenarioError> {
        let mut changed = machine.clone();
        // Each process that loads the library waits for this, and most scripts have no such rule.
        if self.set.is_empty() {
            return Ok(changed);
        }
        for gpu in &mut changed.gpus {
            *gpu = self.applied(machine, gpu, false, path)?;
        }
        Ok(changed)
    }

    /// One GPU with the `[[set]]` rules that hold before, or only after, a reset.
    pub(crate) fn applied(
        &self,
        machine: &Machine,
        gpu: &Gpu,
        after_reset: bool,
        path: &Path,
    ) -> Result<Gpu, ScenarioError> {
        let mut changed = gpu.clone();
        for rule in self.set.iter().filter(|rule| rule.after_reset.unwrap_or(false) == after_reset) {
            let slot = rule.gpu.as_ref().map(|name| name.find(machine, path).map(Gpu::slot)).transpose()?;
            if slot.is_none_or(|slot| slot == gpu.slot()) {
                changed = set_field(&changed, rule).map_err(|message| ScenarioError::Invalid {
                    path: path.to_path_buf(),
                    key: format!("set.{}", rule.field),
                    message,
                })?;
            }
        }
        Ok(changed)
    }
}

/// Sets one dotted key by way of the TOML form, so that the schema itself checks name and kind.
fn set_field(gpu: &Gpu, rule: &Set) -> Result<Gpu, String> {
    let mut table = toml::Table::try_from(gpu).map_err(|error| error.to_string())?;
    let (folders, key) = match rule.field.rsplit_once('.') {
        Some((folders, key)) => (folders.split('.').collect(), key),
        None => (Vec::new(), rule.field.as_str()),
    };
    let mut at = &mut table;
    for folder in folders {
        let entry = at.entry(folder).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        at = entry.as_table_mut().ok_or_else(|| format!("'{folder}' holds no further keys"))?;
    }
    match &rule.value {
        Some(value) => at.insert(key.into(), value.clone()),
        None => at.remove(key),
    };
    table.try_into::<Gpu>().map_err(|error| error.message().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_field_is_named() {
        let machine =
            Machine::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios/l40s-pcie.toml"))
                .unwrap();
        let path = Path::new("faults.toml");
        let message =
            |text: &str| Faults::parse(path, text).unwrap().apply(&machine, path).unwrap_err().to_string();
        let unknown = message("set = [{ gpu = 0, field = \"ecc.dram.volatile\", value = 1 }]");
        assert!(
            unknown.starts_with("faults.toml: set.ecc.dram.volatile: unknown field `volatile`"),
            "{unknown}"
        );
        let kind = message("set = [{ gpu = 0, field = \"temp.gpu_c\", value = \"hot\" }]");
        assert!(kind.contains("invalid type: string \"hot\""), "{kind}");
        let gpu = message("set = [{ gpu = \"GPU-x\", field = \"minor\", value = 1 }]");
        assert!(gpu.contains("the machine has no GPU GPU-x"), "{gpu}");
    }
}
