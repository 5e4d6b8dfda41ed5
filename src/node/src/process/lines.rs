//! Lines from a pipe, each under a deadline.

use crate::clock::Deadline;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};

/// No line of ours or of Slurm's is longer.
const MAX_LINE_BYTES: usize = 64 * 1024;

/// What came next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A whole line without its end; bytes that are no UTF-8 are replaced.
    Text(String),
    /// The other side closed the pipe.
    End,
    /// The deadline came first.
    TimedOut,
}

/// Reads lines from a child's pipe and never waits longer than it is allowed to.
#[derive(Debug)]
pub struct Lines {
    pipe: File,
    buffer: Vec<u8>,
    ended: bool,
}

impl Lines {
    /// Reads from `pipe`.
    pub fn new(pipe: OwnedFd) -> Lines {
        Lines { pipe: pipe.into(), buffer: Vec::new(), ended: false }
    }

    /// The next line.
    pub fn next(&mut self, deadline: Deadline) -> Line {
        loop {
            if let Some(line) = self.take_line() {
                return Line::Text(line);
            }
            if self.ended {
                return Line::End;
            }
            if !self.wait_readable(deadline) {
                return Line::TimedOut;
            }
            self.read_more();
        }
    }

    /// Everything up to the end, as it is.
    ///
    /// # Errors
    /// There are more than `max_bytes`, or the deadline came first.
    pub fn rest(&mut self, max_bytes: usize, deadline: Deadline) -> Result<Vec<u8>, &'static str> {
        while !self.ended {
            if !self.wait_readable(deadline) {
                return Err("did not answer in time");
            }
            self.read_more();
            if self.buffer.len() > max_bytes {
                return Err("printed too much");
            }
        }
        Ok(std::mem::take(&mut self.buffer))
    }

    fn read_more(&mut self) {
        let mut chunk = [0u8; 16 * 1024];
        match self.pipe.read(&mut chunk) {
            Ok(0) => self.ended = true,
            Ok(count) => self.buffer.extend(chunk.iter().take(count)),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => self.ended = true,
        }
    }

    fn take_line(&mut self) -> Option<String> {
        let end = self.buffer.iter().position(|&byte| byte == b'\n');
        let (take, skip) = match end {
            Some(at) => (at, at + 1),
            None if self.buffer.len() >= MAX_LINE_BYTES => (self.buffer.len(), self.buffer.len()),
            None if self.ended && !self.buffer.is_empty() => (self.buffer.len(), self.buffer.len()),
            None => return None,
        };
        let bytes: Vec<u8> = self.buffer.drain(..skip).take(take).collect();
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn wait_readable(&self, deadline: Deadline) -> bool {
        loop {
            let left_ms = deadline.left_ms();
            if left_ms == 0 {
                return false;
            }
            let timeout_ms = i32::try_from(left_ms).unwrap_or(i32::MAX);
            let mut wanted = libc::pollfd { fd: self.pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: `wanted` is one live pollfd, its descriptor is open as long as `self.pipe`, and poll writes only
            // to it.
            let ready = unsafe { libc::poll(&raw mut wanted, 1, timeout_ms) };
            if ready > 0 {
                return true;
            }
        }
    }
}
