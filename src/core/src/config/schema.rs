//! The settings, their defaults and where each default comes from.

use super::ExpectedNodes;
use crate::health::Limits;
use crate::health::action::Action;
use serde::Deserialize;
use std::collections::BTreeMap;

/// All of gpuward.toml.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where things lie.
    pub paths: Paths,
    /// The NVIDIA library.
    pub nvml: NvmlSettings,
    /// How long the driver may take.
    pub probe: ProbeSettings,
    /// How Slurm is reached.
    pub slurm: SlurmSettings,
    /// What a finding leads to.
    pub health: HealthSettings,
    /// What the nodes should be.
    pub expected: Vec<ExpectedNodes>,
    /// What the plugin may put into a task's environment.
    pub environment: EnvironmentSettings,
    /// Where the programs log.
    pub log: LogSettings,
}

/// Folders and roots. `%n` stands for the node's name, `%c` for the cluster's, `%%` for a percent sign.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Paths {
    /// What does not survive a reboot: job state files, the last snapshot.
    pub run: String,
    /// What survives a reboot: history, counters, cursors. On a diskless node name a persistent mount.
    pub state: String,
    /// Where job records are left for collection.
    pub spool: String,
    /// Root of sysfs.
    pub sysfs: String,
    /// Root of procfs, for what the driver and the kernel say; processes are always looked up in /proc.
    pub procfs: String,
    /// The kernel's log, or a file in its format.
    pub kmsg: String,
    /// The program that is asked for the kernel's log where `kmsg` cannot be opened; never in a prolog or epilog.
    pub journalctl: String,
}

impl Default for Paths {
    fn default() -> Self {
        Paths {
            run: "/run/gpuward".into(),
            state: "/var/lib/gpuward".into(),
            spool: "/var/spool/gpuward".into(),
            sysfs: "/sys".into(),
            procfs: "/proc".into(),
            kmsg: "/dev/kmsg".into(),
            journalctl: "/usr/bin/journalctl".into(),
        }
    }
}

impl Paths {
    pub(super) fn all(&self) -> [(&'static str, &str); 7] {
        [
            ("run", &self.run),
            ("state", &self.state),
            ("spool", &self.spool),
            ("sysfs", &self.sysfs),
            ("procfs", &self.procfs),
            ("kmsg", &self.kmsg),
            ("journalctl", &self.journalctl),
        ]
    }

    /// The paths of one node. A `/` in a name becomes `_`, so that a name cannot lead out of its folder.
    pub fn for_node(&self, node: &str, cluster: &str) -> Paths {
        let fill = |path: &str| fill_in(path, node, cluster);
        Paths {
            run: fill(&self.run),
            state: fill(&self.state),
            spool: fill(&self.spool),
            sysfs: fill(&self.sysfs),
            procfs: fill(&self.procfs),
            kmsg: fill(&self.kmsg),
            journalctl: fill(&self.journalctl),
        }
    }
}

/// `text` with `%n`, `%c` and `%%` replaced.
pub(crate) fn fill_in(text: &str, node: &str, cluster: &str) -> String {
    let mut out = String::new();
    let mut rest = text.chars();
    while let Some(letter) = rest.next() {
        match (letter, if letter == '%' { rest.clone().next() } else { None }) {
            ('%', Some('n')) => out.push_str(&node.replace('/', "_")),
            ('%', Some('c')) => out.push_str(&cluster.replace('/', "_")),
            ('%', Some('%')) => out.push('%'),
            _ => {
                out.push(letter);
                continue;
            }
        }
        rest.next();
    }
    out
}

/// `[nvml]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NvmlSettings {
    /// The library's name, or its path (`%n`, `%c` as in `[paths]`). Never taken from an environment.
    pub library: String,
}

impl Default for NvmlSettings {
    fn default() -> Self {
        NvmlSettings { library: "libnvidia-ml.so.1".into() }
    }
}

impl NvmlSettings {
    /// The library of one node.
    pub fn library_for(&self, node: &str, cluster: &str) -> String {
        fill_in(&self.library, node, cluster)
    }
}

/// `[probe]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProbeSettings {
    /// How long a prolog's probe may take in all. 2 s: slurmd logs a slow prolog from MessageTimeout / 2 (5 s) on and
    /// tells the job "Prolog hung" 2 s before MessageTimeout (8 s); never 5 s or more.
    pub deadline_ms: u64,
    /// The same where persistence mode is known to be off: opening a GPU then takes 1 to 3 s
    /// (docs.nvidia.com/deploy/driver-persistence).
    pub cold_deadline_ms: u64,
    /// How far apart two silent looks at the same GPU must be to count as a finding. 30 s is ours: longer than a
    /// driver's recovery from one GSP timeout (6 s a call, leptonai/gpud test data).
    pub silent_recheck_s: u64,
}

impl Default for ProbeSettings {
    fn default() -> Self {
        ProbeSettings { deadline_ms: 2000, cold_deadline_ms: 4500, silent_recheck_s: 30 }
    }
}

/// `[slurm]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SlurmSettings {
    /// Folder of scontrol; empty: beside the slurmd that started us, else /usr/bin.
    pub bin: String,
    /// slurm.conf; empty: as slurmd told us.
    pub conf: String,
    /// gres.conf; empty: beside slurm.conf.
    pub gres_conf: String,
    /// How long one scontrol may take. 3 s is ours: two calls stay below Slurm's 8 s "Prolog hung" message.
    pub scontrol_deadline_ms: u64,
}

impl Default for SlurmSettings {
    fn default() -> Self {
        SlurmSettings {
            bin: String::new(),
            conf: String::new(),
            gres_conf: String::new(),
            scontrol_deadline_ms: 3000,
        }
    }
}

/// What a finding may lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Log and history only.
    #[default]
    Observe,
    /// The job goes on; admin and user are told.
    Comment,
    /// The job is refused and the node drained.
    Drain,
}

impl Mode {
    /// The word used in gpuward.toml.
    pub fn word(self) -> &'static str {
        match self {
            Mode::Observe => "observe",
            Mode::Comment => "comment",
            Mode::Drain => "drain",
        }
    }
}

/// `[health]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HealthSettings {
    /// The overall mode. A fresh install observes.
    pub mode: Mode,
    /// How many GPUs every node must have; absent: what `[[expected]]` says of it, else what gres.conf names for it.
    pub expected_gpus: Option<u32>,
    /// A mode of its own for single codes.
    pub codes: BTreeMap<String, CodePolicy>,
    /// Where the limits lie.
    pub limits: Limits,
    /// Single rows of the XID catalogue, by number.
    pub xid: BTreeMap<String, RowPolicy>,
    /// Single rows of the SXid catalogue, by number.
    pub sxid: BTreeMap<String, RowPolicy>,
    /// A file with rows that go before the XID catalogue's; empty: none.
    pub xid_catalogue: String,
    /// A file with rows that go before the SXid catalogue's; empty: none.
    pub sxid_catalogue: String,
}

/// `[health.codes.CODE]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodePolicy {
    /// The mode of this code.
    pub mode: Mode,
}

/// `[health.xid.N]`, `[health.sxid.N]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowPolicy {
    /// What to do about this number.
    pub action: Action,
}

/// What the plugin does about a task's environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum EnvironmentMode {
    /// Say in the log what would be set.
    #[default]
    Observe,
    /// Set it, where the user did not.
    Set,
}

/// `[environment]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EnvironmentSettings {
    /// Whether tasks get `CUDA_DEVICE_ORDER=PCI_BUS_ID` and `GPUWARD_SET`.
    pub mode: EnvironmentMode,
}

/// `[log]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogSettings {
    /// A file beside syslog (`%n`, `%c` as in `[paths]`); empty: syslog only.
    pub file: String,
    /// The least important line that is kept.
    pub level: LogLevel,
}

impl LogSettings {
    /// The log file of one node, if there is one.
    pub fn file_for(&self, node: &str, cluster: &str) -> Option<String> {
        (!self.file.is_empty()).then(|| fill_in(&self.file, node, cluster))
    }
}

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// An admin must act.
    Error,
    /// Degraded, works.
    Warn,
    /// One line per job and per drain.
    #[default]
    Info,
    /// Each decision with its why.
    Debug,
}
