//! Which node and which configuration a verb is about.

use gpuward_node::flow::Site;
use gpuward_node::slurm::JobEnv;
use gpuward_node::{config, files};
use std::path::{Path, PathBuf};

/// Options that every verb about this node has.
#[derive(Debug, Clone, clap::Args)]
pub struct NodeArgs {
    /// Configuration file.
    #[arg(long, value_name = "FILE", default_value = config::DEFAULT_PATH)]
    pub config: PathBuf,
    /// Slurm's name of this node; else the host's name up to the first dot.
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// The cluster's name, where the paths in the configuration hold %c.
    #[arg(long, value_name = "NAME", default_value = "")]
    pub cluster: String,
    /// slurm.conf, where it is not /etc/slurm/slurm.conf; gres.conf is read beside it.
    #[arg(long, value_name = "FILE", default_value = "/etc/slurm/slurm.conf")]
    pub slurm_conf: String,
}

impl NodeArgs {
    /// The configuration. A missing file means the defaults; a broken one is an error here, where somebody is looking.
    pub fn config(&self) -> Result<config::Loaded, String> {
        let named = self.config != Path::new(config::DEFAULT_PATH);
        if !named && !self.config.exists() {
            return Ok(config::Loaded::default());
        }
        let parsed = config::read_whole(&self.config).map_err(|error| error.to_string())?;
        Ok(config::Loaded { config: parsed, path: Some(self.config.clone()), complaint: None })
    }

    /// The node as configured.
    pub fn site(&self) -> Result<Site, String> {
        let loaded = self.config()?;
        let env = JobEnv {
            node: self.node.clone().unwrap_or_else(host_name),
            cluster: Some(self.cluster.clone()).filter(|name| !name.is_empty()),
            slurm_conf: Some(self.slurm_conf.clone()),
            ..JobEnv::default()
        };
        // What the edges complain about, somebody at a terminal should see.
        Ok(Site::new(loaded, env, "gpuward", Some(|line| eprintln!("gpuward: {line}"))))
    }
}

fn host_name() -> String {
    let text = files::read_text(Path::new("/proc/sys/kernel/hostname"), 1024).unwrap_or_default();
    text.trim().split('.').next().unwrap_or_default().to_owned()
}
