//! NVML, only ever in a child process with a deadline.
//!
//! `probe` is that child, `read` what it asks, `detail` and `raw` what only a look at leisure asks, `message` what it says; `watch` is the side that waits, and never longer
//! than the deadline.

mod detail;
mod message;
mod probe;
mod raw;
mod read;
mod watch;

pub use message::{Message, Request};
pub use watch::{Answer, Watch};
