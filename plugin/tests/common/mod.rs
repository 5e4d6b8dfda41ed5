//! What the plugin's tests share: the built objects, the C host, and a node's folders.
#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::disallowed_methods, reason = "the test starts programs, not the plugin")]

use gpuward_core::model::job::JOB_STATE_VERSION;
use gpuward_core::model::{Counters, JobGpu, JobId, JobState};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::SystemTime;
use tempfile::TempDir;

/// `<target>/<profile>/deps/<test>` gives target folder and profile.
fn built() -> (PathBuf, String) {
    let exe = std::env::current_exe().expect("the test's own path");
    let profile = exe.parent().and_then(Path::parent).expect("the test lies in <target>/<profile>/deps");
    let name = profile.file_name().expect("a profile").to_string_lossy().into_owned();
    (profile.parent().expect("a target folder").to_owned(), name)
}

/// The newest change of the plugin's own sources.
fn sources_changed() -> SystemTime {
    fn newest(path: &Path) -> SystemTime {
        if path.is_dir() {
            let entries = fs::read_dir(path).expect("a source folder").flatten();
            return entries.map(|entry| newest(&entry.path())).max().unwrap_or(SystemTime::UNIX_EPOCH);
        }
        path.metadata().and_then(|meta| meta.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
    }
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    ["src", "build.rs"].iter().map(|part| newest(&crate_folder.join(part))).max().expect("sources")
}

/// cargo does not build the plugin for its tests, so it may be missing or older than its sources.
fn built_object(path: PathBuf, how: &str) -> PathBuf {
    let built = path.metadata().and_then(|meta| meta.modified());
    let built = built.unwrap_or_else(|_| panic!("{} is not there: {how}", path.display()));
    assert!(built >= sources_changed(), "{} is older than plugin/src: {how}", path.display());
    path
}

/// The plugin as it is deployed.
pub fn plugin() -> PathBuf {
    let (target, profile) = built();
    let path = target.join(profile).join("libspank_gpuward.so");
    built_object(path, "run `make build` or `cargo build -p spank-gpuward`")
}

/// The plugin built with the feature fault-injection.
pub fn fault_plugin() -> PathBuf {
    let (target, profile) = built();
    let default = target.join("fault").join(profile).join("libspank_gpuward.so");
    let path = std::env::var_os("GPUWARD_FAULT_PLUGIN").map_or(default, PathBuf::from);
    built_object(path, "run `make build`, which builds the plugin with the feature fault-injection as well")
}

/// Compiles the C host, once per test program. `define` is one more flag for the compiler.
pub fn host_with(define: &str) -> PathBuf {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| TempDir::new().expect("a temporary folder"));
    let path = folder.path().join(format!("host{define}"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/host.c");
    let include = std::env::var("SLURM_INCLUDE_DIR").unwrap_or_else(|_| "/usr/include".into());
    let done = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Werror", "-rdynamic", define, "-I", &include, "-o"])
        .args([&path, &source])
        .args(["-ldl", "-lpthread"])
        .output()
        .unwrap_or_else(|error| panic!("cannot run cc: {error}; install gcc and libc6-dev"));
    assert!(done.status.success(), "host.c: {}", String::from_utf8_lossy(&done.stderr));
    path
}

/// The C host.
pub fn host() -> PathBuf {
    static HOST: OnceLock<PathBuf> = OnceLock::new();
    HOST.get_or_init(|| host_with("-DHOST")).clone()
}

/// A node: gpuward.toml and the run folder, owned by root.
pub struct Node {
    pub folder: TempDir,
}

impl Node {
    /// A node with `[environment] mode`, and one state of job 7.
    pub fn new(mode: &str) -> Node {
        let node = Node::empty();
        node.write_config(&format!(
            "[paths]\nrun = \"{}/run/%n\"\n[environment]\nmode = \"{mode}\"\n",
            node.folder.path().display()
        ));
        node.write_state(&state());
        node
    }

    /// A node without configuration and state.
    pub fn empty() -> Node {
        // SAFETY: takes nothing and cannot fail.
        let uid = unsafe { libc::geteuid() };
        assert_eq!(uid, 0, "these tests make files of root's and of others': run them as root");
        let node = Node { folder: TempDir::new().expect("a temporary folder") };
        fs::create_dir_all(node.jobs()).expect("the jobs folder");
        // The task runs as another user and must reach the transcript's folder no more than a real one would.
        for folder in [node.folder.path().join("run"), node.folder.path().join("run/n1"), node.jobs()] {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("a mode");
        }
        node
    }

    pub fn jobs(&self) -> PathBuf {
        self.folder.path().join("run/n1/jobs")
    }

    pub fn config(&self) -> PathBuf {
        self.folder.path().join("gpuward.toml")
    }

    pub fn write_config(&self, text: &str) {
        fs::write(self.config(), text).expect("gpuward.toml");
        fs::set_permissions(self.config(), fs::Permissions::from_mode(0o644)).expect("a mode");
    }

    /// Writes a state as the prolog would and says where.
    pub fn write_state(&self, state: &JobState) -> PathBuf {
        let path = self.jobs().join(state.file_name());
        fs::write(&path, serde_json::to_string(state).expect("JSON")).expect("a state file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a mode");
        path
    }

    pub fn state_path(&self) -> PathBuf {
        self.jobs().join(state().file_name())
    }

    /// Runs the plugin on this node with more arguments for the host.
    pub fn run(&self, more: &[&str]) -> Transcript {
        self.run_with(&plugin(), more)
    }

    /// The same with another build of the plugin.
    pub fn run_with(&self, plugin: &Path, more: &[&str]) -> Transcript {
        let config = format!("arg=config={}", self.config().display());
        let all: Vec<&str> =
            [config.as_str(), "own=SLURMD_NODENAME=n1"].iter().chain(more).copied().collect();
        run(&host(), plugin, &all)
    }
}

/// Runs a host and checks what holds always: it ends well and nothing was printed.
pub fn run(host: &Path, plugin: &Path, args: &[&str]) -> Transcript {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("transcript");
    let output = Command::new(host).arg(plugin).arg(&path).args(args).output().expect("the host");
    let text = fs::read_to_string(&path).unwrap_or_default();
    check(&output, &text);
    Transcript(text)
}

/// The host ended well, and the plugin printed nothing.
pub fn check(output: &Output, transcript: &str) {
    assert!(output.status.success(), "{:?}\n{transcript}", output.status);
    let printed = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    assert!(printed.is_empty(), "printed: {}", String::from_utf8_lossy(&printed));
    assert!(transcript.ends_with("end\n"), "{transcript}");
}

/// What the host wrote down.
#[derive(Debug)]
pub struct Transcript(pub String);

impl Transcript {
    pub fn has(&self, line: &str) -> bool {
        self.0.lines().any(|found| found == line)
    }

    pub fn with(&self, start: &str) -> Vec<&str> {
        self.0.lines().filter(|line| line.starts_with(start)).collect()
    }

    /// Every hook returned 0, and every task ended as it would have without the plugin.
    #[track_caller]
    pub fn assert_harmless(&self) {
        for line in self.0.lines() {
            let hook = line.starts_with("slurm_spank_") || line.starts_with("option = ");
            assert!(!hook || line.ends_with(" = 0"), "{line}\n{}", self.0);
            assert!(!line.contains(" ended by signal "), "{}", self.0);
            assert!(!line.contains(" exit ") || line.ends_with(" exit 7"), "{}", self.0);
        }
    }

    /// The plugin set nothing, told the user nothing, and logged `errors` errors.
    #[track_caller]
    pub fn assert_opaque(&self, errors: usize) {
        self.assert_harmless();
        assert!(self.with("setenv").is_empty() && self.with("user:").is_empty(), "{}", self.0);
        assert_eq!(self.with("error:").len(), errors, "{}", self.0);
        assert!(self.has("task 0 exit 7"), "{}", self.0);
    }
}

/// A healthy state of job 7, restart 0, with one GPU.
pub fn state() -> JobState {
    JobState {
        version: JOB_STATE_VERSION,
        job_id: JobId(7),
        nonce: "0123456789abcdef".into(),
        restart_count: Some(0),
        sluid: None,
        cluster: None,
        node: "n1".into(),
        uid: Some(1000),
        user: None,
        account: None,
        partition: None,
        boot_id: "b".into(),
        driver_version: None,
        start_unix_ms: 1,
        start_boottime_ns: 2,
        gpu_map_certain: true,
        gpus: vec![gpu()],
        comments: Vec::new(),
    }
}

fn gpu() -> JobGpu {
    JobGpu {
        uuid: "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6".parse().ok(),
        parent_uuid: None,
        pci: "0000:3b:00.0".parse().expect("a PCI address"),
        gres_index: None,
        minor: None,
        model: None,
        serial: None,
        numa_node: None,
        local_cpus: None,
        counters: Counters::default(),
    }
}
