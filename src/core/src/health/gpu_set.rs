//! Are all GPUs there: on PCIe, and in the driver's eyes.

use super::Expected;
use super::finding::{Finding, Subject};
use crate::model::{Reading, Snapshot};

/// Fewer GPUs than expected on PCIe, else fewer in the driver than on PCIe. More than expected is no fault: a site may
/// give Slurm only some of them. Without an expectation nothing is held against PCIe.
pub(super) fn judge(snapshot: &Snapshot, expected: &Expected) -> Option<Finding> {
    let on_pci = u32::try_from(snapshot.host.pci_gpus.len()).ok()?;
    if let Some((count, source)) = expected.gpu_count.as_ref().filter(|(count, _)| on_pci < *count) {
        let what = format!("{on_pci} of {count} GPUs on PCIe");
        return Some(Finding::of("GPU_MISS_PCI", Subject::Node, what, source).measured(on_pci, count));
    }
    let by_driver = *snapshot.node.gpu_count.value()?;
    let wanted = expected.gpu_count.as_ref().map_or(on_pci, |(count, _)| *count);
    if by_driver >= wanted || snapshot.node.nvml != Reading::Value(()) {
        return None;
    }
    let what = format!("driver sees {by_driver} of {wanted} GPUs");
    Some(Finding::of("GPU_MISS_DRV", Subject::Node, what, "NVML device count").measured(by_driver, wanted))
}
