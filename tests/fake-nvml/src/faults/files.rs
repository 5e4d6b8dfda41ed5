//! The script as a file beside the library, and how loaded libraries learn that it has changed.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Faults;
use crate::scenario::ScenarioError;

/// Name of the script beside the library.
pub const FILE: &str = "faults.toml";

/// Name of the counter beside it: eight bytes that each change of the rule files raises. Libraries have it mapped, so
/// that a call sees a change without asking the file system. It is never cut short and never replaced.
pub(crate) const CHANGES: &str = "changes";

/// Writes a script into a folder in one step, so that no call sees half of it. The text is checked first. The next
/// call of any process obeys it.
pub fn write(dir: &Path, text: &str) -> Result<(), ScenarioError> {
    let path = dir.join(FILE);
    Faults::parse(&path, text)?;
    replace(&path, text)?;
    announce(dir)
}

/// Ends all faults.
pub fn clear(dir: &Path) -> Result<(), ScenarioError> {
    let path = dir.join(FILE);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(ScenarioError::io("remove", &path)(error))
        }
        _ => announce(dir),
    }
}

/// Writes a file by rename. Several threads of several processes may do so: each has a temporary file of its own.
pub(crate) fn replace(path: &Path, text: &str) -> Result<(), ScenarioError> {
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let number = WRITTEN.fetch_add(1, Relaxed);
    let temporary = path.with_extension(format!("tmp.{}.{number}", std::process::id()));
    fs::write(&temporary, text).map_err(ScenarioError::io("write", &temporary))?;
    fs::rename(&temporary, path).map_err(ScenarioError::io("replace", path))
}

/// Opens the counter's file, which is made where it is missing.
pub(crate) fn open_changes(dir: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(dir.join(CHANGES))
}

/// Raises the counter. To be called after the change: two writers that raise it to the same number have both changed
/// their files before either number can be read, so no change is missed.
pub(crate) fn announce(dir: &Path) -> Result<(), ScenarioError> {
    let raise = || {
        let file = open_changes(dir)?;
        let mut bytes = [0; 8];
        // A new file has none yet.
        let _ = file.read_at(&mut bytes, 0)?;
        file.write_all_at(&u64::from_ne_bytes(bytes).wrapping_add(1).to_ne_bytes(), 0)
    };
    raise().map_err(ScenarioError::io("write", &dir.join(CHANGES)))
}
