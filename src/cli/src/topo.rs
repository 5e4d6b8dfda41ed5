//! `gpuward topo`: where each GPU sits, and what joins the devices of a node.

use crate::report::Table;
use crate::site::NodeArgs;
use crate::snapshot;
use gpuward_core::model::topology::{PlacedGpu, PlacedNic, matrix};
use gpuward_core::model::{PciAddress, Topology};
use gpuward_core::text::escape;
use gpuward_node::files;
use gpuward_node::flow::{Inspection, inspect_node};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Shows where each GPU sits and what joins the devices: NVLinks (NV18 = 18 of them), else the distance by PCIe.
///
/// PIX one PCIe switch, PXB several, PHB a host bridge, NODE host bridges of one NUMA node, SYS another NUMA node, ?
/// unknown.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    node: NodeArgs,
    /// Read the output of `nvidia-smi topo -m` from a file instead of looking at this node.
    #[arg(long, value_name = "FILE", conflicts_with = "snapshot")]
    topo: Option<PathBuf>,
    /// Read a file that `gpuward snapshot` wrote instead of looking at this node.
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Prints the topology.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    let topology = match (&args.topo, &args.snapshot) {
        (Some(path), _) => of_text(path)?,
        (None, Some(path)) => Topology::of_snapshot(&snapshot::read(path)?.snapshot),
        (None, None) => {
            let look = inspect_node(&args.node.site()?, Inspection::default(), &mut |_, _| {});
            Topology::of_snapshot(&look.map_err(|error| error.to_string())?.snapshot)
        }
    };
    if args.json {
        return super::print_json(&topology);
    }
    super::print(&text(&topology))?;
    Ok(ExitCode::SUCCESS)
}

/// The widest listing in the field has some ten KB.
const MAX_BYTES: u64 = 4 << 20;

/// Reads a listing of `nvidia-smi topo -m`.
pub fn of_text(path: &Path) -> Result<Topology, String> {
    let text = files::read_text(path, MAX_BYTES).map_err(|error| error.to_string())?;
    matrix::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
}

fn text(topology: &Topology) -> String {
    if topology.gpus.is_empty() && topology.nics.is_empty() {
        return "no GPU and no RDMA device\n".to_owned();
    }
    let mut out = format!("{}\n{}", paths(topology), gpus(topology));
    if !topology.nics.is_empty() {
        out.push_str(&format!("\n{}", nics(topology)));
    }
    for (place, note) in topology.notes.iter().enumerate() {
        out.push_str(&format!("{}note: {note}\n", if place == 0 { "\n" } else { "" }));
    }
    out
}

fn paths(topology: &Topology) -> Table {
    let names = topology.device_names();
    let mut table = Table::new(&[&[""], &names[..]].concat());
    for (place, name) in names.iter().enumerate() {
        let cells = (0..names.len()).map(|other| topology.path(place, other).to_string());
        table.row([(*name).to_owned()].into_iter().chain(cells));
    }
    table
}

fn gpus(topology: &Topology) -> Table {
    let mut table = Table::new(&["GPU", "PCI", "MINOR", "UUID", "MODEL", "NUMA", "CPUS"]);
    for gpu in &topology.gpus {
        table.row([
            gpu.name.clone(),
            shown(gpu.pci.as_ref()),
            shown(gpu.minor.as_ref()),
            gpu.uuid.as_ref().map_or_else(String::new, |uuid| uuid.short().to_owned()),
            named(gpu.model.as_deref()),
            numa(gpu),
            shown(gpu.cpus.as_ref()),
        ]);
    }
    table
}

/// The nodes beside it; a node of its own memory is named apart.
fn numa(gpu: &PlacedGpu) -> String {
    let nodes: Vec<String> = gpu.numa_nodes.iter().map(ToString::to_string).collect();
    let memory = gpu.memory_node.map_or_else(String::new, |node| format!(" (own memory {node})"));
    format!("{}{memory}", nodes.join(","))
}

fn nics(topology: &Topology) -> Table {
    let mut table = Table::new(&["NIC", "DEVICE", "PCI", "NUMA", "NEAREST GPUS"]);
    for (place, nic) in topology.nics.iter().enumerate() {
        let PlacedNic { name, device, pci, numa_node } = nic;
        table.row([
            name.clone(),
            named(device.as_deref()),
            shown::<PciAddress>(pci.as_ref()),
            shown(numa_node.as_ref()),
            nearest(topology, place),
        ]);
    }
    table
}

/// The GPUs at the shortest known distance; nothing where that is another NUMA node.
fn nearest(topology: &Topology, nic: usize) -> String {
    use gpuward_core::model::topology::{Path, PathClass};
    let class = |gpu: usize| match topology.to_nic(gpu, nic) {
        Path::Pcie(class) => Some(class),
        _ => None,
    };
    let count = topology.gpus.len();
    let best = (0..count).filter_map(class).min().filter(|best| *best != PathClass::Sys);
    let Some(best) = best else { return String::new() };
    let near = (0..count).filter(|&gpu| class(gpu) == Some(best)).map(|gpu| topology.gpus[gpu].name.as_str());
    format!("{} ({best})", near.collect::<Vec<_>>().join(" "))
}

/// A name from a file that others wrote, on one line.
fn named(name: Option<&str>) -> String {
    name.map_or_else(String::new, |name| escape(name, 64))
}

fn shown<T: Display>(value: Option<&T>) -> String {
    value.map_or_else(String::new, ToString::to_string)
}
