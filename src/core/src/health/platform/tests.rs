use super::*;
use crate::health::tests::{expected, healthy};
use crate::health::{History, Limits, Severity, evaluate};
use crate::model::platform::SwitchPort;
use crate::model::snapshot::DriverGpu;
use crate::model::topology::{Core, HostLayout};

fn told_by(snapshot: &Snapshot, limits: &Limits) -> Vec<(String, Severity)> {
    let (expected, history) = (expected(), History::default());
    let case = Case { snapshot, expected: &expected, history: &history, limits, gpu_map_certain: true };
    evaluate(&case).into_iter().map(|finding| (finding.code, finding.severity)).collect()
}

fn told(snapshot: &Snapshot) -> Vec<(String, Severity)> {
    told_by(snapshot, &Limits::default())
}

fn warns(code: &str) -> Vec<(String, Severity)> {
    vec![(code.to_owned(), Severity::Warn)]
}

fn bare_metal() -> Snapshot {
    let mut snapshot = healthy();
    snapshot.host.platform.virtual_machine = Reading::Value(false);
    snapshot
}

/// Nothing may be said where this is a virtual machine, or nobody knows whether.
fn only_on_bare_metal(snapshot: &Snapshot) {
    for virtual_machine in [Reading::Value(true), Reading::NotRead, Reading::NotSupported] {
        let mut other = snapshot.clone();
        other.host.platform.virtual_machine = virtual_machine;
        assert_eq!(told(&other), []);
    }
}

#[test]
fn redirected_peer_traffic_is_told_on_bare_metal_only() {
    let ports = |controls: &[u16]| {
        let mut snapshot = bare_metal();
        let port = |&acs_control: &u16| SwitchPort { pci: "0000:18:00.0".parse().unwrap(), acs_control };
        snapshot.host.platform.switch_ports = Reading::Value(controls.iter().map(port).collect());
        snapshot
    };
    assert_eq!(told(&ports(&[0, 0x1d])), warns("IOMMU_ACS"));
    assert_eq!(told(&ports(&[0x04])), warns("IOMMU_ACS"));
    assert_eq!(told(&ports(&[0x08])), warns("IOMMU_ACS"));
    // Source validation, blocking, forwarding and egress control redirect nothing between peers.
    assert_eq!(told(&ports(&[0x73])), []);
    assert_eq!(told(&ports(&[])), []);
    only_on_bare_metal(&ports(&[0x1d]));
}

fn grouped(kind: Option<&str>, gpus: u8) -> Snapshot {
    let mut snapshot = bare_metal();
    let gpu = |at: u8| BoundGpu {
        pci: format!("0000:{at}a:00.0").parse().unwrap(),
        driver: Some("nvidia".into()),
        iommu: kind.map(Into::into),
    };
    snapshot.host.platform.bound = Reading::Value((1..=gpus).map(gpu).collect());
    snapshot
}

#[test]
fn translation_is_told_by_the_kernels_own_word_first() {
    assert_eq!(told(&grouped(Some("DMA-FQ"), 4)), warns("IOMMU_ACS"));
    assert_eq!(told(&grouped(Some("DMA"), 4)), warns("IOMMU_ACS"));
    assert_eq!(told(&grouped(Some("identity"), 4)), []);
    assert_eq!(told(&grouped(Some("DMA"), 1)), [], "no peer");
    only_on_bare_metal(&grouped(Some("DMA"), 4));
    let old_kernel = |line: &str, iommus| {
        let mut snapshot = grouped(None, 4);
        snapshot.host.platform.command_line = Reading::Value(line.into());
        snapshot.host.platform.iommus = iommus;
        told(&snapshot)
    };
    assert_eq!(old_kernel("quiet intel_iommu=on", Reading::Value(4)), warns("IOMMU_ACS"));
    assert_eq!(old_kernel("quiet intel_iommu=on iommu=pt", Reading::Value(4)), []);
    assert_eq!(old_kernel("intel_iommu=on", Reading::Value(0)), [], "none at work");
    assert_eq!(old_kernel("intel_iommu=on", Reading::NotRead), []);
    assert_eq!(old_kernel("quiet", Reading::Value(4)), [], "the kernel's default is not known");
}

#[test]
fn a_gpu_without_a_numa_node_is_told_where_there_are_several_sockets() {
    let machine = |sockets: u32, numa_node| {
        let mut snapshot = bare_metal();
        let core = |package| Core { package, core: 0, cpus: Default::default(), l3_cpus: None };
        let cores = Reading::Value((0..sockets).map(core).collect());
        snapshot.host.layout = Some(HostLayout { cores, ..HostLayout::default() });
        snapshot.host.driver_gpus = vec![DriverGpu {
            aer: Reading::NotRead,
            pci: "0000:1a:00.0".parse().unwrap(),
            uuid: None,
            minor: None,
            mig_instances: 0,
            model: None,
            numa_node,
            local_cpus: None,
            link: Default::default(),
            port_link: Default::default(),
        }];
        snapshot
    };
    assert_eq!(told(&machine(2, None)), warns("NUMA"));
    assert_eq!(told(&machine(2, Some(0))), []);
    assert_eq!(told(&machine(1, None)), []);
    only_on_bare_metal(&machine(2, None));
}

#[test]
fn clocks_of_cpus_are_held_against_what_the_site_wants_only() {
    let mut snapshot = healthy();
    snapshot.host.platform.governor = Reading::Value("powersave".into());
    snapshot.host.platform.idle_latency_us = Reading::Value(133);
    assert_eq!(told(&snapshot), []);
    let limits = Limits { cpu_governor: "performance".into(), cpu_idle_latency_us: 132, ..Limits::default() };
    let info = ("CSTATE".to_owned(), Severity::Info);
    assert_eq!(told_by(&snapshot, &limits), [info.clone(), info]);
    let fits = Limits { cpu_governor: "powersave".into(), cpu_idle_latency_us: 133, ..Limits::default() };
    assert_eq!(told_by(&snapshot, &fits), []);
    assert_eq!(told_by(&healthy(), &limits), [], "not read");
}
