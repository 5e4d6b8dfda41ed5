use super::*;
use crate::model::snapshot::{GpuTarget, ProbedGpu};
use crate::model::{GpuReading, GresIndex, JobId, Reading};

const UUID: &str = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6";

fn counters(energy_mj: u64) -> Counters {
    Counters {
        energy_mj: Reading::Value(energy_mj),
        ecc_aggregate_uncorr: Reading::Value(2),
        ecc_aggregate_corr: Reading::NotSupported,
        ..Counters::default()
    }
}

fn state() -> JobState {
    JobState {
        version: 1,
        job_id: JobId(7),
        nonce: "0123456789abcdef".into(),
        restart_count: Some(1),
        sluid: None,
        cluster: Some("c".into()),
        node: "n1".into(),
        uid: Some(1000),
        user: Some("alice".into()),
        account: None,
        partition: None,
        boot_id: "boot".into(),
        driver_version: Some("570.124.06".into()),
        start_unix_ms: 1_000,
        start_boottime_ns: 5_000_000_000,
        gpu_map_certain: true,
        gpus: vec![JobGpu {
            uuid: Some(UUID.parse().unwrap()),
            parent_uuid: None,
            pci: "0000:3b:00.0".parse().unwrap(),
            gres_index: Some(GresIndex(3)),
            minor: None,
            model: None,
            serial: None,
            numa_node: None,
            local_cpus: None,
            counters: counters(100),
        }],
        comments: Vec::new(),
    }
}

fn end(energy: Reading<u64>) -> Snapshot {
    let reading = GpuReading {
        handle: Reading::Value(()),
        pci: Reading::Value("0000:3b:00.0".parse().unwrap()),
        uuid: Reading::Value(UUID.parse().unwrap()),
        counters: Counters { energy_mj: energy, ..counters(0) },
        ..GpuReading::default()
    };
    let mut snapshot = Snapshot { boot_id: "boot".into(), boottime_ns: 9_500_000_000, ..Snapshot::default() };
    snapshot.node.driver_version = Reading::Value("570.124.06".into());
    snapshot.gpus.push(ProbedGpu { target: GpuTarget::default(), reading });
    snapshot
}

fn job() -> EndOfJob {
    EndOfJob { job_id: 7, node: "n1".into(), end_unix_ms: 5_500, ..EndOfJob::default() }
}

fn energy(record: &JobRecord) -> (Option<u64>, Quality) {
    (record.gpus[0].energy_mj.value, record.gpus[0].energy_mj.quality.clone())
}

#[test]
fn two_good_readings_make_an_exact_value() {
    let record = record(&job(), Some(&state()), &end(Reading::Value(450)));
    assert_eq!(energy(&record), (Some(350), Quality::Exact));
    assert_eq!(record.gpus[0].ecc_uncorr.text(), "0");
    assert_eq!(
        (record.gpus[0].ecc_corr.text(), &record.gpus[0].ecc_corr.quality),
        ("-".into(), &Quality::Missing)
    );
    assert_eq!((record.elapsed_ms, record.restart_count), (Some(4_500), Some(1)));
    assert_eq!(file_name(&record), "7-1-1000-n1.json");
}

#[test]
fn a_restart_in_between_gives_a_reason_and_no_number() {
    let partial = |reason: &str| (None, Quality::Partial(reason.into()));
    let of = |state: &JobState, snapshot: &Snapshot| energy(&record(&job(), Some(state), snapshot));
    assert_eq!(of(&state(), &end(Reading::Value(99))), partial("counter_reset"));
    assert_eq!(of(&state(), &end(Reading::Lost)), partial("gpu_lost"));
    assert_eq!(of(&state(), &end(Reading::TimedOut)), partial("no_end"));
    assert_eq!(
        of(&JobState { boot_id: "other".into(), ..state() }, &end(Reading::Value(450))),
        partial("node_reboot")
    );
    let older = JobState { driver_version: Some("550.1.2".into()), ..state() };
    assert_eq!(of(&older, &end(Reading::Value(450))), partial("driver_reload"));
    let mut gone = end(Reading::Value(450));
    gone.gpus.clear();
    assert_eq!(of(&state(), &gone), partial("no_end"));
    let mut swapped = end(Reading::Value(450));
    swapped.gpus[0].reading.uuid =
        Reading::Value("GPU-00000000-d72c-4106-c12f-20bd9faed9f6".parse().unwrap());
    assert_eq!(of(&state(), &swapped), partial("gpu_replaced"));
}

#[test]
fn without_a_prolog_the_record_says_so() {
    let record = record(&job(), None, &end(Reading::Value(450)));
    assert_eq!((record.status, record.start_unix_ms), (RecordStatus::NoStart, None));
    assert_eq!(energy(&record), (None, Quality::Partial("no_start".into())));
    assert_eq!(record.gpus[0].uuid.as_deref(), Some(UUID));
}

#[test]
fn a_mig_device_shares_its_counters() {
    let mut state = state();
    state.gpus[0].parent_uuid = state.gpus[0].uuid.take();
    state.gpus[0].uuid = Some("MIG-8932f937-d72c-4106-c12f-20bd9faed9f6".parse().unwrap());
    let record = record(&job(), Some(&state), &end(Reading::Value(450)));
    assert_eq!(energy(&record), (Some(350), Quality::Shared));
}

#[test]
fn a_record_reads_back_as_written() {
    let record = record(&job(), Some(&state()), &end(Reading::Value(450)));
    let text = serde_json::to_string(&record).unwrap();
    assert_eq!(serde_json::from_str::<JobRecord>(&text).unwrap(), record);
    assert!(text.len() < 5 * 1024);
}
