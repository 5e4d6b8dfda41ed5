//! Persistence, compute and accounting mode, power limit: what an administrator sets.

use super::exported;
use super::pointers::Out;
use super::types::AccountingStats;
use crate::code::Code;
use crate::engine::Answer;
use crate::scenario::{Accounting, AccountingEntry};

fn accounting(gpu: &crate::scenario::Gpu) -> Answer<&Accounting> {
    gpu.accounting.enabled.map(|_| &gpu.accounting).ok_or(Code::NOT_SUPPORTED)
}

/// Everything but the mode wants it to be on.
fn running(gpu: &crate::scenario::Gpu) -> Answer<&Accounting> {
    accounting(gpu).and_then(|own| if own.enabled == Some(true) { Ok(own) } else { Err(Code::NOT_SUPPORTED) })
}

fn stats(entry: &AccountingEntry) -> AccountingStats {
    AccountingStats {
        gpu_pct: entry.gpu_pct,
        memory_pct: entry.memory_pct,
        max_memory_bytes: entry.max_memory_mib << 20,
        time_ms: entry.time_ms,
        start_unix_us: entry.start_unix_us,
        running: entry.running.into(),
        reserved: [0; 5],
    }
}

/// 0 or 1 as a value for the settings.
fn on_or_off(mode: u32) -> Answer<Option<toml::Value>> {
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

    /// `nvmlDeviceGetAccountingMode`.
    gpu nvmlDeviceGetAccountingMode(mode: Out<u32>) |device|
        mode.put((accounting(device.whole()?)?.enabled == Some(true)).into());

    /// `nvmlDeviceSetAccountingMode`.
    setter nvmlDeviceSetAccountingMode(mode: u32) |device, set| {
        accounting(device.whole()?)?;
        set("accounting.enabled", on_or_off(mode)?)
    };

    /// `nvmlDeviceGetAccountingBufferSize`.
    gpu nvmlDeviceGetAccountingBufferSize(size: Out<u32>) |device| size.put(accounting(device.whole()?)?.buffer_size);

    /// `nvmlDeviceGetAccountingPids`.
    gpu nvmlDeviceGetAccountingPids(count: Out<u32>, pids: Out<u32>) |device| {
        let entries = &running(device.whole()?)?.entries;
        let known: Vec<u32> = entries.iter().map(|entry| entry.pid).collect();
        pids.put_list(count, &known)
    };

    /// `nvmlDeviceGetAccountingStats`: of two processes with one pid the later.
    gpu nvmlDeviceGetAccountingStats(pid: u32, out: Out<AccountingStats>) |device| {
        let entries = &running(device.whole()?)?.entries;
        let found = entries.iter().rev().find(|entry| entry.pid == pid);
        out.put(stats(found.ok_or(Code::NOT_FOUND)?))
    };
}
