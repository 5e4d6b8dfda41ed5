//! The host's own words: IOMMU, hung tasks, lockdown.

use super::scan::{after, number, short_address};
use super::{Event, What};
use crate::model::PciAddress;

/// The event in a whole message.
pub(super) fn parse(message: &str) -> Option<Event> {
    if let Some(rest) = message.strip_prefix("DMAR: [DMA ") {
        return intel(message, rest);
    }
    if message.starts_with("AMD-Vi: ") {
        return amd(None, message);
    }
    if let Some(rest) = message.strip_prefix("INFO: task ") {
        return hung_task(message, rest);
    }
    let refused =
        message.starts_with("Lockdown: ") && message.contains("unsigned module loading is restricted");
    refused.then(|| Event::text(What::LockdownRefusal, None, message))
}

/// `DMAR: [DMA Read NO_PASID] Request device [3b:00.0] fault addr 0xdeadbeef000 [fault reason 0x06] ...`
fn intel(message: &str, rest: &str) -> Option<Event> {
    let (device, rest) = after(rest, "Request device [")?.split_once(']')?;
    let addr = after(rest, "fault addr ").and_then(|rest| rest.split_ascii_whitespace().next());
    let event = Event::text(What::IommuFault, Some(short_address(device)?), message);
    Some(event.with("iommu", "intel").with_some("addr", addr.map(with_0x)))
}

/// `AMD-Vi: Event logged [IO_PAGE_FAULT domain=... address=... flags=...]`, behind the device's name or with `device=`.
pub(super) fn amd(device: Option<PciAddress>, text: &str) -> Option<Event> {
    let rest = text.strip_prefix("AMD-Vi: Event logged [IO_PAGE_FAULT ")?;
    let field = |key: &str| rest.split([' ', ']']).find_map(|word| word.strip_prefix(key));
    let device = device.or_else(|| short_address(field("device=")?))?;
    let event = Event::text(What::IommuFault, Some(device), text).with("iommu", "amd");
    Some(event.with_some("addr", field("address=").map(with_0x)))
}

fn with_0x(text: &str) -> String {
    if text.starts_with("0x") { text.to_owned() } else { format!("0x{text}") }
}

/// `INFO: task NAME:PID blocked for more than N seconds.` The name is the user's.
fn hung_task(message: &str, rest: &str) -> Option<Event> {
    let (task, rest) = rest.rsplit_once(" blocked for more than ")?;
    let (name, pid) = task.rsplit_once(':')?;
    let (seconds, _) = number(rest).filter(|(_, rest)| rest.starts_with(" seconds"))?;
    let mut event = Event::text(What::HungTask, None, message).with("seconds", seconds);
    event.pid = Some(pid.parse().ok()?);
    event.process = Some(name.to_owned());
    Some(event)
}
