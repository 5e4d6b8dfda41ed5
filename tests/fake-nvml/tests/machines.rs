//! Scenarios: loading, ids of simulated nodes, messages, and the rendered trees.

// Integration tests have no test module.
#![allow(clippy::tests_outside_test_module)]

mod common;

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use common::{SCENARIOS, scenario};
use nvidia_ml::engine::{Level, common_ancestor};
use nvidia_ml::scenario::{Machine, PciAddress};

fn load(name: &str) -> Machine {
    Machine::load(&scenario(name)).unwrap()
}

/// The names of all machines in tests/scenarios.
fn all_machines() -> Vec<String> {
    let folder = scenario("x").parent().unwrap().to_path_buf();
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let machines = files.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
    let mut names: Vec<_> =
        machines.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    assert!(names.len() >= SCENARIOS.len());
    names
}

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).trim().to_owned()
}

fn load_text(text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(
        scenario("models").with_extension("").canonicalize().unwrap(),
        folder.path().join("models"),
    )
    .unwrap();
    let path = folder.path().join("machine.toml");
    fs::write(&path, text).unwrap();
    match Machine::load(&path) {
        Ok(_) => "fine".into(),
        Err(error) => error.to_string().replace(&folder.path().display().to_string(), ""),
    }
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

#[test]
fn messages_name_file_line_and_key() {
    let good = fs::read_to_string(scenario("l40s-pcie")).unwrap();
    assert_eq!(load_text(&good), "fine");
    let unknown = load_text(&good.replace("minor = 2", "minro = 2"));
    assert!(unknown.starts_with("/machine.toml:") && unknown.contains("unknown field `minro`"), "{unknown}");
    let line = good.lines().position(|line| line == "minor = 2").unwrap() + 1;
    assert!(unknown.contains(&format!("machine.toml:{line}:")), "{unknown}");
    let kind = load_text(&good.replace("sockets = 2", "sockets = \"two\""));
    assert!(kind.contains("in `sockets = \"two\"`"), "{kind}");
    let address = load_text(&good.replace("pci = \"0000:81:00.0\"", "pci = \"0000:81:40.0\""));
    assert!(address.contains("'0000:81:40.0' is not a PCI address"), "{address}");
    let twice = load_text(&good.replace("0000:81:00.0", "0000:21:00.0"));
    assert!(twice.contains("0000:21:00.0 is used twice") && twice.contains("line "), "{twice}");
    let port = load_text(&good.replace("under = \"0000:80:01.1\"", "under = \"0000:80:02.1\""));
    assert!(port.contains("gpus[2].under: 0000:80:02.1 is no root port"), "{port}");
    let model = load_text(&good.replace("model = \"l40s\"", "model = \"l40x\""));
    assert!(model.contains("cannot read /models/l40x.toml"), "{model}");
    let minor = load_text(&good.replace("minor = 2", "minor = 1"));
    assert!(minor.contains("slot or minor is used twice"), "{minor}");
}

#[test]
fn the_hgx_machine_has_the_distances_of_its_matrix() {
    let machine = load("hgx-h100");
    // Index of the only near NIC of each GPU.
    for (gpu, near) in machine.gpus.iter().zip([0, 1, 2, 5, 6, 7, 8, 9]) {
        for (number, nic) in machine.nics.iter().enumerate() {
            let level = common_ancestor(&machine, gpu.under, nic.under);
            assert_eq!(level == Level::Single, number == near, "GPU{} NIC{number}: {level:?}", gpu.slot());
        }
    }
    let minors: Vec<_> = machine.gpus.iter().map(|gpu| gpu.minor).collect();
    assert_ne!(minors, [0, 1, 2, 3, 4, 5, 6, 7]);
    let names: Vec<_> = machine.nics.iter().map(|nic| nic.pci).collect();
    assert!(names.is_sorted(), "mlx5 numbers follow PCI order");
}

#[test]
fn the_l40s_machine_has_the_distances_of_its_matrix() {
    let machine = load("l40s-pcie");
    let ports: Vec<PciAddress> =
        machine.gpus.iter().map(|gpu| gpu.under).chain(machine.nics.iter().map(|nic| nic.under)).collect();
    let (node, system) = (Level::Node, Level::System);
    let expected = [
        [node, system, system, system, system],
        [system, system, system, system, system],
        [system, system, node, node, node],
    ];
    for (row, levels) in expected.iter().enumerate() {
        for (column, level) in levels.iter().enumerate().skip(row) {
            assert_eq!(
                common_ancestor(&machine, ports[row], ports[column + 1]),
                *level,
                "{row} {}",
                column + 1
            );
        }
    }
    assert_eq!(common_ancestor(&machine, ports[4], ports[5]), Level::Single);
}

#[test]
fn the_rendered_tree_is_as_the_kernel_shows_it() {
    for name in all_machines() {
        let machine = load(&name);
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        machine.render(root).unwrap();
        assert_eq!(read(root.join("proc/sys/kernel/random/boot_id")), machine.boot_id);
        let driver = read(root.join("proc/driver/nvidia/version"));
        assert!(
            driver.starts_with("NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.124.06  "),
            "{driver}"
        );
        assert_eq!(read(root.join("sys/module/nvidia/version")), "570.124.06");
        for gpu in &machine.gpus {
            let information = read(root.join(format!("proc/driver/nvidia/gpus/{}/information", gpu.pci)));
            assert!(information.contains(&format!("GPU UUID: \t {}\n", gpu.uuid)), "{information}");
            let pci = root.join("sys/bus/pci/devices").join(gpu.pci.to_string());
            assert_eq!(read(pci.join("vendor")), "0x10de");
            assert_eq!(read(pci.join("class")), "0x030200");
            let node = machine.numa_under(gpu.under).unwrap();
            assert_eq!(read(pci.join("numa_node")), node.to_string());
            assert_eq!(
                read(pci.join("local_cpulist")),
                read(root.join(format!("sys/devices/system/node/node{node}/cpulist")))
            );
            let real = fs::canonicalize(&pci).unwrap();
            assert_eq!(real.parent().unwrap().file_name().unwrap().to_str().unwrap(), gpu.under.to_string());
            assert_eq!(read(real.parent().unwrap().join("current_link_width")), "16");
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
    let folder = tempfile::tempdir().unwrap();
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

#[test]
fn without_a_driver_there_is_no_trace_of_one() {
    let mut machine = load("hgx-h100");
    machine.driver.loaded = false;
    let folder = tempfile::tempdir().unwrap();
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
