//! What only a look at leisure reads.
#![forbid(unsafe_code)]

use super::gpu::{address, fields, of_code, parsed, reading, unsigned};
use super::{
    ARGUMENT_VERSION_MISMATCH, Device, FUNCTION_NOT_FOUND, FabricV1, FabricV2, FabricV3, Gpm,
    INVALID_ARGUMENT, Margin, Memory, Nvml, Process, Repair, Sram, version_word,
};
use gpuward_core::model::detail::{
    BoardReading, ClockReading, EccReading, FabricReading, GpuDetail, LinkEnd, MemoryReading,
    MigDeviceReading, MigReading, NvLinkReading, PcieReading, PowerReading, ProcessKind, ProcessReading,
    TempReading,
};
use gpuward_core::model::{CpuSet, Reading};

/// NVML_NVLINK_MAX_LINKS of API 13.
const MAX_LINKS: u32 = 36;

const BYTES_PER_MIB: u64 = 1024 * 1024;

/// NVML_VALUE_NOT_AVAILABLE.
const NOT_AVAILABLE: u64 = u64::MAX;

/// Everything but the peers.
pub(super) fn read(nvml: &Nvml, device: Device) -> GpuDetail {
    Gpu { nvml, device }.detail()
}

struct Gpu<'a> {
    nvml: &'a Nvml,
    device: Device,
}

/// Reads a function of the table on this GPU.
macro_rules! ask {
    ($gpu:ident.nothing.$function:ident) => {
        reading(Nvml::nothing($gpu.nvml.0.$function, $gpu.device))
    };
    ($gpu:ident.one.$function:ident) => {
        reading(Nvml::one($gpu.nvml.0.$function, $gpu.device))
    };
    ($gpu:ident.two.$function:ident) => {
        reading(Nvml::two($gpu.nvml.0.$function, $gpu.device))
    };
    ($gpu:ident.text.$function:ident) => {
        reading(Nvml::text($gpu.nvml.0.$function, $gpu.device))
    };
    ($gpu:ident.of.$function:ident, $number:expr) => {
        reading(Nvml::of($gpu.nvml.0.$function, $gpu.device, $number))
    };
}

impl Gpu<'_> {
    fn detail(&self) -> GpuDetail {
        let gpm = Gpm { version: 1, supported: 0 };
        let gpm = Nvml::one_from(self.nvml.0.nvmlGpmQueryDeviceSupport, self.device, gpm);
        let [c2c] = fields(self.nvml, self.device, [(170, 0)]);
        GpuDetail {
            board: self.board(),
            memory: self.memory(),
            power: self.power(),
            temp: self.temp(),
            clocks: self.clocks(),
            ecc: self.ecc(),
            pcie: self.pcie(),
            nvlinks: self.nvlinks(),
            fabric: self.fabric(),
            c2c_links: unsigned(c2c),
            peers: Vec::new(),
            mig: self.mig(),
            processes: self.processes(),
            compute_mode: ask!(self.one.nvmlDeviceGetComputeMode),
            accounting: ask!(self.one.nvmlDeviceGetAccountingMode).map(|mode| mode == 1),
            accounting_buffer: ask!(self.one.nvmlDeviceGetAccountingBufferSize),
            gpm: reading(gpm).map(|gpm| gpm.supported == 1),
            cpus: reading(self.nvml.cpu_words(self.device)).map(|words| cpus(&words)),
            memory_node: ask!(self.one.nvmlDeviceGetNumaNodeId),
        }
    }

    fn board(&self) -> BoardReading {
        let pci = ask!(self.one.nvmlDeviceGetPciInfo_v3);
        BoardReading {
            brand: ask!(self.one.nvmlDeviceGetBrand),
            architecture: ask!(self.one.nvmlDeviceGetArchitecture),
            compute_capability: ask!(self.two.nvmlDeviceGetCudaComputeCapability).map(|(a, b)| [a, b]),
            vbios: ask!(self.text.nvmlDeviceGetVbiosVersion),
            part_number: ask!(self.text.nvmlDeviceGetBoardPartNumber),
            inforom: ask!(self.text.nvmlDeviceGetInforomImageVersion),
            inforom_check: ask!(self.nothing.nvmlDeviceValidateInforom),
            gsp: ask!(self.two.nvmlDeviceGetGspFirmwareMode).map(|(on, _)| on == 1),
            pci_device_id: pci.map(|pci| pci.device_id),
            pci_subsystem_id: pci.map(|pci| pci.subsystem_id),
        }
    }

    fn memory(&self) -> MemoryReading {
        let asked = Memory { version: version_word::<Memory>(2), ..Memory::default() };
        let memory = reading(Nvml::one_from(self.nvml.0.nvmlDeviceGetMemoryInfo_v2, self.device, asked));
        let bar1 = ask!(self.one.nvmlDeviceGetBAR1MemoryInfo);
        MemoryReading {
            total_mib: memory.map(|memory| memory.total / BYTES_PER_MIB),
            reserved_mib: memory.map(|memory| memory.reserved / BYTES_PER_MIB),
            used_mib: memory.map(|memory| memory.used / BYTES_PER_MIB),
            bar1_mib: bar1.map(|bar1| bar1.total / BYTES_PER_MIB),
            bar1_used_mib: bar1.map(|bar1| bar1.used / BYTES_PER_MIB),
        }
    }

    fn power(&self) -> PowerReading {
        let range = ask!(self.two.nvmlDeviceGetPowerManagementLimitConstraints);
        PowerReading {
            draw_mw: ask!(self.one.nvmlDeviceGetPowerUsage),
            default_limit_mw: ask!(self.one.nvmlDeviceGetPowerManagementDefaultLimit),
            limit_mw: ask!(self.one.nvmlDeviceGetPowerManagementLimit),
            enforced_limit_mw: ask!(self.one.nvmlDeviceGetEnforcedPowerLimit),
            min_limit_mw: range.map(|(min, _)| min),
            max_limit_mw: range.map(|(_, max)| max),
        }
    }

    fn temp(&self) -> TempReading {
        // nvmlTemperatureThresholds_t.
        let limit = |kind| ask!(self.of.nvmlDeviceGetTemperatureThreshold, kind);
        let [memory, margins @ ..] =
            fields(self.nvml, self.device, [(82, 0), (193, 0), (194, 0), (195, 0), (196, 0)]);
        TempReading {
            memory_c: unsigned(memory),
            shutdown_c: limit(0),
            slowdown_c: limit(1),
            memory_max_c: limit(2),
            gpu_max_c: limit(3),
            tlimit_c: together(margins.map(unsigned)),
            margin_c: self.margin(),
        }
    }

    fn margin(&self) -> Reading<i64> {
        let asked = Margin { version: version_word::<Margin>(1), celsius: 0 };
        let margin = Nvml::one_from(self.nvml.0.nvmlDeviceGetMarginTemperature, self.device, asked);
        reading(margin).map(|margin| margin.celsius.into())
    }

    fn clocks(&self) -> ClockReading {
        // nvmlClockType_t: 0 graphics, 1 SM, 2 memory, 3 video.
        let [power, thermal] = fields(self.nvml, self.device, [(74, 0), (75, 0)]).map(unsigned);
        ClockReading {
            now_mhz: together([0, 1, 2, 3].map(|kind| ask!(self.of.nvmlDeviceGetClockInfo, kind))),
            max_mhz: together([0, 1, 2, 3].map(|kind| ask!(self.of.nvmlDeviceGetMaxClockInfo, kind))),
            app_default_mhz: together(
                [0, 2].map(|kind| ask!(self.of.nvmlDeviceGetDefaultApplicationsClock, kind)),
            ),
            app_mhz: together([0, 2].map(|kind| ask!(self.of.nvmlDeviceGetApplicationsClock, kind))),
            pstate: ask!(self.one.nvmlDeviceGetPerformanceState),
            util_pct: ask!(self.one.nvmlDeviceGetUtilizationRates).map(|util| [util.gpu, util.memory]),
            event_reasons: self.event_reasons(),
            throttle_power_ns: power,
            throttle_thermal_ns: thermal,
        }
    }

    /// The function's name since driver 535, else the one before.
    fn event_reasons(&self) -> Reading<u64> {
        match Nvml::one(self.nvml.0.nvmlDeviceGetCurrentClocksEventReasons, self.device) {
            Err(FUNCTION_NOT_FOUND) => ask!(self.one.nvmlDeviceGetCurrentClocksThrottleReasons),
            answer => reading(answer),
        }
    }

    fn ecc(&self) -> EccReading {
        let mode = ask!(self.two.nvmlDeviceGetEccMode);
        let asked = Sram { version: version_word::<Sram>(1), ..Sram::default() };
        let sram = reading(Nvml::one_from(self.nvml.0.nvmlDeviceGetSramEccErrorStatus, self.device, asked));
        let histogram = ask!(self.one.nvmlDeviceGetRowRemapperHistogram);
        let asked = Repair { version: version_word::<Repair>(1), ..Repair::default() };
        let repair = reading(Nvml::one_from(self.nvml.0.nvmlDeviceGetRepairStatus, self.device, asked));
        // nvmlPageRetirementCause_t: 0 single-bit errors, 1 double-bit ones.
        let retired = [0, 1].map(|cause| reading(self.nvml.retired_pages(self.device, cause)));
        EccReading {
            enabled: mode.map(|(now, _)| now == 1),
            pending: mode.map(|(_, next)| next == 1),
            sram_aggregate_uncorr: sram.map(|sram| sram.aggregate_unc_parity + sram.aggregate_unc_sec_ded),
            // Uncorrected, aggregate, device memory.
            dram_aggregate_uncorr: reading(self.nvml.memory_errors(self.device, 1, 1, 2)),
            sram_threshold_exceeded: sram.map(|sram| sram.threshold_exceeded == 1),
            remap_histogram: histogram
                .map(|banks| [banks.max, banks.high, banks.partial, banks.low, banks.none]),
            retired_pages: together(retired),
            retire_pending: ask!(self.one.nvmlDeviceGetRetiredPagesPendingStatus).map(|state| state == 1),
            repair_pending: repair.map(|repair| [repair.channel == 1, repair.tpc == 1]),
        }
    }

    fn pcie(&self) -> PcieReading {
        PcieReading {
            generation: ask!(self.one.nvmlDeviceGetCurrPcieLinkGeneration),
            width: ask!(self.one.nvmlDeviceGetCurrPcieLinkWidth),
            max_generation: ask!(self.one.nvmlDeviceGetMaxPcieLinkGeneration),
            max_width: ask!(self.one.nvmlDeviceGetMaxPcieLinkWidth),
            gpu_max_generation: ask!(self.one.nvmlDeviceGetGpuMaxPcieLinkGeneration),
        }
    }

    /// "Invalid argument" and all that means "not supported" is the link after the last. A library that refuses otherwise
    /// has said nothing about there being a link: of such links at the end the first is kept, for its refusal.
    fn nvlinks(&self) -> Vec<NvLinkReading> {
        let mut links = Vec::new();
        let mut at_end: usize = 0;
        for link in 0..MAX_LINKS {
            let up = match Nvml::of(self.nvml.0.nvmlDeviceGetNvLinkState, self.device, link) {
                Err(INVALID_ARGUMENT) => break,
                state => reading(state).map(|state| state == 1),
            };
            if up == Reading::NotSupported {
                break;
            }
            at_end = if up.value().is_some() { 0 } else { at_end + 1 };
            links.push(self.nvlink(link, up));
        }
        links.truncate(links.len() - at_end.saturating_sub(1));
        links
    }

    fn nvlink(&self, link: u32, up: Reading<bool>) -> NvLinkReading {
        let [replay, recovery, crc, speed] =
            fields(self.nvml, self.device, [161, 162, 163, 164].map(|id| (id, link)));
        // NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_{SUCCESSFUL,FAILED}_EVENTS, ..._EFFECTIVE_BER, ..._SYMBOL_BER.
        let [recovered, failed, effective, symbol] =
            fields(self.nvml, self.device, [213, 214, 220, 222].map(|id| (id, link)));
        NvLinkReading {
            link,
            up,
            version: ask!(self.of.nvmlDeviceGetNvLinkVersion, link),
            speed_mbps: unsigned(speed),
            // nvmlIntNvLinkDeviceType_t.
            end: ask!(self.of.nvmlDeviceGetNvLinkRemoteDeviceType, link).map(|kind| match kind {
                0 => LinkEnd::Gpu,
                1 => LinkEnd::Npu,
                2 => LinkEnd::Switch,
                _ => LinkEnd::Unknown,
            }),
            end_pci: ask!(self.of.nvmlDeviceGetNvLinkRemotePciInfo_v2, link)
                .and_then(|pci| address(&pci.bus_id)),
            errors: together([replay, recovery, crc].map(unsigned)),
            recoveries: together([recovered, failed].map(unsigned)),
            error_rates: together([effective, symbol].map(unsigned)),
        }
    }

    /// The newest struct that the library knows: it refuses others with "argument version mismatch".
    fn fabric(&self) -> Reading<FabricReading> {
        let v3 = FabricV3 { version: version_word::<FabricV3>(3), ..FabricV3::default() };
        match self.nvml.fabric(self.device, v3) {
            Err(ARGUMENT_VERSION_MISMATCH) => {}
            Err(FUNCTION_NOT_FOUND) => return self.oldest_fabric(),
            answer => {
                return reading(answer).map(|info| FabricReading {
                    health_mask: Some(info.health_mask),
                    health_summary: Some(info.health_summary.into()),
                    ..fabric(info.cluster, info.status, info.clique, info.state)
                });
            }
        }
        let v2 = FabricV2 { version: version_word::<FabricV2>(2), ..FabricV2::default() };
        match self.nvml.fabric(self.device, v2) {
            Err(ARGUMENT_VERSION_MISMATCH) => self.oldest_fabric(),
            answer => reading(answer).map(|info| FabricReading {
                health_mask: Some(info.health_mask),
                ..fabric(info.cluster, info.status, info.clique, info.state)
            }),
        }
    }

    fn oldest_fabric(&self) -> Reading<FabricReading> {
        let info: Reading<FabricV1> = ask!(self.one.nvmlDeviceGetGpuFabricInfo);
        info.map(|info| fabric(info.cluster, info.status, info.clique, info.state))
    }

    fn mig(&self) -> MigReading {
        let mode = ask!(self.two.nvmlDeviceGetMigMode);
        let most = ask!(self.one.nvmlDeviceGetMaxMigDeviceCount);
        let mut devices = Vec::new();
        if let (Reading::Value((1, _)), Reading::Value(most)) = (mode, most) {
            let open = |place| self.nvml.mig_device(self.device, place).ok();
            devices.extend((0..most).filter_map(open).map(|device| Gpu { device, ..*self }.mig_device()));
        }
        MigReading { pending: mode.map(|(_, next)| next == 1), max_devices: most, devices }
    }

    fn mig_device(&self) -> MigDeviceReading {
        let attributes = ask!(self.one.nvmlDeviceGetAttributes_v2);
        let uuid = parsed(Nvml::text(self.nvml.0.nvmlDeviceGetUUID, self.device));
        MigDeviceReading {
            uuid: uuid.value().cloned(),
            name: ask!(self.text.nvmlDeviceGetName),
            gpu_instance: ask!(self.one.nvmlDeviceGetGpuInstanceId),
            compute_instance: ask!(self.one.nvmlDeviceGetComputeInstanceId),
            slices: attributes.map(|attributes| attributes.gpu_instance_slices),
            multiprocessors: attributes.map(|attributes| attributes.multiprocessors),
            memory_mib: attributes.map(|attributes| attributes.memory_mib),
        }
    }

    /// All three lists. One that this board or driver does not have adds nothing; any other refusal of one is an answer
    /// about the whole, as a list with a part missing would pass for all there is.
    fn processes(&self) -> Reading<Vec<ProcessReading>> {
        let functions = &self.nvml.0;
        let mut all = Vec::new();
        for (kind, function) in [
            (ProcessKind::Compute, functions.nvmlDeviceGetComputeRunningProcesses_v3),
            (ProcessKind::Graphics, functions.nvmlDeviceGetGraphicsRunningProcesses_v3),
            (ProcessKind::Mps, functions.nvmlDeviceGetMPSComputeRunningProcesses_v3),
        ] {
            match Nvml::list(function, self.device).map_err(of_code) {
                Ok(list) => all.extend(list.iter().map(|info| process(kind, info))),
                Err(Reading::NotSupported) if kind != ProcessKind::Compute => {}
                Err(refused) => return refused,
            }
        }
        all.sort_by_key(|process| (process.pid, process.kind));
        Reading::Value(all)
    }
}

fn process(kind: ProcessKind, info: &Process) -> ProcessReading {
    let instance = |id: u32| Some(id).filter(|id| *id != u32::MAX);
    ProcessReading {
        pid: info.pid,
        kind,
        memory_mib: Some(info.memory)
            .filter(|bytes| *bytes != NOT_AVAILABLE)
            .map(|bytes| bytes / BYTES_PER_MIB),
        gpu_instance: instance(info.gpu_instance),
        compute_instance: instance(info.compute_instance),
    }
}

fn fabric(cluster: [u8; 16], status: u32, clique: u32, state: u8) -> FabricReading {
    let hex = format!("{:032x}", u128::from_be_bytes(cluster));
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    let cluster_uuid = if cluster == [0; 16] { String::new() } else { parts.join("-") };
    FabricReading {
        state: state.into(),
        status,
        clique,
        cluster_uuid,
        health_mask: None,
        health_summary: None,
    }
}

/// Values that only mean something together: without one of them, what that one said.
fn together<T: Copy, const N: usize>(parts: [Reading<T>; N]) -> Reading<[T; N]> {
    let missing = parts.iter().find(|part| part.value().is_none());
    match missing {
        Some(part) => part.and_then(|_| Reading::NotRead),
        None => Reading::Value(parts.map(|part| *part.value().expect("none is missing"))),
    }
}

/// CPU n is bit n of the words.
fn cpus(words: &[u64]) -> CpuSet {
    (0..8192u32).filter(|cpu| words[(cpu / 64) as usize] & 1 << (cpu % 64) != 0).collect()
}
