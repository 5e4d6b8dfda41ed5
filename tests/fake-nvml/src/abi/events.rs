//! Events: sets of what a process waits for. The script's `[[event]]` entries are what happens.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::exported;
use super::pointers::{Handle, Out, Ticket};
use super::runtime::{self, State};
use super::types::{EventData, EventDataV1};
use crate::code::Code;
use crate::engine::{Answer, Device};

/// `nvmlEventType*`.
const SINGLE_BIT_ECC: u64 = 1;
const DOUBLE_BIT_ECC: u64 = 2;
const XID: u64 = 8;

/// How often a waiting thread looks at the script.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// One GPU in a set.
#[derive(Debug, Clone, Copy)]
struct Registered {
    slot: u32,
    kinds: u64,
    since_boottime_ms: u64,
}

/// One event, by what tells it from others: slot, Xid, time.
type Happened = (u32, u64, u64);

#[derive(Debug, Default)]
struct Set {
    registered: Vec<Registered>,
    delivered: Vec<Happened>,
}

static SETS: Mutex<Option<HashMap<usize, Set>>> = Mutex::new(None);

/// Runs with one set; an unknown one is an invalid argument.
fn with<T>(ticket: Ticket, act: impl FnOnce(&mut Set) -> T) -> Answer<T> {
    sets().get_or_insert_default().get_mut(&ticket.number()).map(act).ok_or(Code::INVALID_ARGUMENT)
}

fn sets() -> MutexGuard<'static, Option<HashMap<usize, Set>>> {
    SETS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn supported(device: &Device<'_>) -> Answer<u64> {
    let ecc = device.whole()?.ecc.enabled == Some(true);
    Ok(XID | if ecc { SINGLE_BIT_ECC | DOUBLE_BIT_ECC } else { 0 })
}

impl Set {
    /// The first event that has happened since its GPU was registered and was not delivered yet.
    fn next(&mut self, state: &State) -> Option<Happened> {
        let now = state.now().boottime_ms;
        let waited_for = |slot: u32, at: u64| {
            let fits =
                |own: &Registered| own.slot == slot && own.kinds & XID != 0 && own.since_boottime_ms <= at;
            at <= now && self.registered.iter().any(fits)
        };
        let happened = state.script.events().map(|(slot, event)| (slot, event.xid, event.at_boottime_ms));
        let new = happened.filter(|event| waited_for(event.0, event.2) && !self.delivered.contains(event));
        let found = new.min_by_key(|(_, _, at)| *at)?;
        self.delivered.push(found);
        Some(found)
    }
}

/// Waits for an event with no lock held, so that other threads go on.
fn wait(set: Ticket, timeout_ms: u32) -> Answer<Happened> {
    let start = Instant::now();
    let limit = Duration::from_millis(timeout_ms.into());
    loop {
        let state = runtime::state()?;
        if let Some(happened) = with(set, |set| set.next(&state))? {
            return Ok(happened);
        }
        // Only once everything is told: the Xid comes before the loss (nvml.h has the code for a wait).
        if with(set, |set| set.registered.iter().any(|own| state.script.is_lost(own.slot)))? {
            return Err(Code::GPU_IS_LOST);
        }
        let left = limit.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Err(Code::TIMEOUT);
        }
        thread::sleep(left.min(LOOK_EVERY));
    }
}

exported! {
    /// `nvmlDeviceRegisterEvents`: a GPU that cannot do all of the kinds is refused.
    gpu nvmlDeviceRegisterEvents(kinds: u64, set: Ticket) |device| {
        if kinds & !supported(device)? != 0 {
            return Err(Code::NOT_SUPPORTED);
        }
        let since_boottime_ms = device.now.boottime_ms;
        let registered = Registered { slot: device.gpu.slot(), kinds, since_boottime_ms };
        with(set, |set| set.registered.push(registered))
    };

    /// `nvmlDeviceGetSupportedEventTypes`.
    gpu nvmlDeviceGetSupportedEventTypes(kinds: Out<u64>) |device| kinds.put(supported(device)?);

    /// `nvmlEventSetCreate`.
    system nvmlEventSetCreate(set: Out<Ticket>) |_| {
        set.given()?;
        let mut sets = sets();
        let table = sets.get_or_insert_default();
        let number = table.keys().max().map_or(1, |last| last + 1);
        table.insert(number, Set::default());
        set.put(Ticket::new(number))
    };

    /// `nvmlEventSetWait`: the older struct, without instances.
    system nvmlEventSetWait(set: Ticket, data: Out<EventDataV1>, timeout_ms: u32) |_| {
        data.given()?;
        let (slot, xid, _) = wait(set, timeout_ms)?;
        data.put(EventDataV1 { device: Handle::new(slot, None), kinds: XID, data: xid })
    };

    /// `nvmlEventSetWait_v2`.
    system nvmlEventSetWait_v2(set: Ticket, data: Out<EventData>, timeout_ms: u32) |_| {
        data.given()?;
        let (slot, xid, _) = wait(set, timeout_ms)?;
        let (gpu_instance, compute_instance) = (u32::MAX, u32::MAX);
        data.put(EventData { device: Handle::new(slot, None), kinds: XID, data: xid, gpu_instance, compute_instance })
    };

    /// `nvmlEventSetFree`.
    system nvmlEventSetFree(set: Ticket) |_|
        sets().get_or_insert_default().remove(&set.number()).map(|_| ()).ok_or(Code::INVALID_ARGUMENT);
}
