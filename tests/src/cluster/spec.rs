//! What a node of a throw-away cluster is to look like.

use super::ClusterError;
use std::fmt;
use std::io;
use std::path::Path;

type Prepare = Box<dyn FnOnce(&Path) -> io::Result<()> + Send>;

/// One simulated machine: its slurmd, its GPUs as device nodes, its own folder.
pub struct NodeSpec {
    pub(super) name: String,
    pub(super) cpus: u32,
    pub(super) minors: Vec<u32>,
    pub(super) gpu_type: String,
    pub(super) gres: Option<String>,
    pub(super) gres_lines: Option<Vec<String>>,
    pub(super) settings: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) own_dev: bool,
    pub(super) folders: Vec<(String, String)>,
    pub(super) prepare: Option<Prepare>,
}

impl fmt::Debug for NodeSpec {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("NodeSpec")
            .field("name", &self.name)
            .field("minors", &self.minors)
            .finish_non_exhaustive()
    }
}

impl NodeSpec {
    /// A node with this number of GPUs, whose gres.conf order is the order of their minor numbers.
    pub fn gpus(name: &str, count: u32) -> NodeSpec {
        NodeSpec {
            name: name.to_owned(),
            cpus: 8,
            minors: (0..count).collect(),
            gpu_type: "h100".to_owned(),
            gres: None,
            gres_lines: None,
            settings: Vec::new(),
            env: Vec::new(),
            own_dev: false,
            folders: Vec::new(),
            prepare: None,
        }
    }

    /// A node without GPUs.
    pub fn cpu_only(name: &str) -> NodeSpec {
        NodeSpec::gpus(name, 0)
    }

    /// The CPUs Slurm believes in, 8 by default; they may be more than the host has.
    pub fn cpus(mut self, cpus: u32) -> NodeSpec {
        self.cpus = cpus;
        self
    }

    /// The minor numbers of the device files in the order of gres.conf: one GPU for each.
    pub fn minors(mut self, minors: &[u32]) -> NodeSpec {
        self.minors = minors.to_vec();
        self
    }

    /// The GRES type, h100 by default.
    pub fn gpu_type(mut self, gpu_type: &str) -> NodeSpec {
        self.gpu_type = gpu_type.to_owned();
        self
    }

    /// The node's whole `Gres=` in slurm.conf, where one type with the count of the spec does not say it.
    pub fn gres(mut self, gres: &str) -> NodeSpec {
        self.gres = Some(gres.to_owned());
        self
    }

    /// These lines stand for the node in gres.conf instead of the generated ones. `{dev}` becomes the folder with its
    /// device files, /dev where it is the node's own, and `NodeName=` is put in front. The count of GPUs stays that of the spec.
    pub fn gres_lines(mut self, lines: &[&str]) -> NodeSpec {
        self.gres_lines = Some(lines.iter().map(|line| (*line).to_owned()).collect());
        self
    }

    /// Something more for the node's line in slurm.conf, such as `Feature=nvlink`.
    pub fn setting(mut self, setting: &str) -> NodeSpec {
        self.settings.push(setting.to_owned());
        self
    }

    /// The node's device files are in its /dev too, where Slurm's own detection looks for them, and no other GPU's are.
    /// Only its processes see that; the host's /dev stays as it is.
    pub fn own_dev(mut self) -> NodeSpec {
        self.own_dev = true;
        self
    }

    /// The node's processes see `folder` in place of `target`, a folder of the host; `{node}` in `folder` becomes the
    /// node's own folder. Only with [`NodeSpec::own_dev`].
    pub fn folder_over(mut self, folder: &str, target: &str) -> NodeSpec {
        self.folders.push((folder.to_owned(), target.to_owned()));
        self
    }

    /// A variable for the environment of the node's slurmd; `{node}` as above. Slurm gives none of it to prolog and
    /// epilog.
    pub fn env(mut self, name: &str, value: &str) -> NodeSpec {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Called with the node's folder once that and the device files exist, before slurmd starts.
    pub fn prepare(mut self, prepare: impl FnOnce(&Path) -> io::Result<()> + Send + 'static) -> NodeSpec {
        self.prepare = Some(Box::new(prepare));
        self
    }

    pub(super) fn check(&self) -> Result<(), ClusterError> {
        // It becomes a folder, a cgroup and a word in slurm.conf.
        let fits = |text: &str| {
            !text.is_empty()
                && text.len() <= 40
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        if !fits(&self.name) {
            return Err(ClusterError::Spec(format!(
                "node name '{}': letters, digits and '-' only",
                self.name
            )));
        }
        Ok(())
    }
}
