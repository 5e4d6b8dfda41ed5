//! Users' own XIDs that keep coming back on one GPU: then it may be the GPU.
//!
//! One user with one bug leaves its traces everywhere, so different users are required and the other GPUs must be clean
//! (health_checks.md, check 14: at least 3 jobs and 2 users in 7 days; limits ours, idea from NVIDIA's workflows for Xid 13
//! and 31).

use crate::health::finding::{Finding, Subject};
use crate::model::GpuUuid;
use crate::model::snapshot::ProbedGpu;
use serde::{Deserialize, Serialize};

const JOBS: usize = 3;
const USERS: usize = 2;
/// How long an entry counts.
const WINDOW_MS: u64 = 7 * 24 * 3600 * 1000;

/// No file has more: 16 GPUs with 8 users each.
const MAX_ENTRIES: usize = 1024;
/// One user alone needs no more, and must not crowd out the others.
const MAX_OF_USER: usize = 8;

/// One user XID of one job on one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppXid {
    /// The whole GPU.
    pub gpu: GpuUuid,
    /// The number.
    pub xid: u32,
    /// The job.
    pub job_id: u32,
    /// Its user.
    pub uid: u32,
    /// Sequence number and time since boot, in microseconds, of the newest line: the same event is no second job's.
    pub line: (u64, u64),
    /// When it was noted down, milliseconds since 1970.
    pub unix_ms: u64,
}

/// The history with `new` in it and without what no longer counts.
pub fn remember(mut known: Vec<AppXid>, new: &[AppXid], now_unix_ms: u64) -> Vec<AppXid> {
    for entry in new {
        // The clock of the kernel log drifts against the one that a job's start is read from, and jobs may share a GPU.
        let told =
            |other: &AppXid| (&other.gpu, other.xid, other.line) == (&entry.gpu, entry.xid, entry.line);
        if known.iter().any(|other| told(other) && other.job_id != entry.job_id) {
            continue;
        }
        let same =
            |other: &AppXid| (&other.gpu, other.xid, other.job_id) == (&entry.gpu, entry.xid, entry.job_id);
        known.retain(|other| !same(other));
        known.push(entry.clone());
        let of_user = |other: &AppXid| other.gpu == entry.gpu && other.uid == entry.uid;
        let excess = known.iter().filter(|other| of_user(other)).count().saturating_sub(MAX_OF_USER);
        if excess > 0 {
            let oldest = known.iter().position(of_user);
            oldest.into_iter().for_each(|at| drop(known.remove(at)));
        }
    }
    let mut known = recent(known, now_unix_ms);
    let excess = known.len().saturating_sub(MAX_ENTRIES);
    known.drain(..excess);
    known
}

/// What still counts. An entry from the future (a clock that was set back) does not.
pub fn recent(mut known: Vec<AppXid>, now_unix_ms: u64) -> Vec<AppXid> {
    known.retain(|entry| now_unix_ms.checked_sub(entry.unix_ms).is_some_and(|age_ms| age_ms <= WINDOW_MS));
    known
}

/// A GPU on which different jobs of different users failed while its siblings stayed clean; `entries` are recent ones. A
/// GPU whose UUID is not known cannot be judged.
pub(super) fn judge(gpu: &ProbedGpu, entries: &[AppXid]) -> Option<Finding> {
    let uuid = gpu.uuid()?;
    if entries.iter().any(|entry| entry.gpu != *uuid) {
        return None;
    }
    let distinct = |of: fn(&AppXid) -> u32| {
        let mut numbers: Vec<u32> = entries.iter().map(of).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    };
    let (jobs, users) = (distinct(|entry| entry.job_id).len(), distinct(|entry| entry.uid).len());
    if jobs < JOBS || users < USERS {
        return None;
    }
    let numbers = distinct(|entry| entry.xid).iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let what = format!("user XIDs {numbers} in {jobs} jobs of {users} users, only on this GPU");
    let finding = Finding::of("XID_REPEAT", Subject::of(gpu), what, "history of the last 7 days");
    Some(finding.measured(format!("{jobs} jobs, {users} users"), format!("{JOBS} jobs, {USERS} users")))
}
