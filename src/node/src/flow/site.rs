//! What every use case starts from: the job's environment, the configuration, the node's paths, and a log.

use crate::config::{self, Loaded};
use crate::slurm::JobEnv;
use crate::state::{Attempt, BootState, take_unfinished};
use crate::supervisor::Kind;
use crate::{files, log as logs, sysfs};
use gpuward_core::config::{Config, Paths};
use std::path::{Path, PathBuf};

/// One node as configured.
#[derive(Debug)]
pub struct Site {
    /// Settings in force.
    pub config: Config,
    /// Paths of this node.
    pub paths: Paths,
    /// What slurmd said.
    pub env: JobEnv,
    /// The kernel's boot id.
    pub boot_id: String,
    /// The program at work, as it is named in logs.
    pub program: &'static str,
    /// How long the probe may take: longer only where persistence mode was last seen off.
    pub probe_deadline_ms: u64,
}

impl Site {
    /// The site of a prolog or epilog started as `program`; starts its log.
    pub fn of_job(kind: Kind, env: &JobEnv, program: &Path, copy: Option<logs::Copy>) -> Site {
        let loaded = config::load(Some(program), env.slurm_conf.as_deref().map(Path::new));
        let name = match kind {
            Kind::Prolog => "gpuward-prolog",
            Kind::Epilog => "gpuward-epilog",
        };
        Site::new(loaded, env.clone(), name, copy)
    }

    /// A site from parts.
    pub fn new(loaded: Loaded, env: JobEnv, log_name: &'static str, copy: Option<logs::Copy>) -> Site {
        let Loaded { config, complaint, .. } = loaded;
        let cluster = env.cluster_name().to_owned();
        let paths = config.paths.for_node(&env.node, &cluster);
        let file = config.log.file_for(&env.node, &cluster);
        let log_complaint = logs::start(log_name, file.as_deref(), config.log.level, copy);
        for text in [&complaint, &log_complaint].into_iter().flatten() {
            log::error!("{text}");
        }
        let boot_id = sysfs::boot_id(Path::new(&paths.procfs));
        let boot = BootState::load(Path::new(&paths.run), &boot_id);
        // A GPU that was silent before anybody saw its persistence mode may just be cold: its second look is longer.
        let cold = boot.persistence_off.unwrap_or(!boot.silent.is_empty());
        let probe_deadline_ms = if cold { config.probe.cold_deadline_ms } else { config.probe.deadline_ms };
        Site { config, paths, env, boot_id, program: log_name, probe_deadline_ms }
    }

    /// The folder of files that last until the next boot, made if need be.
    ///
    /// # Errors
    /// It cannot be made or is not to be trusted.
    pub fn run(&self) -> Result<PathBuf, crate::EdgeError> {
        let run = PathBuf::from(&self.paths.run);
        files::own_folder(&run, 0o755)?;
        Ok(run)
    }

    /// Notes down that a prolog or epilog begins, and reports those that came to no verdict.
    pub(super) fn begin_attempt(&self) -> Option<Attempt> {
        let run = self.run().map_err(|error| log::error!("{error}")).ok()?;
        for text in take_unfinished(&run) {
            log::error!("{text}; it was killed, or the node went down");
        }
        let job = self.env.job_id.map(|job| job.0);
        Attempt::begin(&run, self.program, job).map_err(|error| log::error!("{error}")).ok()
    }

    /// The library of this node.
    pub fn library(&self) -> String {
        self.config.nvml.library_for(&self.env.node, self.env.cluster_name())
    }

    /// ` job=N` for log lines, or nothing.
    pub fn job_text(&self) -> String {
        self.env.job_id.map_or_else(String::new, |job| format!(" job={job}"))
    }
}
