//! NVML's functions by name and shape: enough to call any of those that gpuward calls, and to time it.
//!
//! Nothing here knows what the answers mean. Everything unsafe of this program is in this file.

use libloading::Library;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::path::Path;

/// nvmlReturn_t.
pub type Code = c_uint;

/// A function that the library does not have answers this, "function not found".
pub const FUNCTION_NOT_FOUND: Code = 13;

/// Room for whatever a function writes: the largest is a list of pages (8 KiB). NVML writes no more than a struct's
/// version or a length says.
#[repr(C, align(16))]
struct Room([u8; ROOM_BYTES]);

const ROOM_BYTES: usize = 16 * 1024;

/// Entries that the lists get room for: `nvmlProcessInfo_t` has 24 bytes, a page address 8.
const LIST_ENTRIES: c_uint = 512;

/// `nvmlFieldValue_t`, the union at its end as eight bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Field {
    /// Field id.
    pub id: c_uint,
    /// A link, for some fields.
    pub scope: c_uint,
    /// When it was read.
    pub timestamp: i64,
    /// How long that took.
    pub latency_us: i64,
    /// `nvmlValueType_t`.
    pub kind: c_uint,
    /// This field's own answer.
    pub code: Code,
    /// The union's bytes.
    pub bits: u64,
}
const _: () = assert!(size_of::<Field>() == 40);

/// One metric of `nvmlGpmMetricsGet_t`; the three names as addresses.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Metric {
    /// Metric id.
    pub id: c_uint,
    /// This metric's own answer.
    pub code: Code,
    /// Its value.
    pub value: f64,
    names: [usize; 3],
}

/// NVML_GPM_METRIC_MAX of nvml.h 13.
const METRICS: usize = 333;

/// `nvmlGpmMetricsGet_t`.
#[repr(C)]
struct Metrics {
    version: c_uint,
    count: c_uint,
    samples: [*mut c_void; 2],
    metrics: [Metric; METRICS],
}
const _: () = assert!(size_of::<Metrics>() == 13344);

/// A GPU or a MIG device: an address of the library's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device(usize);

impl Device {
    /// Stands for a GPU that whoever calls fills in.
    pub const OTHER: Device = Device(0);

    fn pointer(self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.0)
    }
}

/// What a function takes beside the device, and how much it writes.
#[derive(Debug, Clone, Copy)]
pub enum Shape {
    /// The device alone.
    Alone,
    /// One number or struct.
    One,
    /// One struct that states its version in its first word.
    Versioned(u32),
    /// Two numbers.
    Two,
    /// A number first: a sensor, a clock, a link, a place.
    Of(u32),
    /// A text and its length.
    Text,
    /// A length and a list.
    List,
    /// Field values as (id, scope).
    Fields(&'static [(u32, u32)]),
    /// Uncorrected, aggregate, device memory.
    MemoryErrors,
    /// Retired pages by cause, with their times.
    Pages(u32),
    /// The number of retired pages by cause.
    PageCount(u32),
    /// Towards another GPU, by capability.
    Peer(u32, Device),
    /// CPU words, their number first.
    Cpus,
    /// Opened by PCI address.
    Open,
}

/// The library, loaded for good: a call that hangs may still be in it.
#[derive(Debug)]
pub struct Nvml(&'static Library);

type One = unsafe extern "C" fn(*mut c_void, *mut c_void) -> Code;
type Two = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void) -> Code;
type Of = unsafe extern "C" fn(*mut c_void, c_uint, *mut c_void) -> Code;
type Text = unsafe extern "C" fn(*mut c_void, *mut c_char, c_uint) -> Code;
type NodeText = unsafe extern "C" fn(*mut c_char, c_uint) -> Code;
type Fields = unsafe extern "C" fn(*mut c_void, c_int, *mut Field) -> Code;
type Errors = unsafe extern "C" fn(*mut c_void, c_uint, c_uint, c_uint, *mut c_void) -> Code;
type Pages = unsafe extern "C" fn(*mut c_void, c_uint, *mut c_uint, *mut c_void, *mut c_void) -> Code;
type PageCount = unsafe extern "C" fn(*mut c_void, c_uint, *mut c_uint, *mut c_void) -> Code;
type Peer = unsafe extern "C" fn(*mut c_void, *mut c_void, c_uint, *mut c_void) -> Code;
type Open = unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> Code;
type OpenByIndex = unsafe extern "C" fn(c_uint, *mut *mut c_void) -> Code;
type Plain = unsafe extern "C" fn() -> Code;
type Count = unsafe extern "C" fn(*mut c_uint) -> Code;
type Alloc = unsafe extern "C" fn(*mut *mut c_void) -> Code;
type Pointer = unsafe extern "C" fn(*mut c_void) -> Code;

impl Nvml {
    /// Loads a library by path or name.
    pub fn load(path: &Path) -> Result<Nvml, String> {
        // SAFETY: NVIDIA's library, or the simulated one; loading it runs its constructors only.
        let library = unsafe { Library::new(path) };
        let library = library.map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Nvml(Box::leak(Box::new(library))))
    }

    fn find<F: Copy>(&self, name: &str) -> Result<F, Code> {
        // SAFETY: each caller states the type that nvml.h declares for the function.
        let found = unsafe { self.0.get::<F>(name.as_bytes()) };
        found.map(|function| *function).map_err(|_| FUNCTION_NOT_FOUND)
    }

    /// `nvmlInit_v2` or `nvmlShutdown`.
    pub fn plain(&self, name: &str) -> Code {
        let call = || -> Result<Code, Code> {
            let function: Plain = self.find(name)?;
            // SAFETY: no argument; nobody uses a handle while nvmlShutdown runs.
            Ok(unsafe { function() })
        };
        call().unwrap_or_else(|code| code)
    }

    /// A text about the node.
    pub fn node_text(&self, name: &str) -> Result<String, Code> {
        let function: NodeText = self.find(name)?;
        // SAFETY: as many writable bytes as stated.
        text(|bytes, length| unsafe { function(bytes, length) })
    }

    /// A text about a device.
    pub fn text(&self, name: &str, device: Device) -> Result<String, Code> {
        let function: Text = self.find(name)?;
        // SAFETY: a device of this library, and as many writable bytes as stated.
        text(|bytes, length| unsafe { function(device.pointer(), bytes, length) })
    }

    /// How many GPUs the driver counts.
    pub fn count(&self) -> Result<u32, Code> {
        let function: Count = self.find("nvmlDeviceGetCount_v2")?;
        let mut count = 0;
        // SAFETY: one writable number.
        checked(unsafe { function(&raw mut count) }).map(|()| count)
    }

    /// A number about a device.
    pub fn number(&self, name: &str, device: Device) -> Result<u32, Code> {
        let function: One = self.find(name)?;
        let mut number: c_uint = 0;
        // SAFETY: a device of this library and one writable number.
        checked(unsafe { function(device.pointer(), (&raw mut number).cast()) }).map(|()| number)
    }

    /// Opens the GPU of an index.
    pub fn by_index(&self, index: u32) -> Result<Device, Code> {
        let function: OpenByIndex = self.find("nvmlDeviceGetHandleByIndex_v2")?;
        let mut device = std::ptr::null_mut();
        // SAFETY: room for one handle.
        checked(unsafe { function(index, &raw mut device) }).map(|()| Device(device.expose_provenance()))
    }

    /// Opens the GPU at a PCI address.
    pub fn by_address(&self, address: &str) -> Result<Device, Code> {
        let function: Open = self.find("nvmlDeviceGetHandleByPciBusId_v2")?;
        let address = CString::new(address).map_err(|_| FUNCTION_NOT_FOUND)?;
        let mut device = std::ptr::null_mut();
        // SAFETY: a C string, and room for one handle.
        checked(unsafe { function(address.as_ptr(), &raw mut device) })
            .map(|()| Device(device.expose_provenance()))
    }

    /// The PCI address of a device, as NVML writes it.
    pub fn address(&self, device: Device) -> Result<String, Code> {
        let function: One = self.find("nvmlDeviceGetPciInfo_v3")?;
        let mut room = Room([0; ROOM_BYTES]);
        // SAFETY: a device of this library, and room for the struct's 68 bytes.
        checked(unsafe { function(device.pointer(), (&raw mut room).cast()) })?;
        // busIdLegacy, five numbers, busId.
        let bus_id = room.0[36..68].split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(bus_id).into_owned())
    }

    /// A MIG device of a GPU.
    pub fn mig_device(&self, device: Device, place: u32) -> Result<Device, Code> {
        let function: Of = self.find("nvmlDeviceGetMigDeviceHandleByIndex")?;
        let mut mig: *mut c_void = std::ptr::null_mut();
        // SAFETY: a device of this library, and room for one handle.
        checked(unsafe { function(device.pointer(), place, (&raw mut mig).cast()) })
            .map(|()| Device(mig.expose_provenance()))
    }

    /// Asks for field values in one call.
    pub fn fields(&self, device: Device, fields: &mut [Field]) -> Code {
        let call = |fields: &mut [Field]| -> Result<Code, Code> {
            let function: Fields = self.find("nvmlDeviceGetFieldValues")?;
            let count = c_int::try_from(fields.len()).unwrap_or(0);
            // SAFETY: a device of this library, and room for `count` values.
            Ok(unsafe { function(device.pointer(), count, fields.as_mut_ptr()) })
        };
        call(fields).unwrap_or_else(|code| code)
    }

    /// Makes one call whose answer does not matter.
    pub fn call(&self, name: &str, shape: Shape, device: Device, address: &str) -> Code {
        self.shaped(name, shape, device, address).unwrap_or_else(|code| code)
    }

    fn shaped(&self, name: &str, shape: Shape, device: Device, address: &str) -> Result<Code, Code> {
        let (mut a, mut b) = (Room([0; ROOM_BYTES]), Room([0; ROOM_BYTES]));
        let (first, second): (*mut c_void, *mut c_void) = ((&raw mut a).cast(), (&raw mut b).cast());
        let gpu = device.pointer();
        let mut count = LIST_ENTRIES;
        Ok(match shape {
            // SAFETY: a device of this library.
            Shape::Alone => unsafe { self.find::<Pointer>(name)?(gpu) },
            // SAFETY: a device of this library, and more room than the function fills.
            Shape::One => unsafe { self.find::<One>(name)?(gpu, first) },
            Shape::Versioned(word) => {
                a.0[..4].copy_from_slice(&word.to_ne_bytes());
                // SAFETY: as above.
                unsafe { self.find::<One>(name)?(gpu, (&raw mut a).cast()) }
            }
            // SAFETY: as above, twice.
            Shape::Two => unsafe { self.find::<Two>(name)?(gpu, first, second) },
            // SAFETY: as above; the number is plain data.
            Shape::Of(number) => unsafe { self.find::<Of>(name)?(gpu, number, first) },
            // SAFETY: as above; a text gets fewer bytes than there are.
            Shape::Text => unsafe { self.find::<Text>(name)?(gpu, first.cast(), 256) },
            // SAFETY: as above; there is room for more than `count` entries.
            Shape::List => unsafe { self.find::<Two>(name)?(gpu, (&raw mut count).cast(), first) },
            Shape::Fields(wanted) => {
                let field = |&(id, scope): &(u32, u32)| Field { id, scope, ..Field::default() };
                let mut fields: Vec<Field> = wanted.iter().map(field).collect();
                self.fields(device, &mut fields)
            }
            // SAFETY: as above.
            Shape::MemoryErrors => unsafe { self.find::<Errors>(name)?(gpu, 1, 1, 2, first) },
            // SAFETY: as above; there is room for `count` numbers in both lists.
            Shape::Pages(cause) => unsafe {
                self.find::<Pages>(name)?(gpu, cause, &raw mut count, first, second)
            },
            Shape::PageCount(cause) => {
                let mut count = 0;
                // SAFETY: as above; a length of 0 asks for no list.
                unsafe { self.find::<PageCount>(name)?(gpu, cause, &raw mut count, first) }
            }
            // SAFETY: as above.
            Shape::Peer(capability, other) => unsafe {
                self.find::<Peer>(name)?(gpu, other.pointer(), capability, first)
            },
            // SAFETY: as above; 128 words of 8 bytes.
            Shape::Cpus => unsafe { self.find::<Of>(name)?(gpu, 128, first) },
            Shape::Open => self.by_address(address).err().unwrap_or(0),
        })
    }

    /// GPM metrics between two samples; the pause between them is the caller's.
    pub fn metrics(&self, device: Device, ids: &[u32], pause: impl Fn()) -> Result<Vec<Metric>, Code> {
        let samples = [self.sample()?, self.sample()?];
        let found = self.metrics_between(device, ids, samples, pause);
        let free: Pointer = self.find("nvmlGpmSampleFree")?;
        for sample in samples {
            // SAFETY: a sample of this library, which nobody uses any more.
            unsafe { free(sample) };
        }
        found
    }

    fn sample(&self) -> Result<*mut c_void, Code> {
        let alloc: Alloc = self.find("nvmlGpmSampleAlloc")?;
        let mut sample = std::ptr::null_mut();
        // SAFETY: room for one handle.
        checked(unsafe { alloc(&raw mut sample) }).map(|()| sample)
    }

    fn metrics_between(
        &self,
        device: Device,
        ids: &[u32],
        samples: [*mut c_void; 2],
        pause: impl Fn(),
    ) -> Result<Vec<Metric>, Code> {
        let take: One = self.find("nvmlGpmSampleGet")?;
        // SAFETY: a device and a sample of this library.
        checked(unsafe { take(device.pointer(), samples[0]) })?;
        pause();
        // SAFETY: as above.
        checked(unsafe { take(device.pointer(), samples[1]) })?;
        let count = ids.len().min(METRICS);
        let metrics = [Metric::default(); METRICS];
        let mut asked = Metrics { version: 1, count: c_uint::try_from(count).unwrap_or(0), samples, metrics };
        for (metric, id) in asked.metrics.iter_mut().zip(ids) {
            metric.id = *id;
        }
        let get: Pointer = self.find("nvmlGpmMetricsGet")?;
        // SAFETY: a whole nvmlGpmMetricsGet_t.
        checked(unsafe { get((&raw mut asked).cast()) })?;
        Ok(asked.metrics[..count].to_vec())
    }
}

fn checked(code: Code) -> Result<(), Code> {
    if code == 0 { Ok(()) } else { Err(code) }
}

fn text(fill: impl FnOnce(*mut c_char, c_uint) -> Code) -> Result<String, Code> {
    let mut bytes = [0u8; 256];
    checked(fill(bytes.as_mut_ptr().cast(), 255))?;
    let told = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(told).into_owned())
}

/// What NVML calls a code, as far as a reader needs it.
pub fn word(code: Code) -> String {
    let known = match code {
        0 => "answers",
        2 => "invalid argument",
        3 => "not supported",
        4 => "no permission",
        6 => "not found",
        9 => "driver not loaded",
        13 => "no such function",
        15 => "GPU is lost",
        16 => "reset required",
        18 => "library and driver do not match",
        21 => "no data",
        25 => "struct version not known",
        26 => "deprecated",
        _ => return format!("code {code}"),
    };
    known.to_owned()
}
