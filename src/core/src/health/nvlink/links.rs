//! NVLinks that are down.

use super::may_use_nvlink;
use crate::health::Case;
use crate::health::finding::{Finding, Severity, Subject};
use crate::model::detail::{LinkEnd, NvLinkReading};
use crate::model::snapshot::ProbedGpu;
use crate::model::{PciAddress, Reading};

/// NVLinks of boards that always have all of them in use (NVIDIA's data sheets; NVIDIA Health Validation: 18 on H100 and
/// GB200). Products whose links depend on the machine, on bridges or on the vendor are not here, nor are PCIe cards.
const LINKS_OF_PRODUCT: [(&str, u32); 6] = [
    ("A100-SXM4-40GB", 12),
    ("A100-SXM4-80GB", 12),
    ("H100 80GB HBM3", 18),
    ("H200", 18),
    ("B200", 18),
    ("GB200", 18),
];

/// Fewer links than the GPU had, or should have by configuration: a fault where the driver says of one that it is down.
/// Links that the driver does not list at all may be switched off on purpose, and what only the product says is no proof
/// for this machine: both warn.
pub(super) fn judge_gpu(case: &Case<'_>, gpu: &ProbedGpu) -> Option<Finding> {
    let links = &gpu.reading.detail.as_deref()?.nvlinks;
    // Where the driver refuses to tell the last one, nobody knows how many there are.
    let refused = links.last().is_some_and(|link| link.up.value().is_none());
    if refused || !may_use_nvlink(gpu) {
        return None;
    }
    let down = links.iter().filter(|link| link.up == Reading::Value(false));
    let excused = down.clone().filter(|link| leads_to_a_sick_gpu(case, gpu, link)).count();
    let (down, up) = (down.count(), links.iter().filter(|link| link.up != Reading::Value(false)).count());
    let (wanted, by, sure) = match case.expected.nvlinks_at(gpu.pci()) {
        Some((wanted, by)) => (wanted, by, true),
        None => (of_product(case, gpu)?, "what this product has", false),
    };
    let enough = usize::try_from(wanted).is_ok_and(|wanted| up + excused >= wanted);
    if enough || (down == 0 && !sure) {
        return None;
    }
    let what = format!("{up} of {wanted} NVLinks up");
    let finding = Finding::of("NVLINK_DOWN", Subject::of(gpu), what, by).measured(up, wanted);
    Some(if sure && down > excused { finding } else { finding.with_severity(Severity::Warn) })
}

/// Links of the product, where one of its kind in this node has a link that is up: then the node uses NVLink at all.
fn of_product(case: &Case<'_>, gpu: &ProbedGpu) -> Option<u32> {
    let model = gpu.reading.model.value()?;
    let name = model.strip_prefix("NVIDIA ").unwrap_or(model);
    let (_, links) = LINKS_OF_PRODUCT.iter().find(|(product, _)| *product == name)?;
    let uses = |other: &ProbedGpu| {
        let links = other.reading.detail.as_deref().map_or(&[][..], |detail| detail.nvlinks.as_slice());
        links.iter().any(|link| link.up == Reading::Value(true))
    };
    let mut of_kind = case.snapshot.gpus.iter().filter(|other| other.reading.model == gpu.reading.model);
    of_kind.any(uses).then_some(*links)
}

/// A lost or hanging GPU takes down the links of those that are joined to it without a switch. It is told itself, so its
/// peers are not. Where the other end of a link is not known, any such GPU will do, unless other links end at switches.
fn leads_to_a_sick_gpu(case: &Case<'_>, gpu: &ProbedGpu, link: &NvLinkReading) -> bool {
    let on_pci = case.snapshot.host.pci_gpus.value();
    let gone = |pci: &PciAddress| on_pci.is_some_and(|present| !present.contains(pci));
    let sick = |pci: &PciAddress| sick_gpus(case).any(|sick| sick == *pci);
    match (&link.end, &link.end_pci) {
        (Reading::Value(LinkEnd::Switch), _) => false,
        (Reading::Value(LinkEnd::Gpu), Reading::Value(pci)) => sick(pci) || gone(pci),
        (_, Reading::Value(pci)) if sick(pci) => true,
        _ => {
            let links = gpu.reading.detail.as_deref().map_or(&[][..], |detail| detail.nvlinks.as_slice());
            let on_switches = links.iter().any(|link| link.end == Reading::Value(LinkEnd::Switch));
            let missing =
                on_pci.zip(case.expected.gpu_count.as_ref()).is_some_and(|(present, (count, _))| {
                    usize::try_from(*count).is_ok_and(|count| present.len() < count)
                });
            let mut others = sick_gpus(case).filter(|pci| Some(*pci) != gpu.pci());
            !on_switches && (missing || others.next().is_some())
        }
    }
}

/// The XID of a GPU that no longer answers on PCIe.
const FELL_OFF_THE_BUS: u32 = 79;

/// GPUs that do not answer, or that the kernel log calls gone.
fn sick_gpus<'a>(case: &Case<'a>) -> impl Iterator<Item = PciAddress> + use<'a> {
    let silent = |gpu: &&ProbedGpu| {
        use Reading::{Failed, Lost, ResetRequired, TimedOut};
        matches!(gpu.reading.handle, Lost | ResetRequired | TimedOut | Failed(_))
    };
    let gone =
        case.snapshot.log.xids.iter().filter(|event| event.xid == FELL_OFF_THE_BUS).map(|event| event.pci);
    case.snapshot.gpus.iter().filter(silent).filter_map(ProbedGpu::pci).chain(gone)
}
