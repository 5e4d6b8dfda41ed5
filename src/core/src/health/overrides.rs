//! What a site says in the place of a catalogue row.
//!
//! Single rows stand in gpuward.toml (`[health.xid.79] action = "warn"`), whole tables in a file with the catalogue's own
//! columns. A row that cannot be used is told with file and line, and the others count all the same.

use super::action::{self, Action};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// No table of a site has more lines.
const MAX_LINES: usize = 10_000;
/// So many complaints about one file are told.
const MAX_COMPLAINTS: usize = 20;

/// The site's actions by number.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Overrides {
    /// XIDs.
    pub xid: BTreeMap<u32, Action>,
    /// SXids.
    pub sxid: BTreeMap<u32, Action>,
}

/// The rows of a site's catalogue: tab-separated, a header line that names the columns, of which `key` (`xid` or `sxid`)
/// and `action` are needed. The second value says what cannot be used, one line each, with file and line.
pub fn parse_table(
    text: &str,
    key: &str,
    max_number: u32,
    file: &str,
) -> (BTreeMap<u32, Action>, Vec<String>) {
    let mut rows = BTreeMap::new();
    let mut complaints = Vec::new();
    let mut lines = text.lines().enumerate().take(MAX_LINES);
    let header: Vec<&str> =
        lines.next().map(|(_, line)| line.split('\t').map(str::trim).collect()).unwrap_or_default();
    let column = |name: &str| header.iter().position(|cell| *cell == name);
    let (Some(number_at), Some(action_at)) = (column(key), column("action")) else {
        let missing = if column(key).is_none() { key } else { "action" };
        complaints.push(format!("{file}:1: column '{missing}' is missing; the file is not used"));
        return (rows, complaints);
    };
    for (at, line) in lines {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let cells: Vec<&str> = line.split('\t').map(str::trim).collect();
        match parse_row(&cells, header.len(), (number_at, action_at), (key, max_number)) {
            Ok((number, action)) => drop(rows.insert(number, action)),
            Err(why) if complaints.len() < MAX_COMPLAINTS => {
                complaints.push(format!("{file}:{}: {why}; the line is not used", at + 1));
            }
            Err(_) => {}
        }
    }
    (rows, complaints)
}

fn parse_row(
    cells: &[&str],
    columns: usize,
    (number_at, action_at): (usize, usize),
    (key, max_number): (&str, u32),
) -> Result<(u32, Action), String> {
    if cells.len() != columns {
        return Err(format!("{} columns, the header names {columns}", cells.len()));
    }
    let cell = |at: usize| cells.get(at).copied().unwrap_or_default();
    let number = cell(number_at).parse().ok().filter(|&number| number <= max_number);
    let number = number.ok_or_else(|| {
        format!("{key} '{}' is no number up to {max_number}", crate::text::escape(cell(number_at), 40))
    })?;
    let action = Action::parse(cell(action_at)).ok_or_else(|| action::unknown(cell(action_at)))?;
    Ok((number, action))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_line_is_told_and_the_rest_counts() {
        let text = "xid\tmeaning\taction\n79\tlost\twarn\n48\tDBE\texplode\nx\ty\twarn\n13\twarn\n\n# why\n31\tz\tdrain-rma\n";
        let (rows, complaints) = parse_table(text, "xid", 9999, "xid.tsv");
        assert_eq!(rows, BTreeMap::from([(79, Action::Warn), (31, Action::DrainRma)]));
        assert_eq!(complaints.len(), 3);
        assert!(complaints[0].starts_with("xid.tsv:3: unknown action 'explode', allowed are ignore, info, "));
        assert!(complaints[1].starts_with("xid.tsv:4: xid 'x' is no number up to 9999"));
        assert!(complaints[2].starts_with("xid.tsv:5: 2 columns, the header names 3"));
    }

    #[test]
    fn a_table_without_a_column_that_is_needed_is_not_used() {
        for (text, missing) in
            [("xid\tmeaning\n79\tx\n", "action"), ("number\taction\n79\twarn\n", "xid"), ("", "xid")]
        {
            let (rows, complaints) = parse_table(text, "xid", 9999, "f");
            assert!(rows.is_empty());
            assert_eq!(complaints, [format!("f:1: column '{missing}' is missing; the file is not used")]);
        }
    }

    #[test]
    fn the_built_in_catalogues_are_valid_tables_of_a_site() {
        for (text, key, rows) in
            [(include_str!("xid/catalog.tsv"), "xid", 176), (include_str!("sxid/catalog.tsv"), "sxid", 420)]
        {
            let (table, complaints) = parse_table(text, key, 99_999, key);
            assert_eq!((table.len(), complaints), (rows, Vec::new()));
        }
    }

    #[test]
    fn complaints_are_bounded() {
        let text = format!("xid\taction\n{}", "1\tx\n".repeat(1000));
        assert_eq!(parse_table(&text, "xid", 9999, "f").1.len(), MAX_COMPLAINTS);
    }
}
