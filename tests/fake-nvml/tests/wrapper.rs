//! The fake through nvml-wrapper, the library that gpuward itself uses: true answers on both machines, from many
//! threads, and every kind of fault.

// Integration tests have no test module.
#![allow(clippy::tests_outside_test_module)]

mod common;

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{Installed, SCENARIOS, fields};
use nvidia_ml::scenario::{Gpu, Machine, MigDevice};
use nvml_wrapper::enum_wrappers::device::{
    Clock, EccCounter, MemoryError, MemoryLocation, TemperatureSensor, TopologyLevel,
};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

fn temperature(device: &Device<'_>) -> Result<u32, NvmlError> {
    device.temperature(TemperatureSensor::Gpu)
}

/// GPUs in NVML's order with the device at that index.
fn devices<'a>(nvml: &'a Nvml, machine: &'a Machine) -> Vec<(Device<'a>, &'a Gpu)> {
    let slots = machine.nvml_slots();
    assert_eq!(nvml.device_count().unwrap() as usize, slots.len());
    (0..)
        .zip(slots)
        .map(|(index, slot)| (nvml.device_by_index(index).unwrap(), machine.gpu(slot).unwrap()))
        .collect()
}

/// Reads everything and compares it with the scenario.
fn read_all(nvml: &Nvml, machine: &Machine) {
    assert_eq!(nvml.sys_driver_version().unwrap(), machine.driver.version);
    assert_eq!(nvml.sys_nvml_version().unwrap(), format!("12.{}", machine.driver.version));
    assert_eq!(nvml.sys_cuda_driver_version().unwrap(), machine.driver.cuda);
    for (device, gpu) in devices(nvml, machine) {
        identity(nvml, &device, gpu);
        health(&device, gpu);
        links(&device, gpu, machine);
        placement(&device, gpu, machine);
    }
}

fn identity(nvml: &Nvml, device: &Device<'_>, gpu: &Gpu) {
    assert_eq!(device.uuid().unwrap(), gpu.uuid);
    assert_eq!(Some(device.serial().unwrap()), gpu.serial);
    assert_eq!(device.name().unwrap(), gpu.name);
    assert_eq!(device.minor_number().unwrap(), gpu.minor);
    let pci = device.pci_info().unwrap();
    assert_eq!(pci.bus_id, gpu.pci.bus_id());
    assert_eq!(pci.pci_device_id, gpu.pci_device_id);
    assert_eq!(device.vbios_version().unwrap(), gpu.vbios);
    assert_eq!(Some(device.board_part_number().unwrap()), gpu.board_part_number);
    assert_eq!(Some(device.info_rom_image_version().unwrap()), gpu.inforom);
    assert_eq!(device.architecture().unwrap().as_c(), gpu.architecture);
    assert_eq!(nvml.device_by_uuid(gpu.uuid.as_str()).unwrap().index().unwrap(), device.index().unwrap());
    assert_eq!(nvml.device_by_pci_bus_id(gpu.pci.to_string()).unwrap().uuid().unwrap(), gpu.uuid);
    // Deprecated for boards with two GPUs of one serial number, which these are not.
    #[allow(deprecated)]
    let by_serial = nvml.device_by_serial(gpu.serial.clone().unwrap()).unwrap();
    assert_eq!(by_serial.uuid().unwrap(), gpu.uuid);
}

fn health(device: &Device<'_>, gpu: &Gpu) {
    let memory = device.memory_info().unwrap();
    assert_eq!(memory.total, gpu.memory.total_mib << 20);
    assert_eq!(memory.used + memory.free + memory.reserved, memory.total);
    assert_eq!(device.bar1_memory_info().unwrap().total, gpu.memory.bar1_mib << 20);
    assert_eq!(u64::from(device.power_usage().unwrap()), gpu.power.idle_mw);
    assert_eq!(device.enforced_power_limit().unwrap(), gpu.power.default_limit_mw);
    assert!(device.total_energy_consumption().unwrap() > 0);
    assert_eq!(temperature(device).unwrap(), gpu.temp.gpu_c);
    assert!(device.is_ecc_enabled().unwrap().currently_enabled);
    for counter in [EccCounter::Volatile, EccCounter::Aggregate] {
        assert_eq!(device.total_ecc_errors(MemoryError::Uncorrected, counter).unwrap(), 0);
        let at = device.memory_error_counter(MemoryError::Corrected, counter, MemoryLocation::Device);
        assert_eq!(at.unwrap(), 0);
    }
    assert_eq!(device.current_throttle_reasons().unwrap().bits(), 1);
    assert_eq!(device.clock_info(Clock::Memory).unwrap(), gpu.clocks.idle_mhz[2]);
    assert_eq!(device.applications_clock(Clock::Graphics).unwrap(), gpu.clocks.app_default_mhz.unwrap()[0]);
    assert_eq!(device.supported_memory_clocks().unwrap(), gpu.clocks.supported_memory_mhz);
    assert_eq!(device.current_pcie_link_gen().unwrap(), gpu.pcie.idle_generation);
    assert_eq!(device.max_pcie_link_width().unwrap(), 16);
    assert_eq!(device.pcie_replay_counter().unwrap(), 0);
    assert_eq!(device.utilization_rates().unwrap().gpu, 0);
    assert!(device.running_compute_processes().unwrap().is_empty());
    assert!(!device.is_accounting_enabled().unwrap());
}

fn links(device: &Device<'_>, gpu: &Gpu, machine: &Machine) {
    if gpu.nvlink.version.is_none() {
        assert!(matches!(device.link_wrapper_for(0).is_active(), Err(NvmlError::NotSupported)));
        return;
    }
    for link in 0..18 {
        let link = device.link_wrapper_for(link);
        assert!(link.is_active().unwrap());
        assert_eq!(link.version().unwrap(), gpu.nvlink.version.unwrap());
        let remote = link.remote_pci_info().unwrap().bus_id;
        assert!(machine.nvswitches.iter().any(|switch| switch.pci.bus_id() == remote), "{remote}");
    }
    assert!(matches!(device.link_wrapper_for(18).is_active(), Err(NvmlError::InvalidArg)));
}

fn placement(device: &Device<'_>, gpu: &Gpu, machine: &Machine) {
    // Far more words than the machine has CPUs, as Slurm asks.
    let words = device.cpu_affinity(512).unwrap();
    let bits = |words: &[u64]| -> Vec<u32> {
        let all = (0..).zip(words).flat_map(|(word, bits)| {
            (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| word * 64 + bit)
        });
        all.collect()
    };
    let node = machine.numa_node(machine.numa_under(gpu.under).unwrap()).unwrap();
    assert_eq!(bits(&words), node.cpus.iter().collect::<Vec<_>>());
}

#[test]
fn both_machines_answer_as_described_to_eight_threads_at_once() {
    for name in SCENARIOS {
        let fake = Installed::new(name);
        let nvml = fake.open();
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..5).for_each(|_| read_all(&nvml, &fake.machine)));
            }
        });
    }
}

#[test]
fn two_fakes_in_one_process_are_two_nodes() {
    let machine = Machine::load(&common::scenario("l40s-pcie")).unwrap();
    let fakes = ["node1", "node2"].map(|node| Installed::with(machine.for_node(node)));
    let nvmls = fakes.each_ref().map(Installed::open);
    for (nvml, fake) in nvmls.iter().zip(&fakes) {
        read_all(nvml, &fake.machine);
    }
    fakes[0].faults("init_code = 9");
    assert!(temperature(&nvmls[1].device_by_index(0).unwrap()).is_ok());
    assert!(matches!(fakes[0].try_open(), Err(NvmlError::DriverNotLoaded)));
}

#[test]
fn distances_between_gpus_are_those_of_the_matrix() {
    let fake = Installed::new("l40s-pcie");
    let nvml = fake.open();
    let device = |index| nvml.device_by_index(index).unwrap();
    assert_eq!(device(0).topology_common_ancestor(device(1)).unwrap(), TopologyLevel::Node);
    assert_eq!(device(0).topology_common_ancestor(device(2)).unwrap(), TopologyLevel::System);
}

#[test]
fn codes_are_answered_for_one_gpu_after_some_calls_and_a_number_of_times() {
    let fake = Installed::new("hgx-h100");
    let nvml = fake.open();
    let (second, third) = (nvml.device_by_index(1).unwrap(), nvml.device_by_index(2).unwrap());
    fake.faults(
        "[[return]]\nfunction = \"nvmlDeviceGetTemperature\"\ngpu = 2\ncode = 16\nafter = 2\ntimes = 3",
    );
    let codes: Vec<_> = (0..7).map(|_| temperature(&third).is_ok()).collect();
    assert_eq!(codes, [true, true, false, false, false, true, true]);
    assert!(temperature(&second).is_ok());
    fake.faults("[[return]]\nfunction = \"nvmlDeviceGetTemperature*\"\ncode = 25");
    assert!(matches!(temperature(&second), Err(NvmlError::UnexpectedVariant(25))));
    fake.faults("[[missing]]\nfunction = \"nvmlDeviceGetPowerUsage\"");
    assert!(second.power_usage().is_err());
    fake.no_faults();
    read_all(&nvml, &fake.machine);
}

#[test]
fn a_lost_gpu_takes_no_other_with_it() {
    let fake = Installed::new("hgx-h100");
    let nvml = fake.open();
    let device = nvml.device_by_index(3).unwrap();
    let uuid = &fake.machine.gpus[3].uuid;
    fake.faults(&format!("[[lost]]\ngpu = \"{uuid}\"\nafter_calls = 2"));
    assert!(device.minor_number().is_ok());
    assert!(temperature(&device).is_ok());
    assert!(matches!(temperature(&device), Err(NvmlError::GpuLost)));
    assert!(matches!(nvml.device_by_index(3), Err(NvmlError::GpuLost)));
    assert!(matches!(nvml.device_by_uuid(uuid.as_str()), Err(NvmlError::GpuLost)));
    assert_eq!(nvml.device_count().unwrap(), 8);
    for index in [0, 1, 2, 4, 5, 6, 7] {
        assert!(temperature(&nvml.device_by_index(index).unwrap()).is_ok());
    }
}

#[test]
fn a_gpu_can_be_lost_while_a_file_exists_and_vanish() {
    let fake = Installed::new("hgx-h100");
    let nvml = fake.open();
    let plug = fake.folder().join("unplugged");
    let pci = fake.machine.gpus[0].pci;
    fake.faults(&format!("[[lost]]\ngpu = \"{pci}\"\nwhen_file = {plug:?}\nvanish = true"));
    assert_eq!(nvml.device_count().unwrap(), 8);
    let device = nvml.device_by_index(0).unwrap();
    std::fs::write(&plug, "").unwrap();
    assert_eq!(nvml.device_count().unwrap(), 7);
    assert!(matches!(temperature(&device), Err(NvmlError::GpuLost)));
    assert_eq!(nvml.device_by_index(0).unwrap().uuid().unwrap(), fake.machine.gpus[1].uuid);
    assert!(matches!(nvml.device_by_pci_bus_id(pci.to_string()), Err(NvmlError::NotFound)));
    std::fs::remove_file(&plug).unwrap();
    assert_eq!(nvml.device_count().unwrap(), 8);
    assert!(temperature(&device).is_ok());
}

#[test]
fn latency_delays_calls_without_queueing_them() {
    let fake = Installed::new("l40s-pcie");
    let nvml = fake.open();
    fake.faults("latency_us = 20000\n[[latency]]\nfunction = \"nvmlDeviceGetTemperature\"\nus = 80000");
    let device = nvml.device_by_index(0).unwrap();
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| temperature(&device).unwrap());
        }
    });
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(100), "{took:?}");
    // Eight times 100 ms in a row would be 800 ms.
    assert!(took < Duration::from_millis(500), "{took:?}");
}

#[test]
fn counters_and_states_are_set_by_the_script() {
    let fake = Installed::new("hgx-h100");
    let nvml = fake.open();
    let device = nvml.device_by_index(0).unwrap();
    fake.faults(
        r#"
        set = [
            { gpu = 0, field = "ecc.dram.volatile_uncorr", value = 3 },
            { gpu = 0, field = "ecc.sram.volatile_uncorr", value = 2 },
            { gpu = 0, field = "remap.pending", value = true },
            { gpu = 0, field = "recovery_action", value = 2 },
            { gpu = 0, field = "nvlink.down", value = "4,17" },
            { gpu = 0, field = "nvlink.errors", value = [{ link = 2, replay = 7 }] },
            { gpu = 0, field = "serial" },
            { gpu = 0, field = "temp.gpu_c", value = 91 },
        ]
        "#,
    );
    assert_eq!(device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile).unwrap(), 5);
    assert_eq!(temperature(&device).unwrap(), 91);
    assert!(matches!(device.serial(), Err(NvmlError::NotSupported)));
    let down: Vec<_> = (0..18).filter(|&link| !device.link_wrapper_for(link).is_active().unwrap()).collect();
    assert_eq!(down, [4, 17]);
    assert_eq!(
        fields(&nvml, &device, &[(4, 0), (144, 0), (145, 0), (230, 0), (52, 0), (161, 2)]),
        [5, 1, 0, 2, 7, 7]
    );
    let other = nvml.device_by_index(1).unwrap();
    assert_eq!(fields(&nvml, &other, &[(4, 0), (230, 0)]), [0, 0]);
    fake.no_faults();
    read_all(&nvml, &fake.machine);
}

#[test]
fn throttle_fields_have_the_numbers_of_the_drivers_age() {
    let ids = [(251, 0), (252, 0), (253, 0), (269, 0), (270, 0), (271, 0)];
    let set = r#"
        [[set]]
        field = "clocks.throttle_ns"
        value = { sw_thermal = 11, hw_thermal = 12, hw_power_brake = 13 }
    "#;
    let mut machine = Machine::load(&common::scenario("l40s-pcie")).unwrap();
    for (driver, expected) in [
        ("580.65.06", [11, 12, 13, 1_000_002, 1_000_002, 1_000_002]),
        ("580.82.07", [1_000_003, 1_000_003, 1_000_003, 11, 12, 13]),
    ] {
        machine.driver.version = driver.into();
        let fake = Installed::with(machine.clone());
        fake.faults(set);
        let nvml = fake.open();
        assert_eq!(fields(&nvml, &nvml.device_by_index(0).unwrap(), &ids), expected, "{driver}");
    }
}

#[test]
fn energy_grows_by_the_power_of_busy_times() {
    let fake = Installed::new("l40s-pcie");
    let nvml = fake.open();
    let (busy, idle) = (nvml.device_by_index(0).unwrap(), nvml.device_by_index(1).unwrap());
    let before = busy.total_energy_consumption().unwrap();
    assert!(before.abs_diff(idle.total_energy_consumption().unwrap()) < 1000);
    // One busy second just after boot, long over: 310 W instead of 34 W.
    fake.faults("[[busy]]\ngpu = 0\nfrom_boottime_ms = 0\nuntil_boottime_ms = 1000");
    let grown = busy.total_energy_consumption().unwrap() - idle.total_energy_consumption().unwrap();
    assert!(grown.abs_diff(276_000) < 1000, "{grown}");
    assert_eq!(busy.power_usage().unwrap(), 34_000);
    fake.faults(
        "[[busy]]\ngpu = 0\npower_mw = 200000\nprocess = { pid = 4711, name = \"train\", memory_mib = 1024 }",
    );
    assert_eq!(busy.power_usage().unwrap(), 200_000);
    assert_eq!(busy.utilization_rates().unwrap().gpu, 93);
    assert_eq!(temperature(&busy).unwrap(), 68);
    let processes = busy.running_compute_processes().unwrap();
    assert_eq!(processes.iter().map(|process| process.pid).collect::<Vec<_>>(), [4711]);
    assert_eq!(nvml.sys_process_name(4711, 32).unwrap(), "train");
    assert_eq!(busy.memory_info().unwrap().used, 1024 << 20);
}

#[test]
fn what_one_process_sets_another_sees() {
    let fake = Installed::new("l40s-pcie");
    let (nvml, again) = (fake.open(), fake.open());
    let device = nvml.device_by_index(0).unwrap();
    let mut writer = again.device_by_index(0).unwrap();
    writer.set_applications_clocks(9001, 1995).unwrap();
    writer.set_persistent(false).unwrap();
    assert_eq!(device.applications_clock(Clock::Graphics).unwrap(), 1995);
    assert!(!device.is_in_persistent_mode().unwrap());
    writer.reset_applications_clocks().unwrap();
    writer.set_persistent(true).unwrap();
    assert_eq!(device.applications_clock(Clock::Graphics).unwrap(), 2520);
    assert!(matches!(writer.set_applications_clocks(9001, 1), Err(NvmlError::InvalidArg)));
    assert!(fake.folder().join("settings.toml").exists());
}

#[test]
fn mig_devices_are_found_by_index_and_uuid() {
    let mut machine = Machine::load(&common::scenario("hgx-h100")).unwrap();
    let uuid = "MIG-3f8a7f4e-0b7c-5c9e-8a53-6a2f0c1d2e3f";
    machine.gpus[1].mig.enabled = true;
    machine.gpus[1].mig.devices = vec![MigDevice {
        uuid: uuid.into(),
        profile: "1g.10gb".into(),
        gpu_instance: 7,
        slices: 1,
        multiprocessors: 16,
        memory_mib: 9728,
        ..MigDevice::default()
    }];
    let fake = Installed::with(machine);
    let nvml = fake.open();
    let parent = nvml.device_by_index(1).unwrap();
    assert_eq!(parent.mig_device_count().unwrap(), 7);
    let mig = parent.mig_device_by_index(0).unwrap();
    assert_eq!(mig.uuid().unwrap(), uuid);
    assert_eq!(mig.name().unwrap(), "NVIDIA H100 80GB HBM3 MIG 1g.10gb");
    assert_eq!(mig.memory_info().unwrap().total, 9728 << 20);
    assert_eq!(mig.attributes().unwrap().memory_size_mb, 9728);
    assert!(matches!(temperature(&mig), Err(NvmlError::NotSupported)));
    assert!(matches!(parent.mig_device_by_index(1), Err(NvmlError::NotFound)));
    assert_eq!(
        nvml.device_by_uuid(uuid).unwrap().mig_parent_device().unwrap().uuid().unwrap(),
        fake.machine.gpus[1].uuid
    );
    let plain = nvml.device_by_index(0).unwrap();
    assert!(matches!(plain.mig_device_by_index(0), Err(NvmlError::NotFound)));
    let no_ecc = parent.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile);
    assert!(matches!(no_ecc, Err(NvmlError::NotSupported)));
}

#[test]
fn a_struct_version_that_is_unknown_is_refused_and_nothing_is_written() {
    let fake = Installed::new("hgx-h100");
    let nvml = fake.open();
    let device = nvml.device_by_index(0).unwrap();
    // SAFETY: the handle only goes back into the library that it came from.
    let handle = unsafe { device.handle() };
    let ask = |version: u32, words: &mut [u32; 32]| {
        *words = [0xaaaa_aaaa; 32];
        words[0] = version;
        // SAFETY: 128 bytes are more than any version of the struct has.
        unsafe { nvml.lib().nvmlDeviceGetGpuFabricInfoV(handle, words.as_mut_ptr().cast()) }
    };
    let mut words = [0; 32];
    assert_eq!(ask(0x0400_0030, &mut words), 25);
    assert!(words[1..].iter().all(|&word| word == 0xaaaa_aaaa));
    assert_eq!(ask(0x0200_0024, &mut words), 0);
    assert_eq!(words[7], 3);
    assert!(words[9..].iter().all(|&word| word == 0xaaaa_aaaa), "36 bytes and no more");
    assert_eq!(ask(0x0300_0028, &mut words), 0);
    assert!(words[10..].iter().all(|&word| word == 0xaaaa_aaaa), "40 bytes and no more");
}

#[test]
fn a_driver_that_is_not_loaded_or_of_another_version_fails_init() {
    let mut machine = Machine::load(&common::scenario("l40s-pcie")).unwrap();
    machine.driver.library_version = Some("575.57.08".into());
    assert!(matches!(Installed::with(machine.clone()).try_open(), Err(NvmlError::LibRmVersionMismatch)));
    machine.driver.loaded = false;
    assert!(matches!(Installed::with(machine).try_open(), Err(NvmlError::DriverNotLoaded)));
}

#[test]
fn a_broken_script_fails_calls_loudly() {
    let fake = Installed::new("l40s-pcie");
    let nvml = fake.open();
    // By hand, so nothing tells the library of it: it finds out by itself.
    std::fs::write(fake.folder().join("faults.toml"), "[[lost]]\ngpu = 99").unwrap();
    wait_until("the edit was not seen", || matches!(nvml.device_count(), Err(NvmlError::Unknown)));
    fake.no_faults();
    assert_eq!(nvml.device_count().unwrap(), 4);
}

/// The example that reads one temperature: a process of its own that can hang.
fn child(fake: &Installed) -> Command {
    let mut command = Command::new(common::example("read_first_gpu"));
    command.arg(fake.library()).stdout(Stdio::piped());
    command
}

#[test]
fn a_hang_holds_a_process_until_it_is_killed() {
    let fake = Installed::new("l40s-pcie");
    fake.faults("[[hang]]\nfunction = \"nvmlDeviceGetTemperature\"\ngpu = 0");
    let mut hung = child(&fake).spawn().unwrap();
    // Another process is not disturbed on the other GPUs.
    let nvml = fake.open();
    assert!(temperature(&nvml.device_by_index(1).unwrap()).is_ok());
    thread::sleep(Duration::from_millis(300));
    assert!(hung.try_wait().unwrap().is_none(), "still hanging");
    hung.kill().unwrap();
    hung.wait().unwrap();
    fake.no_faults();
    let output = child(&fake).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("temperature 30"), "{output:?}");
}

/// Waits for a child that goes on until `done`, with a limit that only a failure reaches.
fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_unkillable_hang_enters_the_freezer_and_freezes_it() {
    let fake = Installed::new("l40s-pcie");
    // A plain folder shows what is written.
    let group = tempfile::tempdir().unwrap();
    fake.faults(&format!("[[hang]]\nfunction = \"*\"\ngpu = 0\nunkillable = {:?}", group.path()));
    let mut hung = child(&fake).spawn().unwrap();
    let state = group.path().join("freezer.state");
    wait_until("nothing was written", || std::fs::read(&state).is_ok_and(|text| text == b"FROZEN"));
    let pid = std::fs::read_to_string(group.path().join("cgroup.procs")).unwrap();
    assert_eq!(pid, hung.id().to_string());
    assert!(hung.try_wait().unwrap().is_none(), "still hanging");
    hung.kill().unwrap();
    hung.wait().unwrap();
}

#[test]
fn a_frozen_hang_outlives_sigkill_until_it_is_thawed() {
    let fake = Installed::new("l40s-pcie");
    let group = std::path::PathBuf::from(format!("/sys/fs/cgroup/freezer/fake-nvml-{}", std::process::id()));
    std::fs::create_dir(&group).unwrap();
    fake.faults(&format!("[[hang]]\nfunction = \"*\"\ngpu = 0\nunkillable = {group:?}"));
    let mut hung = child(&fake).spawn().unwrap();
    let state = group.join("freezer.state");
    wait_until("not frozen", || std::fs::read(&state).is_ok_and(|text| text == b"FROZEN\n"));
    hung.kill().unwrap();
    thread::sleep(Duration::from_millis(300));
    assert!(hung.try_wait().unwrap().is_none(), "SIGKILL waits while frozen");
    std::fs::write(&state, "THAWED").unwrap();
    hung.wait().unwrap();
    std::fs::remove_dir(&group).unwrap();
}
