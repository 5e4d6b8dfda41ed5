//! The fault script: what goes wrong, and when. Read from `faults.toml` beside the library, and again whenever
//! that file changes, so that faults come and go while programs run. The full format is in the README.
//!
//! ```toml
//! latency_us = 200                    # every call
//! init_code = 9                       # nvmlInit* answers this
//!
//! [[latency]]                         # one function, or a beginning with `*`
//! function = "nvmlDeviceGetFieldValues"
//! us = 5000
//!
//! [[return]]
//! function = "nvmlDeviceGetTemperature"
//! code = 15
//! gpu = 2                             # slot, UUID or PCI address; all GPUs where nothing is stated
//! after = 3                           # let three matching calls of the process pass first
//!
//! [[hang]]
//! function = "*"
//! gpu = "0000:1b:00.0"
//!
//! [[lost]]
//! gpu = 7
//! after_calls = 100                   # or when_file = "/tmp/pull-the-plug"; at once where nothing is stated
//! vanish = true
//!
//! [[missing]]
//! function = "nvmlDeviceGetGpuFabricInfoV"
//!
//! [[set]]
//! gpu = 0
//! field = "ecc.dram.volatile_uncorr"  # any key of a `[[gpus]]` table
//! value = 3                           # without value: as if the scenario did not state it
//!
//! [[busy]]
//! gpu = 0
//! from_boottime_ms = 1000
//! until_boottime_ms = 61000
//! ```

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::{Deserialize, Serialize};

use crate::code::Code;
use crate::scenario::{Gpu, Machine, PciAddress, Process, ScenarioError, Util};

/// Names a GPU: slot, or UUID or PCI address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum GpuName {
    /// Slot of the scenario.
    Slot(u32),
    /// UUID or PCI address.
    Text(String),
}

impl fmt::Display for GpuName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slot(slot) => write!(out, "{slot}"),
            Self::Text(text) => out.write_str(text),
        }
    }
}

macro_rules! rules {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
            #[serde(deny_unknown_fields)]
            pub struct $name { $($(#[$field_doc])* pub $field: $type,)* }
        )*
    };
}

rules! {
    /// Delays a function.
    Latency {
        /// Function name; a `*` at the end stands for any rest.
        function: String,
        /// One GPU only.
        gpu: Option<GpuName>,
        /// Delay, microseconds, added to the global one.
        us: u64,
    }

    /// Answers with a code.
    Return {
        /// Function name; a `*` at the end stands for any rest.
        function: String,
        /// One GPU only.
        gpu: Option<GpuName>,
        /// The code, any number.
        code: u32,
        /// Matching calls of a process that pass first.
        after: Option<u64>,
        /// How many calls fail then; all where nothing is stated.
        times: Option<u64>,
    }

    /// Never returns.
    Hang {
        /// Function name; a `*` at the end stands for any rest.
        function: String,
        /// One GPU only.
        gpu: Option<GpuName>,
        /// Matching calls of a process that pass first.
        after: Option<u64>,
        /// A freezer cgroup (version 1): the process moves itself there and freezes it, so that SIGKILL waits too.
        unkillable: Option<PathBuf>,
    }

    /// Loses a GPU: each call that names it answers 15.
    Lost {
        /// Which one.
        gpu: GpuName,
        /// Calls of a process that name the GPU and pass first.
        after_calls: Option<u64>,
        /// Lost while this file exists.
        when_file: Option<PathBuf>,
        /// Also gone from the count and from the indices.
        vanish: Option<bool>,
    }

    /// Plays an older driver: the function answers 13.
    Missing {
        /// Function name; a `*` at the end stands for any rest.
        function: String,
    }

    /// Overrides a field of the scenario.
    Set {
        /// Which GPU; all where nothing is stated.
        gpu: Option<GpuName>,
        /// Key of a `[[gpus]]` table, dotted.
        field: String,
        /// The value; as if not stated where absent.
        value: Option<toml::Value>,
    }

    /// Makes a GPU compute for a time.
    Busy {
        /// Which GPU; all where nothing is stated.
        gpu: Option<GpuName>,
        /// Start, milliseconds of CLOCK_BOOTTIME; since boot where nothing is stated.
        from_boottime_ms: Option<u64>,
        /// End; for ever where nothing is stated.
        until_boottime_ms: Option<u64>,
        /// Power draw; the model's busy draw where nothing is stated.
        power_mw: Option<u64>,
        /// Utilisation; the GPU's `util` where nothing is stated.
        util: Option<Util>,
        /// Process that is there during that time.
        process: Option<Process>,
    }
}

/// A fault script as written.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// Delay of every call, microseconds.
    pub latency_us: u64,
    /// Code of every nvmlInit variant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub init_code: Option<u32>,
    /// Delays.
    pub latency: Vec<Latency>,
    /// Codes.
    #[serde(rename = "return")]
    pub returns: Vec<Return>,
    /// Hangs.
    pub hang: Vec<Hang>,
    /// Lost GPUs.
    pub lost: Vec<Lost>,
    /// Missing functions.
    pub missing: Vec<Missing>,
    /// Overridden fields.
    pub set: Vec<Set>,
    /// Busy times.
    pub busy: Vec<Busy>,
}

impl Faults {
    /// Reads a script's text; `path` is for messages.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ScenarioError> {
        toml::from_str(text).map_err(|error| ScenarioError::toml(path, text, &error))
    }

    /// Reads a script; a file that does not exist is a script without faults.
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        match fs::read_to_string(path) {
            Ok(text) => Self::parse(path, &text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(ScenarioError::io("read", path)(error)),
        }
    }

    /// Adds what another script says.
    pub fn extend(&mut self, other: Self) {
        self.latency_us += other.latency_us;
        self.init_code = other.init_code.or(self.init_code);
        self.latency.extend(other.latency);
        self.returns.extend(other.returns);
        self.hang.extend(other.hang);
        self.lost.extend(other.lost);
        self.missing.extend(other.missing);
        self.set.extend(other.set);
        self.busy.extend(other.busy);
    }

    /// The machine with all `[[set]]` rules applied.
    pub fn apply(&self, machine: &Machine, path: &Path) -> Result<Machine, ScenarioError> {
        let mut changed = machine.clone();
        for rule in &self.set {
            let slot = rule.gpu.as_ref().map(|name| find(machine, name, path)).transpose()?;
            for gpu in changed.gpus.iter_mut().filter(|gpu| slot.is_none_or(|slot| slot == gpu.slot())) {
                *gpu = set_field(gpu, rule).map_err(|message| ScenarioError::Invalid {
                    path: path.to_path_buf(),
                    key: format!("set.{}", rule.field),
                    message,
                })?;
            }
        }
        Ok(changed)
    }
}

/// Writes a script into a folder in one step, so that no call sees half of it. The text is checked first.
pub fn write(dir: &Path, text: &str) -> Result<(), ScenarioError> {
    let path = dir.join(FILE);
    Faults::parse(&path, text)?;
    replace(&path, text)
}

/// Ends all faults.
pub fn clear(dir: &Path) -> Result<(), ScenarioError> {
    let path = dir.join(FILE);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(ScenarioError::io("remove", &path)(error))
        }
        _ => Ok(()),
    }
}

/// Name of the script beside the library.
pub const FILE: &str = "faults.toml";

/// Writes a file by rename; the name of the temporary file carries the pid, as several processes may do so.
pub(crate) fn replace(path: &Path, text: &str) -> Result<(), ScenarioError> {
    let temporary = path.with_extension(format!("tmp.{}", std::process::id()));
    fs::write(&temporary, text).map_err(ScenarioError::io("write", &temporary))?;
    fs::rename(&temporary, path).map_err(ScenarioError::io("replace", path))
}

fn find(machine: &Machine, name: &GpuName, path: &Path) -> Result<u32, ScenarioError> {
    let found = machine.gpus.iter().find(|gpu| match name {
        GpuName::Slot(slot) => gpu.slot() == *slot,
        GpuName::Text(text) => {
            gpu.uuid == *text || text.parse::<PciAddress>().is_ok_and(|pci| pci == gpu.pci)
        }
    });
    found.map(Gpu::slot).ok_or_else(|| ScenarioError::Invalid {
        path: path.to_path_buf(),
        key: "gpu".into(),
        message: format!("the machine has no GPU {name}"),
    })
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

/// What a call has to do before, or instead of, answering.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// Sleep first.
    pub sleep_us: u64,
    /// Then this.
    pub outcome: Outcome,
}

/// The end of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Answer truly.
    Answer,
    /// Answer with a code.
    Fail(Code),
    /// Never answer; with a freezer cgroup to enter first.
    Hang(Option<PathBuf>),
}

/// A rule with its GPU resolved and its counter of calls, which lives as long as the script stays unchanged.
#[derive(Debug)]
struct Armed<R> {
    rule: R,
    slot: Option<u32>,
    calls: AtomicU64,
}

/// A script made ready for one machine.
#[derive(Debug, Default)]
pub struct Script {
    latency_us: u64,
    init_code: Option<u32>,
    latency: Vec<Armed<Latency>>,
    returns: Vec<Armed<Return>>,
    hang: Vec<Armed<Hang>>,
    lost: Vec<Armed<Lost>>,
    missing: Vec<Missing>,
    busy: Vec<Armed<Busy>>,
}

impl Script {
    /// Resolves the GPUs that the rules name.
    pub fn new(faults: Faults, machine: &Machine, path: &Path) -> Result<Self, ScenarioError> {
        Ok(Self {
            latency_us: faults.latency_us,
            init_code: faults.init_code,
            latency: arm(faults.latency, |rule| rule.gpu.as_ref(), machine, path)?,
            returns: arm(faults.returns, |rule| rule.gpu.as_ref(), machine, path)?,
            hang: arm(faults.hang, |rule| rule.gpu.as_ref(), machine, path)?,
            lost: arm(faults.lost, |rule| Some(&rule.gpu), machine, path)?,
            missing: faults.missing,
            busy: arm(faults.busy, |rule| rule.gpu.as_ref(), machine, path)?,
        })
    }

    /// Judges one call. `slot` is the GPU that the call names, if any. Rules that name a GPU see only calls that do.
    pub fn judge(&self, function: &str, slot: Option<u32>) -> Judgement {
        Judgement { sleep_us: self.sleep_us(function, slot), outcome: self.outcome(function, slot) }
    }

    fn sleep_us(&self, function: &str, slot: Option<u32>) -> u64 {
        let rules = self.latency.iter().filter(|armed| armed.matches(&armed.rule.function, function, slot));
        self.latency_us + rules.map(|armed| armed.rule.us).sum::<u64>()
    }

    fn outcome(&self, function: &str, slot: Option<u32>) -> Outcome {
        if self.missing.iter().any(|rule| name_matches(&rule.function, function)) {
            return Outcome::Fail(Code::FUNCTION_NOT_FOUND);
        }
        for armed in self.hang.iter().filter(|armed| armed.matches(&armed.rule.function, function, slot)) {
            if armed.count() > armed.rule.after.unwrap_or(0) {
                return Outcome::Hang(armed.rule.unkillable.clone());
            }
        }
        // Counted even where another rule answers: the GPU was touched.
        let lost = slot.is_some_and(|slot| self.touch_lost(slot));
        for armed in self.returns.iter().filter(|armed| armed.matches(&armed.rule.function, function, slot)) {
            let past = armed.count().saturating_sub(armed.rule.after.unwrap_or(0));
            if past > 0 && armed.rule.times.is_none_or(|times| past <= times) {
                return Outcome::Fail(Code(armed.rule.code));
            }
        }
        match self.init_code {
            _ if lost => Outcome::Fail(Code::GPU_IS_LOST),
            Some(code) if function.starts_with("nvmlInit") => Outcome::Fail(Code(code)),
            _ => Outcome::Answer,
        }
    }

    /// Counts a call on a GPU and says whether the GPU is lost. Every rule counts, so no short cut.
    fn touch_lost(&self, slot: u32) -> bool {
        let rules = self.lost.iter().filter(|armed| armed.slot == Some(slot));
        rules.fold(false, |lost, armed| {
            let calls = armed.count();
            lost | armed.lost(calls)
        })
    }

    /// Whether a GPU is out of the count and the indices.
    pub fn vanished(&self, slot: u32) -> bool {
        let gone = |armed: &Armed<Lost>| {
            armed.slot == Some(slot)
                && armed.rule.vanish == Some(true)
                // The next call would be one more than those counted so far.
                && armed.lost(armed.calls.load(Relaxed) + 1)
        };
        self.lost.iter().any(gone)
    }

    /// Busy times of a GPU.
    pub fn busy(&self, slot: u32) -> impl Iterator<Item = &Busy> {
        self.busy
            .iter()
            .filter(move |armed| armed.slot.is_none_or(|own| own == slot))
            .map(|armed| &armed.rule)
    }
}

impl<R> Armed<R> {
    fn matches(&self, pattern: &str, function: &str, slot: Option<u32>) -> bool {
        (self.slot.is_none() || self.slot == slot) && name_matches(pattern, function)
    }

    fn count(&self) -> u64 {
        self.calls.fetch_add(1, Relaxed) + 1
    }
}

impl Armed<Lost> {
    fn lost(&self, calls: u64) -> bool {
        calls > self.rule.after_calls.unwrap_or(0)
            && self.rule.when_file.as_deref().is_none_or(|file| file.exists())
    }
}

fn arm<R>(
    rules: Vec<R>,
    gpu: impl Fn(&R) -> Option<&GpuName>,
    machine: &Machine,
    path: &Path,
) -> Result<Vec<Armed<R>>, ScenarioError> {
    let one = |rule: R| {
        let slot = gpu(&rule).map(|name| find(machine, name, path)).transpose()?;
        Ok(Armed { rule, slot, calls: AtomicU64::new(0) })
    };
    rules.into_iter().map(one).collect()
}

fn name_matches(pattern: &str, function: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => function.starts_with(start),
        None => pattern == function,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(text: &str) -> Script {
        let path = Path::new("faults.toml");
        let machine =
            Machine::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios/l40s-pcie.toml"))
                .unwrap();
        let faults = Faults::parse(path, text).unwrap();
        Script::new(faults, &machine, path).unwrap()
    }

    #[test]
    fn rules_for_a_gpu_leave_calls_without_one_alone() {
        let script = script("[[hang]]\nfunction = \"*\"\ngpu = 1\n[[latency]]\nfunction = \"*\"\nus = 7");
        let calm = Judgement { sleep_us: 7, outcome: Outcome::Answer };
        assert_eq!(script.judge("nvmlDeviceGetCount_v2", None), calm);
        assert_eq!(script.judge("nvmlDeviceGetName", Some(0)), calm);
        assert_eq!(script.judge("nvmlDeviceGetName", Some(1)).outcome, Outcome::Hang(None));
    }

    #[test]
    fn a_star_at_the_end_stands_for_any_rest() {
        let script = script("[[missing]]\nfunction = \"nvmlDeviceGetGpuFabricInfo*\"");
        let missing = Outcome::Fail(Code::FUNCTION_NOT_FOUND);
        assert_eq!(script.judge("nvmlDeviceGetGpuFabricInfoV", None).outcome, missing);
        assert_eq!(script.judge("nvmlDeviceGetGpuFabric", None).outcome, Outcome::Answer);
    }

    #[test]
    fn init_code_is_for_init_only() {
        let script = script("init_code = 9");
        assert_eq!(script.judge("nvmlInitWithFlags", None).outcome, Outcome::Fail(Code::DRIVER_NOT_LOADED));
        assert_eq!(script.judge("nvmlShutdown", None).outcome, Outcome::Answer);
    }

    #[test]
    fn calls_on_a_gpu_count_towards_its_loss_and_others_do_not() {
        let script = script("[[lost]]\ngpu = 2\nafter_calls = 1\nvanish = true");
        assert!((0..9).all(|_| script.judge("nvmlDeviceGetName", Some(1)).outcome == Outcome::Answer));
        assert_eq!(script.judge("nvmlDeviceGetName", Some(2)).outcome, Outcome::Answer);
        assert!(script.vanished(2));
        assert_eq!(script.judge("nvmlDeviceGetName", Some(2)).outcome, Outcome::Fail(Code::GPU_IS_LOST));
    }

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
