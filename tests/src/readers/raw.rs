//! NVML's C interface as nvml.h (API 13) documents it, without any wrapper.
//!
//! Everything unsafe is here: the functions' signatures, the structs and the calls. What is made of the answers stands in
//! `raw/gpu.rs` and `raw/detail.rs`.

mod detail;
mod gpu;

pub use gpu::read;

use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulong, c_ulonglong, c_void};
use std::path::Path;

/// A value, or nvmlReturn_t. A function that the library lacks counts as one that answers "function not found".
type Answer<T> = Result<T, c_uint>;

const INVALID_ARGUMENT: c_uint = 2;
const INSUFFICIENT_SIZE: c_uint = 7;
const FUNCTION_NOT_FOUND: c_uint = 13;
const ARGUMENT_VERSION_MISMATCH: c_uint = 25;

/// nvmlDevice_t.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
struct Device(*mut c_void);

/// What the library may write through a pointer that it is given.
///
/// # Safety
/// Only for types of which all bytes are valid.
unsafe trait Plain: Copy + Default {}

/// Declares structs of nvml.h with their size in bytes, and that they are [`Plain`].
macro_rules! structs {
    ($($(#[$doc:meta])* $name:ident: $size:literal { $($field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Debug, Clone, Copy, Default)]
            struct $name { $($field: $type,)* }
            const _: () = assert!(size_of::<$name>() == $size);
            // SAFETY: only numbers and arrays of numbers.
            unsafe impl Plain for $name {}
        )*
    };
}

// SAFETY: a number.
unsafe impl Plain for c_uint {}
// SAFETY: a number.
unsafe impl Plain for c_int {}
// SAFETY: a number.
unsafe impl Plain for c_ulonglong {}

structs! {
    /// nvmlPciInfo_t.
    PciInfo: 68 {
        bus_id_legacy: [u8; 16],
        domain: c_uint,
        bus: c_uint,
        device: c_uint,
        device_id: c_uint,
        subsystem_id: c_uint,
        bus_id: [u8; 32],
    }
    /// nvmlMemory_v2_t.
    Memory: 40 { version: c_uint, total: c_ulonglong, reserved: c_ulonglong, free: c_ulonglong, used: c_ulonglong, }
    /// nvmlBAR1Memory_t.
    Bar1: 24 { total: c_ulonglong, free: c_ulonglong, used: c_ulonglong, }
    /// nvmlUtilization_t.
    Utilization: 8 { gpu: c_uint, memory: c_uint, }
    /// nvmlRowRemapperHistogramValues_t.
    Histogram: 20 { max: c_uint, high: c_uint, partial: c_uint, low: c_uint, none: c_uint, }
    /// nvmlEccSramErrorStatus_v1_t.
    Sram: 104 {
        version: c_uint,
        aggregate_unc_parity: c_ulonglong,
        aggregate_unc_sec_ded: c_ulonglong,
        aggregate_cor: c_ulonglong,
        volatile_unc_parity: c_ulonglong,
        volatile_unc_sec_ded: c_ulonglong,
        volatile_cor: c_ulonglong,
        aggregate_unc_buckets: [c_ulonglong; 5],
        threshold_exceeded: c_uint,
    }
    /// nvmlMarginTemperature_v1_t.
    Margin: 8 { version: c_uint, celsius: c_int, }
    /// nvmlRepairStatus_v1_t.
    Repair: 12 { version: c_uint, channel: c_uint, tpc: c_uint, }
    /// nvmlGpuFabricInfo_t.
    FabricV1: 28 { cluster: [u8; 16], status: c_uint, clique: c_uint, state: u8, }
    /// nvmlGpuFabricInfo_v2_t.
    FabricV2: 36 { version: c_uint, cluster: [u8; 16], status: c_uint, clique: c_uint, state: u8, health_mask: c_uint, }
    /// nvmlGpuFabricInfo_v3_t.
    FabricV3: 40 {
        version: c_uint,
        cluster: [u8; 16],
        status: c_uint,
        clique: c_uint,
        state: u8,
        health_mask: c_uint,
        health_summary: u8,
    }
    /// nvmlDeviceAttributes_t.
    Attributes: 40 {
        multiprocessors: c_uint,
        engines: [c_uint; 5],
        gpu_instance_slices: c_uint,
        compute_instance_slices: c_uint,
        memory_mib: c_ulonglong,
    }
    /// nvmlProcessInfo_t of the functions of version 3.
    Process: 24 { pid: c_uint, memory: c_ulonglong, gpu_instance: c_uint, compute_instance: c_uint, }
    /// nvmlFieldValue_t; the union at its end as its eight bytes.
    FieldValue: 40 {
        id: c_uint,
        scope: c_uint,
        timestamp: i64,
        latency_us: i64,
        kind: c_uint,
        code: c_uint,
        value: u64,
    }
    /// nvmlGpmSupport_t.
    Gpm: 8 { version: c_uint, supported: c_uint, }
}

/// NVML_STRUCT_VERSION: the struct's size and its version in one word.
const fn version_word<T>(version: c_uint) -> c_uint {
    // The structs above are at most 104 bytes long.
    #[allow(clippy::cast_possible_truncation)]
    let size = size_of::<T>() as c_uint;
    size | version << 24
}

type One<T> = unsafe extern "C" fn(Device, *mut T) -> c_uint;
type Two<T> = unsafe extern "C" fn(Device, *mut T, *mut T) -> c_uint;
type Of<T> = unsafe extern "C" fn(Device, c_uint, *mut T) -> c_uint;
type Text = unsafe extern "C" fn(Device, *mut c_char, c_uint) -> c_uint;
type NodeText = unsafe extern "C" fn(*mut c_char, c_uint) -> c_uint;
type List<T> = unsafe extern "C" fn(Device, *mut c_uint, *mut T) -> c_uint;

/// Declares the table of functions: each with its type in nvml.h, `None` where the library lacks it.
macro_rules! functions {
    ($($name:ident: $type:ty;)*) => {
        #[allow(non_snake_case)]
        #[derive(Debug)]
        struct Functions { $($name: Option<$type>,)* }

        impl Functions {
            fn of(library: &Library) -> Functions {
                Functions {
                    $($name: {
                        let symbol = concat!(stringify!($name), "\0").as_bytes();
                        // SAFETY: nvml.h declares the function with this type.
                        unsafe { library.get::<$type>(symbol) }.ok().map(|function| *function)
                    },)*
                }
            }
        }
    };
}

functions! {
    nvmlInit_v2: unsafe extern "C" fn() -> c_uint;
    nvmlShutdown: unsafe extern "C" fn() -> c_uint;
    nvmlSystemGetDriverVersion: NodeText;
    nvmlSystemGetNVMLVersion: NodeText;
    nvmlDeviceGetCount_v2: unsafe extern "C" fn(*mut c_uint) -> c_uint;
    nvmlDeviceGetHandleByPciBusId_v2: unsafe extern "C" fn(*const c_char, *mut Device) -> c_uint;
    nvmlDeviceGetUUID: Text;
    nvmlDeviceGetMinorNumber: One<c_uint>;
    nvmlDeviceGetName: Text;
    nvmlDeviceGetSerial: Text;
    nvmlDeviceGetPersistenceMode: One<c_uint>;
    nvmlDeviceGetMigMode: Two<c_uint>;
    nvmlDeviceGetTemperature: Of<c_uint>;
    nvmlDeviceGetFieldValues: unsafe extern "C" fn(Device, c_int, *mut FieldValue) -> c_uint;
    nvmlDeviceGetPciInfo_v3: One<PciInfo>;
    nvmlDeviceGetBrand: One<c_uint>;
    nvmlDeviceGetArchitecture: One<c_uint>;
    nvmlDeviceGetCudaComputeCapability: Two<c_int>;
    nvmlDeviceGetVbiosVersion: Text;
    nvmlDeviceGetBoardPartNumber: Text;
    nvmlDeviceGetInforomImageVersion: Text;
    nvmlDeviceValidateInforom: unsafe extern "C" fn(Device) -> c_uint;
    nvmlDeviceGetGspFirmwareMode: Two<c_uint>;
    nvmlDeviceGetMemoryInfo_v2: One<Memory>;
    nvmlDeviceGetBAR1MemoryInfo: One<Bar1>;
    nvmlDeviceGetPowerUsage: One<c_uint>;
    nvmlDeviceGetPowerManagementDefaultLimit: One<c_uint>;
    nvmlDeviceGetPowerManagementLimit: One<c_uint>;
    nvmlDeviceGetEnforcedPowerLimit: One<c_uint>;
    nvmlDeviceGetPowerManagementLimitConstraints: Two<c_uint>;
    nvmlDeviceGetTemperatureThreshold: Of<c_uint>;
    nvmlDeviceGetMarginTemperature: One<Margin>;
    nvmlDeviceGetClockInfo: Of<c_uint>;
    nvmlDeviceGetMaxClockInfo: Of<c_uint>;
    nvmlDeviceGetDefaultApplicationsClock: Of<c_uint>;
    nvmlDeviceGetApplicationsClock: Of<c_uint>;
    nvmlDeviceGetPerformanceState: One<c_uint>;
    nvmlDeviceGetUtilizationRates: One<Utilization>;
    nvmlDeviceGetCurrentClocksEventReasons: One<c_ulonglong>;
    nvmlDeviceGetCurrentClocksThrottleReasons: One<c_ulonglong>;
    nvmlDeviceGetEccMode: Two<c_uint>;
    nvmlDeviceGetSramEccErrorStatus: One<Sram>;
    nvmlDeviceGetMemoryErrorCounter: unsafe extern "C" fn(Device, c_uint, c_uint, c_uint, *mut c_ulonglong) -> c_uint;
    nvmlDeviceGetRowRemapperHistogram: One<Histogram>;
    nvmlDeviceGetRetiredPages_v2:
        unsafe extern "C" fn(Device, c_uint, *mut c_uint, *mut c_ulonglong, *mut c_ulonglong) -> c_uint;
    nvmlDeviceGetRetiredPagesPendingStatus: One<c_uint>;
    nvmlDeviceGetRepairStatus: One<Repair>;
    nvmlDeviceGetCurrPcieLinkGeneration: One<c_uint>;
    nvmlDeviceGetCurrPcieLinkWidth: One<c_uint>;
    nvmlDeviceGetMaxPcieLinkGeneration: One<c_uint>;
    nvmlDeviceGetMaxPcieLinkWidth: One<c_uint>;
    nvmlDeviceGetGpuMaxPcieLinkGeneration: One<c_uint>;
    nvmlDeviceGetNvLinkState: Of<c_uint>;
    nvmlDeviceGetNvLinkVersion: Of<c_uint>;
    nvmlDeviceGetNvLinkRemoteDeviceType: Of<c_uint>;
    nvmlDeviceGetNvLinkRemotePciInfo_v2: Of<PciInfo>;
    nvmlDeviceGetGpuFabricInfo: One<FabricV1>;
    // Declared with the newest struct; the version word says how much of it the library may touch.
    nvmlDeviceGetGpuFabricInfoV: unsafe extern "C" fn(Device, *mut c_void) -> c_uint;
    nvmlDeviceGetP2PStatus: unsafe extern "C" fn(Device, Device, c_uint, *mut c_uint) -> c_uint;
    nvmlDeviceGetMaxMigDeviceCount: One<c_uint>;
    nvmlDeviceGetMigDeviceHandleByIndex: unsafe extern "C" fn(Device, c_uint, *mut Device) -> c_uint;
    nvmlDeviceGetGpuInstanceId: One<c_uint>;
    nvmlDeviceGetComputeInstanceId: One<c_uint>;
    nvmlDeviceGetAttributes_v2: One<Attributes>;
    nvmlDeviceGetComputeRunningProcesses_v3: List<Process>;
    nvmlDeviceGetGraphicsRunningProcesses_v3: List<Process>;
    nvmlDeviceGetMPSComputeRunningProcesses_v3: List<Process>;
    nvmlDeviceGetComputeMode: One<c_uint>;
    nvmlDeviceGetAccountingMode: One<c_uint>;
    nvmlDeviceGetAccountingBufferSize: One<c_uint>;
    nvmlGpmQueryDeviceSupport: One<Gpm>;
    nvmlDeviceGetCpuAffinity: unsafe extern "C" fn(Device, c_uint, *mut c_ulong) -> c_uint;
    nvmlDeviceGetNumaNodeId: One<c_uint>;
}

/// Room for any text: nvml.h's buffer sizes are at most 96.
const TEXT_BYTES: usize = 256;

/// A library that is loaded for good: a call that hangs may still be in it.
#[derive(Debug)]
struct Nvml(Functions);

impl Nvml {
    fn load(path: &Path) -> Result<Nvml, libloading::Error> {
        // SAFETY: the test's own library; loading it only runs its constructors.
        let library = unsafe { Library::new(path)? };
        let functions = Functions::of(&library);
        std::mem::forget(library);
        Ok(Nvml(functions))
    }

    fn init(&self) -> Answer<()> {
        // SAFETY: no argument.
        checked(unsafe { found(self.0.nvmlInit_v2)?() })
    }

    fn shutdown(&self) -> Answer<()> {
        // SAFETY: no argument; whoever calls this has no handle in use.
        checked(unsafe { found(self.0.nvmlShutdown)?() })
    }

    fn gpu_count(&self) -> Answer<u32> {
        let mut count = 0;
        // SAFETY: one writable unsigned int.
        checked(unsafe { found(self.0.nvmlDeviceGetCount_v2)?(&raw mut count) })?;
        Ok(count)
    }

    fn open(&self, address: &str) -> Answer<Device> {
        let address = CString::new(address).map_err(|_| INVALID_ARGUMENT)?;
        let mut device = Device(std::ptr::null_mut());
        let open = found(self.0.nvmlDeviceGetHandleByPciBusId_v2)?;
        // SAFETY: a C string and room for one handle.
        checked(unsafe { open(address.as_ptr(), &raw mut device) })?;
        Ok(device)
    }

    fn node_text(function: Option<NodeText>) -> Answer<String> {
        let function = found(function)?;
        // SAFETY: as many writable bytes as stated.
        text_of(|bytes, length| unsafe { function(bytes, length) })
    }

    fn text(function: Option<Text>, device: Device) -> Answer<String> {
        let function = found(function)?;
        // SAFETY: a handle of this library, and as many writable bytes as stated.
        text_of(|bytes, length| unsafe { function(device, bytes, length) })
    }

    fn nothing(function: Option<unsafe extern "C" fn(Device) -> c_uint>, device: Device) -> Answer<()> {
        let function = found(function)?;
        // SAFETY: a handle of this library.
        checked(unsafe { function(device) })
    }

    fn one<T: Plain>(function: Option<One<T>>, device: Device) -> Answer<T> {
        Nvml::one_from(function, device, T::default())
    }

    /// `value` states a version, for structs that have one.
    fn one_from<T: Plain>(function: Option<One<T>>, device: Device, mut value: T) -> Answer<T> {
        let function = found(function)?;
        // SAFETY: a handle of this library, and a writable value of the type that the function fills.
        checked(unsafe { function(device, &raw mut value) })?;
        Ok(value)
    }

    fn two<T: Plain>(function: Option<Two<T>>, device: Device) -> Answer<(T, T)> {
        let (mut first, mut second) = (T::default(), T::default());
        let function = found(function)?;
        // SAFETY: as in `one_from`, twice.
        checked(unsafe { function(device, &raw mut first, &raw mut second) })?;
        Ok((first, second))
    }

    fn of<T: Plain>(function: Option<Of<T>>, device: Device, number: u32) -> Answer<T> {
        let mut value = T::default();
        let function = found(function)?;
        // SAFETY: as in `one_from`; the number is a plain argument.
        checked(unsafe { function(device, number, &raw mut value) })?;
        Ok(value)
    }

    /// A list of unknown length: told the length, the caller brings room, and once more where it has grown meanwhile.
    fn list<T: Plain>(function: Option<List<T>>, device: Device) -> Answer<Vec<T>> {
        let function = found(function)?;
        let mut items: Vec<T> = Vec::new();
        loop {
            let mut count = u32::try_from(items.len()).map_err(|_| INSUFFICIENT_SIZE)?;
            let room = if items.is_empty() { std::ptr::null_mut() } else { items.as_mut_ptr() };
            // SAFETY: a handle of this library, and room for `count` items.
            let code = unsafe { function(device, &raw mut count, room) };
            match code {
                INSUFFICIENT_SIZE if count as usize > items.len() => {
                    items.resize(count as usize, T::default())
                }
                _ => return checked(code).map(|()| items.into_iter().take(count as usize).collect()),
            }
        }
    }

    /// How many pages were retired for a cause. Without room the library only tells the number; nvml.h allows no null
    /// pointer here even then.
    fn retired_pages(&self, device: Device, cause: u32) -> Answer<u64> {
        let (mut count, mut address, mut time) = (0, 0, 0);
        let function = found(self.0.nvmlDeviceGetRetiredPages_v2)?;
        // SAFETY: a handle of this library and three writable numbers; a count of 0 promises no room in the two lists.
        match unsafe { function(device, cause, &raw mut count, &raw mut address, &raw mut time) } {
            0 | INSUFFICIENT_SIZE => Ok(count.into()),
            code => Err(code),
        }
    }

    /// nvmlMemoryErrorType_t, nvmlEccCounterType_t, nvmlMemoryLocation_t.
    fn memory_errors(&self, device: Device, kind: u32, period: u32, place: u32) -> Answer<u64> {
        let mut count = 0;
        let function = found(self.0.nvmlDeviceGetMemoryErrorCounter)?;
        // SAFETY: a handle of this library and one writable number.
        checked(unsafe { function(device, kind, period, place, &raw mut count) })?;
        Ok(count)
    }

    fn peer_status(&self, device: Device, other: Device, capability: u32) -> Answer<u32> {
        let mut status = 0;
        let function = found(self.0.nvmlDeviceGetP2PStatus)?;
        // SAFETY: two handles of this library and one writable number.
        checked(unsafe { function(device, other, capability, &raw mut status) })?;
        Ok(status)
    }

    fn mig_device(&self, device: Device, place: u32) -> Answer<Device> {
        let mut mig = Device(std::ptr::null_mut());
        let function = found(self.0.nvmlDeviceGetMigDeviceHandleByIndex)?;
        // SAFETY: a handle of this library and room for one handle.
        checked(unsafe { function(device, place, &raw mut mig) })?;
        Ok(mig)
    }

    /// `info` states its version and is as long as that says.
    fn fabric<T: Plain>(&self, device: Device, mut info: T) -> Answer<T> {
        let function = found(self.0.nvmlDeviceGetGpuFabricInfoV)?;
        // SAFETY: a handle of this library and a writable struct of the stated length.
        checked(unsafe { function(device, (&raw mut info).cast()) })?;
        Ok(info)
    }

    fn cpu_words(&self, device: Device) -> Answer<Vec<u64>> {
        // 8192 CPUs, as many as Linux can have (CONFIG_NR_CPUS).
        let mut words = [0; 8192 / 64];
        let function = found(self.0.nvmlDeviceGetCpuAffinity)?;
        let count = u32::try_from(words.len()).unwrap_or(0);
        // SAFETY: a handle of this library and room for `count` words.
        checked(unsafe { function(device, count, words.as_mut_ptr()) })?;
        Ok(words.to_vec())
    }

    /// One call for all of `fields`, given as id and scope.
    fn field_values<const N: usize>(
        &self,
        device: Device,
        fields: [(u32, u32); N],
    ) -> Answer<[FieldValue; N]> {
        let mut values = fields.map(|(id, scope)| FieldValue { id, scope, ..FieldValue::default() });
        let count = c_int::try_from(N).unwrap_or(0);
        let function = found(self.0.nvmlDeviceGetFieldValues)?;
        // SAFETY: a handle of this library and room for `count` values.
        checked(unsafe { function(device, count, values.as_mut_ptr()) })?;
        Ok(values)
    }
}

fn found<F>(function: Option<F>) -> Answer<F> {
    function.ok_or(FUNCTION_NOT_FOUND)
}

fn checked(code: c_uint) -> Answer<()> {
    if code == 0 { Ok(()) } else { Err(code) }
}

fn text_of(fill: impl FnOnce(*mut c_char, c_uint) -> c_uint) -> Answer<String> {
    let mut bytes = [0u8; TEXT_BYTES];
    checked(fill(bytes.as_mut_ptr().cast(), u32::try_from(TEXT_BYTES - 1).unwrap_or(0)))?;
    Ok(text(&bytes))
}

/// The text up to the first zero.
fn text(bytes: &[u8]) -> String {
    let whole = CStr::from_bytes_until_nul(bytes).unwrap_or_default();
    whole.to_string_lossy().into_owned()
}
