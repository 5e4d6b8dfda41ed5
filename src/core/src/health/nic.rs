//! Ports of RDMA devices: up, and as fast as they should be.

use super::finding::{Finding, Severity, Subject};
use super::modules::infiniband;
use super::{Case, Expected, KnownNic};
use crate::model::topology::NicReading;
use crate::model::{PciAddress, Snapshot};
use crate::text::escape;

/// Every InfiniBand port, and others that were up when the node was accepted.
pub(super) fn judge(case: &Case<'_>) -> Vec<Finding> {
    let siblings: Vec<&NicReading> = infiniband(case.snapshot).collect();
    let nics = case.snapshot.host.layout.as_ref().and_then(|layout| layout.nics.value());
    nics.into_iter().flatten().filter_map(|nic| of_port(nic, &siblings, case.expected)).collect()
}

fn of_port(nic: &NicReading, siblings: &[&NicReading], expected: &Expected) -> Option<Finding> {
    let known = expected.known_nics.iter().find(|known| known.name == nic.name);
    let is_infiniband = nic.link_layer.as_deref() == Some("InfiniBand");
    if is_up(nic)? {
        return too_slow(nic, if is_infiniband { siblings } else { &[] }, known);
    }
    let state = escape(nic.state.as_deref().unwrap_or_default(), 30);
    let finding =
        Finding::of("NIC_DOWN", Subject::Node, format!("{} is down", escape(&nic.name, 20)), "sysfs");
    let finding = finding.measured(state, "ACTIVE");
    match known {
        Some(known) => known.up.then_some(finding),
        // A front-end port without a cable is nobody's fault, nor one that somebody has switched off.
        None if !is_infiniband || is_off(nic) => None,
        None if siblings.iter().any(|other| is_other_port(nic, other)) => {
            Some(finding.with_severity(Severity::Info))
        }
        None => Some(finding),
    }
}

/// What can be told of each port. The rate of one that is down means nothing.
pub(super) fn now(snapshot: &Snapshot) -> Vec<KnownNic> {
    let nics = snapshot.host.layout.as_ref().and_then(|layout| layout.nics.value());
    let known = |nic: &NicReading| {
        let up = is_up(nic)?;
        Some(KnownNic { name: nic.name.clone(), pci: nic.pci, up, rate_gbps: gbps(nic).filter(|_| up) })
    };
    nics.into_iter().flatten().filter_map(known).collect()
}

/// `4: ACTIVE` is up (ib_port_state: 4). A state that cannot be read says nothing.
fn is_up(nic: &NicReading) -> Option<bool> {
    nic.state.as_ref().map(|state| state.starts_with("4:"))
}

fn is_off(nic: &NicReading) -> bool {
    nic.link_state.as_ref().is_some_and(|state| state.starts_with("3:"))
}

/// The second port of a card of which the first is up is often left without a cable.
fn is_other_port(nic: &NicReading, other: &NicReading) -> bool {
    let card = |nic: &NicReading| nic.pci.map(|pci| PciAddress { function: 0, ..pci });
    nic.name != other.name && card(nic).is_some() && card(nic) == card(other) && is_up(other) == Some(true)
}

/// `400 Gb/sec (4X NDR)`
pub(super) fn gbps(nic: &NicReading) -> Option<u32> {
    nic.rate.as_ref()?.split([' ', '.']).next()?.parse().ok()
}

/// Against what it was known to do, else against the usual rate of the node's other ports: more than half of at least
/// three.
fn too_slow(nic: &NicReading, siblings: &[&NicReading], known: Option<&KnownNic>) -> Option<Finding> {
    let own = gbps(nic)?;
    let by_known = known.and_then(|known| known.rate_gbps).map(|rate| (rate, super::expected::LEARNED));
    let (rate, by) = by_known.or_else(|| usual(siblings).map(|rate| (rate, "the node's other ports")))?;
    let what = format!("{} runs at {own} of {rate} Gb/s", escape(&nic.name, 20));
    let finding = || Finding::of("NIC_RATE", Subject::Node, what, by);
    (own < rate).then(|| finding().measured(format!("{own} Gb/s"), format!("{rate} Gb/s")))
}

fn usual(siblings: &[&NicReading]) -> Option<u32> {
    let rates: Vec<u32> =
        siblings.iter().filter(|nic| is_up(nic) == Some(true)).filter_map(|nic| gbps(nic)).collect();
    let count = |rate: u32| rates.iter().filter(|other| **other == rate).count();
    let most = rates.iter().copied().max_by_key(|&rate| (count(rate), rate))?;
    (rates.len() >= 3 && count(most) * 2 > rates.len()).then_some(most)
}

#[cfg(test)]
mod tests;
