//! Heat, clocks, power, utilisation.

use super::exported;
use super::pointers::Out;
use super::types::{MarginTemperatureV1, TemperatureV1, Utilization, ViolationTime, version_word};
use crate::code::Code;
use crate::engine::{Answer, Device};

/// One of the four clocks.
fn clock(clocks: [u32; 4], kind: u32) -> Answer<u32> {
    clocks.get(kind as usize).copied().ok_or(Code::INVALID_ARGUMENT)
}

/// Application clocks exist for graphics, SM (the same) and memory.
fn app_clock([graphics, memory]: [u32; 2], kind: u32) -> Answer<u32> {
    match kind {
        0 | 1 => Ok(graphics),
        2 => Ok(memory),
        3 => Err(Code::NOT_SUPPORTED),
        _ => Err(Code::INVALID_ARGUMENT),
    }
}

/// Supported graphics clocks, highest first as NVML lists them.
fn graphics_clocks(device: &Device<'_>) -> Answer<Vec<u32>> {
    let [lowest, highest, step] = device.whole()?.clocks.supported_graphics_mhz;
    if step == 0 {
        return Err(Code::NOT_SUPPORTED);
    }
    let mut clocks: Vec<u32> = (lowest..=highest).step_by(step as usize).collect();
    clocks.reverse();
    Ok(clocks)
}

/// A clock now. Locked ones stay in their range; while idle they may still be lower (an estimate of ours).
fn current_clock(device: &Device<'_>, kind: u32) -> Answer<u32> {
    let clocks = &device.whole()?.clocks;
    let mhz = clock(device.by_load(clocks.idle_mhz, clocks.busy_mhz), kind)?;
    let locked = match kind {
        0 | 1 => clocks.locked_graphics_mhz,
        2 => clocks.locked_memory_mhz,
        _ => None,
    };
    let [lowest, highest] = locked.unwrap_or([0, u32::MAX]);
    Ok(mhz.max(device.by_load(0, lowest)).min(highest))
}

fn threshold(device: &Device<'_>, kind: u32) -> Answer<u32> {
    let temp = &device.whole()?.temp;
    let limit = match kind {
        0 => temp.shutdown_c,
        1 => temp.slowdown_c,
        2 => temp.memory_max_c,
        3 => temp.gpu_max_c,
        4..8 => None,
        _ => return Err(Code::INVALID_ARGUMENT),
    };
    limit.ok_or(Code::NOT_SUPPORTED)
}

fn signed(celsius: u32) -> i32 {
    i32::try_from(celsius).unwrap_or(i32::MAX)
}

/// The two numbers as the setters store them.
fn pair(a: u32, b: u32) -> Option<toml::Value> {
    Some(toml::Value::Array(vec![i64::from(a).into(), i64::from(b).into()]))
}

exported! {
    /// `nvmlDeviceGetTemperature`: sensor 0, the core, is the only one.
    gpu nvmlDeviceGetTemperature(sensor: u32, celsius: Out<u32>) |device| {
        device.whole()?;
        if sensor != 0 {
            return Err(Code::INVALID_ARGUMENT);
        }
        celsius.put(device.temperature_c())
    };

    /// `nvmlDeviceGetTemperatureV`.
    gpu nvmlDeviceGetTemperatureV(temperature: Out<TemperatureV1>) |device| {
        device.whole()?;
        let [version, sensor] = temperature.cast::<[u32; 2]>().get()?;
        if version != version_word::<TemperatureV1>(1) {
            return Err(Code::ARGUMENT_VERSION_MISMATCH);
        }
        if sensor != 0 {
            return Err(Code::INVALID_ARGUMENT);
        }
        temperature.put(TemperatureV1 { version, sensor, temperature_c: signed(device.temperature_c()) })
    };

    /// `nvmlDeviceGetTemperatureThreshold`.
    gpu nvmlDeviceGetTemperatureThreshold(kind: u32, celsius: Out<u32>) |device|
        celsius.put(threshold(device, kind)?);

    /// `nvmlDeviceGetMarginTemperature`: distance to the highest core temperature.
    gpu nvmlDeviceGetMarginTemperature(margin: Out<MarginTemperatureV1>) |device| {
        let version = version_word::<MarginTemperatureV1>(1);
        if margin.cast::<u32>().get()? != version {
            return Err(Code::ARGUMENT_VERSION_MISMATCH);
        }
        let limit = device.whole()?.temp.gpu_max_c.ok_or(Code::NOT_SUPPORTED)?;
        margin.put(MarginTemperatureV1 { version, margin_c: signed(limit) - signed(device.temperature_c()) })
    };

    /// `nvmlDeviceGetCurrentClocksThrottleReasons`.
    gpu nvmlDeviceGetCurrentClocksThrottleReasons(bits: Out<u64>) |device| {
        device.whole()?;
        bits.put(device.event_reasons())
    };

    /// `nvmlDeviceGetCurrentClocksEventReasons`: the newer name of the same.
    gpu nvmlDeviceGetCurrentClocksEventReasons(bits: Out<u64>) |device| {
        device.whole()?;
        bits.put(device.event_reasons())
    };

    /// `nvmlDeviceGetSupportedClocksThrottleReasons`: all nine that nvml.h names.
    gpu nvmlDeviceGetSupportedClocksThrottleReasons(bits: Out<u64>) |device| {
        device.whole()?;
        bits.put(0x1ff)
    };

    /// `nvmlDeviceGetSupportedClocksEventReasons`.
    gpu nvmlDeviceGetSupportedClocksEventReasons(bits: Out<u64>) |device| {
        device.whole()?;
        bits.put(0x1ff)
    };

    /// `nvmlDeviceGetClockInfo`.
    gpu nvmlDeviceGetClockInfo(kind: u32, mhz: Out<u32>) |device| mhz.put(current_clock(device, kind)?);

    /// `nvmlDeviceGetMaxClockInfo`.
    gpu nvmlDeviceGetMaxClockInfo(kind: u32, mhz: Out<u32>) |device|
        mhz.put(clock(device.whole()?.clocks.max_mhz, kind)?);

    /// `nvmlDeviceGetApplicationsClock`.
    gpu nvmlDeviceGetApplicationsClock(kind: u32, mhz: Out<u32>) |device|
        mhz.put(app_clock(device.app_clocks_mhz()?, kind)?);

    /// `nvmlDeviceGetDefaultApplicationsClock`.
    gpu nvmlDeviceGetDefaultApplicationsClock(kind: u32, mhz: Out<u32>) |device| {
        let clocks = device.whole()?.clocks.app_default_mhz.ok_or(Code::NOT_SUPPORTED)?;
        mhz.put(app_clock(clocks, kind)?)
    };

    /// `nvmlDeviceSetApplicationsClocks`.
    setter nvmlDeviceSetApplicationsClocks(memory: u32, graphics: u32) |device, set| {
        device.app_clocks_mhz()?;
        let known = device.gpu.clocks.supported_memory_mhz.contains(&memory);
        if !known || !graphics_clocks(device)?.contains(&graphics) {
            return Err(Code::INVALID_ARGUMENT);
        }
        set("clocks.app_mhz", pair(graphics, memory))
    };

    /// `nvmlDeviceResetApplicationsClocks`.
    setter nvmlDeviceResetApplicationsClocks() |device, set| {
        device.app_clocks_mhz()?;
        set("clocks.app_mhz", None)
    };

    /// `nvmlDeviceSetGpuLockedClocks`.
    setter nvmlDeviceSetGpuLockedClocks(min: u32, max: u32) |device, set| {
        device.whole()?;
        set("clocks.locked_graphics_mhz", pair(min, max))
    };

    /// `nvmlDeviceResetGpuLockedClocks`.
    setter nvmlDeviceResetGpuLockedClocks() |device, set| {
        device.whole()?;
        set("clocks.locked_graphics_mhz", None)
    };

    /// `nvmlDeviceSetMemoryLockedClocks`.
    setter nvmlDeviceSetMemoryLockedClocks(min: u32, max: u32) |device, set| {
        device.whole()?;
        set("clocks.locked_memory_mhz", pair(min, max))
    };

    /// `nvmlDeviceResetMemoryLockedClocks`.
    setter nvmlDeviceResetMemoryLockedClocks() |device, set| {
        device.whole()?;
        set("clocks.locked_memory_mhz", None)
    };

    /// `nvmlDeviceGetSupportedMemoryClocks`.
    gpu nvmlDeviceGetSupportedMemoryClocks(count: Out<u32>, mhz: Out<u32>) |device| {
        let clocks = &device.whole()?.clocks.supported_memory_mhz;
        if clocks.is_empty() {
            return Err(Code::NOT_SUPPORTED);
        }
        mhz.put_list(count, clocks)
    };

    /// `nvmlDeviceGetSupportedGraphicsClocks`: the same list for each memory clock.
    gpu nvmlDeviceGetSupportedGraphicsClocks(memory: u32, count: Out<u32>, mhz: Out<u32>) |device| {
        let clocks = graphics_clocks(device)?;
        if !device.gpu.clocks.supported_memory_mhz.contains(&memory) {
            return Err(Code::NOT_FOUND);
        }
        mhz.put_list(count, &clocks)
    };

    /// `nvmlDeviceGetPerformanceState`.
    gpu nvmlDeviceGetPerformanceState(state: Out<u32>) |device|
        state.put(device.by_load(device.whole()?.clocks.idle_pstate, 0));

    /// `nvmlDeviceGetPowerUsage`.
    gpu nvmlDeviceGetPowerUsage(mw: Out<u32>) |device| {
        device.whole()?;
        mw.put(u32::try_from(device.power_mw()).unwrap_or(u32::MAX))
    };

    /// `nvmlDeviceGetEnforcedPowerLimit`.
    gpu nvmlDeviceGetEnforcedPowerLimit(mw: Out<u32>) |device| {
        device.whole()?;
        mw.put(device.enforced_limit_mw())
    };

    /// `nvmlDeviceGetPowerManagementLimit`.
    gpu nvmlDeviceGetPowerManagementLimit(mw: Out<u32>) |device| {
        device.whole()?;
        mw.put(device.power_limit_mw())
    };

    /// `nvmlDeviceGetPowerManagementDefaultLimit`.
    gpu nvmlDeviceGetPowerManagementDefaultLimit(mw: Out<u32>) |device|
        mw.put(device.whole()?.power.default_limit_mw);

    /// `nvmlDeviceGetPowerManagementLimitConstraints`.
    gpu nvmlDeviceGetPowerManagementLimitConstraints(min: Out<u32>, max: Out<u32>) |device| {
        min.put(device.whole()?.power.min_limit_mw)?;
        max.put(device.gpu.power.max_limit_mw)
    };

    /// `nvmlDeviceGetTotalEnergyConsumption`.
    gpu nvmlDeviceGetTotalEnergyConsumption(mj: Out<u64>) |device| mj.put(device.energy_mj()?);

    /// `nvmlDeviceGetUtilizationRates`: not on MIG devices, and not on a GPU in MIG mode.
    gpu nvmlDeviceGetUtilizationRates(rates: Out<Utilization>) |device| {
        if device.whole()?.mig.enabled {
            return Err(Code::NOT_SUPPORTED);
        }
        let util = device.util();
        rates.put(Utilization { gpu_pct: util.gpu_pct, memory_pct: util.memory_pct })
    };

    /// `nvmlDeviceGetViolationStatus`.
    gpu nvmlDeviceGetViolationStatus(policy: u32, time: Out<ViolationTime>) |device| {
        let throttled = &device.whole()?.clocks.throttle_ns;
        let violation_ns = match policy {
            0 => throttled.power,
            1 => throttled.thermal,
            2 => throttled.sync_boost,
            3 => throttled.board_limit,
            4 => throttled.low_utilization,
            5 => throttled.reliability,
            10 | 11 => 0,
            _ => return Err(Code::INVALID_ARGUMENT),
        };
        time.put(ViolationTime { reference_us: device.now.unix_us, violation_ns })
    };
}
