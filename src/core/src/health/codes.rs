//! The finding codes: stable names with default severity, remedy and meaning. Codes are never renamed.

use super::finding::{Remedy, Severity};
use super::xid;

/// One row of the code table.
#[derive(Debug, Clone, Copy)]
pub struct Code {
    /// The name, at most 12 characters, so that it fits into the 20 that `sinfo -R` shows.
    pub name: &'static str,
    /// Default severity.
    pub severity: Severity,
    /// Default remedy.
    pub remedy: Remedy,
    /// True where the code names a fault of this very node beyond doubt, so that it may refuse a job even while
    /// slurmctld does not answer. False for what a bad roll-out could show on a whole fleet.
    pub certain: bool,
    /// Which of several equally severe findings is told first: lower comes first.
    rank: u16,
    /// What it means and what follows, for the admin.
    pub why: &'static str,
}

/// Every code but the XIDs, which come from the catalogue.
///
/// Severities and remedies: health_checks.md, checks 1, 5, 7, 8, 10, 12, 16, 20, 54 and its section 4 (NVML codes).
const CODES: [Code; 19] = [
    row(
        "DRV_UNLOADED",
        Severity::Fail,
        Remedy::Reboot,
        false,
        1,
        "the nvidia kernel module is not loaded, so no program reaches a GPU; load it, or look at the DKMS build and at Secure Boot",
    ),
    row(
        "DRV_MISMATCH",
        Severity::Fail,
        Remedy::Reboot,
        false,
        2,
        "kernel module and library are of different driver versions, so new programs fail; finish the update by unloading all nvidia modules or by a reboot",
    ),
    row(
        "GPU_MISS_PCI",
        Severity::Fail,
        Remedy::Reboot,
        false,
        3,
        "a GPU is missing on PCIe; power cycle, then reseat, and read the BMC's log",
    ),
    row(
        "GPU_LOST",
        Severity::Fail,
        Remedy::Reboot,
        true,
        4,
        "the driver has lost the GPU; only a reboot or a power cycle brings it back",
    ),
    row(
        "GPU_MISS_DRV",
        Severity::Fail,
        Remedy::Reset,
        false,
        5,
        "PCIe shows the GPU, the driver does not; look for RmInitAdapter in the kernel log, then reset or reboot",
    ),
    row(
        "RESET_REQ",
        Severity::Fail,
        Remedy::Reset,
        true,
        6,
        "the driver asks for a reset of the GPU before it is used again",
    ),
    row(
        "RECOVERY",
        Severity::Fail,
        Remedy::Reset,
        true,
        7,
        "the driver names the recovery that this GPU needs (NVML field 230)",
    ),
    row(
        "REMAP_FAIL",
        Severity::Fail,
        Remedy::Rma,
        true,
        8,
        "a memory row could not be remapped; the flag stays for life; run the field diagnostic and replace the GPU",
    ),
    row(
        "POWER_CABLE",
        Severity::Fail,
        Remedy::Rma,
        true,
        9,
        "the GPU reports too little power; check its power cables",
    ),
    row(
        "INFOROM_BAD",
        Severity::Fail,
        Remedy::Rma,
        true,
        10,
        "the GPU's InfoROM is corrupted; the vendor can reflash or replace it",
    ),
    row("GPU_IRQ", Severity::Fail, Remedy::Reboot, true, 11, "the GPU's interrupts do not arrive"),
    row("GPU_OPEN", Severity::Fail, Remedy::Reboot, false, 12, "the driver failed twice to open the GPU"),
    row(
        "ECC_UNCORR",
        Severity::Fail,
        Remedy::Reset,
        false,
        13,
        "uncorrectable memory errors since the last reset; reset the GPU, and if they return run the field diagnostic",
    ),
    row(
        "PROBE_HANG",
        Severity::Unknown,
        Remedy::Reboot,
        false,
        14,
        "the driver did not answer in time; one silent look is no proof, a second one at least 30 s later is",
    ),
    row(
        "NVML_INIT",
        Severity::Unknown,
        Remedy::Reboot,
        false,
        14,
        "NVML does not start; one look is no proof, a second one at least 30 s later is",
    ),
    row(
        "PROBE_BUSY",
        Severity::Unknown,
        Remedy::Admin,
        false,
        15,
        "another look at the driver was under way until the deadline; the GPU was not judged",
    ),
    row(
        "PROBE_DIED",
        Severity::Unknown,
        Remedy::Admin,
        false,
        15,
        "gpuward's own probe gave no answer; the GPU was not judged",
    ),
    row(
        "NVML_LIB",
        Severity::Unknown,
        Remedy::Admin,
        false,
        16,
        "libnvidia-ml.so.1 could not be opened; see [nvml] library in gpuward.toml and the driver's packages",
    ),
    row(
        "NO_PERM",
        Severity::Warn,
        Remedy::Admin,
        false,
        17,
        "gpuward may not read the GPU: its own set-up, not the hardware; run as root outside a device cgroup",
    ),
];

const fn row(
    name: &'static str,
    severity: Severity,
    remedy: Remedy,
    certain: bool,
    rank: u16,
    why: &'static str,
) -> Code {
    Code { name, severity, remedy, certain, rank, why }
}

/// What the table says about `code`; an XID of the catalogue or one that it lacks is an entry as well.
pub fn entry(code: &str) -> Code {
    if let Some(known) = CODES.iter().find(|row| row.name == code) {
        return *known;
    }
    let (severity, remedy) = xid_number(code).map_or((Severity::Warn, Remedy::Admin), xid::judgement);
    // XID 79 and the lost GPU are the same fault; the XID is told first because it names the cause.
    Code { name: "XID", severity, remedy, certain: code == "XID79", rank: 0, why: "an XID in the kernel log" }
}

/// Position among equally severe findings.
pub(super) fn rank(code: &str) -> u16 {
    entry(code).rank
}

/// True for a code that gpuward.toml may name.
pub fn is_known(code: &str) -> bool {
    CODES.iter().any(|row| row.name == code) || xid_number(code).is_some()
}

/// All names that may be suggested for a misspelt code.
pub fn all_names() -> impl Iterator<Item = &'static str> {
    CODES.iter().map(|row| row.name).chain(xid::catalogue().map(|row| row.code))
}

fn xid_number(code: &str) -> Option<u32> {
    let digits = code.strip_prefix("XID")?;
    let plain = !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten().filter(|&number| number <= xid::MAX_XID)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_short_and_upper_case() {
        let mut names: Vec<&str> = all_names().collect();
        assert!(names.iter().all(|name| name.len() <= 12), "{names:?}");
        let clean =
            |name: &&str| name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
        assert!(names.iter().all(clean));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn xids_take_their_severity_from_the_catalogue() {
        assert_eq!(entry("XID79").severity, Severity::Fail);
        assert_eq!(entry("XID79").remedy, Remedy::Reboot);
        assert_eq!(entry("XID48").remedy, Remedy::Reset);
        assert!(entry("XID13").severity < Severity::Fail);
        assert!(entry("XID63").severity < Severity::Fail);
        assert!(is_known("XID999") && !is_known("XID7O") && !is_known("XID") && !is_known("XID079"));
    }

    #[test]
    fn only_faults_beyond_doubt_are_certain() {
        assert!(entry("XID79").certain && entry("GPU_LOST").certain && entry("REMAP_FAIL").certain);
        for code in ["DRV_UNLOADED", "DRV_MISMATCH", "GPU_MISS_PCI", "PROBE_HANG", "XID48"] {
            assert!(!entry(code).certain, "{code}");
        }
    }
}
