//! Free ports on 127.0.0.1.

use super::ClusterError;
use std::net::TcpListener;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

/// Below Linux' range for outgoing connections (32768), so that no connection takes a port between its choice and the
/// start of its daemon.
const RANGE: std::ops::Range<u16> = 20_000..32_000;

/// Where this process goes on searching: two clusters of one process never try the same ports.
static NEXT: Mutex<Option<u16>> = Mutex::new(None);

/// So many ports that nobody listens on. They are held until they are given up by [`Ports::release`].
#[derive(Debug)]
pub(super) struct Ports {
    held: Vec<TcpListener>,
    pub(super) numbers: Vec<u16>,
}

impl Ports {
    pub(super) fn find(count: usize) -> Result<Ports, ClusterError> {
        let mut next = NEXT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut port = next.unwrap_or_else(first);
        let mut ports = Ports { held: Vec::new(), numbers: Vec::new() };
        for _ in RANGE {
            if ports.numbers.len() == count {
                break;
            }
            // slurmd listens on all addresses.
            if let Ok(listener) = TcpListener::bind(("0.0.0.0", port)) {
                ports.held.push(listener);
                ports.numbers.push(port);
            }
            port = if port + 1 < RANGE.end { port + 1 } else { RANGE.start };
        }
        *next = Some(port);
        if ports.numbers.len() < count {
            return Err(ClusterError::Spec(format!("no {count} free ports within {RANGE:?}")));
        }
        Ok(ports)
    }

    /// Gives the ports up, just before the daemons take them.
    pub(super) fn release(&mut self) {
        self.held.clear();
    }
}

/// Different for each process, so that test programs that run at once rarely meet.
fn first() -> u16 {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
    let offset = (std::process::id().wrapping_mul(101) ^ nanos) % u32::from(RANGE.end - RANGE.start);
    RANGE.start + u16::try_from(offset).unwrap_or(0)
}
