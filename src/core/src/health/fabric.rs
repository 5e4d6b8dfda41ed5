//! The NVLink fabric: whether a GPU is part of it, and the manager that makes it.

use super::Case;
use super::finding::{Finding, Severity, Subject};
use super::nvlink::may_use_nvlink;
use crate::model::detail::FabricReading;
use crate::model::snapshot::ProbedGpu;

/// A first look at a GPU that waits may be just after a reset or after a restart of the manager: only one that still waits
/// this much later is a fault. Ours.
const STILL_WAITS_NS: u64 = 60_000_000_000;

/// State, status and health of one GPU's part of the fabric. State 0 is a GPU without one.
pub(super) fn judge_gpu(case: &Case<'_>, gpu: &ProbedGpu) -> Option<Finding> {
    let fabric = gpu.reading.detail.as_deref()?.fabric.value().filter(|_| may_use_nvlink(gpu))?;
    match fabric.state {
        3 if fabric.status != 0 => {
            let what = format!("registration with the NVLink fabric failed, code {}", fabric.status);
            Some(of_gpu(gpu, what).measured(fabric.status, 0))
        }
        3 => unhealthy(gpu, fabric),
        _ if fabric.waits() => waits(case, gpu, fabric),
        _ => None,
    }
}

fn of_gpu(gpu: &ProbedGpu, what: String) -> Finding {
    Finding::of("FABRIC", Subject::of(gpu), what, "NVML fabric info")
}

fn waits(case: &Case<'_>, gpu: &ProbedGpu, fabric: &FabricReading) -> Option<Finding> {
    let now_ns = case.snapshot.boottime_ns;
    if now_ns < case.limits.fabric_wait_s.saturating_mul(1_000_000_000) {
        return None;
    }
    let word = if fabric.state == 1 { "not started" } else { "in progress" };
    let what = format!("not in the NVLink fabric, registration {word}");
    let since_ns = case.history.seen(gpu.uuid()).and_then(|seen| seen.fabric_waits_since_ns.value().copied());
    let still =
        since_ns.is_some_and(|since_ns| since_ns > 0 && now_ns.saturating_sub(since_ns) >= STILL_WAITS_NS);
    let severity = if still { Severity::Fail } else { Severity::Warn };
    Some(of_gpu(gpu, what).measured(format!("state {}", fabric.state), "state 3").with_severity(severity))
}

/// Fields of two bits in the health mask that are bad where they are 1 (nvml.h), and whether they pass by themselves.
const TROUBLES: [(u32, &str, bool); 4] = [
    (0, "degraded bandwidth", false),
    (2, "route recovery under way", true),
    (4, "unhealthy route", false),
    (6, "recovery from an access timeout under way", true),
];

/// What a configuration of the fabric that is not right lacks, by the number in bits 8 to 11 of the mask (nvml.h); 0 is "not
/// supported", 1 is none.
const MISFITS: [&str; 9] = [
    "",
    "",
    "wrong system GUID",
    "wrong chassis serial number",
    "no partition",
    "too few NVLinks",
    "wrong GPU firmware",
    "wrong location",
    "wrong GPU state",
];

/// Whether a partition is assigned (bits 12 and 13) is no matter of health.
fn unhealthy(gpu: &ProbedGpu, fabric: &FabricReading) -> Option<Finding> {
    let mask = fabric.health_mask?;
    let troubles: Vec<&(u32, &str, bool)> =
        TROUBLES.iter().filter(|(bit, _, _)| mask >> bit & 0b11 == 1).collect();
    let misfit = match mask >> 8 & 0b1111 {
        0 | 1 => None,
        number => {
            Some(usize::try_from(number).ok().and_then(|at| MISFITS.get(at)).unwrap_or(&"misconfigured"))
        }
    };
    if troubles.is_empty() && misfit.is_none() {
        return None;
    }
    let passes = misfit.is_none() && troubles.iter().all(|(_, _, passes)| *passes);
    let words: Vec<&str> = troubles.iter().map(|(_, word, _)| *word).chain(misfit.copied()).collect();
    let finding = of_gpu(gpu, format!("NVLink fabric: {}", words.join(", ")));
    let finding = finding.measured(format!("health mask {mask:#x}"), "no trouble");
    Some(if passes { finding.with_severity(Severity::Warn) } else { finding })
}

/// NVIDIA's bridges of class "other" are NVSwitches.
const NVSWITCH_CLASS: u32 = 0x0680;
const NVIDIA: u32 = 0x10de;

/// A node with NVSwitches whose fabric manager does not run.
///
/// It may have been started in another way than by its service, so that this alone only warns. `node_wide` are the findings
/// that all GPUs of the node share: where there are any, the manager is their cause, and they are told by it.
pub(super) fn manager(case: &Case<'_>, node_wide: &mut Vec<Finding>) -> Option<Finding> {
    let host = &case.snapshot.host;
    let functions = host.layout.as_ref()?.pci.value()?;
    let is_switch = |class: u32, id: u32| class >> 8 == NVSWITCH_CLASS && id >> 16 == NVIDIA;
    let switches = functions.iter().filter(|function| is_switch(function.class, function.id)).count();
    if switches == 0 || host.fabric_manager.value() != Some(&false) {
        return None;
    }
    let version = host.module_version.value().map_or("the driver's version", String::as_str);
    let mut what = format!("{switches} NVSwitches and no fabric manager running");
    let severity = node_wide.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Warn);
    for finding in node_wide.drain(..) {
        what = format!("{what}; {}", finding.what);
    }
    let source = "control group of nvidia-fabricmanager.service";
    let finding = Finding::of("FABRIC_MGR", Subject::Node, what, source).with_severity(severity);
    Some(finding.measured("not running", format!("version {}", crate::text::escape(version, 30))))
}
