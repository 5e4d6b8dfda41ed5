//! Puts the library and a scenario into a folder, ready for `LD_LIBRARY_PATH` or an absolute path.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::elf;
use crate::faults::{announce, replace};
use crate::scenario::{Machine, ScenarioError};

/// Name of the scenario beside the library, as `install` writes it.
pub const SCENARIO_FILE: &str = "scenario.json";

/// Name of one written by hand; read where the other is missing.
pub const HAND_WRITTEN: &str = "scenario.toml";

/// Name that clients open.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// Name that older Slurm opens.
const UNVERSIONED: &str = "libnvidia-ml.so";

/// Name that cargo gives it.
const BUILT: &str = "libnvidia_ml.so";

/// Installs a scenario file as it stands; see [`Machine::install`]. Returns the machine.
pub fn install(scenario: &Path, library: &Path, folder: &Path) -> Result<Machine, ScenarioError> {
    let machine = Machine::load(scenario)?;
    machine.install(library, folder)?;
    Ok(machine)
}

impl Machine {
    /// Writes `scenario.json`, `libnvidia-ml.so.1` and the link `libnvidia-ml.so` into a folder, which is made where
    /// it is missing. The library is copied, as the loader takes two names of one file for one library; from the copy
    /// `driver.missing_symbols` are taken away. What a library loaded from there before needs to see changes stays.
    pub fn install(&self, library: &Path, folder: &Path) -> Result<(), ScenarioError> {
        fs::create_dir_all(folder).map_err(ScenarioError::io("create", folder))?;
        replace(&folder.join(SCENARIO_FILE), &self.compact())?;
        self.write_named_faults(folder)?;
        announce(folder)?;
        let target = folder.join(LIBRARY);
        // Not over the file in place: a process that has it mapped would crash.
        let temporary = folder.join(".libnvidia-ml.tmp");
        fs::copy(library, &temporary).map_err(ScenarioError::io("copy", library))?;
        if let Err(error) = self.take_symbols_away(&temporary) {
            // Best effort: nobody opens it by this name.
            let _ = fs::remove_file(&temporary);
            return Err(error);
        }
        fs::rename(&temporary, &target).map_err(ScenarioError::io("replace", &target))?;
        let link = folder.join(UNVERSIONED);
        match symlink(LIBRARY, &link) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                Err(ScenarioError::io("link", &link)(error))
            }
            _ => Ok(()),
        }
    }

    fn take_symbols_away(&self, library: &Path) -> Result<(), ScenarioError> {
        if self.driver.missing_symbols.is_empty() {
            return Ok(());
        }
        let mut file = fs::read(library).map_err(ScenarioError::io("read", library))?;
        elf::take_away(&mut file, &self.driver.missing_symbols).map_err(|error| ScenarioError::Invalid {
            path: PathBuf::from(&self.name),
            key: "driver.missing_symbols".into(),
            message: error.to_string(),
        })?;
        fs::write(library, file).map_err(ScenarioError::io("write", library))
    }
}

/// The shared library that cargo built beside the running test or program.
///
/// Cargo builds it together with this crate's own tests; for other crates `cargo build -p fake-nvml` comes first.
pub fn built_library() -> Result<PathBuf, ScenarioError> {
    let program =
        std::env::current_exe().map_err(ScenarioError::io("find", Path::new("the running program")))?;
    // Tests run in target/debug/deps, programs in target/debug. The file in deps is the one that every build
    // renews; the other is renewed only when this crate is built for itself.
    let folder = program.parent().unwrap_or_else(|| Path::new(""));
    let expected = folder.join("deps").join(BUILT);
    let places = [expected.clone(), folder.join(BUILT)];
    let found = places.into_iter().find(|library| library.exists());
    found.ok_or(ScenarioError::NotBuilt { path: expected })
}
