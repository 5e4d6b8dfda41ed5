//! Modes that an administrator sets: persistence, compute mode, ECC.

use super::Case;
use super::finding::{Finding, Subject};
use crate::model::snapshot::ProbedGpu;

pub(super) fn judge_gpu(case: &Case<'_>, gpu: &ProbedGpu) -> Vec<Finding> {
    [persistence(gpu), compute_mode(case, gpu), ecc_mode(gpu)].into_iter().flatten().collect()
}

fn persistence(gpu: &ProbedGpu) -> Option<Finding> {
    let finding =
        || Finding::of("PERSIST_OFF", Subject::of(gpu), "persistence mode is off", "NVML persistence mode");
    (gpu.reading.persistence.value() == Some(&false)).then(finding)
}

/// Against the mode that the site set on purpose, else the default.
fn compute_mode(case: &Case<'_>, gpu: &ProbedGpu) -> Option<Finding> {
    let now = *gpu.reading.detail.as_deref()?.compute_mode.value()?;
    let (wanted, by) =
        case.expected.compute_mode.as_ref().map_or((0, "default"), |(mode, by)| (*mode, by.as_str()));
    let what = format!("compute mode {}, {} by {by}", mode_name(now), mode_name(wanted));
    let finding = || Finding::of("COMPUTE_MODE", Subject::of(gpu), what, "NVML compute mode");
    (now != wanted).then(|| finding().measured(now, wanted))
}

/// `nvmlComputeMode_t` (nvml.h).
fn mode_name(mode: u32) -> String {
    match mode {
        0 => "default".into(),
        1 => "exclusive thread".into(),
        2 => "prohibited".into(),
        3 => "exclusive process".into(),
        other => other.to_string(),
    }
}

/// `nvmlBrandType_t` of data-centre boards: Tesla and NVIDIA. Workstation boards may come with ECC off.
const DATA_CENTRE_BRANDS: [u32; 2] = [2, 14];

/// A change that waits for a reset, and ECC that is off on a board that is delivered with it on.
fn ecc_mode(gpu: &ProbedGpu) -> Option<Finding> {
    let detail = gpu.reading.detail.as_deref()?;
    let on_off = |on: bool| if on { "on" } else { "off" };
    let on = *detail.ecc.enabled.value()?;
    let next = detail.ecc.pending.value().filter(|&&next| next != on);
    let data_centre = detail.board.brand.value().is_some_and(|brand| DATA_CENTRE_BRANDS.contains(brand));
    let (what, value) = match next {
        Some(&next) => {
            let (now, next) = (on_off(on), on_off(next));
            (format!("ECC is {now}, {next} after the next reset"), format!("{now}, then {next}"))
        }
        None if !on && data_centre => ("ECC is off".to_owned(), "off".to_owned()),
        None => return None,
    };
    Some(Finding::of("ECC_MODE", Subject::of(gpu), what, "NVML ECC mode").measured(value, "on"))
}
