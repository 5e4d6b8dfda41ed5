//! What the plugin does in each context, with a healthy node.
#![allow(clippy::tests_outside_test_module, reason = "the whole file is a test")]

mod common;

use common::{Node, host, host_with, plugin, run, state};

const SET: &str = "setenv CUDA_DEVICE_ORDER=PCI_BUS_ID";
const SET_LIST: &str = "setenv GPUWARD_SET=CUDA_DEVICE_ORDER";

#[test]
fn every_task_of_a_gpu_job_gets_the_device_order() {
    let seen = Node::new("set").run(&["tasks=3", "uid=65534", "thread=1"]);
    seen.assert_harmless();
    assert_eq!(seen.with(SET).len(), 3, "{seen:?}");
    assert_eq!(seen.with(SET_LIST).len(), 3, "{seen:?}");
    assert!(seen.with("user:").is_empty() && seen.with("error:").is_empty(), "{seen:?}");
}

#[test]
fn a_fresh_install_only_observes() {
    let node = Node::new("observe");
    let seen = node.run(&[]);
    seen.assert_opaque(0);
    assert_eq!(seen.with("debug: gpuward: would set CUDA_DEVICE_ORDER=PCI_BUS_ID").len(), 1, "{seen:?}");
}

#[test]
fn a_job_without_gpus_is_left_alone() {
    let node = Node::new("set");
    let mut state = state();
    state.gpus.clear();
    node.write_state(&state);
    node.run(&[]).assert_opaque(0);
}

#[test]
fn what_the_user_set_is_never_overridden() {
    let node = Node::new("set");
    let long = format!("env=CUDA_DEVICE_ORDER={}", "x".repeat(5000));
    for given in ["env=CUDA_DEVICE_ORDER=FASTEST_FIRST", "env=CUDA_DEVICE_ORDER=", long.as_str()] {
        node.run(&[given]).assert_opaque(0);
        node.run(&[given, "oldcodes=1"]).assert_opaque(0);
    }
    let seen = node.run(&["env=GPUWARD_SET=mine"]);
    seen.assert_harmless();
    assert!(seen.has(SET) && seen.has("task 0 has GPUWARD_SET=mine"), "{seen:?}");
}

#[test]
fn the_error_codes_of_old_releases_are_understood() {
    let seen = Node::new("set").run(&["oldcodes=1", "restart=none", "api=36"]);
    seen.assert_harmless();
    assert!(seen.has(SET) && seen.has(SET_LIST), "{seen:?}");
}

#[test]
fn off_leaves_the_step_alone() {
    let node = Node::new("set");
    node.run(&["option=off"]).assert_opaque(0);
    // The last word counts, and the same word twice is the same word.
    assert!(node.run(&["option=off", "option=on", "option=on"]).has(SET));
}

#[test]
fn the_option_reaches_a_step_whose_callback_never_came() {
    let copy = "env=SLURM_SPANK__SLURM_SPANK_OPTION_gpuward_gpuward";
    let node = Node::new("set");
    node.run(&[&format!("{copy}=off")]).assert_opaque(0);
    assert!(node.run(&[&format!("{copy}=off"), "option=on"]).has(SET));
    assert!(node.run(&[&format!("{copy}=nonsense")]).has(SET));
}

#[test]
fn verbose_tells_the_user_once_and_from_the_first_rank_only() {
    let node = Node::new("set");
    let seen = node.run(&["option=verbose", "tasks=3"]);
    seen.assert_harmless();
    assert_eq!(seen.with("user:"), ["user: gpuward: set CUDA_DEVICE_ORDER=PCI_BUS_ID"]);
    assert!(node.run(&["option=verbose", "tasks=2", "rank=4"]).with("user:").is_empty());
    let observed = Node::new("observe").run(&["option=verbose"]);
    assert_eq!(
        observed.with("user:"),
        ["user: gpuward: would set CUDA_DEVICE_ORDER=PCI_BUS_ID (environment.mode is observe)"]
    );
    assert_eq!(node.run(&["option=verbose", "job=8"]).with("user:").len(), 1);
}

#[test]
fn a_wrong_value_is_told_where_it_was_typed_and_ignored_on_the_node() {
    for context in ["context=local", "context=allocator"] {
        let seen = run(&host(), &plugin(), &[context, "option=bad\nvalue"]);
        assert!(seen.has("option = -1"), "{seen:?}");
        let text = "error: gpuward: --gpuward=bad\\x0avalue: allowed are off, on and verbose";
        assert!(seen.has(text), "{seen:?}");
    }
    let seen = Node::new("set").run(&["option=bad"]);
    seen.assert_harmless();
    assert!(seen.has(SET), "{seen:?}");
}

#[test]
fn commands_register_the_option_and_read_no_configuration() {
    for context in ["context=local", "context=allocator"] {
        for value in ["off", "on", "verbose"] {
            let option = format!("option={value}");
            let seen =
                run(&host(), &plugin(), &[context, "arg=config=/nonexistent", "arg=nonsense", &option]);
            let expected = [
                "loaded gpuward spank 0x160500",
                "register gpuward=off|on|verbose",
                "slurm_spank_init = 0",
                "option = 0",
                "slurm_spank_init_post_opt = 0",
                "end",
            ];
            assert_eq!(seen.0.lines().collect::<Vec<_>>(), expected);
        }
    }
}

#[test]
fn slurmd_and_spank_scripts_get_nothing() {
    for context in ["context=slurmd", "context=script"] {
        let seen = run(&host(), &plugin(), &[context, "arg=nonsense"]);
        assert_eq!(seen.0, "loaded gpuward spank 0x160500\nslurm_spank_init = 0\nend\n");
    }
}

#[test]
fn comments_reach_the_user_once_bounded_and_on_one_line() {
    let node = Node::new("observe");
    let mut state = state();
    let long = "y".repeat(3000);
    state.comments =
        ["one \\x41 %s%n".into(), "two\n\u{1b}[31m\0".into(), long, "never shown".into()].to_vec();
    node.write_state(&state);
    let seen = node.run(&["tasks=2"]);
    seen.assert_harmless();
    let told = seen.with("user:");
    assert_eq!(told.len(), 3, "{seen:?}");
    assert_eq!(told[0], "user: gpuward: one \\x41 %s%n");
    assert_eq!(told[1], "user: gpuward: two\\x0a\\x1b[31m\\x00");
    assert!(told[2].len() < 300, "{seen:?}");
    // Told even where the environment is left alone, but neither by other ranks nor in the extern step.
    assert_eq!(node.run(&["option=off"]).with("user:").len(), 3);
    assert!(node.run(&["rank=1"]).with("user:").is_empty());
    let external = node.run(&["step=4294967292"]);
    assert!(external.with("user:").is_empty() && external.with("debug:").is_empty(), "{external:?}");
}

#[test]
fn one_object_serves_every_release() {
    let releases = [
        (36, 20, 11),
        (37, 21, 8),
        (38, 22, 5),
        (39, 23, 2),
        (40, 23, 11),
        (41, 24, 5),
        (42, 24, 11),
        (43, 25, 5),
        (44, 25, 11),
        (45, 26, 5),
    ];
    for (api, major, minor) in releases {
        let seen = run(&host(), &plugin(), &["context=slurmd", &format!("api={api}")]);
        let version = major << 16 | minor << 8;
        assert!(seen.has(&format!("loaded gpuward spank {version:#x}")), "api {api}: {seen:?}");
    }
}

#[test]
fn a_release_that_is_not_known_sees_the_version_of_the_build() {
    let build = format!("loaded gpuward spank {:#x}", gpuward_slurm_sys::SLURM_VERSION_NUMBER);
    for api in ["api=0", "api=35", "api=46", "api=-1"] {
        assert!(run(&host(), &plugin(), &["context=slurmd", api]).has(&build), "{api}");
    }
    assert!(run(&host_with("-DNO_API"), &plugin(), &["context=slurmd"]).has(&build));
}
