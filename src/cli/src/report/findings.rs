//! What a check found, for people: one line for each finding, then what each means, then what could not be judged.

use super::{Style, Table, wrap};
use gpuward_core::config::Config;
use gpuward_core::health::{Finding, Severity, Subject, coverage};
use std::fmt::Write;

/// Everything that is told.
#[derive(Debug)]
pub struct Report<'a> {
    /// Slurm's name of the node.
    pub node: &'a str,
    /// pass, fail or cannot tell.
    pub verdict: &'a str,
    /// How many GPUs were looked at.
    pub gpus: usize,
    /// What was found.
    pub findings: &'a [Finding],
    /// What could be judged.
    pub coverage: Coverage,
    /// The modes.
    pub config: &'a Config,
}

/// What could be judged.
pub type Coverage = coverage::Coverage;

/// From here on a table has room for PCI addresses.
const ROOMY: usize = 100;

impl Report<'_> {
    /// The text.
    pub fn text(&self, style: Style) -> String {
        let mut out = self.heading(style);
        if !self.findings.is_empty() {
            let _ = write!(out, "\n{}", self.table(style));
            self.details(&mut out, style);
        }
        self.not_judged(&mut out, style);
        out
    }

    fn heading(&self, style: Style) -> String {
        let node = gpuward_core::text::escape(self.node, 64);
        let [before, after] = style.paint(self.verdict);
        let gpus = count(self.gpus, "GPU");
        let judged = count(self.coverage.judged.len(), "rule");
        let mut missing: Vec<&str> = self.coverage.not_judged.iter().map(|one| one.code).collect();
        // The reasons of one code stand together.
        missing.dedup();
        let missing = match missing.len() {
            0 => String::new(),
            other => format!(", {other} could not be judged"),
        };
        format!("node {node}: {before}{}{after}, {gpus} looked at, {judged} judged{missing}\n", self.verdict)
    }

    fn table(&self, style: Style) -> Table {
        let headings = ["VERDICT", "CODE", "WHERE", "WHAT", "VALUE", "LIMIT", "DO"];
        let mut table = Table::new(&headings).fitting(style.width, &[3, 4, 5]);
        for finding in self.findings {
            let word = finding.severity.word();
            let cells = [
                word.to_owned(),
                finding.code.clone(),
                place(&finding.subject, style.width >= ROOMY),
                finding.what.clone(),
                finding.value.clone().unwrap_or_default(),
                finding.limit.clone().unwrap_or_default(),
                finding.remedy.word().to_owned(),
            ];
            table.painted_row(cells, style.paint(word));
        }
        table
    }

    /// Meaning and origin, once for what several GPUs have in common.
    fn details(&self, out: &mut String, style: Style) {
        let mut told: Vec<(&Finding, Vec<String>)> = Vec::new();
        for finding in self.findings {
            let same = |(other, _): &&mut (&Finding, Vec<String>)| {
                (&other.code, &other.why, &other.source, other.remedy, other.severity)
                    == (&finding.code, &finding.why, &finding.source, finding.remedy, finding.severity)
            };
            match told.iter_mut().find(same) {
                Some((_, subjects)) => subjects.push(finding.subject.to_string()),
                None => told.push((finding, vec![finding.subject.to_string()])),
            }
        }
        for (finding, subjects) in told {
            let _ = writeln!(out, "\n{} on {}", finding.code, subjects.join(", "));
            indented(out, &finding.why, style);
            let acts = match (finding.severity, self.config.mode_of(&finding.code).word()) {
                (Severity::Fail, "drain") => {
                    "a job would be refused and the node drained (mode drain)".to_owned()
                }
                (Severity::Fail, "comment") => {
                    "a job would go on, its user be told (mode comment)".to_owned()
                }
                (Severity::Fail, mode) => format!("a job would go on (mode {mode})"),
                (severity, _) => format!("a job would go on ({} never refuses one)", severity.word()),
            };
            indented(
                out,
                &format!("do: {}; {acts}; read from: {}", finding.remedy.word(), finding.source),
                style,
            );
        }
    }

    fn not_judged(&self, out: &mut String, style: Style) {
        let mut reasons: Vec<(&str, String, Vec<&str>)> = Vec::new();
        for one in &self.coverage.not_judged {
            let gpus: Vec<String> = one.gpus.iter().map(|subject| place(subject, false)).collect();
            let gpus = gpus.join(", ");
            match reasons.iter_mut().find(|(why, on, _)| *why == one.why && *on == gpus) {
                Some((_, _, codes)) => codes.push(one.code),
                None => reasons.push((&one.why, gpus, vec![one.code])),
            }
        }
        if !reasons.is_empty() {
            out.push_str("\nnot judged:\n");
        }
        for (why, gpus, codes) in reasons {
            let on = if gpus.is_empty() { String::new() } else { format!(" on {gpus}") };
            indented(out, &format!("{}{on}: {why}", codes.join(", ")), style);
        }
        if !self.coverage.deeper.is_empty() {
            let deeper = self.coverage.deeper.join(", ");
            indented(out, &format!("{deeper}: only with --deep"), style);
        }
    }
}

/// `GPU3`, with its address where there is room.
fn place(subject: &Subject, roomy: bool) -> String {
    match subject {
        Subject::Gpu { slot: Some(slot), pci: Some(pci), .. } if roomy => format!("GPU{slot} {pci}"),
        Subject::Gpu { slot: Some(slot), .. } => format!("GPU{slot}"),
        Subject::Gpu { pci: Some(pci), .. } => pci.to_string(),
        other => other.to_string(),
    }
}

fn indented(out: &mut String, text: &str, style: Style) {
    for line in wrap(text, style.width.saturating_sub(2)) {
        let _ = writeln!(out, "  {line}");
    }
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuward_core::health::Remedy;

    fn finding(what: &str) -> Finding {
        Finding {
            code: "GPU_MISS_PCI".into(),
            severity: Severity::Warn,
            subject: Subject::Gpu {
                slot: Some(12),
                pci: "0000:5f:00.0".parse().ok(),
                uuid: "GPU-f5d21264-d72c-4106-c12f-20bd9faed9f6".parse().ok(),
            },
            what: what.into(),
            value: Some("1234567 mW of what it draws".into()),
            limit: Some("90 % of the default".into()),
            source: "NVML fields 189 and 190 as the driver tells them".into(),
            why: "a long explanation ".repeat(12),
            remedy: Remedy::Reboot,
        }
    }

    #[test]
    fn every_line_fits_80_and_100_columns_and_names_the_gpu() {
        let findings = [finding("the power limit in force is far below the default one"), finding("short")];
        let mut coverage = Coverage { judged: vec!["XID79"], deeper: vec!["P2P"], ..Coverage::default() };
        coverage.not_judged = (0..9)
            .map(|at| coverage::NotJudged {
                code: "ECC_UNCORR",
                gpus: vec![findings[0].subject.clone(); at],
                why: "no permission to read ECC errors".into(),
            })
            .collect();
        let config = Config::default();
        let report =
            Report { node: "n1", verdict: "pass", gpus: 8, findings: &findings, coverage, config: &config };
        for width in [80, 100] {
            let text = report.text(Style { width, colours: false });
            assert!(text.lines().all(|line| line.len() <= width), "{width}:\n{text}");
            assert!(text.contains("GPU12") && text.contains("1 could not be judged"), "{text}");
            assert!(text.contains("P2P: only with --deep"), "{text}");
        }
        let coloured = report.text(Style { width: 80, colours: true });
        assert!(
            coloured.contains("\x1b[33mwarn\x1b[0m") && coloured.contains("\x1b[32mpass\x1b[0m"),
            "{coloured}"
        );
    }
}
