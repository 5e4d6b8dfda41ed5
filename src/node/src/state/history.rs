//! The node's own history of refusals: the truth behind a drain reason, which others may overwrite.

use crate::{EdgeError, files};
use gpuward_core::health::Finding;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// One refusal and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The key that stands behind `id=` in the reason.
    pub id: String,
    /// Wall clock, milliseconds since 1970.
    pub unix_ms: u64,
    /// Boot of the finding.
    pub boot_id: String,
    /// Node.
    pub node: String,
    /// The job that met it.
    pub job_id: Option<u32>,
    /// The reason as it was written or would have been.
    pub reason: String,
    /// What was done: drained, left_alone, refused_without_slurmctld, or commented.
    pub action: String,
    /// More about the action.
    pub note: Option<String>,
    /// The finding that decided.
    pub finding: Finding,
    /// All findings of the same look.
    pub all_findings: Vec<Finding>,
}

/// Six hexadecimal digits for a finding at a moment: short enough for a reason, distinct enough on one node.
pub fn finding_id(node: &str, finding: &Finding, unix_ms: u64) -> String {
    // FNV-1a: a name, not a secret.
    let text = format!("{node} {} {} {unix_ms}", finding.code, finding.subject);
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = text.bytes().fold(0x811c_9dc5, step);
    format!("{:06x}", (hash >> 8) ^ (hash & 0xff))
}

/// Writes an entry below `state`.
///
/// # Errors
/// The folder cannot be made, is not to be trusted, or the file cannot be written.
pub fn write_entry(state: &Path, entry: &Entry) -> Result<(), EdgeError> {
    let folder = state.join("history");
    files::own_folder(state, 0o700)?;
    files::own_folder(&folder, 0o700)?;
    let text = serde_json::to_string_pretty(entry).unwrap_or_default();
    files::write_atomic(&folder.join(format!("{}-{}.json", entry.unix_ms, entry.id)), &text, 0o600)
}
