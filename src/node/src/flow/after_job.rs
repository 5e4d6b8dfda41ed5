//! After a job: the counters again, one record, and another look at the GPUs it used.

use super::act::{Judged, judge, write_down};
use super::look::{Ground, look};
use super::{Finish, Outcome, Site, ask_for_time};
use crate::clock::{Deadline, unix_ms};
use crate::state::{JobFiles, has_record, note_app_xids, write_record};
use gpuward_core::account::{EndOfJob, record};
use gpuward_core::health::SeenGpu;
use gpuward_core::health::log_rules::repeat::AppXid;
use gpuward_core::health::xid::counts_for_repeats;
use gpuward_core::model::gpu_map::GpuMap;
use gpuward_core::model::snapshot::GpuTarget;
use gpuward_core::model::{JobId, JobState, PciAddress, Snapshot};
use std::path::Path;

pub(super) fn run(site: &Site, start_boottime_ns: u64, deadline: Deadline) -> (Outcome, Finish) {
    let nothing = || -> (Outcome, Finish) { (Outcome::Pass, Box::new(|| {})) };
    let Some(job_id) = site.env.job_id else {
        log::error!("SLURM_JOB_ID is missing; no record is written");
        return nothing();
    };
    let files = JobFiles::open(Path::new(&site.paths.run)).map_err(|error| log::error!("{error}")).ok();
    let state = files.as_ref().and_then(|files| files.of_run(job_id, site.env.restart_count));
    if state.is_none() && files.as_ref().is_some_and(|files| files.was_refused(job_id)) {
        log::debug!("this run was refused and used nothing; job={job_id}");
        return nothing();
    }
    let ground = Ground::read(site);
    if ground.is_other_vendor() {
        return nothing();
    }
    let map = state.as_ref().map_or_else(|| ground.job_gpus(site), gpus_of);
    let job_start = state.as_ref().map_or_else(Vec::new, |state| counters_at_start(site, state));
    let mut look = look(site, ground, map, deadline, job_start);
    // The verdict first: a slow disk must cost the record, not the drain.
    let Judged { outcome, entry, .. } = judge(site, &mut look, start_boottime_ns);
    let is_written =
        state.is_none() && has_record(Path::new(&site.paths.spool), job_id.0, site.env.restart_count);
    if is_written {
        log::debug!("the record of this run is written already; job={job_id}");
    } else {
        ask_for_time(start_boottime_ns, RECORD_MS);
        write(site, job_id, state.as_ref(), &look.snapshot);
    }
    if let Some(state) = &state {
        note_user_xids(site, state, &look.snapshot);
        forget(files.as_ref(), state);
    }
    look.came_to_a_verdict();
    let folder = site.paths.state.clone();
    let finish = move || {
        entry.iter().for_each(|entry| write_down(Path::new(&folder), entry));
        look.settle();
    };
    (outcome, Box::new(finish))
}

/// How long a slow disk may take over the record. Ours: nobody waits for an epilog but the next job of the node.
const RECORD_MS: u64 = 2000;

/// The GPUs that the prolog identified; indices are not asked again, they may have moved.
fn gpus_of(state: &JobState) -> GpuMap {
    let target = |gpu: &gpuward_core::model::JobGpu| GpuTarget {
        gres_index: gpu.gres_index,
        minor: gpu.minor,
        pci: Some(gpu.pci),
        uuid: gpu.uuid.clone(),
    };
    let uncertain =
        (!state.gpu_map_certain).then(|| "the prolog could not tell all of the job's GPUs".to_owned());
    GpuMap { targets: state.gpus.iter().map(target).collect(), uncertain }
}

/// What the prolog read of the GPUs; of another boot it says nothing.
fn counters_at_start(site: &Site, state: &JobState) -> Vec<SeenGpu> {
    let of_gpu = |gpu: &gpuward_core::model::JobGpu| {
        // The counters are the whole GPU's.
        let uuid = gpu.parent_uuid.clone().or_else(|| gpu.uuid.clone())?;
        Some(SeenGpu::of_counters(uuid, state.start_boottime_ns, gpu.counters.clone()))
    };
    let gpus = state.gpus.iter().filter(|_| state.boot_id == site.boot_id);
    gpus.filter_map(of_gpu).collect()
}

fn write(site: &Site, job_id: JobId, state: Option<&JobState>, end: &Snapshot) {
    let env = &site.env;
    let job = EndOfJob {
        job_id: job_id.0,
        restart_count: env.restart_count,
        sluid: env.sluid.clone(),
        cluster: env.cluster.clone(),
        node: env.node.clone(),
        uid: env.uid,
        user: env.user.clone(),
        account: env.account.clone(),
        partition: env.partition.clone(),
        exit_code: env.exit_code.clone(),
        end_unix_ms: unix_ms(),
    };
    match write_record(Path::new(&site.paths.spool), &record(&job, state, end)) {
        Ok(path) => log::info!("record is written; job={job_id} path={}", path.display()),
        Err(error) => log::error!("{error}; the record of this run is lost; job={job_id}"),
    }
}

/// The kernel log's clock is not corrected by NTP: over a hundred days it may be minutes off. Ours. What an earlier job
/// met within that time is known to be its own.
const CLOCK_DRIFT_USEC: u64 = 10 * 60 * 1_000_000;

/// Notes down the XIDs that this job's own programs brought about: if they keep coming back on one GPU with different
/// users, it is the GPU.
fn note_user_xids(site: &Site, state: &JobState, end: &Snapshot) {
    let Some(uid) = site.env.uid.or(state.uid).filter(|_| state.boot_id == site.boot_id) else { return };
    let unix_ms = unix_ms();
    let since_usec = (state.start_boottime_ns / 1000).saturating_sub(CLOCK_DRIFT_USEC);
    let gpu_at = |pci: PciAddress| {
        let gpu = state.gpus.iter().find(|gpu| PciAddress { function: 0, ..gpu.pci } == pci)?;
        gpu.parent_uuid.clone().or_else(|| gpu.uuid.clone())
    };
    let mine =
        end.log.xids.iter().filter(|event| counts_for_repeats(event.xid) && event.seen.usec >= since_usec);
    let entries: Vec<AppXid> = mine
        .filter_map(|event| {
            let (gpu, line) = (gpu_at(event.pci)?, (event.seen.seq, event.seen.usec));
            Some(AppXid { gpu, xid: event.xid, job_id: state.job_id.0, uid, line, unix_ms })
        })
        .collect();
    if let Err(error) = note_app_xids(Path::new(&site.paths.state), &entries, unix_ms) {
        log::error!("{error}; the XIDs of this job do not count for XID_REPEAT; job={}", state.job_id);
    }
}

fn forget(files: Option<&JobFiles>, state: &JobState) {
    if let Some(Err(error)) = files.map(|files| files.remove(state)) {
        log::error!("{error}; job={}", state.job_id);
    }
}
