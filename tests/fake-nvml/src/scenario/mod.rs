//! Machines as data: the schema of scenario files, loading with validation, and the machine of one simulated node.
//!
//! A scenario file describes one machine. Pieces that machines share stand beside it: `models/<model>.toml` is one
//! GPU model, `boards/<board>.toml` GPUs with their NVLinks, `hosts/<host>.toml` CPUs and NUMA nodes. The machine file
//! wins over its board, that over its host; tables are merged, GPUs merged one by one, other lists and values replaced.
//! A GPU is its model, then `[gpu_defaults]`, then its `[[gpus]]` entry.
//!
//! Called by the library itself (for the flattened file beside it), by tests and by the throw-away cluster.

mod derive;
mod gpu;
mod load;
mod machine;
mod source;
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
    /// Not TOML, an unknown key, or a value that is wrong by itself or beside others.
    #[error("{path}:{line}: {message}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What is wrong there, with the key.
        message: String,
    },
    /// Well-formed but contradictory, in a file whose lines say nothing.
    #[error("{path}: {key}: {message}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The key, `gpus[3].pci`.
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
        let line = source::line_at(text, at);
        let stated = text.lines().nth(line - 1).unwrap_or_default().trim();
        let message = format!("{} in `{stated}`", error.message());
        Self::Syntax { path: path.to_path_buf(), line, message }
    }

    /// The same with the key in front.
    fn at_key(self, key: Option<&str>) -> Self {
        match (self, key) {
            (Self::Syntax { path, line, message }, Some(key)) => {
                Self::Syntax { path, line, message: format!("{key}: {message}") }
            }
            (error, _) => error,
        }
    }
}
