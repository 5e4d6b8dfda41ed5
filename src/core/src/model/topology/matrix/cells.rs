//! Header and rows of the matrix, split into cells.

use super::MatrixError;
use crate::model::CpuSet;
use crate::model::topology::{Path, PathClass};
use crate::text::escape;

/// What a cell between two devices may hold.
const ALLOWED: &str = "X, PIX, PXB, PHB, NODE, SYS or NV and a number";

/// More columns than any host has devices.
const MAX_DEVICES: usize = 512;

/// More bytes than any device's name has: a network interface has at most 15, an RDMA device 63 (IB_DEVICE_NAME_MAX).
const MAX_NAME_BYTES: usize = 64;

/// The three affinity columns of one GPU's row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Affinity {
    pub cpus: Option<CpuSet>,
    pub numa_nodes: Option<CpuSet>,
    pub memory_node: Option<u32>,
}

/// One row.
#[derive(Debug, Clone)]
pub(super) struct Row {
    /// One cell for each device of the header.
    pub cells: Vec<Path>,
    pub affinity: Affinity,
}

/// The line of column names.
#[derive(Debug)]
pub(super) struct Header {
    /// Names of the devices, GPUs first.
    pub devices: Vec<String>,
    pub cpu: bool,
    pub numa: bool,
    memory: bool,
    /// Cells are separated by tabs, else by runs of blanks.
    tabs: bool,
    /// The column name that two names were found in.
    pub glued: Option<String>,
    /// Place of the first of the two.
    glued_at: usize,
}

impl Header {
    /// The header names GPU0 and relates nothing: a row has an X.
    pub fn is_one(line: &str) -> bool {
        let cells: Vec<&str> = line.split_whitespace().collect();
        cells.first() == Some(&"GPU0") && !cells.contains(&"X")
    }

    pub fn read(text: &str, line: usize) -> Result<Header, MatrixError> {
        let tabs = text.contains('\t');
        let joined = ["CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]
            .iter()
            .fold(text.to_owned(), |text, name| text.replace(name, &name.replace(' ', "_")));
        let cells: Vec<&str> = joined.split_whitespace().collect();
        let has = |name: &str| cells.contains(&name);
        let mut header = Header {
            devices: Vec::new(),
            cpu: has("CPU_Affinity"),
            numa: has("NUMA_Affinity"),
            memory: has("GPU_NUMA_ID"),
            tabs,
            glued: None,
            glued_at: 0,
        };
        let columns = ["CPU_Affinity", "NUMA_Affinity", "GPU_NUMA_ID"];
        for cell in cells.iter().take_while(|cell| !columns.contains(cell)) {
            header.device(cell, line)?;
        }
        if let Some(stray) =
            cells[..].iter().skip_while(|cell| !columns.contains(cell)).find(|c| !columns.contains(c))
        {
            return Err(MatrixError::at(line, format!("'{}' after the affinity columns", escape(stray, 40))));
        }
        Ok(header)
    }

    fn device(&mut self, cell: &str, line: usize) -> Result<(), MatrixError> {
        let names = match split_glued(cell) {
            Some((first, second)) => {
                if self.glued.is_some() {
                    return Err(MatrixError::at(
                        line,
                        format!("'{}': more than two names are glued", escape(cell, 40)),
                    ));
                }
                self.glued = Some(cell.to_owned());
                self.glued_at = self.devices.len();
                vec![first, second]
            }
            None => vec![cell.to_owned()],
        };
        for name in names {
            // Names go into notes and tables as they are.
            if name.len() > MAX_NAME_BYTES || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(MatrixError::at(line, format!("'{}' is no name of a device", escape(&name, 80))));
            }
            if self.devices.contains(&name) {
                return Err(MatrixError::at(line, format!("two columns are called {}", escape(&name, 40))));
            }
            let after_a_nic = self.devices.last().is_some_and(|last| !last.starts_with("GPU"));
            if name.starts_with("GPU") && after_a_nic {
                return Err(MatrixError::at(line, format!("{} after a NIC", escape(&name, 40))));
            }
            self.devices.push(name);
        }
        if self.devices.len() > MAX_DEVICES {
            return Err(MatrixError::at(line, format!("more than {MAX_DEVICES} columns")));
        }
        Ok(())
    }

    /// Name and cells of a row, and whether it had to be repaired.
    pub fn row(&self, line: usize, text: &str, data_file: bool) -> Result<(String, Row, bool), MatrixError> {
        let cells: Vec<&str> = if self.tabs {
            text.split('\t').map(str::trim).collect()
        } else {
            text.split_whitespace().collect()
        };
        let (name, rest) = cells.split_first().ok_or_else(|| MatrixError::at(line, "an empty row"))?;
        let (paths, used, repaired) = self.paths(line, rest, data_file)?;
        let affinity = self.affinity(line, &rest[used..])?;
        Ok(((*name).to_owned(), Row { cells: paths, affinity }, repaired))
    }

    /// The cells between devices, how many pieces of text they took, and whether one of them was two.
    fn paths(
        &self,
        line: usize,
        cells: &[&str],
        data_file: bool,
    ) -> Result<(Vec<Path>, usize, bool), MatrixError> {
        let count = self.devices.len();
        let mut paths = Vec::with_capacity(count);
        let mut repaired = false;
        for (used, cell) in cells.iter().enumerate() {
            if paths.len() == count {
                return Ok((paths, used, repaired));
            }
            match path(cell, data_file) {
                Some(path) => paths.push(path),
                None => {
                    let here = self.glued.is_some() && paths.len() == self.glued_at && !repaired;
                    let [first, second] = split_tags(cell)
                        .filter(|_| here)
                        .ok_or_else(|| self.stray(line, cell, paths.len()))?;
                    paths.extend([first, second]);
                    repaired = true;
                }
            }
        }
        if paths.len() == count {
            return Ok((paths, cells.len(), repaired));
        }
        let message = format!("{} cells between devices, the header names {count}", paths.len());
        Err(MatrixError::at(line, message))
    }

    fn stray(&self, line: usize, cell: &str, place: usize) -> MatrixError {
        let shown = escape(cell, 40);
        let column = self.devices.get(place).map_or("", String::as_str);
        if cell == "?" {
            return MatrixError::at(line, "'?' is allowed only in files that say '# completeness:'");
        }
        MatrixError::at(line, format!("'{shown}' in column {column}: allowed are {ALLOWED}"))
    }

    fn affinity(&self, line: usize, cells: &[&str]) -> Result<Affinity, MatrixError> {
        let unknown = Affinity::default();
        if !self.cpu || cells.is_empty() {
            return Ok(unknown);
        }
        let named = 1 + usize::from(self.numa) + usize::from(self.memory);
        // Blanks hide which cell is empty: nothing is better than a NUMA node taken for a CPU.
        if !self.tabs && cells.len() < named {
            return Ok(unknown);
        }
        let rest: Vec<&str> = cells[1..].iter().copied().filter(|cell| !cell.is_empty()).collect();
        let (numa, memory) = match (self.numa, self.memory, &rest[..]) {
            (true, true, [only]) => (None, Some(*only)),
            (true, true, [numa, memory, ..]) => (Some(*numa), Some(*memory)),
            (true, false, [numa, ..]) => (Some(*numa), None),
            (false, true, [memory, ..]) => (None, Some(*memory)),
            _ => (None, None),
        };
        Ok(Affinity {
            cpus: list(line, cells[0])?,
            numa_nodes: numa.map_or(Ok(None), |numa| list(line, numa))?,
            memory_node: memory
                .map_or(Ok(None), |node| list(line, node))?
                .and_then(|node| node.iter().next()),
        })
    }
}

/// A list of numbers; empty, `N/A` and `?` are unknown, never number 0.
fn list(line: usize, cell: &str) -> Result<Option<CpuSet>, MatrixError> {
    if ["", "N/A", "?"].contains(&cell) {
        return Ok(None);
    }
    let wrong =
        |_| MatrixError::at(line, format!("'{}' is no list of numbers like 0-15,32-47", escape(cell, 60)));
    cell.parse().map(Some).map_err(wrong)
}

fn path(cell: &str, data_file: bool) -> Option<Path> {
    Some(match cell {
        "X" => Path::Same,
        "PIX" => Path::Pcie(PathClass::Pix),
        "PXB" => Path::Pcie(PathClass::Pxb),
        "PHB" => Path::Pcie(PathClass::Phb),
        "NODE" => Path::Pcie(PathClass::Node),
        "SYS" => Path::Pcie(PathClass::Sys),
        "?" if data_file => Path::Unknown,
        _ => {
            let digits =
                cell.strip_prefix("NV").filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
            Path::NvLink { links: digits.parse().ok().filter(|links| *links > 0)?, pcie: None }
        }
    })
}

/// `NIC8NIC9` as its two names; `None` for a name.
fn split_glued(cell: &str) -> Option<(String, String)> {
    let starts = |at: usize| {
        let rest = &cell[at..];
        ["GPU", "NIC", "mlx"].iter().any(|kind| rest.starts_with(kind))
    };
    let mut places = (1..cell.len()).filter(|&at| cell.is_char_boundary(at) && starts(at));
    let at = places.next()?;
    Some((cell[..at].to_owned(), cell[at..].to_owned()))
}

/// The two tags of a glued cell, if there is exactly one way to split it.
fn split_tags(cell: &str) -> Option<[Path; 2]> {
    // No two tags are longer; each place in the cell is tried.
    if cell.len() > 2 * "NV4294967295".len() {
        return None;
    }
    let mut ways = (1..cell.len()).filter(|&at| cell.is_char_boundary(at)).filter_map(|at| {
        let (first, second) = cell.split_at(at);
        Some([path(first, false)?, path(second, false)?])
    });
    let way = ways.next()?;
    ways.next().is_none().then_some(way)
}
