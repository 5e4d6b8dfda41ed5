//! The spool of job records.

use crate::{EdgeError, files};
use gpuward_core::account::{JobRecord, file_name, record_file_prefix};
use std::path::{Path, PathBuf};

const MAX_BYTES: u64 = 1024 * 1024;

/// Writes a record; the same record twice is one file.
///
/// # Errors
/// The spool cannot be made, is not to be trusted, or the file cannot be written.
pub fn write_record(spool: &Path, record: &JobRecord) -> Result<PathBuf, EdgeError> {
    let folder = spool.join("records");
    files::own_folder(&folder, 0o700)?;
    let path = folder.join(file_name(record));
    let text = serde_json::to_string_pretty(record).unwrap_or_default();
    files::write_atomic(&path, &text, 0o600)?;
    Ok(path)
}

/// True where a record of this run lies in the spool already; `restart_count` is the epilog's, which may be one ahead of
/// the run's own.
pub fn has_record(spool: &Path, job_id: u32, restart_count: Option<u32>) -> bool {
    let counts = [restart_count, restart_count.and_then(|count| count.checked_sub(1))];
    let prefixes = counts.map(|count| record_file_prefix(job_id, count.or(restart_count)));
    let entries = std::fs::read_dir(spool.join("records")).into_iter().flatten().flatten();
    let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.any(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)))
}

/// All readable records of a spool, by job id and start.
///
/// # Errors
/// The spool cannot be listed.
pub fn list_records(spool: &Path) -> Result<Vec<JobRecord>, EdgeError> {
    let folder = spool.join("records");
    let mut records = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(EdgeError::io("list", &folder))?.flatten() {
        let name = entry.file_name();
        if !name.to_str().is_some_and(|name| name.ends_with(".json") && !name.starts_with('.')) {
            continue;
        }
        match read_record(&entry.path()) {
            Ok(record) => records.push(record),
            Err(error) => log::warn!("record is passed over: {error}"),
        }
    }
    records.sort_by_key(|record: &JobRecord| (record.job_id, record.start_unix_ms, record.end_unix_ms));
    Ok(records)
}

fn read_record(path: &Path) -> Result<JobRecord, EdgeError> {
    let text = files::read_own(path, MAX_BYTES)?;
    serde_json::from_str(&text)
        .map_err(|error| EdgeError::Content { path: path.into(), why: error.to_string() })
}
