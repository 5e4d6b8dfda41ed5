//! `gpuward snapshot`: everything that was read from this node, as JSON.

use crate::report::Progress;
use crate::site::NodeArgs;
use gpuward_core::model::SnapshotFile;
use gpuward_node::files;
use gpuward_node::flow::{Inspection, inspect_node};
use std::path::Path;
use std::process::ExitCode;

/// Prints everything that gpuward can read from this node, as JSON: for a bug report, `gpuward check --snapshot`,
/// `gpuward topo --snapshot`. It holds serial numbers, UUIDs and the ids of running processes.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    node: NodeArgs,
}

/// Prints the snapshot.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    let site = args.node.site()?;
    let wanted = Inspection { deep: true, gpus: &[] };
    let mut progress = Progress::new();
    let look = inspect_node(&site, wanted, &mut |answered, all| progress.told(answered, all));
    drop(progress);
    let look = look.map_err(|error| error.to_string())?;
    super::print_json(&SnapshotFile::new(&site.env.node, look.expected, look.snapshot))
}

/// A node with 16 GPUs and 64 NICs has less than a MiB.
const MAX_BYTES: u64 = 64 << 20;

/// Reads a file that `gpuward snapshot` wrote.
pub fn read(path: &Path) -> Result<SnapshotFile, String> {
    let text = files::read_text(path, MAX_BYTES).map_err(|error| error.to_string())?;
    SnapshotFile::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
}
