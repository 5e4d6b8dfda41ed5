//! Where the limits lie: `[health.limits]` in gpuward.toml. Each default names its source.

use serde::Deserialize;

/// `[health.limits]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Lowest enforced power limit, percent of the default: below it the GPU is capped. 90 is ours.
    pub power_limit_pct: u32,
    /// Highest mean draw between two looks, percent of the limit in force. 110 is ours.
    pub power_over_pct: u32,
    /// Highest core temperature of a GPU on which nothing runs, C. 60 is ours.
    pub idle_temp_c: u32,
    /// Highest memory temperature where the driver tells no limit of the board, C. 95 is ours.
    pub memory_temp_c: u32,
    /// Longest time throttled by heat or power brake, percent. 1 is ours: DCGM warns of any, which flags every busy GPU
    /// (NVIDIA/DCGM#285).
    pub throttle_pct: u32,
    /// Lowest clock under load, percent of the siblings' median, or of the default where no reason is told. 80 is ours.
    pub clock_low_pct: u32,
    /// Most corrected ECC errors a second, as a mean between two looks. 1000 is ours: failing HBM showed 4,647 to 17,657
    /// under load (NVIDIA/NVSentinel#1748).
    pub ecc_corr_per_s: u64,
    /// Corrected ECC errors in the life of the board that are worth a line (gcm).
    pub ecc_corr_total: u64,
    /// How many times the limit of PCIe replays a link must repeat to be called faulty and not only noisy. 10 is ours.
    pub pcie_replay_fail_times: u64,
    /// Corrected PCIe errors in an hour that the kernel may count for a GPU and its port. 1000 is ours.
    pub pcie_aer_corrected_per_hour: u64,
    /// How long after boot a GPU may wait for the NVLink fabric, seconds. 5 minutes are ours.
    pub fabric_wait_s: u64,
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
            power_over_pct: 110,
            idle_temp_c: 60,
            memory_temp_c: 95,
            throttle_pct: 1,
            clock_low_pct: 80,
            ecc_corr_per_s: 1000,
            ecc_corr_total: 50_000_000,
            pcie_replay_fail_times: 10,
            pcie_aer_corrected_per_hour: 1000,
            fabric_wait_s: 300,
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
