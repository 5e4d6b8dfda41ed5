//! The kernel log out of the journal, where /dev/kmsg cannot be opened.
//!
//! journalctl is a program, so this is for admins at a terminal only: a prolog starts none.

use crate::EdgeError;
use crate::clock::Deadline;
use crate::process::run_bytes;
use gpuward_core::health::kernel_log::export::{self, Entry};
use std::path::Path;

/// The newest entries that are read, and how much they may take: an entry is some 300 bytes long. Ours.
const NEWEST: &str = "10000";
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// Hands every kernel record of this boot behind `cursor` to `each`, oldest first; returns the cursor behind the last.
///
/// # Errors
/// journalctl does not start, fails, prints too much, or takes longer than the deadline.
pub fn read_since(
    journalctl: &Path,
    cursor: Option<&str>,
    deadline: Deadline,
    mut each: impl FnMut(&Entry),
) -> Result<Option<String>, EdgeError> {
    let fields = "--output-fields=MESSAGE,SYSLOG_FACILITY,_TRANSPORT,_SOURCE_MONOTONIC_TIMESTAMP";
    let after = cursor.map(|cursor| format!("--after-cursor={cursor}"));
    let mut args =
        vec!["--dmesg", "--boot", "--quiet", "--no-pager", "--output=export", fields, "--lines", NEWEST];
    args.extend(after.as_deref());
    let (success, bytes) = run_bytes(journalctl, &args, &[("LC_ALL", "C")], MAX_BYTES, deadline)?;
    if !success {
        let program = journalctl.display().to_string();
        return Err(EdgeError::Program { program, why: "failed".into() });
    }
    let mut last = cursor.map(ToOwned::to_owned);
    export::read(&bytes, |entry| {
        if !entry.cursor.is_empty() {
            last = Some(entry.cursor.clone());
        }
        each(&entry);
    });
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn script(text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journalctl");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        (folder, path)
    }

    #[test]
    fn entries_behind_the_cursor_are_asked_for_and_the_last_cursor_is_kept() {
        let (folder, path) = script(
            "echo \"$*\" > ${0%/*}/args\nprintf '__CURSOR=s=1;i=2\\n_TRANSPORT=kernel\\nSYSLOG_FACILITY=0\\nMESSAGE=NVRM: x\\n\\n'",
        );
        let mut seen = Vec::new();
        let deadline = Deadline::in_ms(5000);
        let last =
            read_since(&path, Some("s=1;i=1"), deadline, |entry| seen.push(entry.message.clone())).unwrap();
        assert_eq!((seen, last.as_deref()), (vec!["NVRM: x".to_owned()], Some("s=1;i=2")));
        let args = std::fs::read_to_string(folder.path().join("args")).unwrap();
        assert!(
            args.contains("--output=export") && args.trim_end().ends_with("--after-cursor=s=1;i=1"),
            "{args}"
        );
    }

    #[test]
    fn a_journalctl_that_fails_hangs_or_is_missing_is_an_error() {
        for text in ["exit 1", "exec sleep 30"] {
            let (_folder, path) = script(text);
            assert!(read_since(&path, None, Deadline::in_ms(300), |_| {}).is_err(), "{text}");
        }
        assert!(read_since(Path::new("/no/such/program"), None, Deadline::in_ms(300), |_| {}).is_err());
    }
}
