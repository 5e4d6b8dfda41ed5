//! What is read from one GPU, and how NVML's answers become readings.

use super::detail;
use gpuward_core::model::detail::{GpuDetail, PeerReading};
use gpuward_core::model::snapshot::GpuTarget;
use gpuward_core::model::{Counters, GpuReading, PciAddress, Reading};
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::{Device, Nvml};
use std::time::{Duration, Instant};

/// Field ids of nvml.h that are the same in every driver (nvml.h API 13: the renumbering at 580.82 did not move them).
mod field {
    pub const ECC_VOLATILE_CORR: u32 = 3;
    pub const ECC_VOLATILE_UNCORR: u32 = 4;
    pub const ECC_AGGREGATE_CORR: u32 = 5;
    pub const ECC_AGGREGATE_UNCORR: u32 = 6;
    pub const ENERGY_MJ: u32 = 83;
    pub const PCIE_REPLAY: u32 = 94;
    pub const REMAPPED_CORR: u32 = 142;
    pub const REMAPPED_UNCORR: u32 = 143;
    pub const REMAP_PENDING: u32 = 144;
    pub const REMAP_FAILED: u32 = 145;
    pub const RECOVERY_ACTION: u32 = 230;
    /// All that a prolog needs, for one call of the driver.
    pub const ALL: [u32; 17] = [
        ECC_VOLATILE_CORR,
        ECC_VOLATILE_UNCORR,
        ECC_AGGREGATE_CORR,
        ECC_AGGREGATE_UNCORR,
        ENERGY_MJ,
        PCIE_REPLAY,
        REMAPPED_CORR,
        REMAPPED_UNCORR,
        REMAP_PENDING,
        REMAP_FAILED,
        RECOVERY_ACTION,
        super::detail::field::MEMORY_TEMP,
        super::detail::field::POWER_LIMIT_DEFAULT,
        super::detail::field::POWER_LIMIT_ENFORCED,
        super::detail::field::THROTTLE_SW_THERMAL,
        super::detail::field::THROTTLE_HW_THERMAL,
        super::detail::field::THROTTLE_POWER_BRAKE,
    ];
}

/// What a prolog needs of one GPU.
pub fn gpu(nvml: &Nvml, target: &GpuTarget) -> GpuReading {
    let start = Instant::now();
    let mut read = match open_twice(nvml, target) {
        Ok(device) => of_device(&device, target),
        Err(error) => GpuReading { handle: reading(Err(error)), ..GpuReading::default() },
    };
    read.took_us = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
    read
}

/// The rest about one GPU, for a look at leisure; nothing where it does not open.
pub fn more(nvml: &Nvml, target: &GpuTarget, deep: bool) -> Option<GpuDetail> {
    Some(detail::of_gpu(&open(nvml, target).ok()?, deep))
}

/// Peer-to-peer status from one GPU to each of the others. A GPU that does not open is left out.
pub fn peers(nvml: &Nvml, own: &GpuTarget, all: &[GpuTarget]) -> Vec<PeerReading> {
    let Ok(device) = open(nvml, own) else { return Vec::new() };
    let others = all.iter().filter(|target| target.pci != own.pci);
    let peer = |target: &GpuTarget| Some(detail::peer(&device, target.pci?, &open(nvml, target).ok()?));
    others.filter_map(peer).collect()
}

/// "Unknown error", "timeout", "in use" and "not ready" may pass: they get a second try 50 ms later (ours), which must
/// fit into the deadline.
fn open_twice<'a>(nvml: &'a Nvml, target: &GpuTarget) -> Result<Device<'a>, NvmlError> {
    match open(nvml, target) {
        Err(error) if may_pass(&error) => {
            std::thread::sleep(Duration::from_millis(50));
            open(nvml, target)
        }
        other => other,
    }
}

fn open<'a>(nvml: &'a Nvml, target: &GpuTarget) -> Result<Device<'a>, NvmlError> {
    match (&target.pci, &target.uuid) {
        (_, Some(uuid)) if uuid.is_mig() => nvml.device_by_uuid(uuid.as_str()),
        (Some(pci), _) => nvml.device_by_pci_bus_id(pci.to_string()),
        (None, Some(uuid)) => nvml.device_by_uuid(uuid.as_str()),
        (None, None) => Err(NvmlError::NotFound),
    }
}

fn may_pass(error: &NvmlError) -> bool {
    matches!(code(error), 10 | 19 | 20 | 23 | 27 | 999)
}

fn of_device(device: &Device<'_>, target: &GpuTarget) -> GpuReading {
    if !target.uuid.as_ref().is_some_and(|uuid| uuid.is_mig()) {
        return of_whole_gpu(device, target.pci);
    }
    // Health, energy and errors belong to the whole GPU; the MIG device only has an identity of its own.
    let mig_uuid = parsed(device.uuid());
    match device.mig_parent_device() {
        Ok(parent) => GpuReading { mig_uuid, ..of_whole_gpu(&parent, None) },
        Err(error) => GpuReading { mig_uuid, handle: reading(Err(error)), ..GpuReading::default() },
    }
}

/// `pci` is the address that the GPU was opened by, if it was.
fn of_whole_gpu(device: &Device<'_>, pci: Option<PciAddress>) -> GpuReading {
    let fields = Fields::read(device, &field::ALL);
    GpuReading {
        handle: Reading::Value(()),
        pci: pci.map_or_else(|| parsed(device.pci_info().map(|info| info.bus_id)), Reading::Value),
        uuid: parsed(device.uuid()),
        mig_uuid: Reading::NotRead,
        minor: reading(device.minor_number()),
        model: reading(device.name()),
        serial: reading(device.serial()),
        persistence: reading(device.is_in_persistent_mode()),
        mig: reading(device.mig_mode().map(|mode| mode.current == 1)),
        recovery_action: fields.get(field::RECOVERY_ACTION),
        temp_c: reading(device.temperature(TemperatureSensor::Gpu)),
        counters: Counters {
            energy_mj: fields.get(field::ENERGY_MJ),
            ecc_volatile_uncorr: fields.get(field::ECC_VOLATILE_UNCORR),
            ecc_volatile_corr: fields.get(field::ECC_VOLATILE_CORR),
            ecc_aggregate_uncorr: fields.get(field::ECC_AGGREGATE_UNCORR),
            ecc_aggregate_corr: fields.get(field::ECC_AGGREGATE_CORR),
            remapped_uncorr: fields.get(field::REMAPPED_UNCORR),
            remapped_corr: fields.get(field::REMAPPED_CORR),
            pcie_replay: fields.get(field::PCIE_REPLAY),
            throttle_sw_thermal_ns: fields.get(detail::field::THROTTLE_SW_THERMAL),
            throttle_hw_thermal_ns: fields.get(detail::field::THROTTLE_HW_THERMAL),
            throttle_power_brake_ns: fields.get(detail::field::THROTTLE_POWER_BRAKE),
        },
        remap_pending: fields.get(field::REMAP_PENDING).map(|flag| flag != 0),
        remap_failed: fields.get(field::REMAP_FAILED).map(|flag| flag != 0),
        took_us: 0,
        detail: Some(Box::new(detail::for_a_job(device, &fields))),
    }
}

/// One batch of field values: one call of the driver, a return code for each field.
pub(super) struct Fields(Result<Vec<(u32, Reading<SampleValue>)>, Reading<SampleValue>>);

impl Fields {
    /// Reads `wanted`, ids in the numbering of CUDA 12.
    pub(super) fn read(device: &Device<'_>, wanted: &[u32]) -> Fields {
        let ids: Vec<FieldId> = wanted.iter().copied().map(FieldId).collect();
        let batch = match device.field_values_for(&ids) {
            Ok(batch) => batch,
            Err(error) => return Fields(Err(reading(Err(error)))),
        };
        let samples = batch.into_iter().map(|sample| reading(sample.and_then(|sample| sample.value)));
        // The wrapper translates ids, so a sample goes with its question by place and not by its id.
        Fields(Ok(wanted.iter().copied().zip(samples).collect()))
    }

    fn sample(&self, id: u32) -> Reading<SampleValue> {
        match &self.0 {
            Err(failed) => failed.clone(),
            Ok(all) => all
                .iter()
                .find(|(known, _)| *known == id)
                .map_or(Reading::NotRead, |(_, value)| value.clone()),
        }
    }

    pub(super) fn get(&self, id: u32) -> Reading<u64> {
        self.sample(id).and_then(|sample| match sample {
            SampleValue::U32(value) => Reading::Value(u64::from(value)),
            SampleValue::U64(value) => Reading::Value(value),
            SampleValue::I64(value) => unsigned(value),
            SampleValue::F64(_) => Reading::NotSupported,
        })
    }
}

/// A counter; a number below 0 is none.
pub(super) fn unsigned(number: i64) -> Reading<u64> {
    u64::try_from(number).map_or(Reading::NotSupported, Reading::Value)
}

/// No number of a GPU comes near 2^63.
pub(super) fn signed(number: u64) -> Reading<i64> {
    i64::try_from(number).map_or(Reading::NotSupported, Reading::Value)
}

/// NVML's answer as a reading.
pub fn reading<T>(answer: Result<T, NvmlError>) -> Reading<T> {
    let error = match answer {
        Ok(value) => return Reading::Value(value),
        Err(error) => error,
    };
    of_code(code(&error))
}

/// NVML's error number as a reading without a value.
pub(super) fn of_code<T>(code: i64) -> Reading<T> {
    match code {
        // Not supported, function not found, no data, argument version, deprecated; invalid argument is how an old
        // driver answers a field that it does not know. None of them says anything against the GPU.
        2 | 3 | 13 | 21 | 25 | 26 => Reading::NotSupported,
        4 => Reading::NoPermission,
        15 => Reading::Lost,
        16 => Reading::ResetRequired,
        other => Reading::Failed(other),
    }
}

/// A text that is not what it should be counts as not supported: it identifies nothing.
pub(super) fn parsed<T: std::str::FromStr>(answer: Result<String, NvmlError>) -> Reading<T> {
    reading(answer).and_then(|text| text.parse().map_or(Reading::NotSupported, Reading::Value))
}

/// NVML's number for an error of the wrapper's.
fn code(error: &NvmlError) -> i64 {
    match error {
        NvmlError::Uninitialized => 1,
        NvmlError::InvalidArg => 2,
        NvmlError::NotSupported => 3,
        NvmlError::NoPermission => 4,
        NvmlError::NotFound => 6,
        NvmlError::InsufficientSize(_) => 7,
        NvmlError::InsufficientPower => 8,
        NvmlError::DriverNotLoaded => 9,
        NvmlError::Timeout => 10,
        NvmlError::IrqIssue => 11,
        NvmlError::LibraryNotFound => 12,
        NvmlError::FunctionNotFound | NvmlError::FailedToLoadSymbol(_) => 13,
        NvmlError::CorruptedInfoROM => 14,
        NvmlError::GpuLost => 15,
        NvmlError::ResetRequired => 16,
        NvmlError::OperatingSystem => 17,
        NvmlError::LibRmVersionMismatch => 18,
        NvmlError::InUse => 19,
        NvmlError::InsufficientMemory => 20,
        NvmlError::NoData => 21,
        NvmlError::UnexpectedVariant(number) => i64::from(*number),
        // What else the wrapper may say is about texts and bits that it could not read: the value is not there.
        NvmlError::Unknown => 999,
        _ => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_answer_stays_what_it_is() {
        let of = |error| reading(Err::<u32, _>(error));
        assert_eq!(reading(Ok(0)), Reading::Value(0));
        for error in [
            NvmlError::NotSupported,
            NvmlError::NoData,
            NvmlError::UnexpectedVariant(25),
            NvmlError::FailedToLoadSymbol("x".into()),
        ] {
            assert_eq!(of(error), Reading::NotSupported);
        }
        assert_eq!(of(NvmlError::NoPermission), Reading::NoPermission);
        assert_eq!(of(NvmlError::GpuLost), Reading::Lost);
        assert_eq!(of(NvmlError::ResetRequired), Reading::ResetRequired);
        assert_eq!(of(NvmlError::Unknown), Reading::Failed(999));
        assert_eq!(of(NvmlError::UnexpectedVariant(28)), Reading::Failed(28));
        assert_eq!(of(NvmlError::LibRmVersionMismatch), Reading::Failed(18));
    }

    #[test]
    fn a_text_that_identifies_nothing_is_no_identity() {
        let uuid: Reading<gpuward_core::model::GpuUuid> = parsed(Ok("nonsense".into()));
        assert_eq!(uuid, Reading::NotSupported);
        let uuid: Reading<gpuward_core::model::GpuUuid> = parsed(Err(NvmlError::GpuLost));
        assert_eq!(uuid, Reading::Lost);
    }
}
