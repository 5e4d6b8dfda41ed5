//! Kernel modules and what has the GPUs instead of the driver.

use super::finding::{Finding, Severity, Subject};
use super::{Case, Expected};
use crate::model::platform::{BoundGpu, PlatformReading};
use crate::model::topology::NicReading;
use crate::model::{Reading, Snapshot};
use crate::text::escape;

/// Node-wide, from sysfs and procfs alone.
pub(super) fn judge(case: &Case<'_>) -> Vec<Finding> {
    let mut findings = foreign(case);
    findings.extend(uvm(case.snapshot));
    findings.extend(refused(case.snapshot));
    findings.extend(peermem(case.snapshot));
    findings.extend(imex(case.snapshot));
    findings.extend(cuda(case));
    findings
}

fn is_locked(platform: &PlatformReading) -> Option<&str> {
    platform.lockdown.value().map(String::as_str).filter(|mode| *mode != "none")
}

/// nvidia-modprobe loads the module at the first use of CUDA, so its absence alone says little.
fn uvm(snapshot: &Snapshot) -> Option<Finding> {
    let Snapshot { host, .. } = snapshot;
    if host.platform.uvm != Reading::Value(false) || host.module_loaded != Reading::Value(true) {
        return None;
    }
    let finding = Finding::of("UVM_MISSING", Subject::Node, "nvidia_uvm is not loaded", "sysfs");
    let locked = is_locked(&host.platform).is_some();
    Some(if locked { finding.with_severity(Severity::Warn) } else { finding })
}

/// Explains why a module is not there.
fn refused(snapshot: &Snapshot) -> Option<Finding> {
    let mode = is_locked(&snapshot.host.platform)?;
    let missing =
        [&snapshot.host.module_loaded, &snapshot.host.platform.uvm].contains(&&Reading::Value(false));
    let what = format!("kernel lockdown is {}: unsigned modules are refused", escape(mode, 20));
    missing.then(|| Finding::of("MOD_REFUSED", Subject::Node, what, "sysfs"))
}

/// Drivers that take GPUs to hand them to virtual machines: on purpose, always.
const HANDED_OVER: [&str; 3] = ["vfio-pci", "pci-stub", "xen-pciback"];
/// The kernel's own drivers for NVIDIA's GPUs.
const OPEN_SOURCE: [&str; 3] = ["nouveau", "nova_core", "NovaCore"];

fn foreign(case: &Case<'_>) -> Vec<Finding> {
    let bound = case.snapshot.host.platform.bound.value().map_or(&[][..], Vec::as_slice);
    let by_nvidia = bound.iter().filter(|gpu| gpu.driver.as_deref() == Some("nvidia")).count();
    let wanted = case.expected.gpu_count.as_ref().map_or(0, |(count, _)| *count);
    let too_few = usize::try_from(wanted).is_ok_and(|wanted| by_nvidia < wanted);
    bound.iter().filter_map(|gpu| foreign_gpu(gpu, case.expected, too_few)).collect()
}

/// A console card may well be nouveau's. It is a fault where a GPU that computed before has gone over, or where too few
/// are left.
fn foreign_gpu(gpu: &BoundGpu, expected: &Expected, too_few: bool) -> Option<Finding> {
    let driver =
        gpu.driver.as_deref().filter(|driver| *driver != "nvidia" && !HANDED_OVER.contains(driver))?;
    let known = expected.known_at(Some(gpu.pci));
    let subject =
        Subject::Gpu { slot: None, pci: Some(gpu.pci), uuid: known.map(|known| known.uuid.clone()) };
    let what = format!("bound to {}", escape(driver, 20));
    let finding = Finding::of("GPU_FOREIGN", subject, what, "sysfs").measured(escape(driver, 20), "nvidia");
    let proven = OPEN_SOURCE.contains(&driver) && (known.is_some() || too_few);
    Some(if proven { finding } else { finding.with_severity(Severity::Warn) })
}

pub(super) fn infiniband(snapshot: &Snapshot) -> impl Iterator<Item = &NicReading> {
    let nics = snapshot.host.layout.as_ref().and_then(|layout| layout.nics.value());
    nics.into_iter().flatten().filter(|nic| nic.link_layer.as_deref() == Some("InfiniBand"))
}

/// From 5.12 on the kernel's dma-buf does what nvidia_peermem does (NVIDIA's GPUDirect RDMA documentation).
const DMA_BUF: (u32, u32) = (5, 12);

fn peermem(snapshot: &Snapshot) -> Option<Finding> {
    let platform = &snapshot.host.platform;
    let kernel = platform.kernel.value()?;
    let old = version(kernel)? < DMA_BUF;
    if !old || platform.peermem != Reading::Value(false) || infiniband(snapshot).next().is_none() {
        return None;
    }
    let finding = Finding::of("PEERMEM", Subject::Node, "nvidia_peermem is not loaded", "sysfs");
    Some(finding.measured(format!("kernel {}", escape(kernel, 30)), "5.12 or nvidia_peermem"))
}

/// The first two numbers of `5.15.0-91-generic` or `570.124.06`.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|letter: char| !letter.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// GPUs of one NVLink domain over several nodes name a cluster. Slurm's switch plugin may make the channel for each job,
/// so its absence counts only where the service does not run either.
fn imex(snapshot: &Snapshot) -> Option<Finding> {
    let platform = &snapshot.host.platform;
    let fabric = |gpu: &crate::model::snapshot::ProbedGpu| {
        let fabric = gpu.reading.detail.as_ref()?.fabric.value()?;
        Some(fabric.state == 3 && !fabric.cluster_uuid.is_empty())
    };
    let in_cluster = snapshot.gpus.iter().any(|gpu| fabric(gpu) == Some(true));
    let none = platform.imex_channels == Reading::Value(0) && platform.imex_service == Reading::Value(false);
    let what = "nvidia-imex does not run and no IMEX channel is there";
    (in_cluster && none).then(|| Finding::of("IMEX", Subject::Node, what, "procfs"))
}

/// The lowest driver of each CUDA major (docs.nvidia.com/deploy/cuda-compatibility).
const CUDA_NEEDS: [(u32, u32); 4] = [(10, 410), (11, 450), (12, 525), (13, 580)];

fn cuda(case: &Case<'_>) -> Option<Finding> {
    let wanted = case.limits.cuda_major;
    let (_, needs) = CUDA_NEEDS.into_iter().find(|(major, _)| *major == wanted)?;
    let driver = case.snapshot.node.driver_version.value()?;
    let (branch, _) = version(driver)?;
    let what = format!("driver {} is too old for CUDA {wanted}", escape(driver, 20));
    let finding = || Finding::of("CUDA_DRIVER", Subject::Node, what, "NVML").measured(branch, needs);
    (branch < needs).then(finding)
}

#[cfg(test)]
mod tests;
