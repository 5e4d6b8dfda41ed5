//! `gpuward jobs`: what jobs used on this node.

use crate::report::{Table, elapsed, energy};
use crate::site::NodeArgs;
use crate::store::records;
use gpuward_core::account::{GpuUse, JobRecord, Quality, RecordStatus};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Shows the records of jobs that have ended: one line for each GPU of each run.
///
/// A value that is not known is shown as "-". A mark behind a value says how far it can be trusted: none = exact,
/// s = shared with others.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only this job.
    job: Option<u32>,
    #[command(flatten)]
    node: NodeArgs,
    /// Spool folders to read instead of this node's.
    #[arg(long, value_name = "DIR")]
    spool: Vec<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Prints the records.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    let spools = if args.spool.is_empty() {
        vec![PathBuf::from(args.node.site()?.paths.spool)]
    } else {
        args.spool.clone()
    };
    let records = records(spools.iter().map(PathBuf::as_path).filter(|spool| has_records(spool)), args.job)?;
    if args.json {
        return super::print_json(&records);
    }
    super::print(&table(&records).to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// A node on which no job has ended yet has no folder of records.
fn has_records(spool: &Path) -> bool {
    spool.join("records").exists()
}

fn table(records: &[JobRecord]) -> Table {
    let mut table = Table::new(&[
        "JOB", "RUN", "NODE", "USER", "EXIT", "ELAPSED", "GPU", "UUID", "ENERGY", "ECC-UNC", "REPLAYS",
        "NOTE",
    ]);
    for record in records {
        for gpu in &record.gpus {
            table.row(row(record, gpu));
        }
    }
    table
}

fn row(record: &JobRecord, gpu: &GpuUse) -> [String; 12] {
    let text = |value: Option<u32>| value.map_or_else(String::new, |value| value.to_string());
    let mark = |quality: &Quality| if *quality == Quality::Shared { "s" } else { "" };
    [
        record.job_id.to_string(),
        text(record.restart_count),
        record.node.clone(),
        record.user.clone().unwrap_or_default(),
        record.exit_code.clone().unwrap_or_default(),
        elapsed(record.elapsed_ms),
        text(gpu.gres_index),
        gpu.uuid.as_deref().and_then(|uuid| uuid.get(..12)).unwrap_or_default().to_owned(),
        format!("{}{}", energy(gpu.energy_mj.value), mark(&gpu.energy_mj.quality)),
        gpu.ecc_uncorr.text(),
        gpu.pcie_replay.text(),
        note(record, gpu),
    ]
}

/// Why something is missing, in one word.
fn note(record: &JobRecord, gpu: &GpuUse) -> String {
    match (&gpu.energy_mj.quality, record.status) {
        (Quality::Partial(reason), _) => reason.clone(),
        (_, RecordStatus::NoStart) => "no_start".into(),
        (_, RecordStatus::NodeReboot) => "node_reboot".into(),
        (_, RecordStatus::Complete) => String::new(),
    }
}
