//! Accounting mode: what ended and running processes have used.

use super::exported;
use super::modes::on_or_off;
use super::pointers::Out;
use super::types::{AccountingStats, AccountingStatsV2};
use crate::code::Code;
use crate::engine::{Accounted, Answer, Device};
use crate::scenario::AccountingEntry;

/// Of two processes with one pid the one that started last.
fn of_pid(device: &Device<'_>, pid: u32) -> Answer<Accounted> {
    let mut ring = device.accounted()?;
    let found = ring.iter().rposition(|process| process.entry.pid == pid).ok_or(Code::NOT_FOUND)?;
    Ok(ring.swap_remove(found))
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

/// Version 2 also has sums, in hundredths of a percent, so that several processes make one mean.
fn stats_v2(Accounted { entry, samples }: &Accounted) -> AccountingStatsV2 {
    let sum = |percent: u32| u64::from(*samples) * u64::from(percent) * 100;
    AccountingStatsV2 {
        pid: entry.pid,
        running: entry.running.into(),
        gpu_pct: entry.gpu_pct,
        memory_pct: entry.memory_pct,
        max_memory_bytes: entry.max_memory_mib << 20,
        samples: *samples,
        padding: 0,
        sum_gpu: sum(entry.gpu_pct),
        sum_memory: sum(entry.memory_pct),
        time_ms: entry.time_ms,
        start_unix_us: entry.start_unix_us,
    }
}

/// A moment as a value for the settings.
fn moment(boottime_ms: u64) -> Option<toml::Value> {
    Some(i64::try_from(boottime_ms).unwrap_or(i64::MAX).into())
}

exported! {
    /// `nvmlDeviceGetAccountingMode`.
    gpu nvmlDeviceGetAccountingMode(mode: Out<u32>) |device| mode.put(device.accounting_on()?.into());

    /// `nvmlDeviceSetAccountingMode`: processes count that start from now on.
    setter nvmlDeviceSetAccountingMode(mode: u32) |device, set| {
        let on = device.accounting_on()?;
        if device.gpu.mig.enabled {
            return Err(Code::NOT_SUPPORTED);
        }
        let wanted = on_or_off(mode)?;
        if mode == 1 && !on {
            set("accounting.since_boottime_ms", moment(device.now.boottime_ms))?;
        }
        set("accounting.enabled", wanted)
    };

    /// `nvmlDeviceClearAccountingPids`: processes that have ended leave the ring.
    setter nvmlDeviceClearAccountingPids() |device, set| {
        device.accounted()?;
        set("accounting.cleared_boottime_ms", moment(device.now.boottime_ms))
    };

    /// `nvmlDeviceGetAccountingBufferSize`.
    gpu nvmlDeviceGetAccountingBufferSize(size: Out<u32>) |device| size.put(device.accounting()?.buffer_size);

    /// `nvmlDeviceGetAccountingPids`.
    gpu nvmlDeviceGetAccountingPids(count: Out<u32>, pids: Out<u32>) |device| {
        let known: Vec<u32> = device.accounted()?.iter().map(|process| process.entry.pid).collect();
        pids.put_list(count, &known)
    };

    /// `nvmlDeviceGetAccountingStats`.
    gpu nvmlDeviceGetAccountingStats(pid: u32, out: Out<AccountingStats>) |device|
        out.put(stats(&of_pid(device, pid)?.entry));

    /// `nvmlDeviceGetAccountingStats_v2`: the struct's first word says which process.
    gpu nvmlDeviceGetAccountingStats_v2(out: Out<AccountingStatsV2>) |device| {
        let pid = out.cast::<u32>().get()?;
        out.put(stats_v2(&of_pid(device, pid)?))
    };
}
