//! `gpuward`, the administrator's command. One verb, one file.

#![forbid(unsafe_code)]

mod check;
mod config;
mod r#gen;
mod jobs;
mod nccl;
mod report;
mod site;
mod snapshot;
mod status;
mod store;
mod topo;
mod xid;

use clap::{Parser, Subcommand};
use std::io::Write;
use std::process::ExitCode;

/// A mistake in the command line; clap's own 2 would read as "cannot tell".
const USAGE_ERROR: u8 = 64;

/// A check that came to nothing.
const CANNOT_TELL: u8 = 2;

/// GPU health, placement and accounting for Slurm.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Check(check::Args),
    Status(status::Args),
    Snapshot(snapshot::Args),
    Topo(topo::Args),
    Xid(xid::Args),
    Nccl(nccl::Args),
    Jobs(jobs::Args),
    Config(config::Args),
    Gen(r#gen::Args),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return explain(&error),
    };
    run(&cli.verb).unwrap_or_else(|message| {
        eprintln!("gpuward: {message}");
        match cli.verb {
            // Its 1 says that the hardware is not fit, which nobody has seen here.
            Verb::Check(_) => ExitCode::from(CANNOT_TELL),
            _ => ExitCode::FAILURE,
        }
    })
}

fn run(verb: &Verb) -> Result<ExitCode, String> {
    match verb {
        Verb::Check(args) => check::run(args),
        Verb::Status(args) => status::run(args),
        Verb::Snapshot(args) => snapshot::run(args),
        Verb::Topo(args) => topo::run(args),
        Verb::Xid(args) => xid::run(args),
        Verb::Nccl(args) => nccl::run(args),
        Verb::Jobs(args) => jobs::run(args),
        Verb::Config(args) => config::run(args),
        Verb::Gen(args) => r#gen::run(args).map(|()| ExitCode::SUCCESS),
    }
}

/// Prints to standard output. A reader that has gone away (`gpuward jobs | head`) is the end of the work, not an error.
fn print(text: &str) -> Result<(), String> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        other => other.map_err(|error| format!("cannot write to standard output: {error}")),
    }
}

/// Prints a value as JSON for people and programs.
fn print_json(value: &impl serde::Serialize) -> Result<ExitCode, String> {
    let text = serde_json::to_string_pretty(value).map_err(|error| error.to_string())?;
    print(&format!("{text}\n"))?;
    Ok(ExitCode::SUCCESS)
}

fn explain(error: &clap::Error) -> ExitCode {
    // Nothing is left to be done if even this cannot be printed.
    let _ = error.print();
    if error.use_stderr() { ExitCode::from(USAGE_ERROR) } else { ExitCode::SUCCESS }
}
