use super::*;
use crate::health::{Remedy, Subject};

fn snapshot(gpus: u8) -> Snapshot {
    let gpu = |at: u8| {
        let pci = format!("0000:{at:02x}:00.0");
        let detail = serde_json::json!({
            "pcie": { "width": { "value": 16 }, "generation": { "value": 1 } },
            "clocks": { "pstate": { "value": 8 } },
            "nvlinks": [{ "link": 0, "up": { "value": true } }, { "link": 1, "up": { "value": false } }],
            "processes": { "value": [] }, "memory": { "used_mib": { "value": 3 } },
        });
        serde_json::from_value(serde_json::json!({
            "target": { "pci": pci },
            "reading": {
                "handle": { "value": null }, "pci": { "value": pci }, "uuid": { "value": format!("GPU-{at:08}") },
                "model": { "value": "NVIDIA H100" }, "serial": { "value": format!("s{at}") },
                "mig": { "value": false }, "detail": detail,
            },
        }))
        .unwrap()
    };
    let mut snapshot = Snapshot { gpus: (0..gpus).map(gpu).collect(), ..Snapshot::default() };
    snapshot.node.nvml = Reading::Value(());
    snapshot.probe = ProbeOutcome::Finished { took_ms: 1 };
    snapshot
}

fn finding(severity: Severity) -> Finding {
    Finding {
        code: "X".into(),
        severity,
        subject: Subject::Node,
        what: "x".into(),
        value: None,
        limit: None,
        source: "x".into(),
        why: "x".into(),
        remedy: Remedy::Admin,
    }
}

fn promised(by: &str, count: u32) -> Expected {
    match by {
        "gres.conf" => Expected { gres_conf: Some(count), ..Expected::default() },
        "slurm.conf" => Expected { slurm_conf: Some(count), ..Expected::default() },
        other => Expected { gpu_count: Some((count, other.into())), ..Expected::default() },
    }
}

#[test]
fn a_clean_look_is_remembered_with_what_it_read() {
    let gpus = learn(&snapshot(8), &promised("gres.conf", 8), &[finding(Severity::Info)]).unwrap().gpus;
    assert_eq!(gpus.len(), 8);
    let first = &gpus[0];
    assert_eq!((first.pcie_width, first.nvlinks, first.idle_memory_mib), (Some(16), Some(1), Some(3)));
    assert_eq!(first.pcie_generation, None, "an idle GPU goes down to generation 1");
    assert_eq!((first.serial.as_deref(), first.numa_node, first.peers_ok.as_ref()), (Some("s0"), None, None));
}

#[test]
fn seven_of_eight_are_never_learned_whoever_promises_eight() {
    for by in ["gres.conf", "slurm.conf", "gpuward.toml"] {
        let why = learn(&snapshot(7), &promised(by, 8), &[]).unwrap_err();
        assert_eq!(why, format!("it has 7 GPUs, {by} promises 8"));
        assert_eq!(present(&snapshot(7), &promised(by, 8)).unwrap_err(), why, "nor accepted");
        assert!(learn(&snapshot(9), &promised(by, 8), &[]).is_ok());
    }
    let learned =
        Expected::default().completed(None, learn(&snapshot(8), &Expected::default(), &[]).unwrap());
    assert!(present(&snapshot(7), &learned).is_ok(), "what was learned is an admin's to change");
}

#[test]
fn instances_count_where_slurm_counts_instances() {
    let mut mig = snapshot(2);
    for gpu in &mut mig.gpus {
        gpu.reading.mig = Reading::Value(true);
        gpu.reading.detail.as_mut().unwrap().mig.devices = vec![Default::default(); 7];
    }
    assert!(learn(&mig, &promised("slurm.conf", 14), &[]).is_ok());
    assert!(learn(&mig, &promised("slurm.conf", 21), &[]).is_err());
}

#[test]
fn an_unclean_look_or_a_gpu_that_did_not_answer_is_not_learned() {
    for severity in [Severity::Unknown, Severity::Warn, Severity::Fail] {
        assert_eq!(
            learn(&snapshot(8), &Expected::default(), &[finding(severity)]).unwrap_err(),
            "the look was not clean (X node)"
        );
    }
    let mut silent = snapshot(8);
    silent.gpus[3].reading.handle = Reading::TimedOut;
    assert_eq!(
        learn(&silent, &Expected::default(), &[]).unwrap_err(),
        "GPU 0000:03:00.0 GPU-00000003 did not answer"
    );
    let mut nameless = snapshot(8);
    nameless.gpus[3].reading.uuid = Reading::NotSupported;
    assert!(learn(&nameless, &Expected::default(), &[]).is_err());
    let mut busy = snapshot(8);
    busy.probe = ProbeOutcome::Busy;
    assert!(learn(&busy, &Expected::default(), &[]).is_err());
    assert!(learn(&snapshot(0), &Expected::default(), &[]).is_err());
}

#[test]
fn a_file_reads_back_and_what_is_no_such_file_says_why() {
    let file =
        KnownFile::new("n1", How::Learned, 7, "b", present(&snapshot(2), &Expected::default()).unwrap());
    let text = serde_json::to_string(&file).unwrap();
    assert_eq!(KnownFile::parse(&text, "n1"), Ok(file));
    let error = |text: &str| KnownFile::parse(text, "n1").unwrap_err().to_string();
    for at in 0..text.len() {
        assert!(
            error(&text[..at]).starts_with("not readable as what the node was known to be"),
            "torn at {at}"
        );
    }
    let newer = text.replace("\"gpuward_known\":1", "\"gpuward_known\":2");
    assert!(error(&newer).starts_with("version 2 of the format, written by gpuward "), "{}", error(&newer));
    assert!(KnownFile::parse(&text, "n2").unwrap_err().to_string().starts_with("it is about node n1;"));
    assert!(error("{\"gpuward_snapshot\": 1}").contains("no gpuward_known"));
}

#[test]
fn what_differs_is_told_slot_by_slot_and_what_was_not_read_is_not() {
    let before = present(&snapshot(3), &Expected::default()).unwrap();
    assert_eq!(changes(&before, &before), []);
    let mut seen = before.clone();
    let now = &mut seen.gpus;
    now[0].serial = None;
    now[1].nvlinks = Some(0);
    let swapped = now.remove(2);
    now.push(KnownGpu { pci: "0000:0f:00.0".parse().unwrap(), ..swapped });
    let told: Vec<(String, &str, Option<String>, Option<String>)> = changes(&before, &seen)
        .into_iter()
        .map(|change| (change.pci.to_string(), change.what, change.before, change.now))
        .collect();
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(
        told,
        [
            ("0000:01:00.0".to_owned(), "NVLinks up", text("1"), text("0")),
            ("0000:02:00.0".to_owned(), "GPU", text("GPU-00000002"), None),
            ("0000:0f:00.0".to_owned(), "GPU", None, text("GPU-00000002")),
        ]
    );
}

#[test]
fn a_port_that_changed_is_told_and_one_that_came_or_cannot_be_read_is_not() {
    let nic = |name: &str, up, rate_gbps| KnownNic {
        name: name.into(),
        pci: "0000:0a:00.0".parse().ok(),
        up,
        rate_gbps,
    };
    let seen = |nics: &[KnownNic]| Seen { nics: nics.to_vec(), ..Seen::default() };
    let before = seen(&[nic("mlx5_0", true, Some(400)), nic("mlx5_1", true, Some(400))]);
    let now = seen(&[nic("mlx5_0", false, None), nic("mlx5_1", true, Some(200)), nic("mlx5_2", true, None)]);
    let text = |text: &str| Some(text.to_owned());
    let told: Vec<_> =
        changes(&before, &now).into_iter().map(|change| (change.what, change.before, change.now)).collect();
    assert_eq!(told, [("RDMA port", text("up"), text("down")), ("RDMA Gb/s", text("400"), text("200"))]);
}
