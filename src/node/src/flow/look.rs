//! One look at a node: read, remember, judge.

use super::{Site, kernel_log};
use crate::cgroup::{self, Hierarchies};
use crate::clock::{Deadline, boottime_ns, unix_ms};
use crate::nvml::{Answer, Request, Watch};
use crate::process::{Lock, is_running, stuck_processes};
use crate::slurm::read_gres_conf;
use crate::state::{Attempt, BootState, load_app_xids, load_known, save_known};
use crate::{EdgeError, config, files, sysfs};
use gpuward_core::health::known::{How, KnownFile, Seen, learn, present};
use gpuward_core::health::{
    ActedEcc, Case, Expected, Finding, History, SeenGpu, Subject, evaluate, log_rules, silence,
};
use gpuward_core::model::gpu_map::{GpuMap, GpuName, UnknownGpu, resolve};
use gpuward_core::model::gres_conf::GresConf;
use gpuward_core::model::platform::{Holder, PlatformReading};
use gpuward_core::model::snapshot::{GpuTarget, HostReading, ProbeOutcome, ProbedGpu};
use gpuward_core::model::{GpuReading, PciAddress, Reading, Snapshot};
use std::collections::BTreeSet;
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

    /// What the node should be, for every kind of look the same; only checks hold slurm.conf against it besides.
    fn expected(&self, site: &Site, known: Option<&KnownFile>, depth: Depth) -> Expected {
        let learned = known.map(KnownFile::seen).unwrap_or_default();
        let slurm_conf = || self.gres.slurm.as_ref().and_then(|slurm| slurm.count);
        let (overrides, complaints) = config::overrides(&site.config);
        for text in complaints {
            log::error!("{text}");
        }
        Expected {
            slurm_conf: if depth == Depth::ForAJob { None } else { slurm_conf() },
            overrides,
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
///
/// `job_start` are the counters of the job's GPUs at its start, where the job is over.
pub(super) fn look(
    site: &Site,
    ground: Ground,
    map: GpuMap,
    deadline: Deadline,
    job_start: Vec<SeenGpu>,
) -> Look {
    look_at(site, ground, map, (deadline, site.probe_deadline_ms), Depth::ForAJob, job_start, &mut |_| {})
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
    job_start: Vec<SeenGpu>,
    told: &mut dyn FnMut(usize),
) -> Look {
    let (deadline, deadline_ms) = deadline;
    let tracks_by_cgroup = ground.gres.tracks_by_cgroup;
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
    host.kernel_log = kernel_log::read(site, &mut boot, deadline, depth != Depth::ForAJob);
    let sysfs = Path::new(&site.paths.sysfs);
    sysfs::complete(&mut host, sysfs);
    if kernel_log::speaks_of_ports(&boot.log) {
        host.gpu_ports = sysfs::gpu_ports(sysfs, map.targets.iter().filter_map(|target| target.pci));
    }
    if depth != Depth::ForAJob {
        sysfs::complete_at_leisure(&mut host, sysfs);
    }
    host.platform = platform(site, &host, depth);
    let mut answer = match watch {
        Ok(watch) => watch.finish(deadline, deadline_ms, told),
        Err(outcome) => Answer::nothing(outcome),
    };
    host.platform.holders = holders(site, tracks_by_cgroup, &answer.gpus);
    let snapshot = Snapshot {
        boot_id: site.boot_id.clone(),
        boottime_ns: boottime_ns(),
        host,
        probe: answer.outcome.clone(),
        node: std::mem::take(&mut answer.node),
        gpus: if answer.gpus.is_empty() { not_asked(&map) } else { std::mem::take(&mut answer.gpus) },
        log: boot.log.clone(),
    };
    let history = History {
        silent: before.silent.clone(),
        acted_ecc: before.acted_ecc.clone(),
        seen: before.seen.clone(),
        app_xids: load_app_xids(Path::new(&site.paths.state), unix_ms()),
        job_start,
        stuck: before.stuck.clone(),
    };
    let findings = evaluate(&Case {
        snapshot: &snapshot,
        expected: &expected,
        history: &history,
        limits: &site.config.limits(),
        gpu_map_certain: map.certain(),
    });
    boot.seen = history.seen_after(&snapshot);
    boot.stuck = history.stuck_after(&snapshot);
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
    let concerned = |device: Option<PciAddress>| match (pci, device) {
        (Some(gpu), Some(device)) => log_rules::concerns(&look.snapshot, gpu, device),
        (None, None) => true,
        _ => false,
    };
    boot.log.mark_acted(now_ns, concerned);
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

/// Kernel, modules and firmware; the processes that wait in the kernel only at leisure, since all are asked for it.
fn platform(site: &Site, host: &HostReading, depth: Depth) -> PlatformReading {
    let (sysfs, procfs) = (Path::new(&site.paths.sysfs), Path::new(&site.paths.procfs));
    if depth == Depth::ForAJob {
        return sysfs::platform_for_a_job(sysfs, procfs, &host.pci_gpus);
    }
    let stuck = stuck_processes(procfs).map_or_else(
        |error| {
            log::warn!("{error}; processes that hang in the driver are not seen");
            Reading::Failed(0)
        },
        Reading::Value,
    );
    let imex_service = is_running(procfs, "nvidia-imex");
    PlatformReading { stuck, imex_service, ..sysfs::platform(sysfs, procfs, &host.pci_gpus) }
}

/// Whose the processes are that the driver lists on any of these GPUs.
fn holders(site: &Site, tracks_by_cgroup: bool, gpus: &[ProbedGpu]) -> Reading<Vec<Holder>> {
    let lists = gpus.iter().filter_map(|gpu| gpu.reading.detail.as_ref()?.processes.value());
    let pids: BTreeSet<u32> = lists.flatten().map(|process| process.pid).collect();
    if pids.is_empty() {
        return Reading::Value(Vec::new());
    }
    let (sysfs, procfs) = (Path::new(&site.paths.sysfs), Path::new(&site.paths.procfs));
    let groups = || {
        let found = Hierarchies::find(&sysfs.join("fs/cgroup"), procfs, Some(&site.env.node));
        found.map_err(|error| log::debug!("{error}; nobody can tell whose a process is")).ok()
    };
    let groups = tracks_by_cgroup.then(groups).flatten();
    let pids: Vec<u32> = pids.into_iter().collect();
    Reading::Value(cgroup::holders(procfs, groups.as_ref(), &pids))
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
    let mut look =
        look_at(site, ground, map, deadline, depth, Vec::new(), &mut |answered| told(answered, count));
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
            let seen = learn(&look.snapshot, &look.expected, &look.findings);
            let written = seen.and_then(|seen| write_known(site, How::Learned, seen));
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

fn write_known(site: &Site, how: How, seen: Seen) -> Result<KnownFile, String> {
    let file = KnownFile::new(&site.env.node, how, unix_ms(), &site.boot_id, seen);
    save_known(Path::new(&site.paths.state), &file).map_err(|error| error.to_string())?;
    Ok(file)
}
