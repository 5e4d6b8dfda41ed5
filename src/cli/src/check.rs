//! `gpuward check`: is this node fit. Looks and tells; drains nothing.

use crate::report::Table;
use crate::site::NodeArgs;
use gpuward_core::health::{Finding, Severity};
use gpuward_node::flow::{Look, Site, check_node};
use std::process::ExitCode;

/// Checks this node and says what it found; changes nothing.
///
/// Exit code 0: fit. 1: not fit. 2: cannot tell. 64: wrong usage.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    node: NodeArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Checks the node.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    let site = args.node.site()?;
    let look = check_node(&site);
    let verdict = verdict(&look.findings);
    if args.json {
        let all =
            serde_json::json!({ "node": site.env.node, "verdict": verdict.0, "findings": look.findings });
        super::print_json(&all)?;
    } else {
        super::print(&text(&site, &look, verdict.0))?;
    }
    Ok(ExitCode::from(verdict.1))
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

fn text(site: &Site, look: &Look, verdict: &str) -> String {
    let count = look.snapshot.gpus.len();
    let mut out = format!("node {}: {verdict}, {count} GPUs looked at\n", site.env.node);
    if look.findings.is_empty() {
        return out;
    }
    let mut table = Table::new(&["SEVERITY", "CODE", "SUBJECT", "WHAT", "DO", "MODE"]);
    for finding in &look.findings {
        table.row([
            format!("{:?}", finding.severity).to_ascii_lowercase(),
            finding.code.clone(),
            finding.subject.to_string(),
            finding.what.clone(),
            finding.remedy.word().to_owned(),
            site.config.mode_of(&finding.code).word().to_owned(),
        ]);
    }
    out.push_str(&table.to_string());
    for finding in &look.findings {
        out.push_str(&format!("\n{} {}: {}\n", finding.code, finding.subject, finding.why));
    }
    out
}
