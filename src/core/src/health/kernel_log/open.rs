//! What the kernel log has said in this boot and nothing has cleared since, in bounded space whatever the log holds.
//!
//! One fault prints many lines (one for each channel, 64 and more): lines of the same GPU and number are one event with a
//! count. Cleared by a reboot (the state is one boot's), by a driver load, and for one GPU by an Xid 154 to "None", which
//! a reset brings about as well.

use super::{Event, EventCode, What, parse_record};
use crate::health::action::Action;
use crate::health::finding::Severity;
use crate::health::sxid::{self, Word};
use crate::health::xid::{self, nvlink4, nvlink5};
use crate::health::{codes, recovery};
use crate::model::PciAddress;
use serde::{Deserialize, Serialize};

/// No node has more: one for each GPU and number that matters.
const MAX_XIDS: usize = 256;
const MAX_SXIDS: usize = 128;
const MAX_TEXTS: usize = 128;
const MAX_DEVICES: usize = 64;
/// How many processes of one event are told apart.
const MAX_PIDS: usize = 16;
/// How many links of one event are counted apart; no GPU has more than 18.
const MAX_LINKS: usize = 32;
/// How much of a line is kept.
const MAX_TEXT: usize = 200;

/// When and how often something was said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Sequence number of the newest record; 0 where the journal gave it.
    pub seq: u64,
    /// Its time since boot, microseconds.
    pub usec: u64,
    /// The line, escaped and cut.
    pub text: String,
    /// How many lines said it.
    #[serde(default = "one")]
    pub lines: u32,
    /// When this very event refused a job, CLOCK_BOOTTIME nanoseconds.
    #[serde(default)]
    pub acted_boottime_ns: Option<u64>,
    /// True where it was there before gpuward might have acted on it: seen in another mode than drain, or long before a
    /// first look. It warns and no more, unless the GPU itself confirms it.
    #[serde(default)]
    pub old: bool,
    /// True until [`OpenLog::mark_old`] has judged it.
    #[serde(skip)]
    fresh: bool,
}

fn one() -> u32 {
    1
}

impl Seen {
    /// A line of this moment.
    pub fn now(seq: u64, usec: u64, message: &str) -> Seen {
        let text = crate::text::escape(message, MAX_TEXT);
        Seen { seq, usec, text, lines: 1, fresh: true, ..Seen::default() }
    }
}

/// One XID of one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct XidEvent {
    /// The GPU; the function is always 0, since the log leaves it out.
    pub pci: PciAddress,
    /// The number.
    pub xid: u32,
    /// When and how often.
    #[serde(flatten)]
    pub seen: Seen,
    /// The processes that it named.
    #[serde(default)]
    pub pids: Vec<u32>,
    /// The XID that led to it, where the driver says so.
    #[serde(default)]
    pub cause: Option<u32>,
    /// What an Xid 154 says the recovery action is now.
    #[serde(default)]
    pub action_to: Option<u32>,
    /// True where an Xid 94 or 95 asks for a reset.
    #[serde(default)]
    pub wants_reset: bool,
    /// What an Xid 144 to 150 says.
    #[serde(default)]
    pub nvlink5: Option<nvlink5::Line>,
    /// The registers of an Xid 74.
    #[serde(default)]
    pub registers: Vec<u32>,
    /// The link of an Xid 74, and how often each was named.
    #[serde(default)]
    pub links: Vec<(i32, u32)>,
}

impl XidEvent {
    /// The XID in an event; `None` where it is something else.
    pub fn of(event: &Event, seen: Seen) -> Option<XidEvent> {
        let (EventCode::Xid(number), Some(pci)) = (event.code, event.pci) else { return None };
        let registers = event.detail("regs").unwrap_or_default().split(',');
        let registers = registers.filter_map(|word| u32::from_str_radix(word.strip_prefix("0x")?, 16).ok());
        let yes = |key| event.detail(key) == Some("yes");
        Some(XidEvent {
            pci,
            xid: number,
            seen,
            pids: event.pid.into_iter().collect(),
            cause: event.number("root_cause"),
            action_to: event.number("action_to"),
            wants_reset: yes("rst") || yes("drst"),
            nvlink5: nvlink5::is_ours(number).then(|| nvlink5_line(event)).flatten(),
            registers: registers.collect(),
            links: event.number("link").map(|link| (link, 1)).into_iter().collect(),
        })
    }

    /// What to do about it, and why where that goes beyond the catalogue's meaning.
    pub fn action(&self, driver_branch: Option<u32>) -> (Action, Option<String>) {
        let by_row = xid::lookup(self.xid).map_or(Action::Warn, |row| row.action);
        if let Some(line) = &self.nvlink5 {
            let decoded = nvlink5::decode(self.xid, line, driver_branch);
            return (decoded.action, Some(decoded.why));
        }
        if self.xid == 74 {
            let times = self.links.iter().map(|(_, times)| *times).max().unwrap_or(1);
            let read = nvlink4::read(&self.registers, times);
            return read.map_or((by_row, None), |read| (read.action, Some(read.why.to_owned())));
        }
        if self.wants_reset {
            return (Action::DrainReset, Some("the line asks for a reset".to_owned()));
        }
        match self.action_to {
            Some(to) => {
                let (action, name) = (recovery::action(u64::from(to)), recovery::name(u64::from(to)));
                (action, Some(format!("the driver now asks for: {name}")))
            }
            None => (by_row, None),
        }
    }

    fn severity(&self) -> Severity {
        self.action(None).0.judgement().0
    }

    /// The event after a newer one of the same GPU and number.
    fn followed_by(self, newer: XidEvent) -> XidEvent {
        let lines = self.seen.lines.saturating_add(newer.seen.lines);
        let mut pids = self.pids.clone();
        pids.extend(newer.pids.iter().filter(|pid| !self.pids.contains(pid)));
        pids.truncate(MAX_PIDS);
        let links = add_links(&self.links, &newer.links);
        // A mild line must not hide the severe one before it. A changed recovery action is the state as it is now.
        let is_milder = newer.xid != 154 && newer.severity() < self.severity();
        let kept = if is_milder { self } else { newer };
        XidEvent { seen: Seen { lines, ..kept.seen.clone() }, pids, links, ..kept }
    }
}

fn nvlink5_line(event: &Event) -> Option<nvlink5::Line> {
    Some(nvlink5::Line {
        unit: crate::text::escape(event.detail("unit")?, 40),
        fatal: event.detail("sev")? == "Fatal",
        link: event.number("link")?,
        intrinfo: event.hex("intrinfo")?,
        status: event.hex("status")?,
    })
}

fn add_links(known: &[(i32, u32)], newer: &[(i32, u32)]) -> Vec<(i32, u32)> {
    let mut links = known.to_vec();
    for &(link, times) in newer {
        if let Some((_, count)) = links.iter_mut().find(|(known, _)| *known == link) {
            *count = count.saturating_add(times);
        } else if links.len() < MAX_LINKS {
            links.push((link, times));
        }
    }
    links
}

/// One SXid of one switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SxidEvent {
    /// The switch.
    pub pci: PciAddress,
    /// The number, as printed.
    pub sxid: u32,
    /// The switch's own number.
    pub switch: Option<u32>,
    /// The port, where the line names one.
    pub link: Option<u32>,
    /// The severity word, where the line has one.
    pub word: Option<Word>,
    /// When and how often.
    #[serde(flatten)]
    pub seen: Seen,
}

impl SxidEvent {
    /// The SXid in an event; `None` for data records and everything else.
    pub fn of(event: &Event, seen: Seen) -> Option<SxidEvent> {
        let (EventCode::Sxid(number), Some(pci)) = (event.code, event.pci) else { return None };
        let word = event.detail("sev").and_then(Word::parse);
        let is_event = event.what != Some(What::SxidData);
        let (switch, link) = (event.number("switch"), event.number("link"));
        is_event.then_some(SxidEvent { pci, sxid: number, switch, link, word, seen })
    }

    /// What to do about it.
    pub fn action(&self, driver_branch: Option<u32>) -> Action {
        sxid::action(sxid::lookup(self.sxid, driver_branch), self.word)
    }

    fn severity(&self) -> Severity {
        self.action(None).judgement().0
    }
}

/// What a task that waits in the kernel has to do with a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Client {
    /// It waits inside the driver.
    InDriver,
    /// It has a GPU open, and waits elsewhere: for a file server, say.
    HoldsGpu,
    /// Nothing.
    No,
}

/// One text without a number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextEvent {
    /// What it means.
    pub what: What,
    /// The device, function 0.
    pub pci: Option<PciAddress>,
    /// True for an AER error that is fatal.
    #[serde(default)]
    pub fatal: bool,
    /// The task that hangs.
    #[serde(default)]
    pub pid: Option<u32>,
    /// Its name, escaped.
    #[serde(default)]
    pub process: Option<String>,
    /// What the task has to do with a GPU; `None` where nobody could tell.
    #[serde(default)]
    pub client: Option<Client>,
    /// When and how often.
    #[serde(flatten)]
    pub seen: Seen,
}

impl TextEvent {
    /// True for what the driver says of itself: a driver load voids it.
    fn is_drivers(&self) -> bool {
        use What::{Aer, BarUnassigned, DeviceGone, Dpc, HungTask, LinkDown};
        !matches!(self.what, Aer | BarUnassigned | DeviceGone | Dpc | HungTask | LinkDown)
    }

    fn severity(&self) -> Severity {
        self.what.code().map_or(Severity::Info, |code| codes::entry(code).severity)
    }
}

/// Corrected PCIe errors of one device, in pieces of ten minutes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AerCount {
    /// The device that met them.
    pub pci: PciAddress,
    /// Ten minutes since boot, lines that say "received", lines of the device itself. Newest last.
    pub pieces: Vec<(u64, u32, u32)>,
}

const PIECE_USEC: u64 = 10 * 60 * 1_000_000;
/// An hour.
const PIECES: u64 = 6;

impl AerCount {
    fn count(&mut self, usec: u64, received: bool) {
        let piece = usec / PIECE_USEC;
        if self.pieces.last().is_none_or(|(last, ..)| *last != piece) {
            self.pieces.push((piece, 0, 0));
            self.pieces.retain(|(known, ..)| *known + PIECES >= piece);
        }
        if let Some((_, by_port, by_device)) = self.pieces.last_mut() {
            let counter = if received { by_port } else { by_device };
            *counter = counter.saturating_add(1);
        }
    }

    /// Errors in the hour before `now_usec`. One error prints a line of the port and one of the device; where firmware
    /// speaks only one of them is there.
    pub fn in_last_hour(&self, now_usec: u64) -> u32 {
        let first = (now_usec / PIECE_USEC).saturating_sub(PIECES - 1);
        let recent = || self.pieces.iter().filter(|(piece, ..)| *piece >= first);
        let sum = |counter: fn(&(u64, u32, u32)) -> u32| recent().map(counter).fold(0, u32::saturating_add);
        sum(|piece| piece.1).max(sum(|piece| piece.2))
    }
}

/// Records that were overwritten before they were read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// How many.
    pub records: u64,
    /// Time since boot of the record behind the newest gap, microseconds.
    pub before_usec: u64,
}

/// Everything that is open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OpenLog {
    /// XIDs that nothing has cleared.
    pub xids: Vec<XidEvent>,
    /// SXids that nothing has cleared.
    pub sxids: Vec<SxidEvent>,
    /// Texts without a number.
    pub log_texts: Vec<TextEvent>,
    /// Corrected PCIe errors.
    pub aer: Vec<AerCount>,
    /// What was overwritten before it was read.
    pub log_lost: Option<Lost>,
    /// Severity of a report by firmware whose device has not been named yet.
    #[serde(skip)]
    firmware: Option<String>,
}

impl OpenLog {
    /// Takes in one record of the kernel's own.
    pub fn absorb(&mut self, seq: u64, usec: u64, message: &str) {
        let Some(event) = parse_record(message) else { return };
        let seen = Seen::now(seq, usec, message);
        match (event.code, event.what) {
            (EventCode::Xid(154), Some(What::Cleared)) => self.clear_gpu(event.pci),
            (EventCode::Xid(_), _) => self.take_xid(XidEvent::of(&event, seen)),
            (EventCode::Sxid(_), _) => self.take_sxid(SxidEvent::of(&event, seen)),
            (EventCode::None, Some(What::DriverLoaded)) => self.driver_loaded(),
            (EventCode::None, Some(What::Aer)) => self.take_aer(&event, seen),
            (EventCode::None, Some(What::AerDetail)) => self.take_firmware(event, seen),
            (EventCode::None, Some(what)) => self.take_text(what, &event, seen),
            (EventCode::None, None) => {}
        }
    }

    /// Notes that records were overwritten before they were read; `before_usec` is the time of the next one.
    pub fn lose(&mut self, records: u64, before_usec: u64) {
        let known = self.log_lost.map_or(0, |lost| lost.records);
        self.log_lost = Some(Lost { records: known.saturating_add(records), before_usec });
    }

    /// Says of each event that came since the last call whether it is old; `is_old` gets its finding code and its time.
    pub fn mark_old(&mut self, is_old: impl Fn(&str, u64) -> bool) {
        let xids = self.xids.iter_mut().map(|event| (format!("XID{}", event.xid), &mut event.seen));
        let sxids = self.sxids.iter_mut().map(|event| (format!("SXID{}", event.sxid), &mut event.seen));
        let texts = self.log_texts.iter_mut();
        let texts = texts.map(|event| (event.what.code().unwrap_or_default().to_owned(), &mut event.seen));
        for (code, seen) in xids.chain(sxids).chain(texts).filter(|(_, seen)| seen.fresh) {
            (seen.old, seen.fresh) = (is_old(&code, seen.usec), false);
        }
    }

    /// Notes that the node was drained for what `concerned` names: a device, or `None` for the node as a whole.
    pub fn mark_acted(&mut self, now_boottime_ns: u64, concerned: impl Fn(Option<PciAddress>) -> bool) {
        let xids = self.xids.iter_mut().map(|event| (Some(event.pci), &mut event.seen));
        let sxids = self.sxids.iter_mut().map(|event| (None, &mut event.seen));
        let texts = self.log_texts.iter_mut().map(|event| (event.pci, &mut event.seen));
        for (_, seen) in xids.chain(sxids).chain(texts).filter(|(pci, _)| concerned(*pci)) {
            seen.acted_boottime_ns.get_or_insert(now_boottime_ns);
        }
    }

    fn take_xid(&mut self, event: Option<XidEvent>) {
        let Some(event) = event else { return };
        let same = |known: &XidEvent| known.pci == event.pci && known.xid == event.xid;
        let event = match self.xids.iter().position(same) {
            Some(at) => self.xids.remove(at).followed_by(event),
            None => event,
        };
        self.xids.push(event);
        keep_worst(&mut self.xids, MAX_XIDS, XidEvent::severity);
    }

    fn take_sxid(&mut self, event: Option<SxidEvent>) {
        let Some(mut event) = event else { return };
        let same = |known: &SxidEvent| known.pci == event.pci && known.sxid == event.sxid;
        if let Some(at) = self.sxids.iter().position(same) {
            let known = self.sxids.remove(at);
            let lines = known.seen.lines.saturating_add(1);
            if event.severity() < known.severity() {
                event = known;
            }
            event.seen.lines = lines;
        }
        self.sxids.push(event);
        keep_worst(&mut self.sxids, MAX_SXIDS, SxidEvent::severity);
    }

    fn take_text(&mut self, what: What, event: &Event, seen: Seen) {
        let fatal = event.detail("aer") == Some("fatal");
        let process = event.process.as_deref().map(|name| crate::text::escape(name, 40));
        // Programs with a wrong library come and go: one event for all of them.
        let pid = event.pid.filter(|_| what == What::HungTask);
        if what.code().is_none() {
            return;
        }
        let mut text = TextEvent { what, pci: event.pci, fatal, pid, process, client: None, seen };
        let same = |known: &TextEvent| {
            (known.what, known.pci, known.fatal, known.pid) == (text.what, text.pci, text.fatal, text.pid)
        };
        if let Some(at) = self.log_texts.iter().position(same) {
            text.seen.lines = self.log_texts.remove(at).seen.lines.saturating_add(1);
        }
        self.log_texts.push(text);
        keep_worst(&mut self.log_texts, MAX_TEXTS, TextEvent::severity);
    }

    fn take_aer(&mut self, event: &Event, seen: Seen) {
        let Some(pci) = event.pci else { return };
        if event.detail("aer") != Some("correctable") {
            return self.take_text(What::Aer, event, seen);
        }
        let at = self.aer.iter().position(|known| known.pci == pci).unwrap_or_else(|| {
            self.aer.push(AerCount { pci, pieces: Vec::new() });
            self.aer.len() - 1
        });
        if let Some(count) = self.aer.get_mut(at) {
            count.count(seen.usec, event.detail("reporter").is_some());
        }
        if self.aer.len() > MAX_DEVICES {
            let least = (0..self.aer.len()).min_by_key(|&at| self.aer[at].in_last_hour(seen.usec));
            least.into_iter().for_each(|at| drop(self.aer.remove(at)));
        }
    }

    /// A report by firmware says its severity in one record and its device in a later one.
    fn take_firmware(&mut self, event: Event, seen: Seen) {
        if event.detail("reported_by").is_none() {
            self.firmware = event.detail("aer").map(ToOwned::to_owned).or_else(|| self.firmware.take());
        } else if let Some(kind) = self.firmware.take() {
            self.take_aer(&event.with("aer", kind), seen);
        }
    }

    fn clear_gpu(&mut self, pci: Option<PciAddress>) {
        self.xids.retain(|event| Some(event.pci) != pci);
        self.log_texts.retain(|event| event.pci != pci || !event.is_drivers());
    }

    fn driver_loaded(&mut self) {
        self.xids.clear();
        self.sxids.clear();
        self.log_texts.retain(|event| !event.is_drivers());
        self.log_lost = None;
    }
}

/// Users' own faults must not crowd out the hardware's: the mildest go first, among equals the oldest. A quarter goes at
/// once, so that a flood does not sort the list for each of its lines.
fn keep_worst<T>(events: &mut Vec<T>, most: usize, severity: impl Fn(&T) -> Severity) {
    if events.len() <= most {
        return;
    }
    let mut order: Vec<(Severity, usize)> =
        events.iter().enumerate().map(|(at, event)| (severity(event), at)).collect();
    order.sort_unstable();
    let mut goes = vec![false; events.len()];
    order.iter().take(events.len() - most + most / 4).for_each(|&(_, at)| goes[at] = true);
    let mut goes = goes.into_iter();
    events.retain(|_| !goes.next().unwrap_or(false));
}
