//! `gpuward xid`: what the XIDs in a kernel log mean.

use gpuward_core::health::xid::{XidLine, lookup, parse_message};
use serde_json::{Value, json};
use std::io::BufRead;
use std::process::ExitCode;

/// Reads kernel-log text from standard input and prints one JSON object for each XID.
///
/// Takes the output of dmesg and journalctl -k, and /dev/kmsg.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Decodes standard input, line by line.
pub fn run(_args: &Args) -> Result<ExitCode, String> {
    for line in std::io::stdin().lock().split(b'\n') {
        let line = line.map_err(|error| format!("cannot read standard input: {error}"))?;
        for event in parse_message(&String::from_utf8_lossy(&line)) {
            if let Some(value) = describe(event) {
                super::print(&format!("{value}\n"))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn describe(event: XidLine) -> Option<Value> {
    let XidLine::Xid { pci, xid, gpu_instance, compute_instance, pid, process, message, action_to, implied } =
        event
    else {
        return None;
    };
    let row = lookup(xid);
    Some(json!({
        "pci": pci, "xid": xid, "gi": gpu_instance, "ci": compute_instance, "pid": pid, "process": process,
        "message": message, "recovery_action": action_to, "implied": implied,
        "meaning": row.map(|row| row.meaning), "class": row.map(|row| row.class), "action": row.map(|row| row.action),
    }))
}
