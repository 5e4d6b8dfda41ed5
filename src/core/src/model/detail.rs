//! What the driver says about one GPU beyond who it is and what it counts.
//!
//! A look before a job reads the few of these that its rules need; `gpuward check` and `gpuward snapshot` read all.

use super::{CpuSet, GpuUuid, PciAddress, Reading};
use serde::{Deserialize, Serialize};

/// Declares groups of readings: everything is "not read" until somebody read it, so that older files stay readable.
macro_rules! readings {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
            #[serde(default)]
            pub struct $name {
                $(
                    $(#[$field_doc])*
                    #[serde(skip_serializing_if = "is_default")]
                    pub $field: $type,
                )*
            }
        )*
    };
}

/// What was not read need not be written: it reads back as not read.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

readings! {
    /// Everything beyond identity and counters.
    GpuDetail {
        /// What the board is.
        board: BoardReading,
        /// Device memory.
        memory: MemoryReading,
        /// Power.
        power: PowerReading,
        /// Temperatures.
        temp: TempReading,
        /// Clocks and throttling.
        clocks: ClockReading,
        /// ECC, row remapping, page retirement.
        ecc: EccReading,
        /// PCIe link.
        pcie: PcieReading,
        /// NVLinks in ascending order; empty for boards without.
        nvlinks: Vec<NvLinkReading>,
        /// NVLink fabric.
        fabric: Reading<FabricReading>,
        /// C2C links between CPU and GPU (Grace).
        c2c_links: Reading<u32>,
        /// Peer-to-peer status towards the other GPUs of the node, by PCI address.
        peers: Vec<PeerReading>,
        /// MIG.
        mig: MigReading,
        /// Processes that hold the GPU.
        processes: Reading<Vec<ProcessReading>>,
        /// `nvmlComputeMode_t`: 0 default, 2 prohibited, 3 exclusive process.
        compute_mode: Reading<u32>,
        /// Accounting mode.
        accounting: Reading<bool>,
        /// Processes that the accounting ring holds.
        accounting_buffer: Reading<u32>,
        /// Whether GPM works here.
        gpm: Reading<bool>,
        /// CPUs that the driver calls near, as filtered by the reader's own CPU set.
        cpus: Reading<CpuSet>,
        /// NUMA node of the GPU's own memory (Grace).
        memory_node: Reading<u32>,
    }

    /// What the board is.
    BoardReading {
        /// `nvmlBrandType_t`.
        brand: Reading<u32>,
        /// `nvmlDeviceArchitecture_t`: 7 Ampere, 8 Ada, 9 Hopper, 10 Blackwell.
        architecture: Reading<u32>,
        /// CUDA compute capability, major and minor.
        compute_capability: Reading<[i32; 2]>,
        /// Video BIOS version.
        vbios: Reading<String>,
        /// Board part number.
        part_number: Reading<String>,
        /// InfoROM image version.
        inforom: Reading<String>,
        /// Whether the InfoROM's flash memory agrees with its checksums: code 14 says no. Only a deep look reads it.
        inforom_check: Reading<()>,
        /// GSP firmware: whether it is on.
        gsp: Reading<bool>,
        /// Device id and vendor id, 0x233010de.
        pci_device_id: Reading<u32>,
        /// Subsystem id and vendor.
        pci_subsystem_id: Reading<u32>,
    }

    /// Device memory, MiB.
    MemoryReading {
        /// Physical size.
        total_mib: Reading<u64>,
        /// Kept by the driver.
        reserved_mib: Reading<u64>,
        /// Used by processes and contexts.
        used_mib: Reading<u64>,
        /// Size of BAR1.
        bar1_mib: Reading<u64>,
        /// Used part of BAR1.
        bar1_used_mib: Reading<u64>,
    }

    /// Power, mW.
    PowerReading {
        /// Draw now.
        draw_mw: Reading<u32>,
        /// Factory limit.
        default_limit_mw: Reading<u32>,
        /// Limit that was asked for.
        limit_mw: Reading<u32>,
        /// Limit in force.
        enforced_limit_mw: Reading<u32>,
        /// Lowest limit that can be asked for.
        min_limit_mw: Reading<u32>,
        /// Highest limit that can be asked for.
        max_limit_mw: Reading<u32>,
    }

    /// Temperatures, °C.
    TempReading {
        /// Memory.
        memory_c: Reading<u32>,
        /// Threshold of shutdown.
        shutdown_c: Reading<u32>,
        /// Threshold of slowdown.
        slowdown_c: Reading<u32>,
        /// Highest memory temperature.
        memory_max_c: Reading<u32>,
        /// Highest core temperature.
        gpu_max_c: Reading<u32>,
        /// Distance form of the limits (fields 193 to 196): shutdown, slowdown, memory, GPU.
        tlimit_c: Reading<[i64; 4]>,
        /// How far the core is below its limit; the scale of `tlimit_c`. 0 or less is at the limit.
        margin_c: Reading<i64>,
    }

    /// Clocks.
    ClockReading {
        /// Graphics, SM, memory, video now.
        now_mhz: Reading<[u32; 4]>,
        /// The highest possible.
        max_mhz: Reading<[u32; 4]>,
        /// Application clocks by default: graphics and memory.
        app_default_mhz: Reading<[u32; 2]>,
        /// Application clocks in force.
        app_mhz: Reading<[u32; 2]>,
        /// Performance state, 0 the fastest.
        pstate: Reading<u32>,
        /// Utilisation, percent: SM and memory controller.
        util_pct: Reading<[u32; 2]>,
        /// Event reason bits now.
        event_reasons: Reading<u64>,
        /// Time throttled by the power cap (field 74), ns.
        throttle_power_ns: Reading<u64>,
        /// Time throttled by thermal policy (field 75), ns.
        throttle_thermal_ns: Reading<u64>,
    }

    /// ECC, row remapping, page retirement. The sums are among the counters of a job.
    EccReading {
        /// Mode now.
        enabled: Reading<bool>,
        /// Mode after the next reset.
        pending: Reading<bool>,
        /// Uncorrected errors of caches and registers in the life of the board.
        sram_aggregate_uncorr: Reading<u64>,
        /// Uncorrected errors of the device memory in the life of the board.
        dram_aggregate_uncorr: Reading<u64>,
        /// Whether the board is over its SRAM limit.
        sram_threshold_exceeded: Reading<bool>,
        /// Banks by spare rows left: max, high, partial, low, none.
        remap_histogram: Reading<[u32; 5]>,
        /// Pages retired for single-bit and for double-bit errors.
        retired_pages: Reading<[u64; 2]>,
        /// Retirement waits for the next reset.
        retire_pending: Reading<bool>,
        /// A repair of a memory channel, and of a group of multiprocessors (TPC), waits for the next reset.
        repair_pending: Reading<[bool; 2]>,
    }

    /// PCIe link.
    PcieReading {
        /// Generation now; idle GPUs may go down to 1.
        generation: Reading<u32>,
        /// Width now.
        width: Reading<u32>,
        /// Generation that GPU and slot can do together.
        max_generation: Reading<u32>,
        /// Width that GPU and slot can do together.
        max_width: Reading<u32>,
        /// Generation that the GPU can do.
        gpu_max_generation: Reading<u32>,
    }

    /// One NVLink.
    NvLinkReading {
        /// Its number on this GPU.
        link: u32,
        /// Whether it is up.
        up: Reading<bool>,
        /// NVLink version.
        version: Reading<u32>,
        /// Speed in each direction, MB/s (field 164).
        speed_mbps: Reading<u64>,
        /// What is at the other end.
        end: Reading<LinkEnd>,
        /// Its PCI address.
        end_pci: Reading<PciAddress>,
        /// DL replays, recoveries, flit CRC errors (fields 161, 162, 163); before NVLink 5.
        errors: Reading<[u64; 3]>,
        /// Recoveries that succeeded and that failed (fields 213, 214); from NVLink 5 on.
        recoveries: Reading<[u64; 2]>,
        /// Bit error rates, effective and by symbol (fields 220, 222), as the driver encodes them: mantissa in bits 8 to
        /// 11, negative exponent of ten in bits 0 to 7. From NVLink 5 on.
        error_rates: Reading<[u64; 2]>,
    }

    /// NVLink fabric.
    FabricReading {
        /// 0 not supported, 1 not started, 2 in progress, 3 completed.
        state: u32,
        /// Return code of the registration; counts only when completed.
        status: u32,
        /// Clique.
        clique: u32,
        /// Cluster UUID, empty for zeros.
        cluster_uuid: String,
        /// Health mask; only struct version 2 and newer.
        health_mask: Option<u32>,
        /// Summary of struct version 3: 0 not supported, 1 healthy, 2 unhealthy, 3 limited.
        health_summary: Option<u32>,
    }

    /// Peer-to-peer status towards one GPU, `nvmlGpuP2PStatus_t`: 0 OK.
    PeerReading {
        /// The other GPU.
        pci: Option<PciAddress>,
        /// Read.
        read: Reading<u32>,
        /// Write.
        write: Reading<u32>,
        /// Over NVLink.
        nvlink: Reading<u32>,
    }

    /// MIG.
    MigReading {
        /// Mode after the next reset.
        pending: Reading<bool>,
        /// Most devices.
        max_devices: Reading<u32>,
        /// Devices, while the mode is on.
        devices: Vec<MigDeviceReading>,
    }

    /// One MIG device.
    MigDeviceReading {
        /// UUID.
        uuid: Option<GpuUuid>,
        /// Its name as the driver says it, with the profile.
        name: Reading<String>,
        /// GPU instance id.
        gpu_instance: Reading<u32>,
        /// Compute instance id.
        compute_instance: Reading<u32>,
        /// GPU slices.
        slices: Reading<u32>,
        /// Multiprocessors.
        multiprocessors: Reading<u32>,
        /// Memory.
        memory_mib: Reading<u64>,
    }

    /// One process on a GPU.
    ProcessReading {
        /// Process id, in the reader's pid namespace.
        pid: u32,
        /// Which list it is in.
        kind: ProcessKind,
        /// Memory that it holds; `None` where the driver does not say.
        memory_mib: Option<u64>,
        /// MIG GPU instance.
        gpu_instance: Option<u32>,
        /// MIG compute instance.
        compute_instance: Option<u32>,
    }
}

impl FabricReading {
    /// Whether the GPU is not part of its fabric yet: not started, or in progress.
    pub fn waits(&self) -> bool {
        matches!(self.state, 1 | 2)
    }
}

/// What is at the other end of an NVLink, `nvmlIntNvLinkDeviceType_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkEnd {
    /// Another GPU.
    Gpu,
    /// An IBM POWER CPU.
    Npu,
    /// An NVSwitch.
    Switch,
    /// Something else.
    Unknown,
}

/// Which of the driver's lists a process is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessKind {
    /// CUDA.
    #[default]
    Compute,
    /// Graphics.
    Graphics,
    /// Client of the MPS server.
    Mps,
}
