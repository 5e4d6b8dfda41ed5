//! One probe at a time on a node.

use crate::clock::Deadline;
use crate::{EdgeError, files};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

/// A lock on a file, held until it is dropped or its process ends, however that happens.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock, or gives up at the deadline.
    ///
    /// # Errors
    /// The file cannot be opened. `Ok(None)`: another process held it until the deadline.
    pub fn take(path: &Path, deadline: Deadline) -> Result<Option<Lock>, EdgeError> {
        if let Some(folder) = path.parent() {
            files::own_folder(folder, 0o755)?;
        }
        let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(flags)
            .open(path)
            .map_err(EdgeError::io("open", path))?;
        loop {
            // SAFETY: the descriptor is open as long as `file`; flock touches no memory.
            let result = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
            if result == 0 {
                return Ok(Some(Lock { _file: file }));
            }
            if deadline.passed() {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_taker_gives_up_at_its_deadline_and_gets_it_later() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let first = Lock::take(&path, Deadline::in_ms(100)).unwrap();
        assert!(first.is_some());
        assert!(Lock::take(&path, Deadline::in_ms(20)).unwrap().is_none());
        drop(first);
        assert!(Lock::take(&path, Deadline::in_ms(20)).unwrap().is_some());
    }
}
