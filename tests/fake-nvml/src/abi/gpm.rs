//! GPU performance monitoring. Samples live in a table of the process; callers hold their numbers.

use std::collections::HashMap;
use std::ffi::{CStr, c_char};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::exported;
use super::pointers::{Out, Ticket};
use super::types::{self, GpmRequest, GpmSupport};
use crate::code::Code;
use crate::engine::{Answer, Device, GpmMetric, GpmSample, Unit};

/// Empty until the sample is taken.
type Table = HashMap<usize, Option<GpmSample>>;

static SAMPLES: Mutex<Option<Table>> = Mutex::new(None);

fn samples() -> MutexGuard<'static, Option<Table>> {
    SAMPLES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn allocate() -> Ticket {
    let mut samples = samples();
    let table = samples.get_or_insert_default();
    let number = table.keys().max().map_or(1, |last| last + 1);
    table.insert(number, None);
    Ticket::new(number)
}

fn store(sample: Ticket, taken: GpmSample) -> Answer<()> {
    let mut samples = samples();
    let place = samples.get_or_insert_default().get_mut(&sample.number()).ok_or(Code::INVALID_ARGUMENT)?;
    *place = Some(taken);
    Ok(())
}

fn taken(sample: Ticket) -> Answer<GpmSample> {
    let mut samples = samples();
    samples.get_or_insert_default().get(&sample.number()).cloned().flatten().ok_or(Code::INVALID_ARGUMENT)
}

/// The sample of a GPU instance of a GPU in MIG mode.
fn instance_sample(device: &Device<'_>, instance: u32) -> Answer<GpmSample> {
    let own = &device.whole()?.mig;
    let mig = own.devices.iter().find(|mig| own.enabled && mig.gpu_instance == instance);
    Device { mig: Some(mig.ok_or(Code::INVALID_ARGUMENT)?), ..*device }.gpm_sample()
}

/// Length of the metrics array in the newest nvml.h (`NVML_GPM_METRIC_MAX`): a larger count is an error of the caller.
const MOST_METRICS: u32 = 333;

fn metric(first: &GpmSample, second: &GpmSample, id: u32) -> types::GpmMetric {
    let text = |text: &'static CStr| -> *const c_char { text.as_ptr() };
    let (code, value, unit) = match first.metric(second, id) {
        Ok(GpmMetric { value, unit: Unit::Percent }) => (Code::SUCCESS, value, c"%"),
        Ok(GpmMetric { value, unit: Unit::MibPerSecond }) => (Code::SUCCESS, value, c"MiB/s"),
        Ok(GpmMetric { value, unit: Unit::Count }) => (Code::SUCCESS, value, c""),
        Err(code) => (code, 0.0, c""),
    };
    types::GpmMetric {
        id,
        code: code.0,
        value,
        short_name: text(c""),
        long_name: text(c""),
        unit: text(unit),
    }
}

exported! {
    /// `nvmlGpmQueryDeviceSupport`: version word 1, not coded with a size.
    gpu nvmlGpmQueryDeviceSupport(support: Out<GpmSupport>) |device| {
        let version = support.cast::<u32>().get()?;
        if version != 1 {
            return Err(Code::ARGUMENT_VERSION_MISMATCH);
        }
        support.put(GpmSupport { version, supported: device.gpu.gpm.into() })
    };

    /// `nvmlGpmSampleAlloc`.
    system nvmlGpmSampleAlloc(sample: Out<Ticket>) |_| {
        sample.given()?;
        sample.put(allocate())
    };

    /// `nvmlGpmSampleFree`.
    system nvmlGpmSampleFree(sample: Ticket) |_| {
        let known = samples().get_or_insert_default().remove(&sample.number());
        known.map(|_| ()).ok_or(Code::INVALID_ARGUMENT)
    };

    /// `nvmlGpmSampleGet`.
    gpu nvmlGpmSampleGet(sample: Ticket) |device| store(sample, device.gpm_sample()?);

    /// `nvmlGpmMigSampleGet`: instances are as busy as their GPU.
    gpu nvmlGpmMigSampleGet(instance: u32, sample: Ticket) |device|
        store(sample, instance_sample(device, instance)?);

    /// `nvmlGpmMetricsGet`: as many metrics as the head states, each with its own code.
    system nvmlGpmMetricsGet(request: Out<GpmRequest>) |_| {
        let GpmRequest { version, count, first, second } = request.get()?;
        if version != 1 {
            return Err(Code::ARGUMENT_VERSION_MISMATCH);
        }
        if count > MOST_METRICS {
            return Err(Code::INVALID_ARGUMENT);
        }
        let (first, second) = (taken(first)?, taken(second)?);
        request.after::<types::GpmMetric>().fill_by_head(count as usize, |id: u32| metric(&first, &second, id))
    };
}
