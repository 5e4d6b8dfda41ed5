//! What a node should be: learned, refused, accepted, configured; and what an admin reads of it.
#![allow(clippy::tests_outside_test_module)]

use gpuward_tests::sim::{Bench, NODE, scenario};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

/// What an admin's command says and its exit code.
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

fn said(output: Output) -> Said {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

fn admin(bench: &Bench, verb: &str, args: &[&str]) -> Said {
    said(bench.admin(verb).args(args).output().unwrap())
}

fn json(bench: &Bench, verb: &str, args: &[&str]) -> Value {
    let said = admin(bench, verb, &[args, &["--json"]].concat());
    serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}\n{}{}", said.err, said.out))
}

/// Code and severity of what `gpuward check` finds.
fn found(bench: &Bench) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let check = json(bench, "check", &[]);
    let findings = check["findings"].as_array().unwrap();
    findings.iter().map(|one| (text(&one["code"]), text(&one["severity"]))).collect()
}

fn known_path(bench: &Bench) -> PathBuf {
    bench.node.dir.join("state/known.json")
}

fn known(bench: &Bench) -> Option<Value> {
    fs::read_to_string(known_path(bench)).ok().map(|text| serde_json::from_str(&text).unwrap())
}

fn pair(code: &str, severity: &str) -> (String, String) {
    (code.to_owned(), severity.to_owned())
}

/// The node loses the GPU in its last slot and boots anew: PCIe and driver show one less.
fn boot_without_one(bench: &mut Bench) {
    bench.change_machine(|machine| {
        machine.gpus.pop();
        machine.nvml_order.clear();
        machine.boot_id = "0badb007-0000-4000-8000-000000000001".to_owned();
    });
}

mod learning {
    use super::*;

    #[test]
    fn the_first_clean_check_is_remembered_and_the_second_writes_nothing() {
        let bench = Bench::new("hgx-h100", "drain", "");
        let first = admin(&bench, "check", &[]);
        assert!(first.code == Some(0) && first.out.contains("\nremembered: these 8 GPUs"), "{}", first.out);
        let file = known(&bench).unwrap();
        assert_eq!((file["node"].as_str(), file["how"].as_str()), (Some(NODE), Some("learned")));
        let gpus = file["gpus"].as_array().unwrap();
        assert_eq!(gpus.len(), 8);
        assert!(gpus.iter().all(|gpu| gpu["nvlinks"] == 18 && gpu["pcie_width"] == 16), "{gpus:?}");
        let written = fs::metadata(known_path(&bench)).unwrap().modified().unwrap();
        let second = admin(&bench, "check", &[]);
        assert!(second.code == Some(0) && !second.out.contains("remembered"), "{}", second.out);
        assert_eq!(fs::metadata(known_path(&bench)).unwrap().modified().unwrap(), written);
    }

    #[test]
    fn a_prolog_learns_nothing_and_a_look_at_some_gpus_neither() {
        let bench = Bench::new("hgx-h100", "drain", "");
        assert_eq!(bench.prolog(7, &bench.all_gpus()).code, Some(0));
        assert_eq!(bench.epilog(7, &bench.all_gpus()).code, Some(0));
        assert_eq!(admin(&bench, "check", &["--gpus", "0,1"]).code, Some(0));
        assert_eq!(admin(&bench, "status", &[]).code, Some(0));
        assert_eq!(known(&bench), None);
    }

    #[test]
    fn a_sick_node_is_not_learned() {
        let bench = Bench::new("hgx-h100", "drain", "");
        bench.node.fault("on = [{ fault = \"gpu-lost\", gpu = 3 }]");
        let check = admin(&bench, "check", &[]);
        assert_eq!(check.code, Some(1));
        assert!(check.out.contains("not remembered as what this node should be: the look was not clean"));
        assert_eq!(known(&bench), None);
    }

    #[test]
    fn a_diskless_node_that_boots_with_seven_gpus_does_not_learn_seven() {
        for (gres, slurm, toml, by) in [
            ("Name=gpu File=/dev/nvidia[0-7]\n", "", "", "gres.conf"),
            ("AutoDetect=nvml\n", "NodeName=n[1-9] Gres=gpu:h100:8\n", "", "slurm.conf"),
            ("AutoDetect=nvml\n", "", "[[expected]]\nnodes = \"n[1-9]\"\ngpus = 8\n", "gpuward.toml"),
        ] {
            let mut bench = Bench::new("hgx-h100", "drain", toml);
            bench.write("etc/gres.conf", gres);
            bench.write("etc/slurm.conf", slurm);
            boot_without_one(&mut bench);
            let check = admin(&bench, "check", &[]);
            assert!(check.out.contains("not remembered"), "{by}: {}", check.out);
            assert_eq!(known(&bench), None, "{by}");
            let accept = admin(&bench, "status", &["--accept"]);
            let why = format!("nothing is changed: it has 7 GPUs, {by} promises 8");
            assert!(accept.code == Some(1) && accept.err.contains(&why), "{by}: {}", accept.err);
            assert_eq!(known(&bench), None, "{by}");
        }
    }

    #[test]
    fn a_node_known_to_have_eight_gpus_fails_with_seven_after_a_reboot() {
        let mut bench = Bench::new("hgx-h100", "drain", "");
        bench.write("etc/gres.conf", "AutoDetect=nvml\n");
        assert_eq!(admin(&bench, "check", &[]).code, Some(0));
        boot_without_one(&mut bench);
        assert!(found(&bench).contains(&pair("GPU_MISS_PCI", "fail")));
        let run = bench.prolog(7, "0,1");
        assert_eq!(run.code, Some(1), "the prolog sees the same: {}", bench.node.log());
        assert!(bench.scontrol_calls().iter().any(|call| call.contains("gpuward:GPU_MISS_PCI")));
        assert_eq!(known(&bench).unwrap()["gpus"].as_array().unwrap().len(), 8, "and forgets nothing");
    }

    #[test]
    fn without_its_state_folder_a_node_goes_by_gres_conf() {
        let mut bench = Bench::new("hgx-h100", "drain", "");
        assert_eq!(admin(&bench, "check", &[]).code, Some(0));
        fs::remove_dir_all(bench.node.dir.join("state")).unwrap();
        boot_without_one(&mut bench);
        assert!(found(&bench).contains(&pair("GPU_MISS_PCI", "fail")));
        assert_eq!(known(&bench), None);
    }
}

mod accepting {
    use super::*;

    #[test]
    fn an_admin_accepts_seven_gpus_once_slurm_knows_of_it() {
        let mut bench = Bench::new("hgx-h100", "drain", "");
        bench.write("etc/gres.conf", "AutoDetect=nvml\n");
        admin(&bench, "check", &[]);
        let gone = bench.node.pci(7);
        boot_without_one(&mut bench);
        let status = admin(&bench, "status", &[]);
        assert!(status.out.contains(&gone) && status.out.contains("gone"), "{}", status.out);
        let accept = admin(&bench, "status", &["--accept"]);
        assert_eq!(accept.code, Some(0), "{}", accept.err);
        let change = accept.out.find(&gone).unwrap();
        assert!(change < accept.out.find("accepted: these 7 GPUs").unwrap(), "{}", accept.out);
        let file = known(&bench).unwrap();
        assert_eq!((file["how"].as_str(), file["gpus"].as_array().unwrap().len()), (Some("accepted"), 7));
        assert!(file["gpus"][0]["peers_ok"].is_array(), "it was a deep look");
        assert!(!found(&bench).contains(&pair("GPU_MISS_PCI", "fail")));
        assert!(bench.node.dir.join("state/known.json.old").exists());
    }

    #[test]
    fn a_gpu_that_does_not_answer_is_not_accepted() {
        let bench = Bench::new("l40s-pcie", "drain", "");
        bench.node.fault("on = [{ fault = \"gpu-lost\", gpu = 1 }]");
        let accept = admin(&bench, "status", &["--accept"]);
        assert!(accept.code == Some(1) && accept.err.contains("did not answer"), "{}", accept.err);
        assert_eq!(known(&bench), None);
    }

    #[test]
    fn a_port_that_is_down_for_good_is_accepted_once_and_told_no_more() {
        let bench = Bench::new("hgx-h100", "drain", "");
        let down = || -> Vec<String> {
            let known = known(&bench).unwrap();
            let nics = known["nics"].as_array().unwrap().iter();
            nics.filter(|nic| nic["up"] == false)
                .map(|nic| nic["name"].as_str().unwrap().to_owned())
                .collect()
        };
        assert_eq!(found(&bench), []);
        assert_eq!(down(), ["mlx5_4"], "a second port without a cable");
        let state = bench.node.dir.join("root/sys/class/infiniband/mlx5_0/ports/1/state");
        assert_eq!(fs::read_to_string(&state).unwrap().trim(), "4: ACTIVE");
        fs::write(&state, "1: DOWN\n").unwrap();
        assert_eq!(found(&bench), [pair("NIC_DOWN", "warn")]);
        let accept = admin(&bench, "status", &["--accept"]);
        assert!(accept.code == Some(0) && accept.out.contains("RDMA port  up     down"), "{}", accept.out);
        assert_eq!(found(&bench), []);
        assert_eq!(down(), ["mlx5_0", "mlx5_4"]);
    }
}

mod bad_files {
    use super::*;

    #[test]
    fn a_known_state_that_cannot_be_used_is_told_and_harms_nobody() {
        let bench = Bench::new("l40s-pcie", "drain", "");
        admin(&bench, "check", &[]);
        let whole = fs::read_to_string(known_path(&bench)).unwrap();
        let newer = whole.replace("\"gpuward_known\": 1", "\"gpuward_known\": 7");
        let other = whole.replace("\"n1\"", "\"n2\"");
        for (text, words) in [
            (&whole[..whole.len() / 2], "not readable as what the node was known to be"),
            ("", "not readable as what the node was known to be"),
            (newer.as_str(), "version 7 of the format"),
            (other.as_str(), "it is about node n2"),
        ] {
            fs::write(known_path(&bench), text).unwrap();
            let check = admin(&bench, "check", &[]);
            assert_eq!(check.code, Some(0), "{}", check.out);
            assert!(
                check.err.contains(words) && check.out.contains("not remembered"),
                "{}{}",
                check.err,
                check.out
            );
            assert_eq!(bench.prolog(7, "0").code, Some(0));
            assert!(bench.node.log().contains(words));
            assert_eq!(fs::read_to_string(known_path(&bench)).unwrap(), text, "left alone");
        }
        std::os::unix::fs::chown(known_path(&bench), Some(65534), None).unwrap();
        let check = admin(&bench, "check", &[]);
        assert!(check.code == Some(0) && check.err.contains("uid 65534"), "{}", check.err);
    }

    #[test]
    fn a_newer_file_is_left_alone_even_by_accept() {
        let bench = Bench::new("l40s-pcie", "drain", "");
        admin(&bench, "check", &[]);
        let newer = fs::read_to_string(known_path(&bench))
            .unwrap()
            .replace("\"gpuward_known\": 1", "\"gpuward_known\": 7");
        fs::write(known_path(&bench), &newer).unwrap();
        let accept = admin(&bench, "status", &["--accept"]);
        assert!(accept.code == Some(1) && accept.err.contains("version 7"), "{}", accept.err);
        assert_eq!(fs::read_to_string(known_path(&bench)).unwrap(), newer);
    }

    #[test]
    fn snapshots_that_cannot_be_judged_say_why_with_exit_code_2() {
        let bench = Bench::new("l40s-pcie", "drain", "");
        for (text, words) in [
            (
                "{\"gpuward_snapshot\": 9, \"written_by\": \"gpuward 9.0\"}",
                "version 9 of the format, written by gpuward 9.0",
            ),
            ("{\n\"gpuward_snapshot\": 1,", "line 2: "),
            ("{}", "not a snapshot"),
        ] {
            bench.write("s.json", text);
            let check = admin(&bench, "check", &["--snapshot", bench.path("s.json").to_str().unwrap()]);
            assert!(check.code == Some(2) && check.err.contains(words), "{:?} {}", check.code, check.err);
        }
        let missing = admin(&bench, "check", &["--snapshot", "/nonexistent"]);
        assert!(missing.code == Some(2) && missing.err.contains("/nonexistent"), "{}", missing.err);
    }

    #[test]
    fn a_name_of_no_gpu_is_a_usage_error() {
        let bench = Bench::new("l40s-pcie", "drain", "");
        for (list, words) in [
            ("9", "shows no GPU 9; by the number in /dev/nvidiaN there are 0, 1"),
            ("x", "names no GPU: allowed are"),
        ] {
            let check = admin(&bench, "check", &["--gpus", list]);
            assert!(check.code == Some(64) && check.err.contains(words), "{:?} {}", check.code, check.err);
        }
    }

    #[test]
    fn a_contradicting_configuration_names_its_line_and_a_prolog_does_without() {
        let more = "[[expected]]\nnodes = \"n[1-4]\"\ngpus = 16\n\n[[expected]]\nnodes = \"n1\"\ngpus = 8\n";
        let bench = Bench::new("l40s-pcie", "drain", more);
        let path = bench.path("etc/gpuward.toml");
        let check =
            said(bench.command("gpuward", 7, "").args(["config", "check"]).arg(&path).output().unwrap());
        let line =
            fs::read_to_string(&path).unwrap().lines().position(|line| line == "gpus = 8").unwrap() + 1;
        let start = format!("{}:{line}: gpus = 8 in [[expected]] nodes = \"n1\", but 16", path.display());
        assert!(check.code == Some(1) && check.err.contains(&start), "{}", check.err);
        let run = bench.prolog(7, "0");
        assert_eq!(run.code, Some(0), "gres.conf counts: {}", bench.node.log());
        assert!(bench.node.log().contains("both name node n1"), "{}", bench.node.log());
    }
}

mod configured {
    use super::*;

    #[test]
    fn slurm_and_gpuward_toml_that_disagree_only_warn() {
        let bench = Bench::new("hgx-h100", "drain", "[[expected]]\nnodes = \"n1\"\ngpus = 8\n");
        bench.write("etc/gres.conf", "Name=gpu File=/dev/nvidia[0-6]\n");
        assert_eq!(found(&bench), [pair("GRES_CONF", "warn")]);
        assert_eq!(bench.prolog(7, "0").code, Some(0));
    }

    #[test]
    fn a_model_that_was_not_ordered_is_told_for_each_gpu_and_refuses_no_job() {
        let bench = Bench::new("l40s-pcie", "drain", "[[expected]]\nnodes = \"n1\"\nmodel = \"H100\"\n");
        let gpus = bench.node.machine.gpus.len();
        assert_eq!(found(&bench), vec![pair("GPU_MODEL", "warn"); gpus]);
        assert_eq!(bench.prolog(7, &bench.all_gpus()).code, Some(0));
        let other = Bench::new("l40s-pcie", "drain", "[[expected]]\nnodes = \"n1\"\nmodel = \"l40s\"\n");
        assert_eq!(found(&other), []);
    }

    #[test]
    fn only_a_deep_look_validates_the_inforom() {
        let bench = Bench::new("hgx-h100", "drain", "");
        bench.node.fault("on = [{ fault = \"inforom-corrupt\", gpu = 3 }]");
        assert_eq!(found(&bench), []);
        let deep = json(&bench, "check", &["--deep"]);
        let findings = deep["findings"].as_array().unwrap();
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(
            (findings[0]["code"].as_str(), findings[0]["subject"]["gpu"]["pci"].as_str()),
            (Some("INFOROM_BAD"), Some(bench.node.pci(3).as_str()))
        );
    }

    #[test]
    fn a_snapshot_is_judged_by_what_the_file_at_hand_says_of_its_node() {
        let bench = Bench::new("l40s-pcie", "drain", "");
        let file = serde_json::to_string(&bench.snapshot()).unwrap();
        bench.write("s.json", &file);
        let path = bench.path("s.json");
        let args = ["--snapshot", path.to_str().unwrap()];
        assert_eq!(admin(&bench, "check", &args).code, Some(0));
        bench.write_config("drain", "[[expected]]\nnodes = \"n1\"\ngpus = 16\n");
        let check = admin(&bench, "check", &args);
        assert!(check.code == Some(1) && check.out.contains("GPU_MISS_PCI"), "{}", check.out);
    }
}

mod fleet {
    use super::*;
    use gpuward_core::config::Config;

    #[test]
    fn the_expectations_of_every_machine_parse_back_and_its_snapshot_meets_them() {
        let folder = scenario("x").parent().unwrap().to_owned();
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
            .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        names.sort();
        let out = tempfile::tempdir().unwrap();
        let mut paths = Vec::new();
        for name in &names {
            let mut file = Bench::new(name, "observe", "").snapshot();
            file.node.clone_from(name);
            let path = out.path().join(format!("{name}.json"));
            fs::write(&path, serde_json::to_string(&file).unwrap()).unwrap();
            paths.push(path);
        }
        let bench = Bench::new("l40s-pcie", "observe", "");
        let made = said(
            bench
                .command("gpuward", 7, "")
                .args(["gen", "expected"])
                .args(&paths)
                .stdout(std::process::Stdio::piped())
                .output()
                .unwrap(),
        );
        assert_eq!(made.code, Some(0), "{}", made.err);
        let config =
            Config::parse_whole(&made.out, "made").unwrap_or_else(|error| panic!("{error}\n{}", made.out));
        // Odd ones are commented out; all machines of the park are of their own kinds.
        for name in &names {
            assert!(config.expected_for(name).0.gpu_count.is_some(), "{name}:\n{}", made.out);
        }
        bench.write("made.toml", &made.out);
        for (name, path) in names.iter().zip(&paths) {
            let mut check = bench.command("gpuward", 7, "");
            check
                .args(["check", "--json", "--config"])
                .arg(bench.path("made.toml"))
                .arg("--snapshot")
                .arg(path);
            let check = said(check.stdout(std::process::Stdio::piped()).output().unwrap());
            let value: Value =
                serde_json::from_str(&check.out).unwrap_or_else(|error| panic!("{error} {}", check.err));
            assert_eq!(value["verdict"], "pass", "{name}: {}", value["findings"]);
        }
    }
}

mod goldens {
    use super::*;

    /// The text with what differs from run to run taken out.
    fn stable(text: &str) -> String {
        let steady = |line: &str| match line.split_once(" on 20") {
            Some((head, _)) if line.starts_with("known: ") => format!("{head} on DATE"),
            _ => line.to_owned(),
        };
        text.lines().map(|line| steady(line) + "\n").collect()
    }

    /// `UPDATE_GOLDEN=1` writes the files anew: read the difference.
    fn golden(name: &str, said: &Said) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("golden/check/{name}.txt"));
        let text = format!("{}exit code {}\n", stable(&said.out), said.code.unwrap());
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&path, &text).unwrap();
        }
        let wanted = fs::read_to_string(&path).unwrap_or_default();
        assert!(text == wanted, "{} differs; now it is:\n{text}", path.display());
        let widest = text.lines().map(str::len).max().unwrap_or(0);
        assert!(widest <= 100, "{widest} columns:\n{text}");
    }

    #[test]
    fn what_an_admin_reads_stays_as_it_is() {
        let mut bench = Bench::new("hgx-h100", "drain", "");
        golden("healthy", &admin(&bench, "check", &[]));
        golden("status", &admin(&bench, "status", &[]));
        bench.node.fault("on = [{ fault = \"gpu-lost\", gpu = 1 }, { fault = \"remap-failed\", gpu = 3 }, { fault = \"remap-failed\", gpu = 4 }]");
        golden("lost", &admin(&bench, "check", &[]));
        golden("status-lost", &admin(&bench, "status", &[]));
        bench.node.heal();
        boot_without_one(&mut bench);
        golden("missing", &admin(&bench, "check", &[]));
        golden("status-missing", &admin(&bench, "status", &[]));
        let old = Bench::new("old-driver", "observe", "");
        golden("old-driver", &admin(&old, "check", &[]));
        let card = Bench::new(
            "rtx4090-nps4",
            "observe",
            "[[expected]]\nnodes = \"n1\"\nmodel = \"NVIDIA RTX 6000 Ada Generation\"\n",
        );
        golden("wrong-model", &admin(&card, "check", &["--gpus", "0,1"]));
        let unloaded = Bench::new("l40s-pcie", "drain", "");
        unloaded.node.fault("on = [{ fault = \"driver-not-loaded\" }]");
        golden("unloaded", &admin(&unloaded, "check", &[]));
    }

    #[test]
    fn json_has_the_keys_that_docs_check_md_names() {
        let docs =
            fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/check.md")).unwrap();
        let bench = Bench::new("hgx-h100", "drain", "");
        bench.node.fault("on = [{ fault = \"gpu-lost\", gpu = 1 }]");
        let check = json(&bench, "check", &[]);
        let findings = check["findings"][0].as_object().unwrap();
        for key in check.as_object().unwrap().keys().chain(findings.keys()) {
            assert!(docs.contains(&format!("| `{key}` |")), "{key}");
        }
        assert_eq!((check["gpuward_check"].as_u64(), check["exit_code"].as_i64()), (Some(1), Some(1)));
    }
}
