//! Where the limits lie: `[health.limits]` in gpuward.toml. Each default names its source.

use serde::Deserialize;

/// `[health.limits]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Lowest enforced power limit, percent of the default: below it the GPU is capped. 90 is ours.
    pub power_limit_pct: u32,
    /// How many times the limit of PCIe replays a link must repeat to be called faulty and not only noisy. 10 is ours.
    pub pcie_replay_fail_times: u64,
    /// Corrected PCIe errors in an hour that the kernel may count for a GPU and its port. 1000 is ours.
    pub pcie_aer_corrected_per_hour: u64,
    /// How long after boot a GPU may wait for the NVLink fabric, seconds. 5 minutes are ours.
    pub fabric_wait_s: u64,
    /// How far apart two silent looks at the same GPU must be to count as a finding; from `[probe] silent_recheck_s`.
    #[serde(skip)]
    pub silent_recheck_s: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            power_limit_pct: 90,
            pcie_replay_fail_times: 10,
            pcie_aer_corrected_per_hour: 1000,
            fabric_wait_s: 300,
            silent_recheck_s: 30,
        }
    }
}
