//! The kernel log as a source of findings: prolog, epilog and `gpuward` on a simulated machine.
#![allow(clippy::tests_outside_test_module)]

use gpuward_tests::sim::Bench;
use serde_json::Value;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

/// A driver that does not know the recovery action yet: nothing speaks against an XID.
const OLD_DRIVER: &str = "[[set]]\nfield = \"recovery_action\"\n";

fn bench(more: &str) -> Bench {
    let bench = Bench::new("l40s-pcie", "drain", more);
    bench.node.fault(OLD_DRIVER);
    bench
}

/// The log's short form of a GPU's address.
fn pci(bench: &Bench, slot: u32) -> String {
    bench.node.pci(slot)[..10].to_owned()
}

/// Time since boot, to the second.
fn now_usec() -> u64 {
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
    uptime.split('.').next().unwrap().parse::<u64>().unwrap() * 1_000_000
}

/// Exit code and findings of `gpuward check`: code and severity of each, sorted.
fn check(bench: &Bench) -> (Option<i32>, Vec<String>) {
    let output = bench.admin("check").arg("--json").output().unwrap();
    let all: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let text = |finding: &Value, key: &str| finding[key].as_str().unwrap().to_owned();
    let findings = all["findings"].as_array().unwrap().iter();
    let mut findings: Vec<String> =
        findings.map(|finding| format!("{} {}", text(finding, "code"), text(finding, "severity"))).collect();
    findings.sort();
    (output.status.code(), findings)
}

fn nothing() -> Vec<String> {
    Vec::new()
}

#[test]
fn a_fatal_switch_error_drains_the_node() {
    let bench = bench("");
    bench.node.kernel_says("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 10001, Fatal, Unexpected PRI error");
    assert_eq!(bench.prolog(7, "1").code, Some(1), "{}", bench.node.log());
    let calls = bench.scontrol_calls().join("\n");
    assert!(calls.contains("Reason=gpuward:SXID10001 NVSwitch 0000:c1:00.0 "), "{calls}");
    bench.set_node_state("IDLE", None);
    let path = bench.node.dir.join("run/boot.json");
    let mut boot: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let acted =
        boot["sxids"][0]["acted_boottime_ns"].as_u64().expect("it is noted that the node was drained for it");
    boot["sxids"][0]["acted_boottime_ns"] = (acted - 61_000_000_000).into();
    std::fs::write(&path, boot.to_string()).unwrap();
    assert_eq!(bench.prolog(8, "1").code, Some(0), "somebody resumed the node");
}

#[test]
fn a_switch_error_that_is_not_fatal_drains_nothing() {
    let bench = bench("");
    bench.node.kernel_says("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Non-fatal, Link 30 x");
    bench.node.kernel_says("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Severity 0 Engine instance 00");
    assert_eq!(bench.prolog(7, "1").code, Some(0));
    assert_eq!(check(&bench), (Some(0), vec!["SXID20034 warn".to_owned()]));
}

#[test]
fn a_kernel_log_that_cannot_be_read_is_told_and_drains_nothing() {
    let bench = bench("");
    let config = std::fs::read_to_string(bench.path("etc/gpuward.toml")).unwrap();
    let config = config.replace("[paths]\n", "[paths]\njournalctl = \"/no/such/program\"\n");
    bench.write("etc/gpuward.toml", &config);
    std::fs::remove_file(bench.node.dir.join("kmsg")).unwrap();
    assert_eq!(bench.prolog(7, "1").code, Some(0));
    assert_eq!(check(&bench), (Some(2), vec!["KMSG_UNREAD unknown".to_owned()]));
}

#[test]
fn records_that_were_overwritten_unread_are_told() {
    let bench = bench("");
    let (kmsg, usec) = (bench.node.dir.join("kmsg"), now_usec());
    std::fs::write(&kmsg, "6,0,1,-;usb\n").unwrap();
    assert_eq!((bench.prolog(7, "1").code, check(&bench)), (Some(0), (Some(0), nothing())));
    std::fs::write(&kmsg, format!("6,9,{usec},-;usb\n")).unwrap();
    assert_eq!(
        (bench.prolog(8, "1").code, check(&bench)),
        (Some(0), (Some(0), vec!["KMSG_LOST info".to_owned()]))
    );
    let lost = bench.snapshot().snapshot.log.log_lost.unwrap();
    assert_eq!((lost.records, lost.before_usec), (8, usec));
}

/// Prints one entry in the journal's export format, and notes down that it was called.
const JOURNALCTL: &str = "#!/bin/sh\n\
    echo \"$*\" >> \"${0%/*}/journal-calls\"\n\
    case \"$*\" in *--after-cursor=c1*) exit 0;; esac\n\
    printf '__CURSOR=c1\\n_TRANSPORT=kernel\\nSYSLOG_FACILITY=0\\n_SOURCE_MONOTONIC_TIMESTAMP=%s\\nMESSAGE=NVRM: Xid (PCI:%s): 48, x\\n\\n' @USEC@ @PCI@\n";

#[test]
fn the_journal_stands_in_for_an_admin_and_never_for_a_prolog() {
    let bench = bench("");
    let script = JOURNALCTL.replace("@PCI@", &pci(&bench, 1)).replace("@USEC@", &now_usec().to_string());
    bench.write("bin/journalctl", &script);
    let program = bench.path("bin/journalctl");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let config = std::fs::read_to_string(bench.path("etc/gpuward.toml")).unwrap();
    let config = config.replace("[paths]\n", &format!("[paths]\njournalctl = \"{}\"\n", program.display()));
    bench.write("etc/gpuward.toml", &config);
    assert_eq!(check(&bench), (Some(0), nothing()));
    let calls = || std::fs::read_to_string(bench.path("bin/journal-calls")).unwrap_or_default();
    assert_eq!(calls(), "", "the kernel's log can be read");
    std::fs::remove_file(bench.node.dir.join("kmsg")).unwrap();
    assert_eq!(bench.prolog(7, "1").code, Some(0));
    assert_eq!(calls(), "", "a prolog starts no program");
    assert_eq!(check(&bench), (Some(1), vec!["XID48 fail".to_owned()]));
    assert_eq!(check(&bench), (Some(1), vec!["XID48 fail".to_owned()]), "nothing new, and still open");
    assert!(calls().lines().nth(1).unwrap().ends_with("--after-cursor=c1"), "{}", calls());
    assert_eq!(
        bench.prolog(8, "1").code,
        Some(1),
        "what an admin saw counts in a prolog: {}",
        bench.node.log()
    );
}

#[test]
fn a_site_may_say_what_a_number_means_to_it() {
    let bench = bench("[health.xid.79]\naction = \"warn\"\n");
    bench.node.kernel_says(&format!("NVRM: Xid (PCI:{}): 79, GPU has fallen off the bus.", pci(&bench, 1)));
    assert_eq!(bench.prolog(7, "1").code, Some(0));
    assert_eq!(check(&bench), (Some(0), vec!["XID79 warn".to_owned()]));
    let file = bench.path("etc/xid.tsv");
    bench.write("etc/xid.tsv", "xid\taction\n79\tdrain-rma\n48\texplode\n");
    let config = std::fs::read_to_string(bench.path("etc/gpuward.toml")).unwrap();
    let config = config.replace("[health.xid.79]\naction = \"warn\"\n", "");
    let line = format!("[health]\nxid_catalogue = \"{}\"\n", file.display());
    bench.write("etc/gpuward.toml", &config.replace("[health]\n", &line));
    assert_eq!(check(&bench), (Some(1), vec!["XID79 fail".to_owned()]));
    let complaint = format!("{}:3: unknown action 'explode'", file.display());
    assert!(bench.node.log().contains(&complaint), "{}", bench.node.log());
    let mut config_check = std::process::Command::new(gpuward_tests::cluster::built("gpuward").unwrap());
    let output = config_check.args(["config", "check"]).arg(bench.path("etc/gpuward.toml")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains(&complaint), "{said}");
}

#[test]
fn user_faults_of_several_users_on_one_gpu_are_told_and_one_users_are_not() {
    let bench = bench("");
    let run = |job: u32, uid: &str, gpus: &str, slot: u32| {
        let mut prolog = bench.command("gpuward-prolog", job, gpus);
        assert!(prolog.env("SLURM_JOB_UID", uid).status().unwrap().success(), "{}", bench.node.log());
        let text = format!(
            "NVRM: Xid (PCI:{}): 31, pid={job}, name=python3, Ch 00000007, intr 0",
            pci(&bench, slot)
        );
        (0..64).for_each(|_| bench.node.kernel_says(&text));
        let mut epilog = bench.command("gpuward-epilog", job, gpus);
        assert!(epilog.env("SLURM_JOB_UID", uid).status().unwrap().success(), "{}", bench.node.log());
    };
    let with_repeat = || check(&bench).1.iter().any(|finding| finding == "XID_REPEAT warn");
    for job in 1..=4 {
        run(job, "1000", "1", 1);
    }
    assert!(!with_repeat(), "one user with one bug");
    run(5, "1001", "1", 1);
    assert!(with_repeat(), "{:?}\n{}", check(&bench), bench.node.log());
    run(6, "1001", "2", 2);
    assert!(!with_repeat(), "a sibling is not clean any more");
}

#[test]
fn a_port_that_cut_off_a_lost_gpu_is_named() {
    let bench = bench("");
    let link = bench.node.dir.join("root/sys/bus/pci/devices").join(bench.node.pci(1));
    let place = std::fs::read_link(&link).unwrap();
    let ports: Vec<&str> =
        place.iter().filter_map(|name| name.to_str()).filter(|name| name.len() == 12).collect();
    let port = ports[ports.len() - 2];
    bench.node.kernel_says(&format!("pcieport {port}: DPC: containment event, status:0x1f01 source:0x0000"));
    let (code, findings) = check(&bench);
    assert_eq!((code, findings), (Some(0), vec!["PCIE_GONE warn".to_owned()]), "the GPU answers");
    bench.node.fault("[[lost]]\ngpu = 1\n");
    let findings = check(&bench).1;
    assert!(findings.contains(&"PCIE_GONE fail".to_owned()), "{findings:?}");
}

#[test]
fn a_stuck_task_that_is_gone_says_nothing() {
    let bench = bench("");
    bench.node.kernel_says("INFO: task python3:4194305 blocked for more than 120 seconds.");
    assert_eq!(check(&bench), (Some(0), nothing()));
}

#[test]
fn a_flood_of_events_leaves_a_small_state() {
    let bench = bench("");
    let mut log = String::new();
    for seq in 0..5000 {
        log.push_str(&format!(
            "3,{seq},{seq},-;NVRM: Xid (PCI:{:04x}:{:02x}:00): {}, pid={seq}, name=\\x1b{}, x\n",
            seq % 50,
            seq % 256,
            seq % 200,
            "x".repeat(80),
        ));
    }
    std::fs::write(bench.node.dir.join("kmsg"), log).unwrap();
    assert_eq!(bench.prolog(7, "1").code, Some(0), "{}", bench.node.log());
    let size = std::fs::metadata(bench.node.dir.join("run/boot.json")).unwrap().len();
    assert!(size < 512 * 1024, "{size} bytes");
}

/// What `gpuward xid` prints for `text`.
fn decoded(args: &[&str], text: &str) -> String {
    let mut command = std::process::Command::new(gpuward_tests::cluster::built("gpuward").unwrap());
    command.arg("xid").args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn gpuward_xid_tells_one_object_a_line_in_every_form_of_log() {
    let text = "NVRM: Xid (PCI:0000:3b:00 GPU-I:05 GPU-CI:01): 31, pid=7, name=py, Ch 00000003, intr 0";
    let export = format!("__CURSOR=a\n_TRANSPORT=kernel\nSYSLOG_FACILITY=0\nMESSAGE={text}\n\n");
    for log in [
        format!("[   12.5] {text}\n"),
        format!("[Tue Dec  1 18:09:17 2026] {text}\n"),
        format!("kern  :err   : [   12.5] {text}\n"),
        format!("Dec 01 18:09:17 n1 kernel: {text}\n"),
        format!("{text}\n"),
        format!("3,1,2,-;{text}\n SUBSYSTEM=pci\n"),
        export,
    ] {
        let out = decoded(&[], &log);
        let event: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {log}\n{out}"));
        assert_eq!(
            (event["code"].as_str(), event["pci"].as_str()),
            (Some("XID31"), Some("0000:3b:00.0")),
            "{log}"
        );
        assert_eq!(
            (event["gi"].as_u64(), event["ci"].as_u64(), event["pid"].as_u64()),
            (Some(5), Some(1), Some(7))
        );
        assert_eq!(
            (event["class"].as_str(), event["action"].as_str()),
            (Some("application"), Some("ignore"))
        );
        for key in ["meaning", "remedy", "source", "message"] {
            assert!(event[key].as_str().is_some_and(|text| !text.is_empty()), "{key}: {event}");
        }
    }
    assert_eq!(decoded(&[], "Dec 01 18:09:17 n1 sshd[3]: NVRM: Xid (PCI:0000:3b:00): 79, x\n"), "");
}

#[test]
fn gpuward_xid_folds_repeats_and_says_what_it_does_not_know() {
    let line = |channel: u32| format!("NVRM: Xid (PCI:0000:3b:00): 45, pid=7, name=py, Ch {channel:08x}\n");
    let log: String = (0..64).map(line).collect();
    assert_eq!(decoded(&[], &log).lines().count(), 64);
    let folded: Value = serde_json::from_str(&decoded(&["--fold"], &log)).unwrap();
    assert_eq!(folded["count"].as_u64(), Some(64));
    let table = decoded(&["--table", "--fold"], &log);
    assert_eq!(table.lines().count(), 2, "{table}");
    let unknown = decoded(&[], "NVRM: Xid (PCI:0000:3b:00): 999, x\n");
    assert!(
        unknown.contains("XID 999 is not in the catalogue") && unknown.contains("\"action\":\"warn\""),
        "{unknown}"
    );
    let renumbered = "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 28001, x\n";
    assert!(decoded(&[], renumbered).contains("name the driver's version with --driver"));
    assert!(decoded(&["--driver", "570.124.06"], renumbered).contains("osfp"));
    assert!(decoded(&["--driver", "535.1"], renumbered).contains("row 29001"));
    assert!(decoded(&["--table"], "").contains("no XID"));
}
