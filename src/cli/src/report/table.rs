//! A plain table.

use super::wrap;

/// Rows under headings; each column is as wide as its widest cell, unless the table is to fit a width.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Row>,
    /// Columns whose cells may be broken into lines.
    flexible: Vec<usize>,
    fit: Option<usize>,
}

#[derive(Debug)]
struct Row {
    cells: Vec<String>,
    /// What is written before and after the first cell: a colour takes no room.
    paint: [&'static str; 2],
}

/// A column is not made narrower. Ours: enough for a word.
const NARROWEST: usize = 10;

const BETWEEN: usize = 2;

impl Table {
    /// A table with these headings.
    pub fn new(headings: &[&str]) -> Table {
        let cells = headings.iter().map(ToString::to_string).collect();
        Table { rows: vec![Row { cells, paint: ["", ""] }], flexible: Vec::new(), fit: None }
    }

    /// Makes the table fit a width where that can be done by breaking the cells of these columns into lines.
    pub fn fitting(self, width: usize, flexible: &[usize]) -> Table {
        Table { flexible: flexible.to_vec(), fit: Some(width), ..self }
    }

    /// Adds a row; an empty cell is shown as `-`.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.painted_row(cells, ["", ""]);
    }

    /// Adds a row with a first cell in a colour.
    pub fn painted_row(&mut self, cells: impl IntoIterator<Item = String>, paint: [&'static str; 2]) {
        let shown = |cell: String| if cell.is_empty() { "-".to_owned() } else { cell };
        self.rows.push(Row { cells: cells.into_iter().map(shown).collect(), paint });
    }

    fn widths(&self) -> Vec<usize> {
        let columns = self.rows.iter().map(|row| row.cells.len()).max().unwrap_or(0);
        let width =
            |column: usize| self.rows.iter().filter_map(|row| row.cells.get(column)).map(String::len).max();
        let mut widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
        let Some(fit) = self.fit else { return widths };
        while widths.iter().sum::<usize>() + BETWEEN * columns.saturating_sub(1) > fit {
            let wide = |column: &&usize| widths.get(**column).is_some_and(|&width| width > NARROWEST);
            let Some(&widest) = self.flexible.iter().filter(wide).max_by_key(|&&column| widths[column])
            else {
                break;
            };
            widths[widest] -= 1;
        }
        widths
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let widths = self.widths();
        for row in &self.rows {
            let cells: Vec<Vec<String>> =
                row.cells.iter().zip(&widths).map(|(cell, &width)| wrap(cell, width)).collect();
            let lines = cells.iter().map(Vec::len).max().unwrap_or(0);
            for line in 0..lines {
                let texts = cells.iter().map(|cell| cell.get(line).map_or("", String::as_str));
                let padded: Vec<String> =
                    texts.zip(&widths).map(|(text, &width)| format!("{text:width$}")).collect();
                let text = padded.join(&" ".repeat(BETWEEN));
                let text = text.trim_end();
                let first = padded.first().map_or(0, |cell| cell.trim_end().len()).min(text.len());
                let [before, after] = row.paint;
                writeln!(out, "{before}{}{after}{}", &text[..first], &text[first..])?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_empty_cells_are_dashes() {
        let mut table = Table::new(&["GPU", "STATE"]);
        table.row(["0".into(), "ok".into()]);
        table.row(["10".into(), String::new()]);
        assert_eq!(table.to_string(), "GPU  STATE\n0    ok\n10   -\n");
    }

    #[test]
    fn a_table_fits_by_breaking_its_widest_flexible_column() {
        let mut table = Table::new(&["CODE", "WHAT", "DO"]).fitting(30, &[1]);
        table
            .painted_row(["X1".into(), "a rather long text about a GPU".into(), "reboot".into()], ["<", ">"]);
        let text = table.to_string();
        assert_eq!(
            text,
            "CODE  WHAT              DO\n<X1>    a rather long     reboot\n<>      text about a GPU\n"
        );
        assert!(text.lines().all(|line| line.replace(['<', '>'], "").len() <= 30), "{text}");
        let mut narrow = Table::new(&["CODE", "WHAT"]).fitting(3, &[1]);
        narrow.row(["LONG_NAME".into(), "what cannot fit is still told".into()]);
        assert!(narrow.to_string().contains("LONG_NAME  what"));
    }
}
