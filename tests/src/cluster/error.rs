//! What can go wrong with a throw-away cluster.

use std::io;
use std::path::PathBuf;
use std::time::Duration;
use thiserror::Error;

/// Why a cluster, or a command on it, did not do what it should.
#[derive(Debug, Error)]
pub enum ClusterError {
    /// A program of another package is missing.
    #[error("{program} is not installed; on Debian: apt-get install {package}")]
    NotInstalled {
        /// The program.
        program: String,
        /// The Debian package that has it.
        package: String,
    },
    /// gpuward's own program has not been built.
    #[error("{0} does not exist; build it first: cargo build -p gpuward")]
    NotBuilt(PathBuf),
    /// What was asked for makes no sense.
    #[error("{0}")]
    Spec(String),
    /// A file operation.
    #[error("{0}: {1}")]
    File(PathBuf, #[source] io::Error),
    /// A program could not be started.
    #[error("cannot start {0}: {1}")]
    Spawn(String, #[source] io::Error),
    /// The cluster did not come up; the text has the tails of the logs.
    #[error("{what}\n{logs}")]
    Start {
        /// What did not happen.
        what: String,
        /// The tails of the logs.
        logs: String,
    },
    /// A command ended with an error.
    #[error("{command}: exit {code:?}: {output}")]
    Command {
        /// The command line.
        command: String,
        /// Its exit code, none for a signal.
        code: Option<i32>,
        /// Both of its outputs.
        output: String,
    },
    /// Something did not happen in time.
    #[error("{what}: not within {limit:?}; last seen: {last}")]
    Deadline {
        /// What was waited for.
        what: String,
        /// For how long.
        limit: Duration,
        /// The last state.
        last: String,
    },
}

/// Names the file in an I/O error.
pub(super) fn at(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> ClusterError {
    let path = path.into();
    move |error| ClusterError::File(path, error)
}
