//! The PCIe link of a GPU: lanes, generation, replays, the kernel's error counts, and BAR1.

use super::finding::{Finding, Remedy, Severity, Subject};
use super::{Case, SeenLinks};
use crate::model::Reading;
use crate::model::snapshot::{DriverGpu, ProbedGpu};

/// Replays for each lane and minute by generation, in hundredths: what a bit error rate of 1e-12 comes to (DCGM).
const REPLAYS_PER_LANE_MINUTE: [u64; 6] = [15, 30, 48, 96, 192, 384];

const MINUTE_NS: u64 = 60_000_000_000;
const HOUR_NS: u64 = 60 * MINUTE_NS;

/// All about one GPU's link. Of a lost GPU nothing is told: its registers read as all ones.
pub(super) fn judge_gpu(case: &Case<'_>, gpu: &ProbedGpu) -> Vec<Finding> {
    if gpu.reading.handle == Reading::Lost {
        return Vec::new();
    }
    let host = case.snapshot.host.driver_gpus.iter().find(|known| Some(known.pci) == gpu.pci());
    let link = Link::of(gpu, host);
    let found = [
        width(case, gpu, &link),
        generation(case, gpu),
        replays(case, gpu, &link),
        errors(case, gpu),
        bar1(case, gpu),
    ];
    found.into_iter().flatten().collect()
}

/// What is known of a link.
struct Link {
    /// Lanes now.
    width: Option<u32>,
    /// Lanes that GPU and port can do together; `None` where no port is seen.
    possible_width: Option<u32>,
    /// Lanes that the GPU can do.
    gpu_width: Option<u32>,
    /// The highest generation that GPU and port can do together, as far as they are seen.
    highest_generation: Option<u32>,
}

impl Link {
    /// The driver's word where it was asked, else sysfs. In a virtual machine sysfs shows what the hypervisor makes up: it
    /// counts only where there is a port above the GPU.
    fn of(gpu: &ProbedGpu, host: Option<&DriverGpu>) -> Link {
        let pcie = gpu.reading.detail.as_deref().map(|detail| &detail.pcie);
        let told = |reading: Option<&Reading<u32>>| reading?.value().copied().filter(|&number| number > 0);
        let (own, port) = (host.map(|host| &host.link), host.map(|host| &host.port_link));
        let possible_width = own.and_then(|own| Some(own.max_width?.min(port?.max_width?)));
        let by_sysfs = own.and_then(|own| own.width).filter(|_| possible_width.is_some());
        let speeds = [own, port].map(|end| generation_of(end?.max_speed.as_deref()?));
        Link {
            width: told(pcie.map(|pcie| &pcie.width)).or(by_sysfs),
            possible_width,
            gpu_width: own.and_then(|own| own.max_width),
            highest_generation: told(pcie.map(|pcie| &pcie.max_generation))
                .or_else(|| speeds.into_iter().flatten().min()),
        }
    }
}

/// The generation of `32.0 GT/s PCIe`.
fn generation_of(speed: &str) -> Option<u32> {
    let generations = [("2.5", 1), ("5.0", 2), ("8.0", 3), ("16.0", 4), ("32.0", 5), ("64.0", 6)];
    let number = speed.split(' ').next()?;
    generations.into_iter().find(|(known, _)| *known == number).map(|(_, generation)| generation)
}

/// Lanes are not power-managed: fewer than there were is a fault. Fewer than GPU and port could do together may be how the
/// slot is wired, so that it only warns.
fn width(case: &Case<'_>, gpu: &ProbedGpu, link: &Link) -> Option<Finding> {
    let lanes = link.width?;
    let (limit, by, severity) = match case.expected.pcie_width_at(gpu.pci()) {
        Some((lanes, by)) => (lanes, by, Severity::Fail),
        None => (link.possible_width?, "what GPU and slot can do", Severity::Warn),
    };
    let what = format!("PCIe at x{lanes} instead of x{limit}");
    let finding = Finding::of("PCIE_WIDTH", Subject::of(gpu), what, by).measured(lanes, limit);
    (lanes < limit).then(|| finding.with_severity(severity))
}

/// An idle GPU goes down to generation 1 on purpose: only one in the highest performance state, or one at work (GeForce
/// boards compute in state 2), is held against what it was known to reach.
fn generation(case: &Case<'_>, gpu: &ProbedGpu) -> Option<Finding> {
    let detail = gpu.reading.detail.as_deref()?;
    let at_work = detail.clocks.util_pct.value().is_some_and(|[gpu_pct, _]| *gpu_pct >= BUSY_PCT);
    if detail.clocks.pstate.value() != Some(&0) && !at_work {
        return None;
    }
    let now = *detail.pcie.generation.value()?;
    let known = case.expected.known_at(gpu.pci())?.pcie_generation?;
    let what = format!("PCIe at generation {now} under load instead of {known}");
    let finding = Finding::of("PCIE_GEN", Subject::of(gpu), what, super::expected::LEARNED);
    (now < known).then(|| finding.measured(now, known))
}

/// Ours: at half its time the link is in use.
const BUSY_PCT: u32 = 50;

/// The limit is for the highest generation and the lanes of the link: an idle GPU's present generation says nothing about
/// the minutes before.
fn replays(case: &Case<'_>, gpu: &ProbedGpu, link: &Link) -> Option<Finding> {
    let seen = case.history.seen(gpu.uuid())?;
    let before = *seen.counters.pcie_replay.value()?;
    // A counter that went down was reset meanwhile.
    let new = gpu.reading.counters.pcie_replay.value()?.checked_sub(before)?;
    let time_ns = case.snapshot.boottime_ns.checked_sub(seen.boottime_ns)?;
    let lanes = u64::from(link.width.or(link.gpu_width)?);
    let place = usize::try_from(link.highest_generation?.clamp(1, 6) - 1).ok()?;
    let limit = (lanes * REPLAYS_PER_LANE_MINUTE.get(place)?).div_ceil(100);
    let more_than =
        |limit: u64| u128::from(new) * u128::from(MINUTE_NS) > u128::from(limit) * u128::from(time_ns);
    if time_ns < MINUTE_NS || !more_than(limit) {
        return None;
    }
    let what = format!("{new} PCIe replays in {} s", time_ns / 1_000_000_000);
    let mut finding = Finding::of("PCIE_REPLAY", Subject::of(gpu), what, "NVML field 94, two looks")
        .measured(
            format!("{} a minute", u128::from(new) * u128::from(MINUTE_NS) / u128::from(time_ns)),
            limit,
        );
    // The first replays after a reset are those of link training: only on a link that had some before is that many a fault.
    if before > 0 && more_than(limit.saturating_mul(case.limits.pcie_replay_fail_times)) {
        (finding.severity, finding.remedy) = (Severity::Fail, Remedy::Rma);
    }
    Some(finding)
}

/// What the kernel counted since an earlier look. Firmware that handles errors first leaves its counts at 0.
fn errors(case: &Case<'_>, gpu: &ProbedGpu) -> Option<Finding> {
    let before = case.history.seen(gpu.uuid())?.links.as_ref()?;
    let now = SeenLinks::of(gpu, case.snapshot)?;
    let (old, new) = (before.aer.value()?, now.aer.value()?);
    let [corrected, fatal] = [new[0].checked_sub(old[0])?, new[2].checked_sub(old[2])?];
    let finding =
        |what: String| Finding::of("PCIE_AER", Subject::of(gpu), what, "sysfs aer_dev_*, two looks");
    if fatal > 0 {
        let mut found = finding(format!("{fatal} fatal PCIe errors of the GPU or its port"));
        (found.severity, found.remedy) = (Severity::Fail, Remedy::Reboot);
        return Some(found.measured(fatal, 0));
    }
    // Less than an hour counts as one: a burst is no rate.
    let time_ns = now.boottime_ns.saturating_sub(before.boottime_ns).max(HOUR_NS);
    let limit = case.limits.pcie_aer_corrected_per_hour;
    let too_many = u128::from(corrected) * u128::from(HOUR_NS) > u128::from(limit) * u128::from(time_ns);
    let mut found = finding(format!("{corrected} corrected PCIe errors of the GPU or its port"));
    (found.severity, found.remedy) = (Severity::Warn, Remedy::Admin);
    too_many.then(|| found.measured(corrected, format!("{limit} an hour")))
}

fn bar1(case: &Case<'_>, gpu: &ProbedGpu) -> Option<Finding> {
    let now = *gpu.reading.detail.as_deref()?.memory.bar1_mib.value()?;
    let known = case.expected.known_at(gpu.pci())?.bar1_mib?;
    let what = format!("BAR1 of {now} MiB instead of {known}");
    // A smaller window is no dead one: GPUDirect may fail, a job need not.
    let finding =
        Finding::of("BAR1", Subject::of(gpu), what, super::expected::LEARNED).with_severity(Severity::Warn);
    (now < known).then(|| finding.measured(now, known))
}

#[cfg(test)]
mod tests;
