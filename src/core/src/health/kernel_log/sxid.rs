//! SXid lines: `nvidia-nvswitchK: SXid (PCI:dddd:bb:dd.f): NNNNN, TEXT`.
//!
//! TEXT is `SEV, Link LL WORDS[ (First)]`, `SEV, WORDS`, or `WORDS` alone. Data records repeat the number of an event and
//! are no events.

use super::scan::number;
use super::{Event, EventCode, What};
use crate::health::sxid::{MAX_SXID, Word};
use crate::model::PciAddress;

/// What a data record begins with.
const DATA: [&str; 2] = ["Data {", "SOE HALT data["];

/// The event in a whole message.
pub(super) fn parse(message: &str) -> Option<Event> {
    let (switch, rest) = number(message.strip_prefix("nvidia-nvswitch")?)?;
    let (attribute, rest) = rest.strip_prefix(": SXid (")?.split_once("): ")?;
    let pci: PciAddress = attribute.trim_start_matches("PCI:").parse().ok()?;
    let (sxid, rest) = number(rest).filter(|&(sxid, _)| sxid <= MAX_SXID)?;
    let text = match rest.strip_prefix(',') {
        Some(text) => text.trim_start(),
        None if rest.is_empty() => rest,
        None => return None,
    };
    let event = Event::new(EventCode::Sxid(sxid), Some(pci), text).with("switch", switch);
    let is_data = DATA.iter().any(|start| text.starts_with(start)) || is_severity_data(text);
    if is_data {
        return Some(Event { what: Some(What::SxidData), ..event });
    }
    Some(severity(event, text))
}

/// `Severity 1 Engine instance 00 Sub-engine instance 00`
fn is_severity_data(text: &str) -> bool {
    let rest = text.strip_prefix("Severity ").and_then(number);
    rest.is_some_and(|(_, rest)| rest.starts_with(" Engine instance"))
}

fn severity(event: Event, text: &str) -> Event {
    let Some((word, rest)) = text.split_once(", ").filter(|(word, _)| Word::parse(word).is_some()) else {
        return event;
    };
    let link = rest.strip_prefix("Link ").and_then(number).map(|(link, _)| link);
    let first = rest.trim_end().ends_with("(First)").then_some("yes");
    event.with("sev", word).with_some("link", link).with_some("first", first)
}
