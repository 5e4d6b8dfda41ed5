//! The files in slurm-conf/ are what they say: they are read here as a site would read them.
#![allow(clippy::tests_outside_test_module)]

use gpuward_core::config::Config;
use gpuward_core::model::gres_conf::GresConf;
use gpuward_core::slurm_conf::{Release, Site, generate};
use std::path::Path;

fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../slurm-conf").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn gpuward_toml_shows_every_setting_with_its_default() {
    let text = example("gpuward.toml");
    assert_eq!(Config::parse(&text, "gpuward.toml").unwrap(), Config::default());
    let commented: String =
        text.lines().map(|line| line.strip_prefix("# ").unwrap_or(line)).map(|l| format!("{l}\n")).collect();
    assert!(
        commented.contains("\nexpected_gpus = 8\n") && commented.contains("\n[health.codes.ECC_UNCORR]\n")
    );
}

#[test]
fn slurm_conf_is_what_gpuward_gen_prints() {
    let release = Release::parse("25.11").unwrap();
    let generated = generate(release, &Site::in_libexec("/usr/libexec/gpuward")).unwrap();
    assert_eq!(example("slurm.conf"), generated);
}

#[test]
fn gres_conf_names_eight_gpus_for_the_large_nodes() {
    assert_eq!(GresConf::parse(&example("gres.conf"), "gpu07").gpu_count(), Some(8));
    assert_eq!(GresConf::parse(&example("gres.conf"), "viz1").gpu_count(), Some(4));
}

#[test]
fn plugstack_conf_is_optional_never_required() {
    let lines: Vec<String> =
        example("plugstack.conf").lines().filter(|l| !l.starts_with('#')).map(Into::into).collect();
    assert_eq!(lines, ["optional spank_gpuward.so config=/etc/gpuward/gpuward.toml"]);
}

#[test]
fn the_commented_expectations_of_gpuward_toml_are_valid_and_show_every_key() {
    let text = example("gpuward.toml");
    let start = text.find("# [[expected]]").unwrap();
    let table = text[start..].split("\n\n").next().unwrap();
    let is_setting = |line: &&str| line.starts_with("[[") || line.contains(" = ");
    let lines = table.lines().map(|line| line.trim_start_matches("# ")).filter(is_setting);
    let settings: String = lines.map(|line| format!("{line}\n")).collect();
    let config = Config::parse_whole(&settings, "gpuward.toml").unwrap();
    let (expected, _) = config.expected_for("dgx032");
    assert!(
        expected.gpu_count.is_some() && expected.model.is_some() && expected.nvlinks.is_some(),
        "{settings}"
    );
    assert!(expected.pcie_width.is_some() && expected.mig.is_some() && expected.power_limit_mw.is_some());
    assert!(expected.compute_mode.is_some());
}
