//! What /proc says of a process: the one place that reads /proc/PID/stat.

use crate::EdgeError;
use crate::files::{entries, if_there};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// What is of use in /proc/PID/stat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Its name, which it can choose itself: not to be trusted, to be escaped where it is shown.
    pub name: String,
    /// The state of its first thread: `D` sleeps and cannot be woken, `Z` and `X` have ended.
    pub state: char,
    /// The process that it comes from; 0 where that is in another pid namespace.
    pub parent: u32,
    /// A kernel thread.
    pub is_kernel: bool,
    /// When it was started, in clock ticks since boot. Together with the pid it names one process for good.
    pub start_ticks: u64,
}

/// PF_KTHREAD (include/linux/sched.h).
const KERNEL_THREAD: u64 = 0x0020_0000;
/// Name and 52 numbers.
const MAX_STAT_BYTES: u64 = 4096;

impl Stat {
    /// Reads that of the process or thread with this folder; `None` where it is gone.
    ///
    /// # Errors
    /// It cannot be read, or is not in the form of proc_pid_stat(5).
    pub fn read(folder: &Path) -> Result<Option<Stat>, EdgeError> {
        let path = folder.join("stat");
        let Some(text) = if_there(read_lossy(&path))? else { return Ok(None) };
        match Stat::parse(&text) {
            Some(stat) => Ok(Some(stat)),
            None => Err(EdgeError::Content { path, why: "not in the form of proc_pid_stat(5)".into() }),
        }
    }

    /// `PID (NAME) STATE PPID PGRP SESSION TTY TPGID FLAGS ... STARTTIME`, the last being field 22.
    fn parse(text: &str) -> Option<Stat> {
        // The name may hold anything, blanks and parentheses too.
        let (start, rest) = text.rsplit_once(") ")?;
        let (_, name) = start.split_once(" (")?;
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let flags: u64 = fields.nth(4)?.parse().ok()?;
        let start_ticks = fields.nth(12)?.parse().ok()?;
        Some(Stat { name: name.into(), state, parent, is_kernel: flags & KERNEL_THREAD != 0, start_ticks })
    }

    /// True where the first thread has ended. Others may go on, and with them the process: [`is_alive`] asks them.
    pub fn first_thread_has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// Whether one thread of the process with this folder goes on. `stat` is what was read there.
///
/// # Errors
/// Its threads cannot be read.
pub fn is_alive(folder: &Path, stat: &Stat) -> Result<bool, EdgeError> {
    if !stat.first_thread_has_ended() {
        return Ok(true);
    }
    for thread in threads(folder)? {
        if Stat::read(&thread)?.is_some_and(|thread| !thread.first_thread_has_ended()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The folders of the threads of the process with this folder; none where it has ended.
///
/// # Errors
/// They cannot be listed.
pub fn threads(folder: &Path) -> Result<Vec<PathBuf>, EdgeError> {
    entries(&folder.join("task"))
}

/// A process may call itself anything, also what is not UTF-8.
fn read_lossy(path: &Path) -> Result<String, EdgeError> {
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(EdgeError::io("open", path))?;
    file.take(MAX_STAT_BYTES).read_to_end(&mut bytes).map_err(EdgeError::io("read", path))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_may_call_itself_anything() {
        let text = "7 (a) R 9 (b) S 3 7 7 0 -1 2097216 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0 rest";
        let stat = Stat::parse(text).unwrap();
        assert_eq!((stat.name.as_str(), stat.parent, stat.start_ticks), ("a) R 9 (b", 3, 4711));
        assert!(stat.is_kernel && stat.state == 'S' && !stat.first_thread_has_ended());
        let (start, _) = text.split_at(text.find("4711").unwrap());
        assert_eq!(Stat::parse(start.trim_end()), None, "cut off");
        assert_eq!(Stat::parse(""), None);
    }
}
