//! `gpuward check`: is this node fit. Looks and tells; drains nothing.

use crate::report::Table;
use crate::site::NodeArgs;
use crate::snapshot;
use gpuward_core::config::Config;
use gpuward_core::health::{Case, Finding, History, Severity, evaluate};
use gpuward_node::flow::check_node;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Checks this node and says what it found; changes nothing.
///
/// Exit code 0: fit. 1: not fit. 2: cannot tell. 64: wrong usage.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    node: NodeArgs,
    /// Judge a file that `gpuward snapshot` wrote instead of looking at this node.
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What a check came to.
struct Judged {
    node: String,
    gpus: usize,
    findings: Vec<Finding>,
    config: Config,
}

/// Checks the node or the file.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    let judged = match &args.snapshot {
        Some(path) => judge_file(path, args.node.config()?.config)?,
        None => {
            let site = args.node.site()?;
            let look = check_node(&site);
            Judged {
                node: site.env.node,
                gpus: look.snapshot.gpus.len(),
                findings: look.findings,
                config: site.config,
            }
        }
    };
    let verdict = verdict(&judged.findings);
    if args.json {
        let all =
            serde_json::json!({ "node": judged.node, "verdict": verdict.0, "findings": judged.findings });
        super::print_json(&all)?;
    } else {
        super::print(&text(&judged, verdict.0))?;
    }
    Ok(ExitCode::from(verdict.1))
}

/// Without the looks before it: what needs a second look is not certain here.
fn judge_file(path: &Path, config: Config) -> Result<Judged, String> {
    let file = snapshot::read(path)?;
    let findings = evaluate(&Case {
        snapshot: &file.snapshot,
        expected: &file.expected,
        history: &History::default(),
        limits: &config.limits(),
        gpu_map_certain: true,
    });
    Ok(Judged { node: file.node, gpus: file.snapshot.gpus.len(), findings, config })
}

/// The word and the exit code for what was found.
fn verdict(findings: &[Finding]) -> (&'static str, u8) {
    let any = |severity| findings.iter().any(|finding| finding.severity == severity);
    match (any(Severity::Fail), any(Severity::Unknown)) {
        (true, _) => ("fail", 1),
        (false, true) => ("cannot tell", 2),
        (false, false) => ("pass", 0),
    }
}

fn text(judged: &Judged, verdict: &str) -> String {
    let node = gpuward_core::text::escape(&judged.node, 64);
    let mut out = format!("node {node}: {verdict}, {} GPUs looked at\n", judged.gpus);
    if judged.findings.is_empty() {
        return out;
    }
    let mut table = Table::new(&["SEVERITY", "CODE", "SUBJECT", "WHAT", "DO", "MODE"]);
    for finding in &judged.findings {
        table.row([
            format!("{:?}", finding.severity).to_ascii_lowercase(),
            finding.code.clone(),
            finding.subject.to_string(),
            finding.what.clone(),
            finding.remedy.word().to_owned(),
            judged.config.mode_of(&finding.code).word().to_owned(),
        ]);
    }
    out.push_str(&table.to_string());
    for finding in &judged.findings {
        out.push_str(&format!("\n{} {}: {}\n", finding.code, finding.subject, finding.why));
    }
    out
}
