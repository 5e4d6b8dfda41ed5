//! A wrong scenario is refused with file, line, key and the values that would be right, whichever file it stands in.

// Integration tests have no test module.
#![allow(clippy::tests_outside_test_module)]

mod common;

use std::fs;
use std::path::Path;

use common::scenario;
use nvidia_ml::scenario::Machine;

/// Copies all scenario files.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// One mistake: in which machine and file, which text becomes which, and what the message then must hold.
struct Mistake {
    machine: &'static str,
    file: &'static str,
    change: (&'static str, &'static str),
    /// A text of the line that must be named, after the change; its first occurrence counts.
    line: &'static str,
    key: &'static str,
    says: &'static [&'static str],
}

impl Mistake {
    /// Makes the mistake in a copy of the scenarios; the line that must be named, and the message.
    fn make(&self) -> (usize, String) {
        let folder = tempfile::tempdir().unwrap();
        copy(scenario("x").parent().unwrap(), folder.path());
        let path = folder.path().join(self.file);
        let good = fs::read_to_string(&path).unwrap();
        let wrong = good.replacen(self.change.0, self.change.1, 1);
        assert_ne!(good, wrong, "{}: no '{}'", self.file, self.change.0);
        fs::write(&path, &wrong).unwrap();
        let line = wrong.lines().position(|line| line.contains(self.line)).unwrap() + 1;
        let machine = Machine::load(&folder.path().join(format!("{}.toml", self.machine)));
        let message = machine.err().unwrap_or_else(|| panic!("fine: {} {:?}", self.file, self.change));
        (line, message.to_string().replace(&format!("{}/", folder.path().display()), ""))
    }
}

macro_rules! mistakes {
    ($($machine:literal $file:literal: $from:literal => $to:literal, at $line:literal, $key:literal $($says:literal)+;)*) => {
        vec![$(Mistake {
            machine: $machine, file: $file, change: ($from, $to), line: $line, key: $key, says: &[$($says),+],
        }),*]
    };
}

fn check(mistakes: Vec<Mistake>) {
    for mistake in mistakes {
        let (line, message) = mistake.make();
        let start = format!("{}:{line}: {}: ", mistake.file, mistake.key);
        assert!(message.starts_with(&start), "wanted '{start}', got '{message}'");
        for part in mistake.says {
            assert!(message.contains(part), "no '{part}' in '{message}'");
        }
    }
}

#[test]
fn keys_and_values_that_the_schema_does_not_know_are_named_with_those_that_it_knows() {
    check(mistakes! {
        "l40s-pcie" "l40s-pcie.toml": "active = false" => "activ = false", at "activ =", "nics[1].activ"
            "unknown field `activ`" "`active`" "`link_layer`";
        "l40s-pcie" "l40s-pcie.toml": "[driver]" => "[drivr]", at "[drivr]", "drivr" "unknown field `drivr`" "`driver`" "`numa`";
        "l40s-pcie" "models/l40s.toml": "idle_pstate = 8" => "idle_state = 8", at "idle_state", "clocks.idle_state"
            "unknown field `idle_state`" "`idle_pstate`";
        "hgx-h100" "boards/hgx-h100-8.toml": "{ state = 3" => "{ stat = 3", at "stat =", "gpu_defaults.fabric.stat"
            "unknown field `stat`" "`state`" "`clique`";
        "hgx-h100" "hosts/xeon-2x56.toml": "threads_per_core" => "threads", at "threads =", "cpu.threads" "`threads_per_core`";
        "h100-4x-snc4" "h100-4x-snc4.toml": "sockets-interleaved" => "sockets-mixed", at "sockets-mixed", "cpu.numbering"
            "unknown variant `sockets-mixed`" "`threads-last`" "`threads-together`" "`sockets-interleaved`";
        "gb200-tray" "gb200-tray.toml": "aarch64" => "arm64", at "arm64", "cpu.isa" "`x86_64`" "`aarch64`" "`ppc64le`";
        "l40s-pcie" "l40s-pcie.toml": "sockets = 2" => "sockets = \"two\"", at "two", "cpu.sockets" "invalid type" "u32";
        "l40s-pcie" "l40s-pcie.toml": "pci = \"0000:81:00.0\"" => "pci = \"0000:81:40.0\"", at "81:40", "gpus[2].pci"
            "'0000:81:40.0' is not a PCI address like 0000:3b:00.0";
        "hgx-h100" "hosts/xeon-2x56.toml": "0-55,112-167" => "55-0", at "55-0", "numa[0].cpus" "is not a list like 0-55,112-167";
        "l40s-pcie" "l40s-pcie.toml": "\"InfiniBand\"" => "\"Infiniband\"", at "\"Infiniband\"", "nics[0].link_layer"
            "'Infiniband' is none of InfiniBand, Ethernet, Unknown";
        "l40s-pcie" "l40s-pcie.toml": "link_layer = \"InfiniBand\", " => "", at "mlx5_0", "nics[0]" "missing field `link_layer`";
        "old-driver" "old-driver.toml": "\"nvmlGpmSampleGet\"" => "\"GpmSampleGet\"", at "\"GpmSampleGet\"",
            "driver.missing_symbols[8]" "nvmlDeviceGetMemoryInfo_v2";
    });
}

#[test]
fn files_that_are_not_there_are_named_with_those_that_are() {
    check(mistakes! {
        "l40s-pcie" "l40s-pcie.toml": "model = \"l40s\"" => "model = \"l40x\"", at "l40x", "gpus[0].model"
            "no model 'l40x'" "a100-sxm4-40, " "l40s, ";
        "hgx-b200" "boards/hgx-b200-8.toml": "model = \"b200\"" => "model = \"b300\"", at "b300", "gpus[0].model" "b200, ";
        "hgx-h100" "hgx-h100.toml": "board = \"hgx-h100-8\"" => "board = \"hgx-h100\"", at "board =", "board"
            "no board 'hgx-h100'" "hgx-h100-8";
        "hgx-h100" "hgx-h100.toml": "xeon-2x56" => "xeon", at "host =", "host" "no host 'xeon'" "two-cpus, xeon-2x56";
        "hgx-h100" "boards/hgx-h100-8.toml": "[gpu_defaults]" => "board = \"hgx-b200-8\"\n[gpu_defaults]", at "board =",
            "board" "a board cannot name a board itself";
    });
}

#[test]
fn values_that_do_not_fit_together_are_named_with_what_would_fit() {
    check(mistakes! {
        "l40s-pcie" "l40s-pcie.toml": "under = \"0000:80:01.1\"" => "under = \"0000:80:02.1\"", at "80:02.1", "gpus[2].under"
            "0000:80:02.1 is no root port or switch port" "0000:00:01.1, 0000:20:01.1";
        "dgx-a100" "dgx-a100.toml": "under = \"0000:06:00.0\"" => "under = \"0000:06:01.0\"", at "06:01.0", "gpus[0].under" "0000:06:00.0";
        "l4-vm" "l4-vm.toml": "numa = 0, bare = true" => "numa = 0", at "pci = \"0000:00:03.0\"", "gpus[0].pci" "0000:00:03.0 is used twice";
        "l4-vm" "l4-vm.toml": "{ at = \"0000:00:04.0\"" => "{ at = \"0000:00:0a.0\"", at "00:0a.0", "root_ports[1].at" "no GPU, NIC or NVSwitch";
        "l40s-pcie" "l40s-pcie.toml": "\"0000:80:01.1\", numa = 1" => "\"0000:80:01.1\", numa = 2", at "numa = 2",
            "root_ports[2].numa" "no node 2; nodes are 0, 1, -1 = not said";
        "hgx-h100" "hosts/xeon-2x56.toml": "node = 1" => "node = 0", at "56-111", "numa[1].node" "node 0 is described twice";
        "hgx-h100" "hosts/xeon-2x56.toml": "168-223" => "168-224", at "168-224", "numa[1].cpus" "CPU 224 does not exist; CPUs are 0-223";
        "hgx-h100" "hosts/xeon-2x56.toml": "168-223" => "167-223", at "167-223", "numa[1].cpus" "CPU 167 is in two nodes";
        "hgx-h100" "hosts/xeon-2x56.toml": "168-223" => "168-222", at "numa =", "numa" "CPU 223 of 0-223 is in no node";
        "hgx-h100" "hosts/xeon-2x56.toml": "distances = [21, 10]" => "distances = [21]", at "[21]", "numa[1].distances" "needs 2";
        "l40s-pcie" "l40s-pcie.toml": "sockets = 2\n" => "", at "[cpu]", "cpu.sockets" "is needed";
        "l40s-pcie" "l40s-pcie.toml": "sockets = 2\n" => "sockets = 200000000\n", at "sockets =", "cpu.sockets" "at most 65536";
        "l40s-pcie" "models/l40s.toml": "total_mib = 46068" => "total_mib = 0", at "total_mib", "gpus[0].memory.total_mib" "is needed";
        "l40s-pcie" "l40s-pcie.toml": "[[gpus]]\nuuid = \"GPU-6471b463-7997-3142-9b05-83ffb5868fff\"\nserial = \"1321423002923\"\npci = \"0000:81:00.0\""
            => "[[gpus]] # here", at "# here", "gpus[2].pci" "is needed";
        "l40s-pcie" "l40s-pcie.toml": "pci = \"0000:81:00.0\"" => "pci = \"0000:21:00.0\" # here", at "# here", "gpus[2].pci" "0000:21:00.0 is used twice";
        "l40s-pcie" "l40s-pcie.toml": "GPU-6471b463-7997" => "GPU-6471b463", at "GPU-6471b463", "gpus[2].uuid" "is not GPU- and 36 characters";
        "hgx-h100" "hgx-h100.toml": "minor = 7" => "minor = 6 # here", at "# here", "gpus[5].minor" "minor 6 is used twice";
        "gb200-tray" "gb200-tray.toml": "memory_numa_node = 26" => "memory_numa_node = 34", at "= 34", "gpus[3].memory_numa_node"
            "nodes are 0, 1, 2, ";
        "l40s-pcie" "l40s-pcie.toml": "[driver]" => "nvml_order = [0, 1, 2, 2]\n[driver]", at "nvml_order", "nvml_order" "slots are 0, 1, 2, 3";
    });
}

#[test]
fn links_and_instances_that_do_not_fit_are_named_with_what_would_fit() {
    check(mistakes! {
        "dgx-1v" "boards/v100-cube-mesh.toml": "{ to = \"0000:07:00.0\"" => "{ to = \"0000:08:00.0\"", at "08:00.0",
            "gpus[0].nvlink.links[0].to" "0000:08:00.0 is no other GPU and no NVSwitch" "0000:07:00.0, 0000:0a:00.0";
        "hgx-h100" "boards/hgx-h100-8.toml": "\"13-17\"" => "\"14-18\"", at "links = [", "gpus[0].nvlink.links" "must run from 0" "12, 14";
        "mig-a100" "mig-a100.toml": "\"4g.20gb\"" => "\"4g.40gb\"", at "4g.40gb", "gpus[1].mig.devices[0].profile"
            "'4g.40gb' is no profile of NVIDIA A100-SXM4-40GB" "1g.5gb, 1g.10gb, 2g.10gb, 3g.20gb, 4g.20gb, 7g.40gb";
        "mig-a100" "mig-a100.toml": "\"3g.20gb\", gpu_instance = 2 }," => "\"4g.20gb\", gpu_instance = 2 }, # here", at "# here",
            "gpus[1].mig.devices[1].profile" "at most 1 of 4g.20gb";
        "mig-a100" "mig-a100.toml": "\"1g.5gb\", gpu_instance = 7" => "\"2g.10gb\", gpu_instance = 7", at "mig.devices",
            "gpus[0].mig.devices" "8 of 7 GPU slices";
        "mig-a100" "mig-a100.toml": "gpu_instance = 8" => "gpu_instance = 7 }, # here\n# {", at "# here",
            "gpus[0].mig.devices[1].gpu_instance" "same ids";
        "mig-a100" "mig-a100.toml": "mig.enabled = true\n" => "", at "mig.devices", "gpus[0].mig.devices" "MIG is off";
        "l40s-pcie" "l40s-pcie.toml": "model = \"l40s\"" => "model = \"l40s\"\nmig.enabled = true", at "mig.enabled", "gpus[0].mig.enabled"
            "NVIDIA L40S has no MIG";
    });
}

#[test]
fn a_text_that_is_no_toml_is_named_with_its_line() {
    let mistake = mistakes! {
        "l40s-pcie" "l40s-pcie.toml": "[driver]" => "[driver", at "[driver", "" "in `[driver`";
    };
    let (line, message) = mistake[0].make();
    assert!(message.starts_with(&format!("l40s-pcie.toml:{line}: ")), "{message}");
    assert!(message.contains(mistake[0].says[0]), "{message}");
}

#[test]
fn the_example_of_the_readme_is_a_machine() {
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let example = readme.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    copy(scenario("x").parent().unwrap(), folder.path());
    let path = folder.path().join("small.toml");
    fs::write(&path, example).unwrap();
    let machine = Machine::load(&path).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((machine.name.as_str(), machine.gpus.len()), ("small", 2));
}
