//! Errors on NVLinks that are up.

use crate::health::finding::{Finding, Remedy, Severity, Subject};
use crate::health::{Case, SeenLinks};
use crate::model::detail::NvLinkReading;
use crate::model::snapshot::ProbedGpu;

/// Highest effective bit error rate (DCGM: worse than 1e-12 fails).
const EFFECTIVE_LIMIT: u64 = 1 << 8 | 12;
/// Highest bit error rate by symbol; a mantissa of 0 and 15e-255 mean "no error" (DCGM, for Blackwell, the first with NVLink 5
/// and so with this rate).
const SYMBOL_LIMIT: u64 = 15 << 8 | 238;

/// Flit CRC errors of a second above which they count (DCGM): each is repeated, so that fewer hurt nobody.
const CRC_PER_S: u64 = 100;

/// What links counted since an earlier look, and their bit error rates.
pub(super) fn judge_gpu(case: &Case<'_>, gpu: &ProbedGpu) -> Vec<Finding> {
    let before = case.history.seen(gpu.uuid()).and_then(|seen| seen.links.as_ref());
    let now = SeenLinks::of(gpu, case.snapshot);
    let counters = before.zip(now.as_ref());
    let found = [
        counters.and_then(|(before, now)| counted(gpu, before, now)),
        counters.and_then(|(before, now)| not_recovered(gpu, before, now)).or_else(|| rates(gpu)),
    ];
    found.into_iter().flatten().collect()
}

/// Up to NVLink 4. A counter that went down was reset meanwhile.
fn counted(gpu: &ProbedGpu, before: &SeenLinks, now: &SeenLinks) -> Option<Finding> {
    let (old, new) = (before.nvlink_errors.value()?, now.nvlink_errors.value()?);
    let [replays, recoveries, crc] =
        [new[0].checked_sub(old[0])?, new[1].checked_sub(old[1])?, new[2].checked_sub(old[2])?];
    let seconds = now.boottime_ns.saturating_sub(before.boottime_ns).div_ceil(1_000_000_000).max(1);
    if replays == 0 && recoveries == 0 && crc < CRC_PER_S.saturating_mul(seconds) {
        return None;
    }
    let what = format!("NVLink errors: {replays} replays, {recoveries} recoveries, {crc} CRC in {seconds} s");
    let mut finding = Finding::of("NVLINK_ERR", Subject::of(gpu), what, "NVML fields 161 to 163, two looks")
        .measured(replays + recoveries, 0);
    // The first recoveries after a reset are those of link training.
    if recoveries > 0 && old[1] > 0 {
        (finding.severity, finding.remedy) = (Severity::Fail, Remedy::Reset);
    }
    Some(finding)
}

/// From NVLink 5 on: a link that could not be recovered.
fn not_recovered(gpu: &ProbedGpu, before: &SeenLinks, now: &SeenLinks) -> Option<Finding> {
    let failed = now.nvlink_not_recovered.value()?.checked_sub(*before.nvlink_not_recovered.value()?)?;
    let what = format!("{failed} NVLink recoveries failed");
    let mut finding = Finding::of("NVLINK_BER", Subject::of(gpu), what, "NVML field 214, two looks");
    (finding.severity, finding.remedy) = (Severity::Fail, Remedy::Reset);
    (failed > 0).then(|| finding.measured(failed, 0))
}

/// One finding for all links of a GPU.
fn rates(gpu: &ProbedGpu) -> Option<Finding> {
    let links = &gpu.reading.detail.as_deref()?.nvlinks;
    let bad: Vec<(&NvLinkReading, [u64; 2])> =
        links.iter().filter_map(|link| Some((link, *link.error_rates.value()?))).filter(is_bad).collect();
    let (_, worst) = *bad.iter().max_by(|(_, a), (_, b)| {
        [rate(a[0]), rate(a[1])].partial_cmp(&[rate(b[0]), rate(b[1])]).unwrap_or(std::cmp::Ordering::Equal)
    })?;
    let names: Vec<String> = bad.iter().map(|(link, _)| link.link.to_string()).collect();
    let what = format!("bit error rate of NVLink {} too high", names.join(","));
    let finding = Finding::of("NVLINK_BER", Subject::of(gpu), what, "NVML fields 220 and 222");
    let shown =
        |[effective, symbol]: [u64; 2]| format!("effective {}, symbol {}", text(effective), text(symbol));
    Some(finding.measured(shown(worst), shown([EFFECTIVE_LIMIT, SYMBOL_LIMIT])))
}

fn is_bad((_, [effective, symbol]): &(&NvLinkReading, [u64; 2])) -> bool {
    rate(*effective) > rate(EFFECTIVE_LIMIT) || rate(*symbol) > rate(SYMBOL_LIMIT)
}

/// Mantissa in bits 8 to 11, negative exponent of ten in bits 0 to 7 (nvml.h).
fn parts(encoded: u64) -> (u8, u8) {
    let [exponent, high, ..] = encoded.to_le_bytes();
    (high & 0xf, exponent)
}

fn rate(encoded: u64) -> f64 {
    let (mantissa, exponent) = parts(encoded);
    f64::from(mantissa) * 10f64.powi(-i32::from(exponent))
}

fn text(encoded: u64) -> String {
    let (mantissa, exponent) = parts(encoded);
    if mantissa == 0 { "0".to_owned() } else { format!("{mantissa}e-{exponent}") }
}
