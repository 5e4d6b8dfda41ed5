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
//!
//! [[reset]]
//! gpu = 0
//! at_boottime_ms = 90000
//! what = "gpu"                        # or "driver": counters start again from 0
//!
//! [[event]]
//! gpu = 0
//! xid = 79
//! at_boottime_ms = 95000              # waiters of nvmlEventSetWait* get it
//!
//! [[hidden]]
//! gpu = 2                             # as a device filter hides it
//! pids_in = "/tmp/job/cgroup.procs"   # only from these processes
//! ```
//!
//! `on = ["nvml-hangs", { fault = "gpu-lost", gpu = 3 }]` switches named faults on, see [`named`].

mod apply;
mod files;
mod gpu_name;
pub mod named;
mod script;

pub(crate) use files::{CHANGES, announce, open_changes, replace};
pub use files::{FILE, clear, write};
pub use gpu_name::GpuName;
pub use named::{NamedFault, Need, On};
pub use script::{Epoch, Judgement, Outcome, Script};

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::scenario::{CpuList, Process, ScenarioError, Util};

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
        /// Holds only once a `[[reset]]` of the GPU has passed: what its counters have reached since.
        after_reset: Option<bool>,
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

    /// Starts counters again from 0.
    Reset {
        /// Which GPU; all where nothing is stated.
        gpu: Option<GpuName>,
        /// When, milliseconds of CLOCK_BOOTTIME.
        at_boottime_ms: u64,
        /// How much.
        what: ResetKind,
    }

    /// An Xid that clients waiting for events get.
    Event {
        /// Which GPU.
        gpu: GpuName,
        /// Its number.
        xid: u64,
        /// When, milliseconds of CLOCK_BOOTTIME.
        at_boottime_ms: u64,
    }

    /// Keeps a GPU from processes as a device cgroup does.
    Hidden {
        /// Which GPU.
        gpu: GpuName,
        /// A file of process ids, one a line as in `cgroup.procs`: only these. All processes where nothing is stated.
        pids_in: Option<PathBuf>,
        /// What opening it answers; 4, no permission, where nothing is stated.
        code: Option<u32>,
    }

    /// Confines processes to CPUs, which filters the affinity that they are told.
    Cpuset {
        /// The CPUs, in numbers of the simulated machine.
        cpus: CpuList,
        /// As for a hidden GPU.
        pids_in: Option<PathBuf>,
    }
}

/// What is reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResetKind {
    /// One GPU, as `nvidia-smi --gpu-reset` does.
    Gpu,
    /// The driver is unloaded and loaded again: energy starts again, too.
    Driver,
}

/// A fault script as written.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// What it plays, for people; named faults have it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// What a GPU must have for a named fault to make sense.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<Need>,
    /// Named faults that are on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub on: Vec<On>,
    /// Delay of every call, microseconds.
    #[serde(skip_serializing_if = "is_zero")]
    pub latency_us: u64,
    /// Code of every nvmlInit variant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub init_code: Option<u32>,
    /// Time stands still here: all processes read the same counters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frozen_boottime_ms: Option<u64>,
    /// The wall clock while time stands still, microseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unix_us: Option<u64>,
    /// Delays.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub latency: Vec<Latency>,
    /// Codes.
    #[serde(rename = "return", skip_serializing_if = "Vec::is_empty")]
    pub returns: Vec<Return>,
    /// Hangs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hang: Vec<Hang>,
    /// Lost GPUs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<Lost>,
    /// Missing functions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Missing>,
    /// Overridden fields.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<Set>,
    /// Busy times.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub busy: Vec<Busy>,
    /// Resets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reset: Vec<Reset>,
    /// Xids.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub event: Vec<Event>,
    /// GPUs kept from processes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hidden: Vec<Hidden>,
    /// Processes confined to CPUs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cpuset: Vec<Cpuset>,
}

// The signature is serde's.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Faults {
    /// Reads a script's text; `path` is for messages.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ScenarioError> {
        let faults: Self = toml::from_str(text).map_err(|error| ScenarioError::toml(path, text, &error))?;
        if faults.unix_us.is_some() && faults.frozen_boottime_ms.is_none() {
            let message = "means something only beside frozen_boottime_ms".into();
            return Err(ScenarioError::Invalid { path: path.to_path_buf(), key: "unix_us".into(), message });
        }
        Ok(faults)
    }

    /// Reads a script; a file that does not exist is a script without faults.
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        match fs::read_to_string(path) {
            Ok(text) => Self::parse(path, &text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(ScenarioError::io("read", path)(error)),
        }
    }

    /// Adds what another script says. What it is about and what it needs stays behind.
    pub fn extend(&mut self, other: Self) {
        self.on.extend(other.on);
        self.latency_us += other.latency_us;
        self.init_code = other.init_code.or(self.init_code);
        self.frozen_boottime_ms = other.frozen_boottime_ms.or(self.frozen_boottime_ms);
        self.unix_us = other.unix_us.or(self.unix_us);
        self.latency.extend(other.latency);
        self.returns.extend(other.returns);
        self.hang.extend(other.hang);
        self.lost.extend(other.lost);
        self.missing.extend(other.missing);
        self.set.extend(other.set);
        self.busy.extend(other.busy);
        self.reset.extend(other.reset);
        self.event.extend(other.event);
        self.hidden.extend(other.hidden);
        self.cpuset.extend(other.cpuset);
    }

    /// Every place where a rule names a GPU.
    fn gpu_names(&mut self) -> impl Iterator<Item = &mut GpuName> {
        let optional = (self.latency.iter_mut().map(|rule| &mut rule.gpu))
            .chain(self.returns.iter_mut().map(|rule| &mut rule.gpu))
            .chain(self.hang.iter_mut().map(|rule| &mut rule.gpu))
            .chain(self.set.iter_mut().map(|rule| &mut rule.gpu))
            .chain(self.busy.iter_mut().map(|rule| &mut rule.gpu))
            .chain(self.reset.iter_mut().map(|rule| &mut rule.gpu));
        let stated = (self.lost.iter_mut().map(|rule| &mut rule.gpu))
            .chain(self.event.iter_mut().map(|rule| &mut rule.gpu))
            .chain(self.hidden.iter_mut().map(|rule| &mut rule.gpu));
        optional.filter_map(Option::as_mut).chain(stated)
    }
}
