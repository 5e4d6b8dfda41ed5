//! Calls that nvml-wrapper lacks or narrows: raw numbers, so that a value that is newer than the wrapper stays readable.
//!
//! Everything goes through the wrapper's own table of symbols; one that the driver's library lacks is "not supported".

use super::read::{of_code, signed};
use gpuward_core::model::Reading;
use gpuward_core::model::detail::FabricReading;
use nvml_wrapper::Device;
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlEccSramErrorStatus_t, nvmlFieldValue_t, nvmlGpuFabricInfo_t, nvmlGpuFabricInfoV_t,
    nvmlMarginTemperature_v1_t, nvmlPciInfo_t, nvmlRepairStatus_v1_t, nvmlReturn_t,
    nvmlRowRemapperHistogramValues_t, nvmlValueType_t,
};
use std::ffi::c_uint;
use std::mem::MaybeUninit;

/// A function of the library that fills one value for a device, or why it is not there.
type Getter<T, E> = Result<unsafe extern "C" fn(nvmlDevice_t, *mut T) -> nvmlReturn_t, E>;

/// A function that fills one value for a device and a number, a link for example.
type GetterOf<T, E> = Result<unsafe extern "C" fn(nvmlDevice_t, c_uint, *mut T) -> nvmlReturn_t, E>;

/// A value that any bytes are valid for, so that a library that writes too little or nonsense does no harm.
///
/// # Safety
/// Only for types without invalid bit patterns and without pointers.
unsafe trait Plain: Copy {}

// SAFETY: an integer.
unsafe impl Plain for c_uint {}
// SAFETY: integers only.
unsafe impl Plain for nvmlRowRemapperHistogramValues_t {}
// SAFETY: integers and arrays of them only.
unsafe impl Plain for nvmlEccSramErrorStatus_t {}
// SAFETY: integers and arrays of them only.
unsafe impl Plain for nvmlGpuFabricInfo_t {}
// SAFETY: integers and arrays of them only.
unsafe impl Plain for nvmlGpuFabricInfoV_t {}
// SAFETY: integers and arrays of them only.
unsafe impl Plain for nvmlPciInfo_t {}
// SAFETY: integers only.
unsafe impl Plain for nvmlMarginTemperature_v1_t {}
// SAFETY: integers only.
unsafe impl Plain for nvmlRepairStatus_v1_t {}
// SAFETY: integers and a union of numbers.
unsafe impl Plain for nvmlFieldValue_t {}

fn zeroed<T: Plain>() -> T {
    // SAFETY: Plain says that all bytes, so zeros too, are a valid value.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

fn handle(device: &Device<'_>) -> nvmlDevice_t {
    // SAFETY: only unsafe so as not to be used without care; each use stands in a call that `device` outlives.
    unsafe { device.handle() }
}

fn answer<T>(code: nvmlReturn_t, value: T) -> Reading<T> {
    if code == 0 { Reading::Value(value) } else { of_code(i64::from(code)) }
}

fn get<T: Plain, E>(device: &Device<'_>, getter: &Getter<T, E>, mut value: T) -> Reading<T> {
    let Ok(getter) = getter else { return Reading::NotSupported };
    // SAFETY: the handle comes from this library and outlives the call, as `device` borrows it; `value` is writable and
    // of the type that the function declares.
    let code = unsafe { getter(handle(device), &raw mut value) };
    answer(code, value)
}

fn get_of<T: Plain, E>(device: &Device<'_>, getter: &GetterOf<T, E>, of: u32) -> Reading<T> {
    let Ok(getter) = getter else { return Reading::NotSupported };
    let mut value = zeroed();
    // SAFETY: as in `get`; the number is plain data.
    let code = unsafe { getter(handle(device), of, &raw mut value) };
    answer(code, value)
}

/// Declares readings of one unsigned number.
macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident = $symbol:ident;)*) => {
        $(
            $(#[$doc])*
            pub fn $name(device: &Device<'_>) -> Reading<u32> {
                get(device, &device.nvml().lib().$symbol, 0)
            }
        )*
    };
}

numbers! {
    /// `nvmlBrandType_t`.
    brand = nvmlDeviceGetBrand;
    /// `nvmlDeviceArchitecture_t`.
    architecture = nvmlDeviceGetArchitecture;
    /// `nvmlComputeMode_t`.
    compute_mode = nvmlDeviceGetComputeMode;
    /// `nvmlPstates_t`.
    performance_state = nvmlDeviceGetPerformanceState;
    /// PCIe generation that the GPU can do.
    gpu_max_generation = nvmlDeviceGetGpuMaxPcieLinkGeneration;
    /// GPU instance of a MIG device.
    gpu_instance = nvmlDeviceGetGpuInstanceId;
    /// Compute instance of a MIG device.
    compute_instance = nvmlDeviceGetComputeInstanceId;
    /// Most MIG devices.
    max_mig_devices = nvmlDeviceGetMaxMigDeviceCount;
}

/// Clock event reason bits, all of them: the wrapper drops those that it does not know.
pub fn event_reasons(device: &Device<'_>) -> Reading<u64> {
    let lib = device.nvml().lib();
    let mut bits = 0;
    let Ok(getter) = &lib.nvmlDeviceGetCurrentClocksThrottleReasons else { return Reading::NotSupported };
    // SAFETY: the handle comes from this library; `bits` is the unsigned long long that the function fills.
    let code = unsafe { getter(handle(device), &raw mut bits) };
    answer(code, bits)
}

/// Banks by spare rows left: max, high, partial, low, none.
pub fn remap_histogram(device: &Device<'_>) -> Reading<[u32; 5]> {
    let read = get(device, &device.nvml().lib().nvmlDeviceGetRowRemapperHistogram, zeroed());
    read.map(|banks| [banks.max, banks.high, banks.partial, banks.low, banks.none])
}

/// Version field of a struct: its size and its version (nvml.h: `NVML_STRUCT_VERSION`).
fn version_of<T>(version: u32) -> u32 {
    // Such structs are some hundred bytes long.
    u32::try_from(size_of::<T>()).unwrap_or(0) | version << 24
}

/// SRAM errors: uncorrected ones in the life of the board, and whether it is over its limit.
pub fn sram_errors(device: &Device<'_>) -> (Reading<u64>, Reading<bool>) {
    let mut status: nvmlEccSramErrorStatus_t = zeroed();
    status.version = version_of::<nvmlEccSramErrorStatus_t>(1);
    let read = get(device, &device.nvml().lib().nvmlDeviceGetSramEccErrorStatus, status);
    let sum = read.map(|status| status.aggregateUncParity.saturating_add(status.aggregateUncSecDed));
    (sum, read.map(|status| status.bThresholdExceeded != 0))
}

/// How far the core is below its limit, on the scale of the fields 193 to 196.
pub fn margin_temperature(device: &Device<'_>) -> Reading<i64> {
    let mut margin: nvmlMarginTemperature_v1_t = zeroed();
    margin.version = version_of::<nvmlMarginTemperature_v1_t>(1);
    let read = get(device, &device.nvml().lib().nvmlDeviceGetMarginTemperature, margin);
    read.map(|margin| i64::from(margin.marginTemperature))
}

/// Whether a repair of a memory channel, and of a TPC, waits for a reset.
pub fn repair_pending(device: &Device<'_>) -> Reading<[bool; 2]> {
    let mut status: nvmlRepairStatus_v1_t = zeroed();
    status.version = version_of::<nvmlRepairStatus_v1_t>(1);
    let read = get(device, &device.nvml().lib().nvmlDeviceGetRepairStatus, status);
    read.map(|status| [status.bChannelRepairPending != 0, status.bTpcRepairPending != 0])
}

/// Fabric state: version 3 of the struct, else 2, else the oldest call.
pub fn fabric(device: &Device<'_>) -> Reading<FabricReading> {
    let lib = device.nvml().lib();
    let mut last = Reading::NotSupported;
    for version in [3, 2] {
        let mut info: nvmlGpuFabricInfoV_t = zeroed();
        info.version = match version {
            3 => version_of::<nvmlGpuFabricInfoV_t>(3),
            // The second version is the third without its last byte and the padding after it.
            _ => version_of::<[u32; 9]>(2),
        };
        last = get(device, &lib.nvmlDeviceGetGpuFabricInfoV, info).map(|info| FabricReading {
            state: u32::from(info.state),
            status: info.status,
            clique: info.cliqueId,
            cluster_uuid: uuid(info.clusterUuid),
            health_mask: Some(info.healthMask),
            health_summary: (version == 3).then(|| u32::from(info.healthSummary)),
        });
        if last.value().is_some() {
            return last;
        }
    }
    let oldest = get(device, &lib.nvmlDeviceGetGpuFabricInfo, zeroed());
    if oldest.value().is_none() && last != Reading::NotSupported {
        return last;
    }
    oldest.map(|info| FabricReading {
        state: u32::from(info.state),
        status: info.status,
        clique: info.cliqueId,
        cluster_uuid: uuid(info.clusterUuid),
        health_mask: None,
        health_summary: None,
    })
}

/// 16 bytes in the usual form; empty for zeros, which mean that there is none.
fn uuid(bytes: [u8; 16]) -> String {
    if bytes == [0; 16] {
        return String::new();
    }
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Whether a link is up. Its "invalid argument" is how a library says that there is no such link.
pub fn link_up(device: &Device<'_>, link: u32) -> Result<Reading<bool>, NoSuchLink> {
    let Ok(getter) = &device.nvml().lib().nvmlDeviceGetNvLinkState else { return Err(NoSuchLink) };
    let mut up: c_uint = 0;
    // SAFETY: the handle comes from this library; an enum of C is an unsigned int here, and any number is valid for it.
    let code = unsafe { getter(handle(device), link, (&raw mut up).cast()) };
    match answer(code, up != 0) {
        Reading::NotSupported => Err(NoSuchLink),
        state => Ok(state),
    }
}

/// There are no more links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoSuchLink;

/// What is at the other end of a link, `nvmlIntNvLinkDeviceType_t`. nvml-wrapper 0.13 answers "unknown" whatever the
/// driver says: it hands out a copy of its variable.
pub fn link_end(device: &Device<'_>, link: u32) -> Reading<u32> {
    get_of(device, &device.nvml().lib().nvmlDeviceGetNvLinkRemoteDeviceType, link)
}

/// NVLink version.
pub fn link_version(device: &Device<'_>, link: u32) -> Reading<u32> {
    get_of(device, &device.nvml().lib().nvmlDeviceGetNvLinkVersion, link)
}

/// `nvmlGpuP2PStatus_t` towards another GPU, by capability index: 0 read, 1 write, 2 NVLink.
pub fn peer_status(device: &Device<'_>, other: &Device<'_>, capability: u32) -> Reading<u32> {
    let Ok(getter) = &device.nvml().lib().nvmlDeviceGetP2PStatus else { return Reading::NotSupported };
    let mut status: c_uint = 0;
    // SAFETY: both handles come from this library; an enum of C is an unsigned int here, and any number is valid for it.
    let code = unsafe { getter(handle(device), handle(other), capability, (&raw mut status).cast()) };
    answer(code, status)
}

/// Field values with a scope, as (field, scope). nvml-wrapper 0.13 always sends scope 0, and takes the type "signed int" of
/// the temperature limits for an error. Ids are the library's own: choose
/// only such that did not move at driver 580.82.
pub fn fields<const N: usize>(device: &Device<'_>, wanted: [(u32, u32); N]) -> [Reading<i64>; N] {
    let Ok(getter) = &device.nvml().lib().nvmlDeviceGetFieldValues else { return [Reading::NotSupported; N] };
    let mut values: [nvmlFieldValue_t; N] = wanted.map(|(field, scope)| {
        let mut value: nvmlFieldValue_t = zeroed();
        (value.fieldId, value.scopeId) = (field, scope);
        value
    });
    let count = i32::try_from(N).unwrap_or(0);
    // SAFETY: the handle comes from this library, and `values` has room for `count` entries.
    let code = unsafe { getter(handle(device), count, values.as_mut_ptr()) };
    if code != 0 {
        return [of_code(i64::from(code)); N];
    }
    values.map(|value| number(&value))
}

/// `nvmlValueType_t`: 0 double, 1 unsigned int, 2 unsigned long, 3 unsigned long long, 4 signed long long, 5 signed int.
fn number(value: &nvmlFieldValue_t) -> Reading<i64> {
    if value.nvmlReturn != 0 {
        return of_code(i64::from(value.nvmlReturn));
    }
    let kind: nvmlValueType_t = value.valueType;
    match kind {
        // SAFETY: the library says that it wrote this member of the union; any bytes are a valid number.
        1 => Reading::Value(i64::from(unsafe { value.value.uiVal })),
        // SAFETY: as above.
        2 => signed(unsafe { value.value.ulVal }),
        // SAFETY: as above.
        3 => signed(unsafe { value.value.ullVal }),
        // SAFETY: as above.
        4 => Reading::Value(unsafe { value.value.sllVal }),
        // SAFETY: as above.
        5 => Reading::Value(i64::from(unsafe { value.value.siVal })),
        _ => Reading::NotSupported,
    }
}
