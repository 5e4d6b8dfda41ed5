//! The kernel log since the last look, into what is open in this boot.

use super::Site;
use crate::EdgeError;
use crate::clock::{Deadline, boottime_ns};
use crate::kmsg::{self, journal};
use crate::process::{Stuck, look_at};
use crate::state::BootState;
use gpuward_core::config::Mode;
use gpuward_core::health::kernel_log::{OpenLog, What};
use gpuward_core::model::Reading;
use std::path::Path;

/// Reads what is new; says whether all of it could be read. The journal is asked where the log cannot be opened and
/// `may_ask_journal`: that starts a program, so never in a prolog.
pub(super) fn read(
    site: &Site,
    boot: &mut BootState,
    deadline: Deadline,
    may_ask_journal: bool,
) -> Reading<()> {
    let is_first_look = boot.kmsg_seq.is_none() && boot.journal_cursor.is_none();
    let mut reading = read_kmsg(site, boot, deadline);
    if may_ask_journal && matches!(reading, Reading::Failed(_) | Reading::NoPermission) {
        reading = read_journal(site, boot, deadline).unwrap_or(reading);
    }
    boot.log.mark_old(|code, usec| is_old(site, code, usec, is_first_look));
    look_at_stuck_tasks(&mut boot.log);
    reading
}

fn read_kmsg(site: &Site, boot: &mut BootState, deadline: Deadline) -> Reading<()> {
    let log = &mut boot.log;
    let absorb = |record: kmsg::Record| log.absorb(record.seq, record.usec, &record.message);
    match kmsg::read_since(Path::new(&site.paths.kmsg), boot.kmsg_seq, deadline, absorb) {
        Ok(progress) => {
            boot.kmsg_seq = progress.last_seq;
            if progress.lost > 0 {
                boot.log.lose(progress.lost, progress.lost_before_usec);
            }
            if progress.complete { Reading::Value(()) } else { Reading::TimedOut }
        }
        Err(error) => {
            log::debug!("{error}; XIDs are not seen");
            unread(&error)
        }
    }
}

fn unread(error: &EdgeError) -> Reading<()> {
    match error.errno() {
        Some(libc::EPERM | libc::EACCES) => Reading::NoPermission,
        errno => Reading::Failed(errno.map_or(0, i64::from)),
    }
}

fn read_journal(site: &Site, boot: &mut BootState, deadline: Deadline) -> Option<Reading<()>> {
    let program = Path::new(&site.paths.journalctl);
    let log = &mut boot.log;
    let cursor = boot.journal_cursor.as_deref();
    match journal::read_since(program, cursor, deadline, |entry| log.absorb(0, entry.usec, &entry.message)) {
        Ok(cursor) => {
            boot.journal_cursor = cursor;
            Some(Reading::Value(()))
        }
        Err(error) => {
            log::debug!("{error}; the journal does not stand in for the kernel log");
            None
        }
    }
}

/// What was seen in another mode than drain, or stood in the log for long before a first look, is not held against the
/// node later: it may have been repaired since, and a first day in mode drain must not drain a fleet for old lines.
fn is_old(site: &Site, code: &str, usec: u64, is_first_look: bool) -> bool {
    let age_us = (boottime_ns() / 1000).saturating_sub(usec);
    let acts = site.config.mode_of(code) == Mode::Drain;
    !acts || (is_first_look && age_us > OLD_AFTER_US)
}

/// Ours: a fault of the last quarter of an hour is news, whenever gpuward begins to look.
const OLD_AFTER_US: u64 = 15 * 60 * 1_000_000;

/// A task may have gone on since the kernel reported it; one that still waits may have nothing to do with a GPU.
/// Processes are always looked up in /proc.
fn look_at_stuck_tasks(log: &mut OpenLog) {
    log.log_texts.retain_mut(|event| {
        let (What::HungTask, Some(pid)) = (event.what, event.pid) else { return true };
        match look_at(Path::new("/proc"), pid, event.seen.usec) {
            Stuck::NoMore => false,
            Stuck::Still(client) => {
                event.client = client;
                true
            }
        }
    });
}

/// True where the log says something about a port, so that it must be known which GPUs are below it.
pub(super) fn speaks_of_ports(log: &OpenLog) -> bool {
    let is_port = |what: What| matches!(what, What::Dpc | What::LinkDown | What::Aer | What::DeviceGone);
    !log.aer.is_empty() || log.log_texts.iter().any(|event| is_port(event.what))
}
