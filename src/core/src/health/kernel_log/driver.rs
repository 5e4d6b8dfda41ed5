//! The driver's texts that carry no number, and those of its other modules.

use super::scan::{address, after, number};
use super::{Event, EventCode, What};
use crate::model::PciAddress;

/// The event in a text without its `NVRM: `.
pub(super) fn parse(text: &str) -> Option<Event> {
    if let Some(rest) = text.strip_prefix("GPU ") {
        return of_gpu(text, rest);
    }
    if let Some(rest) = text.strip_prefix("The NVIDIA ") {
        return the_nvidia(text, rest);
    }
    if let Some(rest) = text.strip_prefix("loading NVIDIA UNIX") {
        return Some(loaded(text, rest));
    }
    if let Some(rest) = text.strip_prefix("API mismatch: the client") {
        return Some(mismatch(text, rest));
    }
    if let Some(rest) = text.strip_prefix("Rate limiting GSP RPC error prints for GPU at PCI:") {
        let (pci, _) = address(rest)?;
        return Some(Event::text(What::GspRateLimit, Some(pci), text).with("hint", "drain-reset"));
    }
    if text.starts_with("This PCI I/O region assigned to your NVIDIA device is invalid") {
        return Some(invalid_region(text));
    }
    let no_gpu =
        ["No NVIDIA GPU found", "No NVIDIA devices probed", "None of the NVIDIA devices were initialized"];
    if no_gpu.iter().any(|start| text.starts_with(start)) {
        return Some(Event::text(What::NoGpu, None, text));
    }
    if text.starts_with("A GPU crash dump has been created") {
        return Some(Event::text(What::CrashDump, None, text));
    }
    let no_links = text.contains("postRxDetLinkMask failed") || text.contains("Rx Detect Link mask");
    let by_link_code = text.starts_with("knvlink") && no_links;
    by_link_code.then(|| Event::text(What::NvlinkBringup, None, text).with("hint", "warn"))
}

/// `GPU 0000:3b:00.0: ...`, `GPU 0000:3b:00.0 is ...`, `GPU at PCI:0000:3b:00: GPU-uuid`, `GPU Board Serial Number: S`.
fn of_gpu(text: &str, rest: &str) -> Option<Event> {
    if let Some(serial) = rest.strip_prefix("Board Serial Number: ") {
        return Some(Event::text(What::BoardSerial, None, text).with("serial", serial.trim()));
    }
    if let Some(rest) = rest.strip_prefix("at PCI:") {
        let (pci, rest) = address(rest)?;
        let uuid = rest.strip_prefix(": ").filter(|uuid| uuid.starts_with("GPU-"))?;
        return Some(Event::text(What::GpuUuid, Some(pci), text).with("uuid", uuid.trim()));
    }
    let (pci, rest) = address(rest)?;
    let rest = rest.trim_start_matches(':').trim_start();
    let of = |what| Event::text(what, Some(pci), text);
    if rest.starts_with("GPU has fallen off the bus") {
        return Some(lost(pci, text));
    }
    if let Some(serial) = rest.strip_prefix("GPU serial number is ") {
        return Some(of(What::BoardSerial).with("serial", serial.trim().trim_end_matches('.')));
    }
    if rest.starts_with("RmInitAdapter failed") || rest.starts_with("rm_init_adapter failed") {
        return Some(of(What::GpuInitFailed).with("hint", "drain-reset"));
    }
    if rest.starts_with("GPU does not have the necessary power cables") {
        return Some(of(What::PowerCable).with("hint", "drain-rma"));
    }
    let driver = rest.strip_prefix("is already bound to ")?;
    Some(of(What::ForeignDriver).with("driver", driver.trim().trim_end_matches('.')))
}

/// `The NVIDIA GPU 0000:3b:00.0 ... fallen off the bus`, `The NVIDIA probe routine was not called for N device(s).`
fn the_nvidia(text: &str, rest: &str) -> Option<Event> {
    if let Some(rest) = rest.strip_prefix("probe routine was not called for ") {
        return Some(Event::text(What::ProbeNotCalled, None, text).with("count", number(rest)?.0));
    }
    let (pci, rest) = address(rest.strip_prefix("GPU ")?)?;
    rest.contains("fallen off the bus").then(|| lost(pci, text))
}

/// XID 79 without the word.
fn lost(pci: PciAddress, text: &str) -> Event {
    let event = Event { what: Some(What::GpuLost), ..Event::new(EventCode::Xid(79), Some(pci), text) };
    event.with("implied", "yes")
}

fn loaded(text: &str, rest: &str) -> Event {
    let open = rest.trim_start().starts_with("Open ");
    let is_version =
        |word: &&str| word.contains('.') && word.starts_with(|letter: char| letter.is_ascii_digit());
    let version =
        after(rest, "Kernel Module").and_then(|rest| rest.split_ascii_whitespace().find(is_version));
    Event::text(What::DriverLoaded, None, text)
        .with_some("driver_version", version)
        .with("flavour", if open { "open" } else { "closed" })
}

/// `the client has the version A, but ... this kernel module has the version B.`, newer ones name the program as well:
/// `the client 'NAME' (pid N) ... has the version A, but this kernel module has the version B.`
fn mismatch(text: &str, rest: &str) -> Event {
    let mut event = Event::text(What::VersionMismatch, None, text);
    if let Some((name, pid)) =
        rest.trim_start().strip_prefix('\'').and_then(|rest| rest.rsplit_once("' (pid "))
    {
        event.process = Some(name.to_owned());
        event.pid = number(pid).map(|(pid, _)| pid);
    }
    // From the end: a program's name cannot come after them.
    let mut versions = rest.rsplit("has the version ").map(version);
    let module = versions.next().flatten();
    let lib = versions.next().flatten();
    event.with_some("lib", lib).with_some("module", module)
}

fn version(text: &str) -> Option<&str> {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    Some(text[..end].trim_end_matches('.')).filter(|version| !version.is_empty())
}

/// `... is invalid: NVRM: BAR1 is 0M @ 0x0 (PCI:0000:3b:00.0)`
fn invalid_region(text: &str) -> Event {
    let bar = after(text, "NVRM: BAR").and_then(number).map(|(bar, _)| bar);
    let pci = after(text, "(PCI:").and_then(address).map(|(pci, _)| pci);
    Event::text(What::BarInvalid, pci, text).with_some("bar", bar)
}

/// The event in a whole message of nvidia-uvm, nvidia-peermem, or of the loader about a module of the driver.
pub(super) fn parse_module(message: &str) -> Option<Event> {
    if message.starts_with("nvidia-uvm: Loaded the UVM driver") {
        return Some(Event::text(What::UvmLoaded, None, message));
    }
    if message.starts_with("nvidia-peermem ") && message.contains("ERROR detected invalid context") {
        return Some(Event::text(What::PeermemError, None, message).with("hint", "warn"));
    }
    let (module, rest) = message.split_once(": ")?;
    let unsigned = rest.starts_with("module verification failed") && !module.contains(' ');
    unsigned.then(|| Event::text(What::ModuleUnsigned, None, message).with("module", module))
}
