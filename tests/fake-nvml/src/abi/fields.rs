//! `nvmlDeviceGetFieldValues`.

use super::exported;
use super::pointers::Out;
use super::types::FieldValue;
use crate::code::Code;
use crate::engine::{self, Device};

/// One field with its own return code.
fn value(device: &Device<'_>, [field, scope]: [u32; 2]) -> FieldValue {
    // `nvmlValueType_t`.
    const UINT: u32 = 1;
    const ULONGLONG: u32 = 3;
    const SINT: u32 = 5;
    let (code, value_type, value) = match device.field(field, scope) {
        Ok(engine::FieldValue::Uint(number)) => (Code::SUCCESS, UINT, u64::from(number)),
        Ok(engine::FieldValue::Ulonglong(number)) => (Code::SUCCESS, ULONGLONG, number),
        // The union's first four bytes on little-endian machines, the only ones that NVML runs on.
        Ok(engine::FieldValue::Sint(number)) => {
            (Code::SUCCESS, SINT, u64::from(u32::from_ne_bytes(number.to_ne_bytes())))
        }
        Err(code) => (code, 0, 0),
    };
    let timestamp_us = i64::try_from(device.now.unix_us).unwrap_or(i64::MAX);
    FieldValue { field, scope, timestamp_us, latency_us: 1, value_type, code: code.0, value }
}

exported! {
    /// `nvmlDeviceGetFieldValues`: succeeds as a whole; each value has its own code.
    gpu nvmlDeviceGetFieldValues(count: i32, values: Out<FieldValue>) |device| {
        let count = usize::try_from(count).ok().filter(|&count| count > 0).ok_or(Code::INVALID_ARGUMENT)?;
        values.fill_by_head(count, |head| value(device, head))
    };
}
