//! `gpuward snapshot`: everything that was read from this node, as JSON.

use crate::site::NodeArgs;
use gpuward_node::flow::check_node;
use std::process::ExitCode;

/// Prints everything that gpuward reads from this node, as JSON.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    node: NodeArgs,
}

/// Prints the snapshot.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    let look = check_node(&args.node.site()?);
    super::print_json(&look.snapshot)
}
