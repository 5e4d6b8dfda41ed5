//! Reads files that root wrote, and no others.
//!
//! This runs as root inside slurmstepd. A symbolic link, a foreign owner, a file or folder that others may write, a
//! fifo that would block and a file without end are refused.

use std::ffi::CString;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A link is refused, a fifo does not block, nothing is inherited by the tasks.
const FLAGS: i32 = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;

/// Why a file was not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileError {
    /// It is not there.
    Missing(PathBuf),
    /// It is there but not to be trusted, or it cannot be read.
    Refused(PathBuf, String),
}

impl std::fmt::Display for FileError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FileError::Missing(path) => write!(out, "{} does not exist", path.display()),
            FileError::Refused(path, why) => write!(out, "cannot use {}: {why}", path.display()),
        }
    }
}

/// Reads a whole text file of at most `max_bytes`.
pub fn read(path: &Path, max_bytes: usize) -> Result<String, FileError> {
    let file = OpenOptions::new().read(true).custom_flags(FLAGS).open(path);
    read_opened(file.map_err(|error| not_opened(path, &error))?, path, max_bytes)
}

/// An open folder of root's. What lies in it is opened through it, so that it cannot be exchanged meanwhile.
#[derive(Debug)]
pub struct Folder {
    file: File,
    path: PathBuf,
}

impl Folder {
    /// Opens a folder.
    pub fn open(path: &Path) -> Result<Folder, FileError> {
        let opened = OpenOptions::new().read(true).custom_flags(FLAGS | libc::O_DIRECTORY).open(path);
        Folder::checked(opened.map_err(|error| not_opened(path, &error))?, path.to_owned())
    }

    /// Opens a folder inside this one.
    pub fn folder(&self, name: &str) -> Result<Folder, FileError> {
        let path = self.path.join(name);
        Folder::checked(self.open_at(name, libc::O_DIRECTORY)?, path)
    }

    /// Reads a whole text file inside this folder.
    pub fn read(&self, name: &str, max_bytes: usize) -> Result<String, FileError> {
        read_opened(self.open_at(name, 0)?, &self.path.join(name), max_bytes)
    }

    /// Names in this folder, at most `max` of them.
    pub fn names(&self, max: usize) -> Result<Vec<String>, FileError> {
        let entries = std::fs::read_dir(&self.path).map_err(|error| not_opened(&self.path, &error))?;
        let names = entries.take(max).filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        Ok(names.collect())
    }

    fn checked(file: File, path: PathBuf) -> Result<Folder, FileError> {
        let meta = file.metadata().map_err(|error| not_opened(&path, &error))?;
        match distrust(&meta) {
            Some(why) => Err(FileError::Refused(path, why)),
            None => Ok(Folder { file, path }),
        }
    }

    fn open_at(&self, name: &str, more_flags: i32) -> Result<File, FileError> {
        let path = self.path.join(name);
        let refused = |why: &str| FileError::Refused(path.clone(), why.to_owned());
        let c_name = CString::new(name).map_err(|_| refused("a NUL in its name"))?;
        let flags = libc::O_RDONLY | FLAGS | more_flags;
        // SAFETY: an open folder and a C string that live through the call; no mode is read without O_CREAT.
        let fd = unsafe { libc::openat(self.file.as_raw_fd(), c_name.as_ptr(), flags) };
        if fd < 0 {
            return Err(not_opened(&path, &io::Error::last_os_error()));
        }
        // SAFETY: the descriptor was just opened and belongs to nobody else.
        Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
    }
}

fn read_opened(file: File, path: &Path, max_bytes: usize) -> Result<String, FileError> {
    let refused = |why: String| FileError::Refused(path.to_owned(), why);
    let meta = file.metadata().map_err(|error| refused(error.to_string()))?;
    if !meta.is_file() {
        return Err(refused("not a regular file".to_owned()));
    }
    if let Some(why) = distrust(&meta) {
        return Err(refused(why));
    }
    let limit = u64::try_from(max_bytes).unwrap_or(u64::MAX);
    if meta.len() > limit {
        return Err(refused(format!("{} bytes, allowed are {max_bytes}", meta.len())));
    }
    let mut text = String::new();
    // The limit holds for a file that grows meanwhile as well.
    file.take(limit).read_to_string(&mut text).map_err(|error| refused(error.to_string()))?;
    Ok(text)
}

/// Why what root wrote should not look like this; `None` where it does.
fn distrust(meta: &Metadata) -> Option<String> {
    if meta.uid() != 0 {
        return Some(format!("owned by uid {}, not by root", meta.uid()));
    }
    let others_may_write = meta.mode() & 0o022 != 0;
    others_may_write.then(|| format!("mode {:04o} lets others write", meta.mode() & 0o7777))
}

fn not_opened(path: &Path, error: &io::Error) -> FileError {
    match error.raw_os_error() {
        Some(libc::ENOENT) => FileError::Missing(path.to_owned()),
        Some(libc::ELOOP) => FileError::Refused(path.to_owned(), "a symbolic link".to_owned()),
        _ => FileError::Refused(path.to_owned(), error.to_string()),
    }
}
