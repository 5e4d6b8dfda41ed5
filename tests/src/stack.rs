//! gpuward on a throw-away cluster: real Slurm, gpuward's own prolog, epilog and plugin, one simulated machine a node.

use crate::cluster::{Cluster, ClusterBuilder, ClusterError, NodeSpec, built};
use crate::sim::{SimNode, forget_copies, gpuward_toml};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// What a stack is made of; the defaults are a healthy site in mode drain.
#[derive(Debug)]
pub struct StackBuilder {
    name: String,
    nodes: Vec<(String, String)>,
    mode: String,
    settings: String,
    plugin: PathBuf,
    plugin_arguments: String,
    prolog: Option<String>,
    lines: Vec<String>,
    files: Vec<(String, String)>,
}

impl StackBuilder {
    /// A cluster called `name` without nodes.
    pub fn new(name: &str) -> StackBuilder {
        StackBuilder {
            name: name.to_owned(),
            nodes: Vec::new(),
            mode: "drain".to_owned(),
            settings: String::new(),
            plugin: built("libspank_gpuward.so").unwrap_or_else(|error| panic!("{error}")),
            plugin_arguments: String::new(),
            prolog: None,
            lines: Vec::new(),
            files: Vec::new(),
        }
    }

    /// A node that simulates the machine of a scenario.
    pub fn node(mut self, name: &str, scenario: &str) -> StackBuilder {
        self.nodes.push((name.to_owned(), scenario.to_owned()));
        self
    }

    /// The overall mode of the health checks.
    pub fn mode(mut self, mode: &str) -> StackBuilder {
        self.mode = mode.to_owned();
        self
    }

    /// More for gpuward.toml.
    pub fn settings(mut self, text: &str) -> StackBuilder {
        self.settings.push_str(text);
        self
    }

    /// Another build of the plugin, with arguments of its own.
    pub fn plugin(mut self, path: &Path, arguments: &str) -> StackBuilder {
        self.plugin = path.to_owned();
        self.plugin_arguments = arguments.to_owned();
        self
    }

    /// A script around gpuward's prolog, of which `{gpuward}` is the path.
    pub fn prolog_script(mut self, text: &str) -> StackBuilder {
        self.prolog = Some(text.to_owned());
        self
    }

    /// A line for slurm.conf.
    pub fn conf_line(mut self, line: &str) -> StackBuilder {
        self.lines.push(line.to_owned());
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// As for [`ClusterBuilder::start`].
    pub fn start(mut self) -> Result<Stack, ClusterError> {
        let machines: Arc<Mutex<Vec<(String, SimNode)>>> = Arc::default();
        let prolog = built("gpuward-prolog")?;
        let mut builder = ClusterBuilder::new(&self.name).epilog(built("gpuward-epilog")?);
        builder = match self.prolog.take() {
            None => builder.prolog(&prolog),
            Some(text) => {
                self.files
                    .push(("prolog.sh".into(), text.replace("{gpuward}", &prolog.display().to_string())));
                builder.prolog("{root}/etc/prolog.sh")
            }
        };
        let toml = gpuward_toml("{root}/nodes", &self.mode, &self.settings);
        self.files.push(("gpuward.toml".into(), toml));
        let plugin = self.plugin.display();
        builder = builder.plugstack(&format!(
            "optional {plugin} config={{root}}/etc/gpuward.toml {}",
            self.plugin_arguments
        ));
        for (name, text) in &self.files {
            builder = builder.file(name, text);
        }
        for line in &self.lines {
            builder = builder.conf_line(line);
        }
        for (name, scenario) in self.nodes {
            builder = builder.node(node_spec(&name, &scenario, &machines));
        }
        let cluster = builder.start()?;
        let nodes = std::mem::take(&mut *machines.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
        let copies = Copies(cluster.path().to_owned());
        Ok(Stack { cluster, nodes, _copies: copies })
    }
}

fn node_spec(name: &str, scenario: &str, machines: &Arc<Mutex<Vec<(String, SimNode)>>>) -> NodeSpec {
    let (count, gpu_type) = if scenario == "hgx-h100" { (8, "h100") } else { (4, "l40s") };
    let (own_name, scenario, machines) = (name.to_owned(), scenario.to_owned(), Arc::clone(machines));
    NodeSpec::gpus(name, count).gpu_type(gpu_type).prepare(move |dir| {
        let node = SimNode::install(dir, &own_name, &scenario)?;
        machines.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((own_name, node));
        Ok(())
    })
}

/// A running cluster with gpuward on it.
#[derive(Debug)]
pub struct Stack {
    /// The cluster.
    pub cluster: Cluster,
    nodes: Vec<(String, SimNode)>,
    _copies: Copies,
}

/// Takes the copies of the cluster's configuration away at its end.
#[derive(Debug)]
struct Copies(PathBuf);

impl Drop for Copies {
    fn drop(&mut self) {
        forget_copies(&self.0);
    }
}

impl Stack {
    /// The machine of a node.
    pub fn node(&self, name: &str) -> &SimNode {
        let found = self.nodes.iter().find(|(known, _)| known == name);
        found.map(|(_, node)| node).unwrap_or_else(|| panic!("no node {name}"))
    }
}
