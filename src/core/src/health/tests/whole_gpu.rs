//! A machine of four whole GPUs, all readings there, at rest, and what the rules say after one of them has changed.

use super::*;
use crate::model::detail::{ClockReading, EccReading, GpuDetail, PowerReading, ProcessReading, TempReading};

/// How long before a snapshot the earlier look of [`looked_before`] was, s.
pub(super) const EARLIER_S: u64 = 100;

/// The GPU that the tests change.
pub(super) const SICK: usize = 2;

pub(super) fn machine() -> Snapshot {
    let mut snapshot = healthy();
    let gpu = snapshot.gpus[0].clone();
    snapshot.gpus = (1..=4).map(|at| whole(at, gpu.clone())).collect();
    snapshot
}

fn whole(at: u8, mut gpu: ProbedGpu) -> ProbedGpu {
    let pci: PciAddress = format!("0000:{at}a:00.0").parse().unwrap();
    gpu.target.pci = Some(pci);
    gpu.target.gres_index = Some(GresIndex(u32::from(at)));
    let reading = &mut gpu.reading;
    reading.pci = Reading::Value(pci);
    reading.uuid = Reading::Value(format!("GPU-00000000-0000-0000-0000-00000000000{at}").parse().unwrap());
    reading.model = Reading::Value("NVIDIA A100-SXM4-80GB".into());
    reading.persistence = Reading::Value(true);
    reading.mig = Reading::Value(false);
    reading.temp_c = Reading::Value(30);
    reading.remap_pending = Reading::Value(false);
    reading.counters.each_mut().into_iter().for_each(|counter| *counter = Reading::Value(0));
    reading.detail = Some(Box::new(detail()));
    gpu
}

fn detail() -> GpuDetail {
    let mut detail = GpuDetail {
        power: PowerReading {
            draw_mw: Reading::Value(60_000),
            default_limit_mw: Reading::Value(400_000),
            enforced_limit_mw: Reading::Value(400_000),
            ..PowerReading::default()
        },
        temp: TempReading {
            memory_c: Reading::Value(34),
            memory_max_c: Reading::Value(95),
            gpu_max_c: Reading::Value(85),
            margin_c: Reading::NotSupported,
            tlimit_c: Reading::NotSupported,
            ..TempReading::default()
        },
        clocks: ClockReading {
            now_mhz: Reading::Value([210, 210, 1593, 585]),
            app_default_mhz: Reading::Value([1155, 1593]),
            app_mhz: Reading::Value([1155, 1593]),
            util_pct: Reading::Value([0, 0]),
            event_reasons: Reading::Value(1),
            ..ClockReading::default()
        },
        ecc: EccReading {
            enabled: Reading::Value(true),
            pending: Reading::Value(true),
            sram_threshold_exceeded: Reading::Value(false),
            remap_histogram: Reading::Value([640, 0, 0, 0, 0]),
            retired_pages: Reading::Value([0, 0]),
            retire_pending: Reading::Value(false),
            repair_pending: Reading::Value([false, false]),
            ..EccReading::default()
        },
        processes: Reading::Value(Vec::new()),
        compute_mode: Reading::Value(0),
        ..GpuDetail::default()
    };
    detail.board.brand = Reading::Value(14);
    detail
}

pub(super) fn detail_of(gpu: &mut ProbedGpu) -> &mut GpuDetail {
    gpu.reading.detail.as_deref_mut().unwrap()
}

/// The GPU computes, with its SM clock at `sm_mhz`.
pub(super) fn works(gpu: &mut ProbedGpu, sm_mhz: u32) {
    let detail = detail_of(gpu);
    detail.clocks.util_pct = Reading::Value([97, 40]);
    detail.clocks.now_mhz = Reading::Value([sm_mhz, sm_mhz, 1593, 585]);
    detail.clocks.event_reasons = Reading::Value(0);
    detail.power.draw_mw = Reading::Value(300_000);
    detail.processes = Reading::Value(vec![ProcessReading { pid: 7, ..ProcessReading::default() }]);
}

/// What a look at `earlier` leaves for one `seconds` later.
pub(super) fn looked_before(earlier: &Snapshot, seconds: u64) -> History {
    let mut earlier = earlier.clone();
    earlier.boottime_ns -= seconds * 1_000_000_000;
    History { seen: History::default().seen_after(&earlier), ..History::default() }
}

/// All findings, each of which must be about the sick GPU.
pub(super) fn found(snapshot: &Snapshot, expected: &Expected, history: &History) -> Vec<(String, Severity)> {
    let findings = super::whole(snapshot, expected, history, true);
    let sick = Subject::of(&snapshot.gpus[SICK]);
    assert!(findings.iter().all(|finding| finding.subject == sick), "{findings:#?}");
    findings.into_iter().map(|finding| (finding.code, finding.severity)).collect()
}

/// What one look says, with `change` done to one GPU.
pub(super) fn changed(change: impl Fn(&mut ProbedGpu)) -> Vec<(String, Severity)> {
    let mut snapshot = machine();
    change(&mut snapshot.gpus[SICK]);
    found(&snapshot, &expected(), &History::default())
}

/// What the second of two looks says, with `before` done to one GPU at the first and `now` at the second.
pub(super) fn twice(
    before: impl Fn(&mut ProbedGpu),
    now: impl Fn(&mut ProbedGpu),
) -> Vec<(String, Severity)> {
    let (mut earlier, mut later) = (machine(), machine());
    before(&mut earlier.gpus[SICK]);
    now(&mut later.gpus[SICK]);
    found(&later, &expected(), &looked_before(&earlier, EARLIER_S))
}

pub(super) fn warns(code: &str) -> Vec<(String, Severity)> {
    vec![(code.to_owned(), Severity::Warn)]
}

/// Every answer that is no value.
pub(super) fn missing<T: Copy>() -> [Reading<T>; 6] {
    let failed = Reading::Failed(999);
    let refused = [Reading::NotSupported, Reading::NoPermission, Reading::TimedOut];
    [refused[0], refused[1], refused[2], Reading::NotRead, failed, Reading::Failed(2)]
}

#[test]
fn a_machine_at_rest_has_no_findings_in_one_look_or_two() {
    assert_eq!(changed(|_| {}), []);
    assert_eq!(twice(|_| {}, |_| {}), []);
}

#[test]
fn a_machine_at_work_has_no_findings_either() {
    let mut snapshot = machine();
    snapshot.gpus.iter_mut().for_each(|gpu| works(gpu, 1410));
    assert_eq!(found(&snapshot, &expected(), &looked_before(&snapshot, EARLIER_S)), []);
}
