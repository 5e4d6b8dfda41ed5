//! Machines as data: the schema of scenario files, loading with validation, and the machine of one simulated node.
//!
//! A scenario file describes one machine. What GPUs of one model have in common stands in `models/<model>.toml`
//! beside it; what all GPUs of the machine have in common stands in `[gpu_defaults]`. A `[[gpus]]` entry says the
//! rest and wins over both; tables are merged, lists and plain values replaced.
//!
//! Called by the library itself (for the flattened file beside it), by tests and by the throw-away cluster.

mod gpu;
mod load;
mod machine;
mod validate;
mod values;

pub use gpu::*;
pub use machine::*;
pub use values::{CpuList, PciAddress};

use std::path::PathBuf;

/// Why a scenario or fault script cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// A file could not be read or written.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// Not TOML, an unknown key, or a value of the wrong kind.
    #[error("{path}:{line}: {message}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What is wrong there, with the key.
        message: String,
    },
    /// Well-formed but contradictory.
    #[error("{path}: {key}: {message}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The key, `gpus[3].pci`, with the line where one can be named.
        key: String,
        /// What is wrong.
        message: String,
    },
    /// The built library is not where cargo puts it.
    #[error("{path} is not built; run `cargo build -p fake-nvml` with the same profile first")]
    NotBuilt {
        /// Where it was expected.
        path: PathBuf,
    },
}

impl ScenarioError {
    pub(crate) fn io(action: &'static str, path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { action, path, source }
    }

    /// Turns a TOML error into file, line and the text of that line.
    pub(crate) fn toml(path: &std::path::Path, text: &str, error: &toml::de::Error) -> Self {
        let at = error.span().map_or(0, |span| span.start.min(text.len()));
        let line = text.get(..at).map_or(1, |before| before.matches('\n').count() + 1);
        let source = text.lines().nth(line - 1).unwrap_or_default().trim();
        let message = format!("{} in `{source}`", error.message());
        Self::Syntax { path: path.to_path_buf(), line, message }
    }
}
