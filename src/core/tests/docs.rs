//! The tables in docs/ say what the code does.
#![allow(clippy::tests_outside_test_module)]

use gpuward_core::health::codes;
use std::path::Path;

/// `UPDATE_GOLDEN=1` writes the table anew.
#[test]
fn docs_findings_lists_every_code_with_its_severity_and_remedy() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/findings.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let row = |name: &str| {
        let code = codes::entry(name);
        let severity = format!("{:?}", code.severity).to_ascii_lowercase();
        format!("| {name} | {severity} | {} | {} |\n", code.remedy.word(), code.why)
    };
    let table: String = codes::all_names().filter(|name| !is_xid(name)).map(row).collect();
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

/// XIDs have one row for all of them.
fn is_xid(name: &&str) -> bool {
    name.strip_prefix("XID").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
}

fn begins_with_code(row: &str) -> bool {
    codes::is_known(row.split(' ').next().unwrap_or_default())
}
