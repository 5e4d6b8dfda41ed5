//! A script made ready for one machine: it judges each call.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{
    Busy, Cpuset, Event, Faults, GpuName, Hang, Hidden, Latency, Lost, Missing, Reset, ResetKind, Return,
};
use crate::code::Code;
use crate::scenario::{CpuList, Gpu, Machine, ScenarioError};

/// What a call has to do before, or instead of, answering.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// Sleep first.
    pub sleep_us: u64,
    /// Then this.
    pub outcome: Outcome,
}

/// The end of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Answer truly.
    Answer,
    /// Answer with a code.
    Fail(Code),
    /// Never answer; with a freezer cgroup to enter first.
    Hang(Option<PathBuf>),
}

/// A rule with its GPU resolved and its counter of calls, which lives as long as the script stays unchanged.
#[derive(Debug)]
struct Armed<R> {
    rule: R,
    slot: Option<u32>,
    calls: AtomicU64,
}

/// A script made ready for one machine.
#[derive(Debug, Default)]
pub struct Script {
    latency_us: u64,
    init_code: Option<u32>,
    latency: Vec<Armed<Latency>>,
    returns: Vec<Armed<Return>>,
    hang: Vec<Armed<Hang>>,
    lost: Vec<Armed<Lost>>,
    missing: Vec<Missing>,
    busy: Vec<Armed<Busy>>,
    reset: Vec<Armed<Reset>>,
    event: Vec<Armed<Event>>,
    hidden: Vec<Armed<Hidden>>,
    cpuset: Vec<Cpuset>,
}

/// Since when counters count, milliseconds of CLOCK_BOOTTIME.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Epoch {
    /// Errors, throttling, traffic: since the last reset of the GPU or the driver.
    pub gpu_ms: u64,
    /// Energy: since the driver was loaded.
    pub driver_ms: u64,
}

impl Script {
    /// Resolves the GPUs that the rules name.
    pub fn new(faults: Faults, machine: &Machine, path: &Path) -> Result<Self, ScenarioError> {
        Ok(Self {
            latency_us: faults.latency_us,
            init_code: faults.init_code,
            latency: arm(faults.latency, |rule| rule.gpu.as_ref(), machine, path)?,
            returns: arm(faults.returns, |rule| rule.gpu.as_ref(), machine, path)?,
            hang: arm(faults.hang, |rule| rule.gpu.as_ref(), machine, path)?,
            lost: arm(faults.lost, |rule| Some(&rule.gpu), machine, path)?,
            missing: faults.missing,
            busy: arm(faults.busy, |rule| rule.gpu.as_ref(), machine, path)?,
            reset: arm(faults.reset, |rule| rule.gpu.as_ref(), machine, path)?,
            event: arm(faults.event, |rule| Some(&rule.gpu), machine, path)?,
            hidden: arm(faults.hidden, |rule| Some(&rule.gpu), machine, path)?,
            cpuset: faults.cpuset,
        })
    }

    /// Judges one call. `slot` is the GPU that the call names, if any. Rules that name a GPU see only calls that do.
    pub fn judge(&self, function: &str, slot: Option<u32>) -> Judgement {
        Judgement { sleep_us: self.sleep_us(function, slot), outcome: self.outcome(function, slot) }
    }

    fn sleep_us(&self, function: &str, slot: Option<u32>) -> u64 {
        let rules = self.latency.iter().filter(|armed| armed.matches(&armed.rule.function, function, slot));
        self.latency_us + rules.map(|armed| armed.rule.us).sum::<u64>()
    }

    fn outcome(&self, function: &str, slot: Option<u32>) -> Outcome {
        if self.missing.iter().any(|rule| name_matches(&rule.function, function)) {
            return Outcome::Fail(Code::FUNCTION_NOT_FOUND);
        }
        // The kernel refuses before anything reaches the GPU.
        if let Some(code) = slot.and_then(|slot| self.hidden(slot)) {
            return Outcome::Fail(code);
        }
        for armed in self.hang.iter().filter(|armed| armed.matches(&armed.rule.function, function, slot)) {
            if armed.count() > armed.rule.after.unwrap_or(0) {
                return Outcome::Hang(armed.rule.unkillable.clone());
            }
        }
        // Counted even where another rule answers: the GPU was touched.
        let lost = slot.is_some_and(|slot| self.touch_lost(slot));
        for armed in self.returns.iter().filter(|armed| armed.matches(&armed.rule.function, function, slot)) {
            let past = armed.count().saturating_sub(armed.rule.after.unwrap_or(0));
            if past > 0 && armed.rule.times.is_none_or(|times| past <= times) {
                return Outcome::Fail(Code(armed.rule.code));
            }
        }
        match self.init_code {
            _ if lost => Outcome::Fail(Code::GPU_IS_LOST),
            Some(code) if function.starts_with("nvmlInit") => Outcome::Fail(Code(code)),
            _ => Outcome::Answer,
        }
    }

    /// Counts a call on a GPU and says whether the GPU is lost. Every rule counts, so no short cut.
    fn touch_lost(&self, slot: u32) -> bool {
        let rules = self.lost.iter().filter(|armed| armed.slot == Some(slot));
        rules.fold(false, |lost, armed| {
            let calls = armed.count();
            lost | armed.lost(calls)
        })
    }

    /// Whether a GPU is out of the count and the indices.
    pub fn vanished(&self, slot: u32) -> bool {
        self.lost_by(slot).any(|rule| rule.vanish == Some(true))
    }

    /// Whether a GPU is lost, without a call on it.
    pub fn is_lost(&self, slot: u32) -> bool {
        self.lost_by(slot).next().is_some()
    }

    /// Rules that would make the next call on a GPU find it lost, which would be one more than those counted so far.
    fn lost_by(&self, slot: u32) -> impl Iterator<Item = &Lost> {
        let gone =
            move |armed: &&Armed<Lost>| armed.slot == Some(slot) && armed.lost(armed.calls.load(Relaxed) + 1);
        self.lost.iter().filter(gone).map(|armed| &armed.rule)
    }

    /// What the calling process gets instead of a GPU that is kept from it.
    pub fn hidden(&self, slot: u32) -> Option<Code> {
        let rule =
            self.hidden.iter().find(|armed| armed.slot == Some(slot) && concerned(&armed.rule.pids_in));
        rule.map(|armed| armed.rule.code.map_or(Code::NO_PERMISSION, Code))
    }

    /// The CPUs that the calling process is confined to.
    pub fn caller_cpus(&self) -> Option<&CpuList> {
        self.cpuset.iter().find(|rule| concerned(&rule.pids_in)).map(|rule| &rule.cpus)
    }

    /// Since when the counters of a GPU count at a time.
    pub fn epoch(&self, slot: u32, now_ms: u64) -> Epoch {
        let passed = self
            .reset
            .iter()
            .filter(|armed| armed.slot.is_none_or(|own| own == slot) && armed.rule.at_boottime_ms <= now_ms);
        passed.fold(Epoch::default(), |epoch, armed| {
            let at = armed.rule.at_boottime_ms;
            let driver_ms = if armed.rule.what == ResetKind::Driver { at } else { 0 };
            Epoch { gpu_ms: epoch.gpu_ms.max(at), driver_ms: epoch.driver_ms.max(driver_ms) }
        })
    }

    /// Whether a GPU is ever reset.
    pub fn has_reset(&self, slot: u32) -> bool {
        self.reset.iter().any(|armed| armed.slot.is_none_or(|own| own == slot))
    }

    /// Xids with the slots of their GPUs.
    pub fn events(&self) -> impl Iterator<Item = (u32, &Event)> {
        self.event.iter().filter_map(|armed| Some((armed.slot?, &armed.rule)))
    }

    /// Busy times of a GPU.
    pub fn busy(&self, slot: u32) -> impl Iterator<Item = &Busy> {
        self.busy
            .iter()
            .filter(move |armed| armed.slot.is_none_or(|own| own == slot))
            .map(|armed| &armed.rule)
    }
}

impl<R> Armed<R> {
    fn matches(&self, pattern: &str, function: &str, slot: Option<u32>) -> bool {
        (self.slot.is_none() || self.slot == slot) && name_matches(pattern, function)
    }

    fn count(&self) -> u64 {
        self.calls.fetch_add(1, Relaxed) + 1
    }
}

impl Armed<Lost> {
    fn lost(&self, calls: u64) -> bool {
        calls > self.rule.after_calls.unwrap_or(0)
            && self.rule.when_file.as_deref().is_none_or(|file| file.exists())
    }
}

fn arm<R>(
    rules: Vec<R>,
    gpu: impl Fn(&R) -> Option<&GpuName>,
    machine: &Machine,
    path: &Path,
) -> Result<Vec<Armed<R>>, ScenarioError> {
    let one = |rule: R| {
        let slot = gpu(&rule).map(|name| name.find(machine, path).map(Gpu::slot)).transpose()?;
        Ok(Armed { rule, slot, calls: AtomicU64::new(0) })
    };
    rules.into_iter().map(one).collect()
}

/// Whether a rule for the processes in a file concerns the calling one. A file that is not there lists none.
fn concerned(pids_in: &Option<PathBuf>) -> bool {
    let Some(file) = pids_in else { return true };
    let own = std::process::id().to_string();
    std::fs::read_to_string(file).is_ok_and(|pids| pids.lines().any(|pid| pid.trim() == own))
}

fn name_matches(pattern: &str, function: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => function.starts_with(start),
        None => pattern == function,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(text: &str) -> Script {
        let path = Path::new("faults.toml");
        let machine =
            Machine::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios/l40s-pcie.toml"))
                .unwrap();
        let faults = Faults::parse(path, text).unwrap();
        Script::new(faults, &machine, path).unwrap()
    }

    #[test]
    fn rules_for_a_gpu_leave_calls_without_one_alone() {
        let script = script("[[hang]]\nfunction = \"*\"\ngpu = 1\n[[latency]]\nfunction = \"*\"\nus = 7");
        let calm = Judgement { sleep_us: 7, outcome: Outcome::Answer };
        assert_eq!(script.judge("nvmlDeviceGetCount_v2", None), calm);
        assert_eq!(script.judge("nvmlDeviceGetName", Some(0)), calm);
        assert_eq!(script.judge("nvmlDeviceGetName", Some(1)).outcome, Outcome::Hang(None));
    }

    #[test]
    fn a_star_at_the_end_stands_for_any_rest() {
        let script = script("[[missing]]\nfunction = \"nvmlDeviceGetGpuFabricInfo*\"");
        let missing = Outcome::Fail(Code::FUNCTION_NOT_FOUND);
        assert_eq!(script.judge("nvmlDeviceGetGpuFabricInfoV", None).outcome, missing);
        assert_eq!(script.judge("nvmlDeviceGetGpuFabric", None).outcome, Outcome::Answer);
    }

    #[test]
    fn init_code_is_for_init_only() {
        let script = script("init_code = 9");
        assert_eq!(script.judge("nvmlInitWithFlags", None).outcome, Outcome::Fail(Code::DRIVER_NOT_LOADED));
        assert_eq!(script.judge("nvmlShutdown", None).outcome, Outcome::Answer);
    }

    #[test]
    fn calls_on_a_gpu_count_towards_its_loss_and_others_do_not() {
        let script = script("[[lost]]\ngpu = 2\nafter_calls = 1\nvanish = true");
        assert!((0..9).all(|_| script.judge("nvmlDeviceGetName", Some(1)).outcome == Outcome::Answer));
        assert_eq!(script.judge("nvmlDeviceGetName", Some(2)).outcome, Outcome::Answer);
        assert!(script.vanished(2));
        assert_eq!(script.judge("nvmlDeviceGetName", Some(2)).outcome, Outcome::Fail(Code::GPU_IS_LOST));
    }
}
