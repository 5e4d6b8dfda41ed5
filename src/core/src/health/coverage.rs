//! What a look could judge: a pass says what it is a pass of.
//!
//! For every code the readings that its rule cannot do without. What is missing is told with its reason; nothing here
//! decides anything.

mod families;

use super::codes::{self, Runs};
use super::{Case, Subject};
use crate::model::Reading;
use crate::model::snapshot::ProbedGpu;
use serde::Serialize;

/// What was judged in a look.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Coverage {
    /// Codes whose rules had what they need, on every GPU that was looked at.
    pub judged: Vec<&'static str>,
    /// The others, with what was missing.
    pub not_judged: Vec<NotJudged>,
    /// Codes that only a deeper look judges.
    pub deeper: Vec<&'static str>,
}

/// A code that could not be judged everywhere.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NotJudged {
    /// The code.
    pub code: &'static str,
    /// The GPUs that it could not be judged on; empty: the node as a whole, or all of them.
    pub gpus: Vec<Subject>,
    /// What was missing.
    pub why: String,
}

/// What a rule cannot do without.
#[derive(Clone, Copy)]
enum Needs {
    /// It speaks of what is missing itself.
    Nothing,
    /// Of the node.
    Node(fn(&Case<'_>) -> Missing),
    /// Of each GPU.
    Gpu(fn(&Case<'_>, &ProbedGpu) -> Missing),
    /// Of the node, then of each GPU.
    Both(fn(&Case<'_>) -> Missing, fn(&Case<'_>, &ProbedGpu) -> Missing),
}

/// What is missing, if anything.
type Missing = Option<String>;

fn needs(code: &str) -> Option<Needs> {
    use Needs::{Both, Gpu, Node, Nothing};
    Some(match code {
        "DRV_UNLOADED" | "PROBE_HANG" | "NVML_INIT" | "PROBE_BUSY" | "PROBE_DIED" | "NVML_LIB" => Nothing,
        // Each is an answer to opening the GPU.
        "GPU_LOST" | "RESET_REQ" | "POWER_CABLE" | "GPU_IRQ" | "GPU_OPEN" | "NO_PERM" | "INFOROM_BAD" => {
            Nothing
        }
        "DRV_MISMATCH" => Node(|case| {
            missing(&case.snapshot.host.module_version, "the module's version")
                .or_else(|| missing(&case.snapshot.node.driver_version, "the driver's version"))
        }),
        "GPU_MISS_PCI" => Node(|case| match case.expected.gpu_count {
            None => Some("nothing says how many GPUs the node should have".into()),
            Some(_) => missing(&case.snapshot.host.pci_gpus, "the list of PCI devices"),
        }),
        "GPU_MISS_DRV" => Node(|case| missing(&case.snapshot.node.gpu_count, "the driver's count of GPUs")),
        "RECOVERY" => Gpu(|case, gpu| {
            let too_old = driver_major(case).is_some_and(|major| major < 565);
            match gpu.reading.recovery_action {
                Reading::NotSupported if too_old => {
                    Some("driver too old for the recovery action (R565)".into())
                }
                ref reading => missing(reading, "the recovery action"),
            }
        }),
        "REMAP_FAIL" => Gpu(|_, gpu| missing(&gpu.reading.remap_failed, "row remapping")),
        "ECC_UNCORR" => Gpu(|_, gpu| missing(&gpu.reading.counters.ecc_volatile_uncorr, "ECC errors")),
        "GPU_MODEL" => Both(
            |case| stated(&case.expected.model, "model"),
            |_, gpu| missing(&gpu.reading.model, "the model"),
        ),
        "GRES_CONF" => Node(|case| {
            let expected = case.expected;
            let none_by_slurm = expected.gres_conf.is_none() && expected.slurm_conf.is_none();
            let by_slurm = |source: &str| source == "gres.conf";
            let ours = expected.gpu_count.as_ref().is_some_and(|(_, source)| !by_slurm(source));
            if none_by_slurm {
                return Some("neither gres.conf nor slurm.conf says how many GPUs there are".into());
            }
            (!ours && expected.known.is_empty())
                .then(|| "only Slurm says how many GPUs there should be".into())
        }),
        _ => return families::needs(code),
    })
}

fn driver_major(case: &Case<'_>) -> Option<u32> {
    case.snapshot.node.driver_version.value()?.split('.').next()?.parse().ok()
}

/// Why nothing is held against a value that only a site can state.
fn stated<T>(expected: &Option<T>, key: &str) -> Missing {
    expected.is_none().then(|| format!("no {key} is stated under [[expected]] in gpuward.toml"))
}

/// Why a reading is no value.
fn missing<T>(reading: &Reading<T>, name: &str) -> Missing {
    match reading {
        Reading::Value(_) => None,
        Reading::NotSupported => Some(format!("not supported by this GPU or driver: {name}")),
        Reading::NoPermission => Some(format!("no permission to read {name}")),
        Reading::Lost | Reading::ResetRequired => Some("the GPU is lost or waits for a reset".into()),
        Reading::TimedOut => Some(format!("no answer in time about {name}")),
        Reading::Failed(code) => Some(format!("code {code} instead of {name}")),
        Reading::NotRead => Some(format!("{name} was not read")),
    }
}

/// What a look of depth `depth` could judge.
pub fn of(case: &Case<'_>, depth: Runs) -> Coverage {
    let mut coverage = Coverage::default();
    for code in codes::all() {
        if code.runs > depth {
            coverage.deeper.push(code.name);
            continue;
        }
        let missing = missing_for(case, code.name);
        if missing.is_empty() {
            coverage.judged.push(code.name);
        }
        coverage.not_judged.extend(missing);
    }
    coverage
}

/// What a code lacks, once for each reason.
fn missing_for(case: &Case<'_>, code: &'static str) -> Vec<NotJudged> {
    let node = |why: String| NotJudged { code, gpus: Vec::new(), why };
    let of_gpu = match needs(code) {
        Some(Needs::Node(missing)) => return missing(case).map(node).into_iter().collect(),
        Some(Needs::Gpu(missing)) => missing,
        Some(Needs::Both(of_node, missing)) => match of_node(case) {
            Some(why) => return vec![node(why)],
            None => missing,
        },
        Some(Needs::Nothing) | None => return Vec::new(),
    };
    let mut all: Vec<NotJudged> = Vec::new();
    for gpu in &case.snapshot.gpus {
        let opened = gpu.reading.handle == Reading::Value(());
        let why = if opened { of_gpu(case, gpu) } else { Some("the GPU did not answer".to_owned()) };
        let Some(why) = why else { continue };
        match all.iter_mut().find(|one| one.why == why) {
            Some(one) => one.gpus.push(Subject::of(gpu)),
            None => all.push(NotJudged { code, gpus: vec![Subject::of(gpu)], why }),
        }
    }
    for one in &mut all {
        one.gpus.sort_by_key(|subject| match subject {
            Subject::Gpu { slot, pci, .. } => (*slot, *pci),
            Subject::Node => (None, None),
        });
    }
    if let [one] = &mut all[..] {
        if one.gpus.len() == case.snapshot.gpus.len() {
            one.gpus.clear();
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::{Expected, History, Limits};
    use super::*;
    use crate::model::Snapshot;

    #[test]
    fn every_code_says_what_it_cannot_do_without() {
        let silent: Vec<&str> =
            codes::all().map(|code| code.name).filter(|code| needs(code).is_none()).collect();
        assert!(silent.is_empty(), "health/coverage.rs, needs(), lacks {silent:?}");
    }

    fn of_two(change: impl Fn(&mut Snapshot)) -> Coverage {
        let mut snapshot = Snapshot::default();
        for minor in 0..2 {
            let value = serde_json::json!({ "target": { "minor": minor }, "reading": {
                "handle": { "value": null }, "recovery_action": { "value": 0 }, "remap_failed": { "value": false },
                "counters": { "ecc_volatile_uncorr": { "value": 0 } },
            }});
            let value: ProbedGpu = serde_json::from_value(value).unwrap_or_else(|error| panic!("{error}"));
            snapshot.gpus.push(value);
        }
        snapshot.node.driver_version = Reading::Value("550.1".into());
        change(&mut snapshot);
        let (expected, history, limits) = (Expected::default(), History::default(), Limits::default());
        let case = Case {
            snapshot: &snapshot,
            expected: &expected,
            history: &history,
            limits: &limits,
            gpu_map_certain: true,
        };
        of(&case, Runs::Check)
    }

    fn told(coverage: &Coverage, code: &str) -> Vec<(usize, String)> {
        let of_code = coverage.not_judged.iter().filter(|one| one.code == code);
        of_code.map(|one| (one.gpus.len(), one.why.clone())).collect()
    }

    #[test]
    fn what_could_not_be_judged_says_why_and_where() {
        let whole = of_two(|_| {});
        assert!(whole.judged.contains(&"RECOVERY") && whole.judged.contains(&"GPU_LOST"), "{whole:?}");
        assert_eq!(
            told(&whole, "GPU_MISS_PCI"),
            [(0, "nothing says how many GPUs the node should have".into())]
        );
        let old = of_two(|snapshot| {
            snapshot.gpus.iter_mut().for_each(|gpu| gpu.reading.recovery_action = Reading::NotSupported);
        });
        assert_eq!(told(&old, "RECOVERY"), [(0, "driver too old for the recovery action (R565)".into())]);
        let mixed = of_two(|snapshot| {
            snapshot.gpus[0].reading.handle = Reading::TimedOut;
            snapshot.gpus[1].reading.remap_failed = Reading::NoPermission;
        });
        assert_eq!(
            told(&mixed, "REMAP_FAIL"),
            [(1, "the GPU did not answer".into()), (1, "no permission to read row remapping".into())]
        );
        assert!(!mixed.judged.contains(&"REMAP_FAIL") && mixed.judged.contains(&"GPU_LOST"));
    }
}
