//! `gpuward nccl`: which NCCL variables of this environment do nothing.

use gpuward_core::nccl::lint;
use std::process::ExitCode;

/// Names the NCCL_ variables of this environment that nothing reads.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Prints a line for each remark; exit code 0 with and without remarks.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    let names: Vec<String> = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect();
    let mut remarks = lint(names.iter().map(String::as_str));
    remarks.sort_by(|a, b| a.name.cmp(&b.name));
    for remark in &remarks {
        let line = if args.json {
            serde_json::json!({ "name": remark.name, "what": remark.what }).to_string()
        } else {
            format!("{}: {}", remark.name, remark.what)
        };
        super::print(&format!("{line}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}
