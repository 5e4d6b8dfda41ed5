//! Roles of our own in forked children.
//!
//! Forked and not started anew: a start costs over a millisecond, and a prolog has two of these children. Forking is
//! sound because the process has one thread; that is checked, not assumed.

use crate::EdgeError;
use crate::clock::Deadline;
use std::ffi::CStr;
use std::fs::OpenOptions;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// A forked child.
#[derive(Debug)]
pub struct Forked {
    pid: libc::pid_t,
    gone: bool,
}

impl Forked {
    /// Its process id.
    pub fn id(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// Waits for its end for `grace_ms`; true once it is gone.
    pub fn reap(&mut self, grace_ms: u64) -> bool {
        let grace = Deadline::in_ms(grace_ms);
        while !self.try_wait() {
            if grace.passed() {
                return false;
            }
            // Short, because this wait is on the healthy path as well.
            std::thread::sleep(Duration::from_micros(100));
        }
        true
    }

    /// Ends it with SIGKILL and waits for `grace_ms`; false where it hangs on in the kernel.
    pub fn kill_and_reap(&mut self, grace_ms: u64) -> bool {
        if !self.try_wait() {
            // SAFETY: kill touches no memory; the child has not been waited for, so the pid is still its own.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
        }
        self.reap(grace_ms)
    }

    fn try_wait(&mut self) -> bool {
        if !self.gone {
            // SAFETY: waitpid may be given no place for the status, and with WNOHANG it does not wait.
            let result = unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), libc::WNOHANG) };
            // An error means that there is no such child any more.
            self.gone = result != 0;
        }
        self.gone
    }
}

/// Forks a child that is called `name`, runs `body` and ends; returns it with the pipe from its standard output.
///
/// The child ends with its parent. It has /dev/null as standard input and error and no other descriptor, a process
/// group of its own, and logs nothing unless `body` starts a log. Whatever `body` does, the child never returns from here.
///
/// # Errors
/// This process has other threads, or the kernel refused.
pub fn fork_role(name: &'static CStr, body: impl FnOnce()) -> Result<(Forked, OwnedFd), EdgeError> {
    let failed = |why: String| EdgeError::Program { program: name.to_string_lossy().into_owned(), why };
    // A folder's link count is its subfolders and two: here, the threads.
    let threads = std::fs::metadata("/proc/self/task").map_or(0, |found| found.nlink().saturating_sub(2));
    if threads != 1 {
        return Err(failed(format!("is not forked: {threads} threads where there must be one")));
    }
    let (read, write) = pipe().map_err(|error| failed(format!("has no pipe: {error}")))?;
    let parent = std::process::id();
    // SAFETY: the process has one thread, so the child finds no lock held and no state half changed.
    match unsafe { libc::fork() } {
        0 => be_the_child(name, parent, &write, body),
        pid if pid > 0 => Ok((Forked { pid, gone: false }, read)),
        _ => Err(failed(format!("was not forked: {}", std::io::Error::last_os_error()))),
    }
}

fn be_the_child(name: &'static CStr, parent: u32, pipe: &OwnedFd, body: impl FnOnce()) -> ! {
    log::set_max_level(log::LevelFilter::Off);
    let ran = catch_unwind(AssertUnwindSafe(|| {
        if settle(name, parent, pipe) {
            body();
        }
    }));
    // SAFETY: _exit ends the process and runs nothing of the parent's: no exit handler, no destructor.
    unsafe { libc::_exit(i32::from(ran.is_err())) }
}

/// Everything of the parent's goes; false where the child must not go on.
fn settle(name: &'static CStr, parent: u32, pipe: &OwnedFd) -> bool {
    let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") else { return false };
    for (from, to) in [(null.as_raw_fd(), 0), (pipe.as_raw_fd(), 1), (null.as_raw_fd(), 2)] {
        // SAFETY: both descriptors are open, and dup2 touches no memory.
        if unsafe { libc::dup2(from, to) } != to {
            return false;
        }
    }
    // Their numbers are closed next, and must not be closed again later when somebody else has them.
    std::mem::forget(null);
    close_from_3();
    // SAFETY: setpgid takes numbers and touches no memory.
    unsafe { libc::setpgid(0, 0) };
    // SAFETY: PR_SET_NAME reads at most 16 bytes of a text that ends in NUL and lives for ever.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    // SAFETY: PR_SET_PDEATHSIG takes a number and touches no memory.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    // SAFETY: getppid takes nothing, touches no memory and cannot fail.
    let still_there = unsafe { libc::getppid() }.unsigned_abs() == parent;
    still_there && std::env::set_current_dir("/").is_ok()
}

/// Closes what the parent and whoever started it left open: a child that hangs must not hold slurmd's pipe.
fn close_from_3() {
    // SAFETY: close_range touches no memory. Nothing in the child uses a descriptor above 2: the parent's values that
    // own one are never dropped here, since the child ends in _exit.
    // By number: glibc has the call since 2.34 only.
    if unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) } == 0 {
        return;
    }
    // A kernel before 5.9.
    for fd in 3..1024 {
        // SAFETY: as above; closing a number that is not open is an error that changes nothing.
        unsafe { libc::close(fd) };
    }
}

fn pipe() -> std::io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [-1; 2];
    // SAFETY: pipe2 writes two numbers into the array, which has room for two.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    let [read, write] = ends;
    // SAFETY: pipe2 has just opened this descriptor, and nobody else owns it.
    let read = unsafe { OwnedFd::from_raw_fd(read) };
    // SAFETY: as above.
    let write = unsafe { OwnedFd::from_raw_fd(write) };
    Ok((read, write))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_threads_does_not_fork() {
        // The test runner has threads, and so never gets a child.
        let error = fork_role(c"gpuward-test", || {}).unwrap_err().to_string();
        assert!(error.contains("threads where there must be one"), "{error}");
    }
}
