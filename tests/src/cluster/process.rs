//! The processes of a cluster: its daemons, which are our children, and whatever those left behind.

use super::ClusterError;
use super::error::at;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How often something is looked at again.
pub(super) const POLL: Duration = Duration::from_millis(20);

/// A daemon, started by us and not waited for yet: so its process id cannot have passed to anyone else.
#[derive(Debug)]
pub(super) struct Daemon {
    pub(super) name: String,
    child: Child,
    /// What it wrote to stdout and stderr.
    pub(super) output: PathBuf,
}

impl Daemon {
    pub(super) fn start(name: &str, mut command: Command, output: PathBuf) -> Result<Daemon, ClusterError> {
        let file = File::options().create(true).append(true).open(&output).map_err(at(&output))?;
        let copy = file.try_clone().map_err(at(&output))?;
        command.stdin(Stdio::null()).stdout(file).stderr(copy);
        let child = command.spawn().map_err(|error| ClusterError::Spawn(name.to_owned(), error))?;
        Ok(Daemon { name: name.to_owned(), child, output })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it did.
    pub(super) fn ended(&mut self) -> Option<String> {
        self.child.try_wait().ok().flatten().map(|status| status.to_string())
    }

    /// Asks it to end; see [`Daemon::finish`].
    pub(super) fn terminate(&mut self) {
        if self.ended().is_none() {
            signal(self.pid(), libc::SIGTERM);
        }
    }

    /// Waits until it has ended; after the deadline it is killed.
    pub(super) fn finish(&mut self, deadline: Instant) {
        while self.ended().is_none() && Instant::now() < deadline {
            std::thread::sleep(POLL);
        }
        // Both fail only where it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a process of a cluster can be known by, wherever it has detached itself to.
#[derive(Debug)]
pub(super) struct Marks {
    /// The cgroups of the nodes, if there are any.
    pub(super) cgroups: Vec<String>,
    /// The cluster's own slurm.conf, in a folder that nobody else uses.
    pub(super) slurm_conf: PathBuf,
}

impl Marks {
    /// Ends every process that the daemons left: slurmstepd, tasks, what a prolog put into the background.
    ///
    /// Returns what is still there at the deadline.
    pub(super) fn sweep(&self, deadline: Instant) -> Vec<String> {
        loop {
            let found = self.find();
            if found.is_empty() || Instant::now() > deadline {
                return found.iter().map(|process| format!("{} {}", process.pid, process.name)).collect();
            }
            for process in &found {
                process.kill();
            }
            std::thread::sleep(POLL);
        }
    }

    fn find(&self) -> Vec<Process> {
        let Ok(folder) = fs::read_dir("/proc") else { return Vec::new() };
        let pids = folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|pid| *pid != std::process::id())
            .filter_map(Process::read)
            .filter(|process| self.belongs(process))
            .collect()
    }

    /// A process in one of our cgroups; or one that was given our slurm.conf, but has no terminal: an administrator's
    /// shell that looks into the cluster is not ours.
    fn belongs(&self, process: &Process) -> bool {
        let proc_folder = process.folder();
        let cgroups = fs::read_to_string(proc_folder.join("cgroup")).unwrap_or_default();
        if cgroups.lines().any(|line| self.is_own_cgroup(line)) {
            return true;
        }
        let environment = fs::read(proc_folder.join("environ")).unwrap_or_default();
        let wanted = format!("SLURM_CONF={}", self.slurm_conf.display());
        !process.has_terminal && environment.split(|&byte| byte == 0).any(|entry| entry == wanted.as_bytes())
    }

    /// `line` is one of /proc/PID/cgroup: `6:freezer:/NAME/slurm_n1/uid_0/job_1`.
    fn is_own_cgroup(&self, line: &str) -> bool {
        let top = line.splitn(3, ':').nth(2).and_then(|path| path.trim_start_matches('/').split('/').next());
        top.is_some_and(|top| self.cgroups.iter().any(|own| own == top))
    }
}

/// A process as it was when it was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Process {
    pid: u32,
    name: String,
    start_ticks: u64,
    has_terminal: bool,
}

impl Process {
    /// None for one that is gone or dead.
    pub(super) fn read(pid: u32) -> Option<Process> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name stands in parentheses and may hold anything, so the fields begin after the last one.
        let (start, rest) = (stat.find('(')?, stat.rfind(')')?);
        let fields: Vec<&str> = stat[rest + 1..].split_whitespace().collect();
        // proc(5): state is field 3, tty_nr field 7, starttime field 22.
        let is_dead = matches!(*fields.first()?, "Z" | "X");
        let has_terminal = *fields.get(4)? != "0";
        let start_ticks = fields.get(19)?.parse().ok()?;
        let name = stat[start + 1..rest].to_owned();
        (!is_dead).then_some(Process { pid, name, start_ticks, has_terminal })
    }

    /// `PID:START`, enough to know it again.
    pub(super) fn identity(&self) -> String {
        format!("{}:{}", self.pid, self.start_ticks)
    }

    fn folder(&self) -> PathBuf {
        Path::new("/proc").join(self.pid.to_string())
    }

    /// Kills it, unless its number has passed to another process meanwhile.
    fn kill(&self) {
        if Process::read(self.pid).is_some_and(|now| now.start_ticks == self.start_ticks) {
            signal(self.pid, libc::SIGKILL);
        }
    }
}

fn signal(pid: u32, signal: libc::c_int) {
    let Ok(pid) = libc::pid_t::try_from(pid) else { return };
    // SAFETY: kill(2) takes two numbers and touches no memory of ours; pid is above 0, so it names one process.
    unsafe {
        libc::kill(pid, signal);
    }
}

/// The last lines of a text file, or why there are none.
pub(super) fn tail(path: &Path, lines: usize) -> String {
    let text = match fs::read(path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => return format!("({}: {error})", path.display()),
    };
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_start_time_too() {
        let me = Process::read(std::process::id()).unwrap();
        assert!(me.start_ticks > 0 && me.folder().join("stat").exists());
        let old = Process { start_ticks: me.start_ticks - 1, ..Process::read(me.pid).unwrap() };
        // Would end this test if it were mistaken for the older process.
        old.kill();
    }

    #[test]
    fn only_own_cgroups_count() {
        let marks = Marks { cgroups: vec!["gpuward-a-n1".into()], slurm_conf: "/x/slurm.conf".into() };
        assert!(marks.is_own_cgroup("6:freezer:/gpuward-a-n1/slurm_n1/uid_0/job_1"));
        assert!(marks.is_own_cgroup("6:freezer:/gpuward-a-n1"));
        for other in
            ["6:freezer:/gpuward-a-n12/slurm_n1", "0::/", "6:freezer:/slurm_n1", "", "0::/x/gpuward-a-n1"]
        {
            assert!(!marks.is_own_cgroup(other), "{other}");
        }
    }
}
