//! Where the limits lie: `[health.limits]` in gpuward.toml. Each default names its source.

use serde::Deserialize;

/// `[health.limits]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Lowest enforced power limit, percent of the default: below it the GPU is capped. 90 is ours.
    pub power_limit_pct: u32,
    /// How far apart two silent looks at the same GPU must be to count as a finding; from `[probe] silent_recheck_s`.
    #[serde(skip)]
    pub silent_recheck_s: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { power_limit_pct: 90, silent_recheck_s: 30 }
    }
}
