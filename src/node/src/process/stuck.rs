//! Where a task that waits in the kernel is stuck, and whether a GPU has to do with it.

use crate::files::read_text;
use gpuward_core::health::kernel_log::open::Client;
use std::fs;
use std::path::Path;

/// What became of a task that the kernel reported as blocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stuck {
    /// It goes on, is gone, or its number is another task's now.
    NoMore,
    /// It still waits; `None` where nobody can tell for what.
    Still(Option<Client>),
}

/// Kernel stacks and process files are short.
const MAX_BYTES: u64 = 64 * 1024;

/// The kernel's USER_HZ, which is 100 on every architecture with NVIDIA's driver (x86_64, aarch64, ppc64le).
const TICKS_PER_S: u64 = 100;

/// Looks at task `pid` below `procfs` (/proc), which the kernel reported `reported_usec` after boot.
pub fn look_at(procfs: &Path, pid: u32, reported_usec: u64) -> Stuck {
    let own = procfs.join(pid.to_string());
    let Some((state, start_ticks)) = state_of(&own) else { return Stuck::NoMore };
    let is_later_one = start_ticks / TICKS_PER_S > reported_usec / 1_000_000 + 1;
    if state != "D" || is_later_one {
        return Stuck::NoMore;
    }
    let Some(in_driver) = is_in_driver(&own) else { return Stuck::Still(None) };
    if in_driver {
        return Stuck::Still(Some(Client::InDriver));
    }
    Stuck::Still(holds_gpu(&own).map(|holds| if holds { Client::HoldsGpu } else { Client::No }))
}

fn state_of(own: &Path) -> Option<(String, u64)> {
    let stat = read_text(&own.join("stat"), MAX_BYTES).ok()?;
    // The name in parentheses may hold anything, blanks and parentheses too.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?.to_owned();
    Some((state, fields.nth(18)?.parse().ok()?))
}

/// By the kernel stack, which names modules; where that is not to be had by the function it waits in.
fn is_in_driver(own: &Path) -> Option<bool> {
    if let Ok(stack) = read_text(&own.join("stack"), MAX_BYTES) {
        if !stack.trim().is_empty() {
            return Some(stack.contains("[nvidia"));
        }
    }
    let function = read_text(&own.join("wchan"), MAX_BYTES).ok()?;
    let function = function.trim();
    let is_known = !function.is_empty() && function != "0";
    is_known.then(|| ["nv_", "nvidia_", "os_", "rm_", "uvm_"].iter().any(|start| function.starts_with(start)))
}

fn holds_gpu(own: &Path) -> Option<bool> {
    let open = fs::read_dir(own.join("fd")).ok()?;
    let mut targets = open.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    Some(targets.any(|target| target.to_string_lossy().starts_with("/dev/nvidia")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn task(state: &str, start_ticks: u64) -> tempfile::TempDir {
        let procfs = tempfile::tempdir().unwrap();
        let own = procfs.path().join("7");
        fs::create_dir_all(own.join("fd")).unwrap();
        let zeros = "0 ".repeat(18);
        fs::write(own.join("stat"), format!("7 (a) b) {state} {zeros}{start_ticks} 0")).unwrap();
        procfs
    }

    fn write(procfs: &tempfile::TempDir, name: &str, text: &str) {
        fs::write(procfs.path().join("7").join(name), text).unwrap();
    }

    const REPORTED: u64 = 500_000_000;

    #[test]
    fn the_stack_says_whether_a_task_is_stuck_in_the_driver() {
        let procfs = task("D", 100);
        let look = || look_at(procfs.path(), 7, REPORTED);
        assert_eq!(look(), Stuck::Still(None), "neither stack nor function");
        write(&procfs, "wchan", "0");
        assert_eq!(look(), Stuck::Still(None));
        write(&procfs, "stack", "[<0>] rpc_wait_bit_killable+0x1e/0xb0 [sunrpc]\n");
        assert_eq!(look(), Stuck::Still(Some(Client::No)));
        symlink("/dev/nvidia3", procfs.path().join("7/fd/5")).unwrap();
        assert_eq!(look(), Stuck::Still(Some(Client::HoldsGpu)), "waits for a file server");
        write(&procfs, "stack", "[<0>] os_acquire_mutex+0x3c/0x50 [nvidia]\n[<0>] do_syscall_64\n");
        assert_eq!(look(), Stuck::Still(Some(Client::InDriver)));
        write(&procfs, "stack", "");
        write(&procfs, "wchan", "uvm_spin_loop");
        assert_eq!(look(), Stuck::Still(Some(Client::InDriver)));
    }

    #[test]
    fn a_task_that_goes_on_is_gone_or_came_later_is_no_longer_stuck() {
        let procfs = task("S", 100);
        assert_eq!(look_at(procfs.path(), 7, REPORTED), Stuck::NoMore);
        assert_eq!(look_at(procfs.path(), 8, REPORTED), Stuck::NoMore);
        let reused = task("D", 100 * 600);
        assert_eq!(look_at(reused.path(), 7, REPORTED), Stuck::NoMore);
    }
}
