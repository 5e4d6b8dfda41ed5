//! One look at a node: read, remember, judge.

use super::Site;
use crate::cgroup::Hierarchies;
use crate::clock::{Deadline, boottime_ns, unix_ms};
use crate::nvml::{Answer, Request, Watch};
use crate::process::Lock;
use crate::slurm::{read_gres_conf, read_slurm_conf_gpus};
use crate::state::{Attempt, BootState, load_known, save_known};
use crate::{EdgeError, files, kmsg, sysfs};
use gpuward_core::config::Mode;
use gpuward_core::health::known::{How, KnownFile, learn, present};
use gpuward_core::health::{ActedEcc, Case, Expected, Finding, History, Subject, evaluate, silence, xid};
use gpuward_core::model::gpu_map::{GpuMap, GpuName, UnknownGpu, resolve};
use gpuward_core::model::gres_conf::GresConf;
use gpuward_core::model::snapshot::{GpuTarget, HostReading, ProbeOutcome, ProbedGpu};
use gpuward_core::model::{GpuReading, PciAddress, Reading, Snapshot};
use std::path::Path;

/// What a look showed.
#[derive(Debug)]
pub struct Look {
    /// What was read.
    pub snapshot: Snapshot,
    /// What the rules say about it.
    pub findings: Vec<Finding>,
    /// Which GPUs were meant.
    pub map: GpuMap,
    /// What the node should be.
    pub expected: Expected,
    /// What the node was known to be, or why that cannot be told.
    pub known: Result<Option<KnownFile>, EdgeError>,
    boot: BootState,
    before: BootState,
    answer: Answer,
    attempt: Option<Attempt>,
    // Held until the state is saved: a look reads, judges and writes as one.
    lock: Option<Lock>,
}

/// What is known about a node before its driver is asked.
#[derive(Debug)]
pub(super) struct Ground {
    pub host: HostReading,
    pub gres: GresConf,
    /// What gpuward.toml says of the node.
    configured: Expected,
}

impl Ground {
    pub(super) fn read(site: &Site) -> Ground {
        let (sysfs, procfs) = (Path::new(&site.paths.sysfs), Path::new(&site.paths.procfs));
        let gres = read_gres_conf(&site.config.slurm, site.env.slurm_conf.as_deref(), &site.env.node);
        let (configured, contradictions) = site.config.expected_for(&site.env.node);
        for contradiction in contradictions {
            log::error!("gpuward.toml: {contradiction}; neither is expected");
        }
        let mut host = sysfs::read_driver(sysfs, procfs);
        // A walk over all PCI devices: where gres.conf names files it can wait until the driver is at work.
        if gres.files.is_empty() {
            host.pci_gpus = sysfs::pci_gpus(sysfs);
        }
        Ground { host, gres, configured }
    }

    /// True where Slurm's GPUs of this node are another vendor's: then there is nothing to look at.
    pub(super) fn is_other_vendor(&self) -> bool {
        self.configured.gpu_count.is_none() && self.gres.is_other_vendor() && self.host.driver_gpus.is_empty()
    }

    /// The GPUs that Slurm gave the job.
    pub(super) fn job_gpus(&self, site: &Site) -> GpuMap {
        if is_inside_a_job() {
            let why = "PrologFlags=RunInJob: GPU indices count from the job's own first GPU".to_owned();
            return GpuMap { targets: Vec::new(), uncertain: Some(why) };
        }
        resolve(site.env.job_gpus.as_deref(), site.env.visible_devices.as_deref(), &self.gres, &self.host)
    }

    /// Every GPU that the node shows.
    pub(super) fn all_gpus(&mut self, site: &Site) -> GpuMap {
        self.host.pci_gpus = sysfs::pci_gpus(Path::new(&site.paths.sysfs));
        let none = Vec::new();
        let known = |pci| self.host.driver_gpus.iter().find(|gpu| gpu.pci == pci);
        let target = |&pci: &_| GpuTarget {
            gres_index: None,
            minor: known(pci).and_then(|gpu| gpu.minor),
            pci: Some(pci),
            uuid: known(pci).and_then(|gpu| gpu.uuid.clone()),
        };
        let on_pci = self.host.pci_gpus.value().unwrap_or(&none);
        GpuMap { targets: on_pci.iter().map(target).collect(), uncertain: None }
    }

    /// What the node should be, for every kind of look the same; only checks read slurm.conf besides.
    fn expected(&self, site: &Site, known: Option<&KnownFile>, depth: Depth) -> Expected {
        let learned = known.map(|file| file.gpus.clone()).unwrap_or_default();
        let slurm_conf = || {
            let conf = site.env.slurm_conf.as_deref();
            read_slurm_conf_gpus(&site.config.slurm, conf, &site.env.node)
        };
        Expected {
            slurm_conf: if depth == Depth::ForAJob { None } else { slurm_conf() },
            ..self.configured.clone().completed(self.gres.gpu_count(), learned)
        }
    }
}

/// Whether this process is in the control group of a job: a prolog is only under `PrologFlags=RunInJob` (24.05 and
/// newer). Slurm's GPU indices then count from the job's own first GPU, so they cannot be resolved.
fn is_inside_a_job() -> bool {
    let groups = Hierarchies::find(Path::new("/sys/fs/cgroup"), Path::new("/proc"), None);
    let process = groups.and_then(|groups| groups.process(std::process::id()));
    process.map_or_else(
        |error| {
            // To look at no GPU is better than to look at a wrong one; only Slurm has groups of this name.
            log::debug!("{error}; a job is known by the name of its step");
            let own = files::read_text(Path::new("/proc/self/cgroup"), 64 * 1024).unwrap_or_default();
            own.contains("/step_")
        },
        |process| process.is_some(),
    )
}

/// Looks at the GPUs of `map`: the driver's answer before the deadline, the kernel log since the last look, and what
/// the rules make of both.
pub(super) fn look(site: &Site, ground: Ground, map: GpuMap, deadline: Deadline) -> Look {
    look_at(site, ground, map, (deadline, site.probe_deadline_ms), Depth::ForAJob, &mut |_| {})
}

/// How much is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// What the rules of a prolog need.
    ForAJob,
    /// Everything that is quick and disturbs nobody.
    AtLeisure,
    /// Everything.
    Deep,
}

/// `deadline` comes with its length in milliseconds, for the report.
fn look_at(
    site: &Site,
    ground: Ground,
    map: GpuMap,
    deadline: (Deadline, u64),
    depth: Depth,
    told: &mut dyn FnMut(usize),
) -> Look {
    let (deadline, deadline_ms) = deadline;
    let lock = take_lock(site, deadline);
    let before = BootState::load(Path::new(&site.paths.run), &site.boot_id);
    let mut boot = before.clone();
    let watch = match &lock {
        Some(_) => start_probe(site, &map, depth),
        None => Err(ProbeOutcome::Busy),
    };
    // Everything that can wait is done while the driver is at work.
    let attempt = site.begin_attempt();
    let known = load_known(Path::new(&site.paths.state), &site.env.node);
    if let Err(error) = &known {
        log::warn!("{error}; what this node was known to be does not count");
    }
    let expected = ground.expected(site, known.as_ref().ok().and_then(Option::as_ref), depth);
    let mut host = ground.host;
    host.kernel_log = read_log(site, &mut boot, deadline);
    let sysfs = Path::new(&site.paths.sysfs);
    sysfs::complete(&mut host, sysfs);
    host.layout = (depth != Depth::ForAJob).then(|| sysfs::read_layout(sysfs));
    let mut answer = match watch {
        Ok(watch) => watch.finish(deadline, deadline_ms, told),
        Err(outcome) => Answer::nothing(outcome),
    };
    let snapshot = Snapshot {
        boot_id: site.boot_id.clone(),
        boottime_ns: boottime_ns(),
        host,
        probe: answer.outcome.clone(),
        node: std::mem::take(&mut answer.node),
        gpus: if answer.gpus.is_empty() { not_asked(&map) } else { std::mem::take(&mut answer.gpus) },
        xids: boot.xids.clone(),
    };
    let history = History {
        silent: before.silent.clone(),
        acted_ecc: before.acted_ecc.clone(),
        seen: before.seen.clone(),
    };
    let findings = evaluate(&Case {
        snapshot: &snapshot,
        expected: &expected,
        history: &history,
        limits: &site.config.limits(),
        gpu_map_certain: map.certain(),
    });
    boot.seen = history.seen_after(&snapshot);
    boot.silent = silence::remember(&snapshot, &before.silent);
    boot.persistence_off = persistence_off(&snapshot).or(before.persistence_off);
    Look { snapshot, findings, map, expected, known, boot, before, answer, attempt, lock }
}

impl Look {
    /// Saves what this look saw, if anything changed.
    pub(super) fn remember(&self, site: &Site) {
        if self.lock.is_some() && self.boot != self.before {
            let saved = self.boot.save(Path::new(&site.paths.run));
            if let Err(error) = saved {
                log::error!("{error}; the next look does not know what this one saw");
            }
        }
    }

    /// The verdict is about to be told.
    pub(super) fn came_to_a_verdict(&mut self) {
        if let Some(attempt) = self.attempt.take() {
            attempt.finish();
        }
    }

    /// Waits for the probe to be gone and lets the next look go ahead. Worth doing only once the verdict is out: if we
    /// are ended before, the kernel frees the lock and the next look finds the probe gone.
    pub(super) fn settle(&mut self) {
        self.answer.settle();
        self.lock = None;
    }
}

/// Notes that `finding` of this look refused a job: if the node is resumed, the same evidence does not drain it again.
///
/// The look is settled by then, so the state is read anew: another look may have changed it.
pub(super) fn mark_acted(site: &Site, look: &Look, finding: &Finding) {
    let Some(_lock) = take_lock(site, Deadline::in_ms(MARK_MS)) else { return };
    let mut boot = BootState::load(Path::new(&site.paths.run), &site.boot_id);
    let pci = match &finding.subject {
        Subject::Gpu { pci, .. } => *pci,
        Subject::Node => None,
    };
    let now_ns = boottime_ns();
    let of_gpu = |event: &PciAddress| pci.is_some_and(|pci| PciAddress { function: 0, ..pci } == *event);
    for event in boot.xids.iter_mut().filter(|event| of_gpu(&event.pci)) {
        event.acted_boottime_ns.get_or_insert(now_ns);
    }
    // A look after a resume starts from nothing, too.
    boot.silent.retain(|mark| mark.pci != pci);
    let seen = look.snapshot.gpus.iter().find(|gpu| gpu.pci() == pci && pci.is_some());
    let errors = seen.and_then(|gpu| gpu.reading.counters.ecc_volatile_uncorr.value());
    if let (Some(pci), Some(&errors)) = (pci, errors) {
        boot.acted_ecc.retain(|acted| acted.pci != pci);
        boot.acted_ecc.push(ActedEcc { pci, errors, boottime_ns: now_ns });
    }
    if let Err(error) = boot.save(Path::new(&site.paths.run)) {
        log::error!("{error}; a resumed node may be drained again for what drained it now");
    }
}

/// How long noting a refusal may wait for another look. Ours: the verdict is waiting for it.
const MARK_MS: u64 = 300;

/// The GPUs that nobody could be asked about: what the kernel log says of them still counts.
fn not_asked(map: &GpuMap) -> Vec<ProbedGpu> {
    let gpu = |target: &GpuTarget| ProbedGpu { target: target.clone(), reading: GpuReading::default() };
    map.targets.iter().map(gpu).collect()
}

fn take_lock(site: &Site, deadline: Deadline) -> Option<Lock> {
    let path = Path::new(&site.paths.run).join("probe.lock");
    match Lock::take(&path, deadline) {
        Ok(lock) => {
            if lock.is_none() {
                log::warn!("another look was at work until the deadline; nothing is known about the driver");
            }
            lock
        }
        Err(error) => {
            log::error!("{error}; the driver is not asked");
            None
        }
    }
}

fn start_probe(site: &Site, map: &GpuMap, depth: Depth) -> Result<Watch, ProbeOutcome> {
    let request = Request {
        library: site.library(),
        targets: map.targets.clone(),
        detail: depth != Depth::ForAJob,
        deep: depth == Depth::Deep,
    };
    Watch::start(Path::new(&site.paths.run), &request).map_err(|error| {
        log::error!("{error}; the driver is not asked");
        ProbeOutcome::Died { why: error.to_string() }
    })
}

fn read_log(site: &Site, boot: &mut BootState, deadline: Deadline) -> Reading<()> {
    let (mut last, mut xids) = (boot.kmsg_seq, std::mem::take(&mut boot.xids));
    let read = kmsg::read_since(Path::new(&site.paths.kmsg), boot.kmsg_seq, deadline, |record| {
        last = Some(record.seq);
        xid::absorb(&mut xids, record.seq, record.usec, &record.message);
    });
    let is_new = |event: &xid::XidEvent| boot.kmsg_seq.is_none_or(|seen| event.seq > seen);
    for event in xids.iter_mut().filter(|event| is_new(event)) {
        event.old = is_old(site, event, boot.kmsg_seq.is_none());
    }
    (boot.kmsg_seq, boot.xids) = (last, xids);
    match read {
        Ok(()) => Reading::Value(()),
        Err(error) => {
            log::debug!("{error}; XIDs are not seen");
            Reading::Failed(0)
        }
    }
}

/// What was seen in another mode than drain, or stood in the log for long before a first look, is not held against the
/// node later: it may have been repaired since, and a first day in mode drain must not drain a fleet for old lines.
fn is_old(site: &Site, event: &xid::XidEvent, first_look: bool) -> bool {
    let age_us = (boottime_ns() / 1000).saturating_sub(event.usec);
    let acts = site.config.mode_of(&format!("XID{}", event.xid)) == Mode::Drain;
    !acts || (first_look && age_us > OLD_AFTER_US)
}

/// Ours: a fault of the last quarter of an hour is news, whenever gpuward begins to look.
const OLD_AFTER_US: u64 = 15 * 60 * 1_000_000;

fn persistence_off(snapshot: &Snapshot) -> Option<bool> {
    let modes: Vec<bool> =
        snapshot.gpus.iter().filter_map(|gpu| gpu.reading.persistence.value().copied()).collect();
    if modes.is_empty() { None } else { Some(modes.contains(&false)) }
}

/// What an admin wants to see of a node.
#[derive(Debug, Clone, Copy, Default)]
pub struct Inspection<'a> {
    /// Also what is slow or disturbs.
    pub deep: bool,
    /// These GPUs only; empty: all.
    pub gpus: &'a [GpuName],
}

/// A look at leisure, for an admin: nothing is drained. What it saw counts for later looks as any other does. `told`
/// hears how many GPUs have answered and how many there are.
///
/// # Errors
/// The node shows no GPU of a name that was asked for.
pub fn inspect_node(
    site: &Site,
    wanted: Inspection<'_>,
    told: &mut dyn FnMut(usize, usize),
) -> Result<Look, UnknownGpu> {
    let mut ground = Ground::read(site);
    let map = ground.all_gpus(site).only(wanted.gpus)?;
    let depth = if wanted.deep { Depth::Deep } else { Depth::AtLeisure };
    let deadline_ms = site.probe_deadline_ms.max(LEISURE_MS);
    let count = map.targets.len();
    told(0, count);
    let deadline = (Deadline::in_ms(deadline_ms), deadline_ms);
    let mut look = look_at(site, ground, map, deadline, depth, &mut |answered| told(answered, count));
    look.remember(site);
    look.came_to_a_verdict();
    look.settle();
    Ok(look)
}

/// How long a look at leisure may take. Ours: some 200 calls for each GPU, most of them microseconds, and half a second
/// for the InfoROM of a deep one; a prolog that comes meanwhile waits for it until its own deadline.
const LEISURE_MS: u64 = 10_000;

/// What became of a look that might be remembered as the node's known state.
#[derive(Debug)]
pub enum Learned {
    /// It is known from now on.
    Now(KnownFile),
    /// Something was known before.
    Before(KnownFile),
    /// Nothing is known, and this look is not to be remembered.
    Not(String),
}

/// Remembers the first clean look at the whole of a node as what it was known to be. `look` saw all GPUs at leisure.
pub fn learn_from(site: &Site, look: &Look) -> Learned {
    match &look.known {
        Ok(Some(file)) => Learned::Before(file.clone()),
        Err(error) => Learned::Not(error.to_string()),
        Ok(None) => {
            let gpus = learn(&look.snapshot, &look.expected, &look.findings);
            let written = gpus.and_then(|gpus| write_known(site, How::Learned, gpus));
            written.map_or_else(Learned::Not, Learned::Now)
        }
    }
}

/// Takes the node as it is for what it is known to be.
///
/// # Errors
/// A GPU that did not answer, fewer GPUs than a file promises, or a file that cannot be replaced.
pub fn accept(site: &Site, look: &Look) -> Result<KnownFile, String> {
    write_known(site, How::Accepted, present(&look.snapshot, &look.expected)?)
}

fn write_known(
    site: &Site,
    how: How,
    gpus: Vec<gpuward_core::health::KnownGpu>,
) -> Result<KnownFile, String> {
    let file = KnownFile::new(&site.env.node, how, unix_ms(), &site.boot_id, gpus);
    save_known(Path::new(&site.paths.state), &file).map_err(|error| error.to_string())?;
    Ok(file)
}
