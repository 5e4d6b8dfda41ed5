//! Whether a GPU can be opened at all, and what the driver's code means (health_checks.md section 4).

use super::finding::{Finding, Subject};
use crate::model::Reading;
use crate::model::snapshot::ProbedGpu;

/// A GPU that is lost while it is read counts as one that does not open.
pub(super) fn judge(gpu: &ProbedGpu) -> Option<Finding> {
    let of = |code: &str, what: &str| Some(Finding::of(code, Subject::of(gpu), what, "NVML device handle"));
    match &gpu.reading.handle {
        Reading::Lost => of("GPU_LOST", "GPU is lost"),
        Reading::ResetRequired => of("RESET_REQ", "GPU requires reset"),
        Reading::NoPermission => of("NO_PERM", "no permission to open the GPU"),
        Reading::Failed(code) => of_code(*code, gpu),
        Reading::Value(()) if any(gpu, Reading::Lost) => of("GPU_LOST", "GPU was lost while it was read"),
        Reading::Value(()) if any(gpu, Reading::ResetRequired) => of("RESET_REQ", "GPU requires reset"),
        Reading::Value(()) if inforom_check(gpu) == Some(Reading::Failed(14)) => {
            Some(Finding { source: "NVML InfoROM validation".into(), ..of_code(14, gpu)? })
        }
        Reading::NotSupported => of("GPU_OPEN", "the driver does not open this GPU for us")
            .map(|finding| finding.with_severity(super::Severity::Unknown)),
        _ => None,
    }
}

fn of_code(code: i64, gpu: &ProbedGpu) -> Option<Finding> {
    let of = |name: &str, what: &str| {
        let finding = Finding::of(name, Subject::of(gpu), what, "NVML device handle");
        Some(finding.measured(code, 0))
    };
    match code {
        6 => of("GPU_MISS_DRV", "the driver does not know the GPU"),
        8 => of("POWER_CABLE", "too little power"),
        11 => of("GPU_IRQ", "interrupt issue"),
        14 => of("INFOROM_BAD", "InfoROM is corrupted"),
        28 => of("GPU_MISS_DRV", "the driver does not find the GPU"),
        // Our own set-up, or busy for a moment: told, never held against the GPU.
        17 => of("NO_PERM", "the operating system refused the GPU"),
        999 => of("GPU_OPEN", "the GPU does not open: unknown error"),
        _ => of("GPU_OPEN", "the GPU does not open").map(|f| f.with_severity(super::Severity::Unknown)),
    }
}

fn inforom_check(gpu: &ProbedGpu) -> Option<Reading<()>> {
    gpu.reading.detail.as_ref().map(|detail| detail.board.inforom_check)
}

/// True where any reading of the GPU came back as `answer`.
fn any(gpu: &ProbedGpu, answer: Reading<()>) -> bool {
    let reading = &gpu.reading;
    let mut counters = reading.counters.clone();
    let mut answers = vec![
        reading.pci.map(|_| ()),
        reading.mig_uuid.clone().map(|_| ()),
        reading.uuid.clone().map(|_| ()),
        reading.serial.clone().map(|_| ()),
        reading.model.clone().map(|_| ()),
        reading.minor.map(|_| ()),
        reading.persistence.map(|_| ()),
        reading.mig.map(|_| ()),
        reading.recovery_action.map(|_| ()),
        reading.temp_c.map(|_| ()),
        reading.remap_pending.map(|_| ()),
        reading.remap_failed.map(|_| ()),
    ];
    answers.extend(counters.each_mut().map(|counter| counter.map(|_| ())));
    answers.contains(&answer)
}
