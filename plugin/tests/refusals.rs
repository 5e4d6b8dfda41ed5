//! Files and arguments that must not be used: the task starts as Slurm made it, and one line says why.
#![allow(clippy::tests_outside_test_module, reason = "the whole file is a test")]

mod common;

use common::{Node, Transcript, host, plugin, run, state};
use std::ffi::CString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

const NOBODY: u32 = 65534;

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[track_caller]
fn assert_refused(seen: &Transcript, why: &str) {
    seen.assert_opaque(1);
    let line = seen.with("error:")[0];
    assert!(line.contains(why) && line.ends_with("; tasks keep Slurm's environment job=7"), "{line}");
}

#[test]
fn no_state_is_no_error() {
    let node = Node::new("set");
    fs::remove_file(node.state_path()).unwrap();
    node.run(&[]).assert_opaque(0);
    fs::remove_dir(node.jobs()).unwrap();
    node.run(&[]).assert_opaque(0);
    node.run(&["own=SLURMD_NODENAME=n2"]).assert_opaque(0);
}

#[test]
fn a_truncated_state_is_refused_at_every_length() {
    let node = Node::new("set");
    let text = fs::read(node.state_path()).unwrap();
    for length in (0..text.len()).step_by(37) {
        fs::write(node.state_path(), &text[..length]).unwrap();
        assert_refused(&node.run(&[]), "not a job state");
    }
    fs::write(node.state_path(), [0xff, 0xfe, 0]).unwrap();
    assert_refused(&node.run(&[]), "UTF-8");
}

#[test]
fn a_state_of_another_owner_is_refused() {
    let node = Node::new("set");
    chown(node.state_path(), Some(NOBODY), None).unwrap();
    assert_refused(&node.run(&[]), "owned by uid 65534, not by root");
}

#[test]
fn a_state_that_others_may_write_is_refused() {
    let node = Node::new("set");
    for bits in [0o620, 0o602, 0o666] {
        mode(&node.state_path(), bits);
        assert_refused(&node.run(&[]), &format!("mode {bits:04o} lets others write"));
    }
}

#[test]
fn a_link_and_a_fifo_are_refused_without_waiting() {
    let node = Node::new("set");
    let target = node.folder.path().join("target.json");
    fs::rename(node.state_path(), &target).unwrap();
    symlink(&target, node.state_path()).unwrap();
    assert_refused(&node.run(&[]), "a symbolic link");
    fs::remove_file(node.state_path()).unwrap();
    let name = CString::new(node.state_path().to_str().unwrap()).unwrap();
    // SAFETY: a C string that lives through the call.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    assert_refused(&node.run(&[]), "not a regular file");
    fs::remove_file(node.state_path()).unwrap();
    fs::create_dir(node.state_path()).unwrap();
    assert_refused(&node.run(&[]), "not a regular file");
}

#[test]
fn an_oversized_state_is_refused() {
    let node = Node::new("set");
    fs::write(node.state_path(), " ".repeat(300_000)).unwrap();
    assert_refused(&node.run(&[]), "300000 bytes, allowed are 262144");
}

#[test]
fn folders_are_checked_like_files() {
    let node = Node::new("set");
    mode(&node.jobs(), 0o777);
    assert_refused(&node.run(&[]), "mode 0777 lets others write");
    mode(&node.jobs(), 0o755);
    let run_folder = node.folder.path().join("run/n1");
    chown(&run_folder, Some(NOBODY), None).unwrap();
    assert_refused(&node.run(&[]), "owned by uid 65534, not by root");
    chown(&run_folder, Some(0), None).unwrap();
    fs::rename(node.jobs(), node.folder.path().join("moved")).unwrap();
    symlink(node.folder.path().join("moved"), node.jobs()).unwrap();
    node.run(&[]).assert_opaque(1);
}

#[test]
fn the_state_of_another_run_is_not_used() {
    let node = Node::new("set");
    node.run(&["restart=1"]).assert_opaque(0);
    node.run(&["job=70"]).assert_opaque(0);
    let mut other_node = state();
    other_node.node = "n2".into();
    node.write_state(&other_node);
    node.run(&[]).assert_opaque(0);
}

#[test]
fn the_right_run_among_several_is_found() {
    let node = Node::new("set");
    let mut late = state();
    (late.nonce, late.restart_count, late.start_boottime_ns) = ("1".repeat(16), Some(1), 9);
    late.comments = vec!["second run".into()];
    node.write_state(&late);
    // 22.05 says 0 in every run, so 0 is no knowledge, and the newest is taken.
    for restart in ["restart=1", "restart=0", "restart=none"] {
        assert_eq!(node.run(&[restart]).with("user:"), ["user: gpuward: second run"]);
    }
    let mut later = late.clone();
    (later.nonce, later.restart_count, later.start_boottime_ns) = ("3".repeat(16), Some(2), 10);
    later.comments.clear();
    node.write_state(&later);
    assert_eq!(node.run(&["restart=1"]).with("user:"), ["user: gpuward: second run"]);
    assert!(node.run(&["restart=2"]).with("user:").is_empty());
    assert!(node.run(&["restart=3"]).with("setenv").is_empty());
    // One spoilt file beside the right one changes nothing.
    fs::write(node.jobs().join(format!("7.{}.json", "2".repeat(16))), "{").unwrap();
    assert_eq!(node.run(&["restart=1"]).with("user:"), ["user: gpuward: second run"]);
}

#[test]
fn a_configuration_that_cannot_be_used_is_told_once() {
    let node = Node::new("set");
    node.write_config("[environment]\nmoed = \"set\"\n");
    assert_refused(&node.run(&["tasks=3"]), "gpuward.toml:2: unknown key 'moed', did you mean 'mode'?");
    let good = Node::new("set");
    chown(good.config(), Some(NOBODY), None).unwrap();
    assert_refused(&good.run(&[]), "owned by uid 65534");
    chown(good.config(), Some(0), None).unwrap();
    mode(&good.config(), 0o664);
    assert_refused(&good.run(&[]), "mode 0664 lets others write");
    fs::remove_file(good.config()).unwrap();
    // The file is optional: the defaults are in force, under which nothing is set and nothing is wrong.
    good.run(&[]).assert_opaque(0);
    symlink("/etc/hostname", good.config()).unwrap();
    assert_refused(&good.run(&[]), "a symbolic link");
}

#[test]
fn wrong_arguments_are_named_and_the_rest_goes_on() {
    let seen = Node::new("set").run(&["arg=confg=/x", "arg=config=relative", "arg=panic=init"]);
    seen.assert_harmless();
    let allowed = "is ignored: allowed is config=PATH with an absolute path";
    assert_eq!(seen.with("error:").len(), 3, "{seen:?}");
    assert!(seen.with("error:").iter().all(|line| line.ends_with(allowed)), "{seen:?}");
    assert!(seen.has("setenv CUDA_DEVICE_ORDER=PCI_BUS_ID"), "{seen:?}");
    let many: Vec<String> = (0..60).map(|number| format!("arg=a{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    run(&host(), &plugin(), &many).assert_harmless();
}
