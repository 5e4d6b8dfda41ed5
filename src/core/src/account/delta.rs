//! The difference of two readings of one counter, and whether it means anything.

use super::record::{Quality, Used};
use crate::model::Reading;

/// Why two readings cannot be subtracted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reset {
    /// The node was rebooted in between.
    NodeReboot,
    /// The driver was loaded anew in between.
    DriverReload,
    /// Another board sits in the slot.
    GpuReplaced,
    /// There is no first reading.
    NoStart,
}

impl Reset {
    /// The word inside `partial(...)`.
    pub fn word(self) -> &'static str {
        match self {
            Reset::NodeReboot => "node_reboot",
            Reset::DriverReload => "driver_reload",
            Reset::GpuReplaced => "gpu_replaced",
            Reset::NoStart => "no_start",
        }
    }
}

/// What the job used of one counter. Never negative, never huge because of a restart: then there is no value, and the
/// quality says why.
pub fn delta(start: &Reading<u64>, end: Option<&Reading<u64>>, reset: Option<Reset>) -> Used {
    let none = |quality| Used { value: None, quality };
    let partial = |reason: &str| none(Quality::Partial(reason.to_owned()));
    if *start == Reading::NotSupported || end == Some(&Reading::NotSupported) {
        return none(Quality::Missing);
    }
    if let Some(reset) = reset {
        return partial(reset.word());
    }
    let Some(&before) = start.value() else { return partial("no_start") };
    match end {
        None => partial("no_end"),
        Some(Reading::Lost) => partial("gpu_lost"),
        Some(end) => match end.value() {
            None => partial("no_end"),
            Some(&after) if after < before => partial("counter_reset"),
            Some(&after) => Used { value: Some(after - before), quality: Quality::Exact },
        },
    }
}
