//! Machines with two kinds of joints: a switch, and pairs on bridges.

mod peers;

use super::super::{Expected, History, KnownGpu, Limits, Severity};
use super::*;
use crate::model::detail::{FabricReading, GpuDetail, LinkEnd, NvLinkReading, PeerReading};
use crate::model::snapshot::GpuTarget;
use crate::model::topology::{HostLayout, PciFunction, PciLink};
use crate::model::{GpuReading, Snapshot};

const MINUTE_NS: u64 = 60_000_000_000;
const NOW_NS: u64 = 600 * MINUTE_NS;

fn pci(at: usize) -> PciAddress {
    format!("0000:{:02x}:00.0", 0x10 + at).parse().unwrap()
}

fn gpu(at: usize, model: &str, links: Vec<NvLinkReading>) -> ProbedGpu {
    ProbedGpu {
        target: GpuTarget { pci: Some(pci(at)), ..GpuTarget::default() },
        reading: GpuReading {
            handle: Reading::Value(()),
            uuid: Reading::Value(format!("GPU-8932f937-d72c-4106-c12f-20bd9faed9f{at}").parse().unwrap()),
            model: Reading::Value(model.into()),
            mig: Reading::Value(false),
            detail: Some(Box::new(GpuDetail { nvlinks: links, ..GpuDetail::default() })),
            ..GpuReading::default()
        },
    }
}

fn link(number: u32, end: LinkEnd, to: Option<PciAddress>) -> NvLinkReading {
    NvLinkReading {
        link: number,
        up: Reading::Value(true),
        end: Reading::Value(end),
        end_pci: to.map_or(Reading::NotSupported, Reading::Value),
        ..NvLinkReading::default()
    }
}

/// Four GPUs on a switch, eighteen links each.
fn switched() -> Snapshot {
    let links = || (0..18).map(|number| link(number, LinkEnd::Switch, None)).collect();
    machine((0..4).map(|at| gpu(at, "NVIDIA H100 80GB HBM3", links())).collect())
}

/// Five GPUs: two pairs on bridges, and one that is alone.
fn bridged() -> Snapshot {
    let links = |at: usize| match at {
        4 => Vec::new(),
        _ => (0..12).map(|number| link(number, LinkEnd::Gpu, Some(pci(at ^ 1)))).collect(),
    };
    machine((0..5).map(|at| gpu(at, "NVIDIA H100 NVL", links(at))).collect())
}

fn machine(gpus: Vec<ProbedGpu>) -> Snapshot {
    let mut snapshot = Snapshot { boottime_ns: NOW_NS, ..Snapshot::default() };
    snapshot.node.gpu_count = Reading::Value(u32::try_from(gpus.len()).unwrap());
    snapshot.host.pci_gpus = Reading::Value((0..gpus.len()).map(pci).collect());
    snapshot.gpus = gpus;
    snapshot
}

fn detail(snapshot: &mut Snapshot, at: usize) -> &mut GpuDetail {
    snapshot.gpus[at].reading.detail.as_mut().unwrap()
}

fn take_down(snapshot: &mut Snapshot, at: usize, links: std::ops::Range<usize>) {
    detail(snapshot, at).nvlinks[links].iter_mut().for_each(|link| link.up = Reading::Value(false));
}

/// What each GPU of a machine was known to be.
fn learned(snapshot: &Snapshot) -> Expected {
    let known = |(at, gpu): (usize, &ProbedGpu)| {
        let text = format!(
            "{{\"pci\": \"{}\", \"uuid\": \"{}\", \"nvlinks\": {}}}",
            pci(at),
            gpu.uuid().unwrap(),
            gpu.reading.detail.as_ref().unwrap().nvlinks.len()
        );
        serde_json::from_str::<KnownGpu>(&text).unwrap()
    };
    Expected { known: snapshot.gpus.iter().enumerate().map(known).collect(), ..Expected::default() }
}

fn found(snapshot: &Snapshot, expected: &Expected, history: &History) -> Vec<Finding> {
    let limits = Limits::default();
    judge(&Case { snapshot, expected, history, limits: &limits, gpu_map_certain: true })
}

/// Code, severity and the GPU's place (none for the node).
type Short = (String, Severity, Option<usize>);

fn short(snapshot: &Snapshot, findings: &[Finding]) -> Vec<Short> {
    let place = |finding: &Finding| {
        let pci = pci_of(finding)?;
        snapshot.gpus.iter().position(|gpu| gpu.pci() == Some(pci))
    };
    findings.iter().map(|finding| (finding.code.clone(), finding.severity, place(finding))).collect()
}

fn judged(snapshot: &Snapshot, expected: &Expected) -> Vec<Short> {
    short(snapshot, &found(snapshot, expected, &History::default()))
}

fn of(code: &str, severity: Severity, at: impl Into<Option<usize>>) -> Vec<Short> {
    vec![(code.to_owned(), severity, at.into())]
}

mod down {
    use super::*;

    #[test]
    fn a_healthy_machine_is_not_told() {
        for snapshot in [switched(), bridged()] {
            assert_eq!(judged(&snapshot, &Expected::default()), []);
            assert_eq!(judged(&snapshot, &learned(&snapshot)), []);
        }
    }

    #[test]
    fn a_link_that_was_up_fails_and_one_that_only_the_product_has_warns() {
        let mut snapshot = switched();
        let known = learned(&snapshot);
        take_down(&mut snapshot, 2, 4..5);
        assert_eq!(judged(&snapshot, &known), of("NVLINK_DOWN", Severity::Fail, 2));
        assert_eq!(judged(&snapshot, &Expected::default()), of("NVLINK_DOWN", Severity::Warn, 2));
        let fewer = Expected { nvlinks: Some((17, "gpuward.toml".into())), ..known };
        assert_eq!(judged(&snapshot, &fewer), [], "the site says seventeen");
        take_down(&mut snapshot, 2, 5..6);
        assert_eq!(judged(&snapshot, &fewer), of("NVLINK_DOWN", Severity::Fail, 2));
    }

    #[test]
    fn a_product_that_the_table_lacks_is_judged_by_what_it_had() {
        let mut snapshot = bridged();
        let known = learned(&snapshot);
        for at in 0..2 {
            take_down(&mut snapshot, at, 0..12);
        }
        assert_eq!(judged(&snapshot, &Expected::default()), [], "a bridge that was perhaps never there");
        let both = [of("NVLINK_DOWN", Severity::Fail, 0), of("NVLINK_DOWN", Severity::Fail, 1)].concat();
        assert_eq!(judged(&snapshot, &known), both);
        for name in ["NVIDIA H100 PCIe", "NVIDIA H200 NVL", "NVIDIA GH200 120GB", "NVIDIA L40S"] {
            let mut snapshot = switched();
            snapshot.gpus.iter_mut().for_each(|gpu| gpu.reading.model = Reading::Value(name.into()));
            take_down(&mut snapshot, 0, 0..9);
            assert_eq!(judged(&snapshot, &Expected::default()), [], "{name}");
        }
    }

    #[test]
    fn a_machine_that_uses_no_nvlink_at_all_is_not_held_to_its_product() {
        let mut snapshot = switched();
        (0..4).for_each(|at| take_down(&mut snapshot, at, 0..18));
        assert_eq!(judged(&snapshot, &Expected::default()), []);
        assert_eq!(judged(&snapshot, &learned(&switched())), of("NVLINK_DOWN", Severity::Fail, None));
    }

    #[test]
    fn links_that_nobody_lists_warn_and_links_that_nobody_may_read_say_nothing() {
        let known = learned(&switched());
        let mut off = switched();
        detail(&mut off, 1).nvlinks.clear();
        assert_eq!(judged(&off, &known), of("NVLINK_DOWN", Severity::Warn, 1), "perhaps switched off");
        assert_eq!(judged(&off, &Expected::default()), []);
        let mut unread = switched();
        take_down(&mut unread, 1, 0..5);
        detail(&mut unread, 1).nvlinks[17].up = Reading::Failed(999);
        assert_eq!(judged(&unread, &known), []);
        unread.gpus[1].reading.detail = None;
        assert_eq!(judged(&unread, &known), []);
    }

    #[test]
    fn links_in_mig_mode_are_not_judged() {
        let known = learned(&switched());
        for (mode, expected) in [
            (Reading::Value(true), vec![]),
            (Reading::Failed(999), vec![]),
            (Reading::NotSupported, of("NVLINK_DOWN", Severity::Fail, 1)),
        ] {
            let mut snapshot = switched();
            take_down(&mut snapshot, 1, 0..18);
            snapshot.gpus[1].reading.mig = mode;
            assert_eq!(judged(&snapshot, &known), expected, "{mode:?}");
        }
    }

    #[test]
    fn links_to_a_lost_or_hanging_gpu_are_told_by_that_gpu() {
        let known = Expected { gpu_count: Some((5, "gres.conf".into())), ..learned(&bridged()) };
        let dead = |answer: Reading<()>| {
            let mut snapshot = bridged();
            take_down(&mut snapshot, 0, 0..12);
            snapshot.gpus[1].reading = GpuReading { handle: answer, ..GpuReading::default() };
            snapshot
        };
        for answer in [Reading::Lost, Reading::TimedOut, Reading::ResetRequired, Reading::Failed(999)] {
            assert_eq!(judged(&dead(answer), &known), [], "{answer:?}");
        }
        assert_eq!(judged(&dead(Reading::NoPermission), &known), of("NVLINK_DOWN", Severity::Fail, 0));
        // A prolog sees its own GPU only, and no ends.
        let prolog = || {
            let mut snapshot = dead(Reading::Lost);
            snapshot.gpus.truncate(1);
            detail(&mut snapshot, 0).nvlinks.iter_mut().for_each(|link| {
                (link.end, link.end_pci) = (Reading::NotRead, Reading::NotRead);
            });
            snapshot
        };
        assert_eq!(judged(&prolog(), &known), of("NVLINK_DOWN", Severity::Fail, 0), "no sign of another");
        let mut log = prolog();
        let line = format!("NVRM: Xid (PCI:{}): 79, GPU has fallen off the bus.", "0000:11:00");
        log.log.absorb(1, 1, &line);
        assert_eq!(judged(&log, &known), []);
        let mut missing = prolog();
        missing.host.pci_gpus = Reading::Value(vec![pci(0), pci(2), pci(3), pci(4)]);
        assert_eq!(judged(&missing, &known), []);
        // The third GPU's fault has nothing to do with it.
        let mut two = dead(Reading::Lost);
        take_down(&mut two, 2, 0..3);
        assert_eq!(judged(&two, &known), of("NVLINK_DOWN", Severity::Fail, 2));
    }

    #[test]
    fn behind_a_switch_a_lost_gpu_excuses_nobody() {
        let known = learned(&switched());
        let mut snapshot = switched();
        take_down(&mut snapshot, 0, 0..2);
        snapshot.gpus[1].reading = GpuReading { handle: Reading::Lost, ..GpuReading::default() };
        assert_eq!(judged(&snapshot, &known), of("NVLINK_DOWN", Severity::Fail, 0));
    }
}

mod fabric {
    use super::*;
    use crate::health::fabric::manager;

    fn with(at: usize, change: impl Fn(&mut FabricReading)) -> Snapshot {
        let mut snapshot = switched();
        for place in 0..4 {
            let mut fabric = FabricReading { state: 3, health_mask: Some(0), ..FabricReading::default() };
            if place == at || at == usize::MAX {
                change(&mut fabric);
            }
            detail(&mut snapshot, place).fabric = Reading::Value(fabric);
        }
        snapshot
    }

    fn waiting(state: u32, at: usize) -> Snapshot {
        with(at, |fabric| fabric.state = state)
    }

    #[test]
    fn each_state_status_and_bit_means_what_nvml_h_says() {
        let none = Expected::default();
        assert_eq!(judged(&waiting(3, 1), &none), []);
        assert_eq!(judged(&waiting(0, 1), &none), [], "no fabric");
        assert_eq!(judged(&with(1, |fabric| fabric.status = 7), &none), of("FABRIC", Severity::Fail, 1));
        let status_of_nothing = with(1, |fabric| (fabric.state, fabric.status) = (0, 7));
        assert_eq!(judged(&status_of_nothing, &none), [], "the status counts only when completed");
        for (mask, severity) in [
            (0b01, Some(Severity::Fail)),
            (0b10, None),
            (0b0100, Some(Severity::Warn)),
            (0b1000, None),
            (0b01_0000, Some(Severity::Fail)),
            (0b0100_0000, Some(Severity::Warn)),
            (0b0101_0000, Some(Severity::Fail)),
            (0b1010_1010, None),
            (0x100, None),
            (0x200, Some(Severity::Fail)),
            (0x800, Some(Severity::Fail)),
            (0xf00, Some(Severity::Fail)),
            // Partition assigned, and not assigned.
            (0x1000, None),
            (0x2000, None),
            (0x11aa, None),
        ] {
            let expected = severity.map_or_else(Vec::new, |severity| of("FABRIC", severity, 1));
            assert_eq!(
                judged(&with(1, |fabric| fabric.health_mask = Some(mask)), &none),
                expected,
                "{mask:#x}"
            );
        }
        assert_eq!(judged(&with(1, |fabric| fabric.health_mask = None), &none), [], "an older driver");
        let mut unread = waiting(2, 1);
        detail(&mut unread, 1).fabric = Reading::NoPermission;
        assert_eq!(judged(&unread, &none), []);
        let mut mig = waiting(2, 1);
        mig.gpus[1].reading.mig = Reading::Value(true);
        assert_eq!(judged(&mig, &none), []);
    }

    #[test]
    fn a_gpu_may_wait_after_boot_then_warns_and_fails_when_it_still_waits_a_minute_later() {
        for state in [1, 2] {
            let at = |now_ns: u64| Snapshot { boottime_ns: now_ns, ..waiting(state, 1) };
            let second = MINUTE_NS / 60;
            assert_eq!(judged(&at(300 * second - 1), &Expected::default()), []);
            assert_eq!(judged(&at(300 * second), &Expected::default()), of("FABRIC", Severity::Warn, 1));
            let mut history = History::default();
            let mut look = |snapshot: Snapshot| {
                let found = short(&snapshot, &found(&snapshot, &Expected::default(), &history));
                history.seen = history.seen_after(&snapshot);
                found
            };
            assert_eq!(look(at(NOW_NS)), of("FABRIC", Severity::Warn, 1));
            assert_eq!(look(at(NOW_NS + 59 * second)), of("FABRIC", Severity::Warn, 1));
            assert_eq!(look(at(NOW_NS + 60 * second)), of("FABRIC", Severity::Fail, 1));
            assert_eq!(look(at(NOW_NS + 61 * second)), of("FABRIC", Severity::Fail, 1), "and it stays one");
            let back = Snapshot { boottime_ns: NOW_NS + 62 * second, ..waiting(3, 1) };
            assert_eq!(look(back), []);
            assert_eq!(look(at(NOW_NS + 200 * second)), of("FABRIC", Severity::Warn, 1), "it begins anew");
        }
    }

    #[test]
    fn what_all_gpus_of_the_node_share_is_one_finding() {
        let snapshot = waiting(2, usize::MAX);
        let findings = found(&snapshot, &Expected::default(), &History::default());
        assert_eq!(short(&snapshot, &findings), of("FABRIC", Severity::Warn, None));
        assert_eq!(findings[0].what, "all 4 GPUs: not in the NVLink fabric, registration in progress");
        let mut job = snapshot;
        job.gpus.truncate(2);
        let two = [of("FABRIC", Severity::Warn, 0), of("FABRIC", Severity::Warn, 1)].concat();
        assert_eq!(judged(&job, &Expected::default()), two, "half of the node is not the node");
    }

    fn on_switches(mut snapshot: Snapshot, running: Reading<bool>) -> Snapshot {
        let at = "0000:07:00.0".parse().unwrap();
        let switch = PciFunction {
            at,
            above: None,
            root_bus: "pci0000:00".into(),
            class: 0x0006_8000,
            id: 0x10de_22a3,
            numa_node: None,
            local_cpus: None,
            link: PciLink::default(),
        };
        snapshot.host.layout =
            Some(HostLayout { pci: Reading::Value(vec![switch]), ..HostLayout::default() });
        snapshot.host.module_version = Reading::Value("570.124.06".into());
        snapshot.host.fabric_manager = running;
        snapshot
    }

    #[test]
    fn a_manager_that_does_not_run_is_the_one_cause_where_no_gpu_is_in_the_fabric() {
        let none = Expected::default();
        let off = Reading::Value(false);
        assert_eq!(judged(&on_switches(switched(), Reading::Value(true)), &none), []);
        assert_eq!(judged(&on_switches(switched(), Reading::NotRead), &none), [], "no systemd seen");
        assert_eq!(judged(&on_switches(switched(), off), &none), of("FABRIC_MGR", Severity::Warn, None));
        let mut no_switch = on_switches(switched(), off);
        no_switch.host.layout = Some(HostLayout { pci: Reading::Value(vec![]), ..HostLayout::default() });
        assert_eq!(judged(&no_switch, &none), []);
        let mut all_down = on_switches(waiting(1, usize::MAX), off);
        (0..4).for_each(|at| take_down(&mut all_down, at, 0..18));
        let findings = found(&all_down, &learned(&switched()), &History::default());
        assert_eq!(short(&all_down, &findings), of("FABRIC_MGR", Severity::Fail, None));
        assert!(findings[0].what.starts_with("1 NVSwitches and no fabric manager running; all 4 GPUs: "));
        assert_eq!(findings[0].limit.as_deref(), Some("version 570.124.06"));
        let one = on_switches(waiting(1, 2), off);
        let both = [of("FABRIC_MGR", Severity::Warn, None), of("FABRIC", Severity::Warn, 2)].concat();
        assert_eq!(judged(&one, &none), both, "one GPU has a fault of its own");
        let uncertain = Case {
            snapshot: &all_down,
            expected: &none,
            history: &History::default(),
            limits: &Limits::default(),
            gpu_map_certain: false,
        };
        assert!(manager(&uncertain, &mut Vec::new()).is_some(), "the node is certain");
        assert_eq!(judge(&uncertain).len(), 1);
    }
}

mod errors {
    use super::*;

    fn counts(snapshot: &mut Snapshot, at: usize, errors: [u64; 3]) {
        for link in &mut detail(snapshot, at).nvlinks {
            link.errors = Reading::Value([0; 3]);
        }
        detail(snapshot, at).nvlinks[3].errors = Reading::Value(errors);
    }

    fn after(before: [u64; 3], now: [u64; 3], seconds: u64) -> Vec<Short> {
        let (mut earlier, mut snapshot) = (switched(), switched());
        earlier.boottime_ns = NOW_NS - seconds * MINUTE_NS / 60;
        counts(&mut earlier, 1, before);
        counts(&mut snapshot, 1, now);
        let history = History { seen: History::default().seen_after(&earlier), ..History::default() };
        short(&snapshot, &found(&snapshot, &Expected::default(), &history))
    }

    #[test]
    fn errors_count_from_the_look_before_and_recoveries_fail() {
        assert_eq!(after([9, 9, 9], [9, 9, 9], 60), []);
        assert_eq!(after([9, 0, 0], [10, 0, 0], 60), of("NVLINK_ERR", Severity::Warn, 1));
        assert_eq!(after([0, 4, 0], [0, 5, 0], 60), of("NVLINK_ERR", Severity::Fail, 1));
        assert_eq!(after([0, 0, 0], [2, 5, 0], 60), of("NVLINK_ERR", Severity::Warn, 1), "link training");
        assert_eq!(after([0, 0, 7], [0, 0, 5999 + 7], 60), []);
        assert_eq!(after([0, 0, 7], [0, 0, 6000 + 7], 60), of("NVLINK_ERR", Severity::Warn, 1));
        assert_eq!(after([5, 5, 5], [4, 9, 9], 60), [], "reset meanwhile");
        let mut first = switched();
        counts(&mut first, 1, [100, 100, 100]);
        assert_eq!(judged(&first, &Expected::default()), [], "a first look");
    }

    #[test]
    fn a_link_that_tells_its_errors_again_has_not_had_them_since() {
        let (mut earlier, mut snapshot) = (switched(), switched());
        earlier.boottime_ns -= MINUTE_NS;
        counts(&mut earlier, 1, [0; 3]);
        detail(&mut earlier, 1).nvlinks[3].errors = Reading::NotSupported;
        counts(&mut snapshot, 1, [100, 100, 100]);
        let history = History { seen: History::default().seen_after(&earlier), ..History::default() };
        assert_eq!(found(&snapshot, &Expected::default(), &history), []);
    }

    #[test]
    fn bit_error_rates_are_decoded_and_held_against_dcgms_limits() {
        let encoded = |mantissa: u64, exponent: u64| mantissa << 8 | exponent;
        for (effective, symbol, bad) in [
            (encoded(0, 0), encoded(0, 0), false),
            (encoded(15, 255), encoded(15, 255), false),
            (encoded(1, 12), encoded(15, 238), false),
            (encoded(2, 12), encoded(0, 0), true),
            (encoded(1, 11), encoded(0, 0), true),
            (encoded(9, 13), encoded(0, 0), false),
            (encoded(0, 0), encoded(2, 237), true),
            (encoded(0, 0), encoded(1, 8), true),
            (encoded(0, 9), encoded(0, 9), false),
        ] {
            let mut snapshot = switched();
            detail(&mut snapshot, 1).nvlinks[3].error_rates = Reading::Value([effective, symbol]);
            let expected = if bad { of("NVLINK_BER", Severity::Warn, 1) } else { Vec::new() };
            assert_eq!(judged(&snapshot, &Expected::default()), expected, "{effective:#x} {symbol:#x}");
        }
        let mut snapshot = switched();
        for at in [3, 7] {
            detail(&mut snapshot, 1).nvlinks[at].error_rates = Reading::Value([encoded(at as u64, 9), 0]);
        }
        let [finding] = &found(&snapshot, &Expected::default(), &History::default())[..] else { panic!() };
        assert_eq!(finding.what, "bit error rate of NVLink 3,7 too high");
        assert_eq!(finding.value.as_deref(), Some("effective 7e-9, symbol 0"));
        assert_eq!(finding.limit.as_deref(), Some("effective 1e-12, symbol 15e-238"));
    }

    #[test]
    fn a_recovery_that_failed_since_the_look_before_fails() {
        let with = |failed: u64| {
            let mut snapshot = switched();
            for link in &mut detail(&mut snapshot, 1).nvlinks {
                link.recoveries = Reading::Value([5, failed]);
            }
            snapshot
        };
        let history = History { seen: History::default().seen_after(&with(1)), ..History::default() };
        let judged = |failed| {
            let snapshot = with(failed);
            short(&snapshot, &found(&snapshot, &Expected::default(), &history))
        };
        assert_eq!(judged(1), []);
        assert_eq!(judged(2), of("NVLINK_BER", Severity::Fail, 1));
        assert_eq!(judged(0), [], "reset meanwhile");
    }
}

/// A machine whose GPUs have each got some trouble, chosen by the digits of a number.
fn troubled(level: [u64; 5]) -> (Snapshot, History) {
    let base = || {
        let mut snapshot = switched();
        for link in &mut detail(&mut snapshot, 1).nvlinks {
            (link.errors, link.recoveries) = (Reading::Value([1; 3]), Reading::Value([0; 2]));
        }
        snapshot
    };
    let mut earlier = base();
    earlier.boottime_ns -= 2 * MINUTE_NS;
    let mut snapshot = base();
    let [down, errors, rate, state, mask] = level.map(|level| usize::try_from(level).unwrap());
    take_down(&mut snapshot, 0, 0..down * 4);
    let links = &mut detail(&mut snapshot, 1).nvlinks;
    links[0].errors = Reading::Value([1, 1 + (errors / 2) as u64, 1 + errors as u64 * 5000]);
    links[1].recoveries = Reading::Value([0, (errors / 4) as u64]);
    links[2].error_rates = Reading::Value([1 << 8 | (14 - rate as u64), 0]);
    let states = [3, 2, 2, 2, 2];
    let fabric = |state: u32, mask: usize| FabricReading {
        state,
        health_mask: Some([0, 0b0100, 0b0101, 0b0101_0101, 0x255][mask]),
        ..FabricReading::default()
    };
    detail(&mut snapshot, 2).fabric = Reading::Value(fabric(states[state], 0));
    if state > 2 {
        detail(&mut earlier, 2).fabric = Reading::Value(fabric(2, 0));
    }
    detail(&mut snapshot, 3).fabric = Reading::Value(fabric(3, mask));
    (snapshot, History { seen: History::default().seen_after(&earlier), ..History::default() })
}

#[test]
fn a_worse_reading_never_gives_a_better_verdict() {
    let worst = |level: [u64; 5], expected: &Expected| {
        let (snapshot, history) = troubled(level);
        found(&snapshot, expected, &history).into_iter().map(|finding| finding.severity).max()
    };
    for expected in [Expected::default(), learned(&switched())] {
        for number in 0..4 * 4 * 4 * 4 * 4u64 {
            let level = [1, 4, 16, 64, 256].map(|part| number / part % 4);
            for at in 0..5 {
                let mut worse = level;
                worse[at] += 1;
                assert!(worst(worse, &expected) >= worst(level, &expected), "{level:?} {at}");
            }
        }
    }
}

#[test]
fn findings_do_not_depend_on_the_order_of_gpus() {
    let sorted = |snapshot: &Snapshot, history: &History| {
        let mut all = found(snapshot, &learned(&switched()), history);
        all.sort_by_key(|finding| (finding.code.clone(), finding.subject.to_string(), finding.what.clone()));
        all
    };
    for number in 0..4 * 4 * 4 * 4 * 4u64 {
        let (mut snapshot, history) = troubled([1, 4, 16, 64, 256].map(|part| number / part % 4));
        let first = sorted(&snapshot, &history);
        snapshot.gpus.rotate_left(1 + usize::try_from(number).unwrap() % 3);
        assert_eq!(sorted(&snapshot, &history), first, "{number}");
        snapshot.gpus.reverse();
        assert_eq!(sorted(&snapshot, &history), first, "{number}");
    }
}
