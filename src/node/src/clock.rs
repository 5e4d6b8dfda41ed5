//! The two clocks: one for people, one for intervals that survives suspend and that nobody sets.

use std::time::{SystemTime, UNIX_EPOCH};

/// CLOCK_BOOTTIME, nanoseconds.
pub fn boottime_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a live, writable timespec, and clock_gettime writes nothing else.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    if result != 0 {
        return 0;
    }
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Wall clock, milliseconds since 1970.
pub fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(0)
}

/// A moment on CLOCK_BOOTTIME by which something must be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline {
    at_boottime_ns: u64,
}

impl Deadline {
    /// `ms` milliseconds after `start_boottime_ns`.
    pub fn after(start_boottime_ns: u64, ms: u64) -> Deadline {
        Deadline { at_boottime_ns: start_boottime_ns.saturating_add(ms.saturating_mul(1_000_000)) }
    }

    /// `ms` milliseconds from now.
    pub fn in_ms(ms: u64) -> Deadline {
        Deadline::after(boottime_ns(), ms)
    }

    /// Milliseconds left, rounded up; 0 once it has passed.
    pub fn left_ms(self) -> u64 {
        self.at_boottime_ns.saturating_sub(boottime_ns()).div_ceil(1_000_000)
    }

    /// True once it has passed.
    pub fn passed(self) -> bool {
        boottime_ns() >= self.at_boottime_ns
    }
}
