use super::*;
use crate::health::History;
use crate::health::tests::{expected, healthy, whole};
use crate::model::Reading;
use crate::model::detail::{BoardReading, GpuDetail, MigReading};

fn uuid(at: usize) -> GpuUuid {
    format!("GPU-8932f937-d72c-4106-c12f-20bd9faed9f{at}").parse().unwrap()
}

/// The healthy node's two probed GPUs, each with its name.
fn named() -> Snapshot {
    let mut snapshot = healthy();
    for (at, gpu) in snapshot.gpus.iter_mut().enumerate() {
        gpu.reading.uuid = Reading::Value(uuid(at));
        gpu.reading.serial = Reading::Value(format!("16{at}"));
        gpu.reading.model = Reading::Value("NVIDIA H100".into());
        gpu.reading.detail = Some(Box::new(GpuDetail::default()));
    }
    snapshot
}

fn known(snapshot: &Snapshot) -> Expected {
    let known = |gpu: &ProbedGpu| KnownGpu {
        serial: gpu.reading.serial.value().cloned(),
        ..KnownGpu::only(gpu.pci().unwrap(), gpu.reading.uuid.value().unwrap().clone())
    };
    Expected { gpu_count: None, known: snapshot.gpus.iter().map(known).collect(), ..expected() }
}

fn told(snapshot: &Snapshot, expected: &Expected) -> Vec<(String, Severity, String)> {
    let findings = whole(snapshot, expected, &History::default(), true);
    findings.into_iter().map(|finding| (finding.code, finding.severity, finding.what)).collect()
}

fn one(code: &str, severity: Severity, what: &str) -> Vec<(String, Severity, String)> {
    vec![(code.to_owned(), severity, what.to_owned())]
}

#[test]
fn a_gpu_that_is_gone_from_its_slot_fails_the_node_and_is_named() {
    let mut snapshot = named();
    let expected = known(&snapshot);
    assert_eq!(told(&snapshot, &expected), []);
    let gone = snapshot.gpus.remove(1).pci().unwrap();
    assert_eq!(told(&snapshot, &expected), [], "its slot is not empty, it was just not asked about");
    snapshot.host.pci_gpus =
        snapshot.host.pci_gpus.map(|gpus| gpus.into_iter().filter(|pci| *pci != gone).collect());
    snapshot.node.gpu_count = Reading::Value(3);
    assert_eq!(told(&snapshot, &expected), one("GPU_CHANGED", Severity::Fail, "gone from its slot"));
    let findings = whole(&snapshot, &expected, &History::default(), false);
    assert_eq!(findings[0].subject.to_string(), "GPU 0000:2a:00.0 GPU-8932f937", "whatever GPUs a job has");
    snapshot.host.pci_gpus = Reading::Failed(0);
    assert_eq!(told(&snapshot, &expected), [], "nobody can tell");
}

#[test]
fn a_gpu_in_another_slot_or_another_in_its_slot_is_a_warning() {
    let before = named();
    let expected = known(&before);
    let mut swapped = before.clone();
    for (at, gpu) in swapped.gpus.iter_mut().enumerate() {
        gpu.reading.uuid = Reading::Value(uuid(1 - at));
    }
    let moved = |to: &str| ("GPU_CHANGED".to_owned(), Severity::Warn, format!("moved to {to}"));
    assert_eq!(told(&swapped, &expected), [moved("0000:2a:00.0"), moved("0000:1a:00.0")]);
    let mut replaced = before.clone();
    replaced.gpus[0].reading.uuid =
        Reading::Value("GPU-11112222-d72c-4106-c12f-20bd9faed9f6".parse().unwrap());
    assert_eq!(told(&replaced, &expected), one("GPU_CHANGED", Severity::Warn, "replaced by GPU-11112222"));
    let mut serial = before.clone();
    serial.gpus[0].reading.serial = Reading::Value("999".into());
    assert_eq!(told(&serial, &expected), one("GPU_CHANGED", Severity::Warn, "another serial number"));
    serial.gpus[0].reading.serial = Reading::NotSupported;
    assert_eq!(told(&serial, &expected), []);
    let mut unread = before;
    unread.gpus[0].reading.uuid = Reading::NotSupported;
    assert_eq!(told(&unread, &expected), []);
}

#[test]
fn firmware_is_compared_among_gpus_of_one_kind_only() {
    let board = |vbios: &str, part: &str, gsp: bool| BoardReading {
        vbios: Reading::Value(vbios.into()),
        part_number: Reading::Value(part.into()),
        gsp: Reading::Value(gsp),
        ..BoardReading::default()
    };
    let with = |boards: [BoardReading; 2]| {
        let mut snapshot = named();
        for (gpu, board) in snapshot.gpus.iter_mut().zip(boards) {
            gpu.reading.detail.as_mut().unwrap().board = board;
        }
        told(&snapshot, &expected())
    };
    assert_eq!(with([board("96.00.89", "a", true), board("96.00.89", "a", true)]), []);
    let mixed = "VBIOS of 0000:2a:00.0 differs from its like";
    let found = with([board("96.00.89", "a", true), board("96.00.9F", "a", true)]);
    assert_eq!(found, one("VBIOS_MIX", Severity::Warn, mixed));
    assert_eq!(with([board("96.00.89", "a", true), board("96.00.9F", "b", true)]), [], "another part");
    let found = with([board("96.00.89", "a", true), board("96.00.89", "a", false)]);
    assert_eq!((found[0].0.as_str(), found[0].1), ("GSP_INFO", Severity::Info));
    let mut unread = board("", "a", true);
    unread.vbios = Reading::NotSupported;
    assert_eq!(with([board("96.00.89", "a", true), unread]), []);
}

/// The first GPU under MIG with these devices; `None` for a name that is not told.
fn cut(now: bool, next: bool, names: &[Option<&str>]) -> Snapshot {
    let mut snapshot = named();
    snapshot.gpus[0].reading.mig = Reading::Value(now);
    snapshot.gpus[1].reading.mig = Reading::NotSupported;
    let device = |name: &Option<&str>| MigDeviceReading {
        name: name.map_or(Reading::NotRead, |name| Reading::Value(format!("NVIDIA H100 MIG {name}"))),
        ..MigDeviceReading::default()
    };
    snapshot.gpus[0].reading.detail.as_mut().unwrap().mig = MigReading {
        pending: Reading::Value(next),
        max_devices: Reading::Value(7),
        devices: names.iter().map(device).collect(),
    };
    snapshot
}

#[test]
fn another_mig_layout_than_configured_fails_and_a_mode_that_waits_warns() {
    let wanted = |profiles: &[&str]| Expected {
        mig: Some((profiles.iter().map(|name| (*name).to_owned()).collect(), "gpuward.toml".into())),
        ..expected()
    };
    let two = [Some("3g.40gb"), Some("1g.10gb")];
    assert_eq!(told(&cut(true, true, &two), &wanted(&["1g.10gb", "3g.40gb"])), []);
    assert_eq!(told(&cut(false, false, &[]), &wanted(&[])), []);
    let fail = |what| one("MIG_LAYOUT", Severity::Fail, what);
    assert_eq!(told(&cut(true, true, &two), &wanted(&["1g.10gb"])), fail("MIG layout: 1g.10gb 3g.40gb"));
    assert_eq!(told(&cut(true, true, &[]), &wanted(&[])), fail("MIG layout: MIG on"));
    assert_eq!(told(&cut(true, true, &[]), &wanted(&["1g.10gb"])), fail("MIG layout: no device"));
    assert_eq!(told(&cut(false, false, &[]), &wanted(&["1g.10gb"])), fail("MIG layout: MIG off"));
    assert_eq!(told(&cut(true, true, &two), &expected()), [], "nobody says what it should be");
    assert_eq!(
        told(&cut(true, true, &[Some("3g.40gb"), None]), &wanted(&["1g.10gb"])),
        [],
        "a name is not told"
    );
    let waits = one("MIG_LAYOUT", Severity::Warn, "MIG is on, and off after the next reset");
    assert_eq!(told(&cut(true, false, &two), &wanted(&["1g.10gb"])), waits);
    let mut unread = cut(true, false, &two);
    unread.gpus[0].reading.detail.as_mut().unwrap().mig = MigReading::default();
    assert_eq!(told(&unread, &wanted(&["1g.10gb"])), [], "a look before a job lists no devices");
}

#[test]
fn findings_do_not_depend_on_the_order_of_the_gpus() {
    let mut snapshot = named();
    let expected = known(&snapshot);
    for (at, gpu) in snapshot.gpus.iter_mut().enumerate() {
        gpu.reading.uuid = Reading::Value(uuid(1 - at));
        gpu.reading.detail.as_mut().unwrap().board.vbios = Reading::Value(format!("9{at}"));
    }
    let sorted = |snapshot: &Snapshot| {
        let mut found = whole(snapshot, &expected, &History::default(), true);
        found.sort_by_key(|finding| format!("{finding:?}"));
        found
    };
    let forwards = sorted(&snapshot);
    snapshot.gpus.reverse();
    assert_eq!(sorted(&snapshot), forwards);
    assert_eq!(forwards.len(), 3);
}
