//! `gpuward topo`: where each GPU sits.

use crate::report::Table;
use crate::site::NodeArgs;
use gpuward_core::affinity::{Place, beside};
use gpuward_core::model::CpuSet;
use gpuward_core::model::snapshot::DriverGpu;
use gpuward_node::sysfs::{complete, read_driver};
use std::path::Path;
use std::process::ExitCode;

/// Shows where each GPU sits: PCI address, NUMA node and the CPUs beside it. Asks sysfs and procfs, not the driver.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    node: NodeArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Prints the places.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    let site = args.node.site()?;
    let sysfs = Path::new(&site.paths.sysfs);
    let mut host = read_driver(sysfs, Path::new(&site.paths.procfs));
    complete(&mut host, sysfs);
    if args.json {
        return super::print_json(&host.driver_gpus);
    }
    let mut table = Table::new(&["MINOR", "PCI", "UUID", "MODEL", "NUMA", "CPUS"]);
    for gpu in &host.driver_gpus {
        table.row([
            gpu.minor.map_or_else(String::new, |minor| minor.to_string()),
            gpu.pci.to_string(),
            gpu.uuid.as_ref().map_or_else(String::new, |uuid| uuid.short().to_owned()),
            gpu.model.clone().unwrap_or_default(),
            gpu.numa_node.map_or_else(String::new, |node| node.to_string()),
            cpus(gpu),
        ]);
    }
    super::print(&table.to_string())?;
    Ok(ExitCode::SUCCESS)
}

fn cpus(gpu: &DriverGpu) -> String {
    let known: Option<CpuSet> = gpu.local_cpus.as_ref().and_then(|list| list.parse().ok());
    let place = Place { numa_node: gpu.numa_node, cpus: known.clone() };
    known.and_then(|all| beside(&[place], &all)).map_or_else(String::new, |cpus| cpus.to_string())
}
