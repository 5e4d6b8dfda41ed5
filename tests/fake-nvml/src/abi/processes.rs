//! Processes on a GPU.

use std::path::Path;

use super::exported;
use super::pointers::Out;
use super::types::{
    ProcessDetail, ProcessDetailList, ProcessInfo, ProcessInfoV1, ProcessLoadV1, ProcessLoadsV1,
    ProcessSample, version_word,
};
use crate::code::Code;
use crate::engine::{Answer, Device, ProcessLoad};
use crate::scenario::{MigDevice, Process, ProcessKind};

/// What NVML says where there is no instance.
const NO_INSTANCE: u32 = u32::MAX;

/// Whether a process shows. The driver drops those that are gone; the script's own stay unless they say otherwise.
fn shown(process: &Process) -> bool {
    !process.only_while_alive || Path::new("/proc").join(process.pid.to_string()).exists()
}

fn info(process: &Process, mig: Option<&MigDevice>) -> ProcessInfo {
    ProcessInfo {
        pid: process.pid,
        padding: 0,
        used_bytes: process.memory_mib << 20,
        gpu_instance: mig.map_or(NO_INSTANCE, |mig| mig.gpu_instance),
        compute_instance: mig.map_or(NO_INSTANCE, |mig| mig.compute_instance),
    }
}

/// Processes of a kind, as the driver shows them.
fn list(device: &Device<'_>, kind: ProcessKind) -> Vec<ProcessInfo> {
    let processes = device.processes(Some(kind)).into_iter().filter(|(process, _)| shown(process));
    processes.map(|(process, mig)| info(process, mig)).collect()
}

/// The first form of the list, without instances.
fn list_v1(device: &Device<'_>, kind: ProcessKind, count: Out<u32>, infos: Out<ProcessInfoV1>) -> Answer<()> {
    let now = list(device, kind);
    let now: Vec<_> = now
        .iter()
        .map(|info| ProcessInfoV1 { pid: info.pid, padding: 0, used_bytes: info.used_bytes })
        .collect();
    infos.put_list(count, &now)
}

/// What processes do now, if that is newer than a time; not in MIG mode. "Not found" where there is nothing.
fn loads(device: &Device<'_>, newer_than_us: u64) -> Answer<Vec<ProcessLoad>> {
    if device.whole()?.mig.enabled {
        return Err(Code::NOT_SUPPORTED);
    }
    let processes = device.processes(None).into_iter().map(|(process, _)| process);
    let processes: Vec<&Process> = processes.filter(|process| shown(process)).collect();
    let mut found = device.loads(&processes);
    found.retain(|load| load.time_us > newer_than_us);
    if found.is_empty() { Err(Code::NOT_FOUND) } else { Ok(found) }
}

fn sample(load: &ProcessLoad) -> ProcessSample {
    let ProcessLoad { pid, time_us, util } = load;
    ProcessSample {
        pid: *pid,
        padding: 0,
        time_us: *time_us,
        sm_pct: util.gpu_pct,
        memory_pct: util.memory_pct,
        encoder_pct: 0,
        decoder_pct: 0,
    }
}

fn load_v1(load: &ProcessLoad) -> ProcessLoadV1 {
    let ProcessLoad { pid, time_us, util } = load;
    ProcessLoadV1 {
        time_us: *time_us,
        pid: *pid,
        sm_pct: util.gpu_pct,
        memory_pct: util.memory_pct,
        encoder_pct: 0,
        decoder_pct: 0,
        jpeg_pct: 0,
        ofa_pct: 0,
        padding: 0,
    }
}

/// `mode` of a detail list.
fn kind_of(mode: u32) -> Answer<ProcessKind> {
    match mode {
        0 => Ok(ProcessKind::Compute),
        1 => Ok(ProcessKind::Graphics),
        2 => Ok(ProcessKind::Mps),
        _ => Err(Code::INVALID_ARGUMENT),
    }
}

exported! {
    /// `nvmlDeviceGetComputeRunningProcesses`.
    gpu nvmlDeviceGetComputeRunningProcesses(count: Out<u32>, infos: Out<ProcessInfoV1>) |device|
        list_v1(device, ProcessKind::Compute, count, infos);

    /// `nvmlDeviceGetComputeRunningProcesses_v2`.
    gpu nvmlDeviceGetComputeRunningProcesses_v2(count: Out<u32>, infos: Out<ProcessInfo>) |device|
        infos.put_list(count, &list(device, ProcessKind::Compute));

    /// `nvmlDeviceGetComputeRunningProcesses_v3`.
    gpu nvmlDeviceGetComputeRunningProcesses_v3(count: Out<u32>, infos: Out<ProcessInfo>) |device|
        infos.put_list(count, &list(device, ProcessKind::Compute));

    /// `nvmlDeviceGetGraphicsRunningProcesses`.
    gpu nvmlDeviceGetGraphicsRunningProcesses(count: Out<u32>, infos: Out<ProcessInfoV1>) |device|
        list_v1(device, ProcessKind::Graphics, count, infos);

    /// `nvmlDeviceGetGraphicsRunningProcesses_v2`.
    gpu nvmlDeviceGetGraphicsRunningProcesses_v2(count: Out<u32>, infos: Out<ProcessInfo>) |device|
        infos.put_list(count, &list(device, ProcessKind::Graphics));

    /// `nvmlDeviceGetGraphicsRunningProcesses_v3`.
    gpu nvmlDeviceGetGraphicsRunningProcesses_v3(count: Out<u32>, infos: Out<ProcessInfo>) |device|
        infos.put_list(count, &list(device, ProcessKind::Graphics));

    /// `nvmlDeviceGetMPSComputeRunningProcesses`.
    gpu nvmlDeviceGetMPSComputeRunningProcesses(count: Out<u32>, infos: Out<ProcessInfoV1>) |device|
        list_v1(device, ProcessKind::Mps, count, infos);

    /// `nvmlDeviceGetMPSComputeRunningProcesses_v2`.
    gpu nvmlDeviceGetMPSComputeRunningProcesses_v2(count: Out<u32>, infos: Out<ProcessInfo>) |device|
        infos.put_list(count, &list(device, ProcessKind::Mps));

    /// `nvmlDeviceGetMPSComputeRunningProcesses_v3`.
    gpu nvmlDeviceGetMPSComputeRunningProcesses_v3(count: Out<u32>, infos: Out<ProcessInfo>) |device|
        infos.put_list(count, &list(device, ProcessKind::Mps));

    /// `nvmlDeviceGetRunningProcessDetailList`: struct version 1. Without an array it tells the number.
    gpu nvmlDeviceGetRunningProcessDetailList(request: Out<ProcessDetailList>) |device| {
        let version = version_word::<ProcessDetailList>(1);
        if request.cast::<u32>().get()? != version {
            return Err(Code::ARGUMENT_VERSION_MISMATCH);
        }
        let ProcessDetailList { mode, count: room, array, .. } = request.get()?;
        let details: Vec<_> = list(device, kind_of(mode)?)
            .iter()
            .map(|info| ProcessDetail {
                pid: info.pid,
                padding: 0,
                used_bytes: info.used_bytes,
                gpu_instance: info.gpu_instance,
                compute_instance: info.compute_instance,
                // No confidential computing here: nothing to tell apart.
                protected_bytes: 0,
            })
            .collect();
        let count = u32::try_from(details.len()).map_err(|_| Code::UNKNOWN)?;
        request.put(ProcessDetailList { version, mode, count, padding: 0, array })?;
        match () {
            () if count == 0 => Ok(()),
            () if array.given().is_err() || room < count => Err(Code::INSUFFICIENT_SIZE),
            () => array.fill(&details),
        }
    };

    /// `nvmlDeviceGetProcessUtilization`: without a buffer it tells the number.
    gpu nvmlDeviceGetProcessUtilization(out: Out<ProcessSample>, count: Out<u32>, newer_than_us: u64) |device| {
        let found: Vec<_> = loads(device, newer_than_us)?.iter().map(sample).collect();
        match out.given() {
            Ok(()) => out.put_list(count, &found),
            Err(_) => {
                count.put(u32::try_from(found.len()).map_err(|_| Code::UNKNOWN)?)?;
                Err(Code::INSUFFICIENT_SIZE)
            }
        }
    };

    /// `nvmlDeviceGetProcessesUtilizationInfo`: struct version 1.
    gpu nvmlDeviceGetProcessesUtilizationInfo(request: Out<ProcessLoadsV1>) |device| {
        let version = version_word::<ProcessLoadsV1>(1);
        if request.cast::<u32>().get()? != version {
            return Err(Code::ARGUMENT_VERSION_MISMATCH);
        }
        let ProcessLoadsV1 { count: room, newer_than_us, array, .. } = request.get()?;
        let found: Vec<_> = loads(device, newer_than_us)?.iter().map(load_v1).collect();
        let count = u32::try_from(found.len()).map_err(|_| Code::UNKNOWN)?;
        request.put(ProcessLoadsV1 { version, count, newer_than_us, array })?;
        if array.given().is_err() || room < count { Err(Code::INSUFFICIENT_SIZE) } else { array.fill(&found) }
    };
}
