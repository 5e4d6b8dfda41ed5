//! PCIe: AER, DPC, hot plug, links, memory windows. The kernel's wording differs by version (4.x to 6.x).

use super::scan::{address, after, hex, number};
use super::{Event, What};
use crate::model::PciAddress;

/// Drivers whose devices may be GPUs or the ports above them; errors of other devices are not ours.
const DRIVERS: [&str; 4] = ["nvidia ", "pci ", "pcieport ", "vfio-pci "];

/// The event in a whole message `DRIVER dddd:bb:dd.f: TEXT`.
pub(super) fn parse(message: &str) -> Option<Event> {
    let rest = DRIVERS.iter().find_map(|driver| message.strip_prefix(driver))?;
    let (device, rest) = address(rest)?;
    let text = rest.strip_prefix(':')?.trim_start();
    let text = text.strip_prefix("AER: ").unwrap_or(text);
    received(device, text)
        .or_else(|| bus_error(device, text))
        .or_else(|| detail(device, text))
        .or_else(|| port(device, text))
        .or_else(|| window(device, text))
        .or_else(|| link(device, text))
        .or_else(|| super::host::amd(Some(device), text))
}

/// `Multiple Corrected error received: 0000:3b:00.0`, `Correctable error message received from 0000:3b:00.0`,
/// `Corrected error received: id=00e5`.
fn received(reporter: PciAddress, text: &str) -> Option<Event> {
    let rest = text.strip_prefix("Multiple ");
    let multiple = rest.is_some().then_some("yes");
    let (kind, rest) = severity(rest.unwrap_or(text))?;
    let rest = rest.strip_prefix(" error").unwrap_or(rest);
    let source =
        [" received: ", " message received from "].iter().find_map(|form| rest.strip_prefix(form))?;
    let device = match source.strip_prefix("id=").map(hex) {
        Some(id) => requester(reporter, id?.0)?,
        None => address(source)?.0,
    };
    let event = Event::text(What::Aer, Some(device), text).with("aer", kind);
    Some(event.with_some("multiple", multiple).with("reporter", reporter))
}

/// The word at the start, in the three that matter.
fn severity(text: &str) -> Option<(&'static str, &str)> {
    let words = [
        ("Uncorrected (Non-Fatal)", "nonfatal"),
        ("Uncorrectable (Non-Fatal)", "nonfatal"),
        ("Uncorrected (Fatal)", "fatal"),
        ("Uncorrectable (Fatal)", "fatal"),
        ("Corrected", "correctable"),
        ("Correctable", "correctable"),
    ];
    words.into_iter().find_map(|(word, kind)| text.strip_prefix(word).map(|rest| (kind, rest)))
}

/// A requester id of 16 bits: bus, device, function; in the reporter's domain.
fn requester(reporter: PciAddress, id: u64) -> Option<PciAddress> {
    let id = u16::try_from(id).ok()?;
    let [bus, low] = id.to_be_bytes();
    Some(PciAddress { domain: reporter.domain, bus, device: low >> 3, function: low & 7 })
}

/// `PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)`
fn bus_error(device: PciAddress, text: &str) -> Option<Event> {
    let rest = text.strip_prefix("PCIe Bus Error: severity=")?;
    let (kind, rest) = severity(rest)?;
    let layer = after(rest, "type=").and_then(|rest| rest.split(',').next());
    Some(Event::text(What::Aer, Some(device), text).with("aer", kind).with_some("layer", layer))
}

/// `device [10de:2330] error status/mask=00000001/0000a000`, `[ 0] RxErr (First)`
fn detail(device: PciAddress, text: &str) -> Option<Event> {
    let of = || Event::text(What::AerDetail, Some(device), text);
    if let Some(rest) = after(text, "error status/mask=").filter(|_| text.starts_with("device [")) {
        let (status, rest) = hex(rest)?;
        let (mask, _) = hex(rest.strip_prefix('/')?)?;
        return Some(of().with("status", format!("{status:#010x}")).with("mask", format!("{mask:#010x}")));
    }
    let (_, rest) = number(text.strip_prefix('[')?.trim_start())?;
    let mut words = rest.strip_prefix(']')?.split_ascii_whitespace();
    let error = words.next()?;
    Some(of().with("error", error).with_some("first", words.any(|word| word == "(First)").then_some("yes")))
}

/// What a port says about the device below it.
fn port(port: PciAddress, text: &str) -> Option<Event> {
    if text.starts_with("DPC: containment event") {
        return Some(
            Event::text(What::Dpc, Some(port), text).with("port", port).with("hint", "drain-reboot"),
        );
    }
    let slot = text.strip_prefix("pciehp: Slot(").and_then(|rest| rest.split_once("): "));
    let down = slot.is_some_and(|(_, rest)| rest.starts_with("Link Down"));
    down.then(|| Event::text(What::LinkDown, Some(port), text).with("port", port))
}

/// `BAR 1: no space for [mem ...]`, `BAR 1 [mem ...]: can't assign; no space`, `BAR 1: failed to assign [mem ...]`
fn window(device: PciAddress, text: &str) -> Option<Event> {
    let (bar, rest) = number(text.strip_prefix("BAR ")?)?;
    let refused = ["no space for [mem", "can't assign; no space", "failed to assign [mem"];
    let is_window = rest.contains("[mem") && refused.iter().any(|words| rest.contains(words));
    is_window.then(|| Event::text(What::BarUnassigned, Some(device), text).with("bar", bar))
}

/// Devices that are gone, and links that came up below what they could.
fn link(device: PciAddress, text: &str) -> Option<Event> {
    let gone = ["device inaccessible", "config space inaccessible"];
    if text.contains("D3cold") && gone.iter().any(|words| text.contains(words)) {
        return Some(Event::text(What::DeviceGone, Some(device), text).with("hint", "drain-reboot"));
    }
    let rest = after(text, " available PCIe bandwidth, limited by ")?;
    let (speed, width, rest) = speed_and_width(rest)?;
    let (at, rest) = address(after(rest, " link at ")?)?;
    let (max_speed, max_width, _) = speed_and_width(after(rest, " with ")?)?;
    Some(
        Event::text(What::LinkDegraded, Some(device), text)
            .with("at", at)
            .with("speed_gts", speed)
            .with("width", width)
            .with("max_speed_gts", max_speed)
            .with("max_width", max_width),
    )
}

/// `8.0 GT/s PCIe x8`, older kernels without "PCIe".
fn speed_and_width(text: &str) -> Option<(&str, u32, &str)> {
    let (speed, rest) = text.split_once(" GT/s ")?;
    let is_speed = !speed.is_empty() && speed.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let (width, rest) = number(rest.strip_prefix("PCIe ").unwrap_or(rest).strip_prefix('x')?)?;
    is_speed.then_some((speed, width, rest))
}

/// Firmware that handles PCIe errors itself reports them through APEI, one field a record:
/// `{1}[Hardware Error]: event severity: fatal`, later `{1}[Hardware Error]:   device_id: 0000:3b:00.0`.
pub(super) fn parse_firmware(message: &str) -> Option<Event> {
    let (_, rest) = number(message.strip_prefix('{')?)?;
    let field = rest.strip_prefix("}[Hardware Error]:")?.trim_start();
    if let Some(word) = field.strip_prefix("event severity: ") {
        let kind = match word.trim() {
            "corrected" => "correctable",
            "recoverable" => "nonfatal",
            "fatal" => "fatal",
            _ => return None,
        };
        return Some(Event::text(What::AerDetail, None, field).with("aer", kind));
    }
    let (device, _) = address(field.strip_prefix("device_id: ")?)?;
    Some(Event::text(What::AerDetail, Some(device), field).with("reported_by", "firmware"))
}
