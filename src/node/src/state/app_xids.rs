//! The users' own XIDs of the last days, over boots: who met which on which GPU.

use crate::{EdgeError, files};
use gpuward_core::health::log_rules::repeat::{AppXid, recent, remember};
use std::path::{Path, PathBuf};

/// Some 120 bytes for each of at most 1024 entries.
const MAX_BYTES: u64 = 1024 * 1024;

fn path(state: &Path) -> PathBuf {
    state.join("app_xids.json")
}

/// What still counts; nothing where there is no file or none that can be read.
pub fn load_app_xids(state: &Path, now_unix_ms: u64) -> Vec<AppXid> {
    let read = files::read_own(&path(state), MAX_BYTES).and_then(|text| {
        let wrong =
            |error: serde_json::Error| EdgeError::Content { path: path(state), why: error.to_string() };
        serde_json::from_str(&text).map_err(wrong)
    });
    match read {
        Ok(known) => recent(known, now_unix_ms),
        Err(error) => {
            if !error.is_not_found() {
                log::warn!("{error}; users' XIDs of earlier jobs are not known");
            }
            Vec::new()
        }
    }
}

/// Adds `new` to the file.
///
/// # Errors
/// The folder cannot be made, is not to be trusted, or the file cannot be written.
pub fn note_app_xids(state: &Path, new: &[AppXid], now_unix_ms: u64) -> Result<(), EdgeError> {
    if new.is_empty() {
        return Ok(());
    }
    let known = remember(load_app_xids(state, now_unix_ms), new, now_unix_ms);
    files::own_folder(state, 0o700)?;
    files::write_atomic(&path(state), &serde_json::to_string(&known).unwrap_or_default(), 0o600)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_kept_over_boots_and_a_broken_file_is_an_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let gpu = || "GPU-1234".parse().unwrap();
        let entry = |job_id| AppXid {
            gpu: gpu(),
            xid: 31,
            job_id,
            uid: 1,
            line: (u64::from(job_id), 0),
            unix_ms: 1000,
        };
        note_app_xids(&state, &[], 1000).unwrap();
        assert!(!state.exists(), "nothing is written for nothing");
        note_app_xids(&state, &[entry(1)], 1000).unwrap();
        note_app_xids(&state, &[entry(2), entry(2)], 1000).unwrap();
        assert_eq!(load_app_xids(&state, 1000), [entry(1), entry(2)]);
        std::fs::write(path(&state), "{").unwrap();
        assert_eq!(load_app_xids(&state, 1000), []);
    }
}
