//! What depends on where the text goes: colours, width, progress.

use std::io::{IsTerminal, Write};

/// How text is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Columns.
    pub width: usize,
    /// Whether words may have colours.
    pub colours: bool,
}

/// Columns where nobody says how many there are: a log, a file, a mail.
const PLAIN_WIDTH: usize = 100;

impl Style {
    /// For a file or a pipe.
    pub const PLAIN: Style = Style { width: PLAIN_WIDTH, colours: false };

    /// For standard output as it is. NO_COLOR with any value turns colours off (no-color.org).
    pub fn of_stdout() -> Style {
        if !std::io::stdout().is_terminal() {
            return Style::PLAIN;
        }
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        // Narrower than 60 no table of ours can be read; wider than 120 no text can.
        let width = gpuward_node::terminal::columns().unwrap_or(80).clamp(60, 120);
        Style { width, colours: !refused && !dumb }
    }

    /// What goes before and after a verdict's or a severity's word.
    pub fn paint(self, word: &str) -> [&'static str; 2] {
        let before = match word {
            _ if !self.colours => return ["", ""],
            "fail" => "\x1b[1;31m",
            "warn" => "\x1b[33m",
            "unknown" | "cannot tell" => "\x1b[35m",
            "pass" => "\x1b[32m",
            _ => return ["", ""],
        };
        [before, "\x1b[0m"]
    }
}

/// One line on a terminal's standard error that says how far a look is; elsewhere nothing.
#[derive(Debug)]
pub struct Progress {
    shown: bool,
}

impl Progress {
    /// Nothing is shown yet.
    pub fn new() -> Progress {
        Progress { shown: false }
    }

    /// So many of so many GPUs have answered.
    pub fn told(&mut self, answered: usize, all: usize) {
        let mut out = std::io::stderr();
        if out.is_terminal() {
            self.shown = true;
            // A line that cannot be shown is not worth a word.
            let _ = write!(out, "\r\x1b[Kgpuward: {answered} of {all} GPUs have answered ...");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_style_with_colours_paints() {
        let coloured = Style { colours: true, ..Style::PLAIN };
        assert_eq!(coloured.paint("fail"), ["\x1b[1;31m", "\x1b[0m"]);
        assert_eq!((coloured.paint("info"), Style::PLAIN.paint("fail")), (["", ""], ["", ""]));
    }
}
