//! NCCL's environment: which of the user's variables do nothing, because nobody reads them.
//!
//! `variables.tsv` lists every variable that NCCL, its plugins or PyTorch read, with the releases that do, collected
//! from their sources.

use std::sync::LazyLock;

/// What is known about one variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// The last NCCL release that reads it; `current` where the newest does.
    pub last_version: &'static str,
    /// current, deprecated, never-existed and others: who reads it, if anybody.
    pub status: &'static str,
    /// More about it.
    pub note: &'static str,
}

static VARIABLES: LazyLock<Vec<Variable>> =
    LazyLock::new(|| include_str!("variables.tsv").lines().skip(1).filter_map(parse_row).collect());

fn parse_row(line: &'static str) -> Option<Variable> {
    let cells: Vec<&'static str> = line.split('\t').collect();
    let &[name, _first, last_version, _default, status, note] = &cells[..] else { return None };
    Some(Variable { name, last_version, status, note })
}

/// All variables, in the order of their names.
pub fn variables() -> &'static [Variable] {
    &VARIABLES
}

/// One remark about a variable that the user set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// The variable.
    pub name: String,
    /// What is wrong with it, in one line.
    pub what: String,
}

/// Remarks about those of `names` that begin with `NCCL_` and have no effect.
pub fn lint<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<Remark> {
    let ours = names.into_iter().filter(|name| name.starts_with("NCCL_"));
    ours.filter_map(|name| remark(name).map(|what| Remark { name: crate::text::escape(name, 80), what }))
        .collect()
}

fn remark(name: &str) -> Option<String> {
    let Some(known) = variables().iter().find(|variable| variable.name == name) else {
        let nearest = crate::config::nearest(
            name,
            variables().iter().filter(|v| v.status == "current").map(|v| v.name),
        );
        return Some(format!("no such variable; the nearest that exists is {}", nearest.unwrap_or("-")));
    };
    match known.status {
        "never-existed" => Some(format!("this variable never existed; {}", known.note)),
        "deprecated" if known.last_version != "current" && known.last_version != "-" => {
            Some(format!("not read by NCCL newer than {}", known.last_version))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_whole() {
        assert_eq!(variables().len(), include_str!("variables.tsv").lines().count() - 1);
        assert!(variables().len() > 300);
    }

    #[test]
    fn what_nobody_reads_is_said_and_what_is_read_is_not() {
        let remarks =
            lint(["NCCL_DEBUG", "NCCL_BUFFER_SIZE", "NCCL_IB_HAC", "PATH", "NCCL_AGG_CHANNEL_SIZE"]);
        let names: Vec<&str> = remarks.iter().map(|remark| remark.name.as_str()).collect();
        assert_eq!(names, ["NCCL_BUFFER_SIZE", "NCCL_IB_HAC", "NCCL_AGG_CHANNEL_SIZE"]);
        assert!(remarks[0].what.contains("NCCL_BUFFSIZE"), "{remarks:?}");
        assert!(remarks[1].what.contains("NCCL_IB_HCA"), "{remarks:?}");
        assert!(remarks[2].what.contains("2.19.4"), "{remarks:?}");
    }
}
