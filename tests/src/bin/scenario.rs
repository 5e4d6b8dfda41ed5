//! Turns a machine from elsewhere into a scenario file on standard output; what was guessed or left out stands on top.

use gpuward_core::model::topology::matrix;
use gpuward_core::model::{SnapshotFile, Topology};
use gpuward_tests::import::{Imported, facts, of_snapshot, of_topology};
use gpuward_tests::sim::scenario;
use nvidia_ml::scenario::Machine;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: scenario snapshot FILE          a file that `gpuward snapshot` wrote
       scenario topo FILE [LIKE]         the output of `nvidia-smi topo -m`
       scenario facts FILE [LIKE]        a table of facts as in tests/topologies

LIKE is a scenario in tests/scenarios that lends GPU model and driver, which such texts do not say (hgx-h100).
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let made = match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["snapshot", file] => read(file).and_then(|text| from_snapshot(file, &text)),
        ["topo", file] => from_topo(file, "hgx-h100"),
        ["topo", file, like] => from_topo(file, like),
        ["facts", file] => from_facts(file, "hgx-h100"),
        ["facts", file, like] => from_facts(file, like),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(64);
        }
    };
    match made
        .and_then(|text| std::io::stdout().write_all(text.as_bytes()).map_err(|error| error.to_string()))
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("scenario: {error}");
            ExitCode::FAILURE
        }
    }
}

fn read(file: &str) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|error| format!("cannot read {file}: {error}"))
}

fn from_snapshot(file: &str, text: &str) -> Result<String, String> {
    let read = SnapshotFile::parse(text).map_err(|error| format!("{file}: {error}"))?;
    of_snapshot(&read).map(|imported| imported.to_toml()).map_err(|error| format!("{file}: {error}"))
}

fn from_topo(file: &str, like: &str) -> Result<String, String> {
    let topology = matrix::parse(&read(file)?).map_err(|error| format!("{file}: {error}"))?;
    machine(file, "", &topology, like).map(|imported| imported.to_toml())
}

fn from_facts(file: &str, like: &str) -> Result<String, String> {
    let machines = facts::parse(&read(file)?).map_err(|error| format!("{file}: {error}"))?;
    let mut out = String::new();
    for (name, topology) in &machines {
        out.push_str(&machine(file, name, topology, like)?.to_toml());
    }
    Ok(out)
}

fn machine(file: &str, part: &str, topology: &Topology, like: &str) -> Result<Imported, String> {
    let stem = Path::new(file).file_stem().unwrap_or_default().to_string_lossy();
    let like = Machine::load(&scenario(like)).map_err(|error| error.to_string())?;
    let name = if part.is_empty() { stem.into_owned() } else { format!("{stem}-{part}") };
    of_topology(&name, topology, &like).map_err(|error| format!("{file}: {error}"))
}
