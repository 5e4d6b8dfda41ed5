//! What the machine does to its GPUs: IOMMU, access control, NUMA, clocks of the CPUs.

use super::Case;
use super::finding::{Finding, Subject};
use crate::model::platform::{BoundGpu, PlatformReading};
use crate::model::{Reading, Snapshot};
use crate::text::escape;
use std::collections::BTreeSet;

/// Node-wide. What a virtual machine's host decides is not judged inside of it.
pub(super) fn judge(case: &Case<'_>) -> Vec<Finding> {
    let platform = &case.snapshot.host.platform;
    let mut findings: Vec<Finding> = cpus(case).into_iter().collect();
    if platform.virtual_machine == Reading::Value(false) {
        findings.extend(access_control(platform));
        findings.extend(translation(platform));
        findings.extend(nowhere(case.snapshot));
    }
    findings
}

/// P2P Request Redirect and P2P Completion Redirect in the ACS Control Register.
const REDIRECT: u16 = 1 << 2 | 1 << 3;

fn access_control(platform: &PlatformReading) -> Option<Finding> {
    let ports = platform.switch_ports.value()?.iter().filter(|port| port.acs_control & REDIRECT != 0);
    let ports: Vec<String> = ports.map(|port| port.pci.to_string()).collect();
    let first = ports.first()?;
    let more = if ports.len() > 1 { format!(" and {} more", ports.len() - 1) } else { String::new() };
    let what = format!("ACS of {first}{more} sends peer traffic to the root");
    let finding = Finding::of("IOMMU_ACS", Subject::Node, what, "PCI configuration space of switches");
    Some(finding.measured(format!("{} ports", ports.len()), 0))
}

/// The kernel says what it does with each GPU's accesses from 5.11 on; before, only a command line that is explicit tells.
fn translation(platform: &PlatformReading) -> Option<Finding> {
    let gpus = platform.bound.value()?;
    // One GPU has no peer.
    if gpus.len() < 2 {
        return None;
    }
    let translates = |gpu: &&BoundGpu| gpu.iommu.as_ref().is_some_and(|kind| kind.starts_with("DMA"));
    let by_type = gpus.iter().find(translates).and_then(|gpu| gpu.iommu.clone());
    let value = if gpus.iter().any(|gpu| gpu.iommu.is_some()) { by_type } else { by_command_line(platform) }?;
    let what = "the IOMMU translates what GPUs read and write";
    let finding = Finding::of("IOMMU_ACS", Subject::Node, what, "sysfs and the kernel's command line");
    Some(finding.measured(escape(&value, 30), "iommu=pt or off"))
}

fn by_command_line(platform: &PlatformReading) -> Option<String> {
    let words: Vec<&str> = platform.command_line.value()?.split_whitespace().collect();
    let passes = ["iommu=pt", "iommu.passthrough=1", "iommu=off", "intel_iommu=off", "amd_iommu=off"];
    let at_work = platform.iommus.value().is_some_and(|&count| count > 0);
    let on =
        words.iter().find(|word| ["intel_iommu=on", "amd_iommu=on", "iommu.passthrough=0"].contains(word))?;
    (at_work && !words.iter().any(|word| passes.contains(word))).then(|| (*on).to_owned())
}

/// GPUs of a machine with several sockets of which firmware does not say where they are.
fn nowhere(snapshot: &Snapshot) -> Option<Finding> {
    let cores = snapshot.host.layout.as_ref()?.cores.value()?;
    let sockets: BTreeSet<u32> = cores.iter().map(|core| core.package).collect();
    if sockets.len() < 2 {
        return None;
    }
    let lost = snapshot.host.driver_gpus.iter().filter(|gpu| gpu.numa_node.is_none());
    let lost: Vec<String> = lost.map(|gpu| gpu.pci.to_string()).collect();
    let first = lost.first()?;
    let more = if lost.len() > 1 { format!(" and {} more", lost.len() - 1) } else { String::new() };
    let what = format!("no NUMA node for {first}{more}");
    Some(Finding::of("NUMA", Subject::Node, what, "sysfs").measured(-1, format!("{} sockets", sockets.len())))
}

/// Only against what the site wants: most jobs do not notice.
fn cpus(case: &Case<'_>) -> Vec<Finding> {
    let (platform, limits) = (&case.snapshot.host.platform, case.limits);
    let mut findings = Vec::new();
    let wanted = limits.cpu_governor.as_str();
    if let Some(governor) = platform.governor.value().filter(|now| !wanted.is_empty() && *now != wanted) {
        let what = format!("CPU governor is {}", escape(governor, 20));
        let finding = Finding::of("CSTATE", Subject::Node, what, "sysfs");
        findings.push(finding.measured(escape(governor, 20), escape(wanted, 20)));
    }
    let limit = limits.cpu_idle_latency_us;
    if let Some(&latency) = platform.idle_latency_us.value().filter(|&&latency| limit > 0 && latency > limit)
    {
        let what = format!("CPUs take {latency} us to wake up");
        let finding = Finding::of("CSTATE", Subject::Node, what, "sysfs");
        findings.push(finding.measured(format!("{latency} us"), format!("{limit} us")));
    }
    findings
}

#[cfg(test)]
mod tests;
