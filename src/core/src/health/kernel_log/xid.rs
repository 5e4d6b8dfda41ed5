//! XID lines.
//!
//! Forms by driver branch: `NVRM: Xid (ATTR): N, pid=P, name=NAME, MSG`, from 570 on also `NVRM: Xid (ATTR): N, MSG`;
//! before 515 `NVRM: Xid (ATTR): N, pid=P, MSG`; much older ones leave `PCI:` out. ATTR is `PCI:dddd:bb:dd`, with
//! ` GPU-I:gg` and ` GPU-CI:cc` behind it under MIG. From 575 on Xid 45 ends in ` caused by previous Xid M`.

use super::scan::{after, after_last, hex, number};
use super::{Event, EventCode, What};
use crate::health::xid::{MAX_XID, lookup};
use crate::model::PciAddress;

/// The event in a text without its `NVRM: `.
pub(super) fn parse(text: &str) -> Option<Event> {
    let (attribute, rest) = text.strip_prefix("Xid (")?.split_once("): ")?;
    let mut words = attribute.split(' ');
    let pci: PciAddress = words.next()?.trim_start_matches("PCI:").parse().ok()?;
    let (xid, rest) = number(rest).filter(|&(xid, _)| xid <= MAX_XID)?;
    if !rest.is_empty() && !rest.starts_with(',') {
        return None;
    }
    let (pid, process, message) = client(rest.trim_start_matches(',').trim_start());
    let mut event = Event::new(EventCode::Xid(xid), Some(pci), message);
    (event.pid, event.process) = (pid, process);
    for word in words {
        let (key, id) = word.split_once(':')?;
        let key = match key {
            "GPU-I" => "gi",
            "GPU-CI" => "ci",
            _ => continue,
        };
        event = event.with_some(key, id.parse::<u32>().ok());
    }
    if lookup(xid).is_none() {
        event.what = Some(What::UnknownCode);
    }
    Some(details(xid, event))
}

/// Pid, process name and the rest; a name that holds ", " is ambiguous, the shortest is taken.
fn client(rest: &str) -> (Option<u32>, Option<String>, &str) {
    let Some(after) = rest.strip_prefix("pid=") else { return (None, None, rest) };
    let (pid, after) = after.split_once(", ").unwrap_or((after, ""));
    let pid = pid.trim_matches('\'').parse().ok();
    let Some(after) = after.strip_prefix("name=") else { return (pid, None, after) };
    let (name, message) = after.split_once(", ").unwrap_or((after, ""));
    let process = Some(name.to_owned()).filter(|name| name != "<unknown>");
    (pid, process, message)
}

fn details(xid: u32, event: Event) -> Event {
    let text = event.message.clone();
    let event = match xid {
        13 => place(event, &text),
        63 | 64 => memory_row(xid, event, &text),
        74 => registers(event, &text),
        94 | 95 => containment(event, &text),
        119 | 120 => {
            let function = after_last(&text, "Expected function ").and_then(number);
            event.with_some("rpc", function.map(|(function, _)| function))
        }
        144..=150 => nvlink5(event, &text),
        154 => recovery(event, &text),
        _ => event,
    };
    let event = event.with_some("channel", channel(xid, &text));
    let cause = after_last(&text, " caused by previous Xid ").and_then(number);
    event.with_some("root_cause", cause.filter(|(_, rest)| rest.is_empty()).map(|(cause, _)| cause))
}

/// `... (GPC 3, TPC 1, SM 0) ...`
fn place(event: Event, text: &str) -> Event {
    let find = || {
        let (gpc, rest) = number(after_last(text, "(GPC ")?)?;
        let (tpc, rest) = number(rest.strip_prefix(", TPC ")?)?;
        let sm = rest.strip_prefix(", SM ").and_then(number).map(|(sm, _)| sm);
        Some((gpc, tpc, sm))
    };
    match find() {
        Some((gpc, tpc, sm)) => event.with("gpc", gpc).with("tpc", tpc).with_some("sm", sm),
        None => event,
    }
}

/// The channel, in the texts of the numbers that are about one.
fn channel(xid: u32, text: &str) -> Option<String> {
    let about_one = xid == 32 || lookup(xid).is_some_and(|row| matches!(row.class, "application" | "driver"));
    let find = |mark| after(text, mark).and_then(hex).filter(|_| about_one);
    let (channel, _) = ["Ch ", "Channel ID ", "ChId ", "ChID "].into_iter().find_map(find)?;
    Some(format!("{channel:#x}"))
}

/// 63 says what was done, 64 that it could not be: to a row, or to a page on GPUs before Ampere.
fn memory_row(xid: u32, mut event: Event, text: &str) -> Event {
    event.what = match (xid, text) {
        (_, text) if text.contains("Page Retirement") => Some(What::PageRetirement),
        (63, text) if text.contains("Row Remapper") => Some(What::RemapPending),
        (64, text) if text.contains("Row Remapper") => Some(What::RemapFailure),
        _ => event.what,
    };
    event
}

/// `... on link 14(0x0, 0x0, ...)`
fn registers(event: Event, text: &str) -> Event {
    let find = || {
        let (link, rest) = number(after_last(text, "link ")?)?;
        let (inside, _) = rest.trim_start().strip_prefix('(')?.split_once(')')?;
        let words: Option<Vec<String>> = inside.split(',').map(|word| register(word.trim())).collect();
        Some((link, words?.join(",")))
    };
    match find() {
        Some((link, words)) => event.with("link", link).with("regs", words),
        None => event,
    }
}

fn register(word: &str) -> Option<String> {
    let (value, rest) = hex(word)?;
    (rest.is_empty() && u32::try_from(value).is_ok()).then(|| format!("{value:#x}"))
}

/// `... RST: Yes, D-RST: No`
fn containment(event: Event, text: &str) -> Event {
    // "D-RST: " holds "RST: " as well, and a process name may hold both: the last pair counts.
    let word = |text: &str| match text.get(..2) {
        Some("Ye") => Some(true),
        Some("No") => Some(false),
        _ => None,
    };
    let (head, drst) = match text.rsplit_once("D-RST: ") {
        Some((head, tail)) => (head, word(tail)),
        None => (text, None),
    };
    let rst = after_last(head, "RST: ").and_then(word);
    let yes_no = |yes: bool| if yes { "yes" } else { "no" };
    let wants_reset = rst == Some(true) || drst == Some(true);
    event
        .with_some("rst", rst.map(yes_no))
        .with_some("drst", drst.map(yes_no))
        .with_some("hint", wants_reset.then_some("drain-reset"))
}

/// `UNIT SEV XCx iI Link LL (INTRINFO STATUS D0 D1 ...)`, read from its end.
fn nvlink5(event: Event, text: &str) -> Event {
    let find = || {
        let (head, data) = text.trim_end().strip_suffix(')')?.rsplit_once('(')?;
        let data: Vec<&str> = data.split_ascii_whitespace().collect();
        let is_word = |word: &&&str| word.len() <= 10 && matches!(hex(word), Some((_, "")));
        if !(4..=7).contains(&data.len()) || data.iter().filter(is_word).count() != data.len() {
            return None;
        }
        let mut words = head.split_ascii_whitespace().rev();
        let link: i32 = words.next()?.parse().ok()?;
        let is_link = words.next()? == "Link";
        let injected = words.next()?.strip_prefix('i')?;
        let crossed = words.next()?.strip_prefix("XC")?;
        let severity = words.next().filter(|word| matches!(*word, "Fatal" | "Nonfatal"))?;
        // Two units of the decode table have a blank in their name; a comma ends a process name.
        let unit: Vec<&str> = words.take_while(|word| !word.ends_with(',')).take(2).collect();
        let unit = unit.into_iter().rev().collect::<Vec<_>>().join(" ");
        (is_link && !unit.is_empty()).then_some((unit, severity, crossed, injected, link, data))
    };
    let Some((unit, severity, crossed, injected, link, data)) = find() else { return event };
    let event = event.with("unit", unit).with("sev", severity).with("xc", crossed).with("injected", injected);
    event.with("link", link).with_some("intrinfo", data.first()).with_some("status", data.get(1))
}

/// `GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)`
fn recovery(mut event: Event, text: &str) -> Event {
    let find = || {
        let (from, to) = after_last(text, "changed from ")?.split_once(" to ")?;
        Some((hex(from)?.0, hex(to)?.0))
    };
    let Some((from, to)) = find() else { return event };
    if to == 0 {
        event.what = Some(What::Cleared);
    }
    let hint = match to {
        0 => None,
        1 | 4 => Some("drain-reset"),
        2 => Some("drain-reboot"),
        _ => Some("warn"),
    };
    event.with("action_from", from).with("action_to", to).with_some("hint", hint)
}
