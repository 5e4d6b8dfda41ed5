//! Findings about the machine below the GPUs, about leftovers, and about GPUs that are not those of before, on simulated
//! machines.
#![allow(clippy::tests_outside_test_module)]

use gpuward_core::health::{Expected, KnownGpu};
use gpuward_core::model::SnapshotFile;
use gpuward_tests::sim::Bench;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// One finding as `gpuward check` prints it: severity, code, PCI address of the GPU or nothing, and what.
type Told = (String, String, String, String);

fn findings(json: &[u8]) -> Vec<Told> {
    let all: Value = serde_json::from_slice(json).unwrap_or_else(|error| panic!("{error}"));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let one = |finding: &Value| {
        assert!(!text(&finding["why"]).is_empty(), "{finding}");
        let pci = text(&finding["subject"]["gpu"]["pci"]);
        (text(&finding["severity"]), text(&finding["code"]), pci, text(&finding["what"]))
    };
    all["findings"].as_array().unwrap().iter().map(one).collect()
}

/// What a look as before a job shows of the whole node.
fn check(bench: &Bench) -> Vec<Told> {
    findings(&bench.admin("check").arg("--json").output().unwrap().stdout)
}

/// What a full look shows, of a node that should be so.
fn full_check(bench: &Bench, expect: impl FnOnce(&mut Expected)) -> Vec<Told> {
    let mut file = bench.snapshot();
    expect(&mut file.expected);
    let path = bench.path("snapshot.json");
    fs::write(&path, serde_json::to_string(&file).unwrap()).unwrap();
    let mut command = bench.admin("check");
    let output = command.arg("--json").arg("--snapshot").arg(&path).output().unwrap();
    findings(&output.stdout)
}

fn full(bench: &Bench) -> Vec<Told> {
    full_check(bench, |_| ())
}

fn told(severity: &str, code: &str, pci: &str, what: &str) -> Told {
    (severity.into(), code.into(), pci.into(), what.into())
}

/// A file or folder of the node's own sysfs and procfs.
fn place(bench: &Bench, path: &str) -> PathBuf {
    bench.node.dir.join("root").join(path)
}

fn write(bench: &Bench, path: &str, bytes: impl AsRef<[u8]>) {
    let path = place(bench, path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

fn machines() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let machines = files.filter(|path| path.extension().is_some_and(|ending| ending == "toml"));
    machines.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned()).collect()
}

#[test]
fn a_full_look_at_any_healthy_machine_warns_of_nothing() {
    let virtual_machines = ["aws-p4d", "azure-ndv5", "h100-vm", "l4-vm"];
    for name in machines() {
        let bench = Bench::new(&name, "drain", "");
        let told = full(&bench);
        assert!(told.iter().all(|finding| finding.0 == "info"), "{name}: {told:?}");
        let seen = bench.snapshot().snapshot.host.platform.virtual_machine;
        let is_virtual = virtual_machines.contains(&name.as_str());
        // POWER says nothing about it.
        assert!(seen.value().is_none_or(|&seen| seen == is_virtual), "{name}: {seen:?}");
        assert!(!is_virtual || seen.value().is_some(), "{name}");
    }
}

/// Lets the node's last look be a minute older.
fn age(bench: &Bench) {
    let path = bench.node.dir.join("run/boot.json");
    let mut state: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    for seen in state["seen"].as_array_mut().unwrap() {
        seen["boottime_ns"] = (seen["boottime_ns"].as_u64().unwrap() - 60_000_000_000).into();
    }
    fs::write(&path, state.to_string()).unwrap();
}

#[test]
fn memory_that_no_process_holds_is_told_and_warned_of_when_it_stays() {
    let bench = Bench::new("hgx-h100", "drain", "");
    assert_eq!(check(&bench), []);
    bench.node.fault("on = [{ fault = \"memory-unheld\", gpu = 3 }]");
    let pci = bench.node.pci(3);
    let once = check(&bench);
    let [(severity, code, at, what)] = &once[..] else { panic!("{once:?}") };
    assert_eq!((severity.as_str(), code.as_str(), at), ("info", "LEFT_MEM", &pci));
    assert!(what.ends_with(" MiB held by no process"), "{what}");
    // The look before saw the memory free; the next one counts from this one on.
    age(&bench);
    check(&bench);
    age(&bench);
    assert_eq!(check(&bench), [told("warn", "LEFT_MEM", &pci, &format!("{what}, again"))]);
    assert_eq!(bench.prolog(7, "2,3").code, Some(0), "a warning refuses no job");
    bench.node.heal();
    assert_eq!(check(&bench), []);
}

/// Control groups of version 2 in the node's trees, as systemd and Slurm make them.
fn with_control_groups(bench: &Bench) {
    bench.write("etc/slurm.conf", "ClusterName=bench\n");
    let mount = place(bench, "sys/fs/cgroup");
    write(bench, "sys/fs/cgroup/cgroup.procs", "1\n");
    let line = format!("30 24 0:26 / {} rw - cgroup2 cgroup2 rw\n", mount.display());
    write(bench, "proc/thread-self/mountinfo", line);
    write(bench, "proc/1/cgroup", "0::/init.scope\n");
}

fn process(bench: &Bench, pid: u32, name: &str, group: &str) {
    let stat = format!("{pid} ({name}) S 1 {pid} {pid} 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0\n");
    write(bench, &format!("proc/{pid}/stat"), stat);
    write(bench, &format!("proc/{pid}/cgroup"), format!("0::{group}\n"));
}

#[test]
fn a_process_outside_of_any_job_is_named_and_those_of_jobs_and_daemons_are_not() {
    const PID: u32 = 4_194_303;
    let bench = Bench::new("hgx-h100", "drain", "");
    bench.node.fault("on = [{ fault = \"leftover-process\", gpu = 5 }]");
    let pci = bench.node.pci(5);
    let gone = check(&bench);
    assert_eq!((gone[0].1.as_str(), &gone[0].2, gone.len()), ("LEFT_MEM", &pci, 1), "it has ended: {gone:?}");
    process(&bench, PID, "python3", "/user.slice/user-1000.slice/session-3.scope");
    assert_eq!(check(&bench), [], "nobody can tell whose it is without control groups");
    with_control_groups(&bench);
    let left = [told("warn", "LEFT_PROC", &pci, &format!("process {PID} python3 of no job"))];
    assert_eq!(check(&bench), left);
    let told_in_prolog = |job, slot| {
        let before = bench.node.log().len();
        let run = bench.prolog(job, &bench.node.minor(slot).to_string());
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        bench.node.log()[before..].contains("LEFT_PROC")
    };
    assert!(told_in_prolog(7, 5) && !told_in_prolog(8, 4), "{}", bench.node.log());
    process(&bench, PID, "python3", "/system.slice/slurmstepd.scope/job_12/step_0/user/task_0");
    assert_eq!(check(&bench), [], "another job's");
    process(&bench, PID, "nvidia-persiste", "/system.slice/nvidia-persistenced.service");
    assert_eq!(check(&bench), []);
    process(&bench, PID, "python3", "/user.slice");
    bench.write("etc/slurm.conf", "ClusterName=bench\nProctrackType=proctrack/linuxproc\n");
    assert_eq!(check(&bench), [], "Slurm keeps no groups for its jobs");
}

fn known(file: &SnapshotFile) -> Vec<KnownGpu> {
    let gpus = file.snapshot.gpus.iter();
    let known = |gpu: &gpuward_core::model::snapshot::ProbedGpu| KnownGpu {
        serial: gpu.reading.serial.value().cloned(),
        ..KnownGpu::only(gpu.pci().unwrap(), gpu.reading.uuid.value().unwrap().clone())
    };
    gpus.map(known).collect()
}

#[test]
fn a_gpu_that_vanished_with_a_reboot_is_named_though_the_others_are_well() {
    let mut bench = Bench::new("l40s-pcie", "drain", "");
    let before = known(&bench.snapshot());
    let expect = |expected: &mut Expected| {
        expected.gpu_count = None;
        expected.known.clone_from(&before);
    };
    assert_eq!(full_check(&bench, expect), []);
    let gone = bench.node.pci(1);
    bench.change_machine(|machine| {
        machine.boot_id = "11112222-3333-4444-5555-666677778888".into();
        machine.gpus.remove(1);
    });
    assert_eq!(full_check(&bench, expect), [told("fail", "GPU_CHANGED", &gone, "gone from its slot")]);
    // Without a memory of it the number that gres.conf names still tells, but not which.
    let count = bench.node.machine.gpus.len();
    assert_eq!(full(&bench)[0].3, format!("{count} of {} GPUs on PCIe", count + 1));
}

#[test]
fn a_gpu_that_nouveau_has_taken_is_named() {
    let bench = Bench::new("l40s-pcie", "drain", "");
    let pci = bench.node.pci(2);
    let driver = place(&bench, &format!("sys/bus/pci/devices/{pci}/driver"));
    let take = |name: &str| {
        fs::remove_file(&driver).unwrap();
        std::os::unix::fs::symlink(format!("../../../bus/pci/drivers/{name}"), &driver).unwrap();
    };
    take("nouveau");
    assert_eq!(check(&bench), [told("fail", "GPU_FOREIGN", &pci, "bound to nouveau")]);
    take("vfio-pci");
    assert_eq!(check(&bench), []);
}

#[test]
fn a_missing_uvm_is_worth_a_line_and_explained_where_the_kernel_refuses_it() {
    let mut bench = Bench::new("l40s-pcie", "drain", "");
    bench.change_machine(|machine| machine.driver.modules.retain(|name| name != "nvidia_uvm"));
    let codes = |bench: &Bench| {
        let all = check(bench).into_iter();
        all.map(|finding| format!("{} {}", finding.0, finding.1)).collect::<Vec<_>>()
    };
    assert_eq!(codes(&bench), ["info UVM_MISSING"]);
    write(&bench, "sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
    assert_eq!(codes(&bench), ["warn UVM_MISSING", "info MOD_REFUSED"]);
    assert_eq!(bench.prolog(7, "0").code, Some(0));
}

#[test]
fn firmware_and_mig_modes_that_differ_are_told_by_a_full_look() {
    let bench = Bench::new("hgx-h100", "drain", "");
    let pci = bench.node.pci(6);
    bench.node.fault("on = [{ fault = \"vbios-differs\", gpu = 6 }]");
    let what = format!("VBIOS of {pci} differs from its like");
    assert_eq!(full(&bench), [told("warn", "VBIOS_MIX", "", &what)]);
    bench.node.fault("on = [{ fault = \"mig-pending\", gpu = 6 }]");
    let waits = told("warn", "MIG_LAYOUT", &pci, "MIG is off, and on after the next reset");
    assert_eq!(check(&bench), std::slice::from_ref(&waits));
    assert_eq!(full(&bench), [waits]);
    bench.node.fault("on = [{ fault = \"mig-changed\", gpu = 6 }]");
    let off = |expected: &mut Expected| expected.mig = Some((Vec::new(), "gpuward.toml".into()));
    assert_eq!(full_check(&bench, off), [told("fail", "MIG_LAYOUT", &pci, "MIG layout: MIG on")]);
}

#[test]
fn ports_that_are_down_or_slow_are_named() {
    let bench = Bench::new("hgx-h100", "drain", "");
    let port = |nic: &str, file: &str| format!("sys/class/infiniband/{nic}/ports/1/{file}");
    let nics = bench.node.machine.nics.iter();
    let infiniband: Vec<String> =
        nics.filter(|nic| nic.link_layer == "InfiniBand").map(|nic| nic.name.clone()).collect();
    let (down, slow) = (&infiniband[0], &infiniband[1]);
    write(&bench, &port(down, "state"), "1: DOWN\n");
    write(&bench, &port(down, "phys_state"), "2: Polling\n");
    write(&bench, &port(slow, "rate"), "100 Gb/sec (4X EDR)\n");
    let rate = bench.node.machine.nics[0].rate_gbps;
    let wanted = [
        told("warn", "NIC_DOWN", "", &format!("{down} is down")),
        told("warn", "NIC_RATE", "", &format!("{slow} runs at 100 of {rate} Gb/s")),
    ];
    assert_eq!(full(&bench), wanted);
}

/// Configuration space of a switch port with Access Control Services: redirect of requests and completions.
fn redirecting() -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    bytes[0x100..0x104].copy_from_slice(&0x0001_000d_u32.to_le_bytes());
    bytes[0x106..0x108].copy_from_slice(&0x000c_u16.to_le_bytes());
    bytes
}

#[test]
fn a_machine_that_leads_peer_traffic_astray_is_told_on_bare_metal_only() {
    let bench = Bench::new("hgx-h100", "drain", "");
    let ports = &bench.node.machine.switches[0].down;
    let port =
        *ports.iter().find(|port| bench.node.machine.gpus.iter().all(|gpu| gpu.under != **port)).unwrap();
    write(&bench, &format!("sys/bus/pci/devices/{port}/config"), redirecting());
    let acs = told("warn", "IOMMU_ACS", "", &format!("ACS of {port} sends peer traffic to the root"));
    assert_eq!(full(&bench), std::slice::from_ref(&acs));
    for slot in 0..8 {
        let pci = bench.node.pci(slot);
        write(&bench, &format!("sys/bus/pci/devices/{pci}/iommu_group/type"), "DMA-FQ\n");
    }
    let iommu = told("warn", "IOMMU_ACS", "", "the IOMMU translates what GPUs read and write");
    assert_eq!(full(&bench), [acs, iommu]);
    write(&bench, "proc/cpuinfo", "flags\t\t: fpu hypervisor\n");
    assert_eq!(full(&bench), []);
}

#[test]
fn a_process_that_hangs_in_the_driver_is_remembered_from_look_to_look() {
    let bench = Bench::new("hgx-h100", "drain", "");
    let stat = "77 (train) D 1 77 77 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0\n";
    write(&bench, "proc/77/stat", stat);
    write(&bench, "proc/77/task/77/stat", stat);
    write(&bench, "proc/77/task/77/wchan", "nvidia_unlocked_ioctl");
    let marks = || {
        let path = bench.node.dir.join("run/boot.json");
        let state: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        state["stuck"].clone()
    };
    let seen = bench.snapshot().snapshot.host.platform.stuck;
    assert_eq!(seen.value().unwrap()[0].waits_in.as_deref(), Some("nvidia_unlocked_ioctl"));
    let first = marks();
    assert_eq!((&first[0]["pid"], &first[0]["start_ticks"]), (&77.into(), &4711.into()));
    bench.snapshot();
    assert_eq!(marks(), first, "since the first look");
    assert_eq!(check(&bench), [], "a look before a job asks no process");
    assert_eq!(marks(), first);
    write(&bench, "proc/77/task/77/stat", stat.replace(" D ", " S "));
    bench.snapshot();
    assert_eq!(marks(), Value::Array(Vec::new()));
}
