//! The arguments of the plugstack.conf line: `config=/path/gpuward.toml`.

use gpuward_core::text::escape;
use std::path::PathBuf;

/// Where gpuward.toml is without an argument.
const DEFAULT_CONFIG: &str = "/etc/gpuward/gpuward.toml";

/// Reads the arguments. What is wrong is logged, and the default stays.
pub fn config_path(args: &[String]) -> PathBuf {
    let mut path = PathBuf::from(DEFAULT_CONFIG);
    for arg in args {
        match arg.split_once('=') {
            Some(("config", value)) if value.starts_with('/') => path = PathBuf::from(value),
            Some(("panic", _)) if cfg!(feature = "fault-injection") => {}
            _ => log::error!(
                "plugstack.conf argument '{}' is ignored: allowed is config=PATH with an absolute path",
                escape(arg, 200)
            ),
        }
    }
    path
}
