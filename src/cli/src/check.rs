//! `gpuward check`: is this node fit. Looks and tells; drains nothing.

use crate::report::{Coverage, Progress, Report, Style};
use crate::site::NodeArgs;
use crate::{USAGE_ERROR, snapshot};
use gpuward_core::config::Config;
use gpuward_core::health::codes::Runs;
use gpuward_core::health::{Case, Expected, Finding, History, Severity, Subject, coverage, evaluate};
use gpuward_core::model::Snapshot;
use gpuward_core::model::gpu_map::{GpuMap, GpuName};
use gpuward_core::model::snapshot::ProbedGpu;
use gpuward_node::flow::{Inspection, Learned, inspect_node, learn_from};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Takes a full look at this node and says what it found; no job and no GPU is touched.
///
/// The first clean look is remembered as what the node should be (`gpuward status`).
/// Exit code 0: fit. 1: not fit. 2: cannot tell. 64: wrong usage.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    node: NodeArgs,
    /// Read also what is slow or may disturb a job: the InfoROM's check, the pairs of GPUs.
    #[arg(long, conflicts_with = "snapshot")]
    deep: bool,
    /// These GPUs only: numbers in /dev/nvidiaN, PCI addresses or UUIDs. Nothing is remembered then.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    gpus: Vec<GpuName>,
    /// Judge a file that `gpuward snapshot` wrote instead of looking at this node.
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,
    /// Print JSON; docs/check.md describes it.
    #[arg(long)]
    json: bool,
}

/// What a check came to.
struct Judged {
    node: String,
    look: &'static str,
    gpus: Vec<Subject>,
    findings: Vec<Finding>,
    coverage: Coverage,
    expected: Expected,
    config: Config,
    learned: Option<Learned>,
}

/// Checks the node or the file.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    let judged = match &args.snapshot {
        Some(path) => judge_file(path, args.node.config()?.config, &args.gpus)?,
        None => judge_node(args)?,
    };
    let Some(judged) = judged else { return Ok(ExitCode::from(USAGE_ERROR)) };
    let (verdict, code) = verdict(&judged.findings);
    if args.json {
        super::print_json(&json(&judged, verdict, code))?;
    } else {
        let report = Report {
            node: &judged.node,
            verdict,
            gpus: judged.gpus.len(),
            findings: &judged.findings,
            coverage: judged.coverage.clone(),
            config: &judged.config,
        };
        super::print(&(report.text(Style::of_stdout()) + &remembered(&judged)))?;
    }
    Ok(ExitCode::from(code))
}

/// `None` where a GPU was named that is not there, which has been said.
fn judge_node(args: &Args) -> Result<Option<Judged>, String> {
    let site = args.node.site()?;
    let wanted = Inspection { deep: args.deep, gpus: &args.gpus };
    let mut progress = Progress::new();
    let look = inspect_node(&site, wanted, &mut |answered, all| progress.told(answered, all));
    drop(progress);
    let look = match look {
        Ok(look) => look,
        Err(error) => return Ok(unknown_gpu(&error)),
    };
    let learned = args.gpus.is_empty().then(|| learn_from(&site, &look));
    let depth = if args.deep { Runs::Deep } else { Runs::Check };
    let coverage = coverage(&look.snapshot, &look.expected, &site.config, depth);
    Ok(Some(Judged {
        node: site.env.node,
        look: if args.deep { "deep" } else { "full" },
        gpus: look.snapshot.gpus.iter().map(Subject::of).collect(),
        findings: look.findings,
        coverage,
        expected: look.expected,
        config: site.config,
        learned,
    }))
}

/// Without the looks before it: what needs a second look is not certain here. What gpuward.toml says of the node counts
/// before what the file says.
fn judge_file(path: &Path, config: Config, gpus: &[GpuName]) -> Result<Option<Judged>, String> {
    let file = snapshot::read(path)?;
    let targets = file.snapshot.gpus.iter().map(|gpu| gpu.target.clone()).collect();
    let map = match (GpuMap { targets, uncertain: None }).only(gpus) {
        Ok(map) => map,
        Err(error) => return Ok(unknown_gpu(&error)),
    };
    let mut snapshot = file.snapshot;
    snapshot.gpus.retain(|gpu: &ProbedGpu| map.targets.contains(&gpu.target));
    let expected = file.expected.overruled_by(config.expected_for(&file.node).0);
    let (history, limits) = (History::default(), config.limits());
    let case = Case {
        snapshot: &snapshot,
        expected: &expected,
        history: &history,
        limits: &limits,
        gpu_map_certain: true,
    };
    let findings = evaluate(&case);
    let coverage = coverage(&snapshot, &expected, &config, Runs::Deep);
    let gpus = snapshot.gpus.iter().map(Subject::of).collect();
    let node = file.node;
    Ok(Some(Judged { node, look: "snapshot", gpus, findings, coverage, expected, config, learned: None }))
}

fn unknown_gpu(error: &dyn std::error::Error) -> Option<Judged> {
    eprintln!("gpuward: --gpus: {error}");
    None
}

fn coverage(snapshot: &Snapshot, expected: &Expected, config: &Config, depth: Runs) -> Coverage {
    let (history, limits) = (History::default(), config.limits());
    coverage::of(
        &Case { snapshot, expected, history: &history, limits: &limits, gpu_map_certain: true },
        depth,
    )
}

/// The word and the exit code for what was found.
fn verdict(findings: &[Finding]) -> (&'static str, u8) {
    let any = |severity| findings.iter().any(|finding| finding.severity == severity);
    match (any(Severity::Fail), any(Severity::Unknown)) {
        (true, _) => ("fail", 1),
        (false, true) => ("cannot tell", super::CANNOT_TELL),
        (false, false) => ("pass", 0),
    }
}

/// Version of the format that docs/check.md describes.
const JSON_VERSION: u32 = 1;

fn json(judged: &Judged, verdict: &str, code: u8) -> serde_json::Value {
    let with_mode = |finding: &Finding| {
        let mut value = serde_json::json!(finding);
        value["mode"] = judged.config.mode_of(&finding.code).word().into();
        value
    };
    let remembered = judged.learned.as_ref().map(|learned| match learned {
        Learned::Now(file) => serde_json::json!({ "state": "learned", "unix_ms": file.unix_ms }),
        Learned::Before(file) => serde_json::json!({ "state": "known", "unix_ms": file.unix_ms }),
        Learned::Not(why) => serde_json::json!({ "state": "unknown", "why": why }),
    });
    serde_json::json!({
        "gpuward_check": JSON_VERSION,
        "node": judged.node,
        "look": judged.look,
        "verdict": verdict,
        "exit_code": code,
        "gpus": judged.gpus,
        "findings": judged.findings.iter().map(with_mode).collect::<Vec<_>>(),
        "judged": judged.coverage.judged,
        "not_judged": judged.coverage.not_judged,
        "deeper": judged.coverage.deeper,
        "expected": judged.expected,
        "known": remembered,
    })
}

/// What became of the look as the node's known state, where that is news.
fn remembered(judged: &Judged) -> String {
    match &judged.learned {
        Some(Learned::Now(file)) => format!(
            "\nremembered: these {} GPUs are what this node should be from now on; 'gpuward status' shows them\n",
            file.gpus.len()
        ),
        Some(Learned::Not(why)) => format!("\nnot remembered as what this node should be: {why}\n"),
        Some(Learned::Before(_)) | None => String::new(),
    }
}
