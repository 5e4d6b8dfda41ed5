//! The finding codes: stable names with default severity, remedy and meaning. Codes are never renamed.

use super::finding::{Remedy, Severity};
use super::{sxid, xid};

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

/// Every code but the XIDs and SXids, which come from the catalogues.
///
/// Severities and remedies: health_checks.md, checks 1, 5, 7, 8, 10, 12, 13 to 16, 20, 35, 36, 47, 54, its section
/// 4 (NVML codes) and 5.4 (driver texts).
const CODES: [Code; 34] = [
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
    row(
        "GSP_DEAD",
        Severity::Fail,
        Remedy::Reset,
        false,
        6,
        "the kernel log says that the GPU's GSP firmware answers no more calls; reset the GPU",
    ),
    row(
        "PCIE_GONE",
        Severity::Fail,
        Remedy::Reboot,
        false,
        4,
        "the kernel log says that the link to the GPU went down or that a port cut it off; power cycle, then reseat",
    ),
    row(
        "GPU_INIT",
        Severity::Fail,
        Remedy::Reset,
        false,
        5,
        "the kernel log says that the driver could not initialise the GPU; reset it, then reboot",
    ),
    row(
        "BAR1",
        Severity::Fail,
        Remedy::Reboot,
        false,
        5,
        "the GPU has no usable memory window; look at Above-4G decoding, resizable BAR and the MMIO window in the BIOS",
    ),
    row(
        "PROC_STUCK",
        Severity::Fail,
        Remedy::Reboot,
        false,
        13,
        "a task has been stuck in the GPU driver for minutes; keep the output of nvidia-bug-report.sh, then reboot",
    ),
    row(
        "PCIE_AER",
        Severity::Warn,
        Remedy::Rma,
        false,
        18,
        "the kernel log holds PCIe errors of the GPU or of a port above it; reseat card or riser; a fatal one asks for a reboot",
    ),
    row(
        "XID_REPEAT",
        Severity::Warn,
        Remedy::Admin,
        false,
        18,
        "programs of different users keep failing on this GPU alone; run dcgmi diag or the field diagnostic before it is used again",
    ),
    row(
        "IOMMU_FAULT",
        Severity::Warn,
        Remedy::Admin,
        false,
        19,
        "the IOMMU refused an access of the GPU; look at iommu=pt and at the driver's version",
    ),
    row(
        "NVLINK_INIT",
        Severity::Warn,
        Remedy::Admin,
        false,
        19,
        "the driver had trouble bringing NVLink up; look at the fabric manager",
    ),
    row(
        "PEERMEM_ERR",
        Severity::Warn,
        Remedy::Admin,
        false,
        19,
        "nvidia-peermem met an invalid context; jobs that use GPUDirect RDMA may have failed",
    ),
    row(
        "API_MISMATCH",
        Severity::Warn,
        Remedy::Admin,
        false,
        19,
        "a program brought a driver library of another version, often a container's own; an update that was not finished shows as DRV_MISMATCH",
    ),
    row(
        "KMSG_UNREAD",
        Severity::Unknown,
        Remedy::Admin,
        false,
        20,
        "XIDs are not seen without the kernel log; run as root outside a container, or see [paths] kmsg and journalctl in gpuward.toml",
    ),
    row(
        "KMSG_LOST",
        Severity::Info,
        Remedy::Admin,
        false,
        21,
        "the kernel's ring is small or something floods it, and an XID may have been among what was lost; log_buf_len= makes it larger",
    ),
    row(
        "MOD_REFUSED",
        Severity::Info,
        Remedy::Admin,
        false,
        21,
        "Secure Boot refused an unsigned kernel module, which may be why the nvidia module is not loaded; enrol the key or sign the module",
    ),
    row(
        "CRASH_DUMP",
        Severity::Info,
        Remedy::Admin,
        false,
        21,
        "the driver kept a dump of a crashed GPU; run nvidia-bug-report.sh before the module is unloaded",
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
    if sxid_number(code).is_some() {
        let why = "an SXid in the kernel log";
        return Code {
            name: "SXID",
            severity: Severity::Warn,
            remedy: Remedy::Admin,
            certain: false,
            rank: 1,
            why,
        };
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
    CODES.iter().any(|row| row.name == code) || xid_number(code).is_some() || sxid_number(code).is_some()
}

/// All names that may be suggested for a misspelt code.
pub fn all_names() -> impl Iterator<Item = &'static str> {
    CODES.iter().map(|row| row.name).chain(xid::catalogue().map(|row| row.code))
}

fn xid_number(code: &str) -> Option<u32> {
    number_behind("XID", code).filter(|&number| number <= xid::MAX_XID)
}

fn sxid_number(code: &str) -> Option<u32> {
    number_behind("SXID", code).filter(|&number| number <= sxid::MAX_SXID)
}

fn number_behind(prefix: &str, code: &str) -> Option<u32> {
    let digits = code.strip_prefix(prefix)?;
    let plain = !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
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
        assert!(is_known("SXID20034") && !is_known("SXID") && !is_known("SXID020034"));
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
