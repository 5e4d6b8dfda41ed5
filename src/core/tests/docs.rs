//! The tables in docs/ say what the code does.
#![allow(clippy::tests_outside_test_module)]

use gpuward_core::health::codes;
use std::path::Path;

/// `UPDATE_GOLDEN=1` writes the table anew.
#[test]
fn docs_findings_lists_every_code_with_its_severity_and_remedy() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/findings.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let row = |code: &codes::Code| {
        let codes::Code { name, severity, remedy, runs, cost, limit, guard, why, .. } = code;
        let (severity, remedy, runs) = (severity.word(), remedy.word(), runs.word());
        format!("| {name} | {severity} | {remedy} | {runs} | {limit} | {guard} | {cost} | {why} |\n")
    };
    let table: String = codes::all().map(row).collect();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let is_row = |line: &&str| line.strip_prefix("| ").is_some_and(begins_with_code);
        let kept: Vec<&str> = text.lines().filter(|line| !is_row(line)).collect();
        let at = kept.iter().position(|line| line.starts_with("|---")).unwrap() + 1;
        let text = format!("{}\n{table}{}\n", kept[..at].join("\n"), kept[at..].join("\n"));
        std::fs::write(&path, text).unwrap();
        return;
    }
    assert!(text.contains(&table), "docs/findings.md is not up to date; UPDATE_GOLDEN=1 writes:\n{table}");
}

fn begins_with_code(row: &str) -> bool {
    codes::all().any(|code| row.split(' ').next() == Some(code.name))
}
