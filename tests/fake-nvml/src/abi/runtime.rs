//! The process-wide state behind the C functions: where the files are, what they say now, how often init was called.

use std::ffi::{CStr, OsStr};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{
    AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::SeqCst, fence,
};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::code::Code;
use crate::engine::{Answer, Device, Now, after_reset};
use crate::faults::{self, Faults, GpuName, Hidden, ResetKind, Script, named};
use crate::install::{HAND_WRITTEN, SCENARIO_FILE};
use crate::scenario::{Gpu, Machine, MigDevice, ScenarioError};

/// What setters (clocks, persistence and so on) wrote, in the form of a fault script, so that other processes see it.
const SETTINGS_FILE: &str = "settings.toml";

/// Folder of the scenario for tests; else the folder of the library.
const FOLDER_VARIABLE: &str = "FAKE_NVML_DIR";

/// GPUs that the process may use, as a device cgroup leaves them: slots, UUIDs or PCI addresses with commas between.
const VISIBLE_VARIABLE: &str = "FAKE_NVML_VISIBLE";

/// CPUs that the process may use, in numbers of the simulated machine.
const CPUS_VARIABLE: &str = "FAKE_NVML_CPUS";

/// A rule file that was edited by hand is seen after this time at the latest; changes made by this crate are announced
/// and seen at once.
const LOOK_AGAIN_MS: u64 = 20;

/// Everything a call needs; replaced as a whole when a file changes.
#[derive(Debug)]
pub(super) struct State {
    /// The scenario with all `[[set]]` rules applied.
    pub machine: Machine,
    /// The rules.
    pub script: Script,
    /// GPUs as they are after a reset of themselves and after one of the driver, where the script has one.
    reset_gpus: Vec<[Gpu; 2]>,
    /// Time that stands still.
    frozen: Option<Now>,
    /// The scenario as loaded, for the next change of the rules.
    base: Arc<Machine>,
    /// Where the files are.
    folder: PathBuf,
    /// Fingerprints of the two rule files.
    seen: [Fingerprint; 2],
    /// Tells of changes without a look at the files.
    changes: Option<Changes>,
    /// What that counter said, and the time, when the files were looked at last.
    looked_at: [AtomicU64; 2],
    /// The rule files are wrong: calls answer "unknown error", as a test must not pass on a script that is ignored.
    broken: bool,
}

/// Tells a changed file: a rename changes the inode, an edit in place size or times.
type Fingerprint = Option<(u64, u64, [i64; 4])>;

static STATE: RwLock<Option<Arc<State>>> = RwLock::new(None);
static INITS: AtomicU32 = AtomicU32::new(0);
static SETTINGS: Mutex<()> = Mutex::new(());

/// The state for one call; none of the locks is held afterwards, so calls sleep and hang without stopping others.
pub(super) fn state() -> Answer<Arc<State>> {
    if INITS.load(SeqCst) == 0 {
        return Err(Code::UNINITIALIZED);
    }
    current()
}

/// Loads the scenario for an init call.
pub(super) fn load() -> Answer<Arc<State>> {
    if INITS.load(SeqCst) > 0 {
        return current();
    }
    let loaded = folder().ok_or(Code::LIBRARY_NOT_FOUND).and_then(|folder| {
        let name = if folder.join(SCENARIO_FILE).exists() { SCENARIO_FILE } else { HAND_WRITTEN };
        let machine = Machine::load(&folder.join(name)).map_err(|error| complain(&error))?;
        let previous =
            STATE.read().unwrap_or_else(PoisonError::into_inner).as_ref().and_then(|old| old.changes);
        Ok(Arc::new(State::new(Arc::new(machine), folder, previous)))
    })?;
    *STATE.write().unwrap_or_else(PoisonError::into_inner) = Some(loaded.clone());
    loaded.usable()
}

/// Counts a successful init.
pub(super) fn initialized() {
    INITS.fetch_add(1, SeqCst);
}

/// Counts a shutdown; an error when there was no init.
pub(super) fn shut_down() -> Answer<()> {
    let less = INITS.fetch_update(SeqCst, SeqCst, |count| count.checked_sub(1));
    less.map(|_| ()).map_err(|_| Code::UNINITIALIZED)
}

/// Stores what a setter changed. A folder that cannot be written answers as a driver does to users without rights.
pub(super) fn store(state: &State, slot: u32, field: &str, value: Option<toml::Value>) -> Answer<()> {
    let _one_thread_at_a_time = SETTINGS.lock().unwrap_or_else(PoisonError::into_inner);
    let _one_process_at_a_time = locked(&state.folder).map_err(|_| Code::NO_PERMISSION)?;
    let path = state.folder.join(SETTINGS_FILE);
    let mut settings = Faults::load(&path).map_err(|error| complain(&error))?;
    let gpu = Some(GpuName::Slot(slot));
    settings.set.retain(|rule| rule.gpu != gpu || rule.field != field);
    settings.set.push(faults::Set { gpu, field: field.to_owned(), value, after_reset: None });
    let text = toml::to_string(&settings).map_err(|_| Code::UNKNOWN)?;
    let stored = faults::replace(&path, &text).and_then(|()| faults::announce(&state.folder));
    stored.map_err(|_| Code::NO_PERMISSION)
}

/// Waits until no other process stores settings. Closing the file lets the next one go on.
fn locked(folder: &Path) -> std::io::Result<File> {
    let file = faults::open_changes(folder)?;
    loop {
        // SAFETY: a lock on a file that is open; no memory is touched.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } == 0 {
            return Ok(file);
        }
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Clocks for the engine.
fn now() -> Now {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now {
        boottime_ms: clock_ms(libc::CLOCK_BOOTTIME),
        unix_us: u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX),
    }
}

fn clock_ms(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime writes one timespec, and `time` is one.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    let unsigned = |number: i64| u64::try_from(number).unwrap_or(0);
    unsigned(time.tv_sec) * 1000 + unsigned(time.tv_nsec) / 1_000_000
}

/// The state, renewed where a rule file has changed.
fn current() -> Answer<Arc<State>> {
    let loaded = STATE.read().unwrap_or_else(PoisonError::into_inner).clone().ok_or(Code::UNINITIALIZED)?;
    if loaded.up_to_date() {
        return loaded.usable();
    }
    let mut slot = STATE.write().unwrap_or_else(PoisonError::into_inner);
    // Another thread may have renewed it meanwhile; a second renewal would restart the counters of the rules.
    let newest = slot.clone().ok_or(Code::UNINITIALIZED)?;
    if newest.up_to_date() {
        return newest.usable();
    }
    let renewed = Arc::new(State::new(newest.base.clone(), newest.folder.clone(), newest.changes));
    *slot = Some(renewed.clone());
    renewed.usable()
}

/// What the rule files come to.
struct Rules {
    machine: Machine,
    script: Script,
    reset_gpus: Vec<[Gpu; 2]>,
    frozen: Option<Now>,
}

impl State {
    fn new(base: Arc<Machine>, folder: PathBuf, previous: Option<Changes>) -> Self {
        // Counter and fingerprints first: a change while reading is then seen by the next call.
        let changes = Changes::open(&folder, previous);
        let looked_at = [changes.map_or(0, Changes::count), coarse_ms()].map(AtomicU64::new);
        let seen = fingerprints(&folder);
        let (rules, broken) = match rules(&base, &folder) {
            Ok(rules) => (rules, false),
            Err(error) => {
                complain(&error);
                let machine = (*base).clone();
                let nothing =
                    Rules { machine, script: Script::default(), reset_gpus: Vec::new(), frozen: None };
                (nothing, true)
            }
        };
        let Rules { machine, script, reset_gpus, frozen } = rules;
        Self { machine, script, reset_gpus, frozen, base, folder, seen, changes, looked_at, broken }
    }

    /// Only with rule files that are right.
    fn usable(self: Arc<Self>) -> Answer<Arc<Self>> {
        if self.broken { Err(Code::UNKNOWN) } else { Ok(self) }
    }

    /// Whether the rule files are still those that were read. The counter answers mostly; the files themselves are
    /// looked at when it has moved, from time to time, and always where there is no counter.
    fn up_to_date(&self) -> bool {
        let [counted, looked_ms] = &self.looked_at;
        let now_ms = coarse_ms();
        let Some(changes) = self.changes else { return self.seen == fingerprints(&self.folder) };
        // Before the look at the files, so that a change after it moves the counter again.
        let count = changes.count();
        if count == counted.load(Relaxed) && now_ms.saturating_sub(looked_ms.load(Relaxed)) < LOOK_AGAIN_MS {
            return true;
        }
        let same = self.seen == fingerprints(&self.folder);
        if same {
            counted.store(count, Relaxed);
            looked_ms.store(now_ms, Relaxed);
        }
        same
    }

    /// The time of a call.
    pub(super) fn now(&self) -> Now {
        self.frozen.unwrap_or_else(now)
    }

    /// A GPU, or a MIG device of it, at the time of a call.
    pub(super) fn device(&self, slot: u32, mig: Option<usize>) -> Answer<Device<'_>> {
        let now = self.now();
        let epoch = self.script.epoch(slot, now.boottime_ms);
        let after = self.reset_gpus.iter().find(|[gpu, _]| gpu.slot() == slot);
        let gpu = match after {
            Some([_, driver]) if epoch.driver_ms > 0 => Some(driver),
            Some([own, _]) if epoch.gpu_ms > 0 => Some(own),
            _ => self.machine.gpu(slot),
        };
        let gpu = gpu.ok_or(Code::INVALID_ARGUMENT)?;
        let device = |place: usize| gpu.mig.devices.get(place).ok_or(Code::INVALID_ARGUMENT);
        let mig: Option<&MigDevice> = mig.map(device).transpose()?;
        Ok(Device { machine: &self.machine, gpu, mig, script: &self.script, now, epoch })
    }
}

fn rules(base: &Machine, folder: &Path) -> Result<Rules, ScenarioError> {
    let path = folder.join(faults::FILE);
    let mut faults = Faults::load(&folder.join(SETTINGS_FILE))?;
    faults.extend(Faults::load(&path)?);
    if !faults.on.is_empty() {
        // An installed scenario has them in a file of their own.
        let beside = if base.faults.is_empty() { Some(named::load(folder)?) } else { None };
        faults = faults.resolved(base, beside.as_ref().unwrap_or(&base.faults), &path)?;
    }
    confine(&mut faults, base, &path)?;
    let machine = faults.apply(base, &path)?;
    let frozen = faults.frozen_boottime_ms.map(|boottime_ms| Now::standing(boottime_ms, faults.unix_us));
    let sets = Faults { set: std::mem::take(&mut faults.set), ..Faults::default() };
    let script = Script::new(faults, &machine, &path)?;
    let mut reset_gpus = Vec::new();
    for gpu in machine.gpus.iter().filter(|gpu| script.has_reset(gpu.slot())) {
        let after = |what| sets.applied(base, &after_reset(gpu, what), true, &path);
        reset_gpus.push([after(ResetKind::Gpu)?, after(ResetKind::Driver)?]);
    }
    Ok(Rules { machine, script, reset_gpus, frozen })
}

/// Adds what the environment of the process says about the GPUs and CPUs that it may use.
fn confine(faults: &mut Faults, machine: &Machine, path: &Path) -> Result<(), ScenarioError> {
    if let Ok(visible) = std::env::var(VISIBLE_VARIABLE) {
        let names = visible.split(',').map(str::trim).filter(|name| !name.is_empty());
        let named = |name: &str| name.parse().map_or_else(|_| GpuName::Text(name.into()), GpuName::Slot);
        let kept = names.map(|name| named(name).find(machine, path).map(Gpu::slot));
        let kept: Vec<u32> = kept.collect::<Result<_, _>>()?;
        let others = machine.gpus.iter().map(Gpu::slot).filter(|slot| !kept.contains(slot));
        let hide = |slot| Hidden { gpu: GpuName::Slot(slot), pids_in: None, code: None };
        faults.hidden.extend(others.map(hide));
    }
    if let Ok(cpus) = std::env::var(CPUS_VARIABLE) {
        let wrong =
            |message| ScenarioError::Invalid { path: path.to_path_buf(), key: CPUS_VARIABLE.into(), message };
        faults.cpuset.push(faults::Cpuset { cpus: cpus.parse().map_err(wrong)?, pids_in: None });
    }
    Ok(())
}

fn fingerprints(folder: &Path) -> [Fingerprint; 2] {
    [faults::FILE, SETTINGS_FILE].map(|name| {
        let about = fs::metadata(folder.join(name)).ok()?;
        let times = [about.mtime(), about.mtime_nsec(), about.ctime(), about.ctime_nsec()];
        Some((about.ino(), about.size(), times))
    })
}

/// A clock that costs next to nothing and runs in steps of some milliseconds.
fn coarse_ms() -> u64 {
    clock_ms(libc::CLOCK_MONOTONIC_COARSE)
}

/// The counter of changes, mapped from its file.
#[derive(Debug, Clone, Copy)]
struct Changes {
    /// Device and inode, so that a folder that was made anew is noticed.
    file: [u64; 2],
    counter: &'static AtomicU64,
}

impl Changes {
    /// Maps the counter, or keeps the mapping of the same file. Without a file the rule files are looked at each time.
    fn open(folder: &Path, previous: Option<Self>) -> Option<Self> {
        let file = File::open(folder.join(faults::CHANGES)).ok()?;
        let about = file.metadata().ok()?;
        let found = [about.dev(), about.ino()];
        if let Some(same) = previous.filter(|previous| previous.file == found) {
            return Some(same);
        }
        let bytes = size_of::<AtomicU64>();
        if about.len() < bytes as u64 {
            return None;
        }
        let (read, shared) = (libc::PROT_READ, libc::MAP_SHARED);
        // SAFETY: a new mapping at a place of the kernel's choice, of a file that is open.
        let place = unsafe { libc::mmap(std::ptr::null_mut(), bytes, read, shared, file.as_raw_fd(), 0) };
        if place == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: the start of a page is aligned for eight bytes, and the file has them: it is only ever written by
        // `faults::announce`, which neither shortens nor replaces it. The mapping is never taken away, so it lives as
        // long as the process. Other processes change the bytes, which is what an atomic is for.
        let counter = unsafe { &*place.cast::<AtomicU64>() };
        Some(Self { file: found, counter })
    }

    fn count(self) -> u64 {
        // Relaxed, as other orders are not for memory that is read-only; what follows must not come before it.
        let count = self.counter.load(Relaxed);
        fence(Acquire);
        count
    }
}

/// A fake that fails in silence costs hours: say it where the test's output goes.
fn complain(error: &ScenarioError) -> Code {
    eprintln!("fake-nvml: {error}");
    Code::UNKNOWN
}

/// The folder that the files are in.
fn folder() -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os(FOLDER_VARIABLE) {
        return Some(PathBuf::from(folder));
    }
    let library = library_path()?;
    let has_scenario =
        |folder: &&Path| [SCENARIO_FILE, HAND_WRITTEN].iter().any(|name| folder.join(name).exists());
    let beside = library.parent().filter(has_scenario);
    // Reached by a link from elsewhere: the files are beside the real one.
    beside.map(Path::to_path_buf).or_else(|| Some(fs::canonicalize(&library).ok()?.parent()?.to_path_buf()))
}

/// The path that the dynamic loader opened this library by.
fn library_path() -> Option<PathBuf> {
    let own: fn() -> Option<PathBuf> = library_path;
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr only looks the address up and writes one Dl_info where it is given room for one.
    let known = unsafe { libc::dladdr(own as *const libc::c_void, found.as_mut_ptr()) };
    // SAFETY: all-zero bytes are a valid Dl_info (null pointers), and dladdr wrote nothing else than valid ones.
    let found = unsafe { found.assume_init() };
    if known == 0 || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: after success dli_fname is a C string that lives as long as the library is mapped.
    let name = unsafe { CStr::from_ptr(found.dli_fname) };
    fs::canonicalize(".").ok().map(|here| here.join(OsStr::from_bytes(name.to_bytes())))
}
