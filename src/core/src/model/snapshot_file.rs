//! A snapshot in a file: what one node is sent to somebody else as.

use super::Snapshot;
use crate::health::Expected;
use serde::{Deserialize, Serialize};

/// Version of the format that this program writes.
const VERSION: u32 = 1;

/// One node's snapshot with what is needed to judge it elsewhere.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SnapshotFile {
    /// Version of the format.
    pub gpuward_snapshot: u32,
    /// Program and version, for people.
    pub written_by: String,
    /// Slurm's name of the node.
    pub node: String,
    /// What the node should be, by its own configuration.
    #[serde(default)]
    pub expected: Expected,
    /// What was read.
    pub snapshot: Snapshot,
}

/// Just enough to tell what a file is.
#[derive(Deserialize)]
struct Mark {
    gpuward_snapshot: Option<u32>,
    written_by: Option<String>,
}

/// Why a text is no snapshot that this program reads.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotFileError {
    /// Not JSON, or something of another kind in it.
    #[error("line {line}: {message}")]
    Syntax {
        /// Line, from 1.
        line: usize,
        /// What is wrong there.
        message: String,
    },
    /// JSON of another kind.
    #[error("not a snapshot: no gpuward_snapshot in it; `gpuward snapshot` writes one")]
    Foreign,
    /// A format that came later.
    #[error("version {found} of the format, written by {by}: this program reads up to {VERSION}")]
    Newer {
        /// Its version.
        found: u32,
        /// What wrote it.
        by: String,
    },
}

impl SnapshotFile {
    /// A file for a snapshot that was read just now.
    pub fn new(node: &str, expected: Expected, snapshot: Snapshot) -> SnapshotFile {
        let written_by = concat!("gpuward ", env!("CARGO_PKG_VERSION")).to_owned();
        SnapshotFile { gpuward_snapshot: VERSION, written_by, node: node.to_owned(), expected, snapshot }
    }

    /// Reads a file's text.
    ///
    /// # Errors
    /// It is no snapshot, a broken one, or one of a newer format.
    pub fn parse(text: &str) -> Result<SnapshotFile, SnapshotFileError> {
        let wrong = |error: serde_json::Error| SnapshotFileError::Syntax {
            line: error.line(),
            message: crate::text::escape(&error.to_string(), 300),
        };
        let mark: Mark = serde_json::from_str(text).map_err(wrong)?;
        match mark.gpuward_snapshot {
            None => Err(SnapshotFileError::Foreign),
            Some(found) if found > VERSION => {
                let by = crate::text::escape(mark.written_by.as_deref().unwrap_or("an unknown program"), 80);
                Err(SnapshotFileError::Newer { found, by })
            }
            Some(_) => serde_json::from_str(text).map_err(wrong),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        let file = SnapshotFile::new("n1", Expected::default(), Snapshot::default());
        let text = serde_json::to_string_pretty(&file).unwrap();
        assert_eq!(SnapshotFile::parse(&text), Ok(file));
    }

    #[test]
    fn other_files_and_newer_ones_are_told_apart() {
        let error = |text: &str| SnapshotFile::parse(text).unwrap_err().to_string();
        assert!(error("{\n\"gpuward_snapshot\": x").starts_with("line 2: "));
        assert!(error("{\"jobs\": []}").starts_with("not a snapshot"));
        let newer = error("{\"gpuward_snapshot\": 2, \"written_by\": \"gpuward 9.0\", \"snapshot\": 7}");
        assert_eq!(newer, "version 2 of the format, written by gpuward 9.0: this program reads up to 1");
        let broken =
            error("{\"gpuward_snapshot\": 1, \"written_by\": \"g\", \"node\": \"n\",\n\"snapshot\": 7}");
        assert!(broken.starts_with("line 2: invalid type"), "{broken}");
    }
}
