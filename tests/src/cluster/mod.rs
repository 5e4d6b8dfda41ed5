//! A throw-away cluster of real Slurm: munged, slurmctld and a slurmd for each simulated machine, on this host.
//!
//! Everything lives in one temporary folder with its own munge key, ports and names, so several clusters run at once.
//! [`Cluster`] ends exactly what it started when it is dropped, in a panic too. It needs root and Debian's packages
//! munge, slurmctld, slurmd, slurm-client and slurm-wlm-basic-plugins; no file of theirs is touched.

mod abandoned;
mod builder;
mod command;
mod conf;
mod error;
mod info;
mod ports;
mod process;
mod programs;
mod spec;

pub use builder::{ClusterBuilder, make_device};
pub use command::{Output, run};
pub use error::ClusterError;
pub use info::Info;
pub use programs::{built, plugins_with_nvml};
pub use spec::NodeSpec;

use error::at;
use gpuward_core::model::JobId;
use process::{Daemon, POLL};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// For commands that only ask or tell slurmctld something.
const SHORT: Duration = Duration::from_secs(15);
/// For srun, which waits for its job.
const LONG: Duration = Duration::from_secs(60);
/// For a slurmd that is to start again, and for killed processes to be gone.
const END: Duration = Duration::from_secs(5);
/// For daemons of a cluster that ends. A slurmd without slurmctld would go on for many seconds; nothing it could still
/// save is needed.
const GRACE: Duration = Duration::from_secs(1);

/// What keeps jobs within their limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Containment {
    /// proctrack/cgroup and task/affinity,task/cgroup with ConstrainDevices=yes: each node has cgroups of its own.
    Cgroups,
    /// proctrack/linuxproc and task/affinity, with the reason why there are no cgroups.
    Processes(String),
}

/// A running cluster; it ends when this is dropped.
#[derive(Debug)]
pub struct Cluster {
    /// Whether jobs are held by cgroups here, and if not, why.
    pub containment: Containment,
    /// How long the start took.
    pub start_time: Duration,
    nodes: Vec<Node>,
    munged: Option<Daemon>,
    slurmctld: Option<Daemon>,
    root: Option<TempDir>,
    path: PathBuf,
}

#[derive(Debug)]
struct Node {
    name: String,
    env: Vec<(String, String)>,
    own_dev: bool,
    /// What lies over which folder of the host, for its processes.
    folders: Vec<(String, String)>,
    slurmd: Option<Daemon>,
}

impl Cluster {
    /// The cluster's folder: etc, log, munge, nodes, out, state.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The slurm.conf for SLURM_CONF.
    pub fn slurm_conf(&self) -> PathBuf {
        self.path.join("etc/slurm.conf")
    }

    /// A node's own folder; its device files are in `dev`.
    pub fn node_dir(&self, name: &str) -> PathBuf {
        self.path.join("nodes").join(name)
    }

    /// One of Slurm's commands, ready to run against this cluster and nothing else.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", programs::SEARCH_PATH).env("HOME", "/").env("LC_ALL", "C");
        command.env("SLURM_CONF", self.slurm_conf()).current_dir(self.path.join("out"));
        command
    }

    /// Runs a job with srun and waits for it.
    ///
    /// # Errors
    /// srun cannot be started or does not end within a minute; its exit code is part of the answer.
    pub fn srun(&self, arguments: &[&str]) -> Result<Output, ClusterError> {
        run(self.command("srun").args(arguments), "", LONG)
    }

    /// Submits a batch job; without a `#!` line the script is one for sh. Its output goes to [`Cluster::job_output`].
    ///
    /// # Errors
    /// sbatch refuses.
    pub fn sbatch(&self, arguments: &[&str], script: &str) -> Result<JobId, ClusterError> {
        let script =
            if script.starts_with("#!") { script.to_owned() } else { format!("#!/bin/sh\n{script}\n") };
        let mut sbatch = self.command("sbatch");
        let output = command::run_ok(sbatch.arg("--parsable").args(arguments), &script, SHORT)?;
        let id = output.trim().split(';').next().unwrap_or_default().parse();
        id.map(JobId).map_err(|_| ClusterError::Spec(format!("sbatch printed no job id but '{output}'")))
    }

    /// Runs scontrol and returns what it prints.
    ///
    /// # Errors
    /// It fails.
    pub fn scontrol(&self, arguments: &[&str]) -> Result<String, ClusterError> {
        command::run_ok(self.command("scontrol").args(arguments), "", SHORT)
    }

    /// What slurmctld knows of a job.
    ///
    /// # Errors
    /// There is no such job.
    pub fn job(&self, id: JobId) -> Result<Info, ClusterError> {
        self.scontrol(&["-o", "show", "job", &id.to_string()]).map(|text| first(&text))
    }

    /// A job's state, for example `RUNNING`.
    ///
    /// # Errors
    /// There is no such job.
    pub fn job_state(&self, id: JobId) -> Result<String, ClusterError> {
        self.job(id).map(|job| job.state().to_owned())
    }

    /// Waits until a job is as wanted.
    ///
    /// # Errors
    /// There is no such job, or it did not come to that in time.
    pub fn wait_job(
        &self,
        id: JobId,
        wanted: impl Fn(&Info) -> bool,
        limit: Duration,
    ) -> Result<Info, ClusterError> {
        wait(&format!("job {id}"), || self.job(id), wanted, limit)
    }

    /// Waits until a job has ended, however it did: with its epilogs, so that what they leave is there.
    ///
    /// # Errors
    /// As for [`Cluster::wait_job`].
    pub fn wait_job_end(&self, id: JobId, limit: Duration) -> Result<Info, ClusterError> {
        let running = ["PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUED"];
        self.wait_job(id, |job| !running.contains(&job.state()), limit)
    }

    /// What a batch job has written so far.
    pub fn job_output(&self, id: JobId) -> String {
        fs::read_to_string(self.path.join(format!("out/slurm-{id}.out"))).unwrap_or_default()
    }

    /// What slurmctld knows of a node.
    ///
    /// # Errors
    /// There is no such node.
    pub fn node(&self, name: &str) -> Result<Info, ClusterError> {
        self.scontrol(&["-o", "show", "node", name]).map(|text| first(&text))
    }

    /// Waits until a node is as wanted.
    ///
    /// # Errors
    /// There is no such node, or it did not come to that in time.
    pub fn wait_node(
        &self,
        name: &str,
        wanted: impl Fn(&Info) -> bool,
        limit: Duration,
    ) -> Result<Info, ClusterError> {
        wait(&format!("node {name}"), || self.node(name), wanted, limit)
    }

    /// The last lines of a log: `munged`, `slurmctld` or `slurmd n1`.
    pub fn log_tail(&self, daemon: &str) -> String {
        process::tail(&self.log_path(daemon), 40)
    }

    /// A daemon's log file.
    pub fn log_path(&self, daemon: &str) -> PathBuf {
        self.path.join(format!("log/{}.log", daemon.replace(' ', ".")))
    }

    /// Ends a node's slurmd, if it runs; its jobs go on. Slurm notices at its next contact.
    ///
    /// # Errors
    /// There is no such node.
    pub fn stop_slurmd(&mut self, name: &str) -> Result<(), ClusterError> {
        if let Some(mut slurmd) = self.node_mut(name)?.slurmd.take() {
            slurmd.terminate();
            slurmd.finish(Instant::now() + END);
        }
        Ok(())
    }

    /// Starts a node's slurmd.
    ///
    /// # Errors
    /// There is no such node, or it runs already.
    pub fn start_slurmd(&mut self, name: &str) -> Result<(), ClusterError> {
        let mut command = self.node_command(name, "slurmd");
        command.args(["-D", "-N", name]);
        let output = self.path.join(format!("log/slurmd.{name}.out"));
        let node = self.node_mut(name)?;
        if node.slurmd.as_mut().is_some_and(|slurmd| slurmd.ended().is_none()) {
            return Err(ClusterError::Spec(format!("slurmd of {name} runs already")));
        }
        command.envs(node.env.iter().map(|(key, value)| (key, value)));
        node.slurmd = Some(Daemon::start(&format!("slurmd {name}"), command, output)?);
        Ok(())
    }

    /// Ends a node's slurmd and starts it again, with the configuration files as they are now.
    ///
    /// # Errors
    /// As for [`Cluster::start_slurmd`].
    pub fn restart_slurmd(&mut self, name: &str) -> Result<(), ClusterError> {
        self.stop_slurmd(name)?;
        self.start_slurmd(name)
    }

    /// A program that sees what the node's slurmd sees, for example its cgroups and its /dev.
    pub fn node_command(&self, name: &str, program: &str) -> Command {
        // A session of its own: nobody's ^C, terminal or process group reaches it.
        let mut command = self.command("setsid");
        if let Some(node) = self.nodes.iter().find(|node| node.name == name && node.own_dev) {
            command.arg("sh").arg(self.path.join("etc/own-dev.sh")).arg(self.node_dir(name));
            for (folder, target) in &node.folders {
                command.args([folder, target]);
            }
            command.arg("--");
        }
        if self.containment == Containment::Cgroups {
            command.arg("sh").arg(self.path.join("etc/in-node.sh")).arg(abandoned::cgroup(&self.path, name));
        }
        command.arg(program);
        command
    }

    /// Leaves the cluster up when this value goes, and tells how to use and to end it.
    ///
    /// # Errors
    /// The script that ends it cannot be written; the cluster ends at once then.
    pub fn keep(mut self) -> Result<String, ClusterError> {
        let stop = self.path.join("stop");
        fs::write(&stop, self.stop_script()).map_err(at(&stop))?;
        abandoned::disown(&self.path)?;
        // From here on nothing is ended or removed by us.
        if let Some(root) = self.root.take() {
            let _ = root.keep();
        }
        let conf = self.slurm_conf();
        Ok(format!("use it: export SLURM_CONF={}\nend it: sh {}", conf.display(), stop.display()))
    }

    fn stop_script(&mut self) -> String {
        let marks = abandoned::marks(&self.path);
        let daemons: Vec<u32> = self.daemons().map(|daemon| daemon.pid()).collect();
        let processes =
            daemons.into_iter().filter_map(process::Process::read).map(|process| process.identity());
        include_str!("stop.sh")
            .replace("@PROCESSES@", &processes.collect::<Vec<_>>().join(" "))
            .replace("@CGROUPS@", &marks.cgroups.join(" "))
            .replace("@FOLDER@", &self.path.display().to_string())
    }

    fn node_mut(&mut self, name: &str) -> Result<&mut Node, ClusterError> {
        let node = self.nodes.iter_mut().find(|node| node.name == name);
        node.ok_or_else(|| ClusterError::Spec(format!("no node '{name}' in this cluster")))
    }

    /// All daemons that were started.
    fn daemons(&mut self) -> impl Iterator<Item = &mut Daemon> {
        let slurmds = self.nodes.iter_mut().filter_map(|node| node.slurmd.as_mut());
        self.munged.iter_mut().chain(self.slurmctld.iter_mut()).chain(slurmds)
    }

    /// Ends everything; says what could not be ended.
    fn end(&mut self) -> Vec<String> {
        // Slurm's daemons need munge to the end: without it they retry for seconds.
        end_daemons(self.daemons().skip(1).collect());
        end_daemons(self.daemons().collect());
        let left = abandoned::marks(&self.path).sweep(Instant::now() + END);
        if self.containment == Containment::Cgroups {
            abandoned::remove_cgroups(&self.path);
        }
        left
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.root.is_none() {
            return;
        }
        let left = self.end();
        if !left.is_empty() {
            eprintln!(
                "cluster {}: these processes could not be ended: {}",
                self.path.display(),
                left.join(", ")
            );
        }
    }
}

fn end_daemons(mut daemons: Vec<&mut Daemon>) {
    let deadline = Instant::now() + GRACE;
    for daemon in &mut daemons {
        daemon.terminate();
    }
    for daemon in &mut daemons {
        daemon.finish(deadline);
    }
}

fn first(text: &str) -> Info {
    Info::parse(text.lines().next().unwrap_or_default())
}

/// Looks again and again until the answer is as wanted.
fn wait(
    what: &str,
    ask: impl Fn() -> Result<Info, ClusterError>,
    wanted: impl Fn(&Info) -> bool,
    limit: Duration,
) -> Result<Info, ClusterError> {
    let deadline = Instant::now() + limit;
    loop {
        let info = ask()?;
        if wanted(&info) {
            return Ok(info);
        }
        if Instant::now() > deadline {
            let last = format!("state={} reason={}", info.state(), info.get("Reason"));
            return Err(ClusterError::Deadline { what: what.to_owned(), limit, last });
        }
        std::thread::sleep(POLL);
    }
}
