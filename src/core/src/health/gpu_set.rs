//! Are all GPUs there: on PCIe, and in the driver's eyes.

use super::Expected;
use super::finding::{Finding, Subject};
use crate::model::{Reading, Snapshot};

/// Fewer GPUs than expected on PCIe, else fewer in the driver than expected. More than expected is no fault: a site may
/// give Slurm only some of them. A list of PCI devices that could not be read says nothing.
///
/// Without an expectation a GPU that PCIe shows and the driver does not is only a warning: it may be a console card, or
/// bound to another driver on purpose.
pub(super) fn judge(snapshot: &Snapshot, expected: &Expected) -> Option<Finding> {
    let on_pci = snapshot.host.pci_gpus.value().and_then(|gpus| u32::try_from(gpus.len()).ok());
    if let (Some((count, source)), Some(on_pci)) = (&expected.gpu_count, on_pci) {
        if on_pci < *count {
            let what = format!("{on_pci} of {count} GPUs on PCIe");
            return Some(Finding::of("GPU_MISS_PCI", Subject::Node, what, source).measured(on_pci, count));
        }
    }
    let by_driver = *snapshot.node.gpu_count.value()?;
    let wanted = expected.gpu_count.as_ref().map(|(count, _)| *count);
    let limit = wanted.or(on_pci)?;
    if by_driver >= limit || snapshot.node.nvml != Reading::Value(()) {
        return None;
    }
    let what = format!("driver sees {by_driver} of {limit} GPUs");
    let finding =
        Finding::of("GPU_MISS_DRV", Subject::Node, what, "NVML device count").measured(by_driver, limit);
    Some(if wanted.is_some() { finding } else { finding.with_severity(super::Severity::Warn) })
}
