//! Loaded and unloaded again and again, beside another thread, and under valgrind.
#![allow(clippy::tests_outside_test_module, reason = "the whole file is a test")]
#![allow(clippy::disallowed_methods, reason = "the test starts programs, not the plugin")]

mod common;

use common::{Node, check, host, plugin};
use std::fs;
use std::process::Command;

#[test]
fn a_thousand_loads_beside_a_thread_leave_everything_as_it_was() {
    let node = Node::new("set");
    let seen = node.run(&["rounds=1000", "thread=1", "option=verbose"]);
    seen.assert_harmless();
    assert!(seen.has("setenv CUDA_DEVICE_ORDER=PCI_BUS_ID"), "{seen:?}");
    for context in ["context=local", "context=allocator", "context=slurmd"] {
        node.run(&["rounds=1000", "thread=1", context]).assert_harmless();
    }
}

#[test]
fn valgrind_finds_no_wrong_access() {
    let node = Node::new("set");
    let transcript = node.folder.path().join("transcript");
    let output = Command::new("valgrind")
        .args(["-q", "--error-exitcode=9", "--leak-check=no", "--trace-children=no"])
        .arg(host())
        .arg(plugin())
        .arg(&transcript)
        .arg(format!("arg=config={}", node.config().display()))
        .args(["own=SLURMD_NODENAME=n1", "option=verbose", "tasks=2", "rounds=3", "uid=65534"])
        .output()
        .unwrap_or_else(|error| panic!("cannot run valgrind: {error}; install the package valgrind"));
    check(&output, &fs::read_to_string(&transcript).unwrap_or_default());
}
