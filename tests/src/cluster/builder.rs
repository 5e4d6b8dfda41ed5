//! From a wish to a running cluster.

use super::abandoned::{self, PARENT, PREFIX};
use super::conf::{self, CGROUP_CONF, Plan};
use super::error::at;
use super::ports::Ports;
use super::process::{Daemon, POLL, tail};
use super::{Cluster, ClusterError, Containment, Node, NodeSpec, SHORT, command, programs};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long all nodes may take to be idle. The usual time is below 2 s; a busy host needs more.
const START: Duration = Duration::from_secs(40);

/// Describes a cluster and starts it.
#[derive(Debug)]
pub struct ClusterBuilder {
    name: String,
    nodes: Vec<NodeSpec>,
    prolog: String,
    epilog: String,
    plugstack: Vec<String>,
    settings: Vec<String>,
    lines: Vec<String>,
    files: Vec<(String, String)>,
    cgroups: bool,
}

impl ClusterBuilder {
    /// A cluster of this name without nodes, prolog, epilog and SPANK plugins.
    pub fn new(name: &str) -> ClusterBuilder {
        ClusterBuilder {
            name: name.to_owned(),
            nodes: Vec::new(),
            prolog: "/bin/true".to_owned(),
            epilog: "/bin/true".to_owned(),
            plugstack: Vec::new(),
            settings: Vec::new(),
            lines: Vec::new(),
            files: Vec::new(),
            cgroups: true,
        }
    }

    /// Adds a node.
    pub fn node(mut self, node: NodeSpec) -> ClusterBuilder {
        self.nodes.push(node);
        self
    }

    /// The Prolog of all nodes; `{root}` in the path becomes the cluster's folder.
    pub fn prolog(mut self, path: impl AsRef<Path>) -> ClusterBuilder {
        self.prolog = path.as_ref().display().to_string();
        self
    }

    /// The Epilog of all nodes; `{root}` as above.
    pub fn epilog(mut self, path: impl AsRef<Path>) -> ClusterBuilder {
        self.epilog = path.as_ref().display().to_string();
        self
    }

    /// A line for plugstack.conf; `{root}` as above.
    pub fn plugstack(mut self, line: &str) -> ClusterBuilder {
        self.plugstack.push(line.to_owned());
        self
    }

    /// Another value for a setting of `gpuward gen slurm.conf`: `KEY=VALUE`, or `KEY+=VALUE` to append to a list.
    pub fn set(mut self, change: &str) -> ClusterBuilder {
        self.settings.push(change.to_owned());
        self
    }

    /// A line for slurm.conf, of a setting that is not there yet; `{root}` as above.
    pub fn conf_line(mut self, line: &str) -> ClusterBuilder {
        self.lines.push(line.to_owned());
        self
    }

    /// A further file beside slurm.conf, for example `gpuward.toml`; `{root}` as above. A script can be executed.
    pub fn file(mut self, name: &str, text: &str) -> ClusterBuilder {
        self.files.push((name.to_owned(), text.to_owned()));
        self
    }

    /// Runs as on a host that gives us no cgroups.
    pub fn without_cgroups(mut self) -> ClusterBuilder {
        self.cgroups = false;
        self
    }

    /// Starts the cluster and waits until all nodes are idle.
    ///
    /// # Errors
    /// A program is missing, the description makes no sense, or a daemon does not start: then with the tails of the
    /// logs. Whatever was started has ended when this returns.
    pub fn start(self) -> Result<Cluster, ClusterError> {
        let begin = Instant::now();
        self.check()?;
        let mut cluster = self.prepare()?;
        let mut ports = Ports::find(self.nodes.len() + 1)?;
        self.write_files(&cluster, &ports.numbers)?;
        let names: Vec<String> = self.nodes.iter().map(|node| node.name.clone()).collect();
        for node in self.nodes {
            make_node(&cluster, node)?;
        }
        start_munged(&mut cluster)?;
        ports.release();
        start_slurm(&mut cluster, &names)?;
        cluster.start_time = begin.elapsed();
        Ok(cluster)
    }

    fn check(&self) -> Result<(), ClusterError> {
        programs::check_installed()?;
        let name_fits = !self.name.is_empty()
            && self.name.len() <= 20
            && self.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        if !name_fits {
            let name = &self.name;
            return Err(ClusterError::Spec(format!(
                "cluster name '{name}': at most 20 lower-case letters and digits"
            )));
        }
        if self.nodes.is_empty() {
            return Err(ClusterError::Spec(format!("cluster {}: no nodes", self.name)));
        }
        self.nodes.iter().try_for_each(NodeSpec::check)
    }

    /// The folders, and a cluster without daemons: from here on dropping it cleans up.
    fn prepare(&self) -> Result<Cluster, ClusterError> {
        abandoned::clear();
        let prefix = format!("{PREFIX}{}-", self.name);
        let root = tempfile::Builder::new().prefix(&prefix).tempdir_in(PARENT).map_err(at(PARENT))?;
        let path = root.path().to_owned();
        abandoned::own(&path)?;
        set_mode(&path, 0o755)?;
        for folder in ["etc", "log", "munge", "nodes", "out", "state"] {
            make_folder(&path.join(folder))?;
        }
        // Jobs of any user write their output there.
        set_mode(&path.join("out"), 0o1777)?;
        for (name, text) in
            [("in-node.sh", include_str!("in-node.sh")), ("own-dev.sh", include_str!("own-dev.sh"))]
        {
            let script = path.join("etc").join(name);
            fs::write(&script, text).map_err(at(&script))?;
        }
        let nodes = self.nodes.iter().map(|node| running_node(&path, node));
        let mut cluster = Cluster {
            containment: Containment::Cgroups,
            start_time: Duration::ZERO,
            nodes: nodes.collect(),
            munged: None,
            slurmctld: None,
            root: Some(root),
            path,
        };
        cluster.containment = match self.cgroups {
            true => containment(&cluster),
            false => Containment::Processes("not wanted".to_owned()),
        };
        Ok(cluster)
    }

    fn write_files(&self, cluster: &Cluster, ports: &[u16]) -> Result<(), ClusterError> {
        let host =
            fs::read_to_string("/proc/sys/kernel/hostname").map_err(at("/proc/sys/kernel/hostname"))?;
        // Slurm compares with the name up to the first dot.
        let host = host.trim().split('.').next().unwrap_or_default();
        let plan = Plan {
            cluster: &self.name,
            root: &cluster.path,
            host,
            nodes: &self.nodes,
            ports,
            lines: &self.lines,
        };
        let text = conf::slurm_conf(&plan, &self.generated(cluster)?)?;
        let etc = cluster.path.join("etc");
        let own_dev = |name: &str| self.nodes.iter().any(|node| node.name == name && node.own_dev);
        let dev_of = |name: &str| match own_dev(name) {
            true => "/dev".to_owned(),
            false => cluster.node_dir(name).join("dev").display().to_string(),
        };
        let mut files = vec![
            ("slurm.conf".to_owned(), text),
            ("gres.conf".to_owned(), conf::gres_conf(&self.nodes, dev_of)),
            ("cgroup.conf".to_owned(), CGROUP_CONF.to_owned()),
            ("plugstack.conf".to_owned(), self.plugstack.join("\n") + "\n"),
        ];
        files.extend(self.files.iter().cloned());
        for (name, text) in files {
            let path = etc.join(name);
            fs::write(&path, in_root(&text, cluster)).map_err(at(&path))?;
            set_mode(&path, if text.starts_with("#!") { 0o755 } else { 0o644 })?;
        }
        Ok(())
    }

    /// What a site would put into its slurm.conf, from the program that tells it.
    fn generated(&self, cluster: &Cluster) -> Result<String, ClusterError> {
        let mut generate = Command::new(programs::built("gpuward")?);
        generate.args(["gen", "slurm.conf", "--prolog", &in_root(&self.prolog, cluster)]);
        generate.args(["--epilog", &in_root(&self.epilog, cluster)]);
        generate.arg("--plugstack").arg(cluster.path.join("etc/plugstack.conf"));
        for change in conf::changes(&cluster.containment).iter().chain(&self.settings) {
            generate.arg("--set").arg(change);
        }
        command::run_ok(&mut generate, "", SHORT)
    }
}

/// What of a node's description is needed as long as it runs.
fn running_node(root: &Path, spec: &NodeSpec) -> Node {
    let folder = root.join("nodes").join(&spec.name).display().to_string();
    let in_node = |text: &str| text.replace("{node}", &folder);
    Node {
        name: spec.name.clone(),
        env: spec.env.iter().map(|(name, value)| (name.clone(), in_node(value))).collect(),
        own_dev: spec.own_dev,
        folders: spec.folders.iter().map(|(folder, target)| (in_node(folder), target.clone())).collect(),
        slurmd: None,
    }
}

fn in_root(text: &str, cluster: &Cluster) -> String {
    text.replace("{root}", &cluster.path.display().to_string())
}

/// Whether this host lets us make cgroups for a node: tried, not guessed.
fn containment(cluster: &Cluster) -> Containment {
    let probe = abandoned::cgroup(&cluster.path, "probe");
    let script = cluster.path.join("etc/in-node.sh");
    let try_it =
        |arguments: &[&str]| command::run_ok(cluster.command("sh").arg(&script).args(arguments), "", SHORT);
    let tried = try_it(&[&probe, "true"]).and_then(|_| try_it(&["--remove", &probe]));
    tried.map_or_else(|error| Containment::Processes(error.to_string()), |_| Containment::Cgroups)
}

fn make_node(cluster: &Cluster, mut spec: NodeSpec) -> Result<(), ClusterError> {
    let folder = cluster.node_dir(&spec.name);
    make_folder(&folder)?;
    make_folder(&folder.join("dev"))?;
    make_folder(&folder.join("spool"))?;
    // NVIDIA's major number; the device cgroup of a job is set up by major and minor.
    const NVIDIA: u32 = 195;
    let gpus = spec.minors.iter().map(|minor| (format!("nvidia{minor}"), *minor));
    // The control device's minor is always 255.
    let control = spec.own_dev.then(|| ("nvidiactl".to_owned(), 255));
    for (name, minor) in gpus.chain(control) {
        make_device(&folder.join("dev").join(name), NVIDIA, minor)?;
    }
    match spec.prepare.take() {
        Some(prepare) => prepare(&folder).map_err(at(&folder)),
        None => Ok(()),
    }
}

/// Makes a character device that everybody may open, as a driver's are.
///
/// # Errors
/// mknod fails.
pub fn make_device(path: &Path, major: u32, minor: u32) -> Result<(), ClusterError> {
    let mut mknod = Command::new("mknod");
    mknod.arg("--mode=666").arg(path).args(["c", &major.to_string(), &minor.to_string()]);
    command::run_ok(&mut mknod, "", SHORT).map(|_| ())
}

fn start_munged(cluster: &mut Cluster) -> Result<(), ClusterError> {
    let folder = cluster.path.join("munge");
    let key = folder.join("key");
    let mut random = fs::File::open("/dev/urandom").map_err(at("/dev/urandom"))?;
    let mut bytes = [0_u8; 64];
    std::io::Read::read_exact(&mut random, &mut bytes).map_err(at("/dev/urandom"))?;
    fs::write(&key, bytes).map_err(at(&key))?;
    set_mode(&key, 0o600)?;
    let option = |name: &str, file: &str| format!("--{name}={}", folder.join(file).display());
    let mut command = cluster.command("setsid");
    command.args(["munged", "--foreground"]);
    // The folder lies below /tmp, which all may write to; munged would refuse it without --force.
    command.arg("--force").args([
        option("socket", "socket"),
        option("key-file", "key"),
        option("pid-file", "pid"),
    ]);
    command.args([option("log-file", "../log/munged.log"), option("seed-file", "seed")]);
    let daemon = Daemon::start("munged", command, cluster.path.join("log/munged.out"))?;
    cluster.munged = Some(daemon);
    let socket = folder.join("socket");
    wait_for(cluster, "munged's socket", |_| socket.exists())
}

fn start_slurm(cluster: &mut Cluster, nodes: &[String]) -> Result<(), ClusterError> {
    let mut command = cluster.command("setsid");
    // -c: there is no earlier state.
    command.args(["slurmctld", "-D", "-c"]);
    cluster.slurmctld = Some(Daemon::start("slurmctld", command, cluster.path.join("log/slurmctld.out"))?);
    for node in nodes {
        cluster.start_slurmd(node)?;
    }
    let mut seen = String::new();
    let waited = wait_for(cluster, "all nodes idle", |cluster| {
        let mut sinfo = cluster.command("sinfo");
        // Without slurmctld sinfo tries for long: whether that has ended is to be seen soon.
        let limit = Duration::from_secs(2);
        seen = command::run_ok(sinfo.args(["-h", "-N", "-o", "%N=%T"]), "", limit).unwrap_or_default();
        seen.lines().count() == nodes.len() && seen.lines().all(|line| line.ends_with("=idle"))
    });
    waited.map_err(|error| match error {
        ClusterError::Start { what, logs } => {
            ClusterError::Start { what: format!("{what}; nodes: {}", seen.trim().replace('\n', " ")), logs }
        }
        other => other,
    })
}

/// Polls until `ready`; an end of any daemon or the deadline is an error with the tails of all logs.
fn wait_for(
    cluster: &mut Cluster,
    what: &str,
    mut ready: impl FnMut(&Cluster) -> bool,
) -> Result<(), ClusterError> {
    let deadline = Instant::now() + START;
    loop {
        if ready(cluster) {
            return Ok(());
        }
        let ended = cluster.daemons().find_map(|daemon| {
            let how = daemon.ended()?;
            Some(format!("{} ended: {how}", daemon.name))
        });
        if let Some(ended) = ended {
            return Err(start_error(cluster, ended));
        }
        if Instant::now() > deadline {
            return Err(start_error(cluster, format!("{what}: not within {START:?}")));
        }
        std::thread::sleep(POLL);
    }
}

fn start_error(cluster: &mut Cluster, what: String) -> ClusterError {
    let what = format!("the cluster did not start: {what}");
    let tails = cluster.daemons().map(|daemon| format!("--- {}\n{}", daemon.name, tail(&daemon.output, 15)));
    ClusterError::Start { what, logs: tails.collect::<Vec<_>>().join("\n") }
}

fn make_folder(path: &Path) -> Result<(), ClusterError> {
    fs::create_dir_all(path).map_err(at(path))?;
    set_mode(path, 0o755)
}

fn set_mode(path: &Path, mode: u32) -> Result<(), ClusterError> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(at(path))
}
