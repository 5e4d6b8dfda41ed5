//! scontrol: read a node, drain a node. Only ever on the failing path.

use crate::EdgeError;
use crate::clock::Deadline;
use crate::process::run;
use gpuward_core::config::SlurmSettings;
use gpuward_core::drain::{NodeState, parse_show_node};
use std::path::{Path, PathBuf};

/// scontrol of one cluster.
#[derive(Debug, Clone)]
pub struct Scontrol {
    program: PathBuf,
    slurm_conf: Option<String>,
    deadline_ms: u64,
}

impl Scontrol {
    /// The scontrol that goes with the slurmd that started us.
    ///
    /// # Errors
    /// There is none in any of the places looked at.
    pub fn find(settings: &SlurmSettings, slurm_conf: Option<&str>) -> Result<Scontrol, EdgeError> {
        let configured = Some(settings.conf.as_str()).filter(|path| !path.is_empty());
        Ok(Scontrol {
            program: find_bin(settings, "scontrol")?,
            slurm_conf: configured.or(slurm_conf).map(ToOwned::to_owned),
            deadline_ms: settings.scontrol_deadline_ms,
        })
    }

    fn call(&self, args: &[&str]) -> Result<String, EdgeError> {
        let conf = self.slurm_conf.as_deref().map(|path| ("SLURM_CONF", path));
        let env: Vec<(&str, &str)> = conf.into_iter().collect();
        let output = run(&self.program, args, &env, Deadline::in_ms(self.deadline_ms))?;
        if output.success {
            return Ok(output.text);
        }
        let why = format!("failed: {}", gpuward_core::text::escape(output.text.trim(), 200));
        Err(EdgeError::Program { program: self.program.display().to_string(), why })
    }

    /// State and reason of `node`.
    ///
    /// # Errors
    /// slurmctld did not answer in time, or what it said holds no state.
    pub fn node_state(&self, node: &str) -> Result<NodeState, EdgeError> {
        let text = self.call(&["-o", "show", "node", node])?;
        parse_show_node(text.trim()).ok_or_else(|| {
            let why = "told no state of the node".to_owned();
            EdgeError::Program { program: self.program.display().to_string(), why }
        })
    }

    /// Drains `node` with `reason`. Never called for a node that is out of service or has a foreign reason.
    ///
    /// # Errors
    /// slurmctld did not answer in time or refused.
    pub fn drain(&self, node: &str, reason: &str) -> Result<(), EdgeError> {
        let (name, reason) = (format!("NodeName={node}"), format!("Reason={reason}"));
        self.call(&["update", &name, "State=DRAIN", &reason]).map(|_| ())
    }
}

/// A program of Slurm's: where the settings say, beside the slurmd that started us, or in the usual folders.
///
/// # Errors
/// It is in none of them.
pub fn find_bin(settings: &SlurmSettings, name: &str) -> Result<PathBuf, EdgeError> {
    let mut folders: Vec<PathBuf> = Vec::new();
    if settings.bin.is_empty() {
        folders.extend(folders_of_slurmd());
        folders.extend(["/usr/bin", "/usr/local/bin", "/opt/slurm/bin"].map(PathBuf::from));
    } else {
        folders.push(settings.bin.clone().into());
    }
    let found = folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| EdgeError::Program {
        program: name.to_owned(),
        why: format!(
            "is in none of: {}",
            folders.iter().map(|f| f.display().to_string()).collect::<Vec<_>>().join(" ")
        ),
    })
}

/// slurmd stands in sbin, scontrol in bin beside it. Our ancestors are a supervisor and then slurmd or slurmstepd.
fn folders_of_slurmd() -> Vec<PathBuf> {
    let mut pid = std::process::id();
    let mut folders = Vec::new();
    for _ in 0..4 {
        let Some(parent) = parent_of(pid).filter(|&parent| parent > 1) else { break };
        pid = parent;
        let Ok(program) = std::fs::read_link(format!("/proc/{pid}/exe")) else { continue };
        let is_slurm =
            program.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("slurm"));
        if let Some(folder) = program.parent().filter(|_| is_slurm) {
            folders.push(folder.to_path_buf());
            folders.push(folder.with_file_name("bin"));
        }
    }
    folders
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = crate::files::read_text(Path::new(&format!("/proc/{pid}/stat")), 4096).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}
