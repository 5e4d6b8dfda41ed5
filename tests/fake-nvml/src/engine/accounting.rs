//! Processes over time: the accounting ring and the share of each process in the GPU's work.
//!
//! What nvml.h says: only processes with a context count; newer ones push the oldest out of the ring; of two with one
//! pid the later one counts; the active time is 0 while a process runs; the mode forced off by MIG. What a client
//! sees in the field (NVIDIA/DCGM#19): only processes that started after the mode was switched on.

use super::{Answer, Device};
use crate::code::Code;
use crate::faults::Busy;
use crate::scenario::{Accounting, AccountingEntry, Process, Util};

/// A process in the ring.
#[derive(Debug, Clone, PartialEq)]
pub struct Accounted {
    /// What version 1 of the statistics tells.
    pub entry: AccountingEntry,
    /// Samples taken while it ran; one a second (our estimate).
    pub samples: u32,
}

/// What a process does now.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessLoad {
    /// Process id.
    pub pid: u32,
    /// End of the sampling period that this comes from, microseconds since 1970.
    pub time_us: u64,
    /// Its share of the utilisation.
    pub util: Util,
}

/// Sampling period of process utilisation (an estimate of ours; nvml.h says between a sixth of a second and one).
const PERIOD_US: u64 = 1_000_000;

impl<'a> Device<'a> {
    /// The accounting mode and its data: not supported where nothing is stated and, as in MIG mode it is forced off,
    /// for MIG devices.
    pub fn accounting(&self) -> Answer<&'a Accounting> {
        let own = &self.whole()?.accounting;
        own.enabled.map(|_| own).ok_or(Code::NOT_SUPPORTED)
    }

    /// Whether processes are accounted now.
    pub fn accounting_on(&self) -> Answer<bool> {
        Ok(self.accounting()?.enabled == Some(true) && !self.gpu.mig.enabled)
    }

    /// The ring, oldest first. Everything but the mode wants it to be on.
    pub fn accounted(&self) -> Answer<Vec<Accounted>> {
        if !self.accounting_on()? {
            return Err(Code::NOT_SUPPORTED);
        }
        let own = &self.gpu.accounting;
        let stated = own.entries.iter().filter(|entry| entry.running || own.cleared_boottime_ms.is_none());
        let mut ring: Vec<Accounted> =
            stated.map(|entry| Accounted { samples: seconds(entry.time_ms), entry: entry.clone() }).collect();
        let mut busy: Vec<(u64, Accounted)> = self
            .script
            .busy(self.gpu.slot())
            .filter_map(|busy| Some((busy.from_boottime_ms.unwrap_or(0), self.accounted_process(busy)?)))
            .collect();
        busy.sort_by_key(|(from, _)| *from);
        ring.extend(busy.into_iter().map(|(_, process)| process));
        let too_many = ring.len().saturating_sub(own.buffer_size as usize);
        ring.drain(..too_many);
        Ok(ring)
    }

    /// The process of a busy time, where it has started and is accounted.
    fn accounted_process(&self, busy: &Busy) -> Option<Accounted> {
        let own = &self.gpu.accounting;
        let process = busy.process.as_ref()?;
        let now = self.now.boottime_ms;
        let from = busy.from_boottime_ms.unwrap_or(0);
        let ended = busy.until_boottime_ms.filter(|&until| until <= now);
        let before = |limit: Option<u64>, time: u64| limit.is_some_and(|limit| time < limit);
        if from > now || before(own.since_boottime_ms, from) {
            return None;
        }
        if ended.is_some_and(|end| own.cleared_boottime_ms.is_some_and(|cleared| end <= cleared)) {
            return None;
        }
        let util = busy.util.as_ref().unwrap_or(&self.gpu.util);
        let ran_ms = ended.unwrap_or(now) - from;
        let entry = AccountingEntry {
            pid: process.pid,
            gpu_pct: util.gpu_pct,
            memory_pct: util.memory_pct,
            max_memory_mib: process.memory_mib,
            time_ms: if ended.is_some() { ran_ms } else { 0 },
            start_unix_us: self.now.unix_us.saturating_sub((now - from) * 1000),
            running: ended.is_none(),
        };
        Some(Accounted { entry, samples: seconds(ran_ms) })
    }

    /// What each of these processes does, in the last whole sampling period; nothing while the GPU rests. They share
    /// the GPU alike.
    pub fn loads(&self, processes: &[&Process]) -> Vec<ProcessLoad> {
        let util = self.util();
        let Ok(count @ 1..) = u32::try_from(processes.len()) else { return Vec::new() };
        if util.gpu_pct == 0 && util.memory_pct == 0 {
            return Vec::new();
        }
        let share = Util { gpu_pct: util.gpu_pct / count, memory_pct: util.memory_pct / count, sm: None };
        let time_us = self.now.unix_us / PERIOD_US * PERIOD_US;
        processes
            .iter()
            .map(|process| ProcessLoad { pid: process.pid, time_us, util: share.clone() })
            .collect()
    }
}

fn seconds(ms: u64) -> u32 {
    u32::try_from(ms / 1000).unwrap_or(u32::MAX)
}
