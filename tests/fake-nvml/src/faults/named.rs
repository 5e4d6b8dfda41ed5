//! Faults with a name: a script that a machine brings along, switched on by `on` in `faults.toml`.
//!
//! They stand in a scenario as `[faults.NAME]`, or for all scenarios in `faults/NAME.toml` beside them. Such a script
//! says what it is `about` and what a GPU `needs` for it to make sense. Rules that say `gpu = "THIS"` are for one GPU,
//! which `on` then names: `on = [{ fault = "gpu-lost", gpu = 3 }]`. A named fault may switch others on.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Faults, GpuName, replace};
use crate::scenario::{Gpu, Machine, ScenarioError};

/// Named faults by name.
pub type Named = BTreeMap<String, Faults>;

/// Name of the file beside an installed library that has them; read only when one is switched on, as each process
/// that loads the library waits for what it reads.
const FILE: &str = "named-faults.json";

/// Faults that switch each other on deeper than this are taken for a circle.
const MAX_DEPTH: usize = 8;

/// Switches a named fault on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum On {
    /// One that concerns the whole machine.
    Machine(String),
    /// One that concerns a GPU.
    Gpu(OnGpu),
}

/// Switches a named fault on for one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OnGpu {
    /// Name of the fault.
    pub fault: String,
    /// The GPU; none for a fault of the whole machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuName>,
}

/// What a GPU must have for a fault to make sense on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// NVLink.
    Nvlink,
    /// NVLink before version 5, which counts replays and CRC errors.
    NvlinkCrc,
    /// NVLink 5, which counts symbol errors.
    NvlinkBer,
    /// An NVLink fabric.
    Fabric,
    /// Links between the CPU and the GPU.
    C2c,
    /// ECC, switched on.
    Ecc,
    /// Row remapping.
    Remap,
    /// MIG.
    Mig,
    /// Persistence mode, switched on.
    Persistence,
    /// An InfoROM.
    Inforom,
    /// A driver that says what it wants done (field 230).
    Recovery,
    /// Sixteen lanes of PCIe.
    PcieX16,
    /// A GSP.
    Gsp,
    /// Page retirement.
    Retired,
    /// Application clocks.
    AppClocks,
}

impl Need {
    /// Whether a GPU has it.
    pub fn met(self, gpu: &Gpu) -> bool {
        let version = gpu.nvlink.version;
        match self {
            Self::Nvlink => version.is_some() && !gpu.nvlink.links.is_empty(),
            Self::NvlinkCrc => version.is_some_and(|version| version < 5),
            Self::NvlinkBer => version.is_some_and(|version| version >= 5),
            Self::Fabric => gpu.fabric.is_some(),
            Self::C2c => gpu.c2c.is_some(),
            Self::Ecc => gpu.ecc.enabled == Some(true),
            Self::Remap => gpu.remap.is_some(),
            Self::Mig => gpu.mig.max_devices > 0,
            Self::Persistence => gpu.persistence,
            Self::Inforom => gpu.inforom.is_some(),
            Self::Recovery => gpu.recovery_action.is_some(),
            Self::PcieX16 => gpu.pcie.width == 16,
            Self::Gsp => gpu.gsp == Some(true),
            Self::Retired => gpu.retired.is_some(),
            Self::AppClocks => gpu.clocks.app_default_mhz.is_some(),
        }
    }
}

/// A named fault that makes sense on a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedFault<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it plays.
    pub about: &'a str,
    /// Slots of the GPUs that it can be switched on for; none for a fault of the whole machine.
    pub gpus: Option<Vec<u32>>,
}

impl NamedFault<'_> {
    /// The text of a script that switches it on, for a GPU where it is for one.
    pub fn switched_on(&self, slot: u32) -> String {
        match self.gpus {
            Some(_) => format!("on = [{{ fault = \"{}\", gpu = {slot} }}]\n", self.name),
            None => format!("on = [\"{}\"]\n", self.name),
        }
    }
}

impl Machine {
    /// The named faults that make sense on this machine: for one GPU where at least one has what it needs, for the
    /// whole machine where any has.
    pub fn named_faults(&self) -> Vec<NamedFault<'_>> {
        let mut found = Vec::new();
        for (name, faults) in &self.faults {
            let able = self.gpus.iter().filter(|gpu| faults.unmet(gpu).is_none());
            let able: Vec<u32> = able.map(Gpu::slot).collect();
            if !able.is_empty() {
                let gpus = faults.concerns_one_gpu().then_some(able);
                found.push(NamedFault { name, about: &faults.about, gpus });
            }
        }
        found
    }

    /// Adds the shared faults beside a scenario. The scenario's own win.
    pub(crate) fn add_shared_faults(&mut self, folder: &Path) -> Result<(), ScenarioError> {
        let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
        for path in entries.flatten().map(|entry| entry.path()) {
            let name = path.file_stem().and_then(|stem| stem.to_str());
            let Some(name) = name.filter(|_| path.extension().is_some_and(|end| end == "toml")) else {
                continue;
            };
            if !self.faults.contains_key(name) {
                self.faults.insert(name.to_owned(), Faults::load(&path)?);
            }
        }
        Ok(())
    }

    /// Puts the named faults beside an installed library.
    pub(crate) fn write_named_faults(&self, folder: &Path) -> Result<(), ScenarioError> {
        // Cannot fail: names and rules are texts, numbers and lists.
        replace(&folder.join(FILE), &serde_json::to_string(&self.faults).unwrap_or_default())
    }
}

/// The named faults beside an installed library.
pub(crate) fn load(folder: &Path) -> Result<Named, ScenarioError> {
    let path = folder.join(FILE);
    match fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text).map_err(|error| ScenarioError::Syntax {
            path,
            line: error.line(),
            message: error.to_string(),
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Named::new()),
        Err(error) => Err(ScenarioError::io("read", &path)(error)),
    }
}

impl Faults {
    /// The same script with what it switches on put in its place.
    pub fn resolved(self, machine: &Machine, named: &Named, path: &Path) -> Result<Self, ScenarioError> {
        self.resolved_at(0, machine, named, path)
    }

    fn resolved_at(
        mut self,
        depth: usize,
        machine: &Machine,
        named: &Named,
        path: &Path,
    ) -> Result<Self, ScenarioError> {
        for on in std::mem::take(&mut self.on) {
            let on = on.spelt_out();
            let wrong = |message: String| ScenarioError::Invalid {
                path: path.to_path_buf(),
                key: format!("on.{}", on.fault),
                message,
            };
            let Some(mut fault) = named.get(&on.fault).cloned() else {
                let known: Vec<&str> = named.keys().map(String::as_str).collect();
                return Err(wrong(format!("no such fault; there are: {}", known.join(", "))));
            };
            if depth == MAX_DEPTH {
                return Err(wrong("faults switch each other on in a circle".into()));
            }
            fault.bind(on.gpu.as_ref(), machine, path).map_err(|problem| match problem {
                Unbound::Unfit(message) => wrong(message),
                Unbound::NoGpu(error) => error,
            })?;
            self.extend(fault.resolved_at(depth + 1, machine, named, path)?);
        }
        Ok(self)
    }

    /// Puts a GPU in the place of `THIS`.
    fn bind(&mut self, gpu: Option<&GpuName>, machine: &Machine, path: &Path) -> Result<(), Unbound> {
        match (gpu, self.concerns_one_gpu()) {
            (None, true) => return Err(Unbound::Unfit("is for one GPU: state gpu".into())),
            (Some(_), false) => return Err(Unbound::Unfit("is for the whole machine: state no gpu".into())),
            (None, false) if machine.gpus.iter().all(|gpu| self.unmet(gpu).is_some()) => {
                return Err(Unbound::Unfit(format!("no GPU of the machine has {:?}", self.needs)));
            }
            (None, false) => return Ok(()),
            (Some(name), true) => {
                let found = name.find(machine, path).map_err(Unbound::NoGpu)?;
                if let Some(need) = self.unmet(found) {
                    return Err(Unbound::Unfit(format!("GPU {name} lacks {need:?}")));
                }
                self.gpu_names().filter(|own| own.is_this()).for_each(|own| *own = name.clone());
                for on in self.on.iter_mut() {
                    if let On::Gpu(OnGpu { gpu: Some(own), .. }) = on {
                        if own.is_this() {
                            *own = name.clone();
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// First need that a GPU does not meet.
    fn unmet(&self, gpu: &Gpu) -> Option<Need> {
        self.needs.iter().copied().find(|need| !need.met(gpu))
    }

    /// Whether a rule speaks of `THIS`.
    pub fn concerns_one_gpu(&self) -> bool {
        let switched =
            self.on.iter().any(|on| matches!(on, On::Gpu(OnGpu { gpu: Some(gpu), .. }) if gpu.is_this()));
        switched || self.clone().gpu_names().any(|name| name.is_this())
    }
}

/// Why a named fault cannot be switched on as asked.
enum Unbound {
    Unfit(String),
    NoGpu(ScenarioError),
}

impl On {
    fn spelt_out(self) -> OnGpu {
        match self {
            Self::Machine(fault) => OnGpu { fault, gpu: None },
            Self::Gpu(on) => on,
        }
    }
}
