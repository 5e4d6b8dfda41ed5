//! A bug in any hook: Slurm goes on as if the plugin were not there.
#![allow(clippy::tests_outside_test_module, reason = "the whole file is a test")]

mod common;

use common::{Node, fault_plugin, host, run};

#[test]
fn a_panic_in_any_hook_harms_neither_step_nor_task() {
    let node = Node::new("set");
    for hook in ["init", "option", "init_post_opt", "task_init"] {
        for payload in ["", ":drop"] {
            let seen = node
                .run_with(&fault_plugin(), &[&format!("arg=panic={hook}{payload}"), "option=on", "tasks=2"]);
            seen.assert_harmless();
            assert!(seen.has("task 0 exit 7") && seen.has("task 1 exit 7"), "{hook}: {seen:?}");
            let told = if hook == "task_init" { "info:" } else { "error:" };
            let what = if payload.is_empty() { "injected\\x0afault" } else { "no message" };
            let lines = seen.with(&format!("{told} gpuward: internal error in {hook}: {what} at "));
            assert_eq!(lines.len(), if hook == "task_init" { 2 } else { 1 }, "{seen:?}");
            assert!(lines[0].contains("fault.rs:"), "{seen:?}");
        }
    }
}

#[test]
fn after_a_panic_nothing_half_done_is_left() {
    let node = Node::new("set");
    for hook in ["init_post_opt", "task_init"] {
        let seen = node.run_with(&fault_plugin(), &[&format!("arg=panic={hook}")]);
        assert!(seen.with("setenv").is_empty(), "{hook}: {seen:?}");
    }
}

#[test]
fn a_panic_in_the_commands_lets_them_go_on() {
    for context in ["context=local", "context=allocator"] {
        for hook in ["init", "option", "init_post_opt"] {
            for payload in ["", ":drop"] {
                let arg = format!("arg=panic={hook}{payload}");
                let seen = run(&host(), &fault_plugin(), &[context, &arg, "option=on"]);
                seen.assert_harmless();
                assert!(seen.has("option = 0"), "the command knows the option all the same: {seen:?}");
            }
        }
    }
}

#[test]
fn a_panic_in_the_constructor_leaves_the_version_of_the_build() {
    let node = Node::new("set");
    let seen = node.run_with(&fault_plugin(), &["own=GPUWARD_PANIC_CONSTRUCTOR=1", "api=45"]);
    seen.assert_harmless();
    let build = format!("loaded gpuward spank {:#x}", gpuward_slurm_sys::SLURM_VERSION_NUMBER);
    assert!(seen.has(&build) && seen.has("setenv CUDA_DEVICE_ORDER=PCI_BUS_ID"), "{seen:?}");
}

#[test]
fn panics_in_many_loads_do_not_add_up() {
    let node = Node::new("set");
    for hook in ["init", "init_post_opt", "task_init"] {
        let seen =
            node.run_with(&fault_plugin(), &[&format!("arg=panic={hook}:drop"), "rounds=200", "thread=1"]);
        seen.assert_harmless();
    }
}
