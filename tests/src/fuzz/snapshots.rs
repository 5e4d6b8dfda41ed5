//! Snapshot files, and everything that is made from what parses.

use super::{judging, line_is_there, matrix, shown, text};
use gpuward_core::model::snapshot_file::SnapshotFileError;
use gpuward_core::model::{SnapshotFile, Topology};

/// A snapshot reads back, gives a sound topology, and is judged as all snapshots are.
pub fn check(data: &[u8]) {
    let text = text(data);
    match SnapshotFile::parse(&text) {
        Err(error) => {
            shown("the error", &error.to_string(), 400);
            if let SnapshotFileError::Syntax { line, .. } = error {
                // An empty text has line 0 in serde_json's count.
                line_is_there(line.max(usize::from(text.is_empty())), &text);
            }
        }
        Ok(file) => {
            let json = serde_json::to_string(&file).unwrap_or_default();
            assert_eq!(SnapshotFile::parse(&json).as_ref(), Ok(&file));
            matrix::topology_is_sound(&Topology::of_snapshot(&file.snapshot));
            judging::check(&file.snapshot, &file.expected);
        }
    }
}
