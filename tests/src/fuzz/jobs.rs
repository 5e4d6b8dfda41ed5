//! What gpuward writes and reads again as JSON: job state files, records, the probe's lines.

use super::{shown, text};
use gpuward_core::account::{self, EndOfJob, JobRecord, record_file_prefix};
use gpuward_core::model::job::parse_file_name;
use gpuward_core::model::{JobId, JobState, Snapshot};
use gpuward_node::nvml::Message;

pub const WORDS: &[&str] = &[
    "{\"value\":0}",
    "\"lost\"",
    "\"timed_out\"",
    "\"not_supported\"",
    "\"not_read\"",
    "\"reset_required\"",
    "{\"failed\":999}",
    "null",
    "true",
    "[]",
    "{}",
    "\"0000:3b:00.0\"",
    "\"GPU-8932f937\"",
    "\"0-8191\"",
    "\"end\"",
    "\"\\u001b[31m\"",
    ",",
    ":",
    "[[[[",
    "{\"value\":18446744073709551615}",
    "\"nvml\":",
    "\"gpus\":",
    "\"pci\":",
    "\"handle\":",
    "\"xids\":",
    "\"detail\":",
];

/// A state that is taken is about the job, reads back, and makes a record with one entry for each of its GPUs.
pub fn state(data: &[u8]) {
    let text = text(data);
    match JobState::parse(&text, JobId(7)) {
        Err(error) => shown("the error", &error.to_string(), 400),
        Ok(state) => {
            assert_eq!(state.job_id, JobId(7));
            let json = serde_json::to_string(&state).unwrap_or_default();
            assert_eq!(JobState::parse(&json, JobId(7)).as_ref(), Ok(&state));
            if state.nonce.len() == 16 && state.nonce.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                assert_eq!(parse_file_name(&state.file_name()), Some((JobId(7), state.nonce.as_str())));
            }
            records_of(&state);
        }
    }
}

/// Nothing is used where nothing was read at the end, and nothing was where the counters stand still.
fn records_of(state: &JobState) {
    let end = EndOfJob { job_id: 7, ..EndOfJob::default() };
    let nothing = account::record(&end, Some(state), &Snapshot::default());
    assert_eq!(nothing.gpus.len(), state.gpus.len());
    for used in nothing.gpus.iter().flat_map(counters) {
        assert_eq!(used.value, None, "a number that nobody read");
    }
    reads_back(&nothing);
}

fn counters(used: &account::GpuUse) -> [&account::Used; 6] {
    [
        &used.energy_mj,
        &used.ecc_uncorr,
        &used.ecc_corr,
        &used.remapped_uncorr,
        &used.remapped_corr,
        &used.pcie_replay,
    ]
}

/// A record reads back, and its name says which run it is of and cannot leave the folder.
pub fn record(data: &[u8]) {
    if let Ok(record) = serde_json::from_str::<JobRecord>(&text(data)) {
        reads_back(&record);
    }
}

fn reads_back(record: &JobRecord) {
    let json = serde_json::to_string(record).unwrap_or_default();
    assert_eq!(serde_json::from_str::<JobRecord>(&json).ok().as_ref(), Some(record));
    let name = account::file_name(record);
    assert!(name.starts_with(&record_file_prefix(record.job_id, record.restart_count)));
    assert!(!name.contains('/') && name.ends_with(".json"));
}

/// One line of the probe's answer: what is taken says the same once it was written again.
pub fn probe_message(data: &[u8]) {
    for line in text(data).lines() {
        let Ok(message) = serde_json::from_str::<Message>(line) else { continue };
        let json = serde_json::to_string(&message).unwrap_or_default();
        assert!(!json.contains('\n'), "one message a line");
        let again = serde_json::from_str::<Message>(&json)
            .map(|again| serde_json::to_string(&again).unwrap_or_default());
        assert_eq!(again.ok(), Some(json));
    }
}
