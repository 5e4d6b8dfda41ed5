//! The gres.conf of this node.

use crate::files;
use gpuward_core::config::SlurmSettings;
use gpuward_core::model::gres_conf::{GresConf, slurm_conf_gpus};
use std::path::{Path, PathBuf};

/// No gres.conf in use is larger.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Reads gres.conf: where the settings say, else beside slurm.conf. One that cannot be read makes the result unclear.
pub fn read_gres_conf(settings: &SlurmSettings, slurm_conf: Option<&str>, node: &str) -> GresConf {
    let path = match (settings.gres_conf.as_str(), slurm_conf) {
        ("", Some(conf)) => Path::new(conf).with_file_name("gres.conf"),
        ("", None) => PathBuf::from("/etc/slurm/gres.conf"),
        (path, _) => PathBuf::from(path),
    };
    match files::read_text(&path, MAX_BYTES) {
        Ok(text) => GresConf::parse(&text, node),
        Err(error) => GresConf { unclear: Some(error.to_string()), ..GresConf::default() },
    }
}

/// How many GPUs slurm.conf gives `node`: read where somebody waits for a check, never in a prolog.
pub fn read_slurm_conf_gpus(settings: &SlurmSettings, slurm_conf: Option<&str>, node: &str) -> Option<u32> {
    let configured = Some(settings.conf.as_str()).filter(|path| !path.is_empty());
    let path = configured.or(slurm_conf).unwrap_or("/etc/slurm/slurm.conf");
    slurm_conf_gpus(&files::read_text(Path::new(path), MAX_BYTES).ok()?, node)
}
