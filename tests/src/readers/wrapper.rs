//! The same readings through nvml-wrapper's safe calls, as far as they go.
//!
//! Where the safe interface has a function for what the probe reads as a field value (energy, ECC sums, PCIe replays), the
//! function is asked: the field's number is then proved, too.
#![forbid(unsafe_code)]

use super::Seen;
use gpuward_core::model::detail::{
    BoardReading, ClockReading, EccReading, GpuDetail, MemoryReading, MigDeviceReading, MigReading,
    NvLinkReading, PcieReading, PeerReading, PowerReading, ProcessKind, ProcessReading, TempReading,
};
use gpuward_core::model::{Counters, GpuReading, NodeReading, PciAddress, Reading};
use nvml_wrapper::enum_wrappers::device::{
    Clock, EccCounter, MemoryError, MemoryLocation, P2pCapabilitiesIndex, RetirementCause, TemperatureSensor,
    TemperatureThreshold,
};
use nvml_wrapper::enums::device::{SampleValue, UsedGpuMemory};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::{Device, Nvml};
use std::path::Path;
use std::str::FromStr;

const BYTES_PER_MIB: u64 = 1024 * 1024;

/// Sets to "not read" what nvml-wrapper 0.13 cannot read safely, in a reading from elsewhere:
///
/// * `temp.tlimit_c`: fields of type `int` (`nvmlValueType_t` 5), which the wrapper refuses as an unknown type;
/// * `temp.margin_c`, `ecc.sram_*`, `ecc.remap_histogram`, `ecc.repair_pending`, `fabric`, `pcie.gpu_max_generation`,
///   `gpu_instance` and `compute_instance` of MIG devices: functions that only the unsafe crate below it has;
/// * `end` of NVLinks: `NvLink::remote_device_type` answers "unknown" whatever the driver says;
/// * `speed_mbps` and `errors` of NVLinks: field values with a scope, and the safe call always sends scope 0.
pub fn blank(gpu: &mut GpuReading) {
    let Some(detail) = &mut gpu.detail else { return };
    detail.temp.tlimit_c = Reading::NotRead;
    detail.temp.margin_c = Reading::NotRead;
    detail.ecc.sram_aggregate_uncorr = Reading::NotRead;
    detail.ecc.sram_threshold_exceeded = Reading::NotRead;
    detail.ecc.remap_histogram = Reading::NotRead;
    detail.ecc.repair_pending = Reading::NotRead;
    detail.fabric = Reading::NotRead;
    detail.pcie.gpu_max_generation = Reading::NotRead;
    for mig in &mut detail.mig.devices {
        mig.gpu_instance = Reading::NotRead;
        mig.compute_instance = Reading::NotRead;
    }
    for link in &mut detail.nvlinks {
        link.end = Reading::NotRead;
        link.speed_mbps = Reading::NotRead;
        link.errors = Reading::NotRead;
        link.recoveries = Reading::NotRead;
        link.error_rates = Reading::NotRead;
    }
}

/// Reads the GPUs at `addresses` with the library at `library`, one after the other.
pub fn read(library: &Path, addresses: &[PciAddress]) -> Seen {
    let mut node = NodeReading::default();
    let nvml = match Nvml::builder().lib_path(library.as_os_str()).init() {
        Ok(nvml) => nvml,
        Err(error) => {
            match error {
                NvmlError::LibloadingError(error) => node.library_error = Some(error.to_string()),
                error => node.nvml = reading(Err(error)),
            }
            let gpus = addresses.iter().map(|_| GpuReading::default()).collect();
            return Seen { node, gpus };
        }
    };
    node.nvml = Reading::Value(());
    node.driver_version = reading(nvml.sys_driver_version());
    node.nvml_version = reading(nvml.sys_nvml_version());
    node.gpu_count = reading(nvml.device_count());
    let devices: Vec<_> =
        addresses.iter().map(|address| nvml.device_by_pci_bus_id(address.to_string())).collect();
    let gpus = devices.iter().zip(addresses).map(|(device, address)| match device {
        Ok(device) => {
            let mut detail = detail(device);
            let others = devices.iter().zip(addresses).filter(|(_, other)| *other != address);
            detail.peers =
                others.filter_map(|(other, pci)| Some(peer(device, other.as_ref().ok()?, *pci))).collect();
            GpuReading { detail: Some(Box::new(detail)), ..gpu(device, *address) }
        }
        Err(error) => GpuReading { handle: refused(error), ..GpuReading::default() },
    });
    Seen { node, gpus: gpus.collect() }
}

fn gpu(device: &Device<'_>, address: PciAddress) -> GpuReading {
    let ecc = |kind, period| reading(device.total_ecc_errors(kind, period));
    let [remapped_corr, remapped_uncorr, pending, failed, action] = fields(device, [142, 143, 144, 145, 230]);
    // The wrapper takes the numbers of CUDA 12 and translates them for newer drivers.
    let [sw_heat, hw_heat, brake] = fields(device, [251, 252, 253]);
    GpuReading {
        handle: Reading::Value(()),
        pci: Reading::Value(address),
        uuid: parsed(device.uuid()),
        mig_uuid: Reading::NotRead,
        minor: reading(device.minor_number()),
        model: reading(device.name()),
        serial: reading(device.serial()),
        persistence: reading(device.is_in_persistent_mode()),
        mig: reading(device.mig_mode()).map(|mode| mode.current != 0),
        recovery_action: action,
        temp_c: reading(device.temperature(TemperatureSensor::Gpu)),
        counters: Counters {
            energy_mj: reading(device.total_energy_consumption()),
            ecc_volatile_uncorr: ecc(MemoryError::Uncorrected, EccCounter::Volatile),
            ecc_volatile_corr: ecc(MemoryError::Corrected, EccCounter::Volatile),
            ecc_aggregate_uncorr: ecc(MemoryError::Uncorrected, EccCounter::Aggregate),
            ecc_aggregate_corr: ecc(MemoryError::Corrected, EccCounter::Aggregate),
            remapped_uncorr,
            remapped_corr,
            pcie_replay: reading(device.pcie_replay_counter()).map(u64::from),
            throttle_sw_thermal_ns: sw_heat,
            throttle_hw_thermal_ns: hw_heat,
            throttle_power_brake_ns: brake,
        },
        remap_pending: pending.map(|flag| flag != 0),
        remap_failed: failed.map(|flag| flag != 0),
        took_us: 0,
        detail: None,
    }
}

fn detail(device: &Device<'_>) -> GpuDetail {
    let [c2c] = fields(device, [170]);
    GpuDetail {
        board: board(device),
        memory: memory(device),
        power: power(device),
        temp: temp(device),
        clocks: clocks(device),
        ecc: ecc(device),
        pcie: pcie(device),
        nvlinks: nvlinks(device),
        fabric: Reading::NotRead,
        c2c_links: c2c.and_then(small),
        peers: Vec::new(),
        mig: mig(device),
        processes: processes(device),
        compute_mode: reading(device.compute_mode()).map(|mode| mode.as_c()),
        accounting: reading(device.is_accounting_enabled()),
        accounting_buffer: reading(device.accounting_buffer_size()),
        gpm: reading(device.gpm_support()),
        cpus: reading(device.cpu_affinity(128)).map(|words| {
            let cpus = (0..128 * 64usize).filter(|cpu| words[cpu / 64] >> (cpu % 64) & 1 == 1);
            cpus.filter_map(|cpu| u32::try_from(cpu).ok()).collect()
        }),
        memory_node: reading(device.numa_node_id()),
    }
}

fn board(device: &Device<'_>) -> BoardReading {
    let pci = reading(device.pci_info());
    BoardReading {
        brand: reading(device.brand()).map(|brand| brand.as_c()),
        architecture: reading(device.architecture()).map(|architecture| architecture.as_c()),
        compute_capability: reading(device.cuda_compute_capability())
            .map(|version| [version.major, version.minor]),
        vbios: reading(device.vbios_version()),
        part_number: reading(device.board_part_number()),
        inforom: reading(device.info_rom_image_version()),
        inforom_check: reading(device.validate_info_rom()),
        gsp: reading(device.gsp_firmware_mode()).map(|mode| mode.enabled),
        pci_device_id: pci.clone().map(|pci| pci.pci_device_id),
        pci_subsystem_id: pci
            .and_then(|pci| pci.pci_sub_system_id.map_or(Reading::NotSupported, Reading::Value)),
    }
}

fn memory(device: &Device<'_>) -> MemoryReading {
    let memory = reading(device.memory_info());
    let bar1 = reading(device.bar1_memory_info());
    MemoryReading {
        total_mib: memory.clone().map(|memory| memory.total / BYTES_PER_MIB),
        reserved_mib: memory.clone().map(|memory| memory.reserved / BYTES_PER_MIB),
        used_mib: memory.map(|memory| memory.used / BYTES_PER_MIB),
        bar1_mib: bar1.clone().map(|bar1| bar1.total / BYTES_PER_MIB),
        bar1_used_mib: bar1.map(|bar1| bar1.used / BYTES_PER_MIB),
    }
}

fn power(device: &Device<'_>) -> PowerReading {
    let range = reading(device.power_management_limit_constraints());
    PowerReading {
        draw_mw: reading(device.power_usage()),
        default_limit_mw: reading(device.power_management_limit_default()),
        limit_mw: reading(device.power_management_limit()),
        enforced_limit_mw: reading(device.enforced_power_limit()),
        min_limit_mw: range.clone().map(|range| range.min_limit),
        max_limit_mw: range.map(|range| range.max_limit),
    }
}

fn temp(device: &Device<'_>) -> TempReading {
    let [memory] = fields(device, [82]);
    let limit = |kind| reading(device.temperature_threshold(kind));
    TempReading {
        memory_c: memory.and_then(small),
        shutdown_c: limit(TemperatureThreshold::Shutdown),
        slowdown_c: limit(TemperatureThreshold::Slowdown),
        memory_max_c: limit(TemperatureThreshold::MemoryMax),
        gpu_max_c: limit(TemperatureThreshold::GpuMax),
        tlimit_c: Reading::NotRead,
        margin_c: Reading::NotRead,
    }
}

fn clocks(device: &Device<'_>) -> ClockReading {
    let four = [Clock::Graphics, Clock::SM, Clock::Memory, Clock::Video];
    let two = [Clock::Graphics, Clock::Memory];
    let [power, thermal] = fields(device, [74, 75]);
    ClockReading {
        now_mhz: together(four.map(|clock| device.clock_info(clock))),
        max_mhz: together(four.map(|clock| device.max_clock_info(clock))),
        app_default_mhz: together(two.map(|clock| device.default_applications_clock(clock))),
        app_mhz: together(two.map(|clock| device.applications_clock(clock))),
        pstate: reading(device.performance_state()).map(|state| state.as_c()),
        util_pct: reading(device.utilization_rates()).map(|util| [util.gpu, util.memory]),
        event_reasons: reading(device.current_throttle_reasons()).map(|reasons| reasons.bits()),
        throttle_power_ns: power,
        throttle_thermal_ns: thermal,
    }
}

fn ecc(device: &Device<'_>) -> EccReading {
    let mode = reading(device.is_ecc_enabled());
    let dram =
        device.memory_error_counter(MemoryError::Uncorrected, EccCounter::Aggregate, MemoryLocation::Device);
    let causes = [RetirementCause::MultipleSingleBitEccErrors, RetirementCause::DoubleBitEccError];
    EccReading {
        enabled: mode.clone().map(|mode| mode.currently_enabled),
        pending: mode.map(|mode| mode.pending_enabled),
        sram_aggregate_uncorr: Reading::NotRead,
        dram_aggregate_uncorr: reading(dram),
        sram_threshold_exceeded: Reading::NotRead,
        remap_histogram: Reading::NotRead,
        retired_pages: together(
            causes.map(|cause| device.retired_pages(cause).map(|pages| pages.len() as u64)),
        ),
        retire_pending: reading(device.are_pages_pending_retired()),
        repair_pending: Reading::NotRead,
    }
}

fn pcie(device: &Device<'_>) -> PcieReading {
    PcieReading {
        generation: reading(device.current_pcie_link_gen()),
        width: reading(device.current_pcie_link_width()),
        max_generation: reading(device.max_pcie_link_gen()),
        max_width: reading(device.max_pcie_link_width()),
        gpu_max_generation: Reading::NotRead,
    }
}

fn nvlinks(device: &Device<'_>) -> Vec<NvLinkReading> {
    let mut links = Vec::new();
    // Ends at the first number that is no link.
    for link in 0.. {
        let wrapped = device.link_wrapper_for(link);
        let up = match wrapped.is_active() {
            Err(NvmlError::InvalidArg | NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_)) => break,
            Err(NvmlError::FunctionNotFound) => break,
            answer => reading(answer),
        };
        links.push(NvLinkReading {
            link,
            up,
            version: reading(wrapped.version()),
            speed_mbps: Reading::NotRead,
            end: Reading::NotRead,
            end_pci: parsed(wrapped.remote_pci_info().map(|pci| pci.bus_id)),
            errors: Reading::NotRead,
            recoveries: Reading::NotRead,
            error_rates: Reading::NotRead,
        });
    }
    links
}

fn peer(device: &Device<'_>, other: &Device<'_>, pci: PciAddress) -> PeerReading {
    let status = |capability| reading(device.p2p_status(other, capability)).map(|status| status.as_c());
    PeerReading {
        pci: Some(pci),
        read: status(P2pCapabilitiesIndex::Read),
        write: status(P2pCapabilitiesIndex::Write),
        nvlink: status(P2pCapabilitiesIndex::NvLink),
    }
}

fn mig(device: &Device<'_>) -> MigReading {
    let mode = reading(device.mig_mode());
    let most = reading(device.mig_device_count());
    let mut devices = Vec::new();
    if mode.value().is_some_and(|mode| mode.current != 0) {
        let places = 0..most.value().copied().unwrap_or(0);
        let open = places.filter_map(|place| device.mig_device_by_index(place).ok());
        devices.extend(open.map(|device| mig_device(&device)));
    }
    MigReading { pending: mode.map(|mode| mode.pending != 0), max_devices: most, devices }
}

fn mig_device(device: &Device<'_>) -> MigDeviceReading {
    let attributes = reading(device.attributes());
    MigDeviceReading {
        uuid: parsed(device.uuid()).value().cloned(),
        name: reading(device.name()),
        gpu_instance: Reading::NotRead,
        compute_instance: Reading::NotRead,
        slices: attributes.clone().map(|attributes| attributes.gpu_instance_slice_count),
        multiprocessors: attributes.clone().map(|attributes| attributes.multiprocessor_count),
        memory_mib: attributes.map(|attributes| attributes.memory_size_mb),
    }
}

fn processes(device: &Device<'_>) -> Reading<Vec<ProcessReading>> {
    let mut all = Vec::new();
    match reading(device.running_compute_processes()) {
        Reading::Value(list) => all.extend(list.iter().map(|info| process(ProcessKind::Compute, info))),
        other => return other.and_then(|_| Reading::NotRead),
    }
    for (kind, list) in [
        (ProcessKind::Graphics, device.running_graphics_processes()),
        (ProcessKind::Mps, device.mps_running_compute_processes()),
    ] {
        match reading(list) {
            Reading::Value(list) => all.extend(list.iter().map(|info| process(kind, info))),
            Reading::NotSupported => {}
            other => return other.and_then(|_| Reading::NotRead),
        }
    }
    all.sort_by_key(|process| (process.pid, process.kind));
    Reading::Value(all)
}

fn process(kind: ProcessKind, info: &ProcessInfo) -> ProcessReading {
    let memory_mib = match info.used_gpu_memory {
        UsedGpuMemory::Used(bytes) => Some(bytes / BYTES_PER_MIB),
        UsedGpuMemory::Unavailable => None,
    };
    let (gpu_instance, compute_instance) = (info.gpu_instance_id, info.compute_instance_id);
    ProcessReading { pid: info.pid, kind, memory_mib, gpu_instance, compute_instance }
}

/// Field values, each with its own answer.
fn fields<const N: usize>(device: &Device<'_>, ids: [u32; N]) -> [Reading<u64>; N] {
    let samples = match device.field_values_for(&ids.map(FieldId)) {
        Ok(samples) => samples,
        Err(error) => return [refused(&error); N],
    };
    let mut values = samples.into_iter().map(|sample| match sample.and_then(|sample| sample.value) {
        Ok(SampleValue::U32(value)) => Reading::Value(value.into()),
        Ok(SampleValue::U64(value)) => Reading::Value(value),
        Ok(SampleValue::I64(value)) => u64::try_from(value).map_or(Reading::NotSupported, Reading::Value),
        Ok(SampleValue::F64(_)) => Reading::NotSupported,
        // A driver that does not know a field says so in its place.
        Err(NvmlError::InvalidArg) => Reading::NotSupported,
        Err(error) => refused(&error),
    });
    ids.map(|_| values.next().unwrap_or_default())
}

fn small(number: u64) -> Reading<u32> {
    u32::try_from(number).map_or(Reading::NotSupported, Reading::Value)
}

/// Values that only mean something together: without one of them, what that one said.
fn together<T: Copy + Default, const N: usize>(parts: [Result<T, NvmlError>; N]) -> Reading<[T; N]> {
    let mut values = [T::default(); N];
    for (value, part) in values.iter_mut().zip(parts) {
        match part {
            Ok(part) => *value = part,
            Err(error) => return refused(&error),
        }
    }
    Reading::Value(values)
}

fn parsed<T: FromStr>(answer: Result<String, NvmlError>) -> Reading<T> {
    reading(answer).and_then(|text| text.parse().map_or(Reading::NotSupported, Reading::Value))
}

fn reading<T>(answer: Result<T, NvmlError>) -> Reading<T> {
    answer.map_or_else(|error| refused(&error), Reading::Value)
}

/// An error by what it means for a GPU; those of no machine here are left out.
fn refused<T>(error: &NvmlError) -> Reading<T> {
    match error {
        NvmlError::NotSupported
        | NvmlError::FunctionNotFound
        | NvmlError::FailedToLoadSymbol(_)
        | NvmlError::NoData
        | NvmlError::UnexpectedVariant(25 | 26) => Reading::NotSupported,
        NvmlError::NoPermission => Reading::NoPermission,
        NvmlError::GpuLost => Reading::Lost,
        NvmlError::ResetRequired => Reading::ResetRequired,
        NvmlError::InvalidArg => Reading::Failed(2),
        NvmlError::NotFound => Reading::Failed(6),
        NvmlError::DriverNotLoaded => Reading::Failed(9),
        NvmlError::LibRmVersionMismatch => Reading::Failed(18),
        NvmlError::Unknown => Reading::Failed(999),
        NvmlError::UnexpectedVariant(code) => Reading::Failed(i64::from(*code)),
        other => panic!("nvml-wrapper says: {other}"),
    }
}
