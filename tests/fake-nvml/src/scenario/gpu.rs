//! The GPU part of a scenario. Every field has a default, so that a model file, the machine's `gpu_defaults`
//! and a `[[gpus]]` entry may each state a part; missing essentials are found by validation.
//!
//! A field that is `Option` answers "not supported" where nothing is stated.

use serde::{Deserialize, Serialize};

use super::values::{CpuList, PciAddress};

/// Declares parts of the schema: unknown keys are errors, everything has a default.
macro_rules! part {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
            #[serde(default, deny_unknown_fields)]
            pub struct $name { $($(#[$field_doc])* pub $field: $type,)* }
        )*
    };
}

part! {
    /// One GPU of the machine.
    Gpu {
        /// Name of a file `models/<model>.toml` beside the scenario; merged in and gone after loading.
        #[serde(skip_serializing_if = "String::is_empty")]
        model: String,
        /// Place in the scenario; 0-based position where nothing is stated.
        slot: Option<u32>,
        /// `GPU-` and 36 characters; derived from machine and slot where nothing is stated.
        uuid: String,
        /// Board serial number; none on consumer boards.
        serial: Option<String>,
        /// First digits of serial numbers, in models whose boards have one: the rest is derived from machine and slot
        /// where no serial is stated. Gone after loading.
        #[serde(skip_serializing_if = "Option::is_none")]
        serial_prefix: Option<String>,
        /// Address of function 0.
        pci: PciAddress,
        /// The root port or switch port that the GPU is plugged into; its own address where nothing is stated, for one
        /// on a root bus itself.
        under: PciAddress,
        /// N of /dev/nvidiaN; the slot where nothing is stated.
        minor: u32,
        /// Product name.
        name: String,
        /// `nvmlBrandType_t`.
        brand: u32,
        /// `nvmlDeviceArchitecture_t`: 7 Ampere, 8 Ada, 9 Hopper, 10 Blackwell.
        architecture: u32,
        /// CUDA compute capability, major and minor.
        compute_capability: [i32; 2],
        /// Video BIOS version.
        vbios: String,
        /// Board part number.
        board_part_number: Option<String>,
        /// InfoROM image version.
        inforom: Option<String>,
        /// Whether the InfoROM's checksum is right.
        inforom_corrupt: bool,
        /// Whether the GSP firmware runs; no GSP where nothing is stated.
        gsp: Option<bool>,
        /// Device id and vendor id, as `pciDeviceId` holds them (0x233010de).
        pci_device_id: u32,
        /// Subsystem id and vendor.
        pci_subsystem_id: u32,
        /// PCI class; 3D controller where nothing is stated, boards with a display are 0x030000.
        pci_class: Option<u32>,
        /// Whether function 1 is a sound device, as on boards with a display.
        audio: bool,
        /// CPUs that the driver calls near; the CPUs of the NUMA node where nothing is stated.
        cpus: Option<CpuList>,
        /// NUMA node of the GPU's own memory (Grace only).
        memory_numa_node: Option<u32>,
        /// Persistence mode.
        persistence: bool,
        /// `nvmlComputeMode_t`: 0 default, 2 prohibited, 3 exclusive process.
        compute_mode: u32,
        /// What the driver asks for (field 230): 0 none, 1 GPU reset, 2 reboot, 3 drain P2P, 4 drain and reset.
        recovery_action: Option<u32>,
        /// Whether the GPU computes all the time. For limited times see `[[busy]]` in the fault script.
        busy: bool,
        /// Whether the GPU has performance monitoring (Hopper and newer).
        gpm: bool,
        /// Utilisation while busy.
        util: Util,
        /// Memory.
        memory: Memory,
        /// Power and energy.
        power: Power,
        /// Temperatures and their limits.
        temp: Temp,
        /// Clocks and throttling.
        clocks: Clocks,
        /// ECC counters.
        ecc: Ecc,
        /// Row remapping (Ampere and newer).
        remap: Option<Remap>,
        /// Page retirement (before Ampere).
        retired: Option<Retired>,
        /// PCIe link.
        pcie: Pcie,
        /// `nvmlGpuP2PStatus_t` of each pair with this GPU that would else be fine.
        p2p_status: Option<u32>,
        /// NVLink.
        nvlink: NvLink,
        /// NVLink fabric of NVSwitch machines; not supported where nothing is stated.
        fabric: Option<Fabric>,
        /// MIG.
        mig: Mig,
        /// Accounting mode.
        accounting: Accounting,
        /// Processes on the GPU.
        processes: Vec<Process>,
        /// Links to the CPU's memory (Grace only).
        c2c: Option<C2c>,
    }

    /// Utilisation while busy, percent; 0 while idle.
    Util {
        /// SM.
        gpu_pct: u32,
        /// Memory controller.
        memory_pct: u32,
        /// What performance samples show of the parts of an SM; shares of ours where nothing is stated.
        #[serde(skip_serializing_if = "Option::is_none")]
        sm: Option<SmUtil>,
    }

    /// Parts of an SM while busy, percent.
    SmUtil {
        /// Warps that are resident, of those that could be.
        occupancy_pct: u32,
        /// Integer pipe.
        integer_pct: u32,
        /// Any tensor pipe.
        tensor_pct: u32,
        /// Tensor pipe, double precision.
        dfma_pct: u32,
        /// Tensor pipe, half precision.
        hmma_pct: u32,
        /// Tensor pipe, integers.
        imma_pct: u32,
        /// Double precision pipe.
        fp64_pct: u32,
        /// Single precision pipe.
        fp32_pct: u32,
        /// Half precision pipe.
        fp16_pct: u32,
    }

    /// Device memory.
    Memory {
        /// Physical size.
        total_mib: u64,
        /// Kept by the driver.
        reserved_mib: u64,
        /// Used without any process.
        used_mib: u64,
        /// Size of BAR1.
        bar1_mib: u64,
        /// Used part of BAR1.
        bar1_used_mib: u64,
    }

    /// Power.
    Power {
        /// Draw while idle.
        idle_mw: u64,
        /// Draw while busy.
        busy_mw: u64,
        /// Factory limit.
        default_limit_mw: u32,
        /// Limit that was asked for; the default where nothing is stated.
        limit_mw: Option<u32>,
        /// Limit in force (a BMC may lower it); the limit asked for where nothing is stated.
        enforced_limit_mw: Option<u32>,
        /// Lowest limit that can be asked for.
        min_limit_mw: u32,
        /// Highest limit that can be asked for.
        max_limit_mw: u32,
        /// Energy counter at boot; none on boards without the counter.
        energy_base_mj: Option<u64>,
    }

    /// Temperatures.
    Temp {
        /// Core, idle.
        gpu_c: u32,
        /// Core, busy.
        gpu_busy_c: u32,
        /// Memory, idle.
        memory_c: Option<u32>,
        /// Memory, busy.
        memory_busy_c: Option<u32>,
        /// Threshold of shutdown.
        shutdown_c: Option<u32>,
        /// Threshold of slowdown.
        slowdown_c: Option<u32>,
        /// Highest memory temperature.
        memory_max_c: Option<u32>,
        /// Highest core temperature; the margin counts down to it.
        gpu_max_c: Option<u32>,
        /// Distance form of the limits (fields 193 to 196): shutdown, slowdown, memory, GPU.
        tlimit_c: Option<[i32; 4]>,
    }

    /// Clocks, MHz: graphics, SM, memory, video.
    Clocks {
        /// Idle.
        idle_mhz: [u32; 4],
        /// Busy.
        busy_mhz: [u32; 4],
        /// Highest possible.
        max_mhz: [u32; 4],
        /// Application clocks, graphics and memory, by default.
        app_default_mhz: Option<[u32; 2]>,
        /// Application clocks in force; the default where nothing is stated.
        app_mhz: Option<[u32; 2]>,
        /// Locked range of the graphics clock, as an administrator may have left it.
        locked_graphics_mhz: Option<[u32; 2]>,
        /// Locked range of the memory clock.
        locked_memory_mhz: Option<[u32; 2]>,
        /// Lowest and highest supported graphics clock, and the step between.
        supported_graphics_mhz: [u32; 3],
        /// Supported memory clocks.
        supported_memory_mhz: Vec<u32>,
        /// Performance state while idle (busy is 0).
        idle_pstate: u32,
        /// Event reason bits now; idle bit or nothing where nothing is stated.
        event_reasons: Option<u64>,
        /// Time spent throttled.
        throttle_ns: ThrottleNs,
    }

    /// Time spent throttled since the driver was loaded, nanoseconds.
    ThrottleNs {
        /// Power cap (field 74).
        power: u64,
        /// Thermal policy (75).
        thermal: u64,
        /// Sync boost (76).
        sync_boost: u64,
        /// Board limit (77).
        board_limit: u64,
        /// Low utilisation (78).
        low_utilization: u64,
        /// Reliability (79).
        reliability: u64,
        /// Software thermal slowdown.
        sw_thermal: u64,
        /// Hardware thermal slowdown.
        hw_thermal: u64,
        /// Hardware power brake.
        hw_power_brake: u64,
    }

    /// ECC.
    Ecc {
        /// Mode; not supported where nothing is stated.
        enabled: Option<bool>,
        /// Mode after the next reset; the present one where nothing is stated.
        pending: Option<bool>,
        /// Counters of the device memory.
        dram: EccCounts,
        /// Counters of caches and registers (uncorrected ones by parity and SECDED together).
        sram: EccCounts,
        /// Part of `sram.volatile_uncorr` and `sram.aggregate_uncorr` found by parity.
        sram_parity: [u64; 2],
        /// Whether the board is over the SRAM limit.
        sram_threshold_exceeded: bool,
        /// Channel repair, TPC repair pending.
        repair_pending: Option<[bool; 2]>,
    }

    /// ECC counters.
    EccCounts {
        /// Corrected since the last reset.
        volatile_corr: u64,
        /// Uncorrected since the last reset.
        volatile_uncorr: u64,
        /// Corrected in the life of the board.
        aggregate_corr: u64,
        /// Uncorrected in the life of the board.
        aggregate_uncorr: u64,
    }

    /// Row remapping.
    Remap {
        /// Rows remapped for corrected errors.
        corr: u32,
        /// Rows remapped for uncorrected errors.
        uncorr: u32,
        /// A remap waits for the next reset.
        pending: bool,
        /// A remap failed.
        failure: bool,
        /// Banks by spare rows left: max, high, partial, low, none.
        histogram: [u32; 5],
    }

    /// Page retirement.
    Retired {
        /// Pages retired for single-bit errors.
        single_bit: Vec<u64>,
        /// Pages retired for double-bit errors.
        double_bit: Vec<u64>,
        /// Retirement waits for the next reset.
        pending: bool,
    }

    /// PCIe link.
    Pcie {
        /// Generation while busy.
        generation: u32,
        /// Generation while idle.
        idle_generation: u32,
        /// Width.
        width: u32,
        /// Generation that GPU and slot can do together.
        max_generation: u32,
        /// Width that GPU and slot can do together.
        max_width: u32,
        /// Generation that the GPU can do.
        gpu_max_generation: u32,
        /// Replay counter.
        replay: u32,
        /// Replay rollover counter.
        replay_rollover: u32,
        /// L0-to-recovery counter.
        l0_to_recovery: u32,
        /// Error classes in the order of fields 173 to 183.
        errors: [u32; 11],
        /// AER totals in sysfs: correctable, non-fatal, fatal.
        aer: [u64; 3],
        /// Bytes sent at boot and per busy second.
        tx_bytes: [u64; 2],
        /// Bytes received at boot and per busy second.
        rx_bytes: [u64; 2],
    }

    /// NVLink.
    NvLink {
        /// Version; no NVLink where nothing is stated.
        version: Option<u32>,
        /// Speed of one link, MB/s in each direction.
        speed_mbps: u32,
        /// Where links go.
        links: Vec<LinkGroup>,
        /// Links that are down.
        down: CpuList,
        /// Links with errors.
        errors: Vec<LinkErrors>,
        /// Payload KiB per busy second and link, in each direction.
        busy_kib_per_s: u64,
    }

    /// Links to one remote end.
    LinkGroup {
        /// Address of a GPU or an NVSwitch.
        to: PciAddress,
        /// Link numbers on this side.
        links: CpuList,
    }

    /// Error counters of one link.
    LinkErrors {
        /// Link number.
        link: u32,
        /// DL replays.
        replay: u64,
        /// DL recoveries.
        recovery: u64,
        /// CRC errors of flits.
        crc_flit: u64,
        /// CRC errors of data.
        crc_data: u64,
        /// ECC errors of data.
        ecc_data: u64,
        /// NVLink 5: fields 206 to 215 in their order.
        packets: [u64; 10],
        /// NVLink 5: errors after correction (219).
        effective: u64,
        /// NVLink 5: symbol errors (221).
        symbol: u64,
        /// NVLink 5: raw, effective and symbol bit error rates, each mantissa and negative exponent of ten.
        ber: [[u8; 2]; 3],
        /// NVLink 5: corrected blocks by the number of symbols that were wrong (235 to 250).
        fec: [u64; 16],
    }

    /// Links to the CPU's memory.
    C2c {
        /// How many.
        links: u32,
        /// Links that are down.
        down: CpuList,
        /// Highest bandwidth of a link, MB/s.
        max_mbps: u32,
        /// Error interrupts, replays, replays back to back of all links together (fields 231 to 233).
        errors: [u64; 3],
    }

    /// NVLink fabric.
    Fabric {
        /// 0 not supported, 1 not started, 2 in progress, 3 completed.
        state: u32,
        /// Return code of the registration, counts only when completed.
        status: u32,
        /// Clique.
        clique: u32,
        /// Cluster UUID, empty for zeros.
        cluster_uuid: String,
        /// Health mask.
        health_mask: u32,
        /// Summary of struct version 3: 0 not supported, 1 healthy, 2 unhealthy, 3 limited.
        health_summary: u8,
    }

    /// MIG.
    Mig {
        /// Most instances; 0 = no MIG.
        max_devices: u32,
        /// Mode.
        enabled: bool,
        /// Mode after the next reset; the present one where nothing is stated.
        pending: Option<bool>,
        /// Instances.
        devices: Vec<MigDevice>,
        /// Profiles that a model offers: an instance that names one need not repeat its sizes. Gone after loading.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        profiles: Vec<MigProfile>,
    }

    /// One profile of MIG instances.
    MigProfile {
        /// `1g.10gb`.
        name: String,
        /// GPU slices.
        slices: u32,
        /// Memory slices, of eight.
        memory_slices: u32,
        /// Multiprocessors.
        multiprocessors: u32,
        /// Memory.
        memory_mib: u64,
        /// Most instances on one GPU.
        max: u32,
    }

    /// One MIG device.
    MigDevice {
        /// `MIG-` and 36 characters; derived from the GPU's and the instance ids where nothing is stated.
        uuid: String,
        /// Profile, `1g.10gb`.
        profile: String,
        /// GPU instance id.
        gpu_instance: u32,
        /// Compute instance id.
        compute_instance: u32,
        /// GPU slices of the instance.
        slices: u32,
        /// Multiprocessors.
        multiprocessors: u32,
        /// Memory.
        memory_mib: u64,
        /// Processes on this instance.
        processes: Vec<Process>,
    }

    /// One process on a GPU.
    Process {
        /// Process id.
        pid: u32,
        /// Program name, as `nvmlSystemGetProcessName` gives it.
        name: String,
        /// Memory that it holds.
        memory_mib: u64,
        /// `compute`, `graphics` or `mps`.
        kind: ProcessKind,
        /// Leave it out of the lists once no such process runs on this host, as a driver does.
        only_while_alive: bool,
    }

    /// NVML accounting mode.
    Accounting {
        /// Mode; not supported where nothing is stated.
        enabled: Option<bool>,
        /// Size of the ring.
        buffer_size: u32,
        /// Ended and running processes.
        entries: Vec<AccountingEntry>,
        /// When it was switched on by a client: processes that started before do not count.
        since_boottime_ms: Option<u64>,
        /// When a client cleared the ring: processes that had ended before are gone.
        cleared_boottime_ms: Option<u64>,
    }

    /// One process in the accounting ring.
    AccountingEntry {
        /// Process id.
        pid: u32,
        /// Mean GPU utilisation, percent.
        gpu_pct: u32,
        /// Mean memory utilisation, percent.
        memory_pct: u32,
        /// Highest memory use.
        max_memory_mib: u64,
        /// Active time; 0 while running.
        time_ms: u64,
        /// Start, microseconds since 1970.
        start_unix_us: u64,
        /// Whether it still runs.
        running: bool,
    }
}

/// Which process list a process is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessKind {
    /// CUDA.
    #[default]
    Compute,
    /// Graphics.
    Graphics,
    /// Client of the MPS server.
    Mps,
}
