use super::open::{Client, OpenLog};
use super::*;
use crate::health::finding::Severity;

const LOST: &str =
    "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.";

fn event(message: &str) -> Event {
    parse_record(message).unwrap_or_else(|| panic!("{message}"))
}

fn number(event: &Event) -> u32 {
    match event.code {
        EventCode::Xid(number) | EventCode::Sxid(number) => number,
        EventCode::None => 0,
    }
}

fn details(message: &str) -> String {
    let event = event(message);
    let all: Vec<String> = event.details.iter().map(|(key, value)| format!("{key}={value}")).collect();
    format!("{} {}", event.what.map_or("-", What::word), all.join(" "))
}

#[test]
fn every_driver_branch_of_xids_is_read() {
    for (line, xid, pid, process) in [
        ("NVRM: Xid (PCI:0000:3b:00): 45, pid=12, Ch 0a", 45, Some(12), None),
        ("NVRM: Xid (0000:3b:00): 13, x", 13, None, None),
        ("NVRM: Xid (PCI:0000:3B:00.0): 31, pid=7, name=a:b[0]/c, Ch 1", 31, Some(7), Some("a:b[0]/c")),
        ("NVRM: Xid (PCI:0000:3b:00): 31, pid=7, name=a, b, Ch 1", 31, Some(7), Some("a")),
        ("NVRM: Xid (PCI:0000:3b:00): 45", 45, None, None),
    ] {
        let event = event(line);
        assert_eq!(event.pci.unwrap().to_string(), "0000:3b:00.0", "{line}");
        assert_eq!((number(&event), event.pid, event.process.as_deref()), (xid, pid, process), "{line}");
    }
    assert_eq!(event("NVRM: Xid (PCI:10000:01:00): 79, x").pci.unwrap().domain, 0x10000);
}

#[test]
fn texts_of_each_family_are_read_in_the_forms_that_kernels_and_drivers_print() {
    let port = "pcieport 0000:3a:01.0: ";
    let gpu = "nvidia 0000:3b:00.0: ";
    for (line, expected) in [
        ("NVRM: GPU at PCI:0000:3b:00: GPU-8932f937-d72c".to_owned(), "gpu-uuid uuid=GPU-8932f937-d72c"),
        ("NVRM: GPU 0000:3b:00.0: GPU serial number is 165.".to_owned(), "board-serial serial=165"),
        ("NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x26:0x56:1474)".to_owned(), "gpu-init-failed hint=drain-reset"),
        ("NVRM: API mismatch: the client has the version 550.54.15, but\\x0aNVRM: this kernel module has the version 535.104.05.  Please".to_owned(), "version-mismatch lib=550.54.15 module=535.104.05"),
        ("NVRM: API mismatch: the client 'x' has the version 1.0' (pid 77)\\x0aNVRM: has the version 550.54.15, but this kernel module has the version 535.104.05.".to_owned(), "version-mismatch lib=550.54.15 module=535.104.05"),
        ("NVRM: The NVIDIA probe routine was not called for 2 device(s).".to_owned(), "probe-not-called count=2"),
        ("NVRM: None of the NVIDIA devices were initialized.".to_owned(), "no-gpu "),
        ("NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build".to_owned(), "driver-loaded driver_version=570.124.06 flavour=open"),
        ("nvidia: module verification failed: signature and/or required key missing - tainting kernel".to_owned(), "module-unsigned module=nvidia"),
        (format!("{port}AER: Corrected error received: id=3b00"), "aer aer=correctable reporter=0000:3a:01.0"),
        (format!("{port}AER: Multiple Uncorrected (Non-Fatal) error received: 0000:3b:00.0"), "aer aer=nonfatal multiple=yes reporter=0000:3a:01.0"),
        (format!("{port}AER: Uncorrectable (Fatal) error message received from 0000:3b:00.0"), "aer aer=fatal reporter=0000:3a:01.0"),
        (format!("{gpu}PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)"), "aer aer=correctable layer=Physical Layer"),
        (format!("{gpu}AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)"), "aer aer=fatal layer=Transaction Layer"),
        (format!("{gpu}   [12] Timeout"), "aer-detail error=Timeout"),
        (format!("{gpu}Unable to change power state from D3cold to D0, device inaccessible"), "device-gone hint=drain-reboot"),
        (format!("{gpu}can't change power state from D3cold to D0 (config space inaccessible)"), "device-gone hint=drain-reboot"),
        ("pci 0000:3b:00.0: BAR 1 [mem size 0x2000000000 64bit pref]: can't assign; no space".to_owned(), "bar-unassigned bar=1"),
        ("DMAR: [DMA Read] Request device [3b:00.0] fault addr de000 [fault reason 06] PTE".to_owned(), "iommu-fault iommu=intel addr=0xde000"),
        ("AMD-Vi: Event logged [IO_PAGE_FAULT device=3b:00.0 domain=0x0023 address=0xdead000 flags=0x0020]".to_owned(), "iommu-fault iommu=amd addr=0xdead000"),
        ("INFO: task a:b c:123 blocked for more than 122 seconds.".to_owned(), "hung-task seconds=122"),
        ("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 24007, SOE HALT data[0] = 0x1".to_owned(), "sxid-data switch=0"),
        ("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 28001, OSFP 3 hot".to_owned(), "- switch=0"),
    ] {
        assert_eq!(details(&line), expected, "{line}");
    }
    assert_eq!(
        event("pcieport 0000:3a:01.0: AER: Corrected error received: id=3b05").pci.unwrap().to_string(),
        "0000:3b:00.0"
    );
}

#[test]
fn what_is_no_event_is_none() {
    for line in [
        "",
        "NVRM:",
        "NVRM: ",
        "NVRM: Xid (",
        "NVRM: Xid (PCI:0000:3b:00): abc, pid=2280636",
        "NVRM: Xid (PCI:0000:3b:00): 79x",
        "NVRM: Xid (PCI:zz): 79, x",
        "NVRM: Xid (PCI:0000:3b:00): 99999999999, x",
        "fallen off the bus",
        "overlayfs: failed to resolve 'NVRM: Xid (PCI:0000:3b:00): 79, x'",
        "overlayfs: failed to resolve '\\x0aNVRM: Xid (PCI:0000:3b:00): 79, x'",
        "mlx5_core 0000:1a:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Physical Layer, (Receiver ID)",
        "pci 0000:3b:00.0: BAR 1: assigned [mem 0x0-0xfff]",
        "INFO: task x blocked",
        "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 9999999, Fatal, x",
    ] {
        assert_eq!(parse_record(line), None, "{line}");
    }
}

#[test]
fn a_process_name_that_imitates_the_driver_makes_no_event_of_its_own() {
    let names = [
        "a\\x0aNVRM: Xid (PCI:0000:5e:00): 79, x",
        "x): 79, y",
        "a, RST: Yes, D-RST: Yes",
        "a, RLW Fatal XC0 i0 Link 1 (0x1 0x2 0x3 0x4)",
        "a, on link 3(0x10, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
        "a caused by previous Xid 79",
        "a,  caused by previous Xid 79",
        "a, to 0x0 (None)",
        "NVRM: loading NVIDIA UNIX",
    ];
    for name in names {
        let line = format!("NVRM: Xid (PCI:0000:3b:00): 31, pid=7, name={name}, Ch 00000003, intr 0");
        let mut log = OpenLog::default();
        log.absorb(1, 1, LOST);
        log.absorb(2, 2, &line);
        assert_eq!(log.xids.iter().map(|event| event.xid).collect::<Vec<_>>(), [79, 31], "{name}");
        assert!(log.xids.iter().all(|event| event.pci.to_string() == "0000:3b:00.0"), "{name}");
        assert_eq!(event(&line).detail("root_cause"), None, "{name}");
        let contained = format!(
            "NVRM: Xid (PCI:0000:3b:00): 94, pid=7, name={name}, Contained: SM (0x1). RST: No, D-RST: No"
        );
        assert_eq!(event(&contained).detail("hint"), None, "{name}");
        let nonfatal = format!(
            "NVRM: Xid (PCI:0000:3b:00): 145, pid=7, name={name}, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x0 0x0)"
        );
        assert_eq!(event(&nonfatal).detail("sev"), Some("Nonfatal"), "{name}");
        assert_eq!(event(&nonfatal).detail("unit"), Some("RLW_RXPIPE"), "{name}");
    }
}

/// xorshift: the same bytes in every run.
fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn arbitrary_text_never_panics_a_parser() {
    let samples = include_str!("../../../tests/data/kernel_log_samples.txt");
    let lines: Vec<&str> = samples.lines().filter_map(|line| line.get(9..)).collect();
    let mut log = OpenLog::default();
    let mut reader = lines::Reader::default();
    for seed in 0..20_000u64 {
        let noise = bytes(seed, 24);
        let noise = String::from_utf8_lossy(&noise);
        let line = lines[usize::try_from(seed).unwrap() % lines.len()];
        let at = usize::from(bytes(seed + 7, 1)[0]) % (line.len() + 1);
        let at = (0..=at).rev().find(|&at| line.is_char_boundary(at)).unwrap_or(0);
        for text in [
            noise.clone().into_owned(),
            format!("{}{noise}{}", &line[..at], &line[at..]),
            line[..at].to_owned(),
            line[at..].to_owned(),
        ] {
            let _ = parse_record(&text);
            log.absorb(seed, seed, &text);
            reader.feed(&text);
        }
    }
    for seed in 0..2000 {
        export::read(&bytes(seed, 300), |_| {});
        export::read(&[b"MESSAGE\n".as_slice(), &bytes(seed, 30)].concat(), |_| {});
    }
}

#[test]
fn the_same_fault_counts_once_and_is_cleared_by_evidence_only() {
    let mut log = OpenLog::default();
    log.absorb(1, 10, LOST);
    log.absorb(2, 20, "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.");
    log.absorb(3, 30, "NVRM: Xid (PCI:0000:5e:00): 48, pid=1, name=x, DBE");
    for channel in 0..64 {
        log.absorb(4, 40, &format!("NVRM: Xid (PCI:0000:61:00): 45, pid=7, name=x, Ch {channel:08x}"));
    }
    let seen = |log: &OpenLog| {
        log.xids.iter().map(|event| (event.xid, event.seen.seq, event.seen.lines)).collect::<Vec<_>>()
    };
    assert_eq!(seen(&log), [(79, 2, 2), (48, 3, 1), (45, 4, 64)]);
    assert_eq!(log.xids[2].pids, [7]);
    log.absorb(5, 40, "usb 1-1: new device");
    log.absorb(6, 50, "NVRM: Xid (PCI:0000:5e:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)");
    assert_eq!(seen(&log).len(), 2, "that GPU's only");
    log.absorb(7, 60, "pcieport 0000:3a:01.0: DPC: containment event, status:0x1f01 source:0x0000");
    log.absorb(8, 70, "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x26:0x56:1474)");
    log.absorb(9, 80, "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up");
    log.absorb(
        10,
        90,
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.144.03  Mon Dec 30 17:44:08 UTC 2024",
    );
    assert!(log.xids.is_empty() && log.sxids.is_empty());
    assert_eq!(
        log.log_texts.iter().map(|text| text.what).collect::<Vec<_>>(),
        [What::Dpc],
        "no driver mends a port"
    );
}

#[test]
fn a_mild_line_does_not_hide_the_severe_one_before_it() {
    let mut log = OpenLog::default();
    log.absorb(1, 1, "NVRM: Xid (PCI:0000:3b:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 09 (0x025525c6 0x0 0x0 0x0 0x0 0x0)");
    log.absorb(2, 2, "NVRM: Xid (PCI:0000:3b:00): 149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 03 (0x00000226 0x0 0x0 0x0 0x0 0x0)");
    assert!(log.xids[0].nvlink5.as_ref().unwrap().fatal);
    assert_eq!((log.xids[0].seen.lines, log.xids[0].links.as_slice()), (2, [(9, 1), (3, 1)].as_slice()));
    log.absorb(3, 3, "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 x");
    log.absorb(4, 4, "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Non-fatal, Link 31 x");
    log.absorb(5, 5, "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Severity 1 Engine instance 00");
    assert_eq!((log.sxids[0].link, log.sxids[0].seen.lines), (Some(30), 2), "data records are no events");
}

#[test]
fn a_flood_is_bounded_and_keeps_what_is_severe() {
    let mut log = OpenLog::default();
    log.absorb(0, 0, LOST);
    let name = "\\\\\\\\\\x1b\\x1b".repeat(30);
    for at in 0..6000u32 {
        let (bus, low) = (at % 256, at / 256);
        log.absorb(1, 1, &format!("NVRM: Xid (PCI:{low:04x}:{bus:02x}:01): 13, pid={at}, name={name}, x"));
        log.absorb(1, 1, &format!("NVRM: Xid (PCI:0000:3c:00): {}, pid={at}, name={name}, x", at % 9999));
        log.absorb(
            1,
            1,
            &format!("nvidia-nvswitch0: SXid (PCI:{low:04x}:{bus:02x}:00.0): {at}, Non-fatal, {name}"),
        );
        log.absorb(1, 1, &format!("INFO: task {name}:{at} blocked for more than 120 seconds."));
        log.absorb(
            1,
            1,
            &format!("pcieport 0000:3a:01.0: AER: Corrected error received: {low:04x}:{bus:02x}:00.0"),
        );
        log.absorb(
            1,
            u64::from(at) << 30,
            "pcieport 0000:3a:01.0: AER: Corrected error received: 0000:3b:00.0",
        );
    }
    assert!(log.xids.iter().any(|event| event.xid == 79), "users' faults do not crowd out the hardware's");
    let text = serde_json::to_string(&log).unwrap();
    assert!(text.len() < 512 * 1024, "{} bytes", text.len());
    let mut read: OpenLog = serde_json::from_str(&text).unwrap();
    log.mark_old(|_, _| false);
    read.mark_old(|_, _| false);
    assert_eq!(read, log);
}

#[test]
fn corrected_pcie_errors_are_counted_over_an_hour_and_once_each() {
    let mut log = OpenLog::default();
    let minute = 60_000_000u64;
    for at in 0..120u64 {
        log.absorb(at, at * minute, "pcieport 0000:3a:01.0: AER: Corrected error received: 0000:3b:00.0");
        log.absorb(
            at,
            at * minute,
            "nvidia 0000:3b:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
        );
    }
    assert_eq!(log.aer.len(), 1);
    assert_eq!(log.aer[0].in_last_hour(119 * minute), 60);
    assert_eq!(log.aer[0].in_last_hour(300 * minute), 0);
}

#[test]
fn firmware_that_reports_pcie_errors_itself_is_heard() {
    let mut log = OpenLog::default();
    for (at, line) in
        ["event severity: fatal", " section_type: PCIe error", "  device_id: 0000:3b:00.0"].iter().enumerate()
    {
        log.absorb(at as u64, 1, &format!("{{1}}[Hardware Error]: {line}"));
    }
    assert_eq!(
        log.log_texts.iter().map(|text| (text.what, text.fatal)).collect::<Vec<_>>(),
        [(What::Aer, true)]
    );
}

#[test]
fn what_is_old_is_judged_once_and_acted_on_events_are_noted() {
    let mut log = OpenLog::default();
    log.absorb(1, 1, LOST);
    log.absorb(2, 2, "INFO: task x:1 blocked for more than 120 seconds.");
    log.mark_old(|code, _| code == "XID79");
    log.mark_old(|_, _| panic!("nothing is new"));
    assert!(log.xids[0].seen.old && !log.log_texts[0].seen.old);
    log.mark_acted(5, |pci| pci.is_none());
    assert_eq!(
        (log.xids[0].seen.acted_boottime_ns, log.log_texts[0].seen.acted_boottime_ns),
        (None, Some(5))
    );
    log.absorb(3, 3, LOST);
    log.mark_old(|_, _| false);
    assert!(!log.xids[0].seen.old, "it happened again");
    log.log_texts[0].client = Some(Client::No);
    assert_eq!(log.xids[0].action(None).0.judgement().0, Severity::Fail);
}
