//! Every machine in tests/scenarios, read in three ways that share no code: through nvml-wrapper's safe calls, through
//! bare C calls, and by gpuward's own probe. What they say must be one and the same.
#![allow(clippy::tests_outside_test_module)]

use gpuward_core::model::snapshot::ProbeOutcome;
use gpuward_core::model::{PciAddress, Reading, Snapshot, SnapshotFile, Topology};
use gpuward_tests::readers::diff::differences;
use gpuward_tests::readers::{Seen, raw, wrapper};
use gpuward_tests::sim::Bench;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Counters grow with the time since boot: where that stands still, all readers see the same.
const FROZEN: &str = "frozen_boottime_ms = 86400000\n";

/// How long `gpuward snapshot` gives the driver, and so the bare calls, too.
const DEADLINE: Duration = Duration::from_secs(10);

/// The names of all machines.
fn machines() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let machines = files.filter(|path| path.extension().is_some_and(|ending| ending == "toml"));
    let mut names: Vec<String> =
        machines.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned()).collect();
    names.sort();
    assert!(names.len() > 1, "{names:?}");
    names
}

/// One simulated machine on which time stands still.
struct Still {
    name: String,
    bench: Bench,
}

impl Still {
    fn new(name: &str) -> Still {
        let still = Still { name: name.to_owned(), bench: Bench::new(name, "observe", "") };
        still.fault("");
        still
    }

    /// From now on the library misbehaves as `script` says.
    fn fault(&self, script: &str) {
        self.bench.node.fault(&format!("{FROZEN}{script}"));
    }

    fn library(&self) -> PathBuf {
        self.bench.node.dir.join("lib/libnvidia-ml.so.1")
    }

    /// The addresses of all GPUs as the machine's file states them, ascending.
    fn addresses(&self) -> Vec<PciAddress> {
        let gpus = self.bench.node.machine.gpus.iter();
        let mut addresses: Vec<PciAddress> = gpus.map(|gpu| gpu.pci.to_string().parse().unwrap()).collect();
        addresses.sort();
        addresses
    }

    /// What gpuward reads, without how long it took.
    fn probe(&self) -> Snapshot {
        let mut snapshot = self.bench.snapshot().snapshot;
        for gpu in &mut snapshot.gpus {
            gpu.reading.took_us = 0;
        }
        let asked: Vec<PciAddress> = snapshot.gpus.iter().filter_map(|gpu| gpu.target.pci).collect();
        assert_eq!(asked, self.addresses(), "{}", self.name);
        snapshot
    }

    fn raw(&self) -> Seen {
        raw::read(&self.library(), &self.addresses(), DEADLINE)
    }

    fn wrapper(&self) -> Seen {
        wrapper::read(&self.library(), &self.addresses())
    }

    /// Where two snapshots of this machine differ: machine, GPU, field, both values.
    fn differences(&self, left: (&str, &Snapshot), right: (&str, &Snapshot)) -> Vec<String> {
        let node = |snapshot: &Snapshot| Snapshot { gpus: Vec::new(), ..snapshot.clone() };
        let (left_node, right_node) = (node(left.1), node(right.1));
        let of_node = differences((left.0, &left_node), (right.0, &right_node));
        let mut found: Vec<String> = of_node.iter().map(|line| format!("{}: {line}", self.name)).collect();
        assert_eq!(left.1.gpus.len(), right.1.gpus.len(), "{}", self.name);
        for (gpu, other) in left.1.gpus.iter().zip(&right.1.gpus) {
            let pci = gpu.target.pci.unwrap();
            let of_gpu = differences((left.0, gpu), (right.0, other));
            found.extend(of_gpu.iter().map(|line| format!("{} {pci}: {line}", self.name)));
        }
        found
    }
}

/// `snapshot` as it were if `seen` had been read from the driver.
fn with(snapshot: &Snapshot, seen: Seen) -> Snapshot {
    let mut snapshot = Snapshot { node: seen.node, ..snapshot.clone() };
    assert_eq!(snapshot.gpus.len(), seen.gpus.len());
    for (gpu, reading) in snapshot.gpus.iter_mut().zip(seen.gpus) {
        gpu.reading = reading;
    }
    snapshot
}

fn without_what_the_wrapper_lacks(snapshot: &Snapshot) -> Snapshot {
    let mut snapshot = snapshot.clone();
    snapshot.gpus.iter_mut().for_each(|gpu| wrapper::blank(&mut gpu.reading));
    snapshot
}

fn none(differences: Vec<String>) {
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn every_machine_is_one_snapshot_read_in_three_ways() {
    let mut found = Vec::new();
    for name in machines() {
        let still = Still::new(&name);
        let probe = still.probe();
        let raw = with(&probe, still.raw());
        found.extend(still.differences(("probe", &probe), ("raw", &raw)));
        let wrapper = with(&probe, still.wrapper());
        let known = without_what_the_wrapper_lacks(&probe);
        found.extend(still.differences(("probe", &known), ("wrapper", &wrapper)));
    }
    none(found);
}

#[test]
fn a_snapshot_reads_back_as_it_was_written() {
    for name in machines() {
        let still = Still::new(&name);
        for fault in ["", "[[lost]]\ngpu = 0\n"] {
            still.fault(fault);
            let file = still.bench.snapshot();
            let text = serde_json::to_string(&file).unwrap();
            let again = SnapshotFile::parse(&text).unwrap();
            assert_eq!(again, file, "{name}");
            assert_eq!(serde_json::to_string(&again).unwrap(), text, "{name}");
            let handle = file.snapshot.gpus[0].reading.handle;
            assert_eq!(handle == Reading::Value(()), fault.is_empty(), "{name}: {handle:?}");
            if fault.is_empty() {
                assert_eq!(Topology::of_snapshot(&file.snapshot).notes, Vec::<String>::new(), "{name}");
            }
        }
    }
}

#[test]
fn a_sick_machine_is_one_snapshot_read_by_bare_calls_and_by_the_probe() {
    let mut found = Vec::new();
    for name in machines() {
        let still = Still::new(&name);
        let faults = ["[[lost]]\ngpu = 0\n".to_owned(), "[[lost]]\ngpu = 0\nvanish = true\n".to_owned()];
        let rounds = (0..CODES.len()).map(|round| each_function_refused(still.addresses().len(), round));
        for script in faults.into_iter().chain(rounds) {
            still.fault(&script);
            let probe = still.probe();
            let raw = with(&probe, still.raw());
            found.extend(still.differences(("probe", &probe), ("raw", &raw)));
        }
    }
    none(found);
}

/// No permission, GPU is lost, reset required, unknown error, not supported, no data.
const CODES: [u32; 6] = [4, 15, 16, 999, 3, 21];

/// Each function that a reading comes from, refused on one GPU after the other with one code after the other.
fn each_function_refused(gpus: usize, round: usize) -> String {
    let rule = |(place, function): (usize, &&str)| {
        let (gpu, code) = (place % gpus, CODES[(place + round) % CODES.len()]);
        format!("[[return]]\nfunction = \"{function}\"\ngpu = {gpu}\ncode = {code}\n")
    };
    FUNCTIONS.iter().enumerate().map(rule).collect()
}

const FUNCTIONS: [&str; 56] = [
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetName",
    "nvmlDeviceGetSerial",
    "nvmlDeviceGetPersistenceMode",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetBrand",
    "nvmlDeviceGetArchitecture",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetVbiosVersion",
    "nvmlDeviceGetBoardPartNumber",
    "nvmlDeviceGetInforomImageVersion",
    "nvmlDeviceGetGspFirmwareMode",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetBAR1MemoryInfo",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetPowerManagementDefaultLimit",
    "nvmlDeviceGetPowerManagementLimit",
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetPowerManagementLimitConstraints",
    "nvmlDeviceGetTemperatureThreshold",
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetMaxClockInfo",
    "nvmlDeviceGetDefaultApplicationsClock",
    "nvmlDeviceGetApplicationsClock",
    "nvmlDeviceGetPerformanceState",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetCurrentClocks*",
    "nvmlDeviceGetEccMode",
    "nvmlDeviceGetSramEccErrorStatus",
    "nvmlDeviceGetMemoryErrorCounter",
    "nvmlDeviceGetRowRemapperHistogram",
    "nvmlDeviceGetRetiredPages*",
    "nvmlDeviceGetCurrPcieLinkGeneration",
    "nvmlDeviceGetCurrPcieLinkWidth",
    "nvmlDeviceGetMaxPcieLinkGeneration",
    "nvmlDeviceGetMaxPcieLinkWidth",
    "nvmlDeviceGetGpuMaxPcieLinkGeneration",
    "nvmlDeviceGetNvLinkState",
    "nvmlDeviceGetNvLinkVersion",
    "nvmlDeviceGetNvLinkRemoteDeviceType",
    "nvmlDeviceGetNvLinkRemotePciInfo_v2",
    "nvmlDeviceGetGpuFabricInfo*",
    "nvmlDeviceGetP2PStatus",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    "nvmlDeviceGetComputeMode",
    "nvmlDeviceGetAccounting*",
    "nvmlGpmQueryDeviceSupport",
    "nvmlDeviceGetCpuAffinity",
    "nvmlDeviceGetNumaNodeId",
];

/// Fault scripts for GPU `gpu`: gone, gone from the list, and answering "unknown error" to everything.
fn faults_of_one(gpu: usize) -> [String; 3] {
    [
        format!("[[lost]]\ngpu = {gpu}\n"),
        format!("[[lost]]\ngpu = {gpu}\nvanish = true\n"),
        format!("[[return]]\nfunction = \"*\"\ngpu = {gpu}\ncode = 999\n"),
    ]
}

/// What is said of the GPUs other than the one at `sick`, and of their peers other than that.
fn of_the_others(snapshot: &Snapshot, sick: PciAddress, peers: Peers) -> Snapshot {
    let mut gpus = snapshot.gpus.clone();
    gpus.retain(|gpu| gpu.target.pci != Some(sick));
    for detail in gpus.iter_mut().filter_map(|gpu| gpu.reading.detail.as_mut()) {
        detail.peers.retain(|peer| peers == Peers::All && peer.pci != Some(sick));
    }
    Snapshot { gpus, ..Snapshot::default() }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Peers {
    All,
    /// Pairs are read only when every GPU has answered alone.
    Unread,
}

#[test]
fn losing_one_gpu_never_changes_what_is_said_of_the_others() {
    let mut found = Vec::new();
    for name in machines() {
        let still = Still::new(&name);
        let gpus = &still.bench.node.machine.gpus;
        if gpus.len() < 2 {
            continue;
        }
        let healthy = still.probe();
        for slot in [0, gpus.len() - 1] {
            let sick: PciAddress = gpus[slot].pci.to_string().parse().unwrap();
            for script in faults_of_one(slot) {
                still.fault(&script);
                let snapshot = still.probe();
                let reading = &snapshot.gpus.iter().find(|gpu| gpu.target.pci == Some(sick)).unwrap().reading;
                assert_eq!(reading.handle.value(), None, "{name} {sick}: {script}");
                let before = of_the_others(&healthy, sick, Peers::All);
                let after = of_the_others(&snapshot, sick, Peers::All);
                found.extend(still.differences(("healthy", &before), (&script, &after)));
            }
        }
    }
    none(found);
}

/// On two machines only, side by side: each takes as long as a look at leisure may.
#[test]
fn a_gpu_that_hangs_never_changes_what_is_said_of_the_others() {
    let found = thread::scope(|scope| {
        let machines = [("hgx-h100", 5), ("l40s-pcie", 0)];
        let threads = machines.map(|(name, slot)| scope.spawn(move || hang(name, slot)));
        threads.map(|thread| thread.join().unwrap()).concat()
    });
    none(found);
}

fn hang(name: &str, slot: usize) -> Vec<String> {
    let still = Still::new(name);
    let sick: PciAddress = still.bench.node.machine.gpus[slot].pci.to_string().parse().unwrap();
    let healthy = still.probe();
    still.fault(&format!("[[hang]]\nfunction = \"*\"\ngpu = {slot}\n"));
    let (probe, raw) = thread::scope(|scope| {
        let raw = scope.spawn(|| still.raw());
        (still.probe(), raw.join().unwrap())
    });
    let late = ProbeOutcome::TimedOut { deadline_ms: 10_000, unkillable: false };
    assert_eq!(probe.probe, late, "{name}");
    assert!(probe.gpus[slot].silent(), "{name}");
    let mut found = still.differences(("probe", &probe), ("raw", &with(&probe, raw)));
    let before = of_the_others(&healthy, sick, Peers::Unread);
    let after = of_the_others(&probe, sick, Peers::All);
    found.extend(still.differences(("healthy", &before), ("hanging", &after)));
    found
}
