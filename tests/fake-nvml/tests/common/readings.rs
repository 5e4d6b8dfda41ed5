//! Everything that a client can read of a GPU, as return codes and raw bytes, through the C functions themselves.

use std::collections::BTreeMap;
use std::ffi::{CString, c_void};

use nvml_wrapper::Nvml;
use nvml_wrapper::gpm::GpmSample;
use nvml_wrapper_sys::bindings as sys;

/// Code and bytes by what was asked.
pub type Readings = BTreeMap<String, (u32, Vec<u8>)>;

/// What a function wants after the handle.
#[derive(Debug, Clone, Copy)]
enum Arg {
    /// Room for what it writes.
    Out,
    /// The same with a version word of the caller in front.
    Versioned(u32),
    /// Each number below this in turn.
    Below(u32),
    /// A number.
    Number(u32),
    /// Room for a text, and its length.
    Text,
    /// How many entries the list behind has room for.
    Room,
}

use Arg::{Below, Number, Out, Room, Text, Versioned};

const ROOM_BYTES: usize = 4096;

const GETTERS: &[(&str, &[Arg])] = &[
    ("nvmlDeviceGetUUID", &[Text]),
    ("nvmlDeviceGetSerial", &[Text]),
    ("nvmlDeviceGetName", &[Text]),
    ("nvmlDeviceGetMinorNumber", &[Out]),
    ("nvmlDeviceGetPciInfo", &[Out]),
    ("nvmlDeviceGetPciInfo_v2", &[Out]),
    ("nvmlDeviceGetPciInfo_v3", &[Out]),
    ("nvmlDeviceGetPciInfoExt", &[Versioned(0x0100_0040)]),
    ("nvmlDeviceGetVbiosVersion", &[Text]),
    ("nvmlDeviceGetBoardPartNumber", &[Text]),
    ("nvmlDeviceGetBrand", &[Out]),
    ("nvmlDeviceGetArchitecture", &[Out]),
    ("nvmlDeviceGetCudaComputeCapability", &[Out, Out]),
    ("nvmlDeviceGetGspFirmwareMode", &[Out, Out]),
    ("nvmlDeviceGetGspFirmwareVersion", &[Out]),
    ("nvmlDeviceGetInforomImageVersion", &[Text]),
    ("nvmlDeviceValidateInforom", &[]),
    ("nvmlDeviceGetAttributes_v2", &[Out]),
    ("nvmlDeviceGetMigMode", &[Out, Out]),
    ("nvmlDeviceGetMaxMigDeviceCount", &[Out]),
    ("nvmlDeviceGetMigDeviceHandleByIndex", &[Below(8), Out]),
    ("nvmlDeviceIsMigDeviceHandle", &[Out]),
    ("nvmlDeviceGetMemoryInfo", &[Out]),
    ("nvmlDeviceGetMemoryInfo_v2", &[Versioned(0x0200_0028)]),
    ("nvmlDeviceGetBAR1MemoryInfo", &[Out]),
    ("nvmlDeviceGetEccMode", &[Out, Out]),
    ("nvmlDeviceGetTotalEccErrors", &[Below(2), Below(2), Out]),
    ("nvmlDeviceGetMemoryErrorCounter", &[Below(2), Below(2), Below(8), Out]),
    ("nvmlDeviceGetDetailedEccErrors", &[Below(2), Below(2), Out]),
    ("nvmlDeviceGetSramEccErrorStatus", &[Versioned(0x0100_0068)]),
    ("nvmlDeviceGetRepairStatus", &[Versioned(0x0100_000c)]),
    ("nvmlDeviceGetRetiredPages", &[Below(2), Room, Out]),
    ("nvmlDeviceGetRetiredPagesPendingStatus", &[Out]),
    ("nvmlDeviceGetRemappedRows", &[Out, Out, Out, Out]),
    ("nvmlDeviceGetRowRemapperHistogram", &[Out]),
    ("nvmlDeviceGetTemperature", &[Number(0), Out]),
    ("nvmlDeviceGetTemperatureV", &[Versioned(0x0100_000c)]),
    ("nvmlDeviceGetTemperatureThreshold", &[Below(8), Out]),
    ("nvmlDeviceGetMarginTemperature", &[Versioned(0x0100_0008)]),
    ("nvmlDeviceGetCurrentClocksThrottleReasons", &[Out]),
    ("nvmlDeviceGetCurrentClocksEventReasons", &[Out]),
    ("nvmlDeviceGetSupportedClocksThrottleReasons", &[Out]),
    ("nvmlDeviceGetClockInfo", &[Below(4), Out]),
    ("nvmlDeviceGetMaxClockInfo", &[Below(4), Out]),
    ("nvmlDeviceGetApplicationsClock", &[Below(4), Out]),
    ("nvmlDeviceGetDefaultApplicationsClock", &[Below(4), Out]),
    ("nvmlDeviceGetSupportedMemoryClocks", &[Room, Out]),
    ("nvmlDeviceGetSupportedGraphicsClocks", &[Number(2619), Room, Out]),
    ("nvmlDeviceGetPerformanceState", &[Out]),
    ("nvmlDeviceGetPowerUsage", &[Out]),
    ("nvmlDeviceGetEnforcedPowerLimit", &[Out]),
    ("nvmlDeviceGetPowerManagementLimit", &[Out]),
    ("nvmlDeviceGetPowerManagementDefaultLimit", &[Out]),
    ("nvmlDeviceGetPowerManagementLimitConstraints", &[Out, Out]),
    ("nvmlDeviceGetTotalEnergyConsumption", &[Out]),
    ("nvmlDeviceGetUtilizationRates", &[Out]),
    ("nvmlDeviceGetViolationStatus", &[Below(12), Out]),
    ("nvmlDeviceGetCurrPcieLinkGeneration", &[Out]),
    ("nvmlDeviceGetCurrPcieLinkWidth", &[Out]),
    ("nvmlDeviceGetMaxPcieLinkGeneration", &[Out]),
    ("nvmlDeviceGetMaxPcieLinkWidth", &[Out]),
    ("nvmlDeviceGetGpuMaxPcieLinkGeneration", &[Out]),
    ("nvmlDeviceGetPcieReplayCounter", &[Out]),
    ("nvmlDeviceGetNvLinkState", &[Below(19), Out]),
    ("nvmlDeviceGetNvLinkVersion", &[Number(0), Out]),
    ("nvmlDeviceGetNvLinkCapability", &[Number(0), Below(6), Out]),
    ("nvmlDeviceGetNvLinkErrorCounter", &[Below(3), Below(5), Out]),
    ("nvmlDeviceGetNvLinkRemotePciInfo_v2", &[Below(19), Out]),
    ("nvmlDeviceGetNvLinkRemoteDeviceType", &[Below(19), Out]),
    ("nvmlDeviceGetGpuFabricInfo", &[Out]),
    ("nvmlDeviceGetGpuFabricInfoV", &[Versioned(0x0300_0028)]),
    ("nvmlDeviceGetC2cModeInfoV", &[Out]),
    ("nvmlDeviceGetPersistenceMode", &[Out]),
    ("nvmlDeviceGetComputeMode", &[Out]),
    ("nvmlDeviceGetAccountingMode", &[Out]),
    ("nvmlDeviceGetAccountingBufferSize", &[Out]),
    ("nvmlDeviceGetAccountingPids", &[Room, Out]),
    ("nvmlDeviceGetAccountingStats", &[Number(4711), Out]),
    ("nvmlDeviceGetAccountingStats_v2", &[Versioned(4711)]),
    ("nvmlDeviceGetComputeRunningProcesses", &[Room, Out]),
    ("nvmlDeviceGetComputeRunningProcesses_v3", &[Room, Out]),
    ("nvmlDeviceGetGraphicsRunningProcesses_v3", &[Room, Out]),
    ("nvmlDeviceGetMPSComputeRunningProcesses_v3", &[Room, Out]),
    ("nvmlDeviceGetProcessUtilization", &[Out, Room, Number(0)]),
    ("nvmlDeviceGetCpuAffinity", &[Number(8), Out]),
    ("nvmlDeviceGetCpuAffinityWithinScope", &[Number(8), Out, Below(2)]),
    ("nvmlDeviceGetMemoryAffinity", &[Number(8), Out, Below(2)]),
    ("nvmlDeviceGetNumaNodeId", &[Out]),
    ("nvmlDeviceGetSupportedEventTypes", &[Out]),
    ("nvmlGpmQueryDeviceSupport", &[Versioned(1)]),
];

/// A C function of a handle and up to five words; those that it does not take are left alone by the convention.
type Function = unsafe extern "C" fn(*mut c_void, usize, usize, usize, usize, usize) -> u32;

/// Asks one GPU, opened by its UUID and by its address, for everything.
pub fn of_gpu(nvml: &Nvml, uuid: &str, pci: &str) -> Readings {
    let mut readings = Readings::new();
    let by = |function: &str, text: &str| {
        let text = CString::new(text).unwrap();
        let mut handle: *mut c_void = std::ptr::null_mut();
        let out = (&raw mut handle).expose_provenance();
        (call(nvml, function, text.as_ptr().cast_mut().cast(), &[out]), handle)
    };
    let (code, _) = by("nvmlDeviceGetHandleByUUID", uuid);
    readings.insert("by UUID".into(), (code, Vec::new()));
    let (code, handle) = by("nvmlDeviceGetHandleByPciBusId_v2", pci);
    readings.insert("by address".into(), (code, Vec::new()));
    if code != 0 {
        return readings;
    }
    for (function, args) in GETTERS {
        for numbers in choices(args) {
            let name = format!("{function} {numbers:?}");
            readings.insert(name, one(nvml, function, handle, args, &numbers));
        }
    }
    fields(nvml, handle, &mut readings);
    readings
}

/// What two GPUs are to each other.
pub fn of_pair(nvml: &Nvml, first: *mut c_void, second: *mut c_void) -> Readings {
    let ask = |function: &str, index: Option<usize>| {
        let mut answer = 0_u32;
        let out = (&raw mut answer).expose_provenance();
        let args = index.map_or_else(|| vec![second.addr(), out], |index| vec![second.addr(), index, out]);
        let code = call(nvml, function, first, &args);
        (format!("{function} {index:?}"), (code, answer.to_ne_bytes().to_vec()))
    };
    let p2p = (0..5).map(|index| ask("nvmlDeviceGetP2PStatus", Some(index)));
    p2p.chain([ask("nvmlDeviceGetTopologyCommonAncestor", None)]).collect()
}

/// The return code; a function that an old driver's library lacks answers what a client makes of it, "function not found".
pub fn call(nvml: &Nvml, function: &str, handle: *mut c_void, args: &[usize]) -> u32 {
    // SAFETY: every function of the library that is asked for here takes a pointer and words.
    let symbol = unsafe { nvml.lib().__library.get::<Function>(function.as_bytes()) };
    let Ok(symbol) = symbol else { return FUNCTION_NOT_FOUND };
    let word = |place: usize| args.get(place).copied().unwrap_or(0);
    // SAFETY: addresses among the words are those of buffers that outlive the call and are larger than any answer.
    unsafe { symbol(handle, word(0), word(1), word(2), word(3), word(4)) }
}

const FUNCTION_NOT_FOUND: u32 = 13;

/// All combinations of the numbers that a function can be asked with.
fn choices(args: &[Arg]) -> Vec<Vec<u32>> {
    let mut all = vec![Vec::new()];
    for arg in args {
        let numbers: Vec<u32> = match arg {
            Below(end) => (0..*end).collect(),
            Number(number) => vec![*number],
            _ => continue,
        };
        let longer = |start: &Vec<u32>| {
            numbers.iter().map(|number| start.iter().chain([number]).copied().collect()).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

fn one(nvml: &Nvml, function: &str, handle: *mut c_void, args: &[Arg], numbers: &[u32]) -> (u32, Vec<u8>) {
    let mut numbers = numbers.iter();
    let mut rooms: Vec<Box<[u64]>> = Vec::new();
    let mut words = Vec::new();
    for arg in args {
        let first_word = match arg {
            Below(_) | Number(_) => {
                words.push(*numbers.next().unwrap() as usize);
                continue;
            }
            Versioned(version) => u64::from(*version),
            Room => 128,
            Out | Text => 0,
        };
        let mut room = vec![0_u64; ROOM_BYTES / 8].into_boxed_slice();
        room[0] = first_word;
        words.push(room.as_mut_ptr().expose_provenance());
        rooms.push(room);
        if matches!(arg, Text) {
            words.push(96);
        }
    }
    let code = call(nvml, function, handle, &words);
    // Without the zeros behind the answer: there are many of these.
    let written = |room: &[u64]| room.iter().rposition(|&word| word != 0).map_or(0, |last| last + 1);
    let words = rooms.iter().flat_map(|room| room[..written(room)].iter().chain([&u64::MAX]));
    (code, words.flat_map(|word| word.to_ne_bytes()).collect())
}

/// Every field id with the scopes that matter.
fn fields(nvml: &Nvml, handle: *mut c_void, readings: &mut Readings) {
    // SAFETY: all-zero bytes are a valid field value.
    let empty: sys::nvmlFieldValue_t = unsafe { std::mem::zeroed() };
    let asked = (0..280).flat_map(|id| [0, 1, u32::MAX].map(|scope| (id, scope)));
    let mut values: Vec<_> =
        asked.map(|(id, scope)| sys::nvmlFieldValue_t { fieldId: id, scopeId: scope, ..empty }).collect();
    let count = i32::try_from(values.len()).unwrap();
    // SAFETY: the handle comes from the library, and `values` has `count` members.
    let code = unsafe { nvml.lib().nvmlDeviceGetFieldValues(handle.cast(), count, values.as_mut_ptr()) };
    assert_eq!(code, 0);
    for value in values {
        // SAFETY: the union was zeroed before, so all eight bytes are set.
        let bits = unsafe { value.value.ullVal };
        let bytes = [value.timestamp.to_ne_bytes(), bits.to_ne_bytes()].concat();
        readings.insert(format!("field {} {}", value.fieldId, value.scopeId), (value.nvmlReturn, bytes));
    }
}

/// Performance metrics between two samples by id; a code of its own where one has no value.
pub fn metrics(
    nvml: &Nvml,
    first: &GpmSample<'_>,
    second: &GpmSample<'_>,
) -> BTreeMap<u32, Result<f64, u32>> {
    // SAFETY: all-zero bytes are a valid request.
    let mut request: Box<sys::nvmlGpmMetricsGet_t> = Box::new(unsafe { std::mem::zeroed() });
    request.version = 1;
    // SAFETY: the sample only goes back into the library that it came from.
    request.sample1 = unsafe { first.handle() };
    // SAFETY: as above.
    request.sample2 = unsafe { second.handle() };
    let ids: Vec<u32> = (1..14).chain([20, 21, 30]).chain(60..98).chain(248..333).collect();
    request.numMetrics = u32::try_from(ids.len()).unwrap();
    for (metric, id) in request.metrics.iter_mut().zip(&ids) {
        metric.metricId = *id;
    }
    // SAFETY: the array has room for more metrics than are asked for.
    assert_eq!(unsafe { nvml.lib().nvmlGpmMetricsGet(&raw mut *request) }, 0);
    let read = request.metrics[..ids.len()].iter().map(|metric| match metric.nvmlReturn {
        0 => (metric.metricId, Ok(metric.value)),
        code => (metric.metricId, Err(code)),
    });
    read.collect()
}

/// The same among the other readings.
pub fn performance(nvml: &Nvml, first: &GpmSample<'_>, second: &GpmSample<'_>) -> Readings {
    let read = metrics(nvml, first, second).into_iter().map(|(id, value)| {
        let (code, bytes) = match value {
            Ok(value) => (0, value.to_ne_bytes().to_vec()),
            Err(code) => (code, Vec::new()),
        };
        (format!("performance {id}"), (code, bytes))
    });
    read.collect()
}
