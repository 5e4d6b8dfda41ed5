//! Simulated nodes: gpuward's own programs on a machine from a scenario.
//!
//! [`SimNode`] is the machine: fake library, sysfs and procfs trees, a kernel log. [`Bench`] is one such node without
//! Slurm around it, on which the prolog and the epilog are started with the environment that slurmd gives them; scontrol
//! is a script there that answers from a file and notes down what it was asked.

use crate::cluster::built;
use gpuward_core::account::JobRecord;
use gpuward_core::model::{JobState, SnapshotFile};
use nvidia_ml::scenario::Machine;
use nvidia_ml::{built_library, faults};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A gpuward.toml for nodes below `nodes`, in mode `mode`; `more` is added at its end.
pub fn gpuward_toml(nodes: &str, mode: &str, more: &str) -> String {
    format!(
        "[paths]\nrun = \"{nodes}/%n/run\"\nstate = \"{nodes}/%n/state\"\nspool = \"{nodes}/%n/spool\"\n\
         sysfs = \"{nodes}/%n/root/sys\"\nprocfs = \"{nodes}/%n/root/proc\"\nkmsg = \"{nodes}/%n/kmsg\"\n\n\
         [nvml]\nlibrary = \"{nodes}/%n/lib/libnvidia-ml.so.1\"\n\n\
         [health]\nmode = \"{mode}\"\n\n[environment]\nmode = \"set\"\n\n\
         [log]\nfile = \"{nodes}/%n/gpuward.log\"\nlevel = \"debug\"\n\n{more}"
    )
}

/// The scenario of this name in tests/scenarios.
pub fn scenario(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios").join(format!("{name}.toml"))
}

/// A machine from a scenario, installed in a folder.
#[derive(Debug)]
pub struct SimNode {
    /// Its folder.
    pub dir: PathBuf,
    /// The machine.
    pub machine: Machine,
}

impl SimNode {
    /// Installs the machine of `scenario` in `dir` as the node `name`, with UUIDs and a boot id of its own.
    pub fn install(dir: &Path, name: &str, scenario_name: &str) -> std::io::Result<SimNode> {
        let machine = Machine::load(&scenario(scenario_name)).map_err(failed)?;
        SimNode::install_machine(dir, machine.for_node(name))
    }

    /// Installs a machine in `dir` as it is.
    pub fn install_machine(dir: &Path, machine: Machine) -> std::io::Result<SimNode> {
        let node = SimNode { dir: dir.to_owned(), machine };
        node.machine.install(&built_library().map_err(failed)?, &node.lib()).map_err(failed)?;
        node.machine.render(&dir.join("root")).map_err(failed)?;
        fs::write(dir.join("kmsg"), "")?;
        Ok(node)
    }

    fn lib(&self) -> PathBuf {
        self.dir.join("lib")
    }

    /// From the next call on the library misbehaves as `script` says.
    pub fn fault(&self, script: &str) {
        faults::write(&self.lib(), script).unwrap_or_else(|error| panic!("fault script: {error}"));
    }

    /// Ends all faults of the library.
    pub fn heal(&self) {
        faults::clear(&self.lib()).unwrap_or_else(|error| panic!("fault script: {error}"));
    }

    /// The kernel says `message`.
    pub fn kernel_says(&self, message: &str) {
        let path = self.dir.join("kmsg");
        // The kernel counts from 0.
        let seq = fs::read_to_string(&path).unwrap_or_default().lines().count();
        let mut file = OpenOptions::new().append(true).open(&path).expect("the kernel log opens");
        let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
        let seconds: u64 = uptime.split('.').next().and_then(|text| text.parse().ok()).unwrap_or(1);
        writeln!(file, "3,{seq},{},-;{message}", seconds * 1_000_000).expect("the kernel log is written");
    }

    /// The PCI address of a GPU.
    pub fn pci(&self, slot: u32) -> String {
        self.gpu(slot).pci.to_string()
    }

    /// The UUID of a GPU.
    pub fn uuid(&self, slot: u32) -> String {
        self.gpu(slot).uuid.clone()
    }

    /// The number of a GPU's device file.
    pub fn minor(&self, slot: u32) -> u32 {
        self.gpu(slot).minor
    }

    fn gpu(&self, slot: u32) -> &nvidia_ml::scenario::Gpu {
        self.machine.gpu(slot).unwrap_or_else(|| panic!("no GPU in slot {slot}"))
    }

    /// All job state files.
    pub fn states(&self) -> Vec<JobState> {
        read_all(&self.dir.join("run/jobs"))
    }

    /// All records.
    pub fn records(&self) -> Vec<JobRecord> {
        read_all(&self.dir.join("spool/records"))
    }

    /// The programs' log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.join("gpuward.log")).unwrap_or_default()
    }
}

fn failed(error: nvidia_ml::scenario::ScenarioError) -> std::io::Error {
    std::io::Error::other(error.to_string())
}

fn read_all<T: serde::de::DeserializeOwned>(folder: &Path) -> Vec<T> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
    paths.sort();
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}\n{text}", path.display()))
    };
    paths.iter().map(read).collect()
}

/// What a program came to.
#[derive(Debug)]
pub struct Run {
    /// Exit code; `None` where a signal ended it.
    pub code: Option<i32>,
    /// What it said on standard error: slurmd logs it.
    pub stderr: String,
    /// How long it took.
    pub took: Duration,
}

/// One node without Slurm around it.
#[derive(Debug)]
pub struct Bench {
    /// The node.
    pub node: SimNode,
    root: TempDir,
    gpus: u32,
}

/// The name of the one node of a [`Bench`].
pub const NODE: &str = "n1";

impl Bench {
    /// A node from `scenario`, with gpuward in mode `mode` and `more` in its configuration.
    ///
    /// It lies in memory where the host allows it, as /run and /sys do on a real node.
    pub fn new(scenario_name: &str, mode: &str, more: &str) -> Bench {
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { memory } else { Path::new("/tmp") };
        let root =
            tempfile::Builder::new().prefix("gpuward-node-").tempdir_in(folder).expect("a folder is made");
        let dir = root.path().join("nodes").join(NODE);
        fs::create_dir_all(&dir).expect("the node's folder is made");
        let node = SimNode::install(&dir, NODE, scenario_name).unwrap_or_else(|error| panic!("{error}"));
        let gpus = u32::try_from(node.machine.gpus.len()).expect("a handful of GPUs");
        let bench = Bench { node, root, gpus };
        bench.write_config(mode, more);
        bench.write("etc/gres.conf", &format!("Name=gpu File=/dev/nvidia[0-{}]\n", gpus - 1));
        bench.write("etc/slurm.conf", "");
        bench.write("bin/scontrol", SCONTROL);
        fs::set_permissions(bench.path("bin/scontrol"), fs::Permissions::from_mode(0o755))
            .expect("mode is set");
        bench.set_node_state("IDLE", None);
        bench
    }

    /// Another machine in place of this one, from the next call on.
    pub fn change_machine(&mut self, change: impl FnOnce(&mut Machine)) {
        let mut machine = self.node.machine.clone();
        change(&mut machine);
        let dir = self.node.dir.clone();
        fs::remove_dir_all(dir.join("root")).expect("the old trees go");
        self.node = SimNode::install_machine(&dir, machine).unwrap_or_else(|error| panic!("{error}"));
    }

    /// A path below the bench's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Writes a file below the bench's folder.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("the folder is made");
        fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    /// Another configuration.
    pub fn write_config(&self, mode: &str, more: &str) {
        let nodes = self.path("nodes").display().to_string();
        let bin =
            format!("[slurm]\nbin = \"{}\"\nscontrol_deadline_ms = 1000\n\n", self.path("bin").display());
        self.write("etc/gpuward.toml", &gpuward_toml(&nodes, mode, &(bin + more)));
    }

    /// What scontrol says about the node from now on.
    pub fn set_node_state(&self, state: &str, reason: Option<&str>) {
        let reason =
            reason.map_or_else(String::new, |reason| format!(" Reason={reason} [admin@2026-12-01T00:00:00]"));
        self.write(
            "bin/node",
            &format!("NodeName={NODE} Arch=x86_64 State={state} ThreadsPerCore=1{reason}\n"),
        );
    }

    /// slurmctld does not answer from now on.
    pub fn silence_slurmctld(&self) {
        self.write("bin/scontrol", "#!/bin/sh\nexec sleep 60\n");
    }

    /// What scontrol was asked, one call a line.
    pub fn scontrol_calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("bin/calls")).unwrap_or_default();
        text.lines().map(ToOwned::to_owned).collect()
    }

    /// The command of a program as slurmd starts it for job `job` with the GRES indices `gpus`.
    pub fn command(&self, program: &str, job: u32, gpus: &str) -> Command {
        let mut command = Command::new(built(program).unwrap_or_else(|error| panic!("{error}")));
        command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.env("SLURMD_NODENAME", NODE).env("SLURM_CLUSTER_NAME", "bench");
        command.env("SLURM_CONF", self.path("etc/slurm.conf"));
        command
            .env("SLURM_JOB_ID", job.to_string())
            .env("SLURM_JOB_UID", "1000")
            .env("SLURM_JOB_USER", "alice");
        command.env("SLURM_JOB_RESTART_COUNT", "0");
        if !gpus.is_empty() {
            command.env("SLURM_JOB_GPUS", gpus).env("CUDA_VISIBLE_DEVICES", gpus);
        }
        command
    }

    /// Runs the prolog.
    pub fn prolog(&self, job: u32, gpus: &str) -> Run {
        run(&mut self.command("gpuward-prolog", job, gpus))
    }

    /// Runs the epilog.
    pub fn epilog(&self, job: u32, gpus: &str) -> Run {
        let mut command = self.command("gpuward-epilog", job, gpus);
        run(command.env("SLURM_JOB_EXIT_CODE2", "0:0"))
    }

    /// The admin's command on this node.
    pub fn admin(&self, verb: &str) -> Command {
        let mut command = Command::new(built("gpuward").unwrap_or_else(|error| panic!("{error}")));
        command.env_clear().stdin(Stdio::null()).args([verb, "--node", NODE]);
        command.arg("--config").arg(self.path("etc/gpuward.toml"));
        command.arg("--slurm-conf").arg(self.path("etc/slurm.conf"));
        command
    }

    /// What `gpuward snapshot` reads on this node.
    pub fn snapshot(&self) -> SnapshotFile {
        let output = self.admin("snapshot").output().expect("gpuward starts");
        let text = String::from_utf8_lossy(&output.stdout);
        let said = String::from_utf8_lossy(&output.stderr);
        SnapshotFile::parse(&text).unwrap_or_else(|error| panic!("{error}\n{said}\n{text}"))
    }

    /// All GPUs, as Slurm lists them.
    pub fn all_gpus(&self) -> String {
        (0..self.gpus).map(|index| index.to_string()).collect::<Vec<_>>().join(",")
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        forget_copies(self.root.path());
    }
}

/// Removes the copies of valid configuration files that gpuward keeps for files below `folder`.
pub fn forget_copies(folder: &Path) {
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for entry in fs::read_dir("/var/lib/gpuward/valid").into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().contains(&name) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Removes what a job left in the default folders: a configuration that cannot be used means those.
pub fn forget_default_state(job: u32) {
    for entry in fs::read_dir("/run/gpuward/jobs").into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&format!("{job}.")) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// A freezer of cgroup version 1: what is in it does not die of SIGKILL. Gone with everything in it at the end.
#[derive(Debug)]
pub struct Freezer(PathBuf);

/// A thawed process that was killed is gone at once; only a failure takes this long.
const THAW: Duration = Duration::from_secs(10);

impl Freezer {
    /// A new one, called after `name`.
    pub fn new(name: &str) -> Freezer {
        let path = PathBuf::from(format!("/sys/fs/cgroup/freezer/gpuward-{name}-{}", std::process::id()));
        fs::create_dir(&path).expect("this needs root and the freezer of cgroup version 1");
        Freezer(path)
    }

    /// Its folder, as fault scripts name it.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The processes in it.
    pub fn members(&self) -> Vec<String> {
        let text = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        text.lines().map(ToOwned::to_owned).collect()
    }

    /// Lets go what is in it, and waits until nothing is.
    pub fn thaw(&self) {
        fs::write(self.0.join("freezer.state"), "THAWED").expect("the freezer thaws");
        let start = Instant::now();
        while !self.members().is_empty() {
            assert!(start.elapsed() < THAW, "the freezer is not empty");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("freezer.state"), "THAWED");
        let start = Instant::now();
        while fs::remove_dir(&self.0).is_err() && start.elapsed() < THAW {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Runs a prepared command to its end and to the end of its standard error, as slurmd does.
pub fn run(command: &mut Command) -> Run {
    let start = Instant::now();
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    Run { code: output.status.code(), stderr, took: start.elapsed() }
}

/// Answers from the file `node` beside it, notes its arguments down in `calls`.
const SCONTROL: &str = "#!/bin/sh\n\
    dir=${0%/*}\n\
    echo \"$*\" >> \"$dir/calls\"\n\
    [ \"$1\" = update ] || /bin/cat \"$dir/node\"\n";
