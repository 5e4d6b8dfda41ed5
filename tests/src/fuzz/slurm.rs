//! What Slurm's files, programs and variables say.

use super::{MAX_INPUT_BYTES, shown, text};
use gpuward_core::drain::parse_show_node;
use gpuward_core::model::gpu_map::resolve;
use gpuward_core::model::gres_conf::{GresConf, device_number};
use gpuward_core::model::snapshot::{DriverGpu, HostReading};
use gpuward_core::model::{PciAddress, Reading};
use gpuward_core::slurm_conf::{Change, Release, Site, generate};

pub const GRES_WORDS: &[&str] = &[
    "NodeName=n[1-2] ",
    "Name=gpu ",
    "Type=h100 ",
    "File=/dev/nvidia[0-7]\n",
    "File=/dev/nvidia3 ",
    "AutoDetect=nvml\n",
    "include x\n",
    "\\\n",
    "#",
    "Count=8 ",
    "MultipleFiles=/dev/nvidia0 ",
    "Name=gpu File=[0-65535]\n",
    "NodeName=[0-65535] Name=gpu\n",
    "0-3,7",
    "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",
    "MIG-",
];

/// The files are no more than names say, what is unclear counts nothing, and a job's GPUs come from it without doubt only
/// where each was found. The first line may be what a job's variables hold.
pub fn gres_conf(data: &[u8]) {
    let text = text(data);
    let conf = GresConf::parse(&text, "n1");
    let bytes: usize = conf.files.iter().map(String::len).sum();
    assert!(
        conf.files.len() <= 1024 && bytes <= 32 * MAX_INPUT_BYTES,
        "{} files, {bytes} bytes",
        conf.files.len()
    );
    if let Some(why) = &conf.unclear {
        shown("why it is unclear", why, 300);
        assert_eq!(conf.gpu_count(), None);
    }
    let numbers: Vec<Option<u32>> = conf.files.iter().map(|file| device_number(file)).collect();
    let line = text.lines().next().unwrap_or_default();
    let host = host();
    for (gpus, visible) in
        [(Some(line), None), (None, Some(line)), (Some("0-3"), Some(line)), (Some("0,3"), None)]
    {
        let map = resolve(gpus, visible, &conf, &host);
        assert!(map.targets.len() <= 1024);
        if map.certain() {
            assert!(!map.targets.is_empty());
            let known = |minor: u32| numbers.is_empty() || gpus.is_none() || numbers.contains(&Some(minor));
            assert!(
                map.targets
                    .iter()
                    .filter(|target| target.uuid.is_none())
                    .filter_map(|target| target.minor)
                    .all(known)
            );
        }
        map.uncertain.iter().for_each(|why| shown("why it is uncertain", why, 400));
    }
}

fn host() -> HostReading {
    let pci = |bus: u8| PciAddress { domain: 0, bus, device: 0, function: 0 };
    let gpu = |minor: u32, bus: u8| DriverGpu {
        pci: pci(bus),
        uuid: None,
        minor: Some(minor),
        model: None,
        numa_node: None,
        local_cpus: None,
        link: Default::default(),
        port_link: Default::default(),
        aer: Reading::NotRead,
        mig_instances: 0,
    };
    let gpus = [(0, 0x1a), (1, 0x2a), (2, 0x3a), (3, 0x4a)];
    HostReading {
        pci_gpus: Reading::Value(gpus.iter().map(|(_, bus)| pci(*bus)).collect()),
        driver_gpus: gpus.iter().map(|(minor, bus)| gpu(*minor, *bus)).collect(),
        ..HostReading::default()
    }
}

pub const CONF_WORDS: &[&str] = &[
    "slurm-wlm 22.05.8\n",
    "24.11",
    "PrologFlags+=RunInJob\n",
    "SchedulerParameters+=bf_interval=1\n",
    "Prolog=/x\n",
    "MessageTimeout=5\n",
    "State=IDLE+DRAIN ",
    " Reason=x y [root@2026-01-01T00:00:00]\n",
    "=",
    "+=",
];

/// The first line is Slurm's release, the others are changes to the text for slurm.conf and lines of `scontrol show node`.
pub fn slurm_conf(data: &[u8]) {
    let text = text(data);
    let mut changes = Vec::new();
    for line in text.split('\n').skip(1) {
        match Change::parse(line) {
            Ok(change) if changes.len() < 32 => changes.push(change),
            Ok(_) => {}
            Err(error) => shown("the error", &error.to_string(), 300),
        }
        if let Some(state) = parse_show_node(line) {
            assert!(
                line.contains(&state.state)
                    && state.reason.as_ref().is_none_or(|reason| line.contains(reason))
            );
            let _ = state.is_out_of_service();
        }
    }
    let release = text.lines().next().map(Release::parse);
    let release = match release {
        Some(Ok(release)) => release,
        Some(Err(error)) => return shown("the error", &error.to_string(), 300),
        None => return,
    };
    assert_eq!(Release::parse(&release.to_string()), Ok(release));
    match generate(release, &Site { changes, ..Site::default() }) {
        Ok(conf) => conf_is_sound(&conf, release),
        Err(error) => shown("the error", &error.to_string(), 1024),
    }
}

/// No change opens a line of its own, or hides the next.
fn conf_is_sound(conf: &str, release: Release) {
    let plain = generate(release, &Site::default()).unwrap_or_default();
    assert_eq!(conf.lines().count(), plain.lines().count());
    for line in conf.lines() {
        assert!(!line.contains(char::is_control) && !line.ends_with('\\'), "{line:?}");
    }
}
