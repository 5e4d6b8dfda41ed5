//! Which of two numberings a driver knows, and whether it has the performance counters since boot.

use super::calls::{Line, say};
use super::nvml::{Device, Field, Nvml};
use serde::{Deserialize, Serialize};
use std::thread;
use std::time::Duration;

/// Throttle times by software heat, hardware heat and power brake: their numbers below driver 580.82, and from it on
/// (nvml.h of CUDA 12.9 and 13.1).
pub const OLD: [u32; 3] = [251, 252, 253];
/// See [`OLD`].
pub const NEW: [u32; 3] = [269, 270, 271];

/// Two metrics that every GPM has (1 graphics, 2 SM utilisation), and those since boot: 248 cycles, 249 active cycles,
/// 250 to 254 tensor parts, 255 and 256 PCIe bytes, 257 to 260 integer and floating point (nvml.h of CUDA 13.2.1).
const METRICS: [u32; 15] = [1, 2, 248, 249, 250, 251, 252, 253, 254, 255, 256, 257, 258, 259, 260];

/// nvml.h: two samples are at least 100 ms apart.
const BETWEEN_SAMPLES: Duration = Duration::from_millis(150);

/// What a field says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FieldAnswer {
    /// Its number.
    pub id: u32,
    /// NVML's answer.
    pub code: u32,
    /// `nvmlValueType_t`.
    pub kind: u32,
    /// The value, where there is one.
    pub value: Option<u64>,
}

/// What a performance metric says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MetricAnswer {
    /// Its number; 0 stands for all, where there is no GPM.
    pub id: u32,
    /// NVML's answer.
    pub code: u32,
    /// The value, where there is one.
    pub value: Option<f64>,
}

/// Asks one GPU.
pub fn run(nvml: &Nvml, device: Device) {
    for ids in [OLD, NEW] {
        say(&Line::Begin(format!("fields {} to {}", ids[0], ids[2])));
        let mut fields = ids.map(|id| Field { id, ..Field::default() });
        let whole = nvml.fields(device, &mut fields);
        for field in fields {
            let code = if whole == 0 { field.code } else { whole };
            let value = (code == 0).then_some(field.bits);
            say(&Line::Field(FieldAnswer { id: field.id, code, kind: field.kind, value }));
        }
    }
    say(&Line::Begin("performance metrics (GPM)".into()));
    match nvml.metrics(device, &METRICS, || thread::sleep(BETWEEN_SAMPLES)) {
        Ok(metrics) => {
            for metric in metrics {
                let value = (metric.code == 0).then_some(metric.value).filter(|value| value.is_finite());
                say(&Line::Metric(MetricAnswer { id: metric.id, code: metric.code, value }));
            }
        }
        Err(code) => say(&Line::Metric(MetricAnswer { id: 0, code, value: None })),
    }
}
