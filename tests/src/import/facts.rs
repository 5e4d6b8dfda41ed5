//! Tables of facts about machines of which no listing is public: one header row, tab-separated cells, `?` unknown, `-`
//! does not apply. The columns are those of the tables in tests/topologies.

use gpuward_core::model::topology::{Path, PathClass, PlacedGpu, PlacedNic};
use gpuward_core::model::{CpuSet, PciAddress, Topology};
use std::collections::BTreeSet;

/// Columns that name the GPUs of a row, by number, by bus or by PCI domain.
const GPU_COLUMNS: [&str; 7] = ["gpu", "gcd", "gpus", "gpu_busids", "gpu_busid", "gpu_domain", "gpu_domains"];
const NIC_COLUMNS: [&str; 4] = ["nics", "nic_busids", "nic_domain", "nic_domains"];
const NODE_COLUMNS: [&str; 3] = ["numa", "gpu_numa", "cpu_numa"];

/// The machines of a table, each with its name (empty where the table is about one machine) and what it says.
///
/// # Errors
/// No table, or one that says nothing about GPUs.
pub fn parse(text: &str) -> Result<Vec<(String, Topology)>, String> {
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .map(|line| line.split('\t').map(str::trim).collect())
        .collect();
    let (header, rows) = rows.split_first().ok_or("an empty table")?;
    if !header.iter().any(|name| GPU_COLUMNS.contains(name)) {
        return Err(format!("no column names a GPU: columns are {}", header.join(", ")));
    }
    if let Some((number, row)) = rows.iter().enumerate().find(|(_, row)| row.len() != header.len()) {
        return Err(format!("row {} has {} cells, the header {}", number + 1, row.len(), header.len()));
    }
    let table = Table { header, rows };
    let machines: BTreeSet<String> = (0..rows.len()).map(|row| table.machine(row)).collect();
    Ok(machines.into_iter().map(|machine| (machine.clone(), table.topology(&machine))).collect())
}

struct Table<'a> {
    header: &'a [&'a str],
    rows: &'a [Vec<&'a str>],
}

/// A device with the row that it stands in.
struct InRow<T> {
    row: usize,
    switch: Option<String>,
    device: T,
}

impl Table<'_> {
    /// The first of these columns that the table has, in a row; nothing where it is unknown or does not apply.
    fn cell(&self, row: usize, columns: &[&str]) -> Option<&str> {
        let place = columns.iter().find_map(|column| self.header.iter().position(|name| name == column))?;
        Some(self.rows[row][place]).filter(|cell| !["?", "-", ""].contains(cell))
    }

    fn machine(&self, row: usize) -> String {
        self.cell(row, &["machine"]).unwrap_or_default().to_owned()
    }

    fn topology(&self, machine: &str) -> Topology {
        let rows = (0..self.rows.len()).filter(|&row| self.machine(row) == machine);
        let (mut gpus, mut nics) = (Vec::new(), Vec::new());
        for row in rows {
            let switch = self.cell(row, &["switch"]).map(ToOwned::to_owned);
            for name in self.cell(row, &GPU_COLUMNS).map(names).unwrap_or_default() {
                gpus.push(InRow { row, switch: switch.clone(), device: self.gpu(row, &name, gpus.len()) });
            }
            for name in
                self.cell(row, &NIC_COLUMNS).filter(|cell| !cell.contains(' ')).map(names).unwrap_or_default()
            {
                nics.push(InRow { row, switch: switch.clone(), device: self.nic(&name, nics.len()) });
            }
        }
        let mut notes = vec!["a table of facts, not a listing: what it does not name is unknown".to_owned()];
        let used =
            [&GPU_COLUMNS[..], &NIC_COLUMNS, &NODE_COLUMNS, &["machine", "cpus", "switch", "first_gpu_numa"]]
                .concat();
        let left: Vec<&str> = self.header.iter().copied().filter(|name| !used.contains(name)).collect();
        if !left.is_empty() {
            notes.push(format!("columns that a topology has no place for: {}", left.join(", ")));
        }
        let nodes = gpus.iter().chain([]).map(|gpu| self.node(gpu.row)).collect::<Vec<_>>();
        let places: Vec<(usize, Option<String>)> = gpus
            .iter()
            .map(|gpu| (gpu.row, gpu.switch.clone()))
            .chain(nics.iter().map(|nic| (nic.row, nic.switch.clone())))
            .collect();
        debug_assert_eq!(nodes.len(), gpus.len());
        let path = |a: usize, b: usize| self.path(&places, a, b);
        let paths = (0..places.len()).map(|a| (0..places.len()).map(|b| path(a, b)).collect()).collect();
        Topology {
            gpus: gpus.into_iter().map(|gpu| gpu.device).collect(),
            nics: nics.into_iter().map(|nic| nic.device).collect(),
            paths,
            notes,
            ..Topology::default()
        }
    }

    fn node(&self, row: usize) -> Option<u32> {
        self.cell(row, &NODE_COLUMNS)?.parse().ok()
    }

    /// Devices of one switch are PIX apart, those of different NUMA nodes SYS; nothing else is said.
    fn path(&self, places: &[(usize, Option<String>)], a: usize, b: usize) -> Path {
        let ((row_a, switch_a), (row_b, switch_b)) = (&places[a], &places[b]);
        match (self.node(*row_a), self.node(*row_b)) {
            _ if a == b => Path::Same,
            _ if switch_a.is_some() && switch_a == switch_b => Path::Pcie(PathClass::Pix),
            (Some(left), Some(right)) if left != right => Path::Pcie(PathClass::Sys),
            _ => Path::Unknown,
        }
    }

    fn gpu(&self, row: usize, name: &str, place: usize) -> PlacedGpu {
        PlacedGpu {
            name: format!("GPU{place}"),
            pci: bus(name),
            numa_nodes: self.node(row).into_iter().collect(),
            cpus: self.cell(row, &["cpus"]).and_then(|list| list.parse().ok()),
            memory_node: self.cell(row, &["first_gpu_numa"]).and_then(|node| node.parse().ok()),
            ..PlacedGpu::default()
        }
    }

    fn nic(&self, name: &str, place: usize) -> PlacedNic {
        PlacedNic { name: format!("NIC{place}"), pci: bus(name), ..PlacedNic::default() }
    }
}

/// The entries of a cell: `0-3` and `0,1` are numbers, everything else is split at commas.
fn names(cell: &str) -> Vec<String> {
    match cell.parse::<CpuSet>() {
        Ok(numbers) if !cell.starts_with('0') || cell.len() < 4 => {
            numbers.iter().map(|number| number.to_string()).collect()
        }
        _ => cell.split(',').map(|name| name.trim().to_owned()).collect(),
    }
}

/// `10:1c.0` or `00:16`; a PCI domain alone, `0001`, is device 0 of its bus 0.
fn bus(name: &str) -> Option<PciAddress> {
    let text = match name.len() {
        4 => format!("{name}:00:00.0"),
        _ => format!("0000:{name}"),
    };
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_says_switches_nodes_and_addresses() {
        let text = "# x\n\nnuma\tcpus\tswitch\tgpu_busids\tnic_busids\n0\t0-3\t1\t10:1c.0,10:1d.0\t10:1b.0\n1\t4-7\t2\t90:1c.0\t-\n";
        let machines = parse(text).unwrap();
        let (name, topology) = &machines[0];
        assert_eq!((name.as_str(), topology.gpus.len(), topology.nics.len()), ("", 3, 1));
        assert_eq!(topology.between_gpus(0, 1), Path::Pcie(PathClass::Pix));
        assert_eq!(topology.to_nic(0, 0), Path::Pcie(PathClass::Pix));
        assert_eq!(topology.between_gpus(0, 2), Path::Pcie(PathClass::Sys));
        assert_eq!(topology.gpus[2].pci, "0000:90:1c.0".parse().ok());
    }

    #[test]
    fn a_table_without_gpus_is_refused() {
        assert!(parse("nic\trole\nens1\tdata\n").unwrap_err().starts_with("no column names a GPU"));
    }

    #[test]
    fn domains_and_ranges_are_told_apart() {
        assert_eq!(names("0001,0002"), ["0001", "0002"]);
        assert_eq!(names("0-3"), ["0", "1", "2", "3"]);
        assert_eq!(names("7"), ["7"]);
        assert_eq!(bus("000a"), "000a:00:00.0".parse().ok());
    }
}
