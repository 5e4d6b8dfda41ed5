//! The machine in motion: scenario, fault script and time in; answers out. No C types, no I/O, no clock.

mod accounting;
mod fields;
mod gpm;
mod reset;
mod topology;

pub use accounting::{Accounted, ProcessLoad};
pub use fields::FieldValue;
pub use gpm::{GpmMetric, GpmSample, Unit};
pub use reset::after_reset;
pub use topology::{Level, common_ancestor, link_count, link_end, near_cpus, nvlink_joined, socket_cpus};

use crate::code::Code;
use crate::faults::{Busy, Epoch, Script};
use crate::scenario::{Gpu, Machine, MigDevice, Process, ProcessKind, Util};

/// An answer of the library.
pub type Answer<T> = Result<T, Code>;

/// Clocks at the time of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// CLOCK_BOOTTIME, milliseconds. Counters grow with it, so that all processes of a host see the same numbers.
    pub boottime_ms: u64,
    /// Wall clock, microseconds since 1970.
    pub unix_us: u64,
}

impl Now {
    /// Time that stands still. Where no wall clock is stated it is as long after the start of 2026 as the boot is ago.
    pub fn standing(boottime_ms: u64, unix_us: Option<u64>) -> Self {
        const START_OF_2026_US: u64 = 1_767_225_600_000_000;
        Self { boottime_ms, unix_us: unix_us.unwrap_or(START_OF_2026_US + boottime_ms * 1000) }
    }
}

/// One GPU, or one MIG device of it, at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Device<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// The GPU; the parent where `mig` is given.
    pub gpu: &'a Gpu,
    /// The MIG device that the handle means.
    pub mig: Option<&'a MigDevice>,
    /// For busy times.
    pub script: &'a Script,
    /// The moment.
    pub now: Now,
    /// Since when its counters count.
    pub epoch: Epoch,
}

/// Memory in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUse {
    /// Everything.
    pub total: u64,
    /// Kept by the driver.
    pub reserved: u64,
    /// Free.
    pub free: u64,
    /// Used by processes and contexts.
    pub used: u64,
}

const MIB: u64 = 1 << 20;

/// `nvmlMemoryErrorType_t` and `nvmlEccCounterType_t` as one choice of four counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EccKind {
    /// Uncorrected, else corrected.
    pub uncorrected: bool,
    /// Aggregate, else volatile.
    pub aggregate: bool,
}

impl<'a> Device<'a> {
    /// Only for the whole GPU: most readings have no MIG form.
    pub fn whole(&self) -> Answer<&'a Gpu> {
        if self.mig.is_some() { Err(Code::NOT_SUPPORTED) } else { Ok(self.gpu) }
    }

    /// The busy time that holds now.
    fn busy_rule(&self) -> Option<&'a Busy> {
        let now = self.now.boottime_ms;
        self.script.busy(self.gpu.slot()).find(|busy| {
            busy.from_boottime_ms.unwrap_or(0) <= now && busy.until_boottime_ms.is_none_or(|end| now < end)
        })
    }

    /// Whether the GPU computes now.
    pub fn busy(&self) -> bool {
        self.gpu.busy || self.busy_rule().is_some()
    }

    /// One of two values, by load.
    pub fn by_load<T>(&self, idle: T, busy: T) -> T {
        if self.busy() { busy } else { idle }
    }

    /// Power draw now.
    pub fn power_mw(&self) -> u64 {
        let stated = self.busy_rule().and_then(|busy| busy.power_mw);
        stated.unwrap_or_else(|| self.by_load(self.gpu.power.idle_mw, self.gpu.power.busy_mw))
    }

    /// Sum over the milliseconds since a time: `idle` each, and what a busy time says instead while it lasts.
    fn integral_ms(&self, since_ms: u64, idle: u64, busy: impl Fn(&Busy) -> u64) -> u64 {
        let now = self.now.boottime_ms;
        let since = since_ms.min(now);
        let mut sum = u128::from(idle) * u128::from(now - since);
        for rule in self.script.busy(self.gpu.slot()) {
            let from = rule.from_boottime_ms.unwrap_or(0).clamp(since, now);
            let until = rule.until_boottime_ms.unwrap_or(now).clamp(from, now);
            sum += u128::from(busy(rule).saturating_sub(idle)) * u128::from(until - from);
        }
        u64::try_from(sum).unwrap_or(u64::MAX)
    }

    /// The same where `idle` and `busy` are rates a second.
    fn integral(&self, since_ms: u64, idle: u64, busy: impl Fn(&Busy) -> u64) -> u64 {
        self.integral_ms(since_ms, idle, busy) / 1000
    }

    /// Energy since the driver was loaded. Busy times that overlap count twice.
    pub fn energy_mj(&self) -> Answer<u64> {
        let power = &self.whole()?.power;
        let base = power.energy_base_mj.ok_or(Code::NOT_SUPPORTED)?;
        let always = if self.gpu.busy { power.busy_mw } else { power.idle_mw };
        Ok(base + self.integral(self.epoch.driver_ms, always, |busy| busy.power_mw.unwrap_or(power.busy_mw)))
    }

    /// A counter that grows only while busy: its value at boot and its growth a second.
    pub fn traffic(&self, at_boot: u64, per_busy_second: u64) -> u64 {
        let always = if self.gpu.busy { per_busy_second } else { 0 };
        at_boot + self.integral(self.epoch.gpu_ms, always, |_| per_busy_second)
    }

    /// Utilisation now.
    pub fn util(&self) -> Util {
        let stated = self.busy_rule().and_then(|busy| busy.util.clone());
        let idle = Util::default();
        stated.unwrap_or_else(|| self.by_load(idle, self.gpu.util.clone()))
    }

    /// Processes of a kind on this device. A GPU in MIG mode shows those of its instances.
    pub fn processes(&self, kind: Option<ProcessKind>) -> Vec<(&'a Process, Option<&'a MigDevice>)> {
        let mut found: Vec<(&Process, Option<&MigDevice>)> = Vec::new();
        if self.mig.is_none() {
            found.extend(self.gpu.processes.iter().map(|process| (process, None)));
            let running = self.busy_rule().and_then(|busy| busy.process.as_ref());
            found.extend(running.map(|process| (process, None)));
        }
        for mig in &self.gpu.mig.devices {
            if self.mig.is_none_or(|own| own.uuid == mig.uuid) {
                found.extend(mig.processes.iter().map(|process| (process, Some(mig))));
            }
        }
        found.retain(|(process, _)| kind.is_none_or(|kind| kind == process.kind));
        found
    }

    /// Memory now.
    pub fn memory(&self) -> MemoryUse {
        let held: u64 = self.processes(None).iter().map(|(process, _)| process.memory_mib).sum();
        let (total, reserved, base) = match self.mig {
            Some(mig) => (mig.memory_mib, 0, 0),
            None => (self.gpu.memory.total_mib, self.gpu.memory.reserved_mib, self.gpu.memory.used_mib),
        };
        let used = (base + held).min(total.saturating_sub(reserved));
        let free = total.saturating_sub(reserved + used);
        MemoryUse { total: total * MIB, reserved: reserved * MIB, free: free * MIB, used: used * MIB }
    }

    /// Core temperature now.
    pub fn temperature_c(&self) -> u32 {
        self.by_load(self.gpu.temp.gpu_c, self.gpu.temp.gpu_busy_c)
    }

    /// Memory temperature now.
    pub fn memory_temperature_c(&self) -> Answer<u32> {
        self.by_load(self.gpu.temp.memory_c, self.gpu.temp.memory_busy_c).ok_or(Code::NOT_SUPPORTED)
    }

    /// Clock event reason bits now.
    pub fn event_reasons(&self) -> u64 {
        const GPU_IDLE: u64 = 1;
        self.gpu.clocks.event_reasons.unwrap_or_else(|| self.by_load(GPU_IDLE, 0))
    }

    /// Application clocks: graphics and memory.
    pub fn app_clocks_mhz(&self) -> Answer<[u32; 2]> {
        let clocks = &self.whole()?.clocks;
        clocks.app_mhz.or(clocks.app_default_mhz).ok_or(Code::NOT_SUPPORTED)
    }

    /// Limit that was asked for.
    pub fn power_limit_mw(&self) -> u32 {
        self.gpu.power.limit_mw.unwrap_or(self.gpu.power.default_limit_mw)
    }

    /// Limit in force.
    pub fn enforced_limit_mw(&self) -> u32 {
        self.gpu.power.enforced_limit_mw.unwrap_or_else(|| self.power_limit_mw())
    }

    /// PCIe generation now.
    pub fn pcie_generation(&self) -> u32 {
        self.by_load(self.gpu.pcie.idle_generation, self.gpu.pcie.generation)
    }

    /// ECC counters may be asked: ECC exists, and volatile ones not while MIG is on.
    fn ecc_readable(&self, kind: EccKind) -> Answer<()> {
        let gpu = self.whole()?;
        let hidden = gpu.mig.enabled && !kind.aggregate;
        if gpu.ecc.enabled != Some(true) || hidden { Err(Code::NOT_SUPPORTED) } else { Ok(()) }
    }

    /// Errors of the device memory.
    pub fn dram_errors(&self, kind: EccKind) -> Answer<u64> {
        self.ecc_readable(kind).map(|()| pick(&self.gpu.ecc.dram, kind))
    }

    /// Errors of caches and registers.
    pub fn sram_errors(&self, kind: EccKind) -> Answer<u64> {
        self.ecc_readable(kind).map(|()| pick(&self.gpu.ecc.sram, kind))
    }

    /// Errors of everything.
    pub fn all_errors(&self, kind: EccKind) -> Answer<u64> {
        Ok(self.dram_errors(kind)? + self.sram_errors(kind)?)
    }

    /// Row remapping; not readable while MIG instances are active.
    pub fn remap(&self) -> Answer<&'a crate::scenario::Remap> {
        let gpu = self.whole()?;
        if !gpu.mig.devices.is_empty() && gpu.mig.enabled {
            return Err(Code::NOT_SUPPORTED);
        }
        gpu.remap.as_ref().ok_or(Code::NOT_SUPPORTED)
    }

    /// Checks a link number: "not supported" without NVLink, "invalid argument" for links that do not exist.
    pub fn link(&self, link: u32) -> Answer<u32> {
        let gpu = self.whole()?;
        match gpu.nvlink.version {
            None => Err(Code::NOT_SUPPORTED),
            Some(_) if link >= link_count(gpu) => Err(Code::INVALID_ARGUMENT),
            Some(_) => Ok(link),
        }
    }

    /// Whether a link is up.
    pub fn link_up(&self, link: u32) -> Answer<bool> {
        self.link(link).map(|link| !self.gpu.nvlink.down.0.contains(&link))
    }

    /// Error counters of a link.
    pub fn link_errors(&self, link: u32) -> Answer<crate::scenario::LinkErrors> {
        let link = self.link(link)?;
        Ok(self.gpu.nvlink.errors.iter().find(|errors| errors.link == link).cloned().unwrap_or_default())
    }

    /// The name of the device as NVML gives it.
    pub fn name(&self) -> String {
        match self.mig {
            Some(mig) => format!("{} MIG {}", self.gpu.name, mig.profile),
            None => self.gpu.name.clone(),
        }
    }
}

fn pick(counts: &crate::scenario::EccCounts, kind: EccKind) -> u64 {
    match (kind.aggregate, kind.uncorrected) {
        (false, false) => counts.volatile_corr,
        (false, true) => counts.volatile_uncorr,
        (true, false) => counts.aggregate_corr,
        (true, true) => counts.aggregate_uncorr,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Faults;
    use std::path::Path;

    /// Energy of slot 0 of the L40S machine (34 W idle, 310 W busy) at a time, under a script.
    fn energy_mj(script: &str, boottime_ms: u64) -> u64 {
        let path = Path::new("faults.toml");
        let scenario = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios/l40s-pcie.toml");
        let machine = Machine::load(&scenario).unwrap();
        let script = Script::new(Faults::parse(path, script).unwrap(), &machine, path).unwrap();
        let now = Now { boottime_ms, unix_us: 0 };
        let gpu = machine.gpu(0).unwrap();
        let epoch = script.epoch(0, boottime_ms);
        Device { machine: &machine, gpu, mig: None, script: &script, now, epoch }.energy_mj().unwrap()
    }

    #[test]
    fn energy_is_power_times_time_through_busy_times() {
        let rule = "[[busy]]\ngpu = 0\nfrom_boottime_ms = 1000\nuntil_boottime_ms = 3000\npower_mw = 300000";
        assert_eq!(energy_mj("", 10_000), 340_000);
        assert_eq!(energy_mj(rule, 500), 17_000);
        assert_eq!(energy_mj(rule, 2000), 34_000 + 300_000);
        // It stays afterwards: the rule may not be taken out of the script, else the counter would fall.
        assert_eq!(energy_mj(rule, 10_000), 8 * 34_000 + 2 * 300_000);
    }
}
