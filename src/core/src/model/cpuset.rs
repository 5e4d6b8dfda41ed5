//! Sets of CPUs and Linux's list notation for them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// Linux allows 8192 CPUs at most (CONFIG_NR_CPUS); a larger number is a broken list.
const MAX_CPU: u32 = 8191;

/// A set of CPUs (hardware threads), shown as the kernel shows it: `0-3,8`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct CpuSet(BTreeSet<u32>);

impl CpuSet {
    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// How many CPUs there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True for the empty set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// CPUs that are in both sets.
    pub fn intersection(&self, other: &CpuSet) -> CpuSet {
        CpuSet(self.0.intersection(&other.0).copied().collect())
    }

    /// CPUs that are in either set.
    pub fn union(&self, other: &CpuSet) -> CpuSet {
        CpuSet(self.0.union(&other.0).copied().collect())
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        CpuSet(cpus.into_iter().collect())
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpus: Vec<u32> = self.iter().collect();
        let mut separator = "";
        for run in cpus.chunk_by(|a, b| a + 1 == *b) {
            match run {
                [only] => write!(out, "{separator}{only}")?,
                [first, .., last] => write!(out, "{separator}{first}-{last}")?,
                [] => {}
            }
            separator = ",";
        }
        Ok(())
    }
}

impl From<CpuSet> for String {
    fn from(cpus: CpuSet) -> String {
        cpus.to_string()
    }
}

impl TryFrom<String> for CpuSet {
    type Error = CpuSetError;

    fn try_from(text: String) -> Result<Self, CpuSetError> {
        text.parse()
    }
}

impl FromStr for CpuSet {
    type Err = CpuSetError;

    /// Reads `0-3,8`; an empty text is the empty set.
    fn from_str(text: &str) -> Result<Self, CpuSetError> {
        let bad = || CpuSetError(crate::text::escape(text, 80));
        let mut ranges = Vec::new();
        for part in text.trim().split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u32, u32) =
                (first.parse().map_err(|_| bad())?, last.parse().map_err(|_| bad())?);
            if first > last || last > MAX_CPU {
                return Err(bad());
            }
            ranges.push((first, last));
        }
        // Every CPU is taken once, however often the list names it.
        ranges.sort_unstable();
        let mut cpus = Vec::new();
        let mut next = 0;
        for (first, last) in ranges {
            cpus.extend(first.max(next)..=last);
            next = next.max(last + 1);
        }
        Ok(CpuSet(cpus.into_iter().collect()))
    }
}

/// A text that is not a CPU list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a CPU list like 0-3,8 with numbers up to {MAX_CPU}")]
pub struct CpuSetError(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_read_back_as_written() {
        for text in ["", "0", "0-3,8", "6,14,22,30", "0-55,112-167"] {
            assert_eq!(text.parse::<CpuSet>().unwrap().to_string(), text);
        }
        assert_eq!("3,1-2, 2\n".parse::<CpuSet>().unwrap().to_string(), "1-3");
    }

    #[test]
    fn broken_lists_are_refused() {
        for text in ["a", "3-1", "-1", "0-8192", "1-2-3"] {
            assert!(text.parse::<CpuSet>().is_err(), "{text}");
        }
    }

    #[test]
    fn sets_meet_and_join() {
        let (a, b): (CpuSet, CpuSet) = ("0-3".parse().unwrap(), "2-5".parse().unwrap());
        assert_eq!(a.intersection(&b).to_string(), "2-3");
        assert_eq!(a.union(&b).to_string(), "0-5");
    }
}
