use super::*;
use crate::health::tests::{expected, healthy, whole};
use crate::health::{Expected, History, KnownGpu, SeenGpu, StuckMark};
use crate::model::detail::{GpuDetail, MemoryReading, ProcessKind};
use crate::model::platform::StuckProcess;

const MINUTE_NS: u64 = 60_000_000_000;

fn told(snapshot: &Snapshot, history: &History) -> Vec<(String, Severity, String)> {
    let findings = whole(snapshot, &expected(), history, true);
    findings.into_iter().map(|finding| (finding.code, finding.severity, finding.what)).collect()
}

/// The healthy node, its second GPU with this memory in use and these processes.
fn used(used_mib: u64, pids: &[u32]) -> Snapshot {
    let mut snapshot = healthy();
    let process =
        |&pid: &u32| ProcessReading { pid, kind: ProcessKind::Compute, ..ProcessReading::default() };
    let uuid = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6".parse().unwrap();
    snapshot.gpus[1].reading.uuid = Reading::Value(uuid);
    snapshot.gpus[1].reading.detail = Some(Box::new(GpuDetail {
        memory: MemoryReading { used_mib: Reading::Value(used_mib), ..MemoryReading::default() },
        processes: Reading::Value(pids.iter().map(process).collect()),
        memory_node: Reading::NotSupported,
        ..GpuDetail::default()
    }));
    snapshot.host.platform.holders = Reading::Value(Vec::new());
    snapshot
}

fn held_by(owner: HolderOwner, name: &str) -> Snapshot {
    let mut snapshot = used(20_000, &[7]);
    snapshot.host.platform.holders = Reading::Value(vec![Holder { pid: 7, name: name.into(), owner }]);
    snapshot
}

/// What a look saw a minute before `snapshot`.
fn a_minute_ago(snapshot: &Snapshot) -> History {
    let mut before = snapshot.clone();
    before.boottime_ns -= MINUTE_NS;
    History { seen: History::default().seen_after(&before), ..History::default() }
}

#[test]
fn memory_without_a_process_is_told_at_once_and_warned_of_when_it_stays() {
    let line = |severity, again| {
        vec![("LEFT_MEM".to_owned(), severity, format!("257 MiB held by no process{again}"))]
    };
    let snapshot = used(257, &[]);
    assert_eq!(told(&snapshot, &History::default()), line(Severity::Info, ""));
    assert_eq!(told(&snapshot, &a_minute_ago(&snapshot)), line(Severity::Warn, ", again"));
    assert_eq!(told(&snapshot, &a_minute_ago(&used(256, &[]))), line(Severity::Info, ""), "it was free then");
    let mut just_now = a_minute_ago(&snapshot);
    just_now.seen.iter_mut().for_each(|seen: &mut SeenGpu| seen.boottime_ns += MINUTE_NS - 29_000_000_000);
    assert_eq!(told(&snapshot, &just_now), line(Severity::Info, ""), "29 s are too short");
    assert_eq!(told(&used(256, &[]), &History::default()), [], "the limit itself");
}

#[test]
fn memory_is_nobodys_only_where_that_is_certain() {
    type Change = fn(&mut GpuDetail);
    let nothing: [(&str, Change); 4] = [
        ("a living process", |detail| {
            detail.processes = Reading::Value(vec![ProcessReading { pid: 7, ..ProcessReading::default() }]);
        }),
        ("no list", |detail| detail.processes = Reading::NoPermission),
        ("Grace", |detail| detail.memory_node = Reading::Value(4)),
        ("no number", |detail| detail.memory.used_mib = Reading::NotSupported),
    ];
    for (what, change) in nothing {
        let mut snapshot = used(20_000, &[]);
        change(snapshot.gpus[1].reading.detail.as_mut().unwrap());
        assert_eq!(told(&snapshot, &History::default()), [], "{what}");
    }
    let mut mig = used(20_000, &[]);
    mig.gpus[1].reading.mig = Reading::Value(true);
    assert_eq!(told(&mig, &History::default()), []);
    let gone = held_by(HolderOwner::Gone, "");
    assert_eq!(told(&gone, &History::default())[0].0, "LEFT_MEM", "the driver lists who has ended");
}

#[test]
fn what_the_gpu_uses_idle_is_no_leftover() {
    let known = |idle| KnownGpu {
        idle_memory_mib: Some(idle),
        ..KnownGpu::only(
            healthy().gpus[1].pci().unwrap(),
            "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6".parse().unwrap(),
        )
    };
    for (idle, used_mib, found) in [(600, 728, 0), (600, 729, 1), (0, 128, 0), (0, 129, 1)] {
        let expected = Expected { known: vec![known(idle)], ..expected() };
        let findings = whole(&used(used_mib, &[]), &expected, &History::default(), true);
        assert_eq!(findings.len(), found, "{used_mib} of {idle}: {findings:?}");
    }
}

#[test]
fn only_a_process_of_no_job_that_is_no_daemon_is_left_over() {
    let line = |name: &str| ("LEFT_PROC".to_owned(), Severity::Warn, format!("process 7 {name} of no job"));
    assert_eq!(told(&held_by(HolderOwner::NoJob, "python3"), &History::default()), [line("python3")]);
    // The name is its own choice.
    let hostile = held_by(HolderOwner::NoJob, "\u{1b}[2J\nx");
    assert_eq!(told(&hostile, &History::default()), [line("\\x1b[2J\\x0ax")]);
    for (owner, name) in [
        (HolderOwner::Job("job 12".into()), "python3"),
        (HolderOwner::Unknown, "python3"),
        (HolderOwner::NoJob, "nvidia-persiste"),
        (HolderOwner::NoJob, "nvidia-cuda-mps"),
        (HolderOwner::NoJob, "Xorg"),
    ] {
        assert_eq!(told(&held_by(owner.clone(), name), &History::default()), [], "{owner:?} {name}");
    }
    let mut unread = held_by(HolderOwner::NoJob, "python3");
    unread.host.platform.holders = Reading::NotRead;
    assert_eq!(told(&unread, &History::default()), []);
}

#[test]
fn a_job_on_a_mig_device_is_not_told_of_the_rest_of_the_gpu() {
    let mut snapshot = held_by(HolderOwner::NoJob, "python3");
    snapshot.gpus[1].target.uuid = Some("MIG-2a3b4c5d-0000-1111-2222-333344445555".parse().unwrap());
    assert_eq!(told(&snapshot, &History::default()), []);
}

#[test]
fn no_daemons_name_is_longer_than_the_kernel_keeps() {
    assert!(DAEMONS.len() > 10 && DAEMONS.iter().all(|name| !name.is_empty() && name.len() <= 15));
}

#[test]
fn a_process_is_stuck_only_when_every_look_for_two_minutes_saw_it_so() {
    let process = |ticks| StuckProcess {
        pid: 9,
        start_ticks: ticks,
        name: "a\nb".into(),
        waits_in: Some("nvidia_ioctl".into()),
    };
    let mut snapshot = healthy();
    snapshot.host.platform.stuck = Reading::Value(vec![process(5)]);
    let since = |seconds: u64, start_ticks| {
        let first_boottime_ns = snapshot.boottime_ns - seconds * 1_000_000_000;
        History { stuck: vec![StuckMark { pid: 9, start_ticks, first_boottime_ns }], ..History::default() }
    };
    assert_eq!(told(&snapshot, &History::default()), []);
    assert_eq!(told(&snapshot, &since(120, 5)), []);
    assert_eq!(told(&snapshot, &since(121, 6)), [], "another process with this number");
    let line = "process 9 a\\x0ab hangs in the kernel";
    assert_eq!(told(&snapshot, &since(121, 5)), [("PROC_STUCK".to_owned(), Severity::Warn, line.to_owned())]);
    // Who goes on in between begins anew; a look that did not ask changes nothing.
    let marks = since(121, 5);
    assert_eq!(marks.stuck_after(&snapshot), marks.stuck);
    assert_eq!(marks.stuck_after(&healthy()), marks.stuck);
    let mut free = healthy();
    free.host.platform.stuck = Reading::Value(Vec::new());
    assert_eq!(marks.stuck_after(&free), []);
    assert_eq!(History::default().stuck_after(&snapshot)[0].first_boottime_ns, snapshot.boottime_ns);
}

#[test]
fn more_memory_and_longer_waits_never_give_a_better_verdict() {
    let worst = |snapshot: &Snapshot, history: &History| {
        whole(snapshot, &expected(), history, true).iter().map(|finding| finding.severity).max()
    };
    let mut last = None;
    for used_mib in (0..2000).step_by(37) {
        let snapshot = used(used_mib, &[]);
        let now = worst(&snapshot, &a_minute_ago(&snapshot));
        assert!(now >= last, "{used_mib}");
        last = now;
    }
    assert_eq!(last, Some(Severity::Warn));
}
