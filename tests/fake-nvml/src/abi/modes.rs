//! Persistence and compute mode, power limit: what an administrator sets.

use super::exported;
use super::pointers::Out;
use crate::code::Code;
use crate::engine::Answer;

/// 0 or 1 as a value for the settings.
pub(super) fn on_or_off(mode: u32) -> Answer<Option<toml::Value>> {
    if mode > 1 { Err(Code::INVALID_ARGUMENT) } else { Ok(Some((mode == 1).into())) }
}

exported! {
    /// `nvmlDeviceGetPersistenceMode`.
    gpu nvmlDeviceGetPersistenceMode(mode: Out<u32>) |device| mode.put(device.whole()?.persistence.into());

    /// `nvmlDeviceSetPersistenceMode`.
    setter nvmlDeviceSetPersistenceMode(mode: u32) |device, set| {
        device.whole()?;
        set("persistence", on_or_off(mode)?)
    };

    /// `nvmlDeviceGetComputeMode`.
    gpu nvmlDeviceGetComputeMode(mode: Out<u32>) |device| mode.put(device.whole()?.compute_mode);

    /// `nvmlDeviceSetComputeMode`.
    setter nvmlDeviceSetComputeMode(mode: u32) |device, set| {
        device.whole()?;
        if mode > 3 {
            return Err(Code::INVALID_ARGUMENT);
        }
        set("compute_mode", Some(i64::from(mode).into()))
    };

    /// `nvmlDeviceSetPowerManagementLimit`.
    setter nvmlDeviceSetPowerManagementLimit(mw: u32) |device, set| {
        let power = &device.whole()?.power;
        if !(power.min_limit_mw..=power.max_limit_mw).contains(&mw) {
            return Err(Code::INVALID_ARGUMENT);
        }
        set("power.limit_mw", Some(i64::from(mw).into()))
    };
}
