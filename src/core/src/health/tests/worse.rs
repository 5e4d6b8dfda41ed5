//! On machines of all kinds: a worse reading never gives a better verdict, and the order of GPUs is of no matter.

use super::whole_gpu::*;
use super::*;

/// Knuth's MMIX generator: the same machines in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn small(&mut self, end: u32) -> u32 {
        u32::try_from(self.below(u64::from(end))).unwrap()
    }
}

fn up<T: Copy + std::ops::Add<Output = T>>(reading: &mut Reading<T>, by: T) {
    *reading = reading.map(|value| value + by);
}

/// One way to be worse, at both of two looks or at the later one only.
#[derive(Debug, Clone, Copy)]
struct Step {
    name: &'static str,
    both: bool,
    change: fn(&mut ProbedGpu, u32),
}

const STEPS: [Step; 15] = [
    later("core temperature", |gpu, by| up(&mut gpu.reading.temp_c, by)),
    later("margin", |gpu, by| up(&mut detail_of(gpu).temp.margin_c, -i64::from(by))),
    later("memory temperature", |gpu, by| up(&mut detail_of(gpu).temp.memory_c, by)),
    later("corrected errors", |gpu, by| {
        up(&mut gpu.reading.counters.ecc_aggregate_corr, u64::from(by) * 1_000_000);
    }),
    later("uncorrected errors", |gpu, by| up(&mut gpu.reading.counters.ecc_volatile_uncorr, u64::from(by))),
    later("remapped rows", |gpu, by| up(&mut gpu.reading.counters.remapped_uncorr, u64::from(by) * 10)),
    later("remap pending", |gpu, _| gpu.reading.remap_pending = Reading::Value(true)),
    later("remap failed", |gpu, _| gpu.reading.remap_failed = Reading::Value(true)),
    later("retired pages", |gpu, by| {
        let pages = &mut detail_of(gpu).ecc.retired_pages;
        *pages = pages.map(|[single, double]| [single + u64::from(by), double]);
    }),
    later("SRAM", |gpu, _| detail_of(gpu).ecc.sram_threshold_exceeded = Reading::Value(true)),
    later("throttle time", |gpu, by| {
        up(&mut gpu.reading.counters.throttle_hw_thermal_ns, u64::from(by) * 100_000_000);
    }),
    later("power limit", |gpu, by| {
        let limit = &mut detail_of(gpu).power.enforced_limit_mw;
        *limit = limit.map(|limit| limit.saturating_sub(by * 1000));
    }),
    later("persistence", |gpu, _| gpu.reading.persistence = Reading::Value(false)),
    always("clock", |gpu, by| {
        let clocks = &mut detail_of(gpu).clocks;
        clocks.now_mhz = clocks
            .now_mhz
            .map(|[graphics, sm, memory, video]| [graphics, sm.saturating_sub(by), memory, video]);
    }),
    always("event bits", |gpu, by| {
        let bits = &mut detail_of(gpu).clocks.event_reasons;
        *bits = bits.map(|bits| bits | [0x08, 0x20, 0x40, 0x80][by as usize % 4]);
    }),
];

const fn later(name: &'static str, change: fn(&mut ProbedGpu, u32)) -> Step {
    Step { name, both: false, change }
}

const fn always(name: &'static str, change: fn(&mut ProbedGpu, u32)) -> Step {
    Step { name, both: true, change }
}

/// Two looks at one machine.
#[derive(Debug, Clone)]
struct Looks {
    earlier: Snapshot,
    later: Snapshot,
}

impl Looks {
    /// GPUs at work or at rest, a few readings missing, a few things wrong already.
    fn thrown(dice: &mut Dice) -> Looks {
        let mut looks = Looks { earlier: machine(), later: machine() };
        for place in 0..looks.later.gpus.len() {
            if dice.below(2) == 0 {
                let mhz = 800 + dice.small(700);
                looks.each(place, |gpu| works(gpu, mhz));
            }
            if dice.below(3) == 0 {
                let margin = i64::from(dice.small(40));
                looks.each(place, |gpu| detail_of(gpu).temp.margin_c = Reading::Value(margin));
            }
            match dice.below(8) {
                0 => looks.each(place, |gpu| detail_of(gpu).temp.memory_max_c = Reading::NotSupported),
                1 => looks.each(place, |gpu| gpu.reading.temp_c = Reading::TimedOut),
                2 => looks.each(place, |gpu| gpu.reading.detail = Some(Box::default())),
                3 => looks.each(place, |gpu| detail_of(gpu).processes = Reading::NoPermission),
                _ => {}
            }
            if dice.below(2) == 0 {
                looks.worsen(dice, place);
            }
        }
        looks
    }

    fn each(&mut self, place: usize, change: impl Fn(&mut ProbedGpu)) {
        change(&mut self.earlier.gpus[place]);
        change(&mut self.later.gpus[place]);
    }

    fn worsen(&mut self, dice: &mut Dice, place: usize) -> Step {
        let step = STEPS[usize::try_from(dice.below(STEPS.len() as u64)).unwrap()];
        let by = 1 + dice.small(60);
        if step.both {
            (step.change)(&mut self.earlier.gpus[place], by);
        }
        (step.change)(&mut self.later.gpus[place], by);
        step
    }

    fn findings(&self) -> Vec<Finding> {
        whole(&self.later, &expected(), &looked_before(&self.earlier, EARLIER_S), true)
    }

    /// The worst that is said of a GPU.
    fn worst(&self, place: usize) -> Option<Severity> {
        let subject = Subject::of(&self.later.gpus[place]);
        let of_it = self.findings().into_iter().filter(|finding| finding.subject == subject);
        of_it.map(|finding| finding.severity).max()
    }
}

#[test]
fn a_worse_reading_never_gives_a_better_verdict() {
    let mut dice = Dice(20261201);
    let mut worse = 0;
    for _ in 0..2000 {
        let mut looks = Looks::thrown(&mut dice);
        let place = usize::try_from(dice.below(4)).unwrap();
        let before = (looks.worst(place), looks.clone());
        let step = looks.worsen(&mut dice, place);
        let after = looks.worst(place);
        assert!(after >= before.0, "{}: {:?} became {after:?}\n{:#?}", step.name, before.0, before.1);
        worse += u32::from(after > before.0);
    }
    assert!(worse > 200, "only {worse} steps were felt");
}

#[test]
fn findings_do_not_depend_on_the_order_of_gpus() {
    let mut dice = Dice(7);
    let mut found = 0;
    for _ in 0..500 {
        let looks = Looks::thrown(&mut dice);
        let mut turned = looks.clone();
        turned.later.gpus.reverse();
        let sorted = |looks: &Looks| {
            let mut texts: Vec<String> =
                looks.findings().iter().map(|finding| serde_json::to_string(finding).unwrap()).collect();
            texts.sort_unstable();
            texts
        };
        assert_eq!(sorted(&looks), sorted(&turned));
        found += sorted(&looks).len();
    }
    assert!(found > 100, "only {found} findings");
}
