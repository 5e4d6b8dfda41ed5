//! Files and folders of ours: only root's, never through a symbolic link, never half written.

use crate::EdgeError;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Others may neither own nor change what we trust.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Makes sure that `path` is a folder of root's that nobody else may write to, creating it with `mode` if need be.
///
/// # Errors
/// It cannot be made, is no folder, is a symbolic link, is another user's or writable by others.
pub fn own_folder(path: &Path, mode: u32) -> Result<(), EdgeError> {
    match fs::symlink_metadata(path) {
        Ok(found) => check_owner(path, &found, true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => fs::DirBuilder::new()
            .recursive(true)
            .mode(mode)
            .create(path)
            .map_err(EdgeError::io("create", path)),
        Err(error) => Err(EdgeError::io("look at", path)(error)),
    }
}

/// The text of a file of root's, at most `max_bytes` of it.
///
/// # Errors
/// It cannot be read, is no plain file, is a symbolic link, is another user's or writable by others, is longer than
/// `max_bytes` or not UTF-8.
pub fn read_own(path: &Path, max_bytes: u64) -> Result<String, EdgeError> {
    // O_NONBLOCK: a FIFO put in our place must not hold us up.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file =
        OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(EdgeError::io("open", path))?;
    let found = file.metadata().map_err(EdgeError::io("look at", path))?;
    check_owner(path, &found, false)?;
    read_all(path, file, max_bytes)
}

/// The text of a file of the system's, whoever owns it, at most `max_bytes` of it.
///
/// # Errors
/// It cannot be read, is longer than `max_bytes` or not UTF-8.
pub fn read_text(path: &Path, max_bytes: u64) -> Result<String, EdgeError> {
    // A FIFO or a device in the place of a file must not hold us up.
    let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file =
        OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(EdgeError::io("open", path))?;
    if !file.metadata().map_err(EdgeError::io("look at", path))?.is_file() {
        return Err(EdgeError::Untrusted { path: path.into(), why: "it is not a plain file".into() });
    }
    read_all(path, file, max_bytes)
}

/// What is in a folder of a process's or a group's; nothing where that has ended.
pub(crate) fn entries(folder: &Path) -> Result<Vec<PathBuf>, EdgeError> {
    let mut paths = Vec::new();
    for entry in if_there(fs::read_dir(folder).map_err(EdgeError::io("list", folder)))?.into_iter().flatten()
    {
        let Some(entry) = if_there(entry.map_err(EdgeError::io("list", folder)))? else { break };
        paths.push(entry.path());
    }
    Ok(paths)
}

/// What was read, or `None` where the process or group has ended.
pub(crate) fn if_there<T>(read: Result<T, EdgeError>) -> Result<Option<T>, EdgeError> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.has_vanished() => Ok(None),
        Err(error) => Err(error),
    }
}

fn read_all(path: &Path, file: File, max_bytes: u64) -> Result<String, EdgeError> {
    let mut text = String::new();
    file.take(max_bytes + 1).read_to_string(&mut text).map_err(EdgeError::io("read", path))?;
    if text.len() as u64 > max_bytes {
        let why = format!("longer than the {max_bytes} bytes that are allowed");
        return Err(EdgeError::Content { path: path.into(), why });
    }
    Ok(text)
}

fn check_owner(path: &Path, found: &fs::Metadata, folder: bool) -> Result<(), EdgeError> {
    let refuse = |why: String| Err(EdgeError::Untrusted { path: path.into(), why });
    if folder && !found.is_dir() {
        return refuse("it is not a folder".into());
    }
    if !folder && !found.is_file() {
        return refuse("it is not a plain file".into());
    }
    // SAFETY: geteuid takes nothing, touches no memory and cannot fail.
    let own_uid = unsafe { libc::geteuid() };
    if found.uid() != 0 && found.uid() != own_uid {
        return refuse(format!("it belongs to uid {}, allowed is root", found.uid()));
    }
    if found.mode() & WRITABLE_BY_OTHERS != 0 {
        return refuse(format!("mode {:04o} lets others write to it", found.mode() & 0o7777));
    }
    Ok(())
}

/// Writes `text` to `path` as a whole or not at all: temporary file in the same folder, fsync, rename, fsync of the
/// folder.
///
/// # Errors
/// Any step failed; the old file, if there was one, is still there and the temporary file is gone.
pub fn write_atomic(path: &Path, text: &str, mode: u32) -> Result<(), EdgeError> {
    let folder = path.parent().unwrap_or_else(|| Path::new("/"));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = folder.join(format!(".{name}.{}.tmp", std::process::id()));
    let written = write_new(&temporary, text, mode)
        .and_then(|()| fs::rename(&temporary, path).map_err(EdgeError::io("rename", &temporary)));
    if let Err(error) = written {
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    let opened = File::open(folder).map_err(EdgeError::io("open", folder))?;
    opened.sync_all().map_err(EdgeError::io("sync", folder))
}

fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), EdgeError> {
    let _ = fs::remove_file(path);
    let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .custom_flags(flags)
        .open(path)
        .map_err(EdgeError::io("create", path))?;
    // The caller's umask must not decide who may read.
    file.set_permissions(fs::Permissions::from_mode(mode)).map_err(EdgeError::io("set the mode of", path))?;
    file.write_all(text.as_bytes()).map_err(EdgeError::io("write", path))?;
    file.sync_all().map_err(EdgeError::io("sync", path))
}

/// Removes a file; one that is not there is no error.
///
/// # Errors
/// It is there and cannot be removed.
pub fn remove(path: &Path) -> Result<(), EdgeError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(EdgeError::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_leaves_no_temporary_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        write_atomic(&path, "one", 0o600).unwrap();
        write_atomic(&path, "two", 0o600).unwrap();
        assert_eq!(read_own(&path, 10).unwrap(), "two");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn links_fifos_foreign_and_writable_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        write_atomic(&path, "x", 0o600).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(read_own(&link, 10).is_err());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o622)).unwrap();
        assert!(matches!(read_own(&path, 10), Err(EdgeError::Untrusted { .. })));
        let fifo = folder.path().join("fifo");
        let status = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
        assert!(status.success());
        assert!(matches!(read_own(&fifo, 10), Err(EdgeError::Untrusted { .. })));
        let linked = folder.path().join("linked-folder");
        std::os::unix::fs::symlink("/tmp", &linked).unwrap();
        assert!(own_folder(&linked, 0o700).is_err());
        assert!(own_folder(Path::new("/tmp"), 0o700).is_err(), "a world-writable folder");
    }

    #[test]
    fn a_file_of_another_user_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        write_atomic(&path, "x", 0o600).unwrap();
        // Only root can give a file away; the tests run as root.
        std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
        let error = read_own(&path, 10).unwrap_err().to_string();
        assert!(error.contains("uid 65534"), "{error}");
    }

    #[test]
    fn long_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        write_atomic(&path, "12345", 0o600).unwrap();
        assert!(read_own(&path, 4).is_err());
        assert_eq!(read_own(&path, 5).unwrap(), "12345");
    }
}
