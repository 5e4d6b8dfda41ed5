//! gpuward on a throw-away cluster: real Slurm, gpuward's own prolog, epilog and plugin, one simulated machine a node.

use crate::cluster::{
    Cluster, ClusterBuilder, ClusterError, NodeSpec, built, make_device, plugins_with_nvml,
};
use crate::sim::{SimNode, forget_copies, gpuward_toml};
use nvidia_ml::scenario::Machine;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// What a stack is made of; the defaults are a healthy site in mode drain.
#[derive(Debug)]
pub struct StackBuilder {
    name: String,
    nodes: Vec<NodeSpec>,
    machines: Machines,
    nvml: bool,
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
            machines: Machines::default(),
            nvml: false,
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
        self.nodes.push(node_spec(name, scenario, &self.machines));
        self
    }

    /// A node whose GPUs Slurm detects by itself, through NVML, and is told nothing of but `gres`, its `Gres=` line in
    /// slurm.conf. The CPUs of the machine are to be those of this host, since Slurm takes them from there.
    pub fn detected_node(mut self, name: &str, machine: &Machine, gres: &str) -> StackBuilder {
        self.nodes.push(detected_spec(name, machine, gres, &self.machines));
        self.nvml = true;
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
        if self.nvml {
            builder = builder.conf_line(&format!("PluginDir={}", plugins_with_nvml()?));
        }
        for node in self.nodes {
            builder = builder.node(node);
        }
        let cluster = builder.start()?;
        let nodes =
            std::mem::take(&mut *self.machines.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
        let copies = Copies(cluster.path().to_owned());
        Ok(Stack { cluster, nodes, _copies: copies })
    }
}

/// The machines of the nodes that have been prepared.
type Machines = Arc<Mutex<Vec<(String, SimNode)>>>;

fn add(machines: &Machines, name: String, node: SimNode) {
    machines.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((name, node));
}

fn node_spec(name: &str, scenario: &str, machines: &Machines) -> NodeSpec {
    let (count, gpu_type) = if scenario == "hgx-h100" { (8, "h100") } else { (4, "l40s") };
    let (own_name, scenario, machines) = (name.to_owned(), scenario.to_owned(), Arc::clone(machines));
    NodeSpec::gpus(name, count).gpu_type(gpu_type).prepare(move |dir| {
        let node = SimNode::install(dir, &own_name, &scenario)?;
        add(&machines, own_name, node);
        Ok(())
    })
}

fn detected_spec(name: &str, machine: &Machine, gres: &str, machines: &Machines) -> NodeSpec {
    let minors: Vec<u32> = machine.gpus.iter().map(|gpu| gpu.minor).collect();
    let cpu = machine.cpu;
    let cpus = format!(
        "Sockets={} CoresPerSocket={} ThreadsPerCore={}",
        cpu.sockets, cpu.cores_per_socket, cpu.threads_per_core
    );
    let (own_name, machine, machines) = (name.to_owned(), machine.for_node(name), Arc::clone(machines));
    let spec = NodeSpec::gpus(name, 0).minors(&minors).cpus(cpu.count()).setting(&cpus);
    // The loader of every program that slurmd starts finds both names of the library there.
    let spec = spec.own_dev().env("LD_LIBRARY_PATH", "{node}/lib");
    let spec = spec.folder_over("{node}/root/proc/driver", "/proc/driver");
    spec.gres(gres).gres_lines(&["AutoDetect=nvml"]).prepare(move |dir| {
        let node = SimNode::install_machine(dir, machine)?;
        make_mig_devices(dir, &node.machine)?;
        add(&machines, own_name, node);
        Ok(())
    })
}

/// The files through which the driver lets a job reach a MIG device: one for its GPU instance, one for its compute
/// instance. Their numbers are in the driver's own table, which Slurm reads too.
fn make_mig_devices(dir: &Path, machine: &Machine) -> std::io::Result<()> {
    // The kernel gives this driver a free major number, from 511 downwards where the lower ones are taken.
    const NVIDIA_CAPS: u32 = 511;
    let on = machine.gpus.iter().filter(|gpu| gpu.mig.enabled);
    let names: Vec<String> = on
        .flat_map(|gpu| gpu.mig.devices.iter().map(|mig| (gpu.minor, mig.gpu_instance, mig.compute_instance)))
        .flat_map(|(minor, gi, ci)| {
            [format!("gpu{minor}/gi{gi}/access"), format!("gpu{minor}/gi{gi}/ci{ci}/access")]
        })
        .collect();
    if names.is_empty() {
        return Ok(());
    }
    let table = fs::read_to_string(dir.join("root/proc/driver/nvidia-caps/mig-minors"))?;
    let folder = dir.join("dev/nvidia-caps");
    fs::create_dir(&folder)?;
    for (name, minor) in table.lines().filter_map(|line| line.split_once(' ')) {
        if let (true, Ok(minor)) = (names.iter().any(|wanted| wanted == name), minor.parse()) {
            let made = make_device(&folder.join(format!("nvidia-cap{minor}")), NVIDIA_CAPS, minor);
            made.map_err(|error| std::io::Error::other(error.to_string()))?;
        }
    }
    Ok(())
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
