//! `gpuward config`: is a gpuward.toml valid.

use gpuward_node::config::{DEFAULT_PATH, overrides, read_whole};
use std::path::PathBuf;
use std::process::ExitCode;

/// Looks after gpuward.toml.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Says whether a file is valid; names file, line and the nearest valid key where it is not.
    Check {
        /// The file.
        #[arg(default_value = DEFAULT_PATH)]
        file: PathBuf,
    },
}

/// Checks the file.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    let What::Check { file } = &args.what;
    let config = read_whole(file).map_err(|error| error.to_string())?;
    let complaints = overrides(&config).1;
    if !complaints.is_empty() {
        return Err(complaints.join("\n"));
    }
    super::print(&format!("{}: valid, mode {}\n", file.display(), config.health.mode.word()))?;
    Ok(ExitCode::SUCCESS)
}
