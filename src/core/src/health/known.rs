//! What a node was known to be: when that may be learned, how it is kept, and what differs from it now.

use super::{Expected, Finding, KnownGpu, KnownNic, Severity, nic};
use crate::model::snapshot::{DriverGpu, ProbeOutcome, ProbedGpu};
use crate::model::{PciAddress, Reading, Snapshot};
use crate::text::escape;
use serde::{Deserialize, Serialize};

/// Version of the format that this program writes.
const VERSION: u32 = 1;

/// More GPUs than any node has: a longer list is nobody's.
const MAX_GPUS: usize = 1024;

/// The content of known.json.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KnownFile {
    /// Version of the format.
    pub gpuward_known: u32,
    /// Program and version, for people.
    pub written_by: String,
    /// Slurm's name of the node: a file that came with an image is another node's.
    pub node: String,
    /// Wall clock, milliseconds since 1970.
    pub unix_ms: u64,
    /// Boot in which it was seen.
    pub boot_id: String,
    /// Why it was written.
    pub how: How,
    /// The GPUs.
    pub gpus: Vec<KnownGpu>,
    /// The RDMA devices; none in a file that was written before they were remembered.
    #[serde(default)]
    pub nics: Vec<KnownNic>,
}

/// Why a state became the known one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// The first clean full check.
    Learned,
    /// `gpuward status --accept`.
    Accepted,
}

/// Just enough to tell what a file is.
#[derive(Deserialize)]
struct Mark {
    gpuward_known: Option<u32>,
    written_by: Option<String>,
}

/// Why a text is not what the node was known to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KnownFileError {
    /// Torn, or of another kind.
    #[error("not readable as what the node was known to be: {0}")]
    Broken(String),
    /// A format that came later.
    #[error(
        "version {found} of the format, written by {by}: this program reads up to {VERSION} and leaves it alone"
    )]
    Newer {
        /// Its version.
        found: u32,
        /// What wrote it.
        by: String,
    },
    /// Another node's, as after cloning an image.
    #[error(
        "it is about node {node}; name a folder for each node in [paths] state, with %n, or leave it out of images"
    )]
    Foreign {
        /// That node.
        node: String,
    },
}

impl KnownFile {
    /// A file about what was seen just now.
    pub fn new(node: &str, how: How, unix_ms: u64, boot_id: &str, seen: Seen) -> KnownFile {
        KnownFile {
            gpuward_known: VERSION,
            written_by: concat!("gpuward ", env!("CARGO_PKG_VERSION")).to_owned(),
            node: node.to_owned(),
            unix_ms,
            boot_id: boot_id.to_owned(),
            how,
            gpus: seen.gpus,
            nics: seen.nics,
        }
    }

    /// What it says of the node.
    pub fn seen(&self) -> Seen {
        Seen { gpus: self.gpus.clone(), nics: self.nics.clone() }
    }

    /// Reads a file's text.
    ///
    /// # Errors
    /// It is torn, of another kind, of a newer format, or about another node.
    pub fn parse(text: &str, node: &str) -> Result<KnownFile, KnownFileError> {
        let broken = |error: serde_json::Error| KnownFileError::Broken(escape(&error.to_string(), 200));
        let mark: Mark = serde_json::from_str(text).map_err(broken)?;
        match mark.gpuward_known {
            None => return Err(KnownFileError::Broken("no gpuward_known in it".into())),
            Some(found) if found > VERSION => {
                let by = escape(mark.written_by.as_deref().unwrap_or("an unknown program"), 80);
                return Err(KnownFileError::Newer { found, by });
            }
            Some(_) => {}
        }
        let file: KnownFile = serde_json::from_str(text).map_err(broken)?;
        if file.gpus.is_empty() || file.gpus.len() > MAX_GPUS {
            return Err(KnownFileError::Broken(format!("{} GPUs in it", file.gpus.len())));
        }
        if file.node != node {
            return Err(KnownFileError::Foreign { node: escape(&file.node, 64) });
        }
        Ok(file)
    }
}

/// A node as it was seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// Its GPUs.
    pub gpus: Vec<KnownGpu>,
    /// Its RDMA devices of which the state could be read.
    pub nics: Vec<KnownNic>,
}

/// The node as it is, for a first clean look to be remembered by.
///
/// # Errors
/// Why it is not to be remembered: a finding above info, a GPU that did not answer, or fewer GPUs than promised.
pub fn learn(snapshot: &Snapshot, expected: &Expected, findings: &[Finding]) -> Result<Seen, String> {
    if let Some(finding) = findings.iter().find(|finding| finding.severity > Severity::Info) {
        return Err(format!("the look was not clean ({} {})", finding.code, finding.subject));
    }
    present(snapshot, expected)
}

/// The node as it is, for an admin who accepts it as it is.
///
/// # Errors
/// A GPU that did not answer, or fewer GPUs than configuration or Slurm promise.
pub fn present(snapshot: &Snapshot, expected: &Expected) -> Result<Seen, String> {
    if snapshot.node.nvml != Reading::Value(()) || !matches!(snapshot.probe, ProbeOutcome::Finished { .. }) {
        return Err("the driver did not answer to the end".into());
    }
    let gpus: Vec<KnownGpu> =
        snapshot.gpus.iter().map(|gpu| known(gpu, snapshot)).collect::<Result<_, _>>()?;
    let count = u32::try_from(gpus.len()).unwrap_or(u32::MAX);
    if count == 0 {
        return Err("it has no GPU".into());
    }
    if let Some(promise) = broken_promise(snapshot, expected, count) {
        return Err(promise);
    }
    Ok(Seen { gpus, nics: nic::now(snapshot) })
}

/// What can be told of the GPUs that answer, and of the RDMA devices.
pub fn now(snapshot: &Snapshot) -> Seen {
    let gpus = snapshot.gpus.iter().filter_map(|gpu| known(gpu, snapshot).ok()).collect();
    Seen { gpus, nics: nic::now(snapshot) }
}

/// Fewer GPUs than a file promises: a node that boots with seven of eight must not become a node with seven.
fn broken_promise(snapshot: &Snapshot, expected: &Expected, count: u32) -> Option<String> {
    // What was learned promises nothing: an admin may accept less.
    let by_config = expected.gpu_count.as_ref().filter(|(_, source)| source != super::LEARNED);
    let by_config = by_config.map(|(promised, source)| (*promised, source.as_str(), count));
    let by_gres = expected.gres_conf.map(|promised| (promised, "gres.conf", count));
    // Slurm counts instances where there are any.
    let units = |gpu: &ProbedGpu| match (gpu.reading.mig.value(), &gpu.reading.detail) {
        (Some(true), Some(detail)) => detail.mig.devices.len(),
        _ => 1,
    };
    let units: usize = snapshot.gpus.iter().map(units).sum();
    let units = u32::try_from(units).unwrap_or(u32::MAX);
    let by_slurm = expected.slurm_conf.map(|promised| (promised, "slurm.conf", units));
    let promises = [by_config, by_gres, by_slurm];
    let broken = promises.into_iter().flatten().find(|(promised, _, have)| have < promised);
    broken.map(|(promised, source, have)| format!("it has {have} GPUs, {source} promises {promised}"))
}

fn known(gpu: &ProbedGpu, snapshot: &Snapshot) -> Result<KnownGpu, String> {
    let reading = &gpu.reading;
    let (Reading::Value(()), Some(pci), Some(uuid)) = (reading.handle, gpu.pci(), reading.uuid.value())
    else {
        return Err(format!("{} did not answer", super::Subject::of(gpu)));
    };
    let detail = reading.detail.as_deref();
    let host = snapshot.host.driver_gpus.iter().find(|host| host.pci == pci);
    let idle =
        |detail: &&crate::model::detail::GpuDetail| detail.processes.value().is_some_and(Vec::is_empty);
    let loaded = |detail: &&crate::model::detail::GpuDetail| detail.clocks.pstate.value() == Some(&0);
    Ok(KnownGpu {
        pci,
        uuid: uuid.clone(),
        serial: reading.serial.value().cloned(),
        model: reading.model.value().cloned(),
        pcie_width: detail.and_then(|detail| detail.pcie.width.value().copied()),
        // An idle GPU may go down to generation 1.
        pcie_generation: detail.filter(loaded).and_then(|detail| detail.pcie.generation.value().copied()),
        nvlinks: detail.and_then(links_up),
        numa_node: host.and_then(|host: &DriverGpu| host.numa_node),
        bar1_mib: detail.and_then(|detail| detail.memory.bar1_mib.value().copied()),
        idle_memory_mib: detail.filter(idle).and_then(|detail| detail.memory.used_mib.value().copied()),
        peers_ok: detail.and_then(peers_ok),
    })
}

/// How many links are up; `None` where the state of one is not known.
pub(crate) fn links_up(detail: &crate::model::detail::GpuDetail) -> Option<u32> {
    let states: Option<Vec<bool>> = detail.nvlinks.iter().map(|link| link.up.value().copied()).collect();
    states.and_then(|states| u32::try_from(states.iter().filter(|up| **up).count()).ok())
}

/// Peers that reads reach; `None` where nobody asked, or one answer is missing.
fn peers_ok(detail: &crate::model::detail::GpuDetail) -> Option<Vec<PciAddress>> {
    let of = |peer: &crate::model::detail::PeerReading| Some((peer.pci?, *peer.read.value()? == 0));
    let peers: Vec<(PciAddress, bool)> = detail.peers.iter().map(of).collect::<Option<_>>()?;
    (!peers.is_empty()).then(|| peers.into_iter().filter(|(_, ok)| *ok).map(|(pci, _)| pci).collect())
}

/// One thing that is not as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The slot.
    pub pci: PciAddress,
    /// What differs, in a word or two.
    pub what: &'static str,
    /// What it was; `None`: not there.
    pub before: Option<String>,
    /// What it is; `None`: not there.
    pub now: Option<String>,
}

/// What differs between two states of a node, slot by slot. What was not read on one of the sides does not count.
pub fn changes(before: &Seen, now: &Seen) -> Vec<Change> {
    let mut all = of_gpus(&before.gpus, &now.gpus);
    all.extend(
        now.nics.iter().flat_map(|nic| of_nic(before.nics.iter().find(|was| was.name == nic.name), nic)),
    );
    all
}

/// A port that came or went is a change of cards, which the GPUs' rules do not judge.
fn of_nic(before: Option<&KnownNic>, now: &KnownNic) -> Vec<Change> {
    let (Some(before), Some(pci)) = (before, now.pci) else {
        return Vec::new();
    };
    let word = |nic: &KnownNic| Some(if nic.up { "up" } else { "down" }.to_owned());
    let rate = |nic: &KnownNic| nic.rate_gbps.map(|gbps| gbps.to_string());
    let pairs = [("RDMA port", word(before), word(now)), ("RDMA Gb/s", rate(before), rate(now))];
    differing(pci, pairs)
}

fn of_gpus(before: &[KnownGpu], now: &[KnownGpu]) -> Vec<Change> {
    let mut slots: Vec<PciAddress> = before.iter().chain(now).map(|gpu| gpu.pci).collect();
    slots.sort_unstable();
    slots.dedup();
    let at = |gpus: &'_ [KnownGpu], pci| gpus.iter().position(|gpu| gpu.pci == pci);
    slots
        .iter()
        .flat_map(|&pci| of_slot(pci, at(before, pci).map(|at| &before[at]), at(now, pci).map(|at| &now[at])))
        .collect()
}

fn of_slot(pci: PciAddress, before: Option<&KnownGpu>, now: Option<&KnownGpu>) -> Vec<Change> {
    let name = |gpu: &KnownGpu| gpu.uuid.short().to_owned();
    let (Some(before), Some(now)) = (before, now) else {
        return vec![Change { pci, what: "GPU", before: before.map(name), now: now.map(name) }];
    };
    fn told<T: ToString>(value: &Option<T>) -> Option<String> {
        value.as_ref().map(ToString::to_string)
    }
    let list = |peers: &Option<Vec<PciAddress>>| peers.as_ref().map(|peers| format!("{} peers", peers.len()));
    let (uuid_before, uuid_now) = (Some(name(before)), Some(name(now)));
    let pairs = [
        ("GPU", uuid_before, uuid_now),
        ("serial", told(&before.serial), told(&now.serial)),
        ("model", told(&before.model), told(&now.model)),
        ("PCIe lanes", told(&before.pcie_width), told(&now.pcie_width)),
        ("PCIe generation", told(&before.pcie_generation), told(&now.pcie_generation)),
        ("NVLinks up", told(&before.nvlinks), told(&now.nvlinks)),
        ("NUMA node", told(&before.numa_node), told(&now.numa_node)),
        ("BAR1 MiB", told(&before.bar1_mib), told(&now.bar1_mib)),
        ("P2P", list(&before.peers_ok), list(&now.peers_ok)),
    ];
    differing(pci, pairs)
}

/// A value's name, what it was and what it is.
type Pair = (&'static str, Option<String>, Option<String>);

fn differing(pci: PciAddress, pairs: impl IntoIterator<Item = Pair>) -> Vec<Change> {
    let differ =
        pairs.into_iter().filter(|(_, before, now)| before.is_some() && now.is_some() && before != now);
    differ.map(|(what, before, now)| Change { pci, what, before, now }).collect()
}

#[cfg(test)]
mod tests;
