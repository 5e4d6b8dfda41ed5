//! Field values by id, scope and driver; and structs of which the caller states the version.

// Integration tests have no test module.
#![allow(clippy::tests_outside_test_module)]

mod common;

use common::readings::call;
use common::{Installed, fields, scenario};
use nvidia_ml::scenario::{C2c, LinkErrors, Machine};

const ALL: u32 = u32::MAX;
/// As `fields` tells codes.
const NOT_SUPPORTED: u64 = 1_000_003;
const INVALID: u64 = 1_000_002;

fn hgx(change: impl FnOnce(&mut Machine)) -> Installed {
    let mut machine = Machine::load(&scenario("hgx-h100")).unwrap();
    change(&mut machine);
    Installed::with(machine)
}

/// Fields of the first GPU, in one call.
fn of_first(fake: &Installed, ids: &[(u32, u32)]) -> Vec<u64> {
    let nvml = fake.open();
    let device = nvml.device_by_index(0).unwrap();
    fields(&nvml, &device, ids)
}

#[test]
fn per_link_fields_take_the_link_from_the_scope_and_totals_from_the_highest_number() {
    let fake = hgx(|machine| {
        machine.gpus[0].nvlink.errors = vec![
            LinkErrors { link: 2, replay: 5, recovery: 6, crc_flit: 7, ..LinkErrors::default() },
            LinkErrors { link: 17, replay: 50, ..LinkErrors::default() },
        ];
        machine.gpus[0].nvlink.down = "3".parse().unwrap();
    });
    fake.faults("frozen_boottime_ms = 10_000\n[[busy]]\ngpu = 0\nuntil_boottime_ms = 1000");
    let read = |ids: &[(u32, u32)]| of_first(&fake, ids);
    assert_eq!(read(&[(161, 2), (162, 2), (163, 2), (161, 17), (161, 0), (161, ALL)]), [5, 6, 7, 50, 0, 55]);
    let kib = 5_000_000;
    for id in 138..=141 {
        assert_eq!(read(&[(id, 0), (id, 17), (id, ALL), (id, 18)]), [kib, kib, 18 * kib, INVALID], "{id}");
        assert_eq!(read(&[(id, 3)]), [NOT_SUPPORTED], "a link that is down has no counter to read");
    }
    assert_eq!(read(&[(164, 2), (164, 3), (165, 2), (165, 3), (166, 2)]), [26_562, 0, 1, 0, 4]);
    assert_eq!(read(&[(38, 0), (45, 0), (52, 0), (59, 0)]), [7, 0, 55, 6]);
}

#[test]
fn what_is_unknown_answers_for_itself_and_spoils_nothing() {
    let fake = Installed::new("hgx-h100");
    let ids = [(83, 0), (161, 18), (9999, 0), (206, 0), (170, 0), (255, 0), (256, 0), (0, 0), (230, 0)];
    fake.faults("frozen_boottime_ms = 1000");
    let unsupported = NOT_SUPPORTED;
    assert_eq!(
        of_first(&fake, &ids),
        [70_000, INVALID, INVALID, unsupported, unsupported, unsupported, INVALID, INVALID, 0]
    );
    let l40s = Installed::new("l40s-pcie");
    assert_eq!(
        of_first(&l40s, &[(138, 0), (165, 99), (164, ALL), (230, 0)]),
        [NOT_SUPPORTED, NOT_SUPPORTED, NOT_SUPPORTED, 0]
    );
}

#[test]
fn nvlink_5_counts_packets_and_bit_error_rates_instead_of_crc_errors() {
    let fake = hgx(|machine| {
        let nvlink = &mut machine.gpus[0].nvlink;
        nvlink.version = Some(5);
        let mut fec = [0; 16];
        fec[15] = 99;
        let packets = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
        let ber = [[5, 6], [1, 12], [15, 255]];
        let errors = LinkErrors {
            link: 2,
            replay: 8,
            packets,
            effective: 17,
            symbol: 18,
            ber,
            fec,
            ..LinkErrors::default()
        };
        nvlink.errors = vec![errors.clone(), LinkErrors { link: 3, ..errors }];
    });
    let by_link: Vec<_> = (206..=215).map(|id| (id, 2)).collect();
    assert_eq!(of_first(&fake, &by_link), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    assert_eq!(
        of_first(&fake, &[(206, 4), (215, ALL), (219, 2), (221, ALL), (250, 2), (235, ALL)]),
        [0, 20, 17, 36, 99, 0]
    );
    // Mantissa in bits 8 to 11, exponent in bits 0 to 7.
    assert_eq!(of_first(&fake, &[(218, 2), (220, 2), (222, 2), (222, 0)]), [0x506, 0x10c, 0xfff, 0]);
    assert_eq!(
        of_first(&fake, &[(161, 2), (163, 2), (206, 18), (218, ALL)]),
        [NOT_SUPPORTED, NOT_SUPPORTED, INVALID, INVALID]
    );
    // The totals of before stay.
    assert_eq!(of_first(&fake, &[(52, 0)]), [16]);
    let older = Installed::new("hgx-h100");
    assert_eq!(of_first(&older, &[(206, 0), (222, 0), (250, 0)]), [NOT_SUPPORTED; 3]);
}

#[test]
fn links_to_the_cpu_are_counted_and_each_has_its_state() {
    let fake = hgx(|machine| {
        let down = "1".parse().unwrap();
        machine.gpus[0].c2c = Some(C2c { links: 5, down, max_mbps: 45_000, errors: [1, 2, 3] });
    });
    let ids = [(170, 0), (171, 0), (171, 1), (172, 0), (172, 1), (171, 5), (231, 0), (232, 0), (233, 0)];
    assert_eq!(of_first(&fake, &ids), [5, 1, 0, 45_000, 0, INVALID, 1, 2, 3]);
}

/// Function, version word, and the size that the word states.
const VERSIONED: [(&str, u32, usize); 10] = [
    ("nvmlDeviceGetMemoryInfo_v2", 0x0200_0028, 40),
    ("nvmlDeviceGetPciInfoExt", 0x0100_0040, 64),
    ("nvmlDeviceGetTemperatureV", 0x0100_000c, 12),
    ("nvmlDeviceGetMarginTemperature", 0x0100_0008, 8),
    ("nvmlDeviceGetSramEccErrorStatus", 0x0100_0068, 104),
    ("nvmlDeviceGetRepairStatus", 0x0100_000c, 12),
    ("nvmlDeviceGetGpuFabricInfoV", 0x0200_0024, 36),
    ("nvmlDeviceGetGpuFabricInfoV", 0x0300_0028, 40),
    ("nvmlDeviceGetRunningProcessDetailList", 0x0100_0018, 24),
    ("nvmlGpmQueryDeviceSupport", 1, 8),
];

/// Structs without a version, by function and size.
const PLAIN: [(&str, usize); 10] = [
    ("nvmlDeviceGetPciInfo", 32),
    ("nvmlDeviceGetPciInfo_v2", 36),
    ("nvmlDeviceGetPciInfo_v3", 68),
    ("nvmlDeviceGetMemoryInfo", 24),
    ("nvmlDeviceGetBAR1MemoryInfo", 24),
    ("nvmlDeviceGetUtilizationRates", 8),
    ("nvmlDeviceGetRowRemapperHistogram", 20),
    ("nvmlDeviceGetGpuFabricInfo", 28),
    ("nvmlDeviceGetC2cModeInfoV", 4),
    ("nvmlDeviceGetAccountingStats_v2", 64),
];

const GUARD: u8 = 0xa5;
/// What the struct's place holds before: zeros, as a caller leaves it, in front of a guard that must stay.
fn with_guard(first_word: u32, bytes: usize) -> [u8; 256] {
    let mut place = [GUARD; 256];
    place[..bytes].fill(0);
    place[..4].copy_from_slice(&first_word.to_ne_bytes());
    place
}

/// A machine that supports all of it, with a process that is accounted.
fn able() -> Installed {
    hgx(|machine| {
        let gpu = &mut machine.gpus[0];
        gpu.c2c = Some(C2c { links: 5, ..C2c::default() });
        gpu.ecc.repair_pending = Some([true, false]);
        gpu.accounting.enabled = Some(true);
        gpu.accounting.entries =
            vec![nvidia_ml::scenario::AccountingEntry { pid: 4711, ..Default::default() }];
    })
}

#[test]
fn no_byte_behind_the_stated_size_is_written() {
    let fake = able();
    let nvml = fake.open();
    let device = nvml.device_by_index(0).unwrap();
    // SAFETY: the handle only goes back into the library that it came from.
    let handle = unsafe { device.handle() }.cast();
    let plain = PLAIN.map(|(function, bytes)| (function, 4711, bytes));
    for (function, first_word, bytes) in VERSIONED.into_iter().chain(plain) {
        let mut place = with_guard(first_word, bytes);
        let code = call(&nvml, function, handle, &[place.as_mut_ptr().expose_provenance()]);
        assert_eq!(code, 0, "{function} {first_word:#x}");
        assert!(place[bytes..].iter().all(|&byte| byte == GUARD), "{function} {first_word:#x}");
    }
}

#[test]
fn an_unknown_version_is_refused_and_nothing_is_written() {
    let fake = able();
    let nvml = fake.open();
    let device = nvml.device_by_index(0).unwrap();
    // SAFETY: the handle only goes back into the library that it came from.
    let handle = unsafe { device.handle() }.cast();
    for (function, version, bytes) in VERSIONED {
        for wrong in [0, version + 4, version + 0x0700_0000, u32::MAX] {
            let before = with_guard(wrong, bytes);
            let mut place = before;
            let code = call(&nvml, function, handle, &[place.as_mut_ptr().expose_provenance()]);
            assert_eq!(code, 25, "{function} {wrong:#x}");
            assert_eq!(place, before, "{function} {wrong:#x}");
        }
    }
}
