//! What the integration tests share: installed fakes in temporary folders.

// Each test file uses a part of this.
#![allow(dead_code)]

pub mod readings;

use std::path::{Path, PathBuf};

use nvidia_ml::built_library;
use nvidia_ml::scenario::Machine;
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings as sys;

/// The scenarios that every test of "both machines" runs on.
pub const SCENARIOS: [&str; 2] = ["hgx-h100", "l40s-pcie"];

/// A scenario file of the tree.
pub fn scenario(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios").join(format!("{name}.toml"))
}

/// The names of all machines in tests/scenarios.
pub fn all_machines() -> Vec<String> {
    let name = |path: PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let mut names: Vec<_> = all_scenarios().into_iter().map(name).collect();
    // By name: a path sorts `a-b.toml` before `a.toml`.
    names.sort();
    names
}

/// Every machine of the tree.
pub fn all_scenarios() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "toml"));
    paths.sort();
    assert!(paths.len() >= SCENARIOS.len());
    paths
}

/// A program of `examples/`, which cargo builds with the tests.
pub fn example(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let program = tests.parent().unwrap().with_file_name("examples").join(name);
    assert!(program.exists(), "{} is missing: cargo test builds it with the tests", program.display());
    program
}

/// An installed fake; gone with the value.
#[derive(Debug)]
pub struct Installed {
    folder: tempfile::TempDir,
    pub machine: Machine,
}

impl Installed {
    pub fn new(name: &str) -> Self {
        Self::with(Machine::load(&scenario(name)).unwrap())
    }

    pub fn with(machine: Machine) -> Self {
        let folder = tempfile::tempdir().unwrap();
        machine.install(&built_library().unwrap(), folder.path()).unwrap();
        Self { folder, machine }
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn library(&self) -> PathBuf {
        self.folder().join("libnvidia-ml.so.1")
    }

    pub fn open(&self) -> Nvml {
        self.try_open().unwrap()
    }

    pub fn try_open(&self) -> Result<Nvml, nvml_wrapper::error::NvmlError> {
        Nvml::builder().lib_path(self.library().as_os_str()).init()
    }

    pub fn faults(&self, text: &str) {
        nvidia_ml::faults::write(self.folder(), text).unwrap();
    }

    pub fn no_faults(&self) {
        nvidia_ml::faults::clear(self.folder()).unwrap();
    }
}

/// Raw field values; a failed field reads 1000000 and its code.
pub fn fields(nvml: &Nvml, device: &Device<'_>, ids: &[(u32, u32)]) -> Vec<u64> {
    // SAFETY: all-zero bytes are a valid field value.
    let empty: sys::nvmlFieldValue_t = unsafe { std::mem::zeroed() };
    let mut values: Vec<_> = ids
        .iter()
        .map(|&(id, scope)| sys::nvmlFieldValue_t { fieldId: id, scopeId: scope, ..empty })
        .collect();
    let count = i32::try_from(values.len()).unwrap();
    // SAFETY: the handle only goes back into the library that it came from.
    let handle = unsafe { device.handle() };
    // SAFETY: `values` has `count` members.
    let code = unsafe { nvml.lib().nvmlDeviceGetFieldValues(handle, count, values.as_mut_ptr()) };
    assert_eq!(code, 0);
    let number = |value: &sys::nvmlFieldValue_t| match value.nvmlReturn {
        // SAFETY: the union was zeroed before, so all eight bytes are set whichever member the fake wrote.
        0 => unsafe { value.value.ullVal },
        code => 1_000_000 + u64::from(code),
    };
    values.iter().map(number).collect()
}
