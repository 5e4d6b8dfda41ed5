//! Which GPUs did a job get: from Slurm's variables to PCI addresses and UUIDs.
//!
//! `SLURM_JOB_GPUS` holds GRES indices. `CUDA_VISIBLE_DEVICES` in a prolog holds GRES indices too, or GPU UUIDs, or MIG
//! UUIDs; up to Slurm 20.11, where `SLURM_JOB_GPUS` is missing, it holds the numbers of the device files.
//! A GRES index is a position in gres.conf's list of files, or in the driver's order where Slurm detects the GPUs by NVML;
//! it is neither a device number nor NVML's index. On a node with MIG devices or several types of GPU it does not tell
//! which GPUs a job has.

use super::gres_conf::{GresConf, device_number};
use super::snapshot::{DriverGpu, GpuTarget, HostReading};
use super::{GpuUuid, GresIndex, PciAddress};
use std::fmt;
use std::str::FromStr;

/// The job's GPUs, and whether they are known beyond doubt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GpuMap {
    /// The GPUs that could be identified.
    pub targets: Vec<GpuTarget>,
    /// Why not all of them are known for certain; `None` where they are.
    pub uncertain: Option<String>,
}

impl GpuMap {
    /// True where every GPU of the job is known for certain.
    pub fn certain(&self) -> bool {
        self.uncertain.is_none()
    }

    /// The GPUs of these names only; all where none is named.
    ///
    /// # Errors
    /// A name that no GPU has.
    pub fn only(mut self, names: &[GpuName]) -> Result<GpuMap, UnknownGpu> {
        let unknown = |name: &&GpuName| !self.targets.iter().any(|target| name.fits(target));
        if let Some(name) = names.iter().find(unknown) {
            let minors: Vec<String> = self
                .targets
                .iter()
                .filter_map(|target| target.minor)
                .map(|minor| minor.to_string())
                .collect();
            return Err(UnknownGpu { name: name.to_string(), minors: minors.join(", ") });
        }
        self.targets.retain(|target| names.is_empty() || names.iter().any(|name| name.fits(target)));
        Ok(self)
    }
}

/// What an admin calls a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GpuName {
    /// The number in /dev/nvidiaN.
    Minor(u32),
    /// PCI address.
    Pci(PciAddress),
    /// UUID or its beginning, as gpuward prints it.
    Uuid(GpuUuid),
}

impl GpuName {
    /// True where the GPU has this name.
    pub fn fits(&self, target: &GpuTarget) -> bool {
        match self {
            GpuName::Minor(minor) => target.minor == Some(*minor),
            GpuName::Pci(pci) => target.pci == Some(*pci),
            GpuName::Uuid(uuid) => {
                target.uuid.as_ref().is_some_and(|whole| whole.as_str().starts_with(uuid.as_str()))
            }
        }
    }
}

impl fmt::Display for GpuName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GpuName::Minor(minor) => minor.fmt(out),
            GpuName::Pci(pci) => pci.fmt(out),
            GpuName::Uuid(uuid) => uuid.fmt(out),
        }
    }
}

impl FromStr for GpuName {
    type Err = BadGpuName;

    fn from_str(text: &str) -> Result<GpuName, BadGpuName> {
        let minor = || text.parse().ok().filter(|_| !text.starts_with('+')).map(GpuName::Minor);
        let uuid = || text.parse().ok().filter(|uuid: &GpuUuid| !uuid.is_mig()).map(GpuName::Uuid);
        let name = minor().or_else(|| text.parse().ok().map(GpuName::Pci)).or_else(uuid);
        name.ok_or_else(|| BadGpuName(crate::text::escape(text, 60)))
    }
}

/// A text that names no GPU.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' names no GPU: allowed are the number in /dev/nvidiaN, a PCI address like 0000:3b:00.0, a UUID like GPU-8932f937"
)]
pub struct BadGpuName(String);

/// A GPU that the node does not show.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this node shows no GPU {name}; by the number in /dev/nvidiaN there are {minors}")]
pub struct UnknownGpu {
    name: String,
    minors: String,
}

/// No job has more GPUs on a node; a longer list is not Slurm's.
const MAX_GPUS: usize = 1024;

/// Resolves the two variables of a prolog.
pub fn resolve(
    slurm_job_gpus: Option<&str>,
    cuda_visible_devices: Option<&str>,
    gres: &GresConf,
    host: &HostReading,
) -> GpuMap {
    let indices = slurm_job_gpus.and_then(numbers);
    let visible: Vec<&str> = cuda_visible_devices.map_or_else(Vec::new, words);
    let uuids: Option<Vec<GpuUuid>> = visible.iter().map(|word| word.parse().ok()).collect();
    if mixed(&visible) {
        return unclear("CUDA_VISIBLE_DEVICES mixes MIG devices and whole GPUs");
    }
    if let Some(uuids) = uuids.filter(|uuids| !uuids.is_empty()) {
        return by_uuid(&uuids, indices.as_deref(), host);
    }
    let map = match indices {
        Some(indices) => by_gres_index(&indices, gres, host),
        None if slurm_job_gpus.is_some() => unclear("SLURM_JOB_GPUS is not a list of numbers"),
        None => match numbers(&visible.join(",")) {
            Some(minors) => by_minor(&minors, host),
            None => unclear("CUDA_VISIBLE_DEVICES is neither numbers nor UUIDs"),
        },
    };
    let several = || "the node has several types of GPU, and a prolog hears of one type only".to_owned();
    let uncertain = map.uncertain.or_else(|| gres.has_several_types().then(several));
    GpuMap { uncertain, ..map }
}

/// Beside a MIG device an index counts MIG devices too, so it names no GPU.
fn mixed(visible: &[&str]) -> bool {
    let mig = visible.iter().filter(|word| word.starts_with("MIG-")).count();
    mig > 0 && mig < visible.len()
}

fn unclear(why: &str) -> GpuMap {
    GpuMap { targets: Vec::new(), uncertain: Some(why.to_owned()) }
}

fn words(list: &str) -> Vec<&str> {
    list.split(',').map(str::trim).filter(|word| !word.is_empty()).take(MAX_GPUS).collect()
}

/// Numbers and ranges, as Slurm prints them: `0,2-3`.
fn numbers(list: &str) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for word in words(list) {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last < first || usize::try_from(last - first).ok()? >= MAX_GPUS {
            return None;
        }
        all.extend(first..=last);
    }
    if all.is_empty() || all.len() > MAX_GPUS { None } else { Some(all) }
}

fn by_uuid(uuids: &[GpuUuid], indices: Option<&[u32]>, host: &HostReading) -> GpuMap {
    // Both lists come from one walk over the job's bits, so they go in parallel if they are of one length.
    let paired = indices.filter(|indices| indices.len() == uuids.len());
    let target = |at: usize, uuid: &GpuUuid| {
        let known = host.driver_gpus.iter().find(|gpu| gpu.uuid.as_ref() == Some(uuid));
        GpuTarget {
            gres_index: paired.and_then(|indices| indices.get(at)).copied().map(GresIndex),
            minor: known.and_then(|gpu| gpu.minor),
            pci: known.map(|gpu| gpu.pci),
            uuid: Some(uuid.clone()),
        }
    };
    GpuMap { targets: uuids.iter().enumerate().map(|(at, uuid)| target(at, uuid)).collect(), uncertain: None }
}

fn by_gres_index(indices: &[u32], gres: &GresConf, host: &HostReading) -> GpuMap {
    if let Some(why) = &gres.unclear {
        return unclear(&format!("gres.conf: {why}"));
    }
    if gres.files.is_empty() && detects(gres) {
        return detected(indices, gres, host);
    }
    let map = by_file(indices, gres, host);
    let detected = detects(gres).then(|| detected(indices, gres, host));
    match detected {
        Some(detected) if !detected.certain() => GpuMap { uncertain: detected.uncertain, ..map },
        // Slurm sorts what it detects by links; only where both orders agree the index is plain.
        Some(detected) if detected.targets != map.targets => {
            GpuMap { uncertain: Some("AutoDetect and File may be in different orders".into()), ..map }
        }
        _ => map,
    }
}

fn detects(gres: &GresConf) -> bool {
    gres.auto_detect.as_deref().is_some_and(|method| method != "off")
}

/// What Slurm detects is in NVML's order, which on all known drivers is that of PCI addresses; nvml.h does not promise it.
///
/// A position tells the GPU only while every GPU is there to be counted, and whole: MIG devices are counted one by one,
/// and their place among the others follows from links that count within one GPU (seen on 22.05.8).
fn detected(indices: &[u32], gres: &GresConf, host: &HostReading) -> GpuMap {
    let mut gpus: Vec<&DriverGpu> = host.driver_gpus.iter().collect();
    gpus.sort_by_key(|gpu| gpu.pci);
    let found = |&index: &u32| gpus.get(usize::try_from(index).ok()?).map(|gpu| target_of(gpu, Some(index)));
    let targets: Vec<GpuTarget> = indices.iter().filter_map(found).collect();
    let uncertain = miscounted(gres, host).or_else(|| missing(indices.len(), targets.len()));
    GpuMap { targets, uncertain }
}

/// Why positions in the driver's list need not be Slurm's.
fn miscounted(gres: &GresConf, host: &HostReading) -> Option<String> {
    let listed = host.driver_gpus.len();
    if host.driver_gpus.iter().any(|gpu| gpu.mig_instances > 0) {
        return Some("MIG devices are counted among the GPUs".to_owned());
    }
    if host.pci_gpus.value().map(Vec::len) != Some(listed) {
        return Some("the driver lists fewer GPUs than PCIe, so positions have shifted".to_owned());
    }
    // A GPU in MIG mode without an instance is none of Slurm's.
    let named = gres.slurm.as_ref().and_then(|slurm| slurm.count);
    let differs = named.filter(|&count| usize::try_from(count) != Ok(listed));
    differs.map(|count| format!("slurm.conf names {count} GPUs and the driver lists {listed}"))
}

fn by_file(indices: &[u32], gres: &GresConf, host: &HostReading) -> GpuMap {
    let found = |&index: &u32| {
        let minor = device_number(gres.files.get(usize::try_from(index).ok()?)?)?;
        with_minor(minor, host).map(|gpu| target_of(gpu, Some(index)))
    };
    let targets: Vec<GpuTarget> = indices.iter().filter_map(found).collect();
    let uncertain = missing(indices.len(), targets.len());
    GpuMap { targets, uncertain }
}

fn by_minor(minors: &[u32], host: &HostReading) -> GpuMap {
    let found = |&minor: &u32| with_minor(minor, host).map(|gpu| target_of(gpu, None));
    let targets: Vec<GpuTarget> = minors.iter().filter_map(found).collect();
    let uncertain = missing(minors.len(), targets.len());
    GpuMap { targets, uncertain }
}

fn missing(wanted: usize, found: usize) -> Option<String> {
    (found < wanted)
        .then(|| format!("{} of the job's {wanted} GPUs are not in the driver's list", wanted - found))
}

fn with_minor(minor: u32, host: &HostReading) -> Option<&DriverGpu> {
    host.driver_gpus.iter().find(|gpu| gpu.minor == Some(minor))
}

fn target_of(gpu: &DriverGpu, gres_index: Option<u32>) -> GpuTarget {
    GpuTarget {
        gres_index: gres_index.map(GresIndex),
        minor: gpu.minor,
        pci: Some(gpu.pci),
        uuid: gpu.uuid.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::PciAddress;
    use crate::model::node_gres::NodeGres;

    const UUID: &str = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f";

    /// Four GPUs whose minors run against their PCI order: 1a=3, 2a=2, 3a=1, 4a=0.
    fn host() -> HostReading {
        let pci = |at: u32| format!("0000:{}a:00.0", at + 1).parse::<PciAddress>().unwrap();
        let gpu = |at: u32| DriverGpu {
            pci: pci(at),
            uuid: Some(format!("{UUID}{at}").parse().unwrap()),
            minor: Some(3 - at),
            mig_instances: 0,
            model: None,
            numa_node: None,
            local_cpus: None,
            link: Default::default(),
            port_link: Default::default(),
            aer: Default::default(),
        };
        HostReading {
            pci_gpus: crate::model::Reading::Value((0..4).map(pci).collect()),
            driver_gpus: (0..4).map(gpu).collect(),
            ..HostReading::default()
        }
    }

    fn pcis(map: &GpuMap) -> Vec<String> {
        map.targets
            .iter()
            .map(|target| target.pci.map_or_else(String::new, |pci| pci.to_string()[5..7].to_owned()))
            .collect()
    }

    fn files() -> GresConf {
        GresConf::parse("Name=gpu File=/dev/nvidia[2,0,1,3]", "n1")
    }

    #[test]
    fn a_gres_index_goes_through_file_and_minor_to_the_pci_address() {
        let map = resolve(Some("0,3"), Some("0,3"), &files(), &host());
        assert!(map.certain());
        assert_eq!(pcis(&map), ["2a", "1a"]);
        assert_eq!(map.targets[0].gres_index, Some(GresIndex(0)));
        assert_eq!(map.targets[0].minor, Some(2));
        assert_eq!(pcis(&resolve(Some("0-2"), None, &files(), &host())), ["2a", "4a", "3a"]);
    }

    #[test]
    fn uuids_win_over_indices_and_mig_uuids_are_kept() {
        let visible = format!("{UUID}1,{UUID}0");
        let map = resolve(Some("2,3"), Some(&visible), &files(), &host());
        assert_eq!(pcis(&map), ["2a", "1a"]);
        assert_eq!(map.targets[1].gres_index, Some(GresIndex(3)));
        let map = resolve(Some("5"), Some("MIG-8932f937-d72c-4106-c12f-20bd9faed9f6"), &files(), &host());
        assert!(
            map.certain() && map.targets[0].uuid.as_ref().unwrap().is_mig() && map.targets[0].pci.is_none()
        );
    }

    #[test]
    fn under_autodetect_positions_count_in_pci_order_while_all_gpus_are_there() {
        let gres = GresConf::parse("AutoDetect=nvml", "n1");
        assert_eq!(pcis(&resolve(Some("1,3"), Some("1,3"), &gres, &host())), ["2a", "4a"]);
        let mut fewer = host();
        fewer.driver_gpus.remove(0);
        assert!(!resolve(Some("1"), Some("1"), &gres, &fewer).certain());
    }

    #[test]
    fn without_slurm_job_gpus_the_numbers_are_minors() {
        assert_eq!(pcis(&resolve(None, Some("0,3"), &files(), &host())), ["4a", "1a"]);
    }

    #[test]
    fn beside_mig_devices_only_a_uuid_tells_which_gpu_it_is() {
        let gres = GresConf::parse("AutoDetect=nvml", "n1");
        let mut host = host();
        assert!(resolve(Some("1"), Some("1"), &gres, &host).certain());
        host.driver_gpus[3].mig_instances = 2;
        assert!(!resolve(Some("1"), Some("1"), &gres, &host).certain());
        assert!(resolve(Some("1"), Some(&format!("{UUID}1")), &gres, &host).certain());
        assert!(resolve(Some("1"), Some("1"), &files(), &host).certain(), "the file names the device");
        let both = GresConf::parse("AutoDetect=nvml\nName=gpu File=/dev/nvidia[3,2,1,0]", "n1");
        assert!(!resolve(Some("1"), Some("1"), &both, &host).certain());
    }

    #[test]
    fn a_number_of_gpus_other_than_slurms_means_that_it_counts_something_else() {
        // A GPU in MIG mode without an instance is no device of Slurm's: the indices behind it move up.
        let node = |text: &str| GresConf {
            slurm: NodeGres::parse(text, "n1"),
            ..GresConf::parse("AutoDetect=nvml", "n1")
        };
        for (gpus, certain) in [(3, false), (4, true), (5, false)] {
            let gres = node(&format!("NodeName=n1 Gres=gpu:{gpus}"));
            assert_eq!(resolve(Some("1"), Some("1"), &gres, &host()).certain(), certain, "{gpus}");
        }
        assert!(resolve(Some("1"), Some("1"), &node("NodeName=n1"), &host()).certain());
    }

    #[test]
    fn on_a_node_with_several_types_a_job_may_have_more_than_its_variables_say() {
        let types = NodeGres::parse("NodeName=n1 Gres=gpu:l40s:2,gpu:h100:2", "n1");
        for conf in ["AutoDetect=nvml", "Name=gpu File=/dev/nvidia[0-3]"] {
            let gres = GresConf { slurm: types.clone(), ..GresConf::parse(conf, "n1") };
            let map = resolve(Some("1"), Some("1"), &gres, &host());
            assert!(!map.certain() && map.targets.len() == 1, "{conf}");
            assert!(resolve(Some("1"), Some(&format!("{UUID}1")), &gres, &host()).certain(), "{conf}");
        }
        let in_gres_conf = "AutoDetect=nvml\nName=gpu Type=l40s\nName=gpu Type=h100";
        assert!(!resolve(Some("1"), Some("1"), &GresConf::parse(in_gres_conf, "n1"), &host()).certain());
    }

    #[test]
    fn what_cannot_be_resolved_is_uncertain_not_guessed() {
        let gone = HostReading { driver_gpus: host().driver_gpus[1..].to_vec(), ..host() };
        let map = resolve(Some("3,0"), Some("3,0"), &files(), &gone);
        assert!(!map.certain());
        assert_eq!(pcis(&map), ["2a"]);
        for (gpus, visible) in [
            (Some("x"), None),
            (None, Some("a")),
            (Some("9"), None),
            (Some("0-9999999"), None),
            (None, None),
            (Some(""), Some("")),
        ] {
            assert!(!resolve(gpus, visible, &files(), &host()).certain(), "{gpus:?} {visible:?}");
        }
        assert!(!resolve(Some("0"), None, &GresConf::default(), &host()).certain());
        let mixed = format!("MIG-8932f937-d72c-4106-c12f-20bd9faed9f6,{}", 2);
        assert!(!resolve(Some("0,2"), Some(&mixed), &files(), &host()).certain());
        for conf in [
            "Name=gpu Type=a100 File=/dev/nvidia[0-1]\nName=gpu Type=v100 File=/dev/nvidia[2-3]",
            "AutoDetect=nvml\nName=gpu File=/dev/nvidia[0-3]",
            "Name=gpu File = /dev/nvidia[0-3]",
        ] {
            assert!(
                !resolve(Some("0"), Some("0"), &GresConf::parse(conf, "n1"), &host()).certain(),
                "{conf}"
            );
        }
        let agree = GresConf::parse("AutoDetect=nvml\nName=gpu File=/dev/nvidia[3,2,1,0]", "n1");
        assert!(resolve(Some("0"), Some("0"), &agree, &host()).certain());
    }

    #[test]
    fn an_admin_names_gpus_by_number_address_or_uuid() {
        let target = |minor: u32| GpuTarget {
            minor: Some(minor),
            pci: format!("0000:{minor}b:00.0").parse().ok(),
            uuid: format!("GPU-{minor}932f937-d72c-4106-c12f-20bd9faed9f6").parse().ok(),
            ..GpuTarget::default()
        };
        let map = GpuMap { targets: (0..4).map(target).collect(), uncertain: None };
        let only = |names: &[&str]| {
            let names: Vec<GpuName> = names.iter().map(|name| name.parse().unwrap()).collect();
            let map = map.clone().only(&names).map_err(|error| error.to_string())?;
            Ok::<_, String>(map.targets.iter().filter_map(|target| target.minor).collect::<Vec<u32>>())
        };
        assert_eq!(only(&[]), Ok(vec![0, 1, 2, 3]));
        assert_eq!(only(&["3", "GPU-1932f937", "0000:0B:00.0"]), Ok(vec![0, 1, 3]));
        let says = "this node shows no GPU 7; by the number in /dev/nvidiaN there are 0, 1, 2, 3";
        assert_eq!(only(&["7"]), Err(says.to_owned()));
        for text in ["", "+1", "-1", "x", "MIG-8932f937-d72c", "3b:00.0"] {
            assert!(text.parse::<GpuName>().is_err(), "{text}");
        }
    }
}
