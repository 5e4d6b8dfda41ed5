//! What earlier looks of this boot saw: the position in the kernel log, what is open in it, silent GPUs.
//!
//! All of it loses its meaning with the boot, so it lies beside the job states and not in the folder that survives.

use crate::{EdgeError, files};
use gpuward_core::health::kernel_log::OpenLog;
use gpuward_core::health::{ActedEcc, SeenGpu, SilentMark, StuckMark};
use serde::{Deserialize, Serialize};
use std::path::Path;

const MAX_BYTES: u64 = 1024 * 1024;

/// State of one boot.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BootState {
    /// The boot it is about.
    pub boot_id: String,
    /// Sequence number of the last kernel-log record that was read.
    pub kmsg_seq: Option<u64>,
    /// The same for the journal, where that was asked.
    pub journal_cursor: Option<String>,
    /// What the log said and nothing has cleared.
    #[serde(flatten)]
    pub log: OpenLog,
    /// Subjects that did not answer at the last look.
    pub silent: Vec<SilentMark>,
    /// ECC counts that drained the node.
    pub acted_ecc: Vec<ActedEcc>,
    /// Counters of the GPUs at a look at least a minute ago.
    pub seen: Vec<SeenGpu>,
    /// Processes that were seen waiting in the kernel, and since when.
    pub stuck: Vec<StuckMark>,
    /// Whether a GPU was last seen with persistence mode off, so that opening one may take seconds; `None` before any
    /// was seen.
    pub persistence_off: Option<bool>,
}

impl BootState {
    /// Reads the state; one of another boot, or one that cannot be read, is an empty one.
    ///
    /// Losing it costs little: the kernel log is read anew from its start, its old lines only warn, and silence counts
    /// from the next look on.
    pub fn load(run: &Path, boot_id: &str) -> BootState {
        let fresh = || BootState { boot_id: boot_id.to_owned(), ..BootState::default() };
        let text = match files::read_own(&run.join("boot.json"), MAX_BYTES) {
            Ok(text) => text,
            Err(error) => {
                if !error.is_not_found() {
                    log::warn!("{error}; what earlier looks of this boot saw is lost");
                }
                return fresh();
            }
        };
        let state: BootState = serde_json::from_str(&text).unwrap_or_else(|_| fresh());
        if state.boot_id == boot_id { state } else { fresh() }
    }

    /// Writes the state.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn save(&self, run: &Path) -> Result<(), EdgeError> {
        let text = serde_json::to_string(self).unwrap_or_default();
        files::write_atomic(&run.join("boot.json"), &text, 0o600)
    }
}
