//! What only a look at leisure reads from a GPU.

use super::raw;
use super::read::{Fields, parsed, reading, unsigned};
use gpuward_core::model::detail::{
    BoardReading, ClockReading, EccReading, GpuDetail, LinkEnd, MemoryReading, MigDeviceReading, MigReading,
    NvLinkReading, PcieReading, PeerReading, PowerReading, ProcessKind, ProcessReading, TempReading,
};
use gpuward_core::model::{CpuSet, PciAddress, Reading};
use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{
    Clock, EccCounter, MemoryError, MemoryLocation, RetirementCause, TemperatureThreshold,
};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;

const MIB: u64 = 1 << 20;

/// Words of 64 CPUs for the affinity mask: Linux has 8192 CPUs at most.
const CPU_WORDS: usize = 128;

/// More links than any GPU has: ends the search in a library that never says "no such link".
const MAX_LINKS: u32 = 128;

/// Everything beyond a prolog's needs, but for the peers: asking about them may hang with any other GPU. What is slow or
/// disturbs is read only where `deep` says so.
pub fn of_gpu(device: &Device<'_>, deep: bool) -> GpuDetail {
    let fields = Fields::read(device, &FIELDS);
    let mut detail = GpuDetail {
        board: board(device),
        memory: memory(device),
        power: power(device),
        temp: temp(device, &fields),
        clocks: clocks(device, &fields),
        ecc: ecc(device),
        pcie: pcie(device),
        nvlinks: nvlinks(device),
        fabric: raw::fabric(device),
        c2c_links: fields.get(field::C2C_LINKS).and_then(small),
        peers: Vec::new(),
        mig: mig(device),
        processes: processes(device),
        compute_mode: raw::compute_mode(device),
        accounting: reading(device.is_accounting_enabled()),
        accounting_buffer: reading(device.accounting_buffer_size()),
        gpm: reading(device.gpm_support()),
        cpus: reading(device.cpu_affinity(CPU_WORDS)).map(|words| cpus(&words)),
        memory_node: reading(device.numa_node_id()),
    };
    if deep {
        detail.board.inforom_check = reading(device.validate_info_rom());
    }
    detail
}

/// The few that the rules before and after a job need, some 25 calls.
pub fn for_a_job(device: &Device<'_>, fields: &Fields) -> GpuDetail {
    let ecc_mode = reading(device.is_ecc_enabled());
    GpuDetail {
        memory: MemoryReading {
            bar1_mib: Reading::NotRead,
            bar1_used_mib: Reading::NotRead,
            ..memory_use(device)
        },
        power: PowerReading {
            default_limit_mw: fields.get(field::POWER_LIMIT_DEFAULT).and_then(small),
            enforced_limit_mw: fields.get(field::POWER_LIMIT_ENFORCED).and_then(small),
            ..PowerReading::default()
        },
        temp: TempReading {
            memory_c: fields.get(field::MEMORY_TEMP).and_then(small),
            ..TempReading::default()
        },
        clocks: ClockReading { event_reasons: raw::event_reasons(device), ..ClockReading::default() },
        ecc: EccReading {
            enabled: ecc_mode.clone().map(|mode| mode.currently_enabled),
            pending: ecc_mode.map(|mode| mode.pending_enabled),
            sram_threshold_exceeded: raw::sram_errors(device).1,
            ..EccReading::default()
        },
        nvlinks: link_states(device)
            .map(|(link, up)| NvLinkReading { link, up, ..NvLinkReading::default() })
            .collect(),
        fabric: raw::fabric(device),
        processes: processes(device),
        compute_mode: raw::compute_mode(device),
        memory_node: reading(device.numa_node_id()),
        mig: MigReading {
            pending: reading(device.mig_mode()).map(|mode| mode.pending == 1),
            ..MigReading::default()
        },
        ..GpuDetail::default()
    }
}

/// Field ids of nvml.h (API 13). The throttle times are in the numbering of CUDA 12, which the wrapper translates.
pub mod field {
    pub const POWER_LIMIT_DEFAULT: u32 = 189;
    pub const POWER_LIMIT_ENFORCED: u32 = 190;
    pub const THROTTLE_POWER: u32 = 74;
    pub const THROTTLE_THERMAL: u32 = 75;
    pub const MEMORY_TEMP: u32 = 82;
    /// Of one link: speed; replays, recoveries, flit CRC errors; from NVLink 5 on recoveries that succeeded and that
    /// failed, bit error rates, effective and by symbol.
    pub const OF_NVLINK: [u32; 8] = [164, 161, 162, 163, 213, 214, 220, 222];
    pub const C2C_LINKS: u32 = 170;
    pub const TLIMIT: [u32; 4] = [193, 194, 195, 196];
    pub const THROTTLE_SW_THERMAL: u32 = 251;
    pub const THROTTLE_HW_THERMAL: u32 = 252;
    pub const THROTTLE_POWER_BRAKE: u32 = 253;
}

const FIELDS: [u32; 4] =
    [field::THROTTLE_POWER, field::THROTTLE_THERMAL, field::MEMORY_TEMP, field::C2C_LINKS];

/// A number that has to fit into 32 bits.
fn small(number: u64) -> Reading<u32> {
    u32::try_from(number).map_or(Reading::NotSupported, Reading::Value)
}

/// A value only where all parts are there; else the answer of the first part that is not.
fn all<T: Copy + Default, const N: usize>(parts: [Reading<T>; N]) -> Reading<[T; N]> {
    let mut values = [T::default(); N];
    for (place, part) in values.iter_mut().zip(parts) {
        match part {
            Reading::Value(value) => *place = value,
            other => return other.and_then(|_| Reading::NotRead),
        }
    }
    Reading::Value(values)
}

fn board(device: &Device<'_>) -> BoardReading {
    let pci = reading(device.pci_info());
    let id = |of: &dyn Fn(&nvml_wrapper::struct_wrappers::device::PciInfo) -> Option<u32>| {
        pci.clone().and_then(|info| of(&info).map_or(Reading::NotSupported, Reading::Value))
    };
    BoardReading {
        brand: raw::brand(device),
        architecture: raw::architecture(device),
        compute_capability: reading(device.cuda_compute_capability()).map(|cc| [cc.major, cc.minor]),
        vbios: reading(device.vbios_version()),
        part_number: reading(device.board_part_number()),
        inforom: reading(device.info_rom_image_version()),
        inforom_check: Reading::NotRead,
        gsp: reading(device.gsp_firmware_mode()).map(|mode| mode.enabled),
        pci_device_id: id(&|info| Some(info.pci_device_id)),
        pci_subsystem_id: id(&|info| info.pci_sub_system_id),
    }
}

fn memory_use(device: &Device<'_>) -> MemoryReading {
    let memory = reading(device.memory_info());
    MemoryReading {
        total_mib: memory.clone().map(|memory| memory.total / MIB),
        reserved_mib: memory.clone().map(|memory| memory.reserved / MIB),
        used_mib: memory.map(|memory| memory.used / MIB),
        ..MemoryReading::default()
    }
}

fn memory(device: &Device<'_>) -> MemoryReading {
    let bar1 = reading(device.bar1_memory_info());
    MemoryReading {
        bar1_mib: bar1.clone().map(|bar1| bar1.total / MIB),
        bar1_used_mib: bar1.map(|bar1| bar1.used / MIB),
        ..memory_use(device)
    }
}

fn power(device: &Device<'_>) -> PowerReading {
    let limits = reading(device.power_management_limit_constraints());
    PowerReading {
        draw_mw: reading(device.power_usage()),
        default_limit_mw: reading(device.power_management_limit_default()),
        limit_mw: reading(device.power_management_limit()),
        enforced_limit_mw: reading(device.enforced_power_limit()),
        min_limit_mw: limits.clone().map(|limits| limits.min_limit),
        max_limit_mw: limits.map(|limits| limits.max_limit),
    }
}

fn temp(device: &Device<'_>, fields: &Fields) -> TempReading {
    let threshold = |kind| reading(device.temperature_threshold(kind));
    TempReading {
        memory_c: fields.get(field::MEMORY_TEMP).and_then(small),
        shutdown_c: threshold(TemperatureThreshold::Shutdown),
        slowdown_c: threshold(TemperatureThreshold::Slowdown),
        memory_max_c: threshold(TemperatureThreshold::MemoryMax),
        gpu_max_c: threshold(TemperatureThreshold::GpuMax),
        tlimit_c: all(raw::fields(device, field::TLIMIT.map(|id| (id, 0)))),
        margin_c: raw::margin_temperature(device),
    }
}

fn clocks(device: &Device<'_>, fields: &Fields) -> ClockReading {
    const KINDS: [Clock; 4] = [Clock::Graphics, Clock::SM, Clock::Memory, Clock::Video];
    const SET: [Clock; 2] = [Clock::Graphics, Clock::Memory];
    let util = reading(device.utilization_rates());
    ClockReading {
        now_mhz: all(KINDS.map(|kind| reading(device.clock_info(kind)))),
        max_mhz: all(KINDS.map(|kind| reading(device.max_clock_info(kind)))),
        app_default_mhz: all(SET.map(|kind| reading(device.default_applications_clock(kind)))),
        app_mhz: all(SET.map(|kind| reading(device.applications_clock(kind)))),
        pstate: raw::performance_state(device),
        util_pct: util.map(|util| [util.gpu, util.memory]),
        event_reasons: raw::event_reasons(device),
        throttle_power_ns: fields.get(field::THROTTLE_POWER),
        throttle_thermal_ns: fields.get(field::THROTTLE_THERMAL),
    }
}

fn ecc(device: &Device<'_>) -> EccReading {
    let mode = reading(device.is_ecc_enabled());
    let (sram_aggregate_uncorr, sram_threshold_exceeded) = raw::sram_errors(device);
    let retired = |cause| reading(device.retired_pages(cause)).map(|pages| pages.len() as u64);
    let dram =
        device.memory_error_counter(MemoryError::Uncorrected, EccCounter::Aggregate, MemoryLocation::Device);
    EccReading {
        enabled: mode.clone().map(|mode| mode.currently_enabled),
        pending: mode.map(|mode| mode.pending_enabled),
        sram_aggregate_uncorr,
        dram_aggregate_uncorr: reading(dram),
        sram_threshold_exceeded,
        remap_histogram: raw::remap_histogram(device),
        retired_pages: all([
            retired(RetirementCause::MultipleSingleBitEccErrors),
            retired(RetirementCause::DoubleBitEccError),
        ]),
        retire_pending: reading(device.are_pages_pending_retired()),
        repair_pending: raw::repair_pending(device),
    }
}

fn pcie(device: &Device<'_>) -> PcieReading {
    PcieReading {
        generation: reading(device.current_pcie_link_gen()),
        width: reading(device.current_pcie_link_width()),
        max_generation: reading(device.max_pcie_link_gen()),
        max_width: reading(device.max_pcie_link_width()),
        gpu_max_generation: raw::gpu_max_generation(device),
    }
}

/// Number and state of each link. A link is there if the driver tells its state, or that of a later one; where it refuses
/// all that follow, one more stands for them: how many there are is not known then.
fn link_states(device: &Device<'_>) -> impl Iterator<Item = (u32, Reading<bool>)> {
    let states: Vec<Reading<bool>> =
        (0..MAX_LINKS).map_while(|link| raw::link_up(device, link).ok()).collect();
    let told = states.iter().rposition(|up| up.value().is_some()).map_or(0, |last| last + 1);
    (0..).zip(states).take(told + 1)
}

fn nvlinks(device: &Device<'_>) -> Vec<NvLinkReading> {
    link_states(device).map(|(link, up)| nvlink(device, link, up)).collect()
}

fn nvlink(device: &Device<'_>, link: u32, up: Reading<bool>) -> NvLinkReading {
    let numbers = raw::fields(device, field::OF_NVLINK.map(|id| (id, link)));
    let [speed_mbps, replay, recovery, crc, recovered, not_recovered, effective, symbol] =
        numbers.map(|number| number.and_then(unsigned));
    let pci = device.link_wrapper_for(link).remote_pci_info().map(|info| info.bus_id);
    NvLinkReading {
        link,
        up,
        version: raw::link_version(device, link),
        speed_mbps,
        end: raw::link_end(device, link).map(|kind| match kind {
            0 => LinkEnd::Gpu,
            1 => LinkEnd::Npu,
            2 => LinkEnd::Switch,
            _ => LinkEnd::Unknown,
        }),
        end_pci: parsed(pci),
        errors: all([replay, recovery, crc]),
        recoveries: all([recovered, not_recovered]),
        error_rates: all([effective, symbol]),
    }
}

/// Peer-to-peer status towards another GPU.
pub fn peer(device: &Device<'_>, pci: PciAddress, other: &Device<'_>) -> PeerReading {
    // nvmlGpuP2PCapsIndex_t: 0 read, 1 write, 2 NVLink.
    let status = |capability| raw::peer_status(device, other, capability);
    PeerReading { pci: Some(pci), read: status(0), write: status(1), nvlink: status(2) }
}

fn mig(device: &Device<'_>) -> MigReading {
    let mode = reading(device.mig_mode());
    let on = mode.value().is_some_and(|mode| mode.current == 1);
    let max_devices = raw::max_mig_devices(device);
    let places = if on { max_devices.value().copied().unwrap_or(0) } else { 0 };
    MigReading {
        pending: mode.map(|mode| mode.pending == 1),
        max_devices,
        // Places are taken in any order: one that is empty says nothing about the next.
        devices: (0..places)
            .filter_map(|place| device.mig_device_by_index(place).ok())
            .map(|mig| mig_device(&mig))
            .collect(),
    }
}

fn mig_device(device: &Device<'_>) -> MigDeviceReading {
    let attributes = reading(device.attributes());
    MigDeviceReading {
        uuid: device.uuid().ok().and_then(|text| text.parse().ok()),
        name: reading(device.name()),
        gpu_instance: raw::gpu_instance(device),
        compute_instance: raw::compute_instance(device),
        slices: attributes.clone().map(|attributes| attributes.gpu_instance_slice_count),
        multiprocessors: attributes.clone().map(|attributes| attributes.multiprocessor_count),
        memory_mib: attributes.map(|attributes| attributes.memory_size_mb),
    }
}

/// The three lists as one; a list that this board does not have adds nothing. One that is refused is no empty list: two
/// of three would pass for all that hold the GPU.
fn processes(device: &Device<'_>) -> Reading<Vec<ProcessReading>> {
    let lists: [(ProcessKind, Result<Vec<ProcessInfo>, NvmlError>); 3] = [
        (ProcessKind::Compute, device.running_compute_processes()),
        (ProcessKind::Graphics, device.running_graphics_processes()),
        (ProcessKind::Mps, device.mps_running_compute_processes()),
    ];
    let mut found = Vec::new();
    for (kind, list) in lists {
        match (kind, reading(list)) {
            (_, Reading::Value(list)) => found.extend(list.iter().map(|info| process(kind, info))),
            (ProcessKind::Graphics | ProcessKind::Mps, Reading::NotSupported) => {}
            (_, refused) => return refused.and_then(|_| Reading::NotRead),
        }
    }
    found.sort_by_key(|process: &ProcessReading| (process.pid, process.kind));
    Reading::Value(found)
}

fn process(kind: ProcessKind, info: &ProcessInfo) -> ProcessReading {
    ProcessReading {
        pid: info.pid,
        kind,
        memory_mib: match info.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes / MIB),
            UsedGpuMemory::Unavailable => None,
        },
        // Instance numbers of all ones mean "none".
        gpu_instance: info.gpu_instance_id.filter(|&id| id != u32::MAX),
        compute_instance: info.compute_instance_id.filter(|&id| id != u32::MAX),
    }
}

fn cpus(words: &[u64]) -> CpuSet {
    let bits = (0u32..).zip(words).flat_map(|(place, &word)| {
        (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| place * 64 + bit)
    });
    bits.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_with_a_part_missing_says_what_the_part_said() {
        assert_eq!(all([Reading::Value(1), Reading::Value(2)]), Reading::Value([1, 2]));
        assert_eq!(all([Reading::Value(1), Reading::Lost]), Reading::Lost);
        assert_eq!(all([Reading::NotSupported::<u32>, Reading::Lost]), Reading::NotSupported);
    }

    #[test]
    fn a_mask_of_words_is_a_set_of_cpus() {
        assert_eq!(cpus(&[0b1011, 1 << 63]).to_string(), "0-1,3,127");
        assert_eq!(cpus(&[]).to_string(), "");
    }
}
