//! The quirks of `nvidia-smi topo -m`, one by one, and topologies from snapshots.

use super::matrix::{MatrixError, parse};
use super::*;

fn cpus(text: &str) -> Option<CpuSet> {
    Some(text.parse().unwrap())
}

fn message(text: &str) -> (usize, String) {
    match parse(text) {
        Err(MatrixError::Line { line, message }) => (line, message),
        other => panic!("{other:?}"),
    }
}

/// Escapes around the header, blanks around cells, an empty cell before the last, tabs after a NIC row.
const CAPTURE: &str = "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n\
    GPU0\t X \tNV4\tPIX\t0-15\t0\t\tN/A\n\
    GPU1\tNV4\t X \tSYS\t16-31\t1\t\tN/A\n\
    NIC0\tPIX\tSYS\t X \t\t\t\t\n\
    \n\
    Legend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe as well as the SMP interconnect\n\n\
    NIC Legend:\n\n  NIC0: mlx5_4\n";

#[test]
fn a_capture_with_escapes_blanks_and_extra_cells_is_read() {
    let topology = parse(CAPTURE).unwrap();
    assert_eq!(topology.device_names(), ["GPU0", "GPU1", "NIC0"]);
    assert_eq!(topology.between_gpus(0, 1), Path::NvLink { links: 4, pcie: None });
    assert_eq!(topology.to_nic(0, 0), Path::Pcie(PathClass::Pix));
    assert_eq!(topology.path(2, 1), Path::Pcie(PathClass::Sys));
    assert_eq!((topology.gpus[1].cpus.clone(), &topology.gpus[1].numa_nodes[..]), (cpus("16-31"), &[1][..]));
    assert_eq!(topology.gpus[0].memory_node, None);
    assert_eq!(topology.nics[0].device.as_deref(), Some("mlx5_4"));
    assert_eq!(topology.notes, Vec::<String>::new());
}

#[test]
fn an_escape_before_the_tab_and_a_shell_around_the_matrix_change_nothing() {
    let text = CAPTURE.replace("\t\x1b[4m", "\x1b[4m\t");
    let text = format!("root@node:~# nvidia-smi topo -m # GPU0 first\n```\n{text}\nroot@node:~# exit\n");
    assert_eq!(parse(&text).unwrap(), parse(CAPTURE).unwrap());
}

#[test]
fn blanks_for_tabs_read_the_same() {
    let text = "        GPU0    GPU1    mlx5_0  CPU Affinity    NUMA Affinity\n\
                GPU0     X      NV12    PXB     48-63,176-191   3\n\
                GPU1    NV12     X      PXB     48-63,176-191   3\n\
                mlx5_0  PXB     PXB      X\n";
    let topology = parse(text).unwrap();
    assert_eq!(topology.gpus[0].cpus, cpus("48-63,176-191"));
    assert_eq!(topology.gpus[0].numa_nodes, [3]);
    assert_eq!(topology.nics[0].device.as_deref(), Some("mlx5_0"));
    assert_eq!(topology.to_nic(1, 0), Path::Pcie(PathClass::Pxb));
}

#[test]
fn an_empty_affinity_is_unknown_and_never_cpu_0() {
    let tabs = "\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t\t0\t\tN/A\n";
    let gpu = &parse(tabs).unwrap().gpus[0];
    assert_eq!((gpu.cpus.clone(), &gpu.numa_nodes[..]), (None, &[0][..]));
    // With blanks the cells that are left could be any.
    let blanks = "      GPU0  CPU Affinity  NUMA Affinity  GPU NUMA ID\nGPU0   X    0    N/A\n";
    let topology = parse(blanks).unwrap();
    assert_eq!((topology.gpus[0].cpus.clone(), topology.gpus[0].numa_nodes.len()), (None, 0));
    assert_eq!(topology.notes, ["the CPUs beside GPU0 are unknown"]);
}

#[test]
fn a_numa_cell_of_na_leaves_the_gpu_numa_id_in_its_place() {
    let text = "\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-71\t\t2\n";
    assert_eq!(parse(text).unwrap().gpus[0].memory_node, Some(2));
    let text = "\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-71\t\tN/A\t\tN/A\n";
    assert_eq!(parse(text).unwrap().gpus[0].memory_node, None);
    let text = "\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-71\t0,3-5\t\t2\n";
    assert_eq!(parse(text).unwrap().gpus[0].numa_nodes, [0, 3, 4, 5]);
}

#[test]
fn cells_glued_where_the_header_is_glued_are_split_and_others_are_refused() {
    let header = "\tGPU0\tNIC0NIC1\tNIC2\tCPU Affinity\n";
    let topology = parse(&format!("{header}GPU0\t X \tNODEPXB\tSYS\t0-3\n")).unwrap();
    let row: Vec<String> = (1..4).map(|nic| topology.path(0, nic).to_string()).collect();
    assert_eq!(row, ["NODE", "PXB", "SYS"]);
    assert!(topology.notes.iter().any(|note| note.contains("NIC0NIC1")), "{:?}", topology.notes);
    // A row that was not glued needs no repair.
    assert_eq!(parse(&format!("{header}GPU0\t X \tNODE\tPXB\tSYS\t0-3\n")).unwrap().paths, topology.paths);
    // Two ways, none, or at another place.
    assert_eq!(message(&format!("{header}GPU0\t X \tNODENOD\tSYS\t0-3\n")).0, 2);
    assert_eq!(message("\tGPU0\tNIC0\tNIC1\tCPU Affinity\nGPU0\t X \tNODEPXB\t0-3\n").0, 2);
    assert_eq!(message("\tGPU0\tGPU1NIC0\tNIC1NIC2\n").0, 1);
}

#[test]
fn shifted_cells_and_foreign_ones_name_line_value_and_what_is_allowed() {
    let header = "\tGPU0\tGPU1\tCPU Affinity\n";
    let (line, text) = message(&format!("{header}GPU0\t X \tNV4\t0-3\nGPU1\tOK\t X \t0-3\n"));
    assert_eq!(
        (line, text.as_str()),
        (3, "'OK' in column GPU0: allowed are X, PIX, PXB, PHB, NODE, SYS or NV and a number")
    );
    assert!(message(&format!("{header}GPU0\tNV4\t X \t0-3\n")).1.contains("columns are shifted"));
    assert!(
        message(&format!("{header}GPU0\t X \n")).1.contains("1 cells between devices, the header names 2")
    );
    assert!(message(&format!("{header}GPU7\t X \tSYS\t0-3\n")).1.contains("'GPU7' is no column"));
    assert!(message(&format!("{header}GPU0\t X \tSYS\t3-0\n")).1.contains("'3-0' is no list"));
    assert!(message(&format!("{header}GPU0\t X \tNV0\t0\n")).1.contains("'NV0'"));
    let twice = format!("{header}GPU0\t X \tSYS\t0\nGPU0\t X \tSYS\t0\n");
    assert_eq!(message(&twice), (3, "a second row of GPU0".into()));
    assert!(message("\tGPU0\tGPU0\n").1.contains("two columns are called GPU0"));
    assert_eq!(parse("nothing of the kind\nGPU0 X\n"), Err(MatrixError::NoMatrix));
}

#[test]
fn names_that_would_leave_their_line_are_no_names() {
    let osc = "\tGPU0\tmlx\x1b]0;title\x07\nGPU0\tX\tPIX\n";
    assert!(message(osc).1.contains("no name of a device"), "{osc:?}");
    let long = format!("\tGPU0\tmlx{}\nGPU0\tX\tPIX\n", "5".repeat(100));
    assert!(message(&long).1.contains("no name of a device"));
    let legend = parse(&CAPTURE.replace("mlx5_4", "mlx\x1b]0;title\x07")).unwrap();
    assert_eq!(legend.nics[0].device.as_deref(), Some("mlx\\x1b]0;title\\x07"));
}

#[test]
fn a_snapshot_with_more_devices_than_any_host_has_is_cut_and_says_so() {
    let pci = |at: u32| format!("{at:08x}:00:00.0").parse().unwrap();
    let mut snapshot = crate::model::Snapshot::default();
    snapshot.host.pci_gpus = crate::model::Reading::Value((0..3000).map(pci).collect());
    let topology = Topology::of_snapshot(&snapshot);
    assert!(topology.gpus.len() <= 512 && topology.paths.len() == topology.gpus.len());
    assert!(topology.notes.iter().any(|note| note.contains("3000 GPUs")), "{:?}", topology.notes);
}

#[test]
fn question_marks_are_for_data_files_only() {
    let text = "\tGPU0\tGPU1\nGPU0\t X \t?\nGPU1\t?\t X \n";
    assert!(message(text).1.contains("'?' is allowed only in files that say"));
    let topology = parse(&format!("# completeness: partial\n\n{text}")).unwrap();
    assert_eq!(topology.between_gpus(0, 1), Path::Unknown);
    assert!(topology.notes.iter().any(|note| note == "1 pairs of devices are unknown"));
}

#[test]
fn two_rows_that_contradict_each_other_make_the_pair_unknown() {
    let topology = parse("\tGPU0\tGPU1\nGPU0\t X \tPIX\nGPU1\tSYS\t X \n").unwrap();
    assert_eq!(topology.between_gpus(0, 1), Path::Unknown);
    assert!(topology.notes[2].contains("taken for unknown"), "{:?}", topology.notes);
}

#[test]
fn a_gpu_off_the_fabric_is_called_a_fault() {
    let row = |own: usize| {
        let cell = |other: usize| match (own, other) {
            _ if own == other => "X",
            (2, _) | (_, 2) => "NODE",
            _ => "NV18",
        };
        format!("GPU{own}\t{}\n", (0..4).map(cell).collect::<Vec<_>>().join("\t"))
    };
    let text = format!("\tGPU0\tGPU1\tGPU2\tGPU3\n{}", (0..4).map(row).collect::<String>());
    let notes = parse(&text).unwrap().notes;
    assert!(notes.iter().any(|note| note.starts_with("GPU2 without NVLink")), "{notes:?}");
}

#[test]
fn no_text_makes_the_parser_panic() {
    let bytes: Vec<char> = "\t \n\x1b[mGPU0NIC12XSYSNODEPIXé?#:-,9".chars().collect();
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap()
    };
    for _ in 0..20_000 {
        let length = next() % 80;
        let mut text: String = (0..length).map(|_| bytes[next() % bytes.len()]).collect();
        if next() % 2 == 0 {
            text = format!("\tGPU0\tNIC0NIC1\tCPU Affinity\nGPU0\t X \t{text}");
        }
        let _ = parse(&text);
    }
}
