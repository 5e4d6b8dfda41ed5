//! The process-wide state behind the C functions: where the files are, what they say now, how often init was called.

use std::ffi::{CStr, OsStr};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::code::Code;
use crate::engine::{Answer, Now};
use crate::faults::{self, Faults, Script};
use crate::install::{HAND_WRITTEN, SCENARIO_FILE};
use crate::scenario::{Machine, ScenarioError};

/// What setters (clocks, persistence and so on) wrote, in the form of a fault script, so that other processes see it.
const SETTINGS_FILE: &str = "settings.toml";

/// Folder of the scenario for tests; else the folder of the library.
const FOLDER_VARIABLE: &str = "FAKE_NVML_DIR";

/// Everything a call needs; replaced as a whole when a file changes.
#[derive(Debug)]
pub(super) struct State {
    /// The scenario with all `[[set]]` rules applied.
    pub machine: Machine,
    /// The rules.
    pub script: Script,
    /// The scenario as loaded, for the next change of the rules.
    base: Arc<Machine>,
    /// Where the files are.
    folder: PathBuf,
    /// Fingerprints of the two rule files.
    seen: [Fingerprint; 2],
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
        Ok(Arc::new(State::new(Arc::new(machine), folder)))
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
    let _one_at_a_time = SETTINGS.lock().unwrap_or_else(PoisonError::into_inner);
    let path = state.folder.join(SETTINGS_FILE);
    let mut settings = Faults::load(&path).map_err(|error| complain(&error))?;
    let gpu = Some(faults::GpuName::Slot(slot));
    settings.set.retain(|rule| rule.gpu != gpu || rule.field != field);
    settings.set.push(faults::Set { gpu, field: field.to_owned(), value });
    let text = toml::to_string(&settings).map_err(|_| Code::UNKNOWN)?;
    faults::replace(&path, &text).map_err(|_| Code::NO_PERMISSION)
}

/// Clocks for the engine.
pub(super) fn now() -> Now {
    let mut boot = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime writes one timespec, and `boot` is one.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut boot) };
    let unsigned = |number: i64| u64::try_from(number).unwrap_or(0);
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now {
        boottime_ms: unsigned(boot.tv_sec) * 1000 + unsigned(boot.tv_nsec) / 1_000_000,
        unix_us: u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX),
    }
}

/// The state, renewed where a rule file has changed.
fn current() -> Answer<Arc<State>> {
    let loaded = STATE.read().unwrap_or_else(PoisonError::into_inner).clone().ok_or(Code::UNINITIALIZED)?;
    if loaded.seen == fingerprints(&loaded.folder) {
        return loaded.usable();
    }
    let mut slot = STATE.write().unwrap_or_else(PoisonError::into_inner);
    // Another thread may have renewed it meanwhile; a second renewal would restart the counters of the rules.
    let newest = slot.clone().ok_or(Code::UNINITIALIZED)?;
    if newest.seen == fingerprints(&newest.folder) {
        return newest.usable();
    }
    let renewed = Arc::new(State::new(newest.base.clone(), newest.folder.clone()));
    *slot = Some(renewed.clone());
    renewed.usable()
}

impl State {
    fn new(base: Arc<Machine>, folder: PathBuf) -> Self {
        // Fingerprints first: a change while reading is then seen by the next call.
        let seen = fingerprints(&folder);
        let (machine, script, broken) = match rules(&base, &folder) {
            Ok((machine, script)) => (machine, script, false),
            Err(error) => {
                complain(&error);
                ((*base).clone(), Script::default(), true)
            }
        };
        Self { machine, script, base, folder, seen, broken }
    }

    /// Only with rule files that are right.
    fn usable(self: Arc<Self>) -> Answer<Arc<Self>> {
        if self.broken { Err(Code::UNKNOWN) } else { Ok(self) }
    }
}

fn rules(base: &Machine, folder: &Path) -> Result<(Machine, Script), ScenarioError> {
    let path = folder.join(faults::FILE);
    let mut faults = Faults::load(&folder.join(SETTINGS_FILE))?;
    faults.extend(Faults::load(&path)?);
    let machine = faults.apply(base, &path)?;
    let script = Script::new(faults, &machine, &path)?;
    Ok((machine, script))
}

fn fingerprints(folder: &Path) -> [Fingerprint; 2] {
    [faults::FILE, SETTINGS_FILE].map(|name| {
        let about = fs::metadata(folder.join(name)).ok()?;
        let times = [about.mtime(), about.mtime_nsec(), about.ctime(), about.ctime_nsec()];
        Some((about.ino(), about.size(), times))
    })
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
