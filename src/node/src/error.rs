//! What can go wrong at the edges. Each is a fault of ours or of the set-up, never a finding about a GPU.

use gpuward_core::config::ConfigError;
use std::path::PathBuf;

/// An error at an edge, with the path or program it is about.
#[derive(Debug, thiserror::Error)]
pub enum EdgeError {
    /// An operation on a file or folder failed.
    #[error("cannot {what} {path}: {source}", path = path.display())]
    Io {
        /// What was tried, as a verb.
        what: &'static str,
        /// On which path.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A file or folder is not ours to trust.
    #[error("{path} is refused: {why}", path = path.display())]
    Untrusted {
        /// Which path.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A file's content is not what it should be.
    #[error("{path}: {why}", path = path.display())]
    Content {
        /// Which path.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// gpuward.toml holds an error; it names file and line itself.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A program failed or took too long.
    #[error("{program} {why}")]
    Program {
        /// Which program.
        program: String,
        /// What happened.
        why: String,
    },
}

impl EdgeError {
    pub(crate) fn io(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> EdgeError {
        let path = path.into();
        move |source| EdgeError::Io { what, path, source }
    }

    /// The system's number of the error, where it has one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            EdgeError::Io { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }

    /// True where the file simply is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, EdgeError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
    }

    /// True where a process or a control group has ended: groups answer ENODEV once they are removed (kernfs), processes
    /// ESRCH once they have ended (proc(5)).
    pub(crate) fn has_vanished(&self) -> bool {
        self.is_not_found() || matches!(self.errno(), Some(libc::ENODEV | libc::ESRCH))
    }
}
