//! Installs a scenario by hand: `install_scenario SCENARIO LIBRARY FOLDER`.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [scenario, library, folder] = &arguments[..] else {
        return Err("usage: install_scenario SCENARIO LIBRARY FOLDER".into());
    };
    nvidia_ml::install(Path::new(scenario), Path::new(library), Path::new(folder))?;
    Ok(())
}
