//! The PCI tree, and what hangs on it: /sys/bus/pci, /sys/class/infiniband, /sys/class/net, /sys/module.

use super::Tree;
use crate::scenario::{CpuList, Gpu, Machine, Nic, PciAddress, ScenarioError};

/// A function as sysfs shows it.
struct Function {
    at: PciAddress,
    /// Port above; none for root ports.
    under: Option<PciAddress>,
    /// Vendor in the upper half, device in the lower.
    id: u32,
    class: u32,
    driver: Option<String>,
    /// Generation and width now, and at most.
    link: [u32; 4],
}

const BRIDGE: u32 = 0x0006_0400;
const GPU_3D: u32 = 0x0003_0200;
const AUDIO: u32 = 0x0004_0300;
const NVSWITCH: u32 = 0x0006_8000;
const INFINIBAND: u32 = 0x0002_0700;
const ETHERNET: u32 = 0x0002_0000;

/// A server's root port and a PCIe 5.0 switch, as found under H100 boards.
const ROOT_PORT_ID: u32 = 0x8086_352a;
const SWITCH_ID: u32 = 0x1000_c030;
const NVSWITCH_ID: u32 = 0x10de_22a3;
/// The sound function of AD102 boards.
const AUDIO_ID: u32 = 0x10de_22ba;

const GEN5_X16: [u32; 4] = [5, 16, 5, 16];
const GEN4_X4: [u32; 4] = [4, 4, 4, 4];

pub(super) fn render(machine: &Machine, tree: &mut Tree) -> Result<(), ScenarioError> {
    for function in functions(machine) {
        one(machine, &function, tree)?;
    }
    for gpu in &machine.gpus {
        gpu_extras(machine, gpu, tree)?;
    }
    for nic in &machine.nics {
        rdma(machine, nic, tree)?;
    }
    modules(machine, tree)
}

fn functions(machine: &Machine) -> Vec<Function> {
    let port = |at, under, id, link| Function {
        at,
        under,
        id,
        class: BRIDGE,
        driver: Some("pcieport".into()),
        link,
    };
    let nvidia = |name: &str| machine.driver.loaded.then(|| name.to_owned());
    let mut all: Vec<Function> = machine
        .root_ports
        .iter()
        .filter(|root| !root.bare)
        .map(|root| port(root.at, None, ROOT_PORT_ID, port_link(machine, root.at)))
        .collect();
    for switch in &machine.switches {
        all.push(port(switch.up, Some(switch.under), SWITCH_ID, GEN5_X16));
        let down = switch.down.iter();
        all.extend(down.map(|&at| port(at, Some(switch.up), SWITCH_ID, port_link(machine, at))));
    }
    let nvswitches = machine.nvswitches.iter().filter(|switch| switch.under.is_some());
    all.extend(nvswitches.map(|switch| Function {
        at: switch.pci,
        under: switch.under,
        id: NVSWITCH_ID,
        class: NVSWITCH,
        driver: nvidia("nvidia-nvswitch"),
        link: GEN4_X4,
    }));
    all.extend(machine.nics.iter().map(|nic| Function {
        at: nic.pci,
        under: Some(nic.under),
        id: nic.pci_id,
        class: if nic.link_layer == "InfiniBand" { INFINIBAND } else { ETHERNET },
        driver: Some(nic.driver.clone()),
        link: GEN5_X16,
    }));
    for gpu in &machine.gpus {
        let link = gpu_link(gpu, gpu.pcie.gpu_max_generation);
        let own = Function {
            at: gpu.pci,
            under: Some(gpu.under),
            // NVML's word holds them the other way round.
            id: gpu.pci_device_id.rotate_left(16),
            class: gpu.pci_class.unwrap_or(GPU_3D),
            driver: nvidia("nvidia"),
            link,
        };
        all.push(own);
        if gpu.audio {
            let at = PciAddress { function: 1, ..gpu.pci };
            let driver = Some("snd_hda_intel".to_owned());
            all.push(Function { at, under: Some(gpu.under), id: AUDIO_ID, class: AUDIO, driver, link });
        }
    }
    all
}

/// The link of a GPU, seen from an end with this highest generation.
fn gpu_link(gpu: &Gpu, max_generation: u32) -> [u32; 4] {
    let now = if gpu.busy { gpu.pcie.generation } else { gpu.pcie.idle_generation };
    [now, gpu.pcie.width, max_generation, gpu.pcie.max_width]
}

/// A port shows the link of the GPU that is plugged in there.
fn port_link(machine: &Machine, at: PciAddress) -> [u32; 4] {
    let gpu = machine.gpus.iter().find(|gpu| gpu.under == at);
    gpu.map_or(GEN5_X16, |gpu| gpu_link(gpu, gpu.pcie.max_generation))
}

/// Folder of a function below the root, `sys/devices/pci0000:16/0000:16:01.0/...`.
fn folder(machine: &Machine, at: PciAddress, under: Option<PciAddress>) -> String {
    let mut above = under.map_or_else(Vec::new, |port| machine.ports_above(port));
    // On a root bus itself there is no port above.
    above.retain(|&port| !machine.root_ports.iter().any(|root| root.bare && root.at == port));
    let root = above.first().copied().unwrap_or(at);
    let mut path = format!("sys/devices/{}", root.root_bus());
    for address in above.into_iter().chain([at]) {
        path = format!("{path}/{address}");
    }
    path
}

/// From a folder of that path up to `sys`.
fn up_to_sys(folder: &str) -> String {
    "../".repeat(folder.matches('/').count())
}

fn one(machine: &Machine, function: &Function, tree: &mut Tree) -> Result<(), ScenarioError> {
    let Function { at, under, id, class, ref driver, link: [generation, width, max_generation, max_width] } =
        *function;
    let folder = folder(machine, at, under);
    let node = machine.numa_under(under.unwrap_or(at));
    let near = match node.and_then(|node| machine.numa_node(node)) {
        Some(node) => node.cpus.clone(),
        None => (0..machine.cpu.count()).collect::<CpuList>(),
    };
    tree.file(&format!("{folder}/vendor"), format_args!("{:#06x}", id >> 16))?;
    tree.file(&format!("{folder}/device"), format_args!("{:#06x}", id & 0xffff))?;
    tree.file(&format!("{folder}/class"), format_args!("{class:#08x}"))?;
    tree.file(&format!("{folder}/numa_node"), node.map_or_else(|| "-1".to_owned(), |node| node.to_string()))?;
    tree.file(&format!("{folder}/local_cpulist"), near)?;
    tree.file(&format!("{folder}/current_link_speed"), speed(generation))?;
    tree.file(&format!("{folder}/current_link_width"), width)?;
    tree.file(&format!("{folder}/max_link_speed"), speed(max_generation))?;
    tree.file(&format!("{folder}/max_link_width"), max_width)?;
    let target = folder.trim_start_matches("sys/");
    tree.link(&format!("sys/bus/pci/devices/{at}"), &format!("../../../{target}"))?;
    if let Some(driver) = driver {
        tree.link(&format!("{folder}/driver"), &format!("{}bus/pci/drivers/{driver}", up_to_sys(&folder)))?;
        tree.link(&format!("sys/bus/pci/drivers/{driver}/{at}"), &format!("../../../../{target}"))?;
    }
    Ok(())
}

fn speed(generation: u32) -> &'static str {
    match generation {
        1 => "2.5 GT/s PCIe",
        2 => "5.0 GT/s PCIe",
        3 => "8.0 GT/s PCIe",
        4 => "16.0 GT/s PCIe",
        5 => "32.0 GT/s PCIe",
        6 => "64.0 GT/s PCIe",
        _ => "Unknown",
    }
}

/// BARs, and AER counters of the GPU and of the port above it.
fn gpu_extras(machine: &Machine, gpu: &Gpu, tree: &mut Tree) -> Result<(), ScenarioError> {
    let own = folder(machine, gpu.pci, Some(gpu.under));
    let port = own.rsplit_once('/').map(|(above, _)| above).filter(|_| gpu.under != gpu.pci);
    for (name, (total, count)) in [
        ("aer_dev_correctable", ("TOTAL_ERR_COR", gpu.pcie.aer[0])),
        ("aer_dev_nonfatal", ("TOTAL_ERR_NONFATAL", gpu.pcie.aer[1])),
        ("aer_dev_fatal", ("TOTAL_ERR_FATAL", gpu.pcie.aer[2])),
    ] {
        tree.file(&format!("{own}/{name}"), format_args!("{total} {count}"))?;
        if let Some(port) = port {
            tree.file(&format!("{port}/{name}"), format_args!("{total} 0"))?;
        }
    }
    let base = 0x2000_0000_0000_u64 + (u64::from(gpu.pci.bus) << 38);
    let bar =
        |start: u64, size: u64, flags: u64| format!("{start:#018x} {:#018x} {flags:#018x}", start + size - 1);
    let none = format!("{0:#018x} {0:#018x} {0:#018x}", 0);
    let bar1 =
        if gpu.memory.bar1_mib == 0 { none.clone() } else { bar(base, gpu.memory.bar1_mib << 20, 0x14_220c) };
    let lines = [bar(0x9000_0000, 16 << 20, 0x4_0200), bar1, none.clone(), none];
    tree.file(&format!("{own}/resource"), lines.join("\n"))
}

fn rdma(machine: &Machine, nic: &Nic, tree: &mut Tree) -> Result<(), ScenarioError> {
    let pci = folder(machine, nic.pci, Some(nic.under));
    let folder = format!("{pci}/infiniband/{}", nic.name);
    let (state, phys) = if nic.active { ("4: ACTIVE", "5: LinkUp") } else { ("1: DOWN", "3: Disabled") };
    let port = format!("{folder}/ports/1");
    let lanes = match nic.rate_gbps {
        0..=100 => "4X EDR",
        101..=200 => "4X HDR",
        201..=400 => "4X NDR",
        _ => "4X XDR",
    };
    tree.link(&format!("{folder}/device"), &format!("../../../{}", nic.pci))?;
    tree.file(&format!("{port}/state"), state)?;
    tree.file(&format!("{port}/phys_state"), phys)?;
    tree.file(&format!("{port}/rate"), format_args!("{} Gb/sec ({lanes})", nic.rate_gbps))?;
    tree.file(&format!("{port}/link_layer"), &nic.link_layer)?;
    let target = folder.trim_start_matches("sys/");
    tree.link(&format!("sys/class/infiniband/{}", nic.name), &format!("../../{target}"))?;
    let Some(net) = &nic.net else { return Ok(()) };
    let folder = format!("{pci}/net/{net}");
    let (operstate, mbps) = if nic.active { ("up", i64::from(nic.rate_gbps) * 1000) } else { ("down", -1) };
    tree.link(&format!("{folder}/device"), &format!("../../../{}", nic.pci))?;
    tree.file(&format!("{folder}/operstate"), operstate)?;
    tree.file(&format!("{folder}/speed"), mbps)?;
    let target = folder.trim_start_matches("sys/");
    tree.link(&format!("sys/class/net/{net}"), &format!("../../{target}"))
}

fn modules(machine: &Machine, tree: &mut Tree) -> Result<(), ScenarioError> {
    tree.folder("sys/module")?;
    for name in super::procfs::loaded_modules(machine) {
        let folder = format!("sys/module/{name}");
        let ours = name.starts_with("nvidia");
        tree.file(&format!("{folder}/initstate"), "live")?;
        tree.file(&format!("{folder}/refcnt"), if ours { 8 } else { 0 })?;
        tree.file(&format!("{folder}/taint"), if ours { "POE" } else { "" })?;
        if ours {
            tree.file(&format!("{folder}/version"), &machine.driver.version)?;
        }
    }
    Ok(())
}
