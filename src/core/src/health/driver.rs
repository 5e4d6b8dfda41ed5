//! Kernel module, library, and whether they fit together.

use super::finding::{Finding, Subject};
use crate::model::snapshot::ProbeOutcome;
use crate::model::{Reading, Snapshot};

/// NVML: the driver is not loaded.
const DRIVER_NOT_LOADED: i64 = 9;
/// NVML: library and driver are of different versions.
const LIB_RM_VERSION_MISMATCH: i64 = 18;

/// Module and library as a whole.
pub(super) fn judge(snapshot: &Snapshot) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(unloaded(snapshot));
    findings.extend(mismatch(snapshot));
    if findings.is_empty() {
        findings.extend(library(snapshot));
        findings.extend(died(snapshot));
        findings.extend(busy(snapshot));
    }
    findings
}

fn unloaded(snapshot: &Snapshot) -> Option<Finding> {
    // The module may have been loaded after sysfs was read: a driver that answers is there.
    let answers = snapshot.node.nvml == Reading::Value(());
    let by_sysfs = snapshot.host.module_loaded == Reading::Value(false) && !answers;
    let by_nvml = snapshot.node.nvml == Reading::Failed(DRIVER_NOT_LOADED);
    let source = match (by_sysfs, by_nvml) {
        (true, true) => "sysfs and NVML code 9",
        (true, false) => "sysfs",
        (false, true) => "NVML code 9",
        (false, false) => return None,
    };
    Some(Finding::of("DRV_UNLOADED", Subject::Node, "nvidia kernel module is not loaded", source))
}

fn mismatch(snapshot: &Snapshot) -> Option<Finding> {
    let module = snapshot.host.module_version.value();
    let library = snapshot.node.driver_version.value().or_else(|| snapshot.node.nvml_version.value());
    let code_says_so = snapshot.node.nvml == Reading::Failed(LIB_RM_VERSION_MISMATCH);
    let texts_say_so = match (module, snapshot.node.driver_version.value()) {
        (Some(module), Some(driver)) => module != driver,
        _ => false,
    };
    if !code_says_so && !texts_say_so {
        return None;
    }
    let show =
        |text: Option<&String>| text.map_or_else(|| "-".to_owned(), |text| crate::text::escape(text, 30));
    let what = "driver and library versions differ";
    let finding = Finding::of("DRV_MISMATCH", Subject::Node, what, "module version and NVML");
    Some(finding.measured(format!("library {}", show(library)), format!("module {}", show(module))))
}

fn library(snapshot: &Snapshot) -> Option<Finding> {
    let error = snapshot.node.library_error.as_ref()?;
    let mut finding = Finding::of("NVML_LIB", Subject::Node, "libnvidia-ml.so.1 does not open", "dlopen");
    finding.value = Some(crate::text::escape(error, 200));
    Some(finding)
}

fn busy(snapshot: &Snapshot) -> Option<Finding> {
    let is_busy = snapshot.probe == ProbeOutcome::Busy;
    is_busy.then(|| Finding::of("PROBE_BUSY", Subject::Node, "another look was under way", "probe lock"))
}

fn died(snapshot: &Snapshot) -> Option<Finding> {
    let ProbeOutcome::Died { why } = &snapshot.probe else { return None };
    let mut finding = Finding::of("PROBE_DIED", Subject::Node, "gpuward's probe gave no answer", "probe");
    finding.value = Some(crate::text::escape(why, 200));
    Some(finding)
}
