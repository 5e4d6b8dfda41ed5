//! Memory: ECC, remapped rows, retired pages, repairs.

use super::whole_gpu::*;
use super::*;

#[test]
fn an_sram_over_its_limit_is_to_be_replaced() {
    let exceeded = |flag| changed(move |gpu| detail_of(gpu).ecc.sram_threshold_exceeded = flag);
    assert_eq!(exceeded(Reading::Value(true)), fails("SRAM_LIMIT"));
    for flag in missing() {
        assert_eq!(exceeded(flag), []);
    }
}

#[test]
fn a_pending_remap_asks_for_a_reset_and_never_drains() {
    let pending = |flag| changed(move |gpu| gpu.reading.remap_pending = flag);
    assert_eq!(pending(Reading::Value(true)), warns("REMAP_PEND"));
    assert_eq!(codes::entry("REMAP_PEND").remedy, Remedy::Reset);
    for flag in missing() {
        assert_eq!(pending(flag), [], "as with MIG");
    }
}

#[test]
fn a_bank_without_spare_rows_or_512_rows_are_told() {
    let banks = |banks| changed(move |gpu| detail_of(gpu).ecc.remap_histogram = banks);
    assert_eq!(banks(Reading::Value([630, 5, 4, 1, 0])), [], "low is not none");
    assert_eq!(banks(Reading::Value([639, 0, 0, 0, 1])), warns("REMAP_ROOM"));
    for reading in missing() {
        assert_eq!(banks(reading), []);
    }
    let rows = |rows| changed(move |gpu| gpu.reading.counters.remapped_uncorr = rows);
    assert_eq!(rows(Reading::Value(511)), []);
    assert_eq!(rows(Reading::Value(512)), warns("REMAP_ROOM"));
    for reading in missing() {
        assert_eq!(rows(reading), []);
    }
    let in_a_prolog = changed(|gpu| {
        gpu.reading.detail = None;
        gpu.reading.counters.remapped_uncorr = Reading::Value(512);
    });
    assert_eq!(in_a_prolog, warns("REMAP_ROOM"));
}

#[test]
fn retired_pages_count_in_all_and_for_double_bit_errors() {
    let pages = |pages| changed(move |gpu| detail_of(gpu).ecc.retired_pages = pages);
    for below in [[0, 0], [62, 0], [47, 15], [0, 15]] {
        assert_eq!(pages(Reading::Value(below)), [], "{below:?}");
    }
    for over in [[63, 0], [48, 15], [0, 16], [u64::MAX, 1]] {
        assert_eq!(pages(Reading::Value(over)), fails("PAGES_RETIRE"), "{over:?}");
    }
    for reading in missing() {
        assert_eq!(pages(reading), [], "Ampere and newer");
    }
    let pending = |flag| changed(move |gpu| detail_of(gpu).ecc.retire_pending = flag);
    assert_eq!(pending(Reading::Value(true)), warns("PAGES_RETIRE"));
    for reading in missing() {
        assert_eq!(pending(reading), []);
    }
}

#[test]
fn a_pending_page_retirement_asks_for_a_reset_and_no_new_board() {
    let mut snapshot = machine();
    detail_of(&mut snapshot.gpus[SICK]).ecc.retire_pending = Reading::Value(true);
    let findings = whole(&snapshot, &expected(), &History::default(), true);
    assert_eq!(findings[0].remedy, Remedy::Reset);
}

#[test]
fn a_pending_repair_asks_for_a_reset() {
    let repair = |flags| changed(move |gpu| detail_of(gpu).ecc.repair_pending = flags);
    for flags in [[true, false], [false, true], [true, true]] {
        assert_eq!(repair(Reading::Value(flags)), warns("MEM_REPAIR"));
    }
    for reading in missing() {
        assert_eq!(repair(reading), []);
    }
}

#[test]
fn corrected_errors_are_judged_by_their_rate() {
    let grown = |before: Reading<u64>, now: Reading<u64>| {
        twice(
            move |gpu| gpu.reading.counters.ecc_aggregate_corr = before,
            move |gpu| gpu.reading.counters.ecc_aggregate_corr = now,
        )
    };
    let value = Reading::Value;
    let most = 1000 * EARLIER_S;
    assert_eq!(grown(value(5), value(5 + most)), []);
    assert_eq!(grown(value(5), value(5 + most + EARLIER_S)), warns("ECC_CORR"));
    assert_eq!(grown(value(40_000_000), value(5)), [], "a new board, or a reset");
    for reading in missing() {
        assert_eq!(grown(reading, value(40_000_000)), []);
        assert_eq!(grown(value(0), reading), []);
    }
}

#[test]
fn corrected_errors_within_less_than_a_minute_are_no_rate() {
    let mut snapshot = machine();
    let earlier = looked_before(&snapshot, 59);
    snapshot.gpus[SICK].reading.counters.ecc_aggregate_corr = Reading::Value(40_000_000);
    assert_eq!(found(&snapshot, &expected(), &earlier), []);
}

#[test]
fn many_corrected_errors_in_a_boards_life_are_only_worth_a_line() {
    let life = |errors| changed(move |gpu| gpu.reading.counters.ecc_aggregate_corr = Reading::Value(errors));
    assert_eq!(life(50_000_000), []);
    assert_eq!(life(50_000_001), [("ECC_CORR".to_owned(), Severity::Info)]);
}

#[test]
fn ecc_that_is_off_counts_on_boards_that_come_with_it_on() {
    let ecc = |brand: u32, now: Reading<bool>, next: Reading<bool>| {
        changed(move |gpu| {
            let detail = detail_of(gpu);
            detail.board.brand = Reading::Value(brand);
            (detail.ecc.enabled, detail.ecc.pending) = (now, next);
        })
    };
    let (on, off) = (Reading::Value(true), Reading::Value(false));
    for data_centre in [2, 14] {
        assert_eq!(ecc(data_centre, off, off), warns("ECC_MODE"));
    }
    assert_eq!(ecc(13, off, off), [], "a workstation board");
    assert_eq!(ecc(13, on, off), warns("ECC_MODE"), "a change that waits");
    assert_eq!(ecc(14, off, on), warns("ECC_MODE"));
    assert_eq!(ecc(14, on, on), []);
    for reading in missing() {
        assert_eq!(ecc(5, reading, reading), [], "GeForce");
        assert_eq!(ecc(14, on, reading), []);
    }
    let unknown_brand = changed(|gpu| {
        let detail = detail_of(gpu);
        detail.board.brand = Reading::NotRead;
        (detail.ecc.enabled, detail.ecc.pending) = (off_now(), off_now());
    });
    assert_eq!(unknown_brand, [], "a prolog does not ask for the brand");
}

fn off_now() -> Reading<bool> {
    Reading::Value(false)
}

#[test]
fn with_mig_what_the_gpu_does_not_tell_is_no_finding() {
    let said = changed(|gpu| {
        let reading = &mut gpu.reading;
        reading.mig = Reading::Value(true);
        reading.counters.ecc_volatile_uncorr = Reading::NotSupported;
        reading.counters.ecc_volatile_corr = Reading::NotSupported;
        reading.counters.remapped_uncorr = Reading::NotSupported;
        (reading.remap_pending, reading.remap_failed) = (Reading::NotSupported, Reading::NotSupported);
        let detail = detail_of(gpu);
        detail.ecc.remap_histogram = Reading::NotSupported;
        detail.clocks.util_pct = Reading::NotSupported;
    });
    assert_eq!(said, []);
}
