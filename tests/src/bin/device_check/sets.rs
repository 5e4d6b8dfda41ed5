//! Which calls gpuward makes for one GPU, and how often: `src/node/src/nvml/read.rs` before a job, `detail.rs` in a look
//! at leisure on top. `tests/tests/device.rs` proves that no other function is called.

use super::nvml::Device;
use super::nvml::Shape::{
    self, Alone, Cpus, Fields, List, MemoryErrors, Of, One, Open, PageCount, Pages, Peer, Text, Two,
    Versioned,
};

/// How often a call is made.
#[derive(Debug, Clone, Copy)]
pub enum Times {
    /// So often.
    Fixed(u32),
    /// For each NVLink, and so often on top.
    Link(u32),
    /// So often for each other GPU.
    Other(u32),
    /// So often for each MIG device.
    Mig(u32),
}

/// One kind of call.
#[derive(Debug)]
pub struct Call {
    /// The function.
    pub function: &'static str,
    /// What is asked for, where the function's name does not say it.
    pub about: &'static str,
    /// How it is called.
    pub shape: Shape,
    /// Before and after a job.
    pub job: Times,
    /// In a look at leisure, on top of those of a job.
    pub look: Times,
}

const NEVER: Times = Times::Fixed(0);
const ONCE: Times = Times::Fixed(1);

const fn both(function: &'static str, shape: Shape) -> Call {
    Call { function, about: "", shape, job: ONCE, look: ONCE }
}

const fn job(function: &'static str, shape: Shape) -> Call {
    Call { function, about: "", shape, job: ONCE, look: NEVER }
}

const fn look(function: &'static str, shape: Shape) -> Call {
    looks(function, "", shape, ONCE)
}

const fn looks(function: &'static str, about: &'static str, shape: Shape, look: Times) -> Call {
    Call { function, about, shape, job: NEVER, look }
}

/// The fields of one batch before a job.
const JOB_FIELDS: [(u32, u32); 17] = [
    (3, 0),
    (4, 0),
    (5, 0),
    (6, 0),
    (83, 0),
    (94, 0),
    (142, 0),
    (143, 0),
    (144, 0),
    (145, 0),
    (230, 0),
    (82, 0),
    (189, 0),
    (190, 0),
    (251, 0),
    (252, 0),
    (253, 0),
];

const LOOK_FIELDS: [(u32, u32); 4] = [(74, 0), (75, 0), (82, 0), (170, 0)];
const LIMIT_FIELDS: [(u32, u32); 4] = [(193, 0), (194, 0), (195, 0), (196, 0)];
const LINK_FIELDS: [(u32, u32); 8] =
    [(164, 0), (161, 0), (162, 0), (163, 0), (213, 0), (214, 0), (220, 0), (222, 0)];

/// All of them, in gpuward's order.
pub const CALLS: [Call; 69] = [
    both("nvmlDeviceGetHandleByPciBusId_v2", Open),
    Call { about: "17 fields in one batch", ..job("nvmlDeviceGetFieldValues", Fields(&JOB_FIELDS)) },
    job("nvmlDeviceGetUUID", Text),
    job("nvmlDeviceGetMinorNumber", One),
    job("nvmlDeviceGetName", Text),
    job("nvmlDeviceGetSerial", Text),
    job("nvmlDeviceGetPersistenceMode", One),
    both("nvmlDeviceGetMigMode", Two),
    job("nvmlDeviceGetTemperature", Of(0)),
    both("nvmlDeviceGetEccMode", Two),
    both("nvmlDeviceGetMemoryInfo_v2", Versioned(0x0200_0028)),
    look("nvmlDeviceGetBAR1MemoryInfo", One),
    both("nvmlDeviceGetCurrentClocksThrottleReasons", One),
    both("nvmlDeviceGetSramEccErrorStatus", Versioned(0x0100_0068)),
    Call {
        about: "link 0",
        job: Times::Link(1),
        look: Times::Link(1),
        ..both("nvmlDeviceGetNvLinkState", Of(0))
    },
    Call { about: "struct 3", ..both("nvmlDeviceGetGpuFabricInfoV", Versioned(0x0300_0028)) },
    both("nvmlDeviceGetComputeRunningProcesses_v3", List),
    both("nvmlDeviceGetGraphicsRunningProcesses_v3", List),
    both("nvmlDeviceGetMPSComputeRunningProcesses_v3", List),
    both("nvmlDeviceGetComputeMode", One),
    looks("nvmlDeviceGetFieldValues", "throttle times, heat, C2C", Fields(&LOOK_FIELDS), ONCE),
    look("nvmlDeviceGetPciInfo_v3", One),
    look("nvmlDeviceGetBrand", One),
    look("nvmlDeviceGetArchitecture", One),
    look("nvmlDeviceGetCudaComputeCapability", Two),
    look("nvmlDeviceGetVbiosVersion", Text),
    look("nvmlDeviceGetBoardPartNumber", Text),
    look("nvmlDeviceGetInforomImageVersion", Text),
    look("nvmlDeviceGetGspFirmwareMode", Two),
    look("nvmlDeviceGetPowerUsage", One),
    look("nvmlDeviceGetPowerManagementDefaultLimit", One),
    look("nvmlDeviceGetPowerManagementLimit", One),
    look("nvmlDeviceGetEnforcedPowerLimit", One),
    look("nvmlDeviceGetPowerManagementLimitConstraints", Two),
    looks("nvmlDeviceGetTemperatureThreshold", "shutdown", Of(0), Times::Fixed(4)),
    looks("nvmlDeviceGetFieldValues", "distances to heat limits", Fields(&LIMIT_FIELDS), ONCE),
    looks("nvmlDeviceGetClockInfo", "graphics", Of(0), Times::Fixed(4)),
    looks("nvmlDeviceGetMaxClockInfo", "graphics", Of(0), Times::Fixed(4)),
    looks("nvmlDeviceGetDefaultApplicationsClock", "graphics", Of(0), Times::Fixed(2)),
    looks("nvmlDeviceGetApplicationsClock", "graphics", Of(0), Times::Fixed(2)),
    look("nvmlDeviceGetPerformanceState", One),
    look("nvmlDeviceGetUtilizationRates", One),
    look("nvmlDeviceGetMemoryErrorCounter", MemoryErrors),
    look("nvmlDeviceGetRowRemapperHistogram", One),
    look("nvmlDeviceGetRepairStatus", Versioned(0x0100_000c)),
    look("nvmlDeviceGetMarginTemperature", Versioned(0x0100_0008)),
    look("nvmlDeviceValidateInforom", Alone),
    looks("nvmlDeviceGetRetiredPages", "how many, single-bit", PageCount(0), Times::Fixed(2)),
    looks("nvmlDeviceGetRetiredPages_v2", "single-bit; only where there are any", Pages(0), NEVER),
    look("nvmlDeviceGetRetiredPagesPendingStatus", One),
    look("nvmlDeviceGetCurrPcieLinkGeneration", One),
    look("nvmlDeviceGetCurrPcieLinkWidth", One),
    look("nvmlDeviceGetMaxPcieLinkGeneration", One),
    look("nvmlDeviceGetMaxPcieLinkWidth", One),
    look("nvmlDeviceGetGpuMaxPcieLinkGeneration", One),
    looks("nvmlDeviceGetFieldValues", "link 0", Fields(&LINK_FIELDS), Times::Link(0)),
    looks("nvmlDeviceGetNvLinkVersion", "link 0", Of(0), Times::Link(0)),
    looks("nvmlDeviceGetNvLinkRemoteDeviceType", "link 0", Of(0), Times::Link(0)),
    looks("nvmlDeviceGetNvLinkRemotePciInfo_v2", "link 0", Of(0), Times::Link(0)),
    look("nvmlDeviceGetMaxMigDeviceCount", One),
    looks("nvmlDeviceGetAttributes_v2", "a MIG device", One, Times::Mig(1)),
    looks("nvmlDeviceGetGpuInstanceId", "a MIG device", One, Times::Mig(1)),
    looks("nvmlDeviceGetComputeInstanceId", "a MIG device", One, Times::Mig(1)),
    look("nvmlDeviceGetAccountingMode", One),
    look("nvmlDeviceGetAccountingBufferSize", One),
    look("nvmlGpmQueryDeviceSupport", Versioned(1)),
    look("nvmlDeviceGetCpuAffinity", Cpus),
    look("nvmlDeviceGetNumaNodeId", One),
    looks("nvmlDeviceGetP2PStatus", "read", Peer(0, Device::OTHER), Times::Other(3)),
];
