//! Small value types of a scenario: PCI addresses, CPU lists, and ids derived from a node's name.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The address of a PCI function, `0000:3b:00.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PciAddress {
    /// PCI domain.
    pub domain: u32,
    /// Bus number.
    pub bus: u8,
    /// Device number, below 32.
    pub device: u8,
    /// Function number, below 8.
    pub function: u8,
}

impl PciAddress {
    /// NVML's form with an eight-digit domain, upper case as nvidia-smi prints it: `00000000:3B:00.0`.
    pub fn bus_id(self) -> String {
        format!("{:08X}:{:02X}:{:02X}.{:X}", self.domain, self.bus, self.device, self.function)
    }

    /// The name of the root bus that this address is on, `pci0000:3b`.
    pub fn root_bus(self) -> String {
        format!("pci{:04x}:{:02x}", self.domain, self.bus)
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

impl FromStr for PciAddress {
    type Err = String;

    /// Reads `0000:3b:00.0`, NVML's eight-digit domain, upper case, and the form without a domain.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not a PCI address like 0000:3b:00.0");
        let (place, function) = text.rsplit_once('.').ok_or_else(wrong)?;
        let mut parts = place.rsplit(':');
        let device = hex(parts.next(), 0x1f).ok_or_else(wrong)?;
        let bus = hex(parts.next(), 0xff).ok_or_else(wrong)?;
        let domain = match parts.next() {
            None => 0,
            part => hex(part, u32::MAX).ok_or_else(wrong)?,
        };
        let function = hex(Some(function), 7).ok_or_else(wrong)?;
        if parts.next().is_some() {
            return Err(wrong());
        }
        let byte = |number: u32| u8::try_from(number).map_err(|_| wrong());
        Ok(Self { domain, bus: byte(bus)?, device: byte(device)?, function: byte(function)? })
    }
}

fn hex(text: Option<&str>, max: u32) -> Option<u32> {
    let text = text?;
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit());
    u32::from_str_radix(text, 16).ok().filter(|&number| plain && number <= max)
}

impl TryFrom<String> for PciAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<PciAddress> for String {
    fn from(address: PciAddress) -> Self {
        address.to_string()
    }
}

/// A set of CPUs (or links) in the kernel's list form, `0-55,112-167`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuList(pub BTreeSet<u32>);

impl CpuList {
    /// Numbers in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }
}

impl FromIterator<u32> for CpuList {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        Self(numbers.into_iter().collect())
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for cpu in self.iter() {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => ranges.push((cpu, cpu)),
            }
        }
        for (i, (first, last)) in ranges.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            if first == last {
                write!(out, "{comma}{first}")?;
            } else {
                write!(out, "{comma}{first}-{last}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for CpuList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A list of a million CPUs is a typing error, and would eat the memory of the test machine.
        const MAX_CPU: u32 = 1 << 16;
        let mut cpus = BTreeSet::new();
        for part in text.trim().split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.trim().parse::<u32>().ok().filter(|&cpu| cpu < MAX_CPU);
            match (number(first), number(last)) {
                (Some(first), Some(last)) if first <= last => cpus.extend(first..=last),
                _ => return Err(format!("'{text}' is not a list like 0-55,112-167")),
            }
        }
        Ok(Self(cpus))
    }
}

impl TryFrom<String> for CpuList {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<CpuList> for String {
    fn from(list: CpuList) -> Self {
        list.to_string()
    }
}

/// FNV-1a, finished by a mixer so that names that differ in one letter give unlike ids.
fn hash(parts: &[&str], seed: u64) -> u64 {
    let mut state = 0xcbf2_9ce4_8422_2325_u64 ^ seed;
    for part in parts {
        for byte in part.bytes().chain([0]) {
            state = (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    state = (state ^ (state >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    state = (state ^ (state >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    state ^ (state >> 33)
}

/// 36 characters in the form of a UUID, the same for the same words.
pub(crate) fn derived_uuid(parts: &[&str]) -> String {
    let (high, low) = (hash(parts, 1), hash(parts, 2));
    let text = format!("{high:016x}{low:016x}");
    // Version and variant digits as in random UUIDs, which the driver and the kernel use.
    format!("{}-{}-4{}-a{}-{}", &text[..8], &text[8..12], &text[13..16], &text[17..20], &text[20..])
}

/// A serial number with as many digits as the original.
pub(crate) fn derived_serial(original: &str, node: &str) -> String {
    let digits = format!("{:020}", hash(&[original, node], 3));
    let keep = original.len().min(3);
    let tail = original.len() - keep;
    format!("{}{}", &original[..keep], &digits[digits.len() - tail.min(20)..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_addresses_of_all_spellings_are_one_address() {
        let address: PciAddress = "0000:3b:00.0".parse().unwrap();
        for text in ["00000000:3B:00.0", "3b:00.0", "0:3b:0.0"] {
            assert_eq!(text.parse::<PciAddress>().unwrap(), address, "{text}");
        }
        assert_eq!(address.bus_id(), "00000000:3B:00.0");
        for text in ["", "3b", "3b:00", "0000:3b:20.0", "0000:3b:00.8", "0:0:3b:00.0", "0000:+3:00.0"] {
            assert!(text.parse::<PciAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn cpu_lists_survive_a_round_trip() {
        for text in ["", "0", "0-3", "0-55,112-167", "1,3,5-6"] {
            assert_eq!(text.parse::<CpuList>().unwrap().to_string(), text);
        }
        assert!("3-1".parse::<CpuList>().is_err());
        assert!("a".parse::<CpuList>().is_err());
    }

    #[test]
    fn derived_ids_keep_their_form() {
        let uuid = derived_uuid(&["GPU-x", "node1"]);
        assert_eq!(uuid.len(), 36);
        assert_ne!(uuid, derived_uuid(&["GPU-x", "node2"]));
        let serial = derived_serial("1652823054567", "node1");
        assert_eq!(serial.len(), 13);
        assert!(serial.starts_with("165"));
    }
}
