//! Processes on a GPU.

use std::path::Path;

use super::exported;
use super::pointers::Out;
use super::types::{ProcessInfo, ProcessSample};
use crate::code::Code;
use crate::engine::{Answer, Device};
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
        used_bytes: process.memory_mib << 20,
        gpu_instance: mig.map_or(NO_INSTANCE, |mig| mig.gpu_instance),
        compute_instance: mig.map_or(NO_INSTANCE, |mig| mig.compute_instance),
    }
}

fn list(device: &Device<'_>, kind: ProcessKind, count: Out<u32>, infos: Out<ProcessInfo>) -> Answer<()> {
    let processes = device.processes(Some(kind));
    let infos_now: Vec<_> = processes
        .into_iter()
        .filter(|(process, _)| shown(process))
        .map(|(process, mig)| info(process, mig))
        .collect();
    infos.put_list(count, &infos_now)
}

/// One sample of each process, of now.
fn samples(device: &Device<'_>) -> Answer<Vec<ProcessSample>> {
    device.whole()?;
    let util = device.util();
    let processes = device.processes(None).into_iter().filter(|(process, _)| shown(process));
    Ok(processes
        .map(|(process, _)| ProcessSample {
            pid: process.pid,
            time_us: device.now.unix_us,
            sm_pct: util.gpu_pct,
            memory_pct: util.memory_pct,
            encoder_pct: 0,
            decoder_pct: 0,
        })
        .collect())
}

exported! {
    /// `nvmlDeviceGetComputeRunningProcesses_v3`.
    gpu nvmlDeviceGetComputeRunningProcesses_v3(count: Out<u32>, infos: Out<ProcessInfo>) |device|
        list(device, ProcessKind::Compute, count, infos);

    /// `nvmlDeviceGetGraphicsRunningProcesses_v3`.
    gpu nvmlDeviceGetGraphicsRunningProcesses_v3(count: Out<u32>, infos: Out<ProcessInfo>) |device|
        list(device, ProcessKind::Graphics, count, infos);

    /// `nvmlDeviceGetMPSComputeRunningProcesses_v3`.
    gpu nvmlDeviceGetMPSComputeRunningProcesses_v3(count: Out<u32>, infos: Out<ProcessInfo>) |device|
        list(device, ProcessKind::Mps, count, infos);

    /// `nvmlDeviceGetProcessUtilization`: not in MIG mode; "not found" without samples newer than asked for.
    gpu nvmlDeviceGetProcessUtilization(out: Out<ProcessSample>, count: Out<u32>, newer_than_us: u64) |device| {
        if device.whole()?.mig.enabled {
            return Err(Code::NOT_SUPPORTED);
        }
        let mut found = samples(device)?;
        found.retain(|sample| sample.time_us > newer_than_us);
        if found.is_empty() {
            return Err(Code::NOT_FOUND);
        }
        out.put_list(count, &found)
    };
}
