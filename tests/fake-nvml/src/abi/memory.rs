//! Memory and its errors.

use super::exported;
use super::pointers::Out;
use super::types::{
    Bar1Memory, EccErrorCounts, MemoryV1, MemoryV2, RepairStatusV1, RowRemapperHistogram, SramErrorStatusV1,
    version_word,
};
use crate::code::Code;
use crate::engine::{Answer, Device, EccKind};

/// The choice by `nvmlMemoryErrorType_t` and `nvmlEccCounterType_t`, both 0 or 1.
fn kind(error: u32, counter: u32) -> Answer<EccKind> {
    if error > 1 || counter > 1 {
        return Err(Code::INVALID_ARGUMENT);
    }
    Ok(EccKind { uncorrected: error == 1, aggregate: counter == 1 })
}

/// Retired pages of a cause: 0 several single-bit errors, 1 a double-bit error.
fn retired<'a>(device: &Device<'a>, cause: u32) -> Answer<&'a [u64]> {
    let retired = device.whole()?.retired.as_ref().ok_or(Code::NOT_SUPPORTED)?;
    match cause {
        0 => Ok(&retired.single_bit),
        1 => Ok(&retired.double_bit),
        _ => Err(Code::INVALID_ARGUMENT),
    }
}

fn sram_status(device: &Device<'_>, version: u32) -> Answer<SramErrorStatusV1> {
    let errors = |uncorrected, aggregate| device.sram_errors(EccKind { uncorrected, aggregate });
    let [volatile_unc_parity, aggregate_unc_parity] = device.gpu.ecc.sram_parity;
    let aggregate_unc = errors(true, true)?;
    Ok(SramErrorStatusV1 {
        version,
        padding: 0,
        aggregate_unc_parity,
        aggregate_unc_sec_ded: aggregate_unc.saturating_sub(aggregate_unc_parity),
        aggregate_cor: errors(false, true)?,
        volatile_unc_parity,
        volatile_unc_sec_ded: errors(true, false)?.saturating_sub(volatile_unc_parity),
        volatile_cor: errors(false, false)?,
        // All in one bucket: the sum is what readers use.
        aggregate_unc_bucket_l2: aggregate_unc,
        aggregate_unc_bucket_sm: 0,
        aggregate_unc_bucket_pcie: 0,
        aggregate_unc_bucket_mcu: 0,
        aggregate_unc_bucket_other: 0,
        threshold_exceeded: device.gpu.ecc.sram_threshold_exceeded.into(),
        end_padding: 0,
    })
}

exported! {
    /// `nvmlDeviceGetMemoryInfo`: this version counts reserved memory as used.
    gpu nvmlDeviceGetMemoryInfo(memory: Out<MemoryV1>) |device| {
        let now = device.memory();
        memory.put(MemoryV1 { total: now.total, free: now.free, used: now.used + now.reserved })
    };

    /// `nvmlDeviceGetMemoryInfo_v2`.
    gpu nvmlDeviceGetMemoryInfo_v2(memory: Out<MemoryV2>) |device| {
        let version = version_word::<MemoryV2>(2);
        if memory.cast::<u32>().get()? != version {
            return Err(Code::ARGUMENT_VERSION_MISMATCH);
        }
        let now = device.memory();
        memory.put(MemoryV2 { version, padding: 0, total: now.total, reserved: now.reserved, free: now.free, used: now.used })
    };

    /// `nvmlDeviceGetBAR1MemoryInfo`.
    gpu nvmlDeviceGetBAR1MemoryInfo(memory: Out<Bar1Memory>) |device| {
        let own = &device.whole()?.memory;
        let (total, used) = (own.bar1_mib << 20, own.bar1_used_mib << 20);
        memory.put(Bar1Memory { total, free: total.saturating_sub(used), used })
    };

    /// `nvmlDeviceGetEccMode`.
    gpu nvmlDeviceGetEccMode(current: Out<u32>, pending: Out<u32>) |device| {
        let ecc = &device.whole()?.ecc;
        let enabled = ecc.enabled.ok_or(Code::NOT_SUPPORTED)?;
        current.put(enabled.into())?;
        pending.put(ecc.pending.unwrap_or(enabled).into())
    };

    /// `nvmlDeviceGetTotalEccErrors`.
    gpu nvmlDeviceGetTotalEccErrors(error: u32, counter: u32, count: Out<u64>) |device|
        count.put(device.all_errors(kind(error, counter)?)?);

    /// `nvmlDeviceGetMemoryErrorCounter`: device memory (2) and SRAM (7) have counters here.
    gpu nvmlDeviceGetMemoryErrorCounter(error: u32, counter: u32, location: u32, count: Out<u64>) |device| {
        let kind = kind(error, counter)?;
        match location {
            2 => count.put(device.dram_errors(kind)?),
            7 => count.put(device.sram_errors(kind)?),
            0..8 => Err(Code::NOT_SUPPORTED),
            _ => Err(Code::INVALID_ARGUMENT),
        }
    };

    /// `nvmlDeviceGetDetailedEccErrors`.
    gpu nvmlDeviceGetDetailedEccErrors(error: u32, counter: u32, counts: Out<EccErrorCounts>) |device| {
        let kind = kind(error, counter)?;
        counts.put(EccErrorCounts {
            l1_cache: 0,
            l2_cache: device.sram_errors(kind)?,
            device_memory: device.dram_errors(kind)?,
            register_file: 0,
        })
    };

    /// `nvmlDeviceGetSramEccErrorStatus`.
    gpu nvmlDeviceGetSramEccErrorStatus(status: Out<SramErrorStatusV1>) |device| {
        let version = version_word::<SramErrorStatusV1>(1);
        if status.cast::<u32>().get()? != version {
            return Err(Code::ARGUMENT_VERSION_MISMATCH);
        }
        status.put(sram_status(device, version)?)
    };

    /// `nvmlDeviceGetRepairStatus`.
    gpu nvmlDeviceGetRepairStatus(status: Out<RepairStatusV1>) |device| {
        let version = version_word::<RepairStatusV1>(1);
        if status.cast::<u32>().get()? != version {
            return Err(Code::ARGUMENT_VERSION_MISMATCH);
        }
        let [channel, tpc] = device.whole()?.ecc.repair_pending.ok_or(Code::NOT_SUPPORTED)?;
        status.put(RepairStatusV1 {
            version,
            channel_repair_pending: channel.into(),
            tpc_repair_pending: tpc.into(),
        })
    };

    /// `nvmlDeviceGetRetiredPages`.
    gpu nvmlDeviceGetRetiredPages(cause: u32, count: Out<u32>, addresses: Out<u64>) |device|
        addresses.put_list(count, retired(device, cause)?);

    /// `nvmlDeviceGetRetiredPages_v2`: times of retirement are not kept here and read 0.
    gpu nvmlDeviceGetRetiredPages_v2(cause: u32, count: Out<u32>, addresses: Out<u64>, times: Out<u64>) |device| {
        let pages = retired(device, cause)?;
        addresses.put_list(count, pages)?;
        if pages.is_empty() { Ok(()) } else { times.fill(&vec![0; pages.len()]) }
    };

    /// `nvmlDeviceGetRetiredPagesPendingStatus`.
    gpu nvmlDeviceGetRetiredPagesPendingStatus(pending: Out<u32>) |device|
        pending.put(device.whole()?.retired.as_ref().ok_or(Code::NOT_SUPPORTED)?.pending.into());

    /// `nvmlDeviceGetRemappedRows`.
    gpu nvmlDeviceGetRemappedRows(corr: Out<u32>, uncorr: Out<u32>, pending: Out<u32>, failure: Out<u32>) |device| {
        let remap = device.remap()?;
        corr.put(remap.corr)?;
        uncorr.put(remap.uncorr)?;
        pending.put(remap.pending.into())?;
        failure.put(remap.failure.into())
    };

    /// `nvmlDeviceGetRowRemapperHistogram`.
    gpu nvmlDeviceGetRowRemapperHistogram(values: Out<RowRemapperHistogram>) |device| {
        let [max, high, partial, low, none] = device.remap()?.histogram;
        values.put(RowRemapperHistogram { max, high, partial, low, none })
    };
}
