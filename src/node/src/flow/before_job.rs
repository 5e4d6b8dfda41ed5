//! Before a job: is the hardware fit, and what are its counters now.

use super::act::{Judged, judge, write_down};
use super::look::{Ground, Look, look};
use super::{Finish, Outcome, Site};
use crate::clock::{Deadline, boottime_ns, unix_ms};
use crate::state::{JobFiles, new_nonce};
use gpuward_core::model::job::JOB_STATE_VERSION;
use gpuward_core::model::snapshot::{HostReading, ProbedGpu};
use gpuward_core::model::{JobGpu, JobId, JobState};
use std::path::Path;

pub(super) fn run(site: &Site, start_boottime_ns: u64, deadline: Deadline) -> (Outcome, Finish) {
    let Some(job_id) = site.env.job_id else {
        log::error!("SLURM_JOB_ID is missing; the job goes on unchecked");
        return (Outcome::Pass, Box::new(|| {}));
    };
    let ground = Ground::read(site);
    if ground.is_other_vendor() {
        log::debug!("gres.conf names no NVIDIA GPU for this node; job={job_id}");
        return (Outcome::Pass, Box::new(|| {}));
    }
    let map = ground.job_gpus(site);
    let mut look = look(site, ground, map, deadline, Vec::new());
    let Judged { outcome, comments, entry } = judge(site, &mut look, start_boottime_ns);
    let refused = outcome != Outcome::Pass;
    let saved = JobFiles::open(Path::new(&site.paths.run)).and_then(|files| match refused {
        true => files.note_refusal(job_id),
        false => files.write(&job_state(site, job_id, &look, comments)),
    });
    if let Err(error) = saved {
        log::error!(
            "{error}; the job's tasks keep Slurm's environment and its record has no start; job={job_id}"
        );
    }
    let took_ms = boottime_ns().saturating_sub(start_boottime_ns) / 1_000_000;
    log::info!(
        "{}; job={job_id} gpus={} gpu_map={} findings={} took_ms={took_ms}",
        if refused { "job is refused" } else { "job goes on" },
        look.map.targets.len(),
        look.map.uncertain.as_deref().map_or("certain", |_| "partial"),
        look.findings.len(),
    );
    look.came_to_a_verdict();
    let folder = site.paths.state.clone();
    let finish = move || {
        entry.iter().for_each(|entry| write_down(Path::new(&folder), entry));
        look.settle();
    };
    (outcome, Box::new(finish))
}

fn job_state(site: &Site, job_id: JobId, look: &Look, comments: Vec<String>) -> JobState {
    let env = &site.env;
    JobState {
        version: JOB_STATE_VERSION,
        job_id,
        nonce: new_nonce(),
        restart_count: env.restart_count,
        sluid: env.sluid.clone(),
        cluster: env.cluster.clone(),
        node: env.node.clone(),
        uid: env.uid,
        user: env.user.clone(),
        account: env.account.clone(),
        partition: env.partition.clone(),
        boot_id: site.boot_id.clone(),
        driver_version: look.snapshot.node.driver_version.value().cloned(),
        start_unix_ms: unix_ms(),
        start_boottime_ns: boottime_ns(),
        gpu_map_certain: look.map.certain(),
        gpus: look.snapshot.gpus.iter().filter_map(|gpu| job_gpu(gpu, &look.snapshot.host)).collect(),
        comments,
    }
}

fn job_gpu(gpu: &ProbedGpu, host: &HostReading) -> Option<JobGpu> {
    let pci = gpu.pci()?;
    let known = host.driver_gpus.iter().find(|known| known.pci == pci);
    let mig = gpu.target.uuid.clone().filter(|uuid| uuid.is_mig());
    let whole = gpu.uuid().cloned();
    Some(JobGpu {
        parent_uuid: if mig.is_some() { whole.clone() } else { None },
        uuid: mig.or(whole),
        pci,
        gres_index: gpu.target.gres_index,
        minor: gpu.target.minor.or_else(|| gpu.reading.minor.value().copied()),
        model: gpu.reading.model.value().cloned().or_else(|| known?.model.clone()),
        serial: gpu.reading.serial.value().cloned(),
        numa_node: known.and_then(|known| known.numa_node),
        local_cpus: known.and_then(|known| known.local_cpus.clone()),
        counters: gpu.reading.counters.clone(),
    })
}
