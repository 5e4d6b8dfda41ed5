//! Slurm's own detection of GPUs, its plugin gpu/nvml, on simulated machines: a check from outside that the fake library
//! is a true one, and what gpuward makes of nodes whose gres.conf names no files. Seen on Slurm 22.05.8.
#![allow(clippy::tests_outside_test_module)]

use gpuward_tests::cluster::Containment;
use gpuward_tests::sim::scenario;
use gpuward_tests::stack::{Stack, StackBuilder};
use nvidia_ml::scenario::{Gpu, Machine, MigDevice, NumaNode, NvLink};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(30);

fn machine(name: &str) -> Machine {
    Machine::load(&scenario(name)).unwrap()
}

/// The two CPUs as two sockets, with the first half of the GPUs near the first: on a host that has them in one socket
/// Slurm believes slurm.conf.
fn two_sockets(name: &str) -> Machine {
    let mut machine = machine(name);
    (machine.cpu.sockets, machine.cpu.cores_per_socket, machine.cpu.cores_per_l3) = (2, 1, 1);
    let node = machine.numa[0].clone();
    let half = |number: u32| NumaNode {
        node: number,
        cpus: [number].into_iter().collect(),
        distances: if number == 0 { vec![10, 21] } else { vec![21, 10] },
        ..node.clone()
    };
    machine.numa = vec![half(0), half(1)];
    for gpu in &machine.gpus[2..] {
        machine.root_ports.iter_mut().find(|port| port.at == gpu.under).unwrap().numa = 1;
    }
    machine
}

/// Bridge pairs whose minors run against the PCI order in each pair.
fn bridge_pairs() -> Machine {
    with_minors(two_sockets("bridge-pairs-2cpu"), [1, 0, 3, 2])
}

/// Boards without NVLink whose minors follow no order of ours.
fn pcie() -> Machine {
    let mut machine = with_minors(two_sockets("bridge-pairs-2cpu"), [3, 2, 0, 1]);
    for gpu in &mut machine.gpus {
        gpu.nvlink = NvLink::default();
    }
    machine
}

fn with_minors(mut machine: Machine, minors: [u32; 4]) -> Machine {
    for (gpu, minor) in machine.gpus.iter_mut().zip(minors) {
        gpu.minor = minor;
    }
    machine
}

fn start(name: &str, nodes: &[(&str, &Machine, &str)]) -> Stack {
    // The plugin tells what it reads, and slurmd whole records.
    let mut builder = StackBuilder::new(name).conf_line("SlurmdDebug=debug2").conf_line("DebugFlags=Gres");
    for (node, machine, gres) in nodes {
        builder = builder.detected_node(node, machine, gres);
    }
    builder.start().unwrap_or_else(|error| panic!("{error}"))
}

fn log(stack: &Stack, node: &str) -> String {
    fs::read_to_string(stack.cluster.log_path(&format!("slurmd {node}"))).unwrap()
}

/// The records that slurmd registers, in the order of Slurm's indices.
fn registered(log: &str) -> Vec<String> {
    let records =
        log.lines().filter_map(|line| line.split_once("] Gres Name=gpu ")).map(|(_, record)| record);
    // The id is a hash of the word gpu.
    let without_id = |record: &str| {
        let words = record.split(' ').filter(|word| !word.starts_with("ID="));
        words.collect::<Vec<_>>().join(" ")
    };
    records.map(without_id).collect()
}

/// The same, from the description of a machine without MIG devices.
fn described(machine: &Machine, kind: &str) -> Vec<String> {
    let order: Vec<&Gpu> = machine.nvml_slots().into_iter().map(|slot| machine.gpu(slot).unwrap()).collect();
    let cores = machine.cpu.count();
    let record = |gpu: &&Gpu| {
        let near = &machine.numa_node(machine.numa_under(gpu.under).unwrap()).unwrap().cpus;
        let links: Vec<String> = order.iter().map(|other| links(gpu, other).to_string()).collect();
        let (minor, links) = (gpu.minor, links.join(","));
        format!(
            "Type={kind} Count=1 Index={minor} File=/dev/nvidia{minor} Cores={near} CoreCnt={cores} Links={links}"
        )
    };
    order.iter().map(record).collect()
}

/// How many links that are up lead from one GPU straight to another; Slurm writes -1 for the GPU itself.
fn links(from: &Gpu, to: &Gpu) -> i64 {
    if from.pci == to.pci {
        return -1;
    }
    let groups = from.nvlink.links.iter().filter(|group| group.to == to.pci);
    let up = groups.flat_map(|group| group.links.iter()).filter(|link| !from.nvlink.down.0.contains(link));
    i64::try_from(up.count()).unwrap()
}

/// What the plugin tells of each GPU under this word, in NVML's order.
fn told(log: &str, word: &str) -> Vec<String> {
    let prefix = format!("_get_system_gpu_list_nvml:     {word}: ");
    log.lines().filter_map(|line| line.split_once(&prefix)).map(|(_, value)| value.to_owned()).collect()
}

fn of_each(machine: &Machine, value: impl Fn(&Gpu) -> String) -> Vec<String> {
    machine.nvml_slots().into_iter().map(|slot| value(machine.gpu(slot).unwrap())).collect()
}

#[test]
fn slurms_own_plugin_reads_every_machine_as_it_is_described() {
    let (bridged, switched, plain) = (bridge_pairs(), machine("nvswitch-2cpu"), pcie());
    let mut worn = bridged.clone();
    worn.gpus[0].nvlink.down = "0-2".parse().unwrap();
    let nodes = [
        // The type is what the plugin makes of the name, or a part of it.
        ("bridged", &bridged, "gpu:nvidia_h100_nvl:4", "nvidia_h100_nvl"),
        ("switched", &switched, "gpu:h100:4", "h100"),
        ("plain", &plain, "gpu:4", "(null)"),
        ("worn", &worn, "gpu:nvl:4", "nvl"),
    ];
    let stack = start("reads", &nodes.map(|(node, machine, gres, _)| (node, machine, gres)));
    for (node, _, gres, kind) in nodes {
        let (log, machine) = (log(&stack, node), &stack.node(node).machine);
        assert_eq!(registered(&log), described(machine, kind), "{node}");
        let lower = |gpu: &Gpu| gpu.name.to_lowercase().replace(' ', "_");
        assert_eq!(told(&log, "Name"), of_each(machine, lower), "{node}");
        assert_eq!(told(&log, "UUID"), of_each(machine, |gpu| gpu.uuid.clone()), "{node}");
        assert_eq!(told(&log, "PCI Bus ID"), of_each(machine, |gpu| gpu.pci.bus_id()), "{node}");
        let versions =
            [("Systems Graphics Driver Version", "570.124.06"), ("NVML Library Version", "12.570.124.06")];
        for (word, version) in versions {
            assert!(log.contains(&format!("{word}: {version}\n")), "{node}: {word}");
        }
        let sockets = if machine.cpu.sockets == 2 { "0-1" } else { "0" };
        assert_eq!(stack.cluster.node(node).unwrap().get("Gres"), format!("{gres}(S:{sockets})"));
    }
    // Not only equal to what this test computes.
    let links = |node| {
        let records = registered(&log(&stack, node));
        records.iter().map(|record| record.split("Links=").last().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(links("bridged"), ["-1,12,0,0", "12,-1,0,0", "0,0,-1,12", "0,0,12,-1"]);
    assert_eq!(links("switched"), ["-1,0,0,0", "0,-1,0,0", "0,0,-1,0", "0,0,0,-1"]);
    assert_eq!(links("worn")[..2], ["-1,9,0,0", "12,-1,0,0"]);
}

/// What a step has: its indices by Slurm, what CUDA is told, and the minors of the device files that it can open.
fn step(stack: &Stack, node: &str, wish: &str) -> (String, String, Vec<u32>) {
    // Without a driver an open that is allowed ends in ENXIO, one that the cgroup forbids in EPERM.
    let script = "echo $SLURM_STEP_GPUS $CUDA_VISIBLE_DEVICES\n\
                  for i in 0 1 2 3; do cat /dev/nvidia$i 2>&1 | grep -q 'No such device' && echo $i; done; true";
    let output = stack.cluster.srun(&["-w", node, wish, "sh", "-c", script]).unwrap();
    assert!(output.ok(), "{wish}: {}", output.stderr);
    let (variables, opened) = output.stdout.split_once('\n').unwrap();
    let (indices, visible) = variables.split_once(' ').unwrap();
    (indices.into(), visible.into(), opened.lines().map(|minor| minor.parse().unwrap()).collect())
}

/// What the epilog recorded of the job that ran last on a node: whether its GPUs were known for certain, and their
/// UUIDs.
fn recorded(stack: &Stack, node: &str, jobs: usize) -> (bool, Vec<String>) {
    let start = Instant::now();
    // The epilog's word, not the folder: a record that is being written has another name there.
    while stack.node(node).log().matches("record is written; ").count() < jobs {
        assert!(start.elapsed() < LIMIT, "no record: {}", stack.node(node).log());
        std::thread::sleep(Duration::from_millis(20));
    }
    let last = stack.node(node).records().into_iter().max_by_key(|record| record.job_id).unwrap();
    (last.gpu_map_certain, last.gpus.iter().filter_map(|gpu| gpu.uuid.clone()).collect())
}

fn uuids(stack: &Stack, node: &str, slots: &[u32]) -> Vec<String> {
    slots.iter().map(|&slot| stack.node(node).uuid(slot)).collect()
}

/// Compares minors where there are cgroups to keep a job from the others.
fn assert_opened(stack: &Stack, opened: &[u32], wanted: &[u32], what: &str) {
    if stack.cluster.containment == Containment::Cgroups {
        assert_eq!(opened, wanted, "{what}");
    }
}

#[test]
fn a_job_gets_the_devices_of_its_indices_and_gpuward_finds_the_same_gpus() {
    let (bridged, switched, plain) = (bridge_pairs(), two_sockets("nvswitch-2cpu"), pcie());
    let nodes = [
        ("bridged", &bridged, "gpu:nvidia_h100_nvl:4", "--gres=gpu:nvidia_h100_nvl:1"),
        ("switched", &switched, "gpu:h100:4", "--gres=gpu:h100:1"),
        ("plain", &plain, "gpu:4", "--gres=gpu:1"),
    ];
    let stack = start("jobs", &nodes.map(|(node, machine, gres, _)| (node, machine, gres)));
    for (node, machine, _, one) in nodes {
        let check = |wish: &str, slots: &[u32], local: &str, jobs| {
            let (indices, visible, opened) = step(&stack, node, wish);
            let words: Vec<String> = slots.iter().map(|slot| slot.to_string()).collect();
            assert_eq!(indices, words.join(","), "{node} {wish}");
            // Where a cgroup hides the others, CUDA counts from the step's own first GPU.
            let hidden = stack.cluster.containment == Containment::Cgroups;
            assert_eq!(visible, if hidden { local } else { &indices }, "{node} {wish}");
            let mut minors: Vec<u32> = slots.iter().map(|&slot| machine.gpu(slot).unwrap().minor).collect();
            minors.sort_unstable();
            assert_opened(&stack, &opened, &minors, node);
            assert_eq!(recorded(&stack, node, jobs), (true, uuids(&stack, node, slots)), "{node} {wish}");
        };
        check(one, &[0], "0", 1);
        // The two near the job's CPU: on this machine a bridge pair.
        check("--gpus=2", &[0, 1], "0,1", 2);
        check("--gres=gpu:3", &[0, 1, 2], "0,1,2", 3);
        // While GPU 0 is held, with the CPU beside it, the other pair is whole and near the other CPU.
        let held = stack.cluster.sbatch(&["-w", node, "--gres=gpu:1"], "exec sleep 300").unwrap();
        stack.cluster.wait_job(held, |job| job.is("RUNNING"), LIMIT).unwrap();
        check("--gpus=2", &[2, 3], "0,1", 4);
    }
}

#[test]
fn a_gpu_lost_before_slurmd_starts_makes_the_node_invalid_and_shifts_the_indices_behind_it() {
    let machine = bridge_pairs();
    for (script, links) in [
        // Its peer still counts as long as the driver does.
        ("[[lost]]\ngpu = 1\n", ["-1,0,0,0", "0,0,-1,12", "0,0,12,-1"]),
        ("[[lost]]\ngpu = 1\nvanish = true\n", ["-1,0,0", "0,-1,12", "0,12,-1"]),
    ] {
        let mut stack = start("lost", &[("n1", &machine, "gpu:h100:4")]);
        stack.node("n1").fault(script);
        let before = log(&stack, "n1").len();
        stack.cluster.restart_slurmd("n1").unwrap();
        let node = stack.cluster.wait_node("n1", |node| node.is("INVALID_REG"), LIMIT).unwrap();
        assert!(node.is("DRAIN"), "{node:?}");
        assert_eq!(node.reason(), "gres/gpu count reported lower than configured (3 < 4)");
        let log = log(&stack, "n1")[before..].to_owned();
        assert_eq!(
            log.contains("Failed to get device handle for GPU 1: GPU is lost"),
            !script.contains("vanish")
        );
        assert_eq!(log.contains("Creating null GRES GPU record"), !script.contains("vanish"));
        let wanted = [(1, 0), (3, 1), (2, 1)].iter().zip(links).map(|((minor, core), links)| {
            format!(
                "Type=h100 Count=1 Index={minor} File=/dev/nvidia{minor} Cores={core} CoreCnt=2 Links={links}"
            )
        });
        assert_eq!(registered(&log), wanted.collect::<Vec<_>>(), "{script}");
    }
}

/// A MIG device with the profile `<slices>g.<gb>gb`. 22.05 makes the type of both numbers, not of the device's name.
fn mig_device(number: u32, slices: u32, gb: u64, gpu_instance: u32) -> MigDevice {
    MigDevice {
        uuid: format!("MIG-7d0f1a52-6d3e-4b11-9a51-5f0e4d7c1b0{number}"),
        profile: format!("{slices}g.{gb}gb"),
        gpu_instance,
        slices,
        multiprocessors: 16 * slices,
        // A little less than the profile's name promises, as on real boards.
        memory_mib: gb * 1024 - 256,
        ..MigDevice::default()
    }
}

/// GPUs 1 and 3 of the bridge pairs are cut up, unlike each other; 0 and 2 are whole.
fn cut_up() -> Machine {
    let mut machine = bridge_pairs();
    let layouts = [
        (1, vec![mig_device(1, 3, 47, 1), mig_device(2, 1, 12, 7), mig_device(3, 1, 12, 8)]),
        (3, vec![mig_device(4, 3, 47, 2)]),
    ];
    for (slot, devices) in layouts {
        machine.gpus[slot].mig.enabled = true;
        machine.gpus[slot].mig.devices = devices;
    }
    machine
}

#[test]
fn mig_devices_are_registered_with_their_own_files_and_ids_among_whole_gpus() {
    // A type is taken for a part of the detected name, so the board's, which is a part of all, stands last.
    let stack = start("mig", &[("n1", &cut_up(), "gpu:3g.47gb:2,gpu:1g.12gb:2,gpu:h100:2")]);
    let machine = &stack.node("n1").machine;
    let mig = |slot: usize, number: usize| machine.gpus[slot].mig.devices[number].uuid.clone();
    let text = log(&stack, "n1");
    let files = |minor: u32, first: u32| {
        let cap = "/dev/nvidia-caps/nvidia-cap";
        format!("File=/dev/nvidia{minor},{cap}{first},{cap}{}", first + 1)
    };
    // Links of MIG devices count those of one GPU, and Slurm sorts by the place of -1: whole GPUs stand between.
    let wanted = [
        format!("Type=3g.47gb Count=1 Index=13 {} Cores=0 CoreCnt=2 Links=-1,0,0", files(0, 12)),
        "Type=h100 Count=1 Index=1 File=/dev/nvidia1 Cores=0 CoreCnt=2 Links=-1,12,0,0".to_owned(),
        format!("Type=3g.47gb Count=1 Index=292 {} Cores=1 CoreCnt=2 Links=-1", files(2, 291)),
        format!("Type=1g.12gb Count=1 Index=67 {} Cores=0 CoreCnt=2 Links=0,-1,0", files(0, 66)),
        format!("Type=1g.12gb Count=1 Index=76 {} Cores=0 CoreCnt=2 Links=0,0,-1", files(0, 75)),
        "Type=h100 Count=1 Index=3 File=/dev/nvidia3 Cores=1 CoreCnt=2 Links=0,0,-1,12".to_owned(),
    ];
    assert_eq!(registered(&text), wanted);
    let ids: Vec<&str> =
        text.lines().filter_map(|line| line.split_once("     UniqueID: ")).map(|(_, id)| id).collect();
    assert_eq!(ids, [mig(1, 0), mig(1, 1), mig(1, 2), mig(3, 0)]);

    let (indices, visible, opened) = step(&stack, "n1", "--gres=gpu:1g.12gb:2");
    assert_eq!((indices.as_str(), visible), ("3,4", format!("{},{}", mig(1, 1), mig(1, 2))));
    assert_opened(&stack, &opened, &[0], "the GPU that they are parts of");
    assert_eq!(recorded(&stack, "n1", 1), (true, vec![mig(1, 1), mig(1, 2)]));
    let (indices, visible, _) = step(&stack, "n1", "--gres=gpu:3g.47gb:2");
    assert_eq!((indices.as_str(), visible), ("0,2", format!("{},{}", mig(1, 0), mig(3, 0))));
    assert_eq!(recorded(&stack, "n1", 2), (true, vec![mig(1, 0), mig(3, 0)]));
}

#[test]
fn a_whole_gpu_beside_mig_devices_has_an_index_that_does_not_tell_which_it_is() {
    let stack = start("beside", &[("n1", &cut_up(), "gpu:3g.47gb:2,gpu:1g.12gb:2,gpu:h100:2")]);
    let (indices, _, opened) = step(&stack, "n1", "--gres=gpu:h100:1");
    assert_eq!(indices, "1");
    assert_opened(&stack, &opened, &[stack.node("n1").minor(0)], "Slurm gives GPU 0");
    // GPU 1 by position, and gpuward says that it does not know: no finding about a GPU would refuse the job.
    assert!(!recorded(&stack, "n1", 1).0);
    let (indices, _, opened) = step(&stack, "n1", "--gres=gpu:h100:2");
    assert_eq!(indices, "1,5");
    assert_opened(&stack, &opened, &[1, 3], "Slurm gives GPUs 0 and 2");
    assert!(!recorded(&stack, "n1", 2).0);
}

#[test]
fn the_prolog_of_a_job_with_two_types_hears_only_of_the_last() {
    let mut machine = pcie();
    for slot in [1, 2] {
        machine.gpus[slot].name = "NVIDIA L40S".to_owned();
    }
    let stack = start("types", &[("n1", &machine, "gpu:l40s:2,gpu:h100:2")]);
    // The order is that of the machine, whatever the types are and however slurm.conf orders them.
    let files = of_each(&machine, |gpu| format!(" File=/dev/nvidia{} ", gpu.minor));
    let records = registered(&log(&stack, "n1"));
    assert!(records.iter().zip(&files).all(|(record, file)| record.contains(file)), "{records:?}");
    let (indices, _, opened) = step(&stack, "n1", "--gres=gpu:l40s:1");
    assert_eq!(indices, "1");
    assert_opened(&stack, &opened, &[2], "the first L40S");
    // Of this job the prolog hears all, but it cannot tell it from the next one.
    assert_eq!(recorded(&stack, "n1", 1), (false, uuids(&stack, "n1", &[1])));
    let (indices, _, opened) = step(&stack, "n1", "--gres=gpu:h100:1,gpu:l40s:1");
    assert_eq!(indices, "0,1");
    assert_opened(&stack, &opened, &[2, 3], "one of each");
    // SLURM_JOB_GPUS was 1 alone there: gpuward knows of one of the two, and that it may not know all.
    assert_eq!(recorded(&stack, "n1", 2), (false, uuids(&stack, "n1", &[1])));
}

#[test]
fn the_index_follows_the_order_of_the_driver_which_is_taken_for_that_of_pci() {
    let mut machine = bridge_pairs();
    machine.nvml_order = vec![2, 3, 0, 1];
    let stack = start("order", &[("n1", &machine, "gpu:h100:4")]);
    assert_eq!(registered(&log(&stack, "n1")), described(&machine, "h100"));
    let (indices, _, opened) = step(&stack, "n1", "--gres=gpu:1");
    // CPU 0 is taken, and the GPUs beside it are the driver's last two.
    assert_eq!(indices, "2");
    assert_opened(&stack, &opened, &[machine.gpus[0].minor], "the third by the driver's order");
    // On all known drivers that is the order of PCI addresses, on which gpuward relies; nvml.h does not promise it.
    assert_eq!(recorded(&stack, "n1", 1), (true, uuids(&stack, "n1", &[2])));
}

/// The host's own device files and driver folders. NVIDIA's real library, which another test loads, makes nvidiactl.
fn of_the_host() -> BTreeSet<PathBuf> {
    let entries = ["/dev", "/proc/driver"].map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    let paths = entries.into_iter().flatten().map(|entry| entry.path());
    let is_gpu = |path: &PathBuf| path.to_string_lossy().contains("nvidia") && !path.ends_with("nvidiactl");
    paths.filter(is_gpu).collect()
}

fn mounts() -> Vec<String> {
    let text = fs::read_to_string("/proc/self/mounts").unwrap();
    text.lines()
        .filter(|line| line.contains("gpuward") || line.contains("/proc/driver"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn only_the_nodes_own_processes_see_its_devices_and_nothing_is_left_of_them() {
    let before = (of_the_host(), mounts());
    let machine = machine("nvswitch-2cpu");
    let stack =
        StackBuilder::new("apart").node("n1", "l40s-pcie").detected_node("n2", &machine, "gpu:h100:4");
    let stack = stack.start().unwrap_or_else(|error| panic!("{error}"));
    let seen = |node| {
        let script = "ls -d /dev/nvidia* /proc/driver/nvidia 2>/dev/null; true";
        let output = stack.cluster.srun(&["-w", node, "sh", "-c", script]).unwrap().stdout;
        let paths = output.lines().map(PathBuf::from).filter(|path| !path.ends_with("nvidiactl"));
        paths.collect::<BTreeSet<_>>()
    };
    assert_eq!(seen("n1"), before.0);
    let own = ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2", "/dev/nvidia3", "/proc/driver/nvidia"];
    assert_eq!(seen("n2"), own.map(PathBuf::from).into());
    // What else a program needs is there.
    let script =
        "echo x > /dev/null && head -c1 /dev/zero > /dev/shm/x-$$ && rm /dev/shm/x-$$ && ls /dev/pts/ptmx";
    let output = stack.cluster.srun(&["-w", "n2", "--pty", "sh", "-c", script]).unwrap();
    assert!(output.ok() && output.stdout.trim() == "/dev/pts/ptmx", "{output:?}");
    assert_eq!((of_the_host(), mounts()), before, "while it runs");
    let folder = stack.cluster.path().to_owned();
    drop(stack);
    assert!(!folder.exists());
    assert_eq!((of_the_host(), mounts()), before, "afterwards");
}
