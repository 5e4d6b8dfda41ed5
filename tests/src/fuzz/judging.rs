//! What is true of the findings about any snapshot.

use super::shown;
use gpuward_core::drain::reason;
use gpuward_core::health::{Case, Expected, Finding, History, Limits, Severity, evaluate, silence};
use gpuward_core::model::snapshot::{HostReading, ProbeOutcome};
use gpuward_core::model::{GpuReading, JobId, NodeReading, Reading, Snapshot};

/// All promises about one snapshot.
pub fn check(snapshot: &Snapshot, expected: &Expected) {
    let history = History {
        silent: silence::remember(snapshot, &[]),
        seen: History::default().seen_after(snapshot),
        ..History::default()
    };
    for history in [History::default(), history] {
        let findings = judged(snapshot, expected, &history);
        reasons_hold(&findings);
        order_is_nothing(snapshot, expected, &history, &findings);
        worse_is_not_better(snapshot, expected, &history, &findings);
    }
    nothing_read_fails_nothing(snapshot, expected);
}

fn judged(snapshot: &Snapshot, expected: &Expected, history: &History) -> Vec<Finding> {
    evaluate(&Case { snapshot, expected, history, limits: &Limits::default(), gpu_map_certain: true })
}

/// Any finding makes a drain reason that Slurm keeps whole, on one line, and the worst comes first.
fn reasons_hold(findings: &[Finding]) {
    assert!(findings.is_sorted_by(|one, next| one.severity >= next.severity));
    for finding in findings {
        let reason = reason(finding, Some(JobId(u32::MAX)), "ab12cd");
        shown("the reason", &reason, 255);
        assert!(reason.starts_with("gpuward:") && reason.ends_with(" id=ab12cd"), "{reason}");
        let json = serde_json::to_string(finding).unwrap_or_default();
        assert_eq!(serde_json::from_str::<Finding>(&json).ok().as_ref(), Some(finding));
    }
}

/// The same GPUs in another order have the same findings.
fn order_is_nothing(snapshot: &Snapshot, expected: &Expected, history: &History, findings: &[Finding]) {
    let mut turned = snapshot.clone();
    turned.gpus.reverse();
    let middle = turned.gpus.len() / 2;
    turned.gpus.rotate_left(middle);
    turned.host.driver_gpus.reverse();
    assert_eq!(sorted(&judged(&turned, expected, history)), sorted(findings));
}

fn sorted(findings: &[Finding]) -> Vec<String> {
    let mut all: Vec<String> = findings.iter().map(|finding| format!("{finding:?}")).collect();
    all.sort();
    all
}

/// A GPU that is lost while it is read is never the better for it: what failed before still fails.
fn worse_is_not_better(snapshot: &Snapshot, expected: &Expected, history: &History, findings: &[Finding]) {
    if findings.first().is_none_or(|worst| worst.severity != Severity::Fail) {
        return;
    }
    // A real GPU that was opened has told all that follows; only such readings can turn into others.
    for at in 0..snapshot.gpus.len().min(8) {
        if snapshot.gpus[at].reading.handle != Reading::Value(()) {
            continue;
        }
        for lose in LOSSES {
            let mut worse = snapshot.clone();
            if !lose(&mut worse.gpus[at].reading) {
                continue;
            }
            let after = judged(&worse, expected, history);
            let fails = after.first().is_some_and(|worst| worst.severity == Severity::Fail);
            assert!(fails, "no fault any more once GPU {at} has lost a reading: {findings:?} {after:?}");
        }
    }
}

/// Each makes one value of a GPU Lost; false where there was none.
const LOSSES: &[fn(&mut GpuReading) -> bool] = &[
    |gpu| lose(&mut gpu.pci),
    |gpu| lose(&mut gpu.uuid),
    |gpu| lose(&mut gpu.mig_uuid),
    |gpu| lose(&mut gpu.minor),
    |gpu| lose(&mut gpu.serial),
    |gpu| lose(&mut gpu.recovery_action),
    |gpu| lose(&mut gpu.remap_failed),
    |gpu| lose(&mut gpu.counters.ecc_volatile_uncorr),
    |gpu| lose(&mut gpu.counters.energy_mj),
];

fn lose<T>(reading: &mut Reading<T>) -> bool {
    let was_value = reading.value().is_some();
    if was_value {
        *reading = Reading::Lost;
    }
    was_value
}

/// Whatever a node should be: where nothing could be read, nothing is held against it.
fn nothing_read_fails_nothing(snapshot: &Snapshot, expected: &Expected) {
    let mut blank = Snapshot { host: HostReading::default(), log: Default::default(), ..snapshot.clone() };
    blank.node = NodeReading { library_error: snapshot.node.library_error.clone(), ..NodeReading::default() };
    if matches!(blank.probe, ProbeOutcome::Blocked { .. }) {
        blank.probe = ProbeOutcome::Busy;
    }
    for handle in [Reading::NotRead, Reading::NotSupported, Reading::NoPermission, Reading::TimedOut] {
        for gpu in &mut blank.gpus {
            gpu.reading = GpuReading { handle, ..GpuReading::default() };
        }
        blank.node.nvml = handle;
        let findings = judged(&blank, expected, &History::default());
        assert!(findings.iter().all(|finding| finding.severity < Severity::Fail), "{handle:?}: {findings:?}");
    }
}
