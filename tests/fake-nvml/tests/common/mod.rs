//! What the integration tests share: installed fakes in temporary folders.

// Each test file uses a part of this.
#![allow(dead_code)]

pub mod readings;

use std::path::{Path, PathBuf};

use nvidia_ml::built_library;
use nvidia_ml::scenario::Machine;
use nvml_wrapper::Nvml;

/// The scenarios that every test of "both machines" runs on.
pub const SCENARIOS: [&str; 2] = ["hgx-h100", "l40s-pcie"];

/// A scenario file of the tree.
pub fn scenario(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios").join(format!("{name}.toml"))
}

/// The names of all machines in tests/scenarios.
pub fn all_machines() -> Vec<String> {
    let name = |path: PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    all_scenarios().into_iter().map(name).collect()
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
