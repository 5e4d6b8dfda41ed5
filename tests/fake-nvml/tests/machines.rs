//! Scenarios: loading, ids of simulated nodes, messages, and the rendered trees.

// Integration tests have no test module.
#![allow(clippy::tests_outside_test_module)]

mod common;

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use common::{all_machines, scenario};
use nvidia_ml::scenario::{Machine, PciAddress};

fn load(name: &str) -> Machine {
    Machine::load(&scenario(name)).unwrap()
}

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).trim().to_owned()
}

#[test]
fn a_flattened_scenario_is_the_same_machine() {
    for name in all_machines() {
        let machine = load(&name);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flat.toml");
        fs::write(&path, machine.flattened()).unwrap();
        assert_eq!(Machine::load(&path).unwrap(), machine);
    }
}

#[test]
fn a_machine_wins_over_its_board_and_that_over_its_host() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    };
    let models = scenario("models").with_extension("").canonicalize().unwrap();
    std::os::unix::fs::symlink(models, folder.path().join("models")).unwrap();
    let cpu = "sockets = 1\ncores_per_socket = 4\nthreads_per_core = 2\ncores_per_l3 = 4";
    write("hosts/h.toml", &format!("numa = [{{ node = 0, cpus = \"0-7\", memory_mib = 1 }}]\n[cpu]\n{cpu}"));
    let board = "host = \"h\"\ngpu_defaults = { model = \"l4\", minor = 7, temp = { gpu_c = 31 } }\n\
        gpus = [{ pci = \"0000:01:00.0\", vbios = \"b\" }, { pci = \"0000:02:00.0\", vbios = \"b\" }]\n\
        [cpu]\nthreads_per_core = 1\ncores_per_l3 = 2";
    write("boards/b.toml", board);
    let machine = "name = \"m\"\nboard = \"b\"\ndriver = { version = \"570.1\", cuda = 12080 }\n\
        cpu = { cores_per_socket = 8 }\nroot_ports = [{ at = \"0000:00:01.0\", numa = 0 }]\n\
        gpus = [{}, { minor = 3, vbios = \"m\" }, { pci = \"0000:03:00.0\", minor = 5 }]\n\
        gpu_defaults = { under = \"0000:00:01.0\", temp = { gpu_busy_c = 61 } }";
    let machine = Machine::load(&write("m.toml", machine)).unwrap();
    assert_eq!((machine.cpu.sockets, machine.cpu.cores_per_socket), (1, 8), "host, machine");
    assert_eq!((machine.cpu.threads_per_core, machine.cpu.cores_per_l3), (1, 2), "board");
    let gpus: Vec<_> = machine.gpus.iter().map(|gpu| (gpu.pci.bus, gpu.minor, gpu.vbios.as_str())).collect();
    let of_model = load("l4-vm").gpus[0].vbios.clone();
    assert_eq!(gpus, [(1, 7, "b"), (2, 3, "m"), (3, 5, of_model.as_str())]);
    let temp = &machine.gpus[1].temp;
    assert_eq!((temp.gpu_c, temp.gpu_busy_c, temp.shutdown_c), (31, 61, Some(97)), "board, machine, model");
    assert_eq!(machine.numa[0].distances, [10]);
}

#[test]
fn simulated_nodes_have_ids_of_their_own_and_keep_them() {
    let machine = load("hgx-h100");
    let nodes = ["node1", "node2", "node11"].map(|node| machine.for_node(node));
    let uuids: HashSet<_> =
        nodes.iter().flat_map(|node| node.gpus.iter().map(|gpu| gpu.uuid.clone())).collect();
    assert_eq!(uuids.len(), 24);
    let serials: HashSet<_> =
        nodes.iter().flat_map(|node| node.gpus.iter().map(|gpu| gpu.serial.clone())).collect();
    assert_eq!(serials.len(), 24);
    assert_ne!(nodes[0].boot_id, nodes[1].boot_id);
    assert_eq!(nodes[0], machine.for_node("node1"));
}

/// Slot, UUID, serial number, PCI address, port and minor number as other tests and outside scripts know them.
type Identity = (&'static str, &'static str, &'static str, &'static str, u32);

const STANDING: [(&str, &[Identity]); 2] = [
    (
        "hgx-h100",
        &[
            ("GPU-5bc5a273-2709-92df-5232-6e6c70650302", "1652923054501", "0000:1b:00.0", "0000:18:01.0", 2),
            ("GPU-4112625c-38d4-9034-a169-c3591e8e0d28", "1652923054538", "0000:3d:00.0", "0000:3a:01.0", 3),
            ("GPU-55e2de69-0bae-326b-417a-bb2e43c70e0a", "1652923054575", "0000:4e:00.0", "0000:4b:01.0", 0),
            ("GPU-50074cfa-9948-4a0f-42a8-c1b233d9c4ae", "1652923054612", "0000:5f:00.0", "0000:5c:01.0", 1),
            ("GPU-a184c31f-fd6a-3195-91a0-0d2be7a6d4d6", "1652923054649", "0000:9d:00.0", "0000:9a:01.0", 6),
            ("GPU-5b9d5564-47fa-07a4-3a79-9647a04217d4", "1652923054686", "0000:bd:00.0", "0000:ba:01.0", 7),
            ("GPU-1eda1244-2d91-14d6-783d-ecab4c2c25df", "1652923054723", "0000:cd:00.0", "0000:ca:01.0", 4),
            ("GPU-5a4a698e-1cb9-fef1-6e6e-560a46f14409", "1652923054760", "0000:dd:00.0", "0000:da:01.0", 5),
        ],
    ),
    (
        "l40s-pcie",
        &[
            ("GPU-b052728c-7f1b-c136-2cd5-ec9672c81d4f", "1321423002817", "0000:01:00.0", "0000:00:01.1", 0),
            ("GPU-aeb27127-164c-7267-05fc-360b735d0b59", "1321423002870", "0000:21:00.0", "0000:20:01.1", 1),
            ("GPU-6471b463-7997-3142-9b05-83ffb5868fff", "1321423002923", "0000:81:00.0", "0000:80:01.1", 2),
            ("GPU-6aed8ab0-3fcb-3a77-6a2c-a13b2f1c9e30", "1321423002976", "0000:a1:00.0", "0000:a0:01.1", 3),
        ],
    ),
];

#[test]
fn standing_machines_keep_their_ids() {
    for (name, identities) in STANDING {
        let machine = load(name);
        assert_eq!(machine.gpus.len(), identities.len());
        for (gpu, (uuid, serial, pci, under, minor)) in machine.gpus.iter().zip(identities) {
            assert_eq!((gpu.uuid.as_str(), gpu.serial.as_deref(), gpu.minor), (*uuid, Some(*serial), *minor));
            assert_eq!((gpu.pci.to_string().as_str(), gpu.under.to_string().as_str()), (*pci, *under));
        }
    }
    let hgx = load("hgx-h100");
    let switches: Vec<_> = hgx.nvswitches.iter().map(|switch| switch.pci.to_string()).collect();
    assert_eq!(switches, ["0000:07:00.0", "0000:08:00.0", "0000:09:00.0", "0000:0a:00.0"]);
    assert!(
        hgx.gpus
            .iter()
            .all(|gpu| gpu.nvlink.links.iter().map(|group| group.links.0.len()).sum::<usize>() == 18)
    );
}

#[test]
fn ids_that_are_not_stated_differ_between_machines_and_gpus_and_stay() {
    let mut uuids = HashSet::new();
    let mut serials = HashSet::new();
    let mut gpus = 0;
    for name in all_machines() {
        let machine = load(&name);
        assert_eq!(machine.name, name);
        for gpu in &machine.gpus {
            gpus += 1;
            uuids.insert(gpu.uuid.clone());
            let expected = if gpu.name.contains("GeForce") { None } else { Some(13) };
            assert_eq!(gpu.serial.as_ref().map(String::len), expected, "{name}");
            serials.extend(gpu.serial.clone());
        }
        assert_eq!(machine, load(&name));
    }
    let with_serial = gpus - 8 - 8 - 5;
    // The two GPUs of a GB200 board share one.
    assert_eq!((uuids.len(), serials.len()), (gpus, with_serial - 2));
    let tray = load("gb200-tray").for_node("node1");
    let serials = [0, 1, 2, 3].map(|slot| tray.gpus[slot].serial.as_deref().unwrap());
    assert!(serials[0] == serials[1] && serials[1] != serials[2] && serials[2] == serials[3], "{serials:?}");
}

#[test]
fn features_are_those_of_the_product() {
    const VOLTA: u32 = 5;
    const AMPERE: u32 = 7;
    const HOPPER: u32 = 9;
    for name in all_machines() {
        let machine = load(&name);
        let branch: u32 = machine.driver.version.split('.').next().unwrap().parse().unwrap();
        for gpu in &machine.gpus {
            let data_centre = !gpu.name.contains("GeForce");
            let age = gpu.architecture;
            let has = |what: &str, has: bool, expected: bool| {
                assert_eq!(has, expected, "{name}: {what} of {}", gpu.name);
            };
            has("energy counter", gpu.power.energy_base_mj.is_some(), age >= VOLTA);
            has("GPM", gpu.gpm, age >= HOPPER);
            has("ECC", gpu.ecc.enabled == Some(true), data_centre);
            has("row remapping", gpu.remap.is_some(), age >= AMPERE && data_centre);
            has("page retirement", gpu.retired.is_some(), age < AMPERE && data_centre);
            has("recovery action", gpu.recovery_action.is_some(), branch >= 560);
            let mig = ["A100", "A30", "H100", "B200", "GH200"].iter().any(|model| gpu.name.contains(model));
            has("MIG", gpu.mig.max_devices == 7, mig);
            let on_switches = gpu
                .nvlink
                .links
                .iter()
                .any(|group| machine.nvswitches.iter().any(|switch| switch.pci == group.to));
            has("fabric", gpu.fabric.is_some(), age >= HOPPER && on_switches);
            has("limits as distances", gpu.temp.tlimit_c.is_some(), age > AMPERE);
            has("application clocks", gpu.clocks.app_default_mhz.is_some(), data_centre);
            has("open module", machine.driver.open, age >= 10 || name == "gh200-quad");
            let links: usize = gpu.nvlink.links.iter().map(|group| group.links.0.len()).sum();
            has("NVLink", gpu.nvlink.version.is_some(), links > 0);
        }
    }
}

#[test]
fn no_machine_has_a_fault_of_its_own() {
    for name in all_machines() {
        for gpu in &load(&name).gpus {
            let errors = [&gpu.ecc.dram, &gpu.ecc.sram];
            assert!(errors.iter().all(|counts| **counts == Default::default()), "{name}");
            let remap = gpu.remap.as_ref();
            assert!(
                remap.is_none_or(|remap| !remap.pending && !remap.failure && remap.histogram[1..] == [0; 4])
            );
            assert!(gpu.retired.as_ref().is_none_or(|retired| *retired == Default::default()));
            assert!(matches!(gpu.recovery_action, None | Some(0)));
            assert!(gpu.fabric.as_ref().is_none_or(|fabric| (fabric.state, fabric.status) == (3, 0)));
            assert!(gpu.nvlink.down.0.is_empty() && gpu.nvlink.errors.is_empty());
            assert_eq!((gpu.pcie.width, gpu.pcie.generation), (gpu.pcie.max_width, gpu.pcie.max_generation));
            assert_eq!((gpu.pcie.replay, gpu.pcie.aer, gpu.pcie.errors), (0, [0; 3], [0; 11]));
            let idle_generation = if gpu.clocks.idle_pstate == 0 { gpu.pcie.generation } else { 1 };
            assert_eq!(gpu.pcie.idle_generation, idle_generation, "{name}: only in low power");
            assert!(
                gpu.persistence && gpu.compute_mode == 0 && gpu.processes.is_empty() && !gpu.inforom_corrupt
            );
            assert!(gpu.temp.gpu_busy_c < gpu.temp.slowdown_c.unwrap() && gpu.temp.gpu_c < 45);
            assert!(
                gpu.temp.slowdown_c < gpu.temp.shutdown_c && gpu.temp.memory_busy_c <= gpu.temp.memory_max_c
            );
            let power = &gpu.power;
            assert!(power.idle_mw < power.busy_mw && power.busy_mw <= u64::from(power.default_limit_mw));
            assert!(
                power.min_limit_mw < power.default_limit_mw && power.default_limit_mw <= power.max_limit_mw
            );
            assert!(gpu.mig.pending.is_none() && gpu.ecc.pending.is_none());
        }
    }
}

#[test]
fn instances_of_the_mig_machine_have_the_sizes_of_their_profiles() {
    let machine = load("mig-a100");
    let layouts: Vec<Vec<_>> = (machine.gpus.iter())
        .map(|gpu| gpu.mig.devices.iter().map(|mig| (mig.profile.as_str(), mig.gpu_instance)).collect())
        .collect();
    assert_eq!(layouts[0], [7, 8, 9, 10, 11, 12, 13].map(|instance| ("1g.5gb", instance)));
    assert_eq!(layouts[1], [("4g.20gb", 1), ("3g.20gb", 2)]);
    assert_eq!(layouts[2], [("3g.20gb", 2), ("2g.10gb", 3), ("2g.10gb", 4)]);
    assert!(layouts[3].is_empty() && !machine.gpus[3].mig.enabled);
    let of = |gpu: usize, device: usize| {
        let mig = &machine.gpus[gpu].mig.devices[device];
        (mig.slices, mig.multiprocessors, mig.memory_mib)
    };
    assert_eq!(
        (of(0, 0), of(1, 0), of(1, 1), of(2, 1)),
        ((1, 14, 4864), (4, 56, 20096), (3, 42, 20096), (2, 28, 9984))
    );
    let uuids: HashSet<_> =
        machine.gpus.iter().flat_map(|gpu| &gpu.mig.devices).map(|mig| &mig.uuid).collect();
    assert_eq!(uuids.len(), 12);
}

#[test]
fn the_rendered_tree_is_as_the_kernel_shows_it() {
    for name in all_machines() {
        let machine = load(&name);
        let folder = tree_folder();
        let root = folder.path();
        machine.render(root).unwrap();
        assert_eq!(read(root.join("proc/sys/kernel/random/boot_id")), machine.boot_id);
        let driver = read(root.join("proc/driver/nvidia/version"));
        assert!(driver.contains(&format!("  {}  ", machine.driver.version)), "{driver}");
        assert_eq!(driver.contains("aarch64"), name.starts_with('g'), "{driver}");
        assert_eq!(read(root.join("sys/module/nvidia/version")), machine.driver.version);
        for gpu in &machine.gpus {
            let information = read(root.join(format!("proc/driver/nvidia/gpus/{}/information", gpu.pci)));
            assert!(information.contains(&format!("GPU UUID: \t {}\n", gpu.uuid)), "{information}");
            let pci = root.join("sys/bus/pci/devices").join(gpu.pci.to_string());
            assert_eq!(read(pci.join("vendor")), "0x10de");
            let display = gpu.name.contains("GeForce");
            assert_eq!(read(pci.join("class")), if display { "0x030000" } else { "0x030200" });
            let sound = PciAddress { function: 1, ..gpu.pci };
            assert_eq!(pci.with_file_name(sound.to_string()).exists(), display);
            let node = machine.numa_under(gpu.under).unwrap();
            assert_eq!(read(pci.join("numa_node")), node.to_string());
            assert_eq!(
                read(pci.join("local_cpulist")),
                read(root.join(format!("sys/devices/system/node/node{node}/cpulist")))
            );
            let real = fs::canonicalize(&pci).unwrap();
            let above = real.parent().unwrap();
            if gpu.under == gpu.pci {
                assert_eq!(above.file_name().unwrap().to_str().unwrap(), gpu.pci.root_bus());
                assert!(!above.join("class").exists() && !above.join("aer_dev_fatal").exists());
            } else {
                assert_eq!(above.file_name().unwrap().to_str().unwrap(), gpu.under.to_string());
                assert_eq!(read(above.join("current_link_width")), "16");
            }
            assert!(fs::canonicalize(pci.join("driver")).unwrap().ends_with("bus/pci/drivers/nvidia"));
        }
        for nic in &machine.nics {
            let class = root.join("sys/class/infiniband").join(&nic.name);
            assert!(fs::canonicalize(class.join("device")).unwrap().ends_with(nic.pci.to_string()));
            assert_eq!(read(class.join("ports/1/state")), if nic.active { "4: ACTIVE" } else { "1: DOWN" });
            assert_eq!(read(class.join("ports/1/link_layer")), nic.link_layer);
        }
        assert_eq!(
            read(root.join("sys/devices/system/cpu/online")),
            format!("0-{}", machine.cpu.count() - 1)
        );
    }
}

#[test]
fn cpus_of_the_hgx_machine_are_numbered_threads_last() {
    let folder = tree_folder();
    load("hgx-h100").render(folder.path()).unwrap();
    let cpu = |number: u32, file: &str| {
        read(folder.path().join(format!("sys/devices/system/cpu/cpu{number}/{file}")))
    };
    assert_eq!(cpu(168, "topology/thread_siblings_list"), "56,168");
    assert_eq!(cpu(168, "topology/physical_package_id"), "1");
    assert_eq!(cpu(168, "topology/core_id"), "0");
    assert_eq!(cpu(0, "topology/package_cpus_list"), "0-55,112-167");
    assert_eq!(cpu(0, "cache/index3/shared_cpu_list"), "0-55,112-167");
}

/// A folder for a rendered tree. A tree has thousands of small files, which take seconds on a disk.
fn tree_folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

/// Files of CPUs and NUMA nodes below `sys/devices/system`.
fn system(name: &str, files: &[(&str, &str)]) {
    let folder = tree_folder();
    load(name).render(folder.path()).unwrap();
    for (file, text) in files {
        assert_eq!(read(folder.path().join("sys/devices/system").join(file)), *text, "{name}: {file}");
    }
}

#[test]
fn cpus_and_nodes_of_odd_machines_are_numbered_as_there() {
    system(
        "h100-4x-snc4",
        &[
            ("cpu/cpu6/topology/physical_package_id", "0"),
            ("cpu/cpu6/topology/core_id", "3"),
            ("cpu/cpu5/topology/physical_package_id", "1"),
            ("cpu/cpu5/topology/thread_siblings_list", "5"),
            ("cpu/cpu1/cache/index3/shared_cpu_list", "1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31"),
            ("node/node3/cpulist", "6,14,22,30"),
            ("node/node3/distance", "12 12 12 10 21 21 21 21"),
        ],
    );
    system(
        "ac922-smt4",
        &[
            ("cpu/cpu82/topology/thread_siblings_list", "80-83"),
            ("cpu/cpu82/topology/physical_package_id", "1"),
            ("cpu/cpu82/cache/index3/shared_cpu_list", "80-87"),
            ("node/online", "0,8"),
            ("node/node8/distance", "40 10"),
        ],
    );
    system(
        "dgx-a100",
        &[
            ("cpu/cpu200/topology/thread_siblings_list", "72,200"),
            ("cpu/cpu200/cache/index3/shared_cpu_list", "72-75,200-203"),
            ("node/node3/distance", "12 12 12 10 32 32 32 32"),
        ],
    );
    system(
        "gb200-tray",
        &[
            ("node/online", "0-33"),
            ("node/has_cpu", "0-1"),
            ("node/has_memory", "0-2,10,18,26"),
            ("node/node26/cpulist", ""),
            ("cpu/cpu72/topology/thread_siblings_list", "72"),
        ],
    );
    let folder = tree_folder();
    load("gb200-tray").render(folder.path()).unwrap();
    let distances = read(folder.path().join("sys/devices/system/node/node0/distance"));
    assert!(distances.starts_with("10 40 80 80") && distances.ends_with("120 120"), "{distances}");
}

#[test]
fn without_a_driver_there_is_no_trace_of_one() {
    let mut machine = load("hgx-h100");
    machine.driver.loaded = false;
    let folder = tree_folder();
    // Over a tree with a driver: nothing of it may stay.
    load("hgx-h100").render(folder.path()).unwrap();
    machine.render(folder.path()).unwrap();
    assert!(!folder.path().join("proc/driver").exists());
    assert!(!folder.path().join("sys/module/nvidia").exists());
    assert!(!read(folder.path().join("proc/modules")).contains("nvidia"));
    let gpu = folder.path().join("sys/bus/pci/devices").join(machine.gpus[0].pci.to_string());
    assert!(gpu.join("vendor").exists() && !gpu.join("driver").exists());
}

#[test]
fn the_root_of_the_host_is_refused() {
    assert!(load("l40s-pcie").render(Path::new("/")).unwrap_err().to_string().contains("root of the host"));
}

#[test]
fn the_readme_has_a_row_for_each_machine_and_each_machine_says_what_it_is() {
    let folder = scenario("x").parent().unwrap().to_path_buf();
    let readme = read(folder.join("README.md"));
    let rows: Vec<_> =
        readme.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    assert_eq!(rows, all_machines());
    for name in all_machines() {
        let text = fs::read_to_string(scenario(&name)).unwrap();
        let head: Vec<_> = text.lines().take_while(|line| line.starts_with('#')).collect();
        assert!(head.len() >= 4 && head.iter().any(|line| line.to_lowercase().contains("trap")), "{name}");
        let sheet = head.iter().any(|line| line.contains("tests/topologies/") || line.contains("https://"));
        assert!(
            sheet
                || head
                    .iter()
                    .any(|line| line.to_lowercase().contains("ours") || line.contains("Not a real")),
            "{name}"
        );
    }
}
