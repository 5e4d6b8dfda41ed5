//! Prolog and epilog as slurmd starts them, on all GPUs, and what they leave behind.

use super::machine::write;
use gpuward_core::account::{JobRecord, Quality, RecordStatus};
use gpuward_core::model::snapshot::ProbedGpu;
use gpuward_core::model::{Reading, Snapshot, SnapshotFile};
use gpuward_tests::measure::Series;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How many jobs, and when to stop earlier: without persistence mode each look may take seconds.
const JOBS: u32 = 11;
const BUDGET: Duration = Duration::from_secs(20);

/// More than any board draws, for one that does not tell its limit: 1.5 kW.
const ANY_BOARD_MW: u32 = 1_500_000;

/// The energy counter moves about every 100 ms (ml.energy), so either edge may be late by that much; twice that for peace.
const EDGES_MS: u64 = 400;

/// What came of it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Jobs {
    /// GPUs of each job.
    pub gpus: usize,
    /// Jobs.
    pub jobs: usize,
    /// The first prolog, ms.
    pub first_ms: f64,
    /// Median and worst of the other prologs, ms.
    pub prolog_ms: Option<[f64; 2]>,
    /// Median and worst of all epilogs but the first, ms.
    pub epilog_ms: Option<[f64; 2]>,
    /// Records that were judged.
    pub records: usize,
    /// What is not as it should be.
    pub wrong: Vec<String>,
}

/// Runs the jobs and prints [`Jobs`].
pub fn run(programs: &Path, site: &Path, snapshot: &Path) -> Result<(), String> {
    let text = fs::read_to_string(snapshot).map_err(|error| format!("{}: {error}", snapshot.display()))?;
    let file = SnapshotFile::parse(&text).map_err(|error| format!("{}: {error}", snapshot.display()))?;
    let minors = minors(&file.snapshot);
    let gres: String = minors.iter().map(|minor| format!("Name=gpu File=/dev/nvidia{minor}\n")).collect();
    write(&site.join("etc/gres.conf"), &gres)?;
    write(&site.join("etc/slurm.conf"), "")?;
    let mut jobs = Jobs { gpus: minors.len(), ..Jobs::default() };
    if minors.is_empty() {
        jobs.wrong.push("no GPU's device number is known, so no job can be given one".into());
    } else {
        all(programs, site, &mut jobs)?;
        judge(site, &file.snapshot, &mut jobs);
    }
    println!("{}", serde_json::to_string(&jobs).map_err(|error| error.to_string())?);
    Ok(())
}

fn opened(snapshot: &Snapshot) -> impl Iterator<Item = &ProbedGpu> {
    snapshot.gpus.iter().filter(|gpu| gpu.reading.handle.value().is_some())
}

/// Device numbers of the GPUs that open, as gres.conf names them.
fn minors(snapshot: &Snapshot) -> BTreeSet<u32> {
    let known = |gpu: &ProbedGpu| {
        let listed = snapshot.host.driver_gpus.iter().find(|listed| Some(listed.pci) == gpu.pci());
        listed.and_then(|listed| listed.minor)
    };
    opened(snapshot).filter_map(known).collect()
}

fn all(programs: &Path, site: &Path, jobs: &mut Jobs) -> Result<(), String> {
    let begin = Instant::now();
    let (mut prologs, mut epilogs) = (Vec::new(), Vec::new());
    for job in 1..=JOBS {
        prologs.push(one(programs, site, "gpuward-prolog", job, jobs)?);
        epilogs.push(one(programs, site, "gpuward-epilog", job, jobs)?);
        if begin.elapsed() > BUDGET {
            break;
        }
    }
    jobs.jobs = prologs.len();
    jobs.first_ms = prologs.remove(0);
    epilogs.remove(0);
    let told = |times: Vec<f64>| {
        (!times.is_empty()).then(|| Series::new(times)).map(|times| [times.median(), times.max()])
    };
    jobs.prolog_ms = told(prologs);
    jobs.epilog_ms = told(epilogs);
    Ok(())
}

/// How long a program took, ms. The environment is slurmd's; its job ids are near the highest that Slurm gives (MAX_JOB_ID 0x03ffffff).
fn one(programs: &Path, site: &Path, program: &str, job: u32, jobs: &mut Jobs) -> Result<f64, String> {
    let indices = (0..jobs.gpus).map(|index| index.to_string()).collect::<Vec<_>>().join(",");
    let mut command = Command::new(programs.join(program));
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.env("SLURMD_NODENAME", "device-check").env("SLURM_CLUSTER_NAME", "device-check");
    command.env("SLURM_CONF", site.join("etc/slurm.conf"));
    command.env("SLURM_JOB_ID", (67_000_000 + job).to_string()).env("SLURM_JOB_RESTART_COUNT", "0");
    command.env("SLURM_JOB_UID", "65534").env("SLURM_JOB_USER", "nobody");
    command.env("SLURM_JOB_GPUS", &indices).env("CUDA_VISIBLE_DEVICES", &indices);
    command.env("SLURM_JOB_EXIT_CODE2", "0:0");
    let begin = Instant::now();
    let output = command.output().map_err(|error| format!("{program}: {error}"))?;
    let took = begin.elapsed().as_secs_f64() * 1e3;
    if output.status.code() != Some(0) {
        let said = String::from_utf8_lossy(&output.stderr);
        jobs.wrong.push(format!("{program} of job {job} ended with {}: {}", output.status, said.trim()));
    }
    Ok(took)
}

fn judge(site: &Path, snapshot: &Snapshot, jobs: &mut Jobs) {
    let files: Vec<_> = fs::read_dir(site.join("spool/records")).into_iter().flatten().flatten().collect();
    for file in &files {
        let text = fs::read_to_string(file.path()).unwrap_or_default();
        match serde_json::from_str::<JobRecord>(&text) {
            Ok(record) => judge_record(&record, snapshot, jobs),
            Err(error) => jobs.wrong.push(format!("a record does not read: {error}")),
        }
    }
    jobs.records = files.len();
    if files.len() != jobs.jobs {
        jobs.wrong.push(format!("{} jobs left {} records", jobs.jobs, files.len()));
    }
    let states = fs::read_dir(site.join("run/jobs")).into_iter().flatten().count();
    if states > 0 {
        jobs.wrong.push(format!("{states} job state files are left after the epilogs"));
    }
}

fn judge_record(record: &JobRecord, snapshot: &Snapshot, jobs: &mut Jobs) {
    let job = record.job_id.wrapping_sub(67_000_000);
    let mut wrong = |what: String| jobs.wrong.push(format!("record of job {job}: {what}"));
    if record.status != RecordStatus::Complete || !record.gpu_map_certain {
        wrong(format!("{:?}, GPUs certain: {}", record.status, record.gpu_map_certain));
    }
    let wanted: BTreeSet<String> =
        opened(snapshot).filter_map(|gpu| gpu.uuid().map(ToString::to_string)).collect();
    let found: BTreeSet<String> = record.gpus.iter().filter_map(|gpu| gpu.uuid.clone()).collect();
    if found != wanted {
        wrong(format!("it has GPUs {found:?}, the snapshot {wanted:?}"));
    }
    let elapsed_ms = record.elapsed_ms.unwrap_or(0) + EDGES_MS;
    for used in &record.gpus {
        let Some(gpu) = opened(snapshot).find(|gpu| gpu.uuid().map(ToString::to_string) == used.uuid) else {
            continue;
        };
        let has = matches!(gpu.reading.counters.energy_mj, Reading::Value(_));
        let told = used.energy_mj.quality == Quality::Exact;
        if has != told {
            wrong(format!("energy is {:?}, where the snapshot reads {:?}", used.energy_mj, has));
        }
        let limit = gpu.reading.detail.as_ref().and_then(|detail| detail.power.max_limit_mw.value().copied());
        let most_mj = u64::from(limit.unwrap_or(ANY_BOARD_MW)) * elapsed_ms / 1000 * 3 / 2;
        if used.energy_mj.value.is_some_and(|energy| energy > most_mj) {
            wrong(format!("energy of {} mJ, at most {most_mj} mJ are possible", used.energy_mj.text()));
        }
    }
}
