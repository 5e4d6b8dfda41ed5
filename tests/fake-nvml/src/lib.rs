//! A `libnvidia-ml.so.1` without a GPU: it serves a machine described in a scenario file, and misbehaves as a fault
//! script tells it to.
//!
//! Two ways in:
//!
//! * Programs load the shared library. It looks for its scenario and `faults.toml` in its own folder, so that
//!   several simulated nodes live on one host, each with its own copy.
//! * Tests and the throw-away cluster link this crate:
//!
//! ```no_run
//! use std::path::Path;
//! use nvidia_ml::{built_library, faults, scenario::Machine};
//!
//! # fn main() -> Result<(), nvidia_ml::scenario::ScenarioError> {
//! let machine = Machine::load(Path::new("tests/scenarios/hgx-h100.toml"))?.for_node("node1");
//! machine.install(&built_library()?, Path::new("/tmp/node1/lib"))?;   // library, links, scenario
//! machine.render(Path::new("/tmp/node1/root"))?;                      // sys/ and proc/ below it
//! faults::write(Path::new("/tmp/node1/lib"), "[[lost]]\ngpu = 3\n")?; // from the next call on
//! faults::clear(Path::new("/tmp/node1/lib"))?;
//! # Ok(()) }
//! ```
//!
//! The parts: [`scenario`] is the machine as data, [`faults`] the script, [`engine`] the pure answers, [`render`] the
//! sysfs and procfs trees, [`abi`] the C functions.

pub mod abi;
pub mod code;
pub mod elf;
pub mod engine;
pub mod faults;
pub mod install;
pub mod render;
pub mod scenario;

pub use install::{built_library, install};
