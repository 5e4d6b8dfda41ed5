//! Identifiers that must not be mixed up.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Slurm's job id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub u32);

impl fmt::Display for JobId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// The position of a GPU in Slurm's merged GRES list of a node: what `SLURM_JOB_GPUS` holds in a prolog.
///
/// It is neither the number in /dev/nvidiaN nor NVML's index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GresIndex(pub u32);

impl fmt::Display for GresIndex {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// A PCI address, shown as `0000:3b:00.0`: lower case, a domain of at least four digits.
///
/// NVML writes an eight-digit domain in either case, the kernel log often leaves the function out; both are
/// accepted, so that equal devices compare equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct PciAddress {
    /// PCI domain; above 0xffff on some virtual hosts.
    pub domain: u32,
    /// Bus number.
    pub bus: u8,
    /// Device number, 0 to 31.
    pub device: u8,
    /// Function number, 0 to 7.
    pub function: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

impl From<PciAddress> for String {
    fn from(address: PciAddress) -> String {
        address.to_string()
    }
}

impl TryFrom<String> for PciAddress {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

impl FromStr for PciAddress {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let bad = || IdError::new(text, "a PCI address like 0000:3b:00.0");
        let (domain, rest) = text.split_once(':').ok_or_else(bad)?;
        let (bus, rest) = rest.split_once(':').ok_or_else(bad)?;
        let (device, function) = rest.split_once('.').unwrap_or((rest, "0"));
        let hex = |part: &str, digits: std::ops::RangeInclusive<usize>| {
            let fits = digits.contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_hexdigit());
            if fits { u32::from_str_radix(part, 16).map_err(|_| bad()) } else { Err(bad()) }
        };
        let byte = |part: &str, digits, limit: u32| {
            let number = hex(part, digits)?;
            u8::try_from(number).ok().filter(|_| number <= limit).ok_or_else(bad)
        };
        Ok(PciAddress {
            domain: hex(domain, 4..=8)?,
            bus: byte(bus, 2..=2, 0xff)?,
            device: byte(device, 2..=2, 0x1f)?,
            function: byte(function, 1..=1, 7)?,
        })
    }
}

/// The UUID of a GPU (`GPU-...`) or of a MIG device (`MIG-...`), as the driver prints it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct GpuUuid(String);

impl GpuUuid {
    /// Whole, as data.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True for a MIG device's UUID.
    pub fn is_mig(&self) -> bool {
        self.0.starts_with("MIG-")
    }

    /// The prefix and the first eight characters behind it: enough for people to tell the GPUs of a node apart.
    pub fn short(&self) -> &str {
        let prefix = self.0.find('-').map_or(0, |at| at + 1);
        self.0.get(..prefix + 8).unwrap_or(&self.0)
    }
}

impl fmt::Display for GpuUuid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&self.0)
    }
}

impl From<GpuUuid> for String {
    fn from(uuid: GpuUuid) -> String {
        uuid.0
    }
}

impl TryFrom<String> for GpuUuid {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

impl FromStr for GpuUuid {
    type Err = IdError;

    /// Accepts `GPU-` or `MIG-` and at most 96 characters (NVML's buffer) of letters, digits, `-` and `/`
    /// (the older form `MIG-GPU-uuid/gi/ci`).
    fn from_str(text: &str) -> Result<Self, IdError> {
        let known = text.starts_with("GPU-") || text.starts_with("MIG-");
        let clean = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'/');
        if known && clean && (5..=96).contains(&text.len()) {
            Ok(GpuUuid(text.to_owned()))
        } else {
            Err(IdError::new(text, "a UUID that begins with GPU- or MIG-"))
        }
    }
}

/// A text that is not the identifier it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not {wanted}")]
pub struct IdError {
    text: String,
    wanted: &'static str,
}

impl IdError {
    fn new(text: &str, wanted: &'static str) -> Self {
        IdError { text: crate::text::escape(text, 60), wanted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_pci_address_is_the_same_address() {
        let plain: PciAddress = "0000:3b:00.0".parse().unwrap();
        for text in ["00000000:3B:00.0", "0000:3b:00", "0000:3B:00.0"] {
            assert_eq!(text.parse::<PciAddress>().unwrap(), plain, "{text}");
        }
        assert_eq!(plain.to_string(), "0000:3b:00.0");
        assert_eq!("00010000:01:1f.7".parse::<PciAddress>().unwrap().to_string(), "10000:01:1f.7");
    }

    #[test]
    fn what_is_not_a_pci_address_is_refused() {
        for text in ["", "3b:00.0", "0000:3b:00.8", "0000:3b:20.0", "0000:3b:0.0", "0000:+b:00.0", "x"] {
            assert!(text.parse::<PciAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn uuids_are_checked_and_shortened() {
        let uuid: GpuUuid = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6".parse().unwrap();
        assert_eq!(uuid.short(), "GPU-8932f937");
        assert!("MIG-8932f937-d72c-4106-c12f-20bd9faed9f6".parse::<GpuUuid>().unwrap().is_mig());
        assert!("MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/1/0".parse::<GpuUuid>().is_ok());
        for text in ["", "GPU-", "0", "GPU-a b", "GPU-a\n", "TPU-0"] {
            assert!(text.parse::<GpuUuid>().is_err(), "{text}");
        }
    }
}
