//! Heat, clocks, power and modes.

use super::whole_gpu::*;
use super::*;

fn none() -> Vec<(String, Severity)> {
    Vec::new()
}

#[test]
fn a_core_at_the_limit_of_its_own_board_is_too_hot() {
    let by_threshold = |now: u32, limit: Reading<u32>| {
        changed(move |gpu| {
            gpu.reading.temp_c = Reading::Value(now);
            let temp = &mut detail_of(gpu).temp;
            (temp.gpu_max_c, temp.slowdown_c) = (limit, Reading::NotSupported);
        })
    };
    assert_eq!(by_threshold(84, Reading::Value(85)), none());
    assert_eq!(by_threshold(85, Reading::Value(85)), warns("TEMP_GPU"));
    for reading in missing() {
        assert_eq!(by_threshold(90, reading), none(), "no limit is known");
    }
    let by_margin = |margin: i64, limits: Reading<[i64; 4]>| {
        changed(move |gpu| {
            gpu.reading.temp_c = Reading::Value(86);
            let temp = &mut detail_of(gpu).temp;
            (temp.margin_c, temp.tlimit_c) = (Reading::Value(margin), limits);
        })
    };
    let limits = |core| Reading::Value([-8, -2, 0, core]);
    assert_eq!(by_margin(1, limits(0)), none(), "the threshold does not count where there is a margin");
    assert_eq!(by_margin(0, limits(0)), warns("TEMP_GPU"));
    assert_eq!(by_margin(-3, Reading::NotSupported), warns("TEMP_GPU"));
    assert_eq!(by_margin(2, limits(2)), warns("TEMP_GPU"));
    for reading in missing() {
        assert_eq!(changed(move |gpu| gpu.reading.temp_c = reading), none());
    }
}

#[test]
fn an_idle_gpu_that_stays_hot_is_told_and_one_that_just_worked_is_not() {
    let temp = |celsius: u32| move |gpu: &mut ProbedGpu| gpu.reading.temp_c = Reading::Value(celsius);
    assert_eq!(twice(temp(61), temp(61)), warns("TEMP_GPU"));
    assert_eq!(twice(temp(60), temp(61)), none());
    assert_eq!(twice(temp(61), temp(60)), none());
    assert_eq!(changed(temp(70)), none(), "one look is no proof");
    let after_mean = |mw: u64| {
        twice(temp(61), move |gpu| {
            temp(61)(gpu);
            gpu.reading.counters.energy_mj = Reading::Value(mw * EARLIER_S);
        })
    };
    assert_eq!(after_mean(119_000), warns("TEMP_GPU"));
    assert_eq!(after_mean(120_000), none(), "a job ran in between");
    let at_work = |gpu: &mut ProbedGpu| {
        works(gpu, 1410);
        temp(80)(gpu);
    };
    assert_eq!(twice(temp(61), at_work), none());
    assert_eq!(twice(at_work, temp(61)), none());
    let silent = |gpu: &mut ProbedGpu| {
        temp(61)(gpu);
        detail_of(gpu).processes = Reading::NoPermission;
    };
    assert_eq!(twice(silent, silent), none(), "whether it is idle cannot be told");
}

#[test]
fn memory_is_held_against_the_limit_of_its_own_board() {
    let memory = |now: Reading<u32>, limit: Reading<u32>| {
        changed(move |gpu| {
            let temp = &mut detail_of(gpu).temp;
            (temp.memory_c, temp.memory_max_c) = (now, limit);
        })
    };
    let value = Reading::Value;
    assert_eq!(memory(value(84), value(85)), none());
    assert_eq!(memory(value(85), value(85)), warns("TEMP_MEM"));
    assert_eq!(memory(value(94), Reading::NotSupported), none());
    assert_eq!(memory(value(95), Reading::NotSupported), warns("TEMP_MEM"));
    assert_eq!(memory(value(95), value(0)), warns("TEMP_MEM"), "0 is no limit");
    assert_eq!(memory(value(0), value(0)), none(), "0 is no temperature");
    for reading in [Reading::NotRead, Reading::NoPermission, Reading::Failed(999), Reading::TimedOut] {
        assert_eq!(memory(value(120), reading), none(), "whether the board has a limit was not told");
    }
    for reading in missing() {
        assert_eq!(memory(reading, value(95)), none());
    }
}

fn bits(bits: u64) -> impl Fn(&mut ProbedGpu) {
    move |gpu| detail_of(gpu).clocks.event_reasons = Reading::Value(bits)
}

#[test]
fn a_slowdown_counts_when_two_looks_show_it() {
    let at_work = |reasons: u64| {
        move |gpu: &mut ProbedGpu| {
            works(gpu, 1410);
            bits(reasons)(gpu);
        }
    };
    for bad in [0x08, 0x20, 0x40, 0x80, 0x48, 0x88, 0xe8] {
        assert_eq!(changed(bits(bad)), none(), "{bad:#x}: one look is no proof");
        assert_eq!(twice(bits(1), bits(bad)), none(), "{bad:#x}");
        assert_eq!(twice(bits(bad), bits(1)), none(), "{bad:#x}");
        assert_eq!(twice(at_work(bad), at_work(bad)), warns("THROTTLE"), "{bad:#x}");
    }
    for benign in [0, 0x1, 0x2, 0x4, 0x10, 0x100, 0x117] {
        assert_eq!(twice(bits(benign), bits(benign)), none(), "{benign:#x}");
    }
    assert_eq!(twice(bits(0x20), bits(0x40)), none(), "not the same twice");
}

#[test]
fn only_hardware_heat_or_the_power_brake_of_an_idle_gpu_fails_and_never_drains_by_itself() {
    for (both, severity) in [
        (0x08, Severity::Warn),
        (0x20, Severity::Warn),
        (0x40, Severity::Fail),
        (0x80, Severity::Fail),
        (0xc8, Severity::Fail),
    ] {
        assert_eq!(twice(bits(both), bits(both)), [("THROTTLE".to_owned(), severity)], "{both:#x}");
    }
    let works_before = |gpu: &mut ProbedGpu| {
        works(gpu, 1410);
        bits(0x40)(gpu);
    };
    assert_eq!(twice(works_before, bits(0x40)), warns("THROTTLE"));
    assert_eq!(codes::entry("THROTTLE").cap, crate::config::Mode::Comment);
}

#[test]
fn two_looks_within_two_seconds_are_one() {
    let mut snapshot = machine();
    bits(0x80)(&mut snapshot.gpus[SICK]);
    assert_eq!(found(&snapshot, &expected(), &looked_before(&snapshot, 1)), none());
    assert_eq!(found(&snapshot, &expected(), &looked_before(&snapshot, 2)), fails("THROTTLE"));
    let earlier = looked_before(&snapshot, 2);
    for reading in missing() {
        detail_of(&mut snapshot.gpus[SICK]).clocks.event_reasons = reading;
        assert_eq!(found(&snapshot, &expected(), &earlier), none());
    }
}

#[test]
fn time_under_throttle_is_a_share_of_the_time_between_two_looks() {
    const PERCENT_NS: u64 = EARLIER_S * 10_000_000;
    let counters: [fn(&mut ProbedGpu) -> &mut Reading<u64>; 3] = [
        |gpu| &mut gpu.reading.counters.throttle_hw_thermal_ns,
        |gpu| &mut gpu.reading.counters.throttle_sw_thermal_ns,
        |gpu| &mut gpu.reading.counters.throttle_power_brake_ns,
    ];
    for counter in counters {
        let grown = |before: Reading<u64>, now: Reading<u64>| {
            twice(move |gpu| *counter(gpu) = before, move |gpu| *counter(gpu) = now)
        };
        let value = Reading::Value;
        assert_eq!(grown(value(7), value(7 + PERCENT_NS)), none());
        assert_eq!(grown(value(7), value(8 + PERCENT_NS)), warns("THROT_TIME"));
        assert_eq!(grown(value(7_000_000_000), value(8)), none(), "reset in between");
        for reading in missing() {
            assert_eq!(grown(reading, value(99 * PERCENT_NS)), none());
            assert_eq!(grown(value(0), reading), none());
        }
    }
}

#[test]
fn after_a_job_throttle_time_counts_from_the_jobs_start() {
    let mut snapshot = machine();
    let mut history = looked_before(&snapshot, EARLIER_S);
    let start = history.seen[SICK].clone();
    snapshot.gpus[SICK].reading.counters.throttle_hw_thermal_ns = Reading::Value(2_000_000_000);
    assert_eq!(found(&snapshot, &expected(), &history), warns("THROT_TIME"), "2 s of 100 s");
    let an_hour_ago = snapshot.boottime_ns.saturating_sub(900_000_000_000);
    history.job_start = vec![SeenGpu::of_counters(start.uuid, an_hour_ago, start.counters)];
    assert_eq!(found(&snapshot, &expected(), &history), none(), "2 s of 900 s");
}

/// All GPUs at work, the sick one with another clock; two looks.
fn clock(sick_mhz: u32, others_mhz: u32, change: impl Fn(&mut ProbedGpu)) -> Vec<(String, Severity)> {
    let mut snapshot = machine();
    snapshot.gpus.iter_mut().for_each(|gpu| works(gpu, others_mhz));
    works(&mut snapshot.gpus[SICK], sick_mhz);
    change(&mut snapshot.gpus[SICK]);
    found(&snapshot, &expected(), &looked_before(&snapshot, EARLIER_S))
}

#[test]
fn a_gpu_that_runs_slower_than_its_siblings_is_found_without_any_error() {
    assert_eq!(clock(1000, 1410, |_| {}), warns("CLOCK_LOW"));
    assert_eq!(clock(1128, 1410, |_| {}), none(), "80 percent");
    assert_eq!(clock(1127, 1410, |_| {}), warns("CLOCK_LOW"));
    assert_eq!(clock(1000, 1410, bits(0x20)).len(), 2, "the driver may name the reason as well");
}

#[test]
fn what_explains_a_low_clock_is_no_finding() {
    assert_eq!(clock(1000, 1410, bits(0x10)), none(), "sync boost");
    let capped = |draw_mw: u32| {
        move |gpu: &mut ProbedGpu| {
            bits(0x4)(gpu);
            detail_of(gpu).power.draw_mw = Reading::Value(draw_mw);
        }
    };
    assert_eq!(clock(1000, 1410, capped(395_000)), none(), "at its power cap");
    assert_eq!(clock(1000, 1410, capped(250_000)), warns("CLOCK_LOW"), "far below its power cap");
    let own = |gpu: &mut ProbedGpu| detail_of(gpu).clocks.app_mhz = Reading::Value([1000, 1593]);
    assert_eq!(clock(1000, 1410, own), none(), "a job that set its clocks");
    let light = |gpu: &mut ProbedGpu| detail_of(gpu).clocks.util_pct = Reading::Value([89, 20]);
    assert_eq!(clock(1000, 1410, light), none());
    let other = |gpu: &mut ProbedGpu| gpu.reading.model = Reading::Value("NVIDIA A30".into());
    assert_eq!(clock(1000, 1410, other), none(), "no siblings");
    for reading in missing() {
        assert_eq!(clock(1000, 1410, |gpu| detail_of(gpu).clocks.util_pct = reading), none(), "as with MIG");
    }
    for reading in missing() {
        assert_eq!(clock(1000, 1410, |gpu| detail_of(gpu).clocks.now_mhz = reading), none());
    }
}

#[test]
fn a_low_clock_counts_when_two_looks_a_minute_apart_show_it() {
    let mut snapshot = machine();
    snapshot.gpus.iter_mut().for_each(|gpu| works(gpu, 1410));
    let fast = looked_before(&snapshot, EARLIER_S);
    works(&mut snapshot.gpus[SICK], 1000);
    assert_eq!(found(&snapshot, &expected(), &History::default()), none());
    assert_eq!(found(&snapshot, &expected(), &fast), none());
    assert_eq!(found(&snapshot, &expected(), &looked_before(&snapshot, 59)), none());
    assert_eq!(found(&snapshot, &expected(), &looked_before(&snapshot, 60)), warns("CLOCK_LOW"));
}

#[test]
fn a_look_at_rest_does_not_forget_that_a_clock_was_low() {
    let mut slow = machine();
    slow.gpus.iter_mut().for_each(|gpu| works(gpu, 1410));
    works(&mut slow.gpus[SICK], 1000);
    let after = |between: &Snapshot| {
        let mut between = between.clone();
        between.boottime_ns -= 100_000_000_000;
        let seen = looked_before(&slow, 300).seen_after(&between);
        found(&slow, &expected(), &History { seen, ..History::default() })
    };
    assert_eq!(after(&machine()), warns("CLOCK_LOW"), "a prolog in between");
    let mut fast = slow.clone();
    works(&mut fast.gpus[SICK], 1410);
    assert_eq!(after(&fast), none(), "it was fast again in between");
}

#[test]
fn one_sibling_is_no_median() {
    let mut snapshot = machine();
    works(&mut snapshot.gpus[SICK], 1000);
    works(&mut snapshot.gpus[0], 1410);
    assert_eq!(found(&snapshot, &expected(), &looked_before(&snapshot, EARLIER_S)), none());
    works(&mut snapshot.gpus[1], 1410);
    assert_eq!(found(&snapshot, &expected(), &looked_before(&snapshot, EARLIER_S)), warns("CLOCK_LOW"));
}

#[test]
fn application_clocks_count_as_left_over_while_nothing_runs() {
    let other = |gpu: &mut ProbedGpu| detail_of(gpu).clocks.app_mhz = Reading::Value([765, 1593]);
    assert_eq!(changed(other), warns("LEFT_CLOCKS"));
    let running = |gpu: &mut ProbedGpu| {
        works(gpu, 765);
        other(gpu);
    };
    assert_eq!(changed(running), none(), "the job may have asked for them");
    for reading in missing() {
        assert_eq!(changed(|gpu| detail_of(gpu).clocks.app_mhz = reading), none(), "GeForce");
        assert_eq!(changed(|gpu| detail_of(gpu).clocks.app_default_mhz = reading), none());
    }
}

#[test]
fn a_clock_that_is_held_far_below_the_default_for_no_reason_is_left_over() {
    let alone = |mhz: u32, change: &dyn Fn(&mut ProbedGpu)| {
        let mut snapshot = machine();
        works(&mut snapshot.gpus[SICK], mhz);
        change(&mut snapshot.gpus[SICK]);
        found(&snapshot, &expected(), &looked_before(&snapshot, EARLIER_S))
    };
    assert_eq!(alone(345, &|_| {}), warns("LEFT_CLOCKS"));
    assert_eq!(alone(924, &|_| {}), none(), "80 percent of 1155");
    assert_eq!(alone(345, &bits(0x2)), warns("LEFT_CLOCKS"), "application clocks do not explain it");
    assert_eq!(alone(345, &bits(0x20)), warns("THROTTLE"), "the driver names the reason");
    let at_cap = |gpu: &mut ProbedGpu| {
        bits(0x4)(gpu);
        detail_of(gpu).power.draw_mw = Reading::Value(399_000);
    };
    assert_eq!(alone(345, &at_cap), none());
    for reading in missing() {
        assert_eq!(alone(345, &|gpu| detail_of(gpu).clocks.event_reasons = reading), none());
    }
}

#[test]
fn a_power_limit_counts_below_the_default_or_below_what_the_site_set() {
    let limit = |enforced: Reading<u32>, site: Option<u32>| {
        let mut snapshot = machine();
        detail_of(&mut snapshot.gpus[SICK]).power.enforced_limit_mw = enforced;
        let power_limit_mw = site.map(|limit| (limit, "gpuward.toml".to_owned()));
        let expected = Expected { power_limit_mw, ..expected() };
        found(&snapshot, &expected, &History::default())
    };
    assert_eq!(limit(Reading::Value(360_000), None), none());
    assert_eq!(limit(Reading::Value(359_000), None), warns("POWER_LIMIT"));
    assert_eq!(limit(Reading::Value(300_000), Some(300_000)), none(), "a cap on purpose");
    assert_eq!(
        limit(Reading::Value(269_000), Some(300_000)),
        warns("POWER_LIMIT"),
        "below the cap on purpose"
    );
    assert_eq!(limit(Reading::Value(400_000), Some(500_000)), none(), "no board gives more than its default");
    for reading in missing() {
        assert_eq!(limit(reading, None), none());
    }
}

#[test]
fn a_draw_that_cannot_be_read_or_be_true_is_told() {
    let draw = |reading: Reading<u32>| changed(move |gpu| detail_of(gpu).power.draw_mw = reading);
    assert_eq!(draw(Reading::Failed(999)), warns("POWER_READ"));
    for reading in [Reading::NotSupported, Reading::NoPermission, Reading::TimedOut, Reading::NotRead] {
        assert_eq!(draw(reading), none());
    }
    let over = |now_mw: u32, mean_mw: u64| {
        twice(
            |gpu| works(gpu, 1410),
            move |gpu| {
                works(gpu, 1410);
                detail_of(gpu).power.draw_mw = Reading::Value(now_mw);
                gpu.reading.counters.energy_mj = Reading::Value(mean_mw * EARLIER_S);
            },
        )
    };
    assert_eq!(over(441_000, 441_000), warns("POWER_READ"));
    assert_eq!(over(440_000, 441_000), none(), "the limit may have been lowered since");
    assert_eq!(over(600_000, 440_000), none(), "a short peak");
}

#[test]
fn persistence_that_is_off_is_told_and_boards_without_it_are_not() {
    let persistence = |mode| changed(move |gpu| gpu.reading.persistence = mode);
    assert_eq!(persistence(Reading::Value(false)), warns("PERSIST_OFF"));
    for reading in missing() {
        assert_eq!(persistence(reading), none());
    }
}

#[test]
fn a_compute_mode_counts_unless_the_site_set_it() {
    let compute = |mode: Reading<u32>, site: Option<u32>| {
        let mut snapshot = machine();
        detail_of(&mut snapshot.gpus[SICK]).compute_mode = mode;
        let compute_mode = site.map(|mode| (mode, "gpuward.toml".to_owned()));
        if let Some(site) = site {
            let others = snapshot.gpus.iter_mut().enumerate().filter(|(place, _)| *place != SICK);
            others.for_each(|(_, gpu)| detail_of(gpu).compute_mode = Reading::Value(site));
        }
        found(&snapshot, &Expected { compute_mode, ..expected() }, &History::default())
    };
    assert_eq!(compute(Reading::Value(3), None), warns("COMPUTE_MODE"));
    assert_eq!(compute(Reading::Value(3), Some(3)), none());
    assert_eq!(compute(Reading::Value(0), Some(3)), warns("COMPUTE_MODE"));
    for reading in missing() {
        assert_eq!(compute(reading, None), none());
    }
}
