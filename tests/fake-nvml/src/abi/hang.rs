//! Calls that never return.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Hangs the calling thread. With a freezer cgroup (version 1) the whole process enters it and freezes it, which
/// makes it deaf to SIGKILL until somebody thaws the group: the nearest thing to a driver call in D state.
pub(super) fn forever(freezer: Option<&Path>) -> ! {
    if let Some(group) = freezer {
        let pid = std::process::id().to_string();
        let frozen = fs::write(group.join("cgroup.procs"), pid)
            .and_then(|()| fs::write(group.join("freezer.state"), "FROZEN"));
        if let Err(error) = frozen {
            eprintln!("fake-nvml: cannot freeze in {}: {error}; hanging killable", group.display());
        }
    }
    loop {
        thread::sleep(Duration::from_secs(3600));
    }
}
