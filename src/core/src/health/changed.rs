//! Are they the same GPUs as before, and alike: slots, serial numbers, firmware, MIG.

use super::Case;
use super::finding::{Finding, Severity, Subject};
use super::{Expected, KnownGpu};
use crate::model::detail::MigDeviceReading;
use crate::model::snapshot::ProbedGpu;
use crate::model::{GpuUuid, PciAddress, Snapshot};
use crate::text::escape;
use std::collections::BTreeMap;

/// Node-wide: what is known of each slot against what is there now, and GPUs of one model against each other.
pub(super) fn judge(case: &Case<'_>) -> Vec<Finding> {
    let known = case.expected.known.iter();
    let mut findings: Vec<Finding> = known.filter_map(|known| changed(known, case)).collect();
    findings.extend(mixed(case.snapshot, "VBIOS_MIX", "VBIOS", |gpu| {
        gpu.reading.detail.as_ref()?.board.vbios.value().cloned()
    }));
    findings.extend(mixed(case.snapshot, "GSP_INFO", "GSP firmware", |gpu| {
        let gsp = *gpu.reading.detail.as_ref()?.board.gsp.value()?;
        Some(if gsp { "on" } else { "off" }.to_owned())
    }));
    findings
}

fn uuid_at(snapshot: &Snapshot, pci: PciAddress) -> Option<&GpuUuid> {
    let probed =
        snapshot.gpus.iter().find(|gpu| gpu.pci() == Some(pci)).and_then(|gpu| gpu.reading.uuid.value());
    let listed = || snapshot.host.driver_gpus.iter().find(|gpu| gpu.pci == pci)?.uuid.as_ref();
    probed.or_else(listed)
}

fn serial_at(snapshot: &Snapshot, pci: PciAddress) -> Option<&String> {
    snapshot.gpus.iter().find(|gpu| gpu.pci() == Some(pci))?.reading.serial.value()
}

fn place_of(snapshot: &Snapshot, uuid: &GpuUuid) -> Option<PciAddress> {
    let probed = snapshot.gpus.iter().find(|gpu| gpu.reading.uuid.value() == Some(uuid));
    let listed = || snapshot.host.driver_gpus.iter().find(|gpu| gpu.uuid.as_ref() == Some(uuid));
    probed.and_then(ProbedGpu::pci).or_else(|| listed().map(|gpu| gpu.pci))
}

fn changed(known: &KnownGpu, case: &Case<'_>) -> Option<Finding> {
    let snapshot = case.snapshot;
    let subject = Subject::Gpu { slot: None, pci: Some(known.pci), uuid: Some(known.uuid.clone()) };
    let finding = |what: String| Finding::of("GPU_CHANGED", subject.clone(), what, super::expected::LEARNED);
    let now = uuid_at(snapshot, known.pci);
    if now == Some(&known.uuid) {
        // The same UUID on a board with another number does not happen by itself; say it, without a guess.
        let serial = serial_at(snapshot, known.pci)
            .filter(|now| known.serial.as_ref().is_some_and(|was| was != *now))?;
        let was = known.serial.as_deref().unwrap_or_default();
        let finding = finding("another serial number".into());
        return Some(finding.measured(escape(serial, 30), escape(was, 30)).with_severity(Severity::Warn));
    }
    if let Some(pci) = place_of(snapshot, &known.uuid) {
        let finding = finding(format!("moved to {pci}")).measured(pci, known.pci);
        return Some(finding.with_severity(Severity::Warn));
    }
    if let Some(now) = now {
        let finding =
            finding(format!("replaced by {}", now.short())).measured(now.short(), known.uuid.short());
        return Some(finding.with_severity(Severity::Warn));
    }
    // A slot that PCIe shows and the driver does not is GPU_MISS_DRV's.
    let on_pci = snapshot.host.pci_gpus.value()?;
    (!on_pci.contains(&known.pci)).then(|| finding("gone from its slot".into()))
}

/// GPUs of one model and part number that differ from most of their kind, once for the node.
fn mixed(
    snapshot: &Snapshot,
    code: &str,
    name: &str,
    value: impl Fn(&ProbedGpu) -> Option<String>,
) -> Option<Finding> {
    let mut kinds: BTreeMap<String, BTreeMap<String, Vec<PciAddress>>> = BTreeMap::new();
    for gpu in &snapshot.gpus {
        let part = gpu.reading.detail.as_ref().and_then(|detail| detail.board.part_number.value());
        let (Some(model), Some(value), Some(pci)) = (gpu.reading.model.value(), value(gpu), gpu.pci()) else {
            continue;
        };
        let kind = format!("{model} {}", part.map_or("", String::as_str));
        kinds.entry(kind).or_default().entry(value).or_default().push(pci);
    }
    let values = kinds.into_values().find(|values| values.len() > 1)?;
    let mut groups: Vec<(String, Vec<PciAddress>)> = values.into_iter().collect();
    groups.iter_mut().for_each(|(_, gpus)| gpus.sort_unstable());
    groups.sort_by_key(|(value, gpus)| (std::cmp::Reverse(gpus.len()), value.clone()));
    let (usual, _) = &groups[0];
    let others = &groups[1..];
    let mut odd: Vec<PciAddress> = others.iter().flat_map(|(_, gpus)| gpus).copied().collect();
    odd.sort_unstable();
    let odd: Vec<String> = odd.iter().map(ToString::to_string).collect();
    let what = format!("{name} of {} differs from its like", escape(&odd.join(" "), 60));
    let others: Vec<String> = others.iter().map(|(value, _)| escape(value, 30)).collect();
    Some(Finding::of(code, Subject::Node, what, "NVML").measured(others.join(", "), escape(usual, 30)))
}

/// MIG of one GPU: a mode that waits for a reset, and another layout than wanted.
pub(super) fn judge_gpu(case: &Case<'_>, gpu: &ProbedGpu) -> Vec<Finding> {
    let pending = pending_mig(gpu);
    // Which layout comes is not to be told before the mode is in force.
    let layout = if pending.is_none() { layout(case.expected, gpu) } else { None };
    pending.into_iter().chain(layout).collect()
}

fn word(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn pending_mig(gpu: &ProbedGpu) -> Option<Finding> {
    let now = *gpu.reading.mig.value()?;
    let next = *gpu.reading.detail.as_ref()?.mig.pending.value()?;
    let what = format!("MIG is {}, and {} after the next reset", word(now), word(next));
    let finding = || Finding::of("MIG_LAYOUT", Subject::of(gpu), what, "NVML MIG mode");
    (now != next).then(|| finding().measured(word(now), word(next)).with_severity(Severity::Warn))
}

fn layout(expected: &Expected, gpu: &ProbedGpu) -> Option<Finding> {
    let (wanted, by) = expected.mig.as_ref()?;
    let mut wanted = wanted.clone();
    wanted.sort_unstable();
    let is_on = *gpu.reading.mig.value()?;
    let (now, fits) = match (is_on, wanted.is_empty()) {
        (false, is_off_wanted) => ("MIG off".to_owned(), is_off_wanted),
        (true, true) => ("MIG on".to_owned(), false),
        (true, false) => {
            let found = profiles(gpu)?;
            (
                if found.is_empty() { "no device".to_owned() } else { escape(&found.join(" "), 80) },
                found == wanted,
            )
        }
    };
    let asked = if wanted.is_empty() { "MIG off".to_owned() } else { escape(&wanted.join(" "), 80) };
    let what = format!("MIG layout: {now}");
    let finding = || Finding::of("MIG_LAYOUT", Subject::of(gpu), what, by).measured(now, asked);
    (!fits).then(finding)
}

/// The profiles of all devices, ascending; `None` where they were not listed, as before a job, or one has no name.
fn profiles(gpu: &ProbedGpu) -> Option<Vec<String>> {
    let mig = &gpu.reading.detail.as_ref()?.mig;
    mig.max_devices.value()?;
    let mut found = mig.devices.iter().map(profile).collect::<Option<Vec<String>>>()?;
    found.sort_unstable();
    Some(found)
}

/// `NVIDIA A100-SXM4-40GB MIG 1g.5gb` has the profile 1g.5gb.
fn profile(device: &MigDeviceReading) -> Option<String> {
    device.name.value()?.split_once(" MIG ").map(|(_, profile)| profile.trim().to_owned())
}

#[cfg(test)]
mod tests;
