use super::*;
use crate::health::tests::{expected, healthy, whole};
use crate::health::{History, KnownGpu, Limits, evaluate};
use crate::model::detail::{FabricReading, GpuDetail};
use crate::model::topology::HostLayout;

fn told_with(snapshot: &Snapshot, expected: &Expected) -> Vec<(String, Severity)> {
    let findings = whole(snapshot, expected, &History::default(), true);
    findings.into_iter().map(|finding| (finding.code, finding.severity)).collect()
}

fn told(snapshot: &Snapshot) -> Vec<(String, Severity)> {
    told_with(snapshot, &expected())
}

fn one(code: &str, severity: Severity) -> Vec<(String, Severity)> {
    vec![(code.to_owned(), severity)]
}

#[test]
fn a_missing_uvm_is_worth_a_line_and_a_warning_only_where_it_cannot_come() {
    let mut snapshot = healthy();
    snapshot.host.platform.uvm = Reading::Value(false);
    assert_eq!(told(&snapshot), one("UVM_MISSING", Severity::Info));
    snapshot.host.platform.lockdown = Reading::Value("none".into());
    assert_eq!(told(&snapshot), one("UVM_MISSING", Severity::Info));
    snapshot.host.platform.lockdown = Reading::Value("integrity".into());
    let locked = [("UVM_MISSING".to_owned(), Severity::Warn), ("MOD_REFUSED".to_owned(), Severity::Info)];
    assert_eq!(told(&snapshot), locked);
    snapshot.host.platform.uvm = Reading::Value(true);
    assert_eq!(told(&snapshot), [], "signed modules are loaded");
    snapshot.host.platform.uvm = Reading::NotRead;
    assert_eq!(told(&snapshot), []);
    snapshot.host.module_loaded = Reading::Value(false);
    snapshot.host.platform.uvm = Reading::Value(false);
    snapshot.node = crate::model::NodeReading::default();
    let unloaded = [("DRV_UNLOADED".to_owned(), Severity::Fail), ("MOD_REFUSED".to_owned(), Severity::Info)];
    assert_eq!(told(&snapshot), unloaded, "one word on the missing driver is enough");
}

/// The healthy node's four GPUs, the second with another driver.
fn bound_to(driver: Option<&str>) -> Snapshot {
    let mut snapshot = healthy();
    let gpu = |(at, &pci): (usize, &crate::model::PciAddress)| BoundGpu {
        pci,
        driver: if at == 1 { driver.map(Into::into) } else { Some("nvidia".into()) },
        iommu: None,
    };
    let pcis = snapshot.host.pci_gpus.value().unwrap();
    snapshot.host.platform.bound = Reading::Value(pcis.iter().enumerate().map(gpu).collect());
    snapshot
}

fn known() -> Expected {
    let known = KnownGpu::only(
        healthy().host.pci_gpus.value().unwrap()[1],
        "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6".parse().unwrap(),
    );
    Expected { gpu_count: None, known: vec![known], ..Expected::default() }
}

#[test]
fn nouveau_is_a_fault_only_on_a_gpu_that_is_needed() {
    let snapshot = bound_to(Some("nouveau"));
    assert_eq!(told(&snapshot), one("GPU_FOREIGN", Severity::Fail), "three of four are left");
    let enough = Expected { gpu_count: Some((3, "gres.conf".into())), ..Expected::default() };
    assert_eq!(told_with(&snapshot, &enough), one("GPU_FOREIGN", Severity::Warn), "a console card");
    assert_eq!(told_with(&snapshot, &known()), one("GPU_FOREIGN", Severity::Fail), "it computed before");
    assert_eq!(
        told(&bound_to(Some("snd_x"))),
        one("GPU_FOREIGN", Severity::Warn),
        "nobody knows what that is"
    );
    for fine in [Some("nvidia"), Some("vfio-pci"), None] {
        assert_eq!(told(&bound_to(fine)), [], "{fine:?}");
    }
    // The whole of it is named, also where the job has other GPUs.
    let findings = whole(&snapshot, &expected(), &History::default(), true);
    assert!(findings[0].subject.to_string().contains("0000:2a:00.0"), "{findings:?}");
}

fn with_nic(link_layer: &str) -> Snapshot {
    let mut snapshot = healthy();
    let nic = NicReading {
        name: "mlx5_0".into(),
        pci: None,
        net: None,
        link_layer: Some(link_layer.into()),
        state: None,
        link_state: None,
        rate: None,
    };
    snapshot.host.layout = Some(HostLayout { nics: Reading::Value(vec![nic]), ..HostLayout::default() });
    snapshot.host.platform.peermem = Reading::Value(false);
    snapshot.host.platform.kernel = Reading::Value("5.11.0-27-generic".into());
    snapshot
}

#[test]
fn peermem_is_missed_only_where_nothing_stands_in_for_it() {
    assert_eq!(told(&with_nic("InfiniBand")), one("PEERMEM", Severity::Warn));
    assert_eq!(told(&with_nic("Ethernet")), []);
    for kernel in ["5.12.0", "6.1.0-18-amd64", "?"] {
        let mut snapshot = with_nic("InfiniBand");
        snapshot.host.platform.kernel = Reading::Value(kernel.into());
        assert_eq!(told(&snapshot), [], "{kernel}");
    }
    for loaded in [Reading::Value(true), Reading::NotRead] {
        let mut snapshot = with_nic("InfiniBand");
        snapshot.host.platform.peermem = loaded;
        assert_eq!(told(&snapshot), []);
    }
}

#[test]
fn imex_is_missed_only_in_a_domain_of_several_nodes() {
    let tray = |cluster: &str, channels, service| {
        let mut snapshot = healthy();
        let fabric = FabricReading { state: 3, cluster_uuid: cluster.into(), ..FabricReading::default() };
        let detail = GpuDetail { fabric: Reading::Value(fabric), ..GpuDetail::default() };
        snapshot.gpus[0].reading.detail = Some(Box::new(detail));
        snapshot.host.platform.imex_channels = channels;
        snapshot.host.platform.imex_service = service;
        told(&snapshot)
    };
    let (none, no) = (Reading::Value(0), Reading::Value(false));
    assert_eq!(tray("a-b", none, no), one("IMEX", Severity::Warn));
    assert_eq!(tray("", none, no), []);
    assert_eq!(tray("a-b", Reading::Value(1), no), []);
    assert_eq!(tray("a-b", none, Reading::Value(true)), []);
    assert_eq!(tray("a-b", Reading::NotRead, no), []);
    assert_eq!(tray("a-b", none, Reading::NotRead), []);
}

#[test]
fn a_driver_is_too_old_only_for_a_cuda_that_the_site_names() {
    let told = |cuda_major, driver: &str| {
        let mut snapshot = healthy();
        snapshot.host.module_version = Reading::NotRead;
        snapshot.node.driver_version = Reading::Value(driver.into());
        let limits = Limits { cuda_major, ..Limits::default() };
        let (expected, history) = (expected(), History::default());
        let case = Case {
            snapshot: &snapshot,
            expected: &expected,
            history: &history,
            limits: &limits,
            gpu_map_certain: true,
        };
        evaluate(&case).into_iter().map(|finding| (finding.code, finding.severity)).collect::<Vec<_>>()
    };
    assert_eq!(told(13, "570.124.06"), one("CUDA_DRIVER", Severity::Info));
    for (major, driver) in [(13, "580.65.06"), (12, "525.60.13"), (0, "390.1"), (14, "570.1"), (13, "?")] {
        assert_eq!(told(major, driver), [], "{major} {driver}");
    }
}
