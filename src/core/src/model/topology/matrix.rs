//! The text of `nvidia-smi topo -m`.
//!
//! What it looks like in the field: a header that begins with a tab and may be underlined by terminal escapes, `X` and
//! `NV4` with blanks around them, empty cells among the affinity columns, NIC rows without those columns, a legend that
//! maps NIC numbers to devices, prompts before and after; copied text has blanks for tabs and sometimes lost one.

mod cells;

use super::{Path, PlacedGpu, PlacedNic, Topology};
use crate::model::CpuSet;
use crate::text::escape;
use cells::{Affinity, Header, Row};

/// Why a text is no matrix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MatrixError {
    /// Nothing in it looks like the matrix.
    #[error("no matrix of 'nvidia-smi topo -m' in it: a line with GPU0 among the column names is missing")]
    NoMatrix,
    /// A line that cannot be understood.
    #[error("line {line}: {message}")]
    Line {
        /// Line, from 1.
        line: usize,
        /// What is wrong, with the value and what is allowed.
        message: String,
    },
}

impl MatrixError {
    fn at(line: usize, message: impl Into<String>) -> MatrixError {
        MatrixError::Line { line, message: message.into() }
    }
}

/// Reads the text of `nvidia-smi topo -m`, with whatever stands before and after it.
///
/// A file whose comment lines say `# completeness:` may hold `?` in place of a cell that nobody knows; real output never
/// does. What was repaired, mirrored or is missing stands in the notes.
///
/// # Errors
/// No matrix in the text, or a line that shifts columns or holds a cell of another kind.
pub fn parse(text: &str) -> Result<Topology, MatrixError> {
    let lines: Vec<String> = text.lines().map(without_escapes).collect();
    let start = lines.iter().position(|line| Header::is_one(line)).ok_or(MatrixError::NoMatrix)?;
    let data_file = lines[..start].iter().any(|line| line.trim_start().starts_with("# completeness:"));
    let header = Header::read(&lines[start], start + 1)?;
    let mut reader =
        Reader { rows: vec![None; header.devices.len()], header, data_file, notes: Vec::new(), repaired: 0 };
    let mut end = start + 1;
    for (number, line) in (start + 2..).zip(&lines[start + 1..]) {
        if line.trim().is_empty() {
            break;
        }
        reader.row(number, line)?;
        end = number;
    }
    reader.finish(&lines[end.min(lines.len())..])
}

/// Without `ESC[...m`, which nvidia-smi prints around the header even into files.
fn without_escapes(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("\x1b[") {
        out.push_str(before);
        // Parameters end in a letter; what has none is no sequence and stays out, too.
        let end = after.find(|letter: char| letter.is_ascii_alphabetic()).map_or(after.len(), |at| at + 1);
        rest = &after[end..];
    }
    out.push_str(rest);
    out
}

struct Reader {
    header: Header,
    rows: Vec<Option<Row>>,
    data_file: bool,
    notes: Vec<String>,
    repaired: usize,
}

impl Reader {
    fn row(&mut self, line: usize, text: &str) -> Result<(), MatrixError> {
        let (name, row, repaired) = self.header.row(line, text, self.data_file)?;
        let Some(place) = self.header.devices.iter().position(|device| *device == name) else {
            let message = format!("'{}' is no column of the header", escape(&name, 40));
            return Err(MatrixError::at(line, message));
        };
        if row.cells[place] != Path::Same {
            let message = format!(
                "the cell of {name} to itself is '{}' and not X: columns are shifted",
                row.cells[place]
            );
            return Err(MatrixError::at(line, message));
        }
        if let Some(other) =
            row.cells.iter().enumerate().position(|(at, cell)| *cell == Path::Same && at != place)
        {
            let message = format!("X between {name} and {}: columns are shifted", self.header.devices[other]);
            return Err(MatrixError::at(line, message));
        }
        if self.rows[place].is_some() {
            return Err(MatrixError::at(line, format!("a second row of {name}")));
        }
        self.repaired += usize::from(repaired);
        self.rows[place] = Some(row);
        Ok(())
    }

    fn finish(mut self, after: &[String]) -> Result<Topology, MatrixError> {
        self.header_notes();
        self.missing_rows();
        let paths = self.paths();
        self.missing_cells(&paths);
        let legend = legend(after);
        let mut topology = Topology { paths, ..Topology::default() };
        for (place, device) in self.header.devices.iter().enumerate() {
            let affinity = self.rows[place].as_ref().map(|row| row.affinity.clone()).unwrap_or_default();
            if device.starts_with("GPU") {
                topology.gpus.push(placed_gpu(device, affinity));
            } else {
                topology.nics.push(placed_nic(device, &legend));
            }
        }
        topology.notes = self.notes;
        topology.remark();
        Ok(topology)
    }

    fn header_notes(&mut self) {
        for (name, column) in [("CPU Affinity", self.header.cpu), ("NUMA Affinity", self.header.numa)] {
            if !column {
                self.notes.push(format!("no column {name}: an old driver, or a cut listing"));
            }
        }
        if let Some(glued) = &self.header.glued {
            self.notes.push(format!(
                "two column names are glued ({glued}); {} rows were split at the same place",
                self.repaired
            ));
        }
    }

    fn missing_rows(&mut self) {
        let missing: Vec<&str> = self.names_where(|place| self.rows[place].is_none()).collect();
        if !missing.is_empty() {
            let note = format!(
                "no rows for {}: cells taken from the other rows, the rest is unknown",
                missing.join(", ")
            );
            self.notes.push(note);
        }
    }

    fn names_where<'a>(&'a self, fits: impl Fn(usize) -> bool + 'a) -> impl Iterator<Item = &'a str> {
        let names = self.header.devices.iter().enumerate();
        names.filter(move |(place, _)| fits(*place)).map(|(_, name)| name.as_str())
    }

    /// Each pair as the two rows say it; one that only one row knows is mirrored, a contradiction is unknown.
    fn paths(&mut self) -> Vec<Vec<Path>> {
        let count = self.header.devices.len();
        let cell = |a: usize, b: usize| self.rows[a].as_ref().map_or(Path::Unknown, |row| row.cells[b]);
        let pair = |a: usize, b: usize| match (cell(a, b), cell(b, a)) {
            _ if a == b => Ok(Path::Same),
            (path, Path::Unknown) | (Path::Unknown, path) => Ok(path),
            (one, other) if one == other => Ok(one),
            torn => Err(torn),
        };
        let names = &self.header.devices;
        let torn = (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b))).filter_map(|(a, b)| {
            let (one, other) = pair(a, b).err()?;
            let (a, b) = (&names[a], &names[b]);
            Some(format!("{a} to {b} is {one}, {b} to {a} is {other}: taken for unknown"))
        });
        self.notes.extend(torn);
        let row = |a: usize| (0..count).map(|b| pair(a, b).unwrap_or(Path::Unknown)).collect();
        (0..count).map(row).collect()
    }

    fn missing_cells(&mut self, paths: &[Vec<Path>]) {
        let unknown = paths.iter().flatten().filter(|path| **path == Path::Unknown).count() / 2;
        if unknown > 0 {
            self.notes.push(format!("{unknown} pairs of devices are unknown"));
        }
    }
}

fn placed_gpu(name: &str, affinity: Affinity) -> PlacedGpu {
    PlacedGpu {
        name: name.to_owned(),
        cpus: affinity.cpus,
        numa_nodes: affinity.numa_nodes.map_or_else(Vec::new, |nodes: CpuSet| nodes.iter().collect()),
        memory_node: affinity.memory_node,
        ..PlacedGpu::default()
    }
}

fn placed_nic(name: &str, legend: &[(String, String)]) -> PlacedNic {
    let by_legend = legend.iter().find(|(number, _)| number == name).map(|(_, device)| device.clone());
    // Old drivers name the columns by device.
    let own = (!name.starts_with("NIC")).then(|| name.to_owned());
    PlacedNic { name: name.to_owned(), device: by_legend.or(own), ..PlacedNic::default() }
}

/// The block `NIC Legend:` after the matrix: `NIC0: mlx5_0`.
fn legend(lines: &[String]) -> Vec<(String, String)> {
    let from = lines.iter().position(|line| line.trim().starts_with("NIC Legend"));
    let Some(from) = from else { return Vec::new() };
    let entries = lines[from + 1..].iter().skip_while(|line| line.trim().is_empty());
    let entry = |line: &String| {
        let (number, device) = line.trim().split_once(':')?;
        let known = number.strip_prefix("NIC")?.bytes().all(|byte| byte.is_ascii_digit());
        known.then(|| (number.to_owned(), escape(device.trim(), 80)))
    };
    entries.map_while(entry).collect()
}
