//! Times NVML's calls one by one and tells each as soon as it is known: after a hang the last line names the call.

use super::nvml::{Device, Nvml, Shape};
use super::sets::{CALLS, Call, Times};
use super::trials::{self, FieldAnswer, MetricAnswer};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// How often a call is timed: the median of 50 does not move for one slow call.
const CALLS_EACH: usize = 50;

/// When to stop earlier. 65 calls of this length take half of what check.sh allows.
const BUDGET_EACH: Duration = Duration::from_millis(300);

/// How often everything before a job is read as a whole, and when to stop earlier.
const WHOLE_RUNS: usize = 20;
const WHOLE_BUDGET: Duration = Duration::from_secs(5);

/// More links than any GPU has.
const MAX_LINKS: u32 = 128;

/// One line of the output.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// This is about to be called.
    Begin(String),
    /// Why there is nothing more.
    Failed(String),
    /// A GPU that opens.
    Gpu(GpuLine),
    /// A call's time.
    Timing(Timing),
    /// Everything before a job as one.
    Whole(Whole),
    /// A field that has two numbers.
    Field(FieldAnswer),
    /// A performance metric.
    Metric(MetricAnswer),
    /// All has been said.
    End,
}

/// A GPU as NVML tells it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GpuLine {
    /// PCI address in NVML's form.
    pub pci: String,
    /// UUID.
    pub uuid: String,
    /// The number in /dev/nvidiaN.
    pub minor: u32,
    /// Model.
    pub model: String,
    /// The driver.
    pub driver: String,
}

/// What one call costs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Timing {
    /// The function.
    pub function: String,
    /// What was asked for.
    pub about: String,
    /// NVML's answer.
    pub code: u32,
    /// The first call in the process.
    pub first_us: f64,
    /// Of the later ones.
    pub median_us: f64,
    /// Of the later ones.
    pub worst_us: f64,
    /// How many later ones.
    pub calls: usize,
    /// How often a prolog makes it for one GPU.
    pub per_job: u32,
    /// How often a snapshot makes it on top.
    pub per_look: u32,
}

/// What all calls before a job cost together.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Whole {
    /// On so many GPUs, each in a thread of its own.
    pub gpus: usize,
    /// The first time.
    pub first_us: f64,
    /// Of the later times.
    pub median_us: f64,
    /// Of the later times.
    pub worst_us: f64,
    /// How many later ones.
    pub runs: usize,
}

/// Prints all lines.
pub fn run(library: &Path) -> Result<(), String> {
    let begin = Instant::now();
    say(&Line::Begin(format!("opening {}", library.display())));
    let nvml = match Nvml::load(library) {
        Ok(nvml) => nvml,
        Err(error) => {
            say(&Line::Failed(error));
            return Ok(());
        }
    };
    let opened = micros(begin.elapsed());
    say(&Line::Timing(node_timing("loading the library", 0, opened, vec![opened])));
    if !start(&nvml) {
        return Ok(());
    }
    let gpus = open_all(&nvml);
    if let Some(first) = gpus.first() {
        let counts = Counts::of(&nvml, first.0, gpus.get(1).map(|other| other.0), gpus.len());
        one_by_one(&nvml, first, &counts);
        whole(&nvml, &gpus[..1], &counts);
        if gpus.len() > 1 {
            whole(&nvml, &gpus, &counts);
        }
        trials::run(&nvml, first.0);
    }
    say(&Line::End);
    Ok(())
}

pub(super) fn say(line: &Line) {
    // Line by line: what was said before a hang must be out.
    println!("{}", serde_json::to_string(line).unwrap_or_default());
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Starts NVML, stops it and starts it again: the first is what every probe pays.
fn start(nvml: &Nvml) -> bool {
    let mut times = Vec::new();
    let mut code = 0;
    for _ in 0..5 {
        say(&Line::Begin("nvmlInit_v2".into()));
        let begin = Instant::now();
        code = nvml.plain("nvmlInit_v2");
        times.push(micros(begin.elapsed()));
        if code != 0 {
            break;
        }
        if times.len() < 5 {
            nvml.plain("nvmlShutdown");
        }
    }
    let first = times.first().copied().unwrap_or(0.0);
    say(&Line::Timing(node_timing("nvmlInit_v2", code, first, times.split_off(1))));
    if code != 0 {
        say(&Line::Failed(format!("nvmlInit_v2: {}", super::nvml::word(code))));
        return false;
    }
    for name in ["nvmlSystemGetDriverVersion", "nvmlSystemGetNVMLVersion"] {
        let (code, first, later) = repeat(|| nvml.node_text(name).err().unwrap_or(0));
        say(&Line::Timing(node_timing(name, code, first, later)));
    }
    let (code, first, later) = repeat(|| nvml.count().err().unwrap_or(0));
    say(&Line::Timing(node_timing("nvmlDeviceGetCount_v2", code, first, later)));
    true
}

fn node_timing(function: &str, code: u32, first_us: f64, later: Vec<f64>) -> Timing {
    timing(function, "", code, first_us, later, (0, 0))
}

fn timing(
    function: &str,
    about: &str,
    code: u32,
    first_us: f64,
    mut later: Vec<f64>,
    per: (u32, u32),
) -> Timing {
    later.sort_by(f64::total_cmp);
    Timing {
        function: function.to_owned(),
        about: about.to_owned(),
        code,
        first_us,
        // A call of which there was time for one only.
        median_us: later.get(later.len() / 2).copied().unwrap_or(first_us),
        worst_us: later.last().copied().unwrap_or(first_us),
        calls: later.len(),
        per_job: per.0,
        per_look: per.1,
    }
}

/// Code, time of the first call, times of the later ones.
fn repeat(mut call: impl FnMut() -> u32) -> (u32, f64, Vec<f64>) {
    let begin = Instant::now();
    let code = call();
    let first = micros(begin.elapsed());
    let mut later = Vec::new();
    while later.len() < CALLS_EACH && begin.elapsed() < BUDGET_EACH {
        let begin = Instant::now();
        call();
        later.push(micros(begin.elapsed()));
    }
    (code, first, later)
}

/// Every GPU that opens, with its address.
fn open_all(nvml: &Nvml) -> Vec<(Device, String)> {
    let mut found = Vec::new();
    let driver = nvml.node_text("nvmlSystemGetDriverVersion").unwrap_or_default();
    for index in 0..nvml.count().unwrap_or(0) {
        say(&Line::Begin(format!("nvmlDeviceGetHandleByIndex_v2, GPU {index}")));
        let begin = Instant::now();
        let opened = nvml.by_index(index);
        let time = micros(begin.elapsed());
        if index == 0 {
            let code = opened.err().unwrap_or(0);
            say(&Line::Timing(node_timing("nvmlDeviceGetHandleByIndex_v2", code, time, Vec::new())));
        }
        let Ok(device) = opened else { continue };
        let Ok(pci) = nvml.address(device) else { continue };
        let text = |name| nvml.text(name, device).unwrap_or_default();
        say(&Line::Gpu(GpuLine {
            pci: pci.clone(),
            uuid: text("nvmlDeviceGetUUID"),
            minor: nvml.number("nvmlDeviceGetMinorNumber", device).unwrap_or(index),
            model: text("nvmlDeviceGetName"),
            driver: driver.clone(),
        }));
        found.push((device, pci));
    }
    found
}

/// What calls are repeated for.
#[derive(Debug)]
struct Counts {
    links: u32,
    other: Option<Device>,
    others: u32,
    migs: Vec<Device>,
}

impl Counts {
    fn of(nvml: &Nvml, device: Device, other: Option<Device>, gpus: usize) -> Counts {
        let state = |link: &u32| nvml.call("nvmlDeviceGetNvLinkState", Shape::Of(*link), device, "") == 0;
        let most = nvml.number("nvmlDeviceGetMaxMigDeviceCount", device).unwrap_or(0);
        Counts {
            links: u32::try_from((0..MAX_LINKS).take_while(state).count()).unwrap_or(0),
            other,
            others: u32::try_from(gpus.saturating_sub(1)).unwrap_or(0),
            migs: (0..most).filter_map(|place| nvml.mig_device(device, place).ok()).collect(),
        }
    }

    fn times(&self, times: Times) -> u32 {
        match times {
            Times::Fixed(count) => count,
            Times::Link(more) => self.links + more,
            Times::Other(each) => self.others * each,
            Times::Mig(each) => each * u32::try_from(self.migs.len()).unwrap_or(0),
        }
    }
}

fn one_by_one(nvml: &Nvml, gpu: &(Device, String), counts: &Counts) {
    for Call { function, about, shape, job, look } in &CALLS {
        let of_mig = matches!(look, Times::Mig(_));
        let device = if of_mig { counts.migs.first().copied() } else { Some(gpu.0) };
        let shape = match (shape, counts.other) {
            (Shape::Peer(capability, _), Some(other)) => Some(Shape::Peer(*capability, other)),
            (Shape::Peer(..), None) => None,
            (shape, _) => Some(*shape),
        };
        // No MIG device, no other GPU: gpuward does not call it here either.
        let (Some(device), Some(shape)) = (device, shape) else { continue };
        say(&Line::Begin(format!("{function} {about}").trim_end().to_owned()));
        let (code, first, later) = repeat(|| nvml.call(function, shape, device, &gpu.1));
        let per = (counts.times(*job), counts.times(*look));
        say(&Line::Timing(timing(function, about, code, first, later, per)));
    }
}

/// Everything before a job, each GPU in a thread of its own as in the probe.
fn whole(nvml: &Nvml, gpus: &[(Device, String)], counts: &Counts) {
    say(&Line::Begin(format!("all calls before a job, {} GPUs", gpus.len())));
    let begin = Instant::now();
    let mut times = Vec::new();
    while times.len() <= WHOLE_RUNS && begin.elapsed() < WHOLE_BUDGET {
        let begin = Instant::now();
        thread::scope(|scope| {
            for gpu in gpus {
                scope.spawn(|| before_a_job(nvml, gpu, counts));
            }
        });
        times.push(micros(begin.elapsed()));
    }
    let first = times.remove(0);
    let times = timing("", "", 0, first, times, (0, 0));
    say(&Line::Whole(Whole {
        gpus: gpus.len(),
        first_us: first,
        median_us: times.median_us,
        worst_us: times.worst_us,
        runs: times.calls,
    }));
}

fn before_a_job(nvml: &Nvml, gpu: &(Device, String), counts: &Counts) {
    for Call { function, shape, job, .. } in &CALLS {
        for _ in 0..counts.times(*job) {
            nvml.call(function, *shape, gpu.0, &gpu.1);
        }
    }
}
