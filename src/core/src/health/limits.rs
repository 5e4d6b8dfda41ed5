//! Where the limits lie: `[health.limits]` in gpuward.toml. Each default names its source.

use serde::Deserialize;

/// `[health.limits]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Lowest enforced power limit, percent of the default: below it the GPU is capped. 90 is ours.
    pub power_limit_pct: u32,
    /// Device memory that may be in use while no process holds any, MiB, where the GPU's idle use is not known. 256 is ours;
    /// gcm takes 15, which H100 boards pass while idle.
    pub left_memory_mib: u64,
    /// The same beyond the idle use that is known, MiB. 128 is ours.
    pub left_memory_over_idle_mib: u64,
    /// How long a process may be seen waiting in the kernel, seconds. 120 is ours, and the kernel's own limit for its "task
    /// blocked" message (hung_task_timeout_secs).
    pub stuck_s: u64,
    /// Major version of CUDA that the site's jobs want; 0: not judged.
    pub cuda_major: u32,
    /// Frequency governor that the site wants; empty: not judged.
    pub cpu_governor: String,
    /// Longest time that a CPU may take to wake up, microseconds: the exit latency of its deepest idle state; 0: not judged.
    pub cpu_idle_latency_us: u32,
    /// How far apart two silent looks at the same GPU must be to count as a finding; from `[probe] silent_recheck_s`.
    #[serde(skip)]
    pub silent_recheck_s: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            power_limit_pct: 90,
            left_memory_mib: 256,
            left_memory_over_idle_mib: 128,
            stuck_s: 120,
            cuda_major: 0,
            cpu_governor: String::new(),
            cpu_idle_latency_us: 0,
            silent_recheck_s: 30,
        }
    }
}
