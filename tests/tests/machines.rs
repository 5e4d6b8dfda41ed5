//! Every machine in tests/scenarios, read in three ways that share no code: through nvml-wrapper's safe calls, through
//! bare C calls, and by gpuward's own probe. What they say must be one and the same.
#![allow(clippy::tests_outside_test_module)]

use gpuward_core::model::snapshot::ProbeOutcome;
use gpuward_core::model::{PciAddress, Reading, Snapshot, SnapshotFile, Topology};
use gpuward_tests::readers::diff::differences;
use gpuward_tests::readers::{Seen, raw, wrapper};
use gpuward_tests::sim::Bench;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
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
        Still { name: name.to_owned(), bench: Bench::new(name, "observe", "") }
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
    fn probe(&self) -> SnapshotFile {
        let mut file = self.bench.snapshot();
        for gpu in &mut file.snapshot.gpus {
            gpu.reading.took_us = 0;
        }
        let asked: Vec<PciAddress> = file.snapshot.gpus.iter().filter_map(|gpu| gpu.target.pci).collect();
        assert_eq!(asked, self.addresses(), "{}", self.name);
        file
    }

    fn raw(&self) -> Seen {
        raw::read(&self.library(), &self.addresses(), DEADLINE)
    }

    /// The machine under `script`.
    fn view(&self, script: &str, by_wrapper: bool) -> View {
        self.fault(script);
        let file = self.probe();
        let raw = with(&file.snapshot, self.raw());
        let seen = by_wrapper.then(|| wrapper::read(&self.library(), &self.addresses()));
        let wrapper = seen.map(|seen| with(&file.snapshot, seen));
        View { file, raw, wrapper }
    }
}

/// Where two snapshots of a machine differ: machine, GPU, field, both values.
fn differ(name: &str, left: (&str, &Snapshot), right: (&str, &Snapshot)) -> Vec<String> {
    let node = |snapshot: &Snapshot| Snapshot { gpus: Vec::new(), ..snapshot.clone() };
    let (left_node, right_node) = (node(left.1), node(right.1));
    let of_node = differences((left.0, &left_node), (right.0, &right_node));
    let mut found: Vec<String> = of_node.iter().map(|line| format!("{name}: {line}")).collect();
    assert_eq!(left.1.gpus.len(), right.1.gpus.len(), "{name}");
    for (gpu, other) in left.1.gpus.iter().zip(&right.1.gpus) {
        let pci = gpu.target.pci.unwrap();
        let of_gpu = differences((left.0, gpu), (right.0, other));
        found.extend(of_gpu.iter().map(|line| format!("{name} {pci}: {line}")));
    }
    found
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

/// What was read of one machine: healthy, worn and sick. Each is read once for all tests; nothing here has a folder of its
/// own, as what is static is never dropped.
struct Walked {
    name: String,
    healthy: View,
    worn: View,
    sick: Vec<Sick>,
    refused: View,
}

/// One state of a machine as gpuward's file says it, and as bare calls do.
struct View {
    file: SnapshotFile,
    raw: Snapshot,
    /// Only of machines that answer: the wrapper knows few errors.
    wrapper: Option<Snapshot>,
}

/// A machine with one GPU that does not answer.
struct Sick {
    pci: PciAddress,
    script: String,
    view: View,
}

static WALK: LazyLock<Vec<Walked>> = LazyLock::new(|| {
    let names = machines();
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let share = |first| names.iter().enumerate().skip(first).step_by(workers);
        let walk =
            |first| scope.spawn(move || share(first).map(|(at, name)| Walked::new(at, name)).collect());
        let threads: Vec<thread::ScopedJoinHandle<'_, Vec<Walked>>> = (0..workers).map(walk).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
});

impl Walked {
    /// `place` chooses which GPU is sick and which codes refuse: together the machines have it all.
    fn new(place: usize, name: &str) -> Walked {
        let still = Still::new(name);
        let gpus = &still.bench.node.machine.gpus;
        let slot = place % gpus.len();
        let pci = gpus[slot].pci.to_string().parse().unwrap();
        let healthy = still.view("", true);
        let worn = still.view(WORN, true);
        let sick = |script: String| Sick { pci, view: still.view(&script, false), script };
        let sick = if gpus.len() > 1 { faults_of_one(slot).map(sick).into() } else { Vec::new() };
        let refused = still.view(&each_function_refused(gpus.len(), place), false);
        Walked { name: name.to_owned(), healthy, worn, sick, refused }
    }

    fn views(&self) -> impl Iterator<Item = &View> {
        [&self.healthy, &self.worn, &self.refused].into_iter().chain(self.sick.iter().map(|sick| &sick.view))
    }
}

#[test]
fn every_machine_is_one_snapshot_read_in_three_ways() {
    let mut found = Vec::new();
    for walked in &*WALK {
        for view in [&walked.healthy, &walked.worn] {
            let probe = &view.file.snapshot;
            found.extend(differ(&walked.name, ("probe", probe), ("raw", &view.raw)));
            let known = without_what_the_wrapper_lacks(probe);
            found.extend(differ(
                &walked.name,
                ("probe", &known),
                ("wrapper", view.wrapper.as_ref().unwrap()),
            ));
        }
    }
    none(found);
}

/// The three throttle times have other numbers from driver 580.82 on, and each reader has its own way to know.
#[test]
fn drivers_on_both_sides_of_the_renumbering_say_the_same() {
    let mut still = Still::new("hgx-h100");
    let mut found = Vec::new();
    let mut views = Vec::new();
    for version in ["580.65.06", "580.82.07"] {
        still.bench.change_machine(|machine| version.clone_into(&mut machine.driver.version));
        let View { file, raw, wrapper } = still.view(WORN, true);
        let known = without_what_the_wrapper_lacks(&file.snapshot);
        found.extend(differ(&still.name, ("probe", &file.snapshot), ("raw", &raw)));
        found.extend(differ(&still.name, ("probe", &known), ("wrapper", wrapper.as_ref().unwrap())));
        views.push(file.snapshot.gpus);
    }
    none(found);
    assert_eq!(views[0], views[1]);
    let counters = &views[0][0].reading.counters;
    let times =
        [counters.throttle_sw_thermal_ns, counters.throttle_hw_thermal_ns, counters.throttle_power_brake_ns];
    assert_eq!(times, [53, 54, 55].map(Reading::Value));
}

/// Each version of NVLink has counters of its own; a number that is another's shows.
#[test]
fn errors_of_links_are_read_alike_before_nvlink_5_and_from_it_on() {
    let errors = r#"[{ link = 3, replay = 1, recovery = 2, crc_flit = 3, packets = [11, 12, 13, 14, 15, 16, 17, 18, 19, 20],
        ber = [[1, 6], [2, 15], [3, 40]] }]"#;
    let script = format!("set = [{{ field = \"nvlink.errors\", value = {} }}]\n", errors.replace('\n', " "));
    let mut found = Vec::new();
    for (name, before, from_5_on) in [
        ("hgx-h100", Reading::Value([1, 2, 3]), [Reading::NotSupported; 2]),
        ("hgx-b200", Reading::NotSupported, [[18, 19], [0x20f, 0x328]].map(Reading::Value)),
    ] {
        let still = Still::new(name);
        let View { file, raw, .. } = still.view(&script, false);
        found.extend(differ(name, ("probe", &file.snapshot), ("raw", &raw)));
        let link = &file.snapshot.gpus[1].reading.detail.as_ref().unwrap().nvlinks[3];
        assert_eq!((link.errors, [link.recoveries, link.error_rates]), (before, from_5_on), "{name}");
    }
    none(found);
}

#[test]
fn a_driver_that_does_not_start_is_told_alike() {
    let without_library = Still::new("l40s-pcie");
    std::fs::remove_file(without_library.library()).unwrap();
    let still = Still::new("l40s-pcie");
    // Not loaded, library of another version, unknown error.
    let codes = [9, 18, 999].map(|code| (&still, format!("init_code = {code}\n")));
    let mut found = Vec::new();
    for (still, script) in codes.into_iter().chain([(&without_library, String::new())]) {
        let View { file, raw, wrapper } = still.view(&script, true);
        assert_ne!(file.snapshot.node.nvml, Reading::Value(()), "{script}");
        found.extend(differ(&still.name, ("probe", &file.snapshot), ("raw", &raw)));
        found.extend(differ(&still.name, ("probe", &file.snapshot), ("wrapper", wrapper.as_ref().unwrap())));
    }
    none(found);
}

#[test]
fn a_sick_machine_is_one_snapshot_read_by_bare_calls_and_by_the_probe() {
    let mut found = Vec::new();
    for walked in &*WALK {
        for view in walked.views() {
            found.extend(differ(&walked.name, ("probe", &view.file.snapshot), ("raw", &view.raw)));
        }
    }
    none(found);
}

#[test]
fn a_snapshot_reads_back_as_it_was_written() {
    for walked in &*WALK {
        let name = &walked.name;
        for file in walked.views().map(|view| &view.file) {
            let text = serde_json::to_string(file).unwrap();
            let again = SnapshotFile::parse(&text).unwrap();
            assert_eq!(again, *file, "{name}");
            assert_eq!(serde_json::to_string(&again).unwrap(), text, "{name}");
        }
        let healthy = &walked.healthy.file.snapshot;
        assert!(healthy.gpus.iter().all(|gpu| gpu.reading.handle == Reading::Value(())), "{name}");
        assert_eq!(Topology::of_snapshot(healthy).notes, Vec::<String>::new(), "{name}");
    }
}

#[test]
fn losing_one_gpu_never_changes_what_is_said_of_the_others() {
    let mut found = Vec::new();
    for walked in &*WALK {
        for Sick { pci, script, view } in &walked.sick {
            let snapshot = &view.file.snapshot;
            let lost = snapshot.gpus.iter().find(|gpu| gpu.target.pci == Some(*pci)).unwrap();
            assert_eq!(lost.reading.handle.value(), None, "{} {pci}: {script}", walked.name);
            let before = of_the_others(&walked.healthy.file.snapshot, *pci, Peers::All);
            let after = of_the_others(snapshot, *pci, Peers::All);
            found.extend(differ(&walked.name, ("healthy", &before), (script, &after)));
        }
    }
    none(found);
}

/// A different number for everything that a healthy machine counts as 0: two counters that are mixed up show.
const WORN: &str = r#"
set = [
    { field = "recovery_action", value = 1 },
    { field = "compute_mode", value = 3 },
    { field = "power.limit_mw", value = 250001 },
    { field = "power.enforced_limit_mw", value = 250002 },
    { field = "clocks.event_reasons", value = 0x68 },
    { field = "clocks.throttle_ns", value = { power = 51, thermal = 52, sw_thermal = 53, hw_thermal = 54, hw_power_brake = 55 } },
    { field = "ecc.enabled", value = true },
    { field = "ecc.pending", value = false },
    { field = "ecc.dram", value = { volatile_corr = 11, volatile_uncorr = 12, aggregate_corr = 13, aggregate_uncorr = 14 } },
    { field = "ecc.sram", value = { volatile_corr = 21, volatile_uncorr = 22, aggregate_corr = 23, aggregate_uncorr = 24 } },
    { field = "ecc.sram_parity", value = [5, 6] },
    { field = "ecc.sram_threshold_exceeded", value = true },
    { field = "ecc.repair_pending", value = [true, false] },
    { field = "remap", value = { corr = 31, uncorr = 32, pending = true, failure = false, histogram = [1, 2, 3, 4, 5] } },
    { field = "retired", value = { single_bit = [4096, 8192], double_bit = [16384], pending = true } },
    { field = "pcie.replay", value = 41 },
    { field = "fabric", value = { state = 3, status = 0, clique = 7, health_mask = 5, health_summary = 2, cluster_uuid = "01234567-89ab-cdef-0123-456789abcdef" } },
    { field = "accounting", value = { enabled = true, buffer_size = 4001 } },
    { field = "processes", value = [
        { pid = 42, name = "mps", memory_mib = 3, kind = "mps" },
        { pid = 41, name = "x", memory_mib = 2, kind = "graphics" },
        { pid = 43, name = "train", memory_mib = 1, kind = "compute" },
    ] },
]
"#;

/// No permission, GPU is lost, reset required, unknown error, not supported, no data.
const CODES: [u32; 6] = [4, 15, 16, 999, 3, 21];

/// Each function that a reading comes from, refused on one GPU after the other with one code after the other.
fn each_function_refused(gpus: usize, first: usize) -> String {
    let rule = |(place, function): (usize, &&str)| {
        let (gpu, code) = (place % gpus, CODES[(place + first) % CODES.len()]);
        format!("[[return]]\nfunction = \"{function}\"\ngpu = {gpu}\ncode = {code}\n")
    };
    FUNCTIONS.iter().enumerate().map(rule).collect()
}

const FUNCTIONS: [&str; 58] = [
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
    "nvmlDeviceGetMarginTemperature",
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
    "nvmlDeviceGetRepairStatus",
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
    still.fault("");
    let healthy = still.probe().snapshot;
    still.fault(&format!("[[hang]]\nfunction = \"*\"\ngpu = {slot}\n"));
    let (probe, raw) = thread::scope(|scope| {
        let raw = scope.spawn(|| still.raw());
        (still.probe().snapshot, raw.join().unwrap())
    });
    let late = ProbeOutcome::TimedOut { deadline_ms: 10_000, unkillable: false };
    assert_eq!(probe.probe, late, "{name}");
    assert!(probe.gpus[slot].silent(), "{name}");
    let mut found = differ(&still.name, ("probe", &probe), ("raw", &with(&probe, raw)));
    let before = of_the_others(&healthy, sick, Peers::Unread);
    let after = of_the_others(&probe, sick, Peers::All);
    found.extend(differ(&still.name, ("healthy", &before), ("hanging", &after)));
    found
}
