use super::*;
use crate::model::snapshot::{GpuTarget, ProbeOutcome};
use crate::model::{GpuReading, GresIndex, PciAddress, Reading};

pub(super) fn healthy() -> Snapshot {
    let pci = |at: u8| -> PciAddress { format!("0000:{at}a:00.0").parse().unwrap() };
    let gpu = |at: u8| ProbedGpu {
        target: GpuTarget {
            gres_index: Some(GresIndex(u32::from(at))),
            pci: Some(pci(at)),
            ..GpuTarget::default()
        },
        reading: GpuReading {
            handle: Reading::Value(()),
            pci: Reading::Value(pci(at)),
            recovery_action: Reading::Value(0),
            remap_failed: Reading::Value(false),
            ..GpuReading::default()
        },
    };
    let mut snapshot = Snapshot { boottime_ns: 1_000_000_000_000, ..Snapshot::default() };
    snapshot.probe = ProbeOutcome::Finished { took_ms: 5 };
    snapshot.host.module_loaded = Reading::Value(true);
    snapshot.host.module_version = Reading::Value("570.124.06".into());
    snapshot.host.pci_gpus = Reading::Value((1..=4).map(pci).collect());
    snapshot.node.nvml = Reading::Value(());
    snapshot.node.driver_version = Reading::Value("570.124.06".into());
    snapshot.node.gpu_count = Reading::Value(4);
    snapshot.gpus = vec![gpu(1), gpu(2)];
    snapshot
}

pub(super) fn expected() -> Expected {
    Expected { gpu_count: Some((4, "gres.conf".into())), ..Expected::default() }
}

/// All findings of a case with the default limits.
pub(super) fn whole(
    snapshot: &Snapshot,
    expected: &Expected,
    history: &History,
    gpu_map_certain: bool,
) -> Vec<Finding> {
    evaluate(&Case { snapshot, expected, history, limits: &Limits::default(), gpu_map_certain })
}

fn judged(snapshot: &Snapshot) -> Vec<(String, Severity)> {
    let findings = whole(snapshot, &expected(), &History::default(), true);
    findings.into_iter().map(|finding| (finding.code, finding.severity)).collect()
}

fn fails(code: &str) -> Vec<(String, Severity)> {
    vec![(code.to_owned(), Severity::Fail)]
}

#[test]
fn a_healthy_node_has_no_findings() {
    assert_eq!(judged(&healthy()), []);
}

#[test]
fn a_gpu_that_is_lost_while_it_says_who_it_is_is_lost() {
    for lose in [(|gpu: &mut GpuReading| gpu.pci = Reading::Lost) as fn(&mut GpuReading), |gpu| {
        gpu.mig_uuid = Reading::Lost
    }] {
        let mut snapshot = healthy();
        lose(&mut snapshot.gpus[0].reading);
        assert_eq!(judged(&snapshot), fails("GPU_LOST"));
    }
}

#[test]
fn link_errors_that_no_sum_holds_are_summed_as_far_as_it_goes() {
    let mut snapshot = healthy();
    snapshot.gpus[0].reading.uuid = Reading::Value("GPU-8932f937".parse().unwrap());
    let errors = Reading::Value([u64::MAX, 1, 0]);
    let link = crate::model::detail::NvLinkReading { errors, ..Default::default() };
    let detail = crate::model::detail::GpuDetail { nvlinks: vec![link.clone(), link], ..Default::default() };
    snapshot.gpus[0].reading.detail = Some(Box::new(detail));
    let seen = History::default().seen_after(&snapshot);
    assert_eq!(seen[0].links.as_ref().unwrap().nvlink_errors, Reading::Value([u64::MAX, 2, 0]));
}

#[test]
fn each_fault_of_the_driver_gives_its_one_finding() {
    let mut snapshot = healthy();
    snapshot.host.module_loaded = Reading::Value(false);
    assert_eq!(judged(&snapshot), [], "loaded since sysfs was read: the driver answers");
    snapshot.node = crate::model::NodeReading::default();
    assert_eq!(judged(&snapshot), fails("DRV_UNLOADED"));
    let mut snapshot = healthy();
    snapshot.node.nvml = Reading::Failed(9);
    assert_eq!(judged(&snapshot), fails("DRV_UNLOADED"));
    let mut snapshot = healthy();
    snapshot.node.nvml = Reading::Failed(18);
    assert_eq!(judged(&snapshot), fails("DRV_MISMATCH"));
    let mut snapshot = healthy();
    snapshot.host.module_version = Reading::Value("550.1.2".into());
    assert_eq!(judged(&snapshot), fails("DRV_MISMATCH"));
}

#[test]
fn seven_of_eight_is_a_fault_and_not_a_smaller_node() {
    let mut snapshot = healthy();
    snapshot.host.pci_gpus = snapshot.host.pci_gpus.map(|mut gpus| {
        gpus.pop();
        gpus
    });
    snapshot.node.gpu_count = Reading::Value(3);
    assert_eq!(judged(&snapshot), fails("GPU_MISS_PCI"));
    let mut snapshot = healthy();
    snapshot.node.gpu_count = Reading::Value(3);
    assert_eq!(judged(&snapshot), fails("GPU_MISS_DRV"));
    let more = Expected { gpu_count: Some((3, "gres.conf".into())), ..Expected::default() };
    assert_eq!(whole(&healthy(), &more, &History::default(), true), []);
}

#[test]
fn each_code_of_the_driver_means_what_the_table_says() {
    for (reading, code, severity) in [
        (Reading::Lost, "GPU_LOST", Severity::Fail),
        (Reading::ResetRequired, "RESET_REQ", Severity::Fail),
        (Reading::NoPermission, "NO_PERM", Severity::Warn),
        (Reading::Failed(17), "NO_PERM", Severity::Warn),
        (Reading::Failed(8), "POWER_CABLE", Severity::Fail),
        (Reading::Failed(11), "GPU_IRQ", Severity::Fail),
        (Reading::Failed(14), "INFOROM_BAD", Severity::Fail),
        (Reading::Failed(6), "GPU_MISS_DRV", Severity::Fail),
        (Reading::Failed(999), "GPU_OPEN", Severity::Fail),
        (Reading::Failed(10), "GPU_OPEN", Severity::Unknown),
        (Reading::Failed(20), "GPU_OPEN", Severity::Unknown),
    ] {
        let mut snapshot = healthy();
        snapshot.gpus[1].reading.handle = reading;
        assert_eq!(judged(&snapshot), [(code.to_owned(), severity)], "{reading:?}");
    }
    let mut snapshot = healthy();
    snapshot.gpus[0].reading.handle = Reading::NotSupported;
    assert_eq!(judged(&snapshot), [("GPU_OPEN".to_owned(), Severity::Unknown)]);
}

#[test]
fn recovery_action_ecc_and_remap_failure_are_found() {
    for (action, severity) in [
        (1, Severity::Fail),
        (2, Severity::Fail),
        (3, Severity::Warn),
        (4, Severity::Fail),
        (5, Severity::Warn),
    ] {
        let mut snapshot = healthy();
        snapshot.gpus[0].reading.recovery_action = Reading::Value(action);
        assert_eq!(judged(&snapshot), [("RECOVERY".to_owned(), severity)], "{action}");
    }
    let mut snapshot = healthy();
    snapshot.gpus[0].reading.counters.ecc_volatile_uncorr = Reading::Value(1);
    assert_eq!(judged(&snapshot), fails("ECC_UNCORR"));
    let mut snapshot = healthy();
    snapshot.gpus[0].reading.remap_failed = Reading::Value(true);
    assert_eq!(judged(&snapshot), fails("REMAP_FAIL"));
    let mut snapshot = healthy();
    snapshot.gpus[0].reading.recovery_action = Reading::NotSupported;
    snapshot.gpus[0].reading.remap_failed = Reading::Failed(999);
    assert_eq!(judged(&snapshot), [], "an old driver is neither healthy nor broken");
}

#[test]
fn an_xid_counts_for_its_own_gpu_only_and_user_faults_do_not_fail() {
    let with = |line: &str| {
        let mut snapshot = older_driver();
        snapshot.log.absorb(1, 1, line);
        judged(&snapshot)
    };
    assert_eq!(with("NVRM: Xid (PCI:0000:1a:00): 79, GPU has fallen off the bus."), fails("XID79"));
    assert_eq!(with("NVRM: Xid (PCI:0000:4a:00): 79, GPU has fallen off the bus."), [], "another job's GPU");
    assert!(
        with("NVRM: Xid (PCI:0000:1a:00): 13, pid=1, name=x, y").iter().all(|(_, s)| *s < Severity::Fail)
    );
    assert!(
        with("NVRM: Xid (PCI:0000:1a:00): 31, pid=1, name=x, y").iter().all(|(_, s)| *s < Severity::Fail)
    );
    let action =
        "NVRM: Xid (PCI:0000:1a:00): 154, GPU recovery action changed from 0x0 (None) to 0x3 (Drain P2P)";
    assert_eq!(with(action), [("XID154".to_owned(), Severity::Warn)]);
}

/// A driver that does not know the recovery action yet.
fn older_driver() -> Snapshot {
    let mut snapshot = healthy();
    snapshot.gpus.iter_mut().for_each(|gpu| gpu.reading.recovery_action = Reading::NotSupported);
    snapshot
}

#[test]
fn a_recovery_action_of_none_is_evidence_that_a_fault_is_over() {
    let pair = ["48, DBE", "154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"];
    let mut snapshot = healthy();
    for text in pair {
        snapshot.log.absorb(1, 1, &format!("NVRM: Xid (PCI:0000:1a:00): {text}"));
    }
    assert!(
        judged(&snapshot).iter().all(|(_, severity)| *severity == Severity::Warn),
        "{:?}",
        judged(&snapshot)
    );
    snapshot.gpus[0].reading.recovery_action = Reading::Value(1);
    assert!(judged(&snapshot).iter().any(|(code, severity)| code == "XID48" && *severity == Severity::Fail));
    let mut gsp = healthy();
    gsp.log.absorb(1, 1, "NVRM: Xid (PCI:0000:1a:00): 119, Timeout");
    assert_eq!(judged(&gsp), fails("XID119"), "the driver sets no action for this one");
}

#[test]
fn an_xid_from_before_gpuward_could_act_only_warns() {
    let mut snapshot = older_driver();
    snapshot.log.absorb(1, 1, "NVRM: Xid (PCI:0000:1a:00): 48, DBE");
    snapshot.log.xids[0].seen.old = true;
    assert_eq!(judged(&snapshot), [("XID48".to_owned(), Severity::Warn)]);
    snapshot.log.absorb(2, 2, "NVRM: Xid (PCI:0000:1a:00): 48, DBE");
    assert_eq!(judged(&snapshot), fails("XID48"), "it happened again");
}

#[test]
fn an_ecc_count_that_drained_the_node_drains_it_again_only_when_it_grows() {
    let mut snapshot = healthy();
    snapshot.gpus[0].reading.counters.ecc_volatile_uncorr = Reading::Value(2);
    let acted = |seconds_ago: u64| ActedEcc {
        pci: snapshot.gpus[0].pci().unwrap(),
        errors: 2,
        boottime_ns: snapshot.boottime_ns - seconds_ago * 1_000_000_000,
    };
    let severity = |snapshot: &Snapshot, acted: ActedEcc| {
        let history = History { acted_ecc: vec![acted], ..History::default() };
        whole(snapshot, &expected(), &history, true)[0].severity
    };
    assert_eq!(severity(&snapshot, acted(5)), Severity::Fail, "a prolog of the same moment");
    assert_eq!(severity(&snapshot, acted(61)), Severity::Warn);
    let before = acted(61);
    snapshot.gpus[0].reading.counters.ecc_volatile_uncorr = Reading::Value(3);
    assert_eq!(severity(&snapshot, before), Severity::Fail);
}

#[test]
fn nvml_that_does_not_start_is_unknown_once_and_fails_the_second_time() {
    let mut snapshot = healthy();
    snapshot.gpus.iter_mut().for_each(|gpu| gpu.reading = GpuReading::default());
    snapshot.node = crate::model::NodeReading { nvml: Reading::Failed(999), ..Default::default() };
    assert_eq!(judged(&snapshot), [("NVML_INIT".to_owned(), Severity::Unknown)]);
    let history = History { silent: silence::remember(&snapshot, &[]), ..History::default() };
    snapshot.boottime_ns += 30_000_000_000;
    let findings = whole(&snapshot, &expected(), &history, true);
    assert_eq!((findings[0].code.as_str(), findings[0].severity), ("NVML_INIT", Severity::Fail));
    snapshot.node.nvml = Reading::Failed(17);
    assert_eq!(judged(&snapshot), [], "our own permissions");
}

#[test]
fn a_gpu_that_falls_silent_or_asks_for_a_reset_in_any_reading_is_seen() {
    for (answer, code) in [(Reading::Lost, "GPU_LOST"), (Reading::ResetRequired, "RESET_REQ")] {
        let mut snapshot = healthy();
        snapshot.gpus[0].reading.serial = answer.map(|()| String::new());
        assert_eq!(judged(&snapshot), fails(code));
        let mut snapshot = healthy();
        snapshot.gpus[0].reading.counters.pcie_replay = answer.map(|()| 0);
        assert_eq!(judged(&snapshot), fails(code));
    }
}

#[test]
fn a_pci_list_that_could_not_be_read_is_not_an_empty_one() {
    let mut snapshot = healthy();
    snapshot.host.pci_gpus = Reading::NotRead;
    assert_eq!(judged(&snapshot), []);
    let mut console_card = healthy();
    console_card.node.gpu_count = Reading::Value(3);
    let nothing = Expected::default();
    let findings = whole(&console_card, &nothing, &History::default(), true);
    assert_eq!((findings[0].code.as_str(), findings[0].severity), ("GPU_MISS_DRV", Severity::Warn));
}

#[test]
fn an_xid_that_drained_the_node_drains_it_no_second_time_once_resumed() {
    let mut snapshot = older_driver();
    snapshot.log.absorb(1, 1, "NVRM: Xid (PCI:0000:1a:00): 48, DBE");
    snapshot.log.xids[0].seen.acted_boottime_ns = Some(snapshot.boottime_ns - 5_000_000_000);
    assert_eq!(judged(&snapshot), fails("XID48"), "a prolog of the same moment");
    snapshot.log.xids[0].seen.acted_boottime_ns = Some(snapshot.boottime_ns - 61_000_000_000);
    assert_eq!(judged(&snapshot), [("XID48".to_owned(), Severity::Warn)]);
    snapshot.log.absorb(2, 2, "NVRM: Xid (PCI:0000:1a:00): 48, DBE");
    assert_eq!(judged(&snapshot), fails("XID48"), "the fault came back");
}

#[test]
fn where_the_gpus_are_not_certain_only_node_wide_rules_judge() {
    let mut snapshot = healthy();
    snapshot.gpus[0].reading.handle = Reading::Lost;
    assert_eq!(whole(&snapshot, &expected(), &History::default(), false), []);
    snapshot.node.nvml = Reading::Failed(9);
    let findings = whole(&snapshot, &expected(), &History::default(), false);
    assert_eq!(findings.len(), 1);
}

#[test]
fn the_fault_that_explains_the_others_is_told_first() {
    let mut snapshot = healthy();
    snapshot.log.absorb(1, 1, "NVRM: Xid (PCI:0000:1a:00): 79, GPU has fallen off the bus.");
    snapshot.gpus[0].reading = GpuReading { handle: Reading::Lost, ..GpuReading::default() };
    snapshot.gpus[1].reading.counters.ecc_volatile_uncorr = Reading::Value(3);
    let codes: Vec<String> = judged(&snapshot).into_iter().map(|(code, _)| code).collect();
    assert_eq!(codes, ["XID79", "GPU_LOST", "ECC_UNCORR"]);
}

mod silence_over_time {
    use super::*;

    fn silent_gpu(at_s: u64) -> Snapshot {
        let mut snapshot = healthy();
        snapshot.boottime_ns = at_s * 1_000_000_000;
        snapshot.probe = ProbeOutcome::TimedOut { deadline_ms: 2000, unkillable: false };
        snapshot.gpus[1].reading = GpuReading { handle: Reading::TimedOut, ..GpuReading::default() };
        snapshot
    }

    fn severity_at(snapshot: &Snapshot, marks: &[SilentMark]) -> Option<Severity> {
        let history = History { silent: marks.to_vec(), ..History::default() };
        let findings = whole(snapshot, &expected(), &history, true);
        findings.iter().find(|finding| finding.code == "PROBE_HANG").map(|finding| finding.severity)
    }

    #[test]
    fn one_silent_look_is_unknown_and_a_later_second_one_fails() {
        let marks = silence::remember(&silent_gpu(100), &[]);
        assert_eq!(severity_at(&silent_gpu(100), &[]), Some(Severity::Unknown));
        assert_eq!(severity_at(&silent_gpu(120), &marks), Some(Severity::Unknown), "too soon");
        assert_eq!(severity_at(&silent_gpu(130), &marks), Some(Severity::Fail));
        assert_eq!(silence::remember(&silent_gpu(130), &marks), marks, "the first moment is kept");
    }

    #[test]
    fn an_answer_in_between_starts_anew() {
        let marks = silence::remember(&silent_gpu(100), &[]);
        let mut fine = healthy();
        fine.boottime_ns = 110_000_000_000;
        let marks = silence::remember(&fine, &marks);
        assert_eq!(marks, []);
        assert_eq!(severity_at(&silent_gpu(130), &marks), Some(Severity::Unknown));
    }

    #[test]
    fn a_gpu_that_was_not_asked_keeps_its_mark_and_other_gpus_pass() {
        let marks = silence::remember(&silent_gpu(100), &[]);
        let mut other = healthy();
        other.gpus.truncate(1);
        assert_eq!(silence::remember(&other, &marks), marks);
        assert_eq!(severity_at(&other, &marks), None);
    }

    #[test]
    fn a_silent_gpu_that_may_be_another_jobs_does_not_drain() {
        let history = History { silent: silence::remember(&silent_gpu(100), &[]), ..History::default() };
        assert_eq!(whole(&silent_gpu(130), &expected(), &history, false), []);
    }

    #[test]
    fn a_silent_driver_concerns_the_node() {
        let mut snapshot = silent_gpu(100);
        snapshot.node = crate::model::NodeReading { nvml: Reading::TimedOut, ..Default::default() };
        let marks = silence::remember(&snapshot, &[]);
        assert_eq!(marks, [SilentMark { pci: None, first_boottime_ns: 100_000_000_000 }]);
        snapshot.boottime_ns = 140_000_000_000;
        assert_eq!(severity_at(&snapshot, &marks), Some(Severity::Fail));
    }

    #[test]
    fn a_child_that_cannot_be_killed_is_the_evidence() {
        let mut snapshot = healthy();
        snapshot.gpus.clear();
        snapshot.node = Default::default();
        snapshot.probe = ProbeOutcome::Blocked { pid: 7, since_boottime_ns: 990_000_000_000 };
        assert_eq!(severity_at(&snapshot, &[]), Some(Severity::Unknown));
        snapshot.probe = ProbeOutcome::Blocked { pid: 7, since_boottime_ns: 970_000_000_000 };
        assert_eq!(severity_at(&snapshot, &[]), Some(Severity::Fail));
    }

    #[test]
    fn a_busy_or_dead_probe_says_nothing_against_the_driver() {
        let mut snapshot = silent_gpu(100);
        snapshot.probe = ProbeOutcome::Busy;
        snapshot.gpus.clear();
        snapshot.node = Default::default();
        assert_eq!(silence::remember(&snapshot, &[]), []);
        assert_eq!(severity_at(&snapshot, &[]), None);
    }
}

mod heat;
mod memory;
mod whole_gpu;
mod worse;
