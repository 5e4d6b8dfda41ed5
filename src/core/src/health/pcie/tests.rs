use super::super::{Expected, History, KnownGpu, Limits, SeenGpu};
use super::*;
use crate::model::detail::GpuDetail;
use crate::model::snapshot::GpuTarget;
use crate::model::topology::PciLink;
use crate::model::{GpuReading, GpuUuid, PciAddress, Snapshot};

const AT: &str = "0000:1b:00.0";
const UUID: &str = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6";
const NOW_NS: u64 = 10 * HOUR_NS;

fn pci() -> PciAddress {
    AT.parse().unwrap()
}

fn uuid() -> GpuUuid {
    UUID.parse().unwrap()
}

fn end(width: u32, max_width: u32, max_speed: &str) -> PciLink {
    PciLink {
        width: Some(width),
        max_width: Some(max_width),
        max_speed: Some(max_speed.into()),
        ..PciLink::default()
    }
}

/// One healthy GPU, x16 at generation 5.
fn healthy() -> Snapshot {
    let target = GpuTarget { pci: Some(pci()), ..GpuTarget::default() };
    let reading = GpuReading {
        handle: Reading::Value(()),
        uuid: Reading::Value(uuid()),
        detail: Some(Box::default()),
        ..GpuReading::default()
    };
    let host = DriverGpu {
        mig_instances: 0,
        pci: pci(),
        uuid: None,
        minor: None,
        model: None,
        numa_node: None,
        local_cpus: None,
        link: end(16, 16, "32.0 GT/s PCIe"),
        port_link: end(16, 16, "32.0 GT/s PCIe"),
        aer: Reading::NotRead,
    };
    let mut snapshot = Snapshot { boottime_ns: NOW_NS, ..Snapshot::default() };
    snapshot.host.driver_gpus = vec![host];
    snapshot.gpus = vec![ProbedGpu { target, reading }];
    snapshot
}

fn detail(snapshot: &mut Snapshot) -> &mut GpuDetail {
    snapshot.gpus[0].reading.detail.as_mut().unwrap()
}

fn known(change: impl FnOnce(&mut KnownGpu)) -> Expected {
    let text = format!("{{\"pci\": \"{AT}\", \"uuid\": \"{UUID}\"}}");
    let mut known: KnownGpu = serde_json::from_str(&text).unwrap();
    change(&mut known);
    Expected { known: vec![known], ..Expected::default() }
}

/// An earlier look, so long before.
fn seen(before_ns: u64, replays: u64, aer: [u64; 3]) -> History {
    let mut earlier = healthy();
    earlier.boottime_ns = NOW_NS - before_ns;
    earlier.gpus[0].reading.counters.pcie_replay = Reading::Value(replays);
    earlier.host.driver_gpus[0].aer = Reading::Value(aer);
    History { seen: History::default().seen_after(&earlier), ..History::default() }
}

fn judged(snapshot: &Snapshot, expected: &Expected, history: &History) -> Vec<(String, Severity)> {
    let limits = Limits::default();
    let case = Case { snapshot, expected, history, limits: &limits, gpu_map_certain: true };
    judge_gpu(&case, &snapshot.gpus[0]).into_iter().map(|found| (found.code, found.severity)).collect()
}

fn one(code: &str, severity: Severity) -> Vec<(String, Severity)> {
    vec![(code.to_owned(), severity)]
}

fn alone(snapshot: &Snapshot) -> Vec<(String, Severity)> {
    judged(snapshot, &Expected::default(), &History::default())
}

#[test]
fn a_link_with_half_its_lanes_is_told_and_one_that_is_wired_so_is_not() {
    assert_eq!(alone(&healthy()), []);
    let mut half = healthy();
    half.host.driver_gpus[0].link.width = Some(8);
    assert_eq!(alone(&half), one("PCIE_WIDTH", Severity::Warn), "nobody knows how the slot is wired");
    let learned = |lanes| known(|gpu| gpu.pcie_width = Some(lanes));
    let none = History::default();
    assert_eq!(judged(&half, &learned(16), &none), one("PCIE_WIDTH", Severity::Fail));
    assert_eq!(judged(&half, &learned(8), &none), [], "so it always was");
    let mut port_of_eight = half.clone();
    port_of_eight.host.driver_gpus[0].port_link.max_width = Some(8);
    assert_eq!(alone(&port_of_eight), []);
    let configured = Expected { pcie_width: Some((16, "gpuward.toml".into())), ..Expected::default() };
    assert_eq!(judged(&port_of_eight, &configured, &none), one("PCIE_WIDTH", Severity::Fail));
}

#[test]
fn without_a_port_sysfs_says_nothing_about_lanes_but_the_driver_does() {
    let mut machine = healthy();
    machine.host.driver_gpus[0].link.width = Some(8);
    machine.host.driver_gpus[0].port_link = PciLink::default();
    let learned = known(|gpu| gpu.pcie_width = Some(16));
    assert_eq!(alone(&machine), []);
    assert_eq!(judged(&machine, &learned, &History::default()), [], "a hypervisor made that up");
    detail(&mut machine).pcie.width = Reading::Value(8);
    assert_eq!(judged(&machine, &learned, &History::default()), one("PCIE_WIDTH", Severity::Fail));
    assert_eq!(alone(&machine), []);
}

#[test]
fn registers_of_a_lost_gpu_are_not_judged() {
    let mut lost = healthy();
    lost.host.driver_gpus[0].link.width = Some(8);
    lost.gpus[0].reading.handle = Reading::Lost;
    assert_eq!(alone(&lost), []);
    lost.gpus[0].reading.handle = Reading::TimedOut;
    assert_eq!(alone(&lost), one("PCIE_WIDTH", Severity::Warn), "one that hangs still has its link");
}

#[test]
fn a_generation_counts_only_under_load_and_against_what_is_known() {
    let learned = known(|gpu| gpu.pcie_generation = Some(5));
    let at = |generation: u32, pstate: u32, busy_pct: u32| {
        let mut snapshot = healthy();
        detail(&mut snapshot).pcie.generation = Reading::Value(generation);
        detail(&mut snapshot).clocks.pstate = Reading::Value(pstate);
        detail(&mut snapshot).clocks.util_pct = Reading::Value([busy_pct, 0]);
        snapshot
    };
    let judged = |snapshot: &Snapshot| judged(snapshot, &learned, &History::default());
    assert_eq!(judged(&at(1, 8, 0)), [], "idle");
    assert_eq!(judged(&at(1, 0, 0)), one("PCIE_GEN", Severity::Warn));
    assert_eq!(judged(&at(4, 2, 50)), one("PCIE_GEN", Severity::Warn));
    assert_eq!(judged(&at(4, 2, 49)), []);
    assert_eq!(judged(&at(5, 0, 100)), []);
    assert_eq!(alone(&at(1, 0, 100)), [], "nothing is known");
    let mut unread = at(1, 0, 100);
    detail(&mut unread).pcie.generation = Reading::NotSupported;
    assert_eq!(judged(&unread), []);
}

#[test]
fn replays_are_held_against_the_limit_of_generation_and_lanes() {
    // DCGM: 16 for generation 4 with sixteen lanes, 31 for generation 5.
    for (speed, lanes, limit) in [
        ("32.0 GT/s PCIe", 16, 31),
        ("16.0 GT/s PCIe", 16, 16),
        ("2.5 GT/s PCIe", 16, 3),
        ("64.0 GT/s PCIe", 8, 31),
        ("16.0 GT/s PCIe", 8, 8),
    ] {
        let with = |replays: u64| {
            let mut snapshot = healthy();
            snapshot.host.driver_gpus[0].port_link = end(lanes, lanes, speed);
            snapshot.host.driver_gpus[0].link = end(lanes, 16, speed);
            snapshot.gpus[0].reading.counters.pcie_replay = Reading::Value(replays);
            snapshot
        };
        let after = |replays: u64, before: u64| {
            judged(&with(replays), &Expected::default(), &seen(10 * MINUTE_NS, before, [0; 3]))
        };
        assert_eq!(after(10 * limit, 0), [], "{speed}");
        assert_eq!(after(10 * limit + 1, 0), one("PCIE_REPLAY", Severity::Warn), "{speed}");
        assert_eq!(after(7 + 100 * limit, 7), one("PCIE_REPLAY", Severity::Warn), "{speed}");
        assert_eq!(after(8 + 100 * limit, 7), one("PCIE_REPLAY", Severity::Fail), "{speed}");
        assert_eq!(after(1000 * limit, 0), one("PCIE_REPLAY", Severity::Warn), "training after a reset");
        assert_eq!(after(6, 7), [], "reset meanwhile");
    }
    let mut snapshot = healthy();
    snapshot.gpus[0].reading.counters.pcie_replay = Reading::Value(1_000_000);
    assert_eq!(judged(&snapshot, &Expected::default(), &seen(MINUTE_NS - 1, 0, [0; 3])), [], "too soon");
    assert_eq!(alone(&snapshot), [], "a first look");
    snapshot.host.driver_gpus.clear();
    assert_eq!(judged(&snapshot, &Expected::default(), &seen(MINUTE_NS, 0, [0; 3])), [], "no link seen");
}

#[test]
fn fatal_errors_of_the_kernel_fail_and_many_corrected_ones_warn() {
    let after = |aer: [u64; 3], before: [u64; 3], time_ns: u64| {
        let mut snapshot = healthy();
        snapshot.host.driver_gpus[0].aer = Reading::Value(aer);
        judged(&snapshot, &Expected::default(), &seen(time_ns, 0, before))
    };
    assert_eq!(after([5, 5, 3], [5, 5, 2], HOUR_NS), one("PCIE_AER", Severity::Fail));
    assert_eq!(after([1000, 9, 2], [0, 0, 2], HOUR_NS), []);
    assert_eq!(after([1001, 9, 2], [0, 0, 2], HOUR_NS), one("PCIE_AER", Severity::Warn));
    assert_eq!(after([1000, 0, 0], [0; 3], MINUTE_NS), [], "a burst is no rate");
    assert_eq!(after([2001, 0, 0], [0; 3], 2 * HOUR_NS), one("PCIE_AER", Severity::Warn));
    assert_eq!(after([0, 0, 3], [5, 0, 2], HOUR_NS), [], "counted anew");
    assert_eq!(judged(&healthy(), &Expected::default(), &seen(HOUR_NS, 0, [0; 3])), [], "not read");
}

#[test]
fn what_a_look_at_leisure_counted_outlasts_the_looks_of_prologs() {
    let mut history = seen(HOUR_NS, 0, [0; 3]);
    let mut prolog = healthy();
    prolog.boottime_ns = NOW_NS - MINUTE_NS;
    history.seen = history.seen_after(&prolog);
    let kept: &SeenGpu = &history.seen[0];
    assert_eq!(
        (kept.boottime_ns, kept.links.as_ref().unwrap().boottime_ns),
        (NOW_NS - MINUTE_NS, NOW_NS - HOUR_NS)
    );
    let mut snapshot = healthy();
    snapshot.host.driver_gpus[0].aer = Reading::Value([0, 0, 1]);
    assert_eq!(judged(&snapshot, &Expected::default(), &history), one("PCIE_AER", Severity::Fail));
}

#[test]
fn a_bar1_that_shrank_is_told() {
    let learned = known(|gpu| gpu.bar1_mib = Some(131_072));
    for (size_mib, found) in [(256, one("BAR1", Severity::Warn)), (131_072, vec![]), (262_144, vec![])] {
        let mut snapshot = healthy();
        detail(&mut snapshot).memory.bar1_mib = Reading::Value(size_mib);
        assert_eq!(judged(&snapshot, &learned, &History::default()), found, "{size_mib}");
        assert_eq!(alone(&snapshot), [], "nothing is known");
    }
    assert_eq!(judged(&healthy(), &learned, &History::default()), [], "not read");
}

#[test]
fn a_worse_reading_never_gives_a_better_verdict() {
    let learned =
        known(|gpu| (gpu.pcie_width, gpu.pcie_generation, gpu.bar1_mib) = (Some(16), Some(5), Some(64)));
    let worst = |level: [u64; 5], expected: &Expected| {
        let mut snapshot = healthy();
        let small = |at: usize, best: u32| best.saturating_sub(u32::try_from(level[at]).unwrap());
        detail(&mut snapshot).clocks.pstate = Reading::Value(0);
        detail(&mut snapshot).pcie.width = Reading::Value((16 >> level[0]).max(1));
        detail(&mut snapshot).pcie.generation = Reading::Value(small(1, 5).max(1));
        detail(&mut snapshot).memory.bar1_mib = Reading::Value(u64::from(small(2, 64)));
        snapshot.gpus[0].reading.counters.pcie_replay = Reading::Value(1 + level[3] * 200);
        snapshot.host.driver_gpus[0].aer = Reading::Value([level[4] * 600, 0, level[4] / 3]);
        let found = judged(&snapshot, expected, &seen(MINUTE_NS, 1, [0; 3]));
        found.into_iter().map(|(_, severity)| severity).max()
    };
    for expected in [&learned, &Expected::default()] {
        for number in 0..5 * 5 * 5 * 5 * 5u64 {
            let level = [1, 5, 25, 125, 625].map(|part| number / part % 5);
            for at in 0..5 {
                let mut worse = level;
                worse[at] += 1;
                assert!(worst(worse, expected) >= worst(level, expected), "{level:?} {at}");
            }
        }
    }
}
