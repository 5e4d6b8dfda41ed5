//! The grammar of XID lines in the kernel log.
//!
//! Forms by driver branch (format strings of NVIDIA/open-gpu-kernel-modules 515 to 595):
//! `NVRM: Xid (ATTR): N, pid=P, name=NAME, MSG`, from 570 on also `NVRM: Xid (ATTR): N, MSG`; before 515
//! `NVRM: Xid (ATTR): N, pid=P, MSG`; much older ones leave `PCI:` out. ATTR is `PCI:dddd:bb:dd`, with ` GPU-I:gg` and
//! ` GPU-CI:cc` behind it under MIG. A process name is the user's to choose and may hold anything but ends at `, `.

use crate::model::PciAddress;

/// What one line of a kernel-log record says about a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum XidLine {
    /// An XID, or a text that means the same fault.
    Xid {
        /// The GPU, function 0.
        pci: PciAddress,
        /// The number.
        xid: u32,
        /// MIG GPU instance.
        gpu_instance: Option<u32>,
        /// MIG compute instance.
        compute_instance: Option<u32>,
        /// The process, where the driver knows it.
        pid: Option<u32>,
        /// Its name, as the driver prints it: hostile text.
        process: Option<String>,
        /// What follows.
        message: String,
        /// The new recovery action of an Xid 154.
        action_to: Option<u32>,
        /// True where the word Xid is absent and the number follows from the text.
        implied: bool,
    },
    /// The driver was loaded anew: what was open before it is void.
    DriverLoaded,
}

/// All events in the MESSAGE part of one record, spelt as /dev/kmsg spells it (a line break is `\x0a`).
pub fn parse_message(message: &str) -> Vec<XidLine> {
    if message.contains("NVRM: loading NVIDIA UNIX") {
        return vec![XidLine::DriverLoaded];
    }
    let text = message.replace("\\x0a", "\n");
    let lines: Vec<XidLine> = text.lines().filter_map(parse_xid).collect();
    if lines.is_empty() { fallen_off(&text).into_iter().collect() } else { lines }
}

/// The same for a record of the kernel log itself, where every line must begin with the driver's own prefix.
///
/// Other parts of the kernel print texts that a user chose (paths, names): one that looks like an XID in the middle of
/// such a line is not the driver's word.
pub fn parse_kernel_record(message: &str) -> Vec<XidLine> {
    let anchored = message.split("\\x0a").all(|line| line.starts_with("NVRM: "));
    if anchored { parse_message(message) } else { Vec::new() }
}

fn parse_xid(line: &str) -> Option<XidLine> {
    let (_, rest) = line.split_once("NVRM: Xid (")?;
    let (attribute, rest) = rest.split_once("): ")?;
    let (pci, gpu_instance, compute_instance) = parse_attribute(attribute)?;
    let digits = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
    let (number, rest) = rest.split_at(digits);
    if !rest.is_empty() && !rest.starts_with(',') {
        return None;
    }
    let xid = number.parse().ok().filter(|&number| number <= super::MAX_XID)?;
    let (pid, process, message) = parse_client(rest.trim_start_matches(',').trim_start());
    let action_to = if xid == 154 { parse_action(message) } else { None };
    let message = message.to_owned();
    Some(XidLine::Xid {
        pci,
        xid,
        gpu_instance,
        compute_instance,
        pid,
        process,
        message,
        action_to,
        implied: false,
    })
}

fn parse_attribute(attribute: &str) -> Option<(PciAddress, Option<u32>, Option<u32>)> {
    let mut words = attribute.split(' ');
    let pci = function_zero(words.next()?.trim_start_matches("PCI:"))?;
    let (mut gpu_instance, mut compute_instance) = (None, None);
    for word in words {
        if let Some(id) = word.strip_prefix("GPU-I:") {
            gpu_instance = id.parse().ok();
        } else if let Some(id) = word.strip_prefix("GPU-CI:") {
            compute_instance = id.parse().ok();
        }
    }
    Some((pci, gpu_instance, compute_instance))
}

fn function_zero(text: &str) -> Option<PciAddress> {
    text.parse::<PciAddress>().ok().map(|address| PciAddress { function: 0, ..address })
}

/// Pid, process name and the rest; a name that holds ", " is ambiguous, the shortest is taken.
fn parse_client(rest: &str) -> (Option<u32>, Option<String>, &str) {
    let Some(after) = rest.strip_prefix("pid=") else {
        return (None, None, rest);
    };
    let (pid, after) = after.split_once(", ").unwrap_or((after, ""));
    let pid = pid.trim_matches('\'').parse().ok();
    let Some(after) = after.strip_prefix("name=") else {
        return (pid, None, after);
    };
    let (name, message) = after.split_once(", ").unwrap_or((after, ""));
    let process = Some(name.to_owned()).filter(|name| name != "<unknown>");
    (pid, process, message)
}

fn parse_action(message: &str) -> Option<u32> {
    let (_, to) = message.split_once(" to 0x")?;
    let digits = to.find(|letter: char| !letter.is_ascii_hexdigit()).unwrap_or(to.len());
    u32::from_str_radix(&to[..digits], 16).ok()
}

/// "GPU 0000:3b:00.0: GPU has fallen off the bus" and "The NVIDIA GPU 0000:3b:00.0 ... fallen off the bus": XID 79
/// without the word.
fn fallen_off(text: &str) -> Option<XidLine> {
    if !text.contains("NVRM:") || !text.contains("fallen off the bus") {
        return None;
    }
    let (_, rest) = text.split_once("GPU ")?;
    let address = rest.split([' ', '\n']).next()?.trim_end_matches(':');
    Some(XidLine::Xid {
        pci: function_zero(address)?,
        xid: 79,
        gpu_instance: None,
        compute_instance: None,
        pid: None,
        process: None,
        message: "GPU has fallen off the bus".into(),
        action_to: None,
        implied: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(message: &str) -> (String, u32, Option<u32>, Option<String>, bool) {
        match &parse_message(message)[..] {
            [XidLine::Xid { pci, xid, pid, process, implied, .. }] => {
                (pci.to_string(), *xid, *pid, process.clone(), *implied)
            }
            other => panic!("{message}: {other:?}"),
        }
    }

    #[test]
    fn every_driver_branch_is_read() {
        let name = |name: &str| Some(name.to_owned());
        let pci = "0000:3b:00.0".to_owned();
        for (line, expected) in [
            (
                "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
                (pci.clone(), 79, None, None, false),
            ),
            (
                "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
                (pci.clone(), 79, None, None, false),
            ),
            (
                "NVRM: Xid (PCI:0000:3b:00): 31, pid=79, name=pt:main[0], Ch 07, intr 0",
                (pci.clone(), 31, Some(79), name("pt:main[0]"), false),
            ),
            ("NVRM: Xid (PCI:0000:3b:00): 45, pid=12, Ch 0a", (pci.clone(), 45, Some(12), None, false)),
            ("NVRM: Xid (0000:3b:00): 13, x", (pci.clone(), 13, None, None, false)),
            (
                "NVRM: Xid (PCI:0000:3B:00.0): 79, pid=1234, name=nv-hostengine, Ch 1",
                (pci.clone(), 79, Some(1234), name("nv-hostengine"), false),
            ),
            (
                "NVRM: Xid (PCI:0000:3b:00): 999, pid=1234, name=test",
                (pci.clone(), 999, Some(1234), name("test"), false),
            ),
            ("NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.", (pci.clone(), 79, None, None, true)),
            (
                "NVRM: The NVIDIA GPU 0000:3b:00.0\\x0aNVRM: (PCI ID: 10de:2330) installed in this system has\\x0aNVRM: fallen off the bus and is not responding to commands.",
                (pci.clone(), 79, None, None, true),
            ),
        ] {
            assert_eq!(only(line), expected, "{line}");
        }
    }

    #[test]
    fn mig_instances_and_recovery_actions_are_read() {
        let line = "NVRM: Xid (PCI:0000:01:00 GPU-I:05 GPU-CI:01): 31, pid=7194, name=python3, Ch 3";
        let [XidLine::Xid { gpu_instance, compute_instance, .. }] = &parse_message(line)[..] else {
            panic!()
        };
        assert_eq!((*gpu_instance, *compute_instance), (Some(5), Some(1)));
        let line = "NVRM: Xid (PCI:0009:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)";
        let [XidLine::Xid { action_to, .. }] = &parse_message(line)[..] else { panic!() };
        assert_eq!(*action_to, Some(4));
    }

    #[test]
    fn a_text_that_a_user_put_into_another_message_is_not_the_drivers_word() {
        for line in [
            "overlayfs: failed to resolve 'NVRM: Xid (PCI:0000:3b:00): 79, x'",
            "overlayfs: failed to resolve 'NVRM: loading NVIDIA UNIX'",
            "overlayfs: failed to resolve '\\x0aNVRM: Xid (PCI:0000:3b:00): 79, x'",
        ] {
            assert_eq!(parse_kernel_record(line), [], "{line}");
        }
        assert_eq!(parse_kernel_record("NVRM: Xid (PCI:0000:3b:00): 79, x").len(), 1);
    }

    #[test]
    fn what_is_no_xid_is_no_xid() {
        for line in [
            "NVRM: Xid (PCI:0000:3b:00): abc, pid=2280636",
            "NVRM: Xid (PCI:0000:3b:00): 79x",
            "NVRM: Xid (PCI:zz): 79, x",
            "NVRM: Xid (PCI:0000:3b:00): 99999999999, x",
            "NVRM: Xid (",
            "fallen off the bus",
            "",
        ] {
            assert_eq!(parse_message(line), [], "{line}");
        }
    }
}
