//! What is said about a gpuward.toml that cannot be used.

use crate::text::escape;
use std::fmt;

/// A configuration that cannot be used: file, line, and what is wrong there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    file: String,
    line: usize,
    message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: {}", self.file, self.line, self.message)
    }
}

impl std::error::Error for ConfigError {}

impl ConfigError {
    pub(super) fn from_toml(error: &toml::de::Error, text: &str, file: &str) -> Self {
        let line = error.span().map_or(1, |span| line_at(text, span.start));
        let plain = error.message().replace('\n', "; ");
        let message = match suggestion(&plain) {
            Some((wrong, nearest)) => {
                format!("unknown key '{}', did you mean '{nearest}'?", escape(wrong, 60))
            }
            None => escape(&plain, 400),
        };
        ConfigError { file: file.to_owned(), line, message }
    }

    /// `message` about what stands at an offset of a file's text.
    pub(super) fn at((file, text, offset): (&str, &str, usize), message: String) -> Self {
        ConfigError { file: file.to_owned(), line: line_at(text, offset), message }
    }

    pub(super) fn range(file: &str, text: &str, key: &str, value: u64, from: u64, to: u64) -> Self {
        let message = format!("{key} = {value}: allowed are {from} to {to}");
        ConfigError { file: file.to_owned(), line: line_of_key(text, key), message }
    }

    pub(super) fn value(file: &str, text: &str, key: &str, value: &str, allowed: &str) -> Self {
        let message = format!("{key} = '{}': allowed is {allowed}", escape(value, 100));
        ConfigError { file: file.to_owned(), line: line_of_key(text, key), message }
    }

    pub(super) fn no_number(file: &str, text: &str, family: &str, key: &str, max: u32) -> Self {
        let shown = escape(key, 60);
        let message = format!("[health.{family}.{shown}]: '{shown}' is no number up to {max}");
        let line = line_containing(text, &format!("health.{family}.{key}"));
        ConfigError { file: file.to_owned(), line, message }
    }

    pub(super) fn unknown_code(file: &str, text: &str, code: &str) -> Self {
        let nearest = nearest(code, crate::health::codes::all_names())
            .map_or_else(String::new, |name| format!(", did you mean '{name}'?"));
        let message = format!("unknown finding code '{}'{nearest}", escape(code, 60));
        ConfigError { file: file.to_owned(), line: line_containing(text, code), message }
    }
}

fn line_at(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|&&byte| byte == b'\n').count() + 1
}

fn line_of_key(text: &str, key: &str) -> usize {
    let is_key = |line: &str| {
        line.trim_start().strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with('='))
    };
    text.lines().position(is_key).map_or(1, |at| at + 1)
}

fn line_containing(text: &str, word: &str) -> usize {
    text.lines().position(|line| line.contains(word)).map_or(1, |at| at + 1)
}

/// The wrong key and the nearest right one, from serde's "unknown field `a`, expected one of `b`, `c`".
fn suggestion(message: &str) -> Option<(&str, &str)> {
    // The wrong key may hold anything, ours hold no such words: so the split is at the last of them.
    let (wrong, expected) = message.strip_prefix("unknown field `")?.rsplit_once("`, expected ")?;
    Some((wrong, nearest(wrong, expected.split('`').skip(1).step_by(2))?))
}

/// The candidate with the smallest edit distance to `wrong`.
pub(crate) fn nearest<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // No name of ours is half as long, and the cost grows with the length.
    let wrong: String = wrong.chars().take(100).collect();
    candidates.into_iter().min_by_key(|candidate| edit_distance(&wrong, candidate))
}

fn edit_distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, to) in b.chars().enumerate() {
            let change = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row.last().copied().unwrap_or(0)
}
