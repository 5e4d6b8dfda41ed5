use super::repeat::{AppXid, recent, remember};
use crate::health::action::Action;
use crate::health::kernel_log::open::Client;
use crate::health::{Case, Expected, Finding, History, Limits, Remedy, Severity, evaluate};
use crate::model::snapshot::{GpuPorts, GpuTarget, ProbedGpu};
use crate::model::{GpuReading, GpuUuid, PciAddress, Reading, Snapshot};

fn whole(snapshot: &Snapshot, expected: &Expected, history: &History) -> Vec<Finding> {
    let limits = Limits::default();
    evaluate(&Case { snapshot, expected, history, limits: &limits, gpu_map_certain: true })
}

fn pci(at: u8) -> PciAddress {
    format!("0000:{at}a:00.0").parse().unwrap()
}

fn uuid(at: u8) -> GpuUuid {
    format!("GPU-{at}{at}{at}{at}").parse().unwrap()
}

/// Four GPUs whose driver does not know the recovery action.
fn node(lines: &[&str]) -> Snapshot {
    let gpu = |at: u8| ProbedGpu {
        target: GpuTarget { pci: Some(pci(at)), ..GpuTarget::default() },
        reading: GpuReading {
            handle: Reading::Value(()),
            pci: Reading::Value(pci(at)),
            uuid: Reading::Value(uuid(at)),
            recovery_action: Reading::NotSupported,
            ..GpuReading::default()
        },
    };
    let mut snapshot = Snapshot { boottime_ns: 1_000_000_000_000, ..Snapshot::default() };
    snapshot.host.module_loaded = Reading::Value(true);
    snapshot.host.kernel_log = Reading::Value(());
    snapshot.node.nvml = Reading::Value(());
    snapshot.node.driver_version = Reading::Value("570.124.06".into());
    snapshot.gpus = (1..=4).map(gpu).collect();
    for (at, line) in lines.iter().enumerate() {
        snapshot.log.absorb(at as u64, 900_000_000, line);
    }
    snapshot
}

fn judged_with(snapshot: &Snapshot, expected: &Expected, history: &History) -> Vec<Finding> {
    let findings = whole(snapshot, expected, history);
    let mut backwards = snapshot.clone();
    backwards.gpus.reverse();
    let text = |findings: &[Finding]| {
        let mut texts: Vec<String> = findings.iter().map(|finding| format!("{finding:?}")).collect();
        texts.sort();
        texts
    };
    assert_eq!(text(&findings), text(&whole(&backwards, expected, history)), "the order of GPUs");
    findings
}

fn judged(snapshot: &Snapshot) -> Vec<(String, Severity, Remedy)> {
    let findings = judged_with(snapshot, &Expected::default(), &History::default());
    findings.into_iter().map(|finding| (finding.code, finding.severity, finding.remedy)).collect()
}

fn one(code: &str, severity: Severity, remedy: Remedy) -> Vec<(String, Severity, Remedy)> {
    vec![(code.to_owned(), severity, remedy)]
}

#[test]
fn a_log_that_could_not_be_read_is_told_and_never_fails() {
    assert_eq!(judged(&node(&[])), []);
    for reading in [Reading::NoPermission, Reading::TimedOut, Reading::Failed(2), Reading::NotSupported] {
        let mut snapshot = node(&[]);
        snapshot.host.kernel_log = reading;
        assert_eq!(judged(&snapshot), one("KMSG_UNREAD", Severity::Unknown, Remedy::Admin), "{reading:?}");
    }
    let mut snapshot = node(&[]);
    snapshot.host.kernel_log = Reading::NotRead;
    assert_eq!(judged(&snapshot), [], "a snapshot that nobody wanted a log in");
}

#[test]
fn a_lost_range_of_the_log_is_told() {
    let mut snapshot = node(&[]);
    snapshot.log.lose(7, 12_000_000);
    snapshot.log.lose(2, 15_000_000);
    let findings = judged_with(&snapshot, &Expected::default(), &History::default());
    assert_eq!((findings[0].code.as_str(), findings[0].severity), ("KMSG_LOST", Severity::Info));
    assert_eq!(findings[0].what, "9 records were overwritten unread");
    snapshot.boottime_ns = 15_000_000_000 + 24 * 3600 * 1_000_000_000;
    assert_eq!(judged(&snapshot).len(), 1);
    snapshot.boottime_ns += 1_000;
    assert_eq!(judged(&snapshot), [], "told for a day");
}

#[test]
fn switch_errors_are_the_nodes_and_their_word_decides() {
    let line =
        |number: u32, text: &str| format!("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): {number}, {text}");
    for (number, text, severity, remedy) in [
        (10_001, "Fatal, Unexpected PRI error", Severity::Fail, Remedy::Reset),
        (10_001, "Non-fatal, x, instance=0, chiplet=1", Severity::Warn, Remedy::Admin),
        (12_021, "Correctable, Link 05 x", Severity::Info, Remedy::User),
        (19_055, "Fatal, Link 05 x", Severity::Warn, Remedy::Admin),
        (26_007, "SOE EXTERR", Severity::Fail, Remedy::Reset),
        (99_998, "Fatal, x", Severity::Fail, Remedy::Reset),
        (99_998, "x", Severity::Warn, Remedy::Admin),
    ] {
        let snapshot = node(&[&line(number, text)]);
        assert_eq!(judged(&snapshot), one(&format!("SXID{number}"), severity, remedy), "{number} {text}");
        assert_eq!(
            judged_with(&snapshot, &Expected::default(), &History::default())[0].subject,
            crate::health::Subject::Node
        );
    }
    assert_eq!(judged(&node(&[&line(24_007, "Data {0x1, 0x2}")])), [], "data records are no events");
    let mut old = node(&[&line(10_001, "Fatal, x")]);
    old.log.sxids[0].seen.old = true;
    assert_eq!(judged(&old)[0].1, Severity::Warn);
}

#[test]
fn a_renumbered_switch_error_is_meant_as_the_driver_meant_it() {
    let mut snapshot = node(&["nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 28001, Fatal, Link 1 x"]);
    let why =
        |snapshot: &Snapshot| judged_with(snapshot, &Expected::default(), &History::default())[0].why.clone();
    assert!(why(&snapshot).contains("osfp"), "{}", why(&snapshot));
    snapshot.node.driver_version = Reading::Value("535.183.01".into());
    assert!(!why(&snapshot).contains("osfp"));
    snapshot.node.driver_version = Reading::NotRead;
    assert!(why(&snapshot).starts_with("SXid that the catalogue does not know"), "cannot tell which it is");
    assert_eq!(judged(&snapshot)[0].1, Severity::Fail, "the word counts all the same");
}

#[test]
fn nvlink_and_containment_xids_are_read_to_their_end() {
    for (text, severity, remedy) in [
        (
            "149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6 0x0 0x0 0x0 0x0 0x0)",
            Severity::Fail,
            Remedy::Reset,
        ),
        (
            "145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x1 0x0 0x0 0x4)",
            Severity::Info,
            Remedy::User,
        ),
        ("144, NEW Nonfatal XC0 i0 Link 13 (0x0 0x7 0x1 0x0)", Severity::Warn, Remedy::Admin),
        (
            "74, NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)",
            Severity::Fail,
            Remedy::Reset,
        ),
        (
            "74, NVLink: fatal error detected on link 14(0x1, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
            Severity::Info,
            Remedy::User,
        ),
        ("74, pid=1, name=x, something else", Severity::Fail, Remedy::Reset),
        ("94, pid=7, name=x, Contained: SM (0x1). RST: No, D-RST: No", Severity::Info, Remedy::User),
        ("94, pid=7, name=x, Contained: SM (0x1). RST: No, D-RST: Yes", Severity::Fail, Remedy::Reset),
        ("95, pid=7, name=x, Uncontained: LTC. RST: Yes, D-RST: No", Severity::Fail, Remedy::Reset),
        ("31, pid=7, name=x, Ch 7", Severity::Info, Remedy::User),
    ] {
        let number: u32 = text.split(',').next().unwrap().parse().unwrap();
        let snapshot = node(&[&format!("NVRM: Xid (PCI:0000:2a:00): {text}")]);
        assert_eq!(judged(&snapshot), one(&format!("XID{number}"), severity, remedy), "{text}");
    }
}

#[test]
fn an_ecc_register_that_comes_a_third_time_on_one_link_goes_to_the_vendor() {
    let line = |link: u32| {
        format!(
            "NVRM: Xid (PCI:0000:2a:00): 74, NVLink: fatal error detected on link {link}(0x10, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"
        )
    };
    assert_eq!(judged(&node(&[&line(1), &line(2), &line(1)])), one("XID74", Severity::Fail, Remedy::Reset));
    assert_eq!(judged(&node(&[&line(1), &line(1), &line(1)])), one("XID74", Severity::Fail, Remedy::Rma));
}

#[test]
fn the_sites_row_goes_before_the_catalogue() {
    let mut expected = Expected::default();
    expected.overrides.xid.insert(79, Action::Warn);
    expected.overrides.xid.insert(31, Action::DrainRma);
    expected.overrides.sxid.insert(10_001, Action::DrainReboot);
    let snapshot = node(&[
        "NVRM: Xid (PCI:0000:2a:00): 79, GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:2a:00): 31, x",
        "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 10001, Non-fatal, x",
    ]);
    let mut found: Vec<(String, Severity, Remedy)> = judged_with(&snapshot, &expected, &History::default())
        .into_iter()
        .map(|finding| (finding.code, finding.severity, finding.remedy))
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    let wanted = [
        ("SXID10001", Severity::Fail, Remedy::Reboot),
        ("XID31", Severity::Fail, Remedy::Rma),
        ("XID79", Severity::Warn, Remedy::Admin),
    ];
    assert_eq!(found, wanted.map(|(code, severity, remedy)| (code.to_owned(), severity, remedy)));
}

#[test]
fn a_text_about_a_gpu_fails_only_while_the_gpu_does_not_answer() {
    for (line, code, remedy) in [
        ("NVRM: GPU 0000:2a:00.0: RmInitAdapter failed! (0x26:0x56:1474)", "GPU_INIT", Remedy::Reset),
        (
            "NVRM: GPU 0000:2a:00.0: GPU does not have the necessary power cables connected.",
            "POWER_CABLE",
            Remedy::Rma,
        ),
        (
            "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\\x0aNVRM: BAR1 is 0M @ 0x0 (PCI:0000:2a:00.0)",
            "BAR1",
            Remedy::Reboot,
        ),
        (
            "nvidia 0000:2a:00.0: Unable to change power state from D3cold to D0, device inaccessible",
            "PCIE_GONE",
            Remedy::Reboot,
        ),
    ] {
        let mut snapshot = node(&[line]);
        assert_eq!(judged(&snapshot), one(code, Severity::Warn, remedy), "{line}");
        snapshot.gpus[1].reading.handle = Reading::NotRead;
        assert_eq!(judged(&snapshot), one(code, Severity::Fail, remedy), "{line}");
        snapshot.log.log_texts[0].seen.old = true;
        assert_eq!(judged(&snapshot), one(code, Severity::Warn, remedy), "{line}");
    }
    let gsp = node(&[
        "NVRM: Rate limiting GSP RPC error prints for GPU at PCI:0000:2a:00 (printing 1 of every 30).  The GPU likely needs to be reset.",
    ]);
    assert_eq!(judged(&gsp), one("GSP_DEAD", Severity::Fail, Remedy::Reset));
    let other = node(&["NVRM: GPU 0000:9a:00.0: RmInitAdapter failed! (0x26:0x56:1474)"]);
    assert_eq!(judged(&other), [], "another job's GPU");
    let mut no_room = node(&["pci 0000:2a:00.0: BAR 1: no space for [mem size 0x2000000000 64bit pref]"]);
    no_room.gpus[1].reading.handle = Reading::NotRead;
    assert_eq!(judged(&no_room), one("BAR1", Severity::Warn, Remedy::Reboot));
}

#[test]
fn what_a_port_says_is_about_the_gpu_below_it() {
    let mut snapshot = node(&["pcieport 0000:29:01.0: DPC: containment event, status:0x1f01 source:0x0000"]);
    snapshot.gpus[1].reading.handle = Reading::NotRead;
    assert_eq!(judged(&snapshot), [], "nobody knows what is below it");
    let ports = vec!["0000:28:00.0".parse().unwrap(), "0000:29:01.0".parse().unwrap()];
    snapshot.host.gpu_ports = vec![GpuPorts { gpu: pci(2), ports }];
    assert_eq!(judged(&snapshot), one("PCIE_GONE", Severity::Fail, Remedy::Reboot));
}

#[test]
fn pcie_errors_warn_above_their_rate_and_fail_when_fatal() {
    let corrected = "pcieport 0000:29:01.0: AER: Corrected error received: 0000:2a:00.0";
    assert_eq!(judged(&node(&vec![corrected; 1000])), []);
    assert_eq!(judged(&node(&vec![corrected; 1001])), one("PCIE_AER", Severity::Warn, Remedy::Rma));
    let mut later = node(&vec![corrected; 1001]);
    later.boottime_ns += 2 * 3600 * 1_000_000_000;
    assert_eq!(judged(&later), [], "the hour is over");
    let of =
        |kind: &str| format!("pcieport 0000:29:01.0: AER: Uncorrected ({kind}) error received: 0000:2a:00.0");
    assert_eq!(judged(&node(&[&of("Non-Fatal")])), one("PCIE_AER", Severity::Warn, Remedy::Rma));
    assert_eq!(judged(&node(&[&of("Fatal")])), one("PCIE_AER", Severity::Fail, Remedy::Reboot));
    assert_eq!(
        judged(&node(&[
            "nvidia 0000:2a:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0023 address=0xdead000 flags=0x0020]"
        ])),
        one("IOMMU_FAULT", Severity::Warn, Remedy::Admin)
    );
}

#[test]
fn a_stuck_task_fails_the_node_only_where_it_is_stuck_in_the_driver() {
    let mut snapshot = node(&["INFO: task python3:4711 blocked for more than 120 seconds."]);
    assert_eq!(judged(&snapshot), one("PROC_STUCK", Severity::Unknown, Remedy::Reboot), "nobody could look");
    for (client, wanted) in [
        (Client::No, Vec::new()),
        (Client::HoldsGpu, one("PROC_STUCK", Severity::Warn, Remedy::Admin)),
        (Client::InDriver, one("PROC_STUCK", Severity::Fail, Remedy::Reboot)),
    ] {
        snapshot.log.log_texts[0].client = Some(client);
        assert_eq!(judged(&snapshot), wanted, "{client:?}");
    }
}

#[test]
fn texts_that_name_no_gpu_never_fail() {
    let lines = [
        "NVRM: knvlinkDiscoverPostRxDetLinks_GH100: Getting peer0's postRxDetLinkMask failed!",
        "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing",
        "NVRM: API mismatch: the client has the version 550.54.15, but\\x0aNVRM: this kernel module has the version 535.104.05.",
        "NVRM: A GPU crash dump has been created. If possible, please run",
        "Lockdown: modprobe: unsigned module loading is restricted; see man kernel_lockdown.7",
        "NVRM: No NVIDIA GPU found.",
    ];
    let codes: Vec<String> = judged(&node(&lines)).into_iter().map(|(code, ..)| code).collect();
    assert_eq!(codes, ["NVLINK_INIT", "PEERMEM_ERR", "API_MISMATCH", "CRASH_DUMP"]);
    let mut later = node(&lines);
    later.boottime_ns += 24 * 3600 * 1_000_000_000;
    assert_eq!(judged(&later), [], "told for a day");
    let mut unloaded = node(&lines[4..5]);
    unloaded.host.module_loaded = Reading::Value(false);
    unloaded.node.nvml = Reading::NotRead;
    assert!(
        judged(&unloaded)
            .iter()
            .any(|(code, severity, _)| code == "MOD_REFUSED" && *severity == Severity::Info)
    );
}

fn entry(gpu: u8, job_id: u32, uid: u32) -> AppXid {
    AppXid { gpu: uuid(gpu), xid: 31, job_id, uid, line: (u64::from(job_id), 0), unix_ms: 1_000_000 }
}

fn repeats(entries: Vec<AppXid>) -> Vec<String> {
    let history = History { app_xids: entries, ..History::default() };
    let findings = judged_with(&node(&[]), &Expected::default(), &history);
    findings
        .iter()
        .map(|finding| format!("{} {:?} {}", finding.code, finding.severity, finding.subject))
        .collect()
}

#[test]
fn user_faults_of_different_users_on_one_gpu_alone_warn() {
    let three = vec![entry(2, 1, 100), entry(2, 2, 100), entry(2, 3, 200)];
    assert_eq!(repeats(three.clone()), ["XID_REPEAT Warn GPU 0000:2a:00.0 GPU-2222"]);
    assert_eq!(repeats(three[1..].to_vec()), Vec::<String>::new(), "two jobs");
    let one_user = vec![entry(2, 1, 100), entry(2, 2, 100), entry(2, 3, 100), entry(2, 4, 100)];
    assert_eq!(repeats(one_user), Vec::<String>::new(), "one user with one bug");
    let everywhere = [three, vec![entry(3, 3, 200)]].concat();
    assert_eq!(repeats(everywhere), Vec::<String>::new(), "a sibling is not clean");
}

#[test]
fn a_gpu_whose_uuid_is_not_known_is_not_judged_by_history() {
    let mut snapshot = node(&[]);
    snapshot.gpus[1].reading.uuid = Reading::TimedOut;
    let history = History {
        app_xids: vec![entry(2, 1, 100), entry(2, 2, 100), entry(2, 3, 200)],
        ..History::default()
    };
    assert_eq!(judged_with(&snapshot, &Expected::default(), &history), []);
}

#[test]
fn the_history_is_bounded_forgets_after_a_week_and_no_user_crowds_out_another() {
    let day_ms = 24 * 3600 * 1000;
    let mut known = remember(Vec::new(), &[entry(1, 1, 100)], 1_000_000);
    for job in 2..5000 {
        known = remember(known, &[entry(1, job, 200)], 1_000_000);
    }
    assert!(known.iter().any(|entry| entry.uid == 100) && known.len() <= 9, "{}", known.len());
    for uid in 5000..10_000 {
        known = remember(known, &[entry(1, uid, uid)], 1_000_000);
    }
    assert_eq!(known.len(), 1024);
    assert_eq!(remember(vec![entry(1, 1, 1)], &[entry(1, 1, 1)], 1_000_000).len(), 1, "once for each job");
    let same_event = AppXid { job_id: 2, uid: 2, ..entry(1, 1, 1) };
    assert_eq!(remember(vec![entry(1, 1, 1)], &[same_event], 1_000_000), [entry(1, 1, 1)], "one job's only");
    assert_eq!(recent(vec![entry(1, 1, 1)], 1_000_000 + 7 * day_ms).len(), 1);
    assert_eq!(recent(vec![entry(1, 1, 1)], 1_000_001 + 7 * day_ms), []);
    assert_eq!(recent(vec![entry(1, 1, 1)], 999_999), [], "a clock that was set back");
}
