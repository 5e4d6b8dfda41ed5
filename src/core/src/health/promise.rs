//! Do gpuward.toml, Slurm and what the node was known to be say the same, and is the model the one that was ordered.

use super::Case;
use super::expected::LEARNED;
use super::finding::{Finding, Subject};
use crate::model::snapshot::ProbedGpu;
use crate::text::escape;

/// Slurm was told another number of GPUs than gpuward: one of the two is out of date.
pub(super) fn judge(case: &Case<'_>) -> Option<Finding> {
    let expected = case.expected;
    let known = u32::try_from(expected.known.len()).ok().filter(|&count| count > 0);
    let by_file =
        expected.gpu_count.as_ref().filter(|(_, source)| source != LEARNED && source != "gres.conf");
    let (count, source) = match by_file {
        Some((count, source)) => (*count, format!("{source} says")),
        None => (known?, "this node was known to have".to_owned()),
    };
    // With MIG Slurm counts instances: the numbers are of different things.
    let slurm_conf = expected.slurm_conf.filter(|_| !any_mig(case));
    let told = [("gres.conf", expected.gres_conf), ("slurm.conf", slurm_conf)];
    let (file, other) =
        told.into_iter().find_map(|(file, told)| Some((file, told.filter(|told| *told != count)?)))?;
    let what = format!("{file} names {other} GPUs, {source} {count}");
    Some(Finding::of("GRES_CONF", Subject::Node, what, file).measured(other, count))
}

/// True where a GPU is in MIG mode, or may be.
fn any_mig(case: &Case<'_>) -> bool {
    case.snapshot.gpus.iter().any(|gpu| gpu.reading.mig.value() == Some(&true))
}

/// A model whose name does not hold what gpuward.toml says, whatever the case.
pub(super) fn judge_gpu(case: &Case<'_>, gpu: &ProbedGpu) -> Option<Finding> {
    let (wanted, source) = case.expected.model.as_ref()?;
    let model = gpu.reading.model.value()?;
    if holds(model, wanted) {
        return None;
    }
    let model = escape(model, 60);
    let what = format!("model is {model}");
    Some(
        Finding::of("GPU_MODEL", Subject::of(gpu), what, "NVML")
            .measured(model, format!("{} ({source})", escape(wanted, 60))),
    )
}

/// Whether a model's name holds `wanted`: drivers before R470 leave out "NVIDIA", people leave out more.
fn holds(model: &str, wanted: &str) -> bool {
    model.to_ascii_lowercase().contains(&wanted.trim().to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::super::known::Seen;
    use super::super::{Expected, History, KnownGpu, Limits};
    use super::*;
    use crate::model::{Reading, Snapshot};

    fn known(count: u8) -> Seen {
        let gpu = |at: u8| -> KnownGpu {
            serde_json::from_value(
                serde_json::json!({ "pci": format!("0000:{at:02x}:00.0"), "uuid": format!("GPU-{at:08}") }),
            )
            .unwrap()
        };
        Seen { gpus: (0..count).map(gpu).collect(), ..Seen::default() }
    }

    fn by_file(count: u32) -> Expected {
        Expected { gpu_count: Some((count, "gpuward.toml".into())), ..Expected::default() }
    }

    fn told(expected: &Expected, mig: bool) -> Option<String> {
        let mut snapshot = Snapshot::default();
        let gpu = serde_json::json!({ "target": {}, "reading": { "mig": { "value": mig } } });
        snapshot.gpus.push(serde_json::from_value(gpu).unwrap_or_else(|error| panic!("{error}")));
        let (history, limits) = (History::default(), Limits::default());
        let case =
            Case { snapshot: &snapshot, expected, history: &history, limits: &limits, gpu_map_certain: true };
        judge(&case).map(|finding| finding.what)
    }

    #[test]
    fn slurm_and_gpuward_must_say_the_same_number() {
        let completed = |expected: Expected, gres, count| expected.completed(gres, known(count));
        assert_eq!(told(&completed(by_file(8), Some(8), 8), false), None);
        assert_eq!(told(&completed(by_file(8), None, 0), false), None, "nothing to compare with");
        assert_eq!(told(&completed(Expected::default(), Some(7), 0), false), None);
        let says = told(&completed(by_file(8), Some(7), 7), false);
        assert_eq!(says.as_deref(), Some("gres.conf names 7 GPUs, gpuward.toml says 8"));
        let says = told(&completed(Expected::default(), Some(7), 8), false);
        assert_eq!(says.as_deref(), Some("gres.conf names 7 GPUs, this node was known to have 8"));
        let slurm = Expected { slurm_conf: Some(56), ..completed(Expected::default(), None, 8) };
        assert_eq!(
            told(&slurm, false).as_deref(),
            Some("slurm.conf names 56 GPUs, this node was known to have 8")
        );
        assert_eq!(told(&slurm, true), None, "instances, not GPUs");
    }

    #[test]
    fn gres_conf_comes_before_what_was_learned_and_configuration_before_both() {
        let count = |expected: Expected| expected.gpu_count.unwrap();
        assert_eq!(count(by_file(4).completed(Some(7), known(8))), (4, "gpuward.toml".to_owned()));
        assert_eq!(count(Expected::default().completed(Some(7), known(8))), (7, "gres.conf".to_owned()));
        assert_eq!(count(Expected::default().completed(None, known(8))), (8, LEARNED.to_owned()));
        assert_eq!(Expected::default().completed(None, Seen::default()).gpu_count, None);
    }

    #[test]
    fn a_model_is_told_by_a_part_of_its_name_and_one_that_was_not_read_is_not_judged() {
        for (model, wanted, fits) in [
            ("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB", true),
            ("NVIDIA A100-SXM4-40GB", "nvidia a100", true),
            ("NVIDIA A100-SXM4-40GB", "A100-SXM4-80GB", false),
            ("NVIDIA H100 NVL", "A100", false),
        ] {
            let mut gpu: ProbedGpu =
                serde_json::from_value(serde_json::json!({ "target": {}, "reading": {} })).unwrap();
            let expected =
                Expected { model: Some((wanted.into(), "gpuward.toml".into())), ..Expected::default() };
            let snapshot = Snapshot::default();
            let (history, limits) = (History::default(), Limits::default());
            let case = Case {
                snapshot: &snapshot,
                expected: &expected,
                history: &history,
                limits: &limits,
                gpu_map_certain: true,
            };
            assert_eq!(judge_gpu(&case, &gpu), None, "not read");
            gpu.reading.model = Reading::Value(model.into());
            assert_eq!(judge_gpu(&case, &gpu).is_none(), fits, "{model} {wanted}");
        }
    }
}
