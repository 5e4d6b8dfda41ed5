//! Slurm's bracket lists and Linux's CPU lists.

use super::{shown, text};
use gpuward_core::model::{CpuSet, hostlist};

pub const WORDS: &[&str] = &[
    "n[0-9]",
    "[1-3,7]",
    "[0-0]",
    "[",
    "]",
    ",",
    "-",
    "0-8191,",
    "0-3,8",
    "n[08-10]",
    "/dev/nvidia[0-7],",
    "+1",
];

/// No list is longer than promised, neither in names nor in all, and a list of its names gives them again.
pub fn hostlist(data: &[u8]) {
    let list = text(data);
    match hostlist::expand(&list) {
        Err(error) => shown("the error", &error.to_string(), 200),
        Ok(names) => {
            assert!(names.len() <= 65_536);
            let bytes: usize = names.iter().map(String::len).sum();
            assert!(bytes <= 2 * 1024 * 1024, "{bytes} bytes from {}", list.len());
            // A blank inside of a name is no part of the notation: it is cut at the edges of a name only.
            if names
                .iter()
                .all(|name| !name.trim().is_empty() && name.trim() == name && !name.contains([',', '[', ']']))
            {
                assert_eq!(hostlist::expand(&names.join(",")), Ok(names));
            }
        }
    }
}

/// What is shown reads back as the same set, and a set is as large as it says.
pub fn cpu_list(data: &[u8]) {
    let list = text(data);
    match list.parse::<CpuSet>() {
        Err(error) => shown("the error", &error.to_string(), 200),
        Ok(cpus) => {
            assert!(cpus.iter().all(|cpu| cpu <= 8191) && cpus.len() == cpus.iter().count());
            let line = cpus.to_string();
            shown("the list", &line, 8192 * 5);
            assert_eq!(line.parse::<CpuSet>().as_ref(), Ok(&cpus));
            assert_eq!((cpus.intersection(&cpus), cpus.union(&CpuSet::default())), (cpus.clone(), cpus));
        }
    }
}
