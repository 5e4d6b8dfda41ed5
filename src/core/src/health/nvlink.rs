//! NVLink: links that are down, their errors, and the peers that they lead to; with the fabric, as one cause is told once.

mod errors;
mod links;
mod peers;

use super::Case;
use super::fabric;
use super::finding::{Finding, Subject};
use crate::model::snapshot::ProbedGpu;
use crate::model::{PciAddress, Reading};

/// All about NVLink and the fabric.
pub(super) fn judge(case: &Case<'_>) -> Vec<Finding> {
    let gpus: Vec<&ProbedGpu> = case.snapshot.gpus.iter().filter(|_| case.gpu_map_certain).collect();
    let mut cut_off = Vec::new();
    for gpu in &gpus {
        cut_off.extend(links::judge_gpu(case, gpu));
        cut_off.extend(fabric::judge_gpu(case, gpu));
    }
    let mut findings = peers::judge(&gpus, case.expected, &cut_off);
    let (mut node_wide, of_some) = folded(case, cut_off);
    findings.extend(fabric::manager(case, &mut node_wide));
    findings.extend(node_wide);
    findings.extend(of_some);
    findings.extend(gpus.iter().flat_map(|gpu| errors::judge_gpu(case, gpu)));
    findings
}

/// Whether the GPU has its links for itself: in MIG mode they carry nothing. Where the mode could not be read it is not
/// known, and the links are not judged.
pub(super) fn may_use_nvlink(gpu: &ProbedGpu) -> bool {
    matches!(gpu.reading.mig, Reading::Value(false) | Reading::NotSupported)
}

/// Findings that are the same for each GPU of the node as one about the node, and the others as they are.
fn folded(case: &Case<'_>, findings: Vec<Finding>) -> (Vec<Finding>, Vec<Finding>) {
    let same = |a: &Finding, b: &Finding| {
        a.code == b.code && a.severity == b.severity && a.what == b.what && a.limit == b.limit
    };
    let of_node = case.snapshot.node.gpu_count.value().and_then(|&count| usize::try_from(count).ok());
    let all = of_node.filter(|&count| count > 1);
    let (mut node_wide, mut of_some) = (Vec::<Finding>::new(), Vec::new());
    for finding in &findings {
        let alike = findings.iter().filter(|other| same(other, finding)).count();
        if Some(alike) != all {
            of_some.push(finding.clone());
            continue;
        }
        let what = format!("all {alike} GPUs: {}", finding.what);
        if !node_wide.iter().any(|known| known.code == finding.code) {
            node_wide.push(Finding { subject: Subject::Node, what, ..finding.clone() });
        }
    }
    (node_wide, of_some)
}

/// The address in a finding's subject.
fn pci_of(finding: &Finding) -> Option<PciAddress> {
    match &finding.subject {
        Subject::Gpu { pci, .. } => *pci,
        Subject::Node => None,
    }
}

#[cfg(test)]
mod tests;
