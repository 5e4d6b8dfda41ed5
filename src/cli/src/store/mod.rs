//! Where records come from: the spool folders of one or several nodes.

use gpuward_core::account::JobRecord;
use gpuward_node::state::list_records;
use std::path::Path;

/// The records of all `spools`, of one job where one is named, in the order of job and start.
///
/// # Errors
/// A spool that cannot be listed.
pub fn records<'a>(
    spools: impl IntoIterator<Item = &'a Path>,
    job: Option<u32>,
) -> Result<Vec<JobRecord>, String> {
    let mut records = Vec::new();
    for spool in spools {
        records.extend(list_records(spool).map_err(|error| error.to_string())?);
    }
    records.retain(|record| job.is_none_or(|job| record.job_id == job));
    records.sort_by(|a, b| (a.job_id, a.start_unix_ms, &a.node).cmp(&(b.job_id, b.start_unix_ms, &b.node)));
    Ok(records)
}
