//! A machine from a snapshot of a node.

use super::of_topology::reloaded;
use super::{Imported, address, cpu_list};
use gpuward_core::model::detail::{
    ClockReading, FabricReading, GpuDetail, MigDeviceReading, NvLinkReading, ProcessReading,
};
use gpuward_core::model::platform::PlatformReading;
use gpuward_core::model::snapshot::ProbedGpu;
use gpuward_core::model::topology::{Core, HostLayout, PciFunction};
use gpuward_core::model::{Counters, GpuReading, Reading, SnapshotFile};
use nvidia_ml::scenario::{
    Accounting, Clocks, Cpu, CpuNumbering, Driver, Ecc, EccCounts, Fabric, Gpu, Isa, LinkErrors, LinkGroup,
    Machine, Memory, Mig, MigDevice, Nic, NumaNode, NvLink, NvSwitch, PciAddress, Pcie, PcieSwitch, Power,
    Process, ProcessKind, Remap, Retired, RootPort, Temp,
};
use std::collections::BTreeMap;

/// The machine that a snapshot shows, at rest as it was then.
///
/// # Errors
/// The snapshot does not have what a machine needs, or contradicts itself.
pub fn of_snapshot(file: &SnapshotFile) -> Result<Imported, String> {
    let snapshot = &file.snapshot;
    let layout = snapshot.host.layout.as_ref().ok_or("the layout of the machine was not read")?;
    let mut notes = Vec::new();
    let mut pci = PciTree::of(layout)?;
    let mut gpus: Vec<Gpu> = snapshot
        .gpus
        .iter()
        .enumerate()
        .map(|(slot, gpu)| gpu_of(slot, gpu, snapshot.boottime_ns, &pci, &mut notes))
        .collect::<Result<_, String>>()?;
    for gpu in &mut gpus {
        // Told of the GPU and its port together.
        let known = snapshot.host.driver_gpus.iter().find(|known| address(known.pci) == gpu.pci);
        gpu.pcie.aer = known.map_or([0; 3], |known| or_zero(&known.aer));
    }
    pci.add_unseen_switches(&gpus);
    let machine = Machine {
        name: file.node.clone(),
        boot_id: snapshot.boot_id.clone(),
        driver: driver(file, &mut notes),
        cpu: Cpu { isa: isa(&snapshot.host.platform), ..cpu(layout, &mut notes)? },
        numa: numa(layout)?,
        root_ports: pci.root_ports,
        switches: pci.switches,
        nvswitches: pci.nvswitches,
        nics: nics(layout),
        gpus,
        hypervisor: file.snapshot.host.platform.virtual_machine.value() == Some(&true),
        ..Machine::default()
    };
    Ok(Imported { machine: reloaded(&machine)?, notes })
}

fn driver(file: &SnapshotFile, notes: &mut Vec<String>) -> Driver {
    let (host, node) = (&file.snapshot.host, &file.snapshot.node);
    let module = host.module_version.value().cloned();
    let library = node.driver_version.value().cloned();
    // NVML's own version is the CUDA release that it came with, then the driver's version.
    let nvml = node.nvml_version.value().and_then(|version| version.split('.').next()?.parse::<i32>().ok());
    notes.push("of the CUDA version a snapshot tells the major number only".to_owned());
    let version = module.or_else(|| library.clone()).unwrap_or_default();
    Driver {
        library_version: library.filter(|library| *library != version),
        version,
        cuda: nvml.map_or(0, |major| major * 1000),
        loaded: host.module_loaded.value() != Some(&false),
        fabric_manager: host.fabric_manager.value().copied(),
        missing_symbols: missing_symbols(file),
        modules: modules(&host.platform),
        ..Driver::default()
    }
}

/// The usual modules of the driver, as far as the snapshot does not say otherwise.
fn modules(platform: &PlatformReading) -> Vec<String> {
    let mut modules = Driver::default().modules;
    modules.retain(|name| name != "nvidia_uvm" || platform.uvm != Reading::Value(false));
    modules.extend((platform.peermem == Reading::Value(true)).then(|| "nvidia_peermem".to_owned()));
    modules
}

/// Functions that every board answers where the driver has them: what all GPUs call "not supported" is not there.
fn missing_symbols(file: &SnapshotFile) -> Vec<String> {
    type Told = fn(&GpuDetail) -> bool;
    let has_ecc = |detail: &GpuDetail| detail.ecc.enabled.value() == Some(&true);
    let functions: [(&str, Told); 7] = [
        ("nvmlDeviceGetArchitecture", |detail| detail.board.architecture == Reading::NotSupported),
        ("nvmlDeviceGetSramEccErrorStatus", |detail| {
            detail.ecc.sram_aggregate_uncorr == Reading::NotSupported
        }),
        ("nvmlDeviceGetMarginTemperature", |detail| detail.temp.margin_c == Reading::NotSupported),
        ("nvmlGpmQueryDeviceSupport", |detail| detail.gpm == Reading::NotSupported),
        ("nvmlDeviceGetMemoryInfo_v2", |detail| detail.memory.total_mib == Reading::NotSupported),
        ("nvmlDeviceGetGpuMaxPcieLinkGeneration", |detail| {
            detail.pcie.gpu_max_generation == Reading::NotSupported
        }),
        ("nvmlDeviceGetComputeRunningProcesses_v3", |detail| detail.processes == Reading::NotSupported),
    ];
    let details: Vec<&GpuDetail> =
        file.snapshot.gpus.iter().filter_map(|gpu| gpu.reading.detail.as_deref()).collect();
    let missing = |(name, told): &(&str, Told)| {
        let applies =
            *name != "nvmlDeviceGetSramEccErrorStatus" || details.iter().any(|detail| has_ecc(detail));
        applies && !details.is_empty() && details.iter().all(|detail| told(detail))
    };
    functions.iter().filter(|function| missing(function)).map(|(name, _)| (*name).to_owned()).collect()
}

/// Only POWER says nothing about virtual machines; Arm is taken for x86, which says the same.
fn isa(platform: &PlatformReading) -> Isa {
    if platform.virtual_machine == Reading::NotSupported { Isa::Ppc64le } else { Isa::X86 }
}

/// The numbering that gives the cores as they were read, if there is one.
fn cpu(layout: &HostLayout, notes: &mut Vec<String>) -> Result<Cpu, String> {
    let cores = layout.cores.value().filter(|cores| !cores.is_empty()).ok_or("the CPUs were not read")?;
    let sockets =
        u32_of(cores.iter().map(|core| core.package).collect::<std::collections::BTreeSet<_>>().len());
    let threads_per_core = cores.iter().map(|core| u32_of(core.cpus.len())).max().unwrap_or(1);
    let cores_per_socket = u32_of(cores.len()) / sockets;
    let l3 = cores.iter().filter_map(|core| core.l3_cpus.as_ref()).map(|cpus| u32_of(cpus.len())).max();
    let cpu = |numbering| Cpu {
        sockets,
        cores_per_socket,
        threads_per_core,
        cores_per_l3: l3.map_or(cores_per_socket, |cpus| cpus / threads_per_core),
        numbering,
        ..Cpu::default()
    };
    let known = [CpuNumbering::ThreadsLast, CpuNumbering::ThreadsTogether, CpuNumbering::SocketsInterleaved];
    let found = known.into_iter().map(cpu).find(|cpu| cores.iter().all(|core| fits(*cpu, core)));
    if found.is_none() {
        notes.push("CPUs are numbered as no scenario can say: the second threads were put last".to_owned());
    }
    Ok(found.unwrap_or_else(|| cpu(CpuNumbering::ThreadsLast)))
}

fn fits(cpu: Cpu, core: &Core) -> bool {
    let mut threads = core.cpus.iter();
    let Some(first) = threads.next() else { return false };
    let same = threads.all(|thread| cpu.core_of(thread) == cpu.core_of(first));
    same && cpu.socket_of(first) == core.package && core.cpus.iter().all(|thread| thread < cpu.count())
}

fn u32_of(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn numa(layout: &HostLayout) -> Result<Vec<NumaNode>, String> {
    let nodes = layout.numa.value().ok_or("the NUMA nodes were not read")?;
    let node = |node: &gpuward_core::model::topology::NumaNode| NumaNode {
        node: node.node,
        cpus: cpu_list(&node.cpus),
        memory_mib: node.memory_mib,
        distances: node.distances.clone(),
    };
    Ok(nodes.iter().map(node).collect())
}

/// Bridges that something of interest is below.
struct PciTree {
    functions: BTreeMap<PciAddress, PciFunction>,
    root_ports: Vec<RootPort>,
    switches: Vec<PcieSwitch>,
    nvswitches: Vec<NvSwitch>,
}

impl PciTree {
    fn of(layout: &HostLayout) -> Result<PciTree, String> {
        let all = layout.pci.value().ok_or("the PCI tree was not read")?;
        let functions: BTreeMap<PciAddress, PciFunction> =
            all.iter().map(|function| (address(function.at), function.clone())).collect();
        let mut tree =
            PciTree { functions, root_ports: Vec::new(), switches: Vec::new(), nvswitches: Vec::new() };
        let nics: Vec<PciAddress> =
            layout.nics.value().into_iter().flatten().filter_map(|nic| nic.pci.map(address)).collect();
        let of_interest = |function: &&PciFunction| {
            let nvidia = function.id >> 16 == 0x10de && function.class >> 8 != 0x0604;
            nvidia || nics.contains(&address(function.at))
        };
        for function in all.iter().filter(of_interest) {
            let at = address(function.at);
            tree.keep_above(at);
            if function.class >> 8 == 0x0680 {
                tree.nvswitches.push(NvSwitch { pci: at, under: Some(tree.port_above(at)) });
            }
        }
        Ok(tree)
    }

    fn numa(&self, at: PciAddress) -> i32 {
        let node = self.functions.get(&at).and_then(|function| function.numa_node);
        node.and_then(|node| i32::try_from(node).ok()).unwrap_or(-1)
    }

    /// The PCIe generation that a device can do, by the kernel's word for its speed.
    fn max_generation(&self, at: PciAddress) -> Option<u32> {
        let speed = self.functions.get(&at)?.link.max_speed.as_deref()?;
        let known = ["2.5", "5.0", "8.0", "16.0", "32.0", "64.0"];
        let place = known.iter().position(|known| speed.split(' ').next() == Some(known))?;
        Some(u32_of(place) + 1)
    }

    /// The bridge above, or the device itself where it sits on a root bus.
    fn port_above(&self, at: PciAddress) -> PciAddress {
        self.functions.get(&at).and_then(|function| function.above).map_or(at, address)
    }

    /// Takes over the bridges above a device, from the root down.
    fn keep_above(&mut self, device: PciAddress) {
        let mut way = Vec::new();
        let mut at = device;
        // A PCI tree is a few bridges deep.
        while let Some(above) =
            self.functions.get(&at).and_then(|function| function.above).filter(|_| way.len() < 32)
        {
            at = address(above);
            way.push(at);
        }
        way.reverse();
        let Some((&root, below)) = way.split_first() else {
            let bare = RootPort { at: device, numa: self.numa(device), bare: true };
            return self.root_ports.push(bare);
        };
        if !self.root_ports.iter().any(|port| port.at == root) {
            self.root_ports.push(RootPort { at: root, numa: self.numa(root), bare: false });
        }
        let mut under = root;
        for pair in below.chunks(2) {
            let [up, down] = pair else { break };
            match self.switches.iter_mut().find(|switch| switch.up == *up) {
                Some(switch) if switch.down.contains(down) => {}
                Some(switch) => switch.down.push(*down),
                None => self.switches.push(PcieSwitch { under, up: *up, down: vec![*down] }),
            }
            under = *down;
        }
    }

    /// NVSwitches that links end at, but that are no PCI device of this machine, as in a virtual one.
    fn add_unseen_switches(&mut self, gpus: &[Gpu]) {
        let gpu_at: Vec<PciAddress> = gpus.iter().map(|gpu| gpu.pci).collect();
        for end in gpus.iter().flat_map(|gpu| gpu.nvlink.links.iter().map(|group| group.to)) {
            if !gpu_at.contains(&end) && !self.nvswitches.iter().any(|switch| switch.pci == end) {
                self.nvswitches.push(NvSwitch { pci: end, under: None });
            }
        }
    }
}

fn nics(layout: &HostLayout) -> Vec<Nic> {
    let pci = layout.pci.value().map_or(&[][..], Vec::as_slice);
    let nic = |nic: &gpuward_core::model::topology::NicReading| {
        let function = pci.iter().find(|function| Some(function.at) == nic.pci)?;
        Some(Nic {
            name: nic.name.clone(),
            pci: address(function.at),
            under: address(function.above.unwrap_or(function.at)),
            net: nic.net.clone(),
            link_layer: nic.link_layer.clone().unwrap_or_else(|| "Unknown".to_owned()),
            rate_gbps: nic.rate.as_deref().and_then(|rate| rate.split(' ').next()?.parse().ok()).unwrap_or(0),
            active: nic.state.as_deref().is_some_and(|state| state.contains("ACTIVE")),
            pci_id: function.id,
            driver: "mlx5_core".to_owned(),
        })
    };
    layout.nics.value().into_iter().flatten().filter_map(nic).collect()
}

fn value<T: Clone>(reading: &Reading<T>) -> Option<T> {
    reading.value().cloned()
}

fn or_zero<T: Clone + Default>(reading: &Reading<T>) -> T {
    value(reading).unwrap_or_default()
}

fn gpu_of(
    slot: usize,
    probed: &ProbedGpu,
    boottime_ns: u64,
    pci: &PciTree,
    notes: &mut Vec<String>,
) -> Result<Gpu, String> {
    let at = probed.pci().ok_or("a GPU without a PCI address")?;
    let reading = &probed.reading;
    let Some(detail) = &reading.detail else {
        return Err(format!("the GPU at {at} did not say enough: {:?}", reading.handle));
    };
    let idle_pcie = or_zero(&detail.pcie.generation);
    let slot = u32_of(slot);
    if detail.memory.total_mib.value().is_none() {
        notes.push(format!("the GPU at {at} does not tell its memory: 1 MiB stands for it"));
    }
    Ok(Gpu {
        slot: Some(slot),
        uuid: probed.uuid().map(ToString::to_string).unwrap_or_default(),
        serial: value(&reading.serial),
        pci: address(at),
        under: pci.port_above(address(at)),
        minor: value(&reading.minor).unwrap_or(slot),
        name: or_zero(&reading.model),
        brand: or_zero(&detail.board.brand),
        architecture: or_zero(&detail.board.architecture),
        compute_capability: or_zero(&detail.board.compute_capability),
        vbios: or_zero(&detail.board.vbios),
        board_part_number: value(&detail.board.part_number),
        inforom: value(&detail.board.inforom),
        gsp: value(&detail.board.gsp),
        pci_class: pci.functions.get(&address(at)).map(|function| function.class),
        pci_device_id: or_zero(&detail.board.pci_device_id),
        pci_subsystem_id: or_zero(&detail.board.pci_subsystem_id),
        cpus: detail.cpus.value().map(cpu_list),
        memory_numa_node: value(&detail.memory_node),
        persistence: value(&reading.persistence).unwrap_or(false),
        compute_mode: or_zero(&detail.compute_mode),
        recovery_action: value(&reading.recovery_action).and_then(|action| u32::try_from(action).ok()),
        gpm: value(&detail.gpm).unwrap_or(false),
        memory: memory(detail),
        power: power(reading, detail, boottime_ns),
        temp: temp(reading, detail),
        clocks: clocks(&detail.clocks, &reading.counters),
        ecc: ecc(reading, detail),
        remap: remap(reading, detail),
        retired: retired(detail),
        pcie: Pcie {
            generation: idle_pcie.max(or_zero(&detail.pcie.max_generation)),
            idle_generation: idle_pcie,
            width: or_zero(&detail.pcie.width),
            max_generation: or_zero(&detail.pcie.max_generation),
            max_width: or_zero(&detail.pcie.max_width),
            gpu_max_generation: value(&detail.pcie.gpu_max_generation)
                .or_else(|| pci.max_generation(address(at)))
                .unwrap_or(0),
            replay: value(&reading.counters.pcie_replay)
                .and_then(|count| u32::try_from(count).ok())
                .unwrap_or(0),
            ..Pcie::default()
        },
        nvlink: nvlink(&detail.nvlinks),
        fabric: value(&detail.fabric).map(fabric),
        mig: mig(reading, detail),
        accounting: Accounting {
            enabled: value(&detail.accounting),
            buffer_size: or_zero(&detail.accounting_buffer),
            ..Accounting::default()
        },
        processes: processes(detail, |process| process.gpu_instance.is_none()),
        ..Gpu::default()
    })
}

fn memory(detail: &GpuDetail) -> Memory {
    let held: u64 =
        detail.processes.value().into_iter().flatten().filter_map(|process| process.memory_mib).sum();
    Memory {
        total_mib: or_zero(&detail.memory.total_mib).max(1),
        reserved_mib: or_zero(&detail.memory.reserved_mib),
        // The processes add theirs.
        used_mib: or_zero(&detail.memory.used_mib).saturating_sub(held),
        bar1_mib: or_zero(&detail.memory.bar1_mib),
        bar1_used_mib: or_zero(&detail.memory.bar1_used_mib),
    }
}

fn power(reading: &GpuReading, detail: &GpuDetail, boottime_ns: u64) -> Power {
    let draw_mw = u64::from(or_zero(&detail.power.draw_mw));
    let limit = or_zero(&detail.power.default_limit_mw);
    let since_boot_mj = draw_mw * (boottime_ns / 1_000_000) / 1000;
    Power {
        idle_mw: draw_mw,
        busy_mw: u64::from(limit).max(draw_mw),
        default_limit_mw: limit.max(1),
        limit_mw: value(&detail.power.limit_mw),
        enforced_limit_mw: value(&detail.power.enforced_limit_mw),
        min_limit_mw: or_zero(&detail.power.min_limit_mw),
        max_limit_mw: or_zero(&detail.power.max_limit_mw),
        // The counter goes on from where it was, as far as the present draw explains it.
        energy_base_mj: value(&reading.counters.energy_mj).map(|energy| energy.saturating_sub(since_boot_mj)),
    }
}

fn temp(reading: &GpuReading, detail: &GpuDetail) -> Temp {
    let now_c = or_zero(&reading.temp_c);
    let memory_c = value(&detail.temp.memory_c);
    let signed = |limits: [i64; 4]| limits.map(|limit| i32::try_from(limit).unwrap_or(0));
    Temp {
        gpu_c: now_c,
        gpu_busy_c: now_c,
        memory_c,
        memory_busy_c: memory_c,
        shutdown_c: value(&detail.temp.shutdown_c),
        slowdown_c: value(&detail.temp.slowdown_c),
        memory_max_c: value(&detail.temp.memory_max_c),
        gpu_max_c: value(&detail.temp.gpu_max_c),
        tlimit_c: value(&detail.temp.tlimit_c).map(signed),
    }
}

fn clocks(read: &ClockReading, counters: &Counters) -> Clocks {
    let mut clocks = Clocks {
        idle_mhz: or_zero(&read.now_mhz),
        busy_mhz: or_zero(&read.max_mhz),
        max_mhz: or_zero(&read.max_mhz),
        app_default_mhz: value(&read.app_default_mhz),
        app_mhz: value(&read.app_mhz),
        idle_pstate: or_zero(&read.pstate),
        event_reasons: value(&read.event_reasons),
        ..Clocks::default()
    };
    clocks.supported_memory_mhz = vec![clocks.max_mhz[2]];
    clocks.supported_graphics_mhz = [clocks.max_mhz[0], clocks.max_mhz[0], 1];
    clocks.throttle_ns.power = or_zero(&read.throttle_power_ns);
    clocks.throttle_ns.thermal = or_zero(&read.throttle_thermal_ns);
    clocks.throttle_ns.sw_thermal = or_zero(&counters.throttle_sw_thermal_ns);
    clocks.throttle_ns.hw_thermal = or_zero(&counters.throttle_hw_thermal_ns);
    clocks.throttle_ns.hw_power_brake = or_zero(&counters.throttle_power_brake_ns);
    clocks
}

/// Sums are told, parts of some: what is not of the SRAM is the device memory's.
fn ecc(reading: &GpuReading, detail: &GpuDetail) -> Ecc {
    let counters = &reading.counters;
    let sram_aggregate_uncorr = or_zero(&detail.ecc.sram_aggregate_uncorr);
    Ecc {
        enabled: value(&detail.ecc.enabled),
        pending: value(&detail.ecc.pending),
        dram: EccCounts {
            volatile_corr: or_zero(&counters.ecc_volatile_corr),
            volatile_uncorr: or_zero(&counters.ecc_volatile_uncorr),
            aggregate_corr: or_zero(&counters.ecc_aggregate_corr),
            aggregate_uncorr: or_zero(&counters.ecc_aggregate_uncorr).saturating_sub(sram_aggregate_uncorr),
        },
        sram: EccCounts { aggregate_uncorr: sram_aggregate_uncorr, ..EccCounts::default() },
        sram_threshold_exceeded: value(&detail.ecc.sram_threshold_exceeded).unwrap_or(false),
        repair_pending: value(&detail.ecc.repair_pending),
        ..Ecc::default()
    }
}

fn remap(reading: &GpuReading, detail: &GpuDetail) -> Option<Remap> {
    let count = |reading: &Reading<u64>| value(reading).and_then(|count| u32::try_from(count).ok());
    Some(Remap {
        corr: count(&reading.counters.remapped_corr)?,
        uncorr: count(&reading.counters.remapped_uncorr)?,
        pending: value(&reading.remap_pending).unwrap_or(false),
        failure: value(&reading.remap_failed).unwrap_or(false),
        histogram: or_zero(&detail.ecc.remap_histogram),
    })
}

/// A snapshot tells how many pages, not which.
fn retired(detail: &GpuDetail) -> Option<Retired> {
    let [single, double] = value(&detail.ecc.retired_pages)?;
    Some(Retired {
        single_bit: (0..single).map(|page| page * 4096).collect(),
        double_bit: (single..single + double).map(|page| page * 4096).collect(),
        pending: value(&detail.ecc.retire_pending).unwrap_or(false),
    })
}

fn nvlink(links: &[NvLinkReading]) -> NvLink {
    let mut ends: BTreeMap<PciAddress, Vec<u32>> = BTreeMap::new();
    for link in links {
        // A link that does not say where it goes ends at a switch that nobody sees.
        let end = link.end_pci.value().map_or(UNSEEN, |&end| address(end));
        ends.entry(end).or_default().push(link.link);
    }
    let errors = |link: &NvLinkReading| {
        let [replay, recovery, crc_flit] = or_zero(&link.errors);
        let mut errors = LinkErrors { link: link.link, replay, recovery, crc_flit, ..LinkErrors::default() };
        // Of the fields 206 to 215 the eighth and the ninth.
        errors.packets[7..9].copy_from_slice(&or_zero(&link.recoveries));
        for (ber, rate) in errors.ber[1..].iter_mut().zip(or_zero(&link.error_rates)) {
            let [exponent, mantissa, ..] = rate.to_le_bytes();
            *ber = [mantissa & 0xf, exponent];
        }
        (errors != LinkErrors { link: link.link, ..LinkErrors::default() }).then_some(errors)
    };
    let speed = links.iter().filter_map(|link| value(&link.speed_mbps)).max();
    NvLink {
        version: links.iter().find_map(|link| value(&link.version)),
        speed_mbps: speed.and_then(|speed| u32::try_from(speed).ok()).unwrap_or(0),
        links: ends
            .into_iter()
            .map(|(to, links)| LinkGroup { to, links: links.into_iter().collect() })
            .collect(),
        down: links.iter().filter(|link| link.up.value() == Some(&false)).map(|link| link.link).collect(),
        errors: links.iter().filter_map(errors).collect(),
        ..NvLink::default()
    }
}

/// Stands for a remote end without an address.
const UNSEEN: PciAddress = PciAddress { domain: 0xffff, bus: 0, device: 0, function: 0 };

fn fabric(read: FabricReading) -> Fabric {
    Fabric {
        state: read.state,
        status: read.status,
        clique: read.clique,
        cluster_uuid: read.cluster_uuid,
        health_mask: read.health_mask.unwrap_or(0),
        health_summary: read.health_summary.and_then(|summary| u8::try_from(summary).ok()).unwrap_or(0),
    }
}

/// The driver says how many devices there may be only while the mode is on: seven on all boards but A30.
fn mig(reading: &GpuReading, detail: &GpuDetail) -> Mig {
    let has_mode = reading.mig.value().is_some();
    let told = value(&detail.mig.max_devices).filter(|most| *most > 0);
    Mig {
        max_devices: told.unwrap_or(if has_mode { 7 } else { 0 }),
        enabled: value(&reading.mig).unwrap_or(false),
        pending: value(&detail.mig.pending),
        devices: detail.mig.devices.iter().map(|device| mig_device(device, detail)).collect(),
        ..Mig::default()
    }
}

fn mig_device(read: &MigDeviceReading, detail: &GpuDetail) -> MigDevice {
    let name = or_zero(&read.name);
    let ids = (value(&read.gpu_instance), value(&read.compute_instance));
    MigDevice {
        uuid: read.uuid.as_ref().map(ToString::to_string).unwrap_or_default(),
        profile: name.rsplit(' ').next().unwrap_or_default().to_owned(),
        gpu_instance: ids.0.unwrap_or(0),
        compute_instance: ids.1.unwrap_or(0),
        slices: or_zero(&read.slices),
        multiprocessors: or_zero(&read.multiprocessors),
        memory_mib: or_zero(&read.memory_mib),
        processes: processes(detail, |process| (process.gpu_instance, process.compute_instance) == ids),
    }
}

fn processes(detail: &GpuDetail, wanted: impl Fn(&ProcessReading) -> bool) -> Vec<Process> {
    detail.processes.value().into_iter().flatten().filter(|process| wanted(process)).map(process).collect()
}

fn process(read: &ProcessReading) -> Process {
    use gpuward_core::model::detail::ProcessKind as Kind;
    Process {
        pid: read.pid,
        name: format!("process-{}", read.pid),
        memory_mib: read.memory_mib.unwrap_or(0),
        kind: match read.kind {
            Kind::Compute => ProcessKind::Compute,
            Kind::Graphics => ProcessKind::Graphics,
            Kind::Mps => ProcessKind::Mps,
        },
        only_while_alive: false,
    }
}
