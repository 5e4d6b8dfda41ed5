//! Scenarios against the public figures of the machines that they stand for (tests/topologies).

// Integration tests have no test module.
#![allow(clippy::tests_outside_test_module)]

mod common;

use std::fs;
use std::path::Path;

use common::scenario;
use nvidia_ml::engine::{Level, common_ancestor, link_count, near_cpus, nvlink_joined};
use nvidia_ml::scenario::{Gpu, Machine, NumaNode, PciAddress};

/// A table of tests/topologies: header and rows.
struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    fn read(file: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../topologies").join(file);
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let mut rows = lines.map(|line| line.split('\t').map(str::to_owned).collect());
        Self { header: rows.next().unwrap(), rows: rows.collect() }
    }

    /// A cell; "?" where the publication has none, and for columns that it does not have.
    fn cell<'a>(&self, row: &'a [String], column: &str) -> &'a str {
        let column = self.header.iter().position(|name| name == column);
        column.map_or("?", |column| row[column].as_str())
    }
}

/// Where nvidia-smi's print differs from firmware.
#[derive(Clone, Copy, Default)]
struct Print {
    /// It shows SYS for what is NODE: each device is on a root bus of its own, and the print knows only these.
    node_is_sys: bool,
    /// It shows the CPUs of the first NUMA node for all GPUs.
    cpus_of_first_node: bool,
}

const AS_FIRMWARE: Print = Print { node_is_sys: false, cpus_of_first_node: false };
const NODE_IS_SYS: Print = Print { node_is_sys: true, ..AS_FIRMWARE };
const FIRST_NODE: Print = Print { cpus_of_first_node: true, ..AS_FIRMWARE };

/// Machines with a matrix. NVLink hides the PCIe class everywhere.
const MATRICES: [(&str, &str, Print); 14] = [
    ("dgx-1v", "dgx1v_4nic_wrong_affinity.txt", FIRST_NODE),
    ("dgx-2", "dgx2_16gpu_partial.txt", AS_FIRMWARE),
    ("dgx-a100", "dgx_a100.txt", AS_FIRMWARE),
    ("gb200-tray", "gb200_tray_numa_gpu_online.txt", NODE_IS_SYS),
    ("h100-4x-snc4", "h100_4x_nv6_interleaved_numa.txt", AS_FIRMWARE),
    ("h100-vm", "vm_4xh100_phb_flat.txt", AS_FIRMWARE),
    ("h100nvl-bridge-pairs", "h100nvl_8x_bridge_pairs.txt", AS_FIRMWARE),
    ("hgx-b200", "hgx_b200_snc2.txt", AS_FIRMWARE),
    ("hgx-h100", "hgx_h100_10nic.txt", NODE_IS_SYS),
    ("hgx-h100-8nic", "hgx_hopper_8nic_clean.txt", AS_FIRMWARE),
    ("l40s-pcie", "l40s_4x_epyc.txt", AS_FIRMWARE),
    ("l4-vm", "l4_8x_vm_phb.txt", AS_FIRMWARE),
    ("pcie-5gpu", "pcie_5gpu_1plus4.txt", AS_FIRMWARE),
    ("rtx4090-8x-intel", "rtx4090_8x_intel_1nic.txt", NODE_IS_SYS),
];

/// A row of the matrix.
#[derive(Clone, Copy)]
enum Device<'a> {
    Gpu(&'a Gpu),
    Nic(PciAddress),
}

impl<'a> Device<'a> {
    /// The device of this name: GPUs and NICs by number, or NICs by the kernel's name.
    fn named(machine: &'a Machine, name: &str) -> Self {
        let number = |prefix| name.strip_prefix(prefix).and_then(|number| number.parse::<usize>().ok());
        if let Some(index) = number("GPU") {
            return Self::Gpu(machine.gpu(machine.nvml_slots()[index]).unwrap());
        }
        let by_name = || machine.nics.iter().find(|nic| nic.name == name).unwrap();
        Self::Nic(number("NIC").map_or_else(by_name, |index| &machine.nics[index]).under)
    }

    fn under(self) -> PciAddress {
        match self {
            Self::Gpu(gpu) => gpu.under,
            Self::Nic(under) => under,
        }
    }
}

/// Links between two GPUs: those of the pair, or through switches all of a GPU.
fn links_between(machine: &Machine, a: &Gpu, b: &Gpu) -> u32 {
    let direct = a.nvlink.links.iter().filter(|group| group.to == b.pci);
    let direct: usize = direct.map(|group| group.links.0.len()).sum();
    let joined = nvlink_joined(machine, a, b);
    assert_eq!(joined, nvlink_joined(machine, b, a));
    match (direct, joined) {
        (0, true) => link_count(a),
        (0, false) => 0,
        (direct, joined) => {
            assert!(joined);
            u32::try_from(direct).unwrap()
        }
    }
}

fn cell(machine: &Machine, a: Device<'_>, b: Device<'_>, print: Print) -> String {
    if let (Device::Gpu(a), Device::Gpu(b)) = (a, b) {
        let links = links_between(machine, a, b);
        if links > 0 {
            return format!("NV{links}");
        }
    }
    let class = match common_ancestor(machine, a.under(), b.under()) {
        Level::Internal => "X",
        Level::Single => "PIX",
        Level::Multiple => "PXB",
        Level::HostBridge => "PHB",
        Level::Node if print.node_is_sys => "SYS",
        Level::Node => "NODE",
        Level::System => "SYS",
    };
    class.to_owned()
}

/// NUMA nodes near a GPU as printed: its node, and where GPU memory is online the empty nodes of that socket.
fn numa_column(machine: &Machine, gpu: &Gpu) -> String {
    let own = machine.numa_under(gpu.under).unwrap();
    let place = machine.numa.iter().position(|node| node.node == own).unwrap();
    let nearest = |node: &NumaNode| {
        let with_cpus = (0..machine.numa.len()).filter(|&other| !machine.numa[other].cpus.0.is_empty());
        with_cpus.min_by_key(|&other| node.distances[other]) == Some(place)
    };
    let empty = machine.numa.iter().filter(|node| node.cpus.0.is_empty() && node.memory_mib == 0);
    let empty = empty.filter(|node| nearest(node)).map(|node| node.node);
    empty.chain([own]).collect::<nvidia_ml::scenario::CpuList>().to_string()
}

fn cpu_column(machine: &Machine, gpu: &Gpu, print: Print) -> String {
    if print.cpus_of_first_node {
        machine.numa[0].cpus.to_string()
    } else {
        near_cpus(machine, gpu).to_string()
    }
}

#[test]
fn machines_have_the_distances_links_and_cpus_of_their_public_matrix() {
    for (name, file, print) in MATRICES {
        let machine = Machine::load(&scenario(name)).unwrap();
        let table = Table::read(file);
        let devices = table.header.iter().filter(|name| !name.is_empty() && !name.contains("Affinity"));
        let devices: Vec<_> = devices.filter(|name| !name.contains("NUMA")).collect();
        assert_eq!(devices.len(), machine.gpus.len() + machine.nics.len(), "{name} has other devices");
        assert_eq!(table.rows.len(), devices.len());
        let mut compared = 0;
        let mut same = |row: &str, column: &str, printed: &str, ours: String| {
            if printed != "?" {
                assert_eq!(printed, ours, "{name}, row {row}, column {column}");
                compared += 1;
            }
        };
        for row in &table.rows {
            let a = Device::named(&machine, &row[0]);
            for column in devices.iter().filter(|column| ***column != row[0]) {
                let b = Device::named(&machine, column);
                same(&row[0], column, table.cell(row, column), cell(&machine, a, b, print));
            }
            let Device::Gpu(gpu) = a else { continue };
            let memory_node = gpu.memory_numa_node.map_or_else(|| "N/A".to_owned(), |node| node.to_string());
            for (column, ours) in [
                ("CPU Affinity", cpu_column(&machine, gpu, print)),
                ("NUMA Affinity", numa_column(&machine, gpu)),
                ("GPU NUMA ID", memory_node),
            ] {
                same(&row[0], column, table.cell(row, column), ours);
            }
        }
        assert!(compared >= devices.len() * 4, "{name}: only {compared} cells");
    }
}

#[test]
fn the_quad_gh200_has_the_nodes_of_its_public_description() {
    let machine = Machine::load(&scenario("gh200-quad")).unwrap();
    let table = Table::read("gh200_alps_quad_facts.txt");
    for (row, gpu) in table.rows.iter().zip(&machine.gpus) {
        assert_eq!(table.cell(row, "cpus"), near_cpus(&machine, gpu).to_string());
        assert_eq!(table.cell(row, "cpu_numa"), machine.numa_under(gpu.under).unwrap().to_string());
        assert_eq!(table.cell(row, "first_gpu_numa"), gpu.memory_numa_node.unwrap().to_string());
    }
    assert_eq!((table.rows.len(), machine.numa.len()), (machine.gpus.len(), 36));
    assert_eq!(machine.numa.iter().filter(|node| node.cpus.0.is_empty()).count(), 32);
}

#[test]
fn cloud_machines_have_the_addresses_of_their_providers_files() {
    let azure = Machine::load(&scenario("azure-ndv5")).unwrap();
    let table = Table::read("azure_ndv5_topofile.txt");
    assert_eq!((table.rows.len(), azure.nics.len()), (azure.gpus.len(), azure.gpus.len()));
    for (row, (gpu, nic)) in table.rows.iter().zip(azure.gpus.iter().zip(&azure.nics)) {
        assert_eq!(table.cell(row, "gpu_domain"), format!("{:04x}", gpu.pci.domain));
        assert_eq!(table.cell(row, "nic_domain"), format!("{:04x}", nic.pci.domain));
        placed(&azure, gpu, (table.cell(row, "numa"), table.cell(row, "cpus")));
        // The pair is visible in the provider's file only.
        assert_eq!(common_ancestor(&azure, gpu.under, nic.under), Level::Node);
    }
    let aws = Machine::load(&scenario("aws-p4d")).unwrap();
    let table = Table::read("aws_p4d_topofile.txt");
    let short = |pci: PciAddress| pci.to_string().trim_start_matches("0000:").to_owned();
    for ((row, gpus), nic) in table.rows.iter().zip(aws.gpus.chunks(2)).zip(&aws.nics) {
        let ids = gpus.iter().map(|gpu| short(gpu.pci)).collect::<Vec<_>>().join(",");
        assert_eq!(table.cell(row, "gpu_busids"), ids);
        assert_eq!(table.cell(row, "nic_busids"), short(nic.pci));
        for gpu in gpus {
            placed(&aws, gpu, (table.cell(row, "numa"), table.cell(row, "cpus")));
        }
    }
    assert_eq!((table.rows.len() * 2, table.rows.len()), (aws.gpus.len(), aws.nics.len()));
}

fn placed(machine: &Machine, gpu: &Gpu, (numa, cpus): (&str, &str)) {
    assert_eq!(machine.numa_under(gpu.under).unwrap().to_string(), numa);
    assert_eq!(near_cpus(machine, gpu).to_string(), cpus);
}
