//! Peer-to-peer access between GPUs that NVLink joins, and between those of which it is known.

use super::{may_use_nvlink, pci_of};
use crate::health::Expected;
use crate::health::finding::{Finding, Subject};
use crate::model::detail::{GpuDetail, LinkEnd, PeerReading};
use crate::model::snapshot::ProbedGpu;
use crate::model::{PciAddress, Reading};
use std::collections::BTreeSet;

/// `nvmlGpuP2PStatus_t`: fine, and switched off by the driver's own settings, which somebody wanted.
const FINE: [u32; 2] = [0, 4];

/// One finding for a GPU with bad pairs, not one for each of its peers: first the GPU with the most of them. Pairs of a GPU
/// that `cut_off` names are told by that.
pub(super) fn judge(gpus: &[&ProbedGpu], expected: &Expected, cut_off: &[Finding]) -> Vec<Finding> {
    let judged: Vec<(PciAddress, &ProbedGpu)> = gpus
        .iter()
        .filter_map(|gpu| Some((gpu.pci()?, *gpu)))
        .filter(|(pci, gpu)| may_use_nvlink(gpu) && !cut_off.iter().any(|found| pci_of(found) == Some(*pci)))
        .collect();
    let mut bad: BTreeSet<(PciAddress, PciAddress)> = BTreeSet::new();
    let mut pairs = 0;
    for (at, a) in &judged {
        for (other, b) in judged.iter().filter(|(other, _)| at < other) {
            if joined((*at, a), (*other, b)) || known(expected, *at, *other) {
                pairs += 1;
                if refused(a, *other) || refused(b, *at) {
                    bad.insert((*at, *other));
                }
            }
        }
    }
    if bad.len() > 1 && bad.len() == pairs {
        let what = format!("no P2P access in any of {pairs} pairs of GPUs");
        return vec![Finding::of("P2P", Subject::Node, what, SOURCE).measured(pairs, 0)];
    }
    of_gpus(&judged, bad)
}

const SOURCE: &str = "NVML P2P status";

fn of_gpus(judged: &[(PciAddress, &ProbedGpu)], mut bad: BTreeSet<(PciAddress, PciAddress)>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let has = |pair: &(PciAddress, PciAddress), pci: PciAddress| pair.0 == pci || pair.1 == pci;
    while !bad.is_empty() {
        let count = |pci: PciAddress| bad.iter().filter(|pair| has(pair, pci)).count();
        let worst = judged.iter().max_by_key(|(pci, _)| (count(*pci), std::cmp::Reverse(*pci)));
        let Some((pci, gpu)) = worst else { break };
        let number = count(*pci);
        let peers: Vec<String> = bad
            .iter()
            .filter(|pair| has(pair, *pci))
            .map(|pair| if pair.0 == *pci { pair.1 } else { pair.0 }.to_string())
            .collect();
        bad.retain(|pair| !has(pair, *pci));
        let what = format!("no P2P access with {number} of the other GPUs");
        let finding = Finding::of("P2P", Subject::of(gpu), what, SOURCE);
        findings.push(finding.measured(peers.join(" "), "access"));
    }
    findings
}

/// Whether one says that reads or writes to the other are refused. An answer that is missing says nothing.
fn refused(gpu: &ProbedGpu, other: PciAddress) -> bool {
    let peers = gpu.reading.detail.as_deref().map_or(&[][..], |detail| detail.peers.as_slice());
    let bad = |status: &Reading<u32>| status.value().is_some_and(|status| !FINE.contains(status));
    let of_pair = |peer: &&PeerReading| peer.pci == Some(other);
    peers.iter().filter(of_pair).any(|peer| bad(&peer.read) || bad(&peer.write))
}

/// Links that are up lead from one to the other, or both to switches.
fn joined(a: (PciAddress, &ProbedGpu), b: (PciAddress, &ProbedGpu)) -> bool {
    let (Some(of_a), Some(of_b)) = (a.1.reading.detail.as_deref(), b.1.reading.detail.as_deref()) else {
        return false;
    };
    leads(of_a, b.0) || leads(of_b, a.0) || (on_switch(of_a) && on_switch(of_b))
}

fn leads(detail: &GpuDetail, to: PciAddress) -> bool {
    detail.nvlinks.iter().any(|link| link.up == Reading::Value(true) && link.end_pci == Reading::Value(to))
}

fn on_switch(detail: &GpuDetail) -> bool {
    let to_switch = Reading::Value(LinkEnd::Switch);
    detail.nvlinks.iter().any(|link| link.up == Reading::Value(true) && link.end == to_switch)
}

/// Whether the pair is known to have had access.
fn known(expected: &Expected, a: PciAddress, b: PciAddress) -> bool {
    let had = |one, other| {
        let peers = expected.known_at(Some(one)).and_then(|known| known.peers_ok.as_ref());
        peers.is_some_and(|peers| peers.contains(&other))
    };
    had(a, b) || had(b, a)
}
