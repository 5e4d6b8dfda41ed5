//! A node and what is always read of a GPU, and when nobody answers.
#![forbid(unsafe_code)]

use super::detail;
use super::{Answer, Device, FieldValue, Nvml, text};
use crate::readers::Seen;
use gpuward_core::model::detail::{GpuDetail, PeerReading};
use gpuward_core::model::{Counters, GpuReading, NodeReading, PciAddress, Reading};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Reads the GPUs at `addresses` with the library at `library`, each in a thread of its own. One that says nothing within
/// `deadline` has timed out; its thread is left behind.
pub fn read(library: &Path, addresses: &[PciAddress], deadline: Duration) -> Seen {
    let end = Instant::now() + deadline;
    let unread = |handle: Reading<()>| {
        addresses.iter().map(|_| GpuReading { handle, ..GpuReading::default() }).collect()
    };
    let nvml = match Nvml::load(library) {
        Ok(nvml) => Arc::new(nvml),
        Err(error) => {
            let node = NodeReading { library_error: Some(error.to_string()), ..NodeReading::default() };
            return Seen { node, gpus: unread(Reading::NotRead) };
        }
    };
    if let Err(code) = nvml.init() {
        let node = NodeReading { nvml: of_code(code), ..NodeReading::default() };
        return Seen { node, gpus: unread(Reading::NotRead) };
    }
    let mut seen = Seen { node: node(&nvml), gpus: unread(Reading::TimedOut) };
    let driver = seen.node.driver_version.value().cloned().unwrap_or_default();
    if each_alone(&nvml, &driver, addresses, &mut seen.gpus, end)
        && pairs(&nvml, addresses, &mut seen.gpus, end)
    {
        nvml.shutdown().unwrap_or_else(|code| panic!("nvmlShutdown answers {code}"));
    }
    seen
}

fn node(nvml: &Nvml) -> NodeReading {
    NodeReading {
        nvml: Reading::Value(()),
        library_error: None,
        driver_version: reading(Nvml::node_text(nvml.0.nvmlSystemGetDriverVersion)),
        nvml_version: reading(Nvml::node_text(nvml.0.nvmlSystemGetNVMLVersion)),
        gpu_count: reading(nvml.gpu_count()),
    }
}

/// What a thread has to say about its GPU.
enum Part {
    Reading(Box<GpuReading>),
    Detail(Box<GpuDetail>),
    Done,
}

/// True where all have said everything in time.
fn each_alone(
    nvml: &Arc<Nvml>,
    driver: &str,
    addresses: &[PciAddress],
    gpus: &mut [GpuReading],
    end: Instant,
) -> bool {
    let (say, said) = channel();
    for (place, address) in addresses.iter().enumerate() {
        let (nvml, say, address, ids) = (nvml.clone(), say.clone(), *address, throttle_ids(driver));
        thread::spawn(move || one(&nvml, place, address, ids, &say));
    }
    let mut missing = addresses.len();
    while missing > 0 {
        match said.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok((place, Part::Reading(reading))) => gpus[place] = *reading,
            Ok((place, Part::Detail(detail))) => gpus[place].detail = Some(detail),
            Ok((_, Part::Done)) => missing -= 1,
            Err(_) => return false,
        }
    }
    true
}

fn one(nvml: &Nvml, place: usize, address: PciAddress, throttle: [u32; 3], say: &Sender<(usize, Part)>) {
    // Nobody listens any longer after the deadline.
    let tell = |part| drop(say.send((place, part)));
    match nvml.open(&address.to_string()) {
        Ok(device) => {
            tell(Part::Reading(gpu(nvml, device, address, throttle).into()));
            tell(Part::Detail(detail::read(nvml, device).into()));
        }
        Err(code) => {
            let reading = GpuReading { handle: of_code(code), ..GpuReading::default() };
            tell(Part::Reading(reading.into()));
        }
    }
    tell(Part::Done);
}

/// Peer-to-peer status, once all have answered alone. True where that came in time, too.
fn pairs(nvml: &Arc<Nvml>, addresses: &[PciAddress], gpus: &mut [GpuReading], end: Instant) -> bool {
    let (say, said) = channel();
    let (nvml, addresses) = (nvml.clone(), addresses.to_vec());
    thread::spawn(move || {
        let open =
            |address: &PciAddress| nvml.open(&address.to_string()).ok().map(|device| (*address, device));
        let open: Vec<Option<(PciAddress, Device)>> = addresses.iter().map(open).collect();
        let peers = |own: &Option<(PciAddress, Device)>| own.map(|own| peers(&nvml, own, &open));
        drop(say.send(open.iter().map(peers).collect::<Vec<_>>()));
    });
    let Ok(found) = said.recv_timeout(end.saturating_duration_since(Instant::now())) else { return false };
    for (gpu, peers) in gpus.iter_mut().zip(found) {
        if let (Some(detail), Some(peers)) = (&mut gpu.detail, peers) {
            detail.peers = peers;
        }
    }
    true
}

fn peers(nvml: &Nvml, own: (PciAddress, Device), all: &[Option<(PciAddress, Device)>]) -> Vec<PeerReading> {
    let others = all.iter().flatten().filter(|(address, _)| *address != own.0);
    let peer = |&(address, other): &(PciAddress, Device)| {
        // nvmlGpuP2PCapsIndex_t.
        let status = |capability| reading(nvml.peer_status(own.1, other, capability));
        PeerReading { pci: Some(address), read: status(0), write: status(1), nvlink: status(2) }
    };
    others.map(peer).collect()
}

/// Field ids of what is always read (nvml.h, NVML_FI_DEV_...).
const ECC_AND_REST: [u32; 11] = [4, 3, 6, 5, 83, 94, 143, 142, 144, 145, 230];

/// `throttle` are the fields of the three throttle times that moved.
fn gpu(nvml: &Nvml, device: Device, address: PciAddress, throttle: [u32; 3]) -> GpuReading {
    let functions = &nvml.0;
    let [sw_heat, hw_heat, brake] = fields(nvml, device, throttle.map(|id| (id, 0))).map(unsigned);
    let [volatile_uncorr, volatile_corr, aggregate_uncorr, aggregate_corr, energy, replay, rest @ ..] =
        fields(nvml, device, ECC_AND_REST.map(|id| (id, 0)));
    let [remapped_uncorr, remapped_corr, pending, failed, action] = rest;
    let parsed = |function| parsed(Nvml::text(function, device));
    GpuReading {
        handle: Reading::Value(()),
        pci: Reading::Value(address),
        uuid: parsed(functions.nvmlDeviceGetUUID),
        mig_uuid: Reading::NotRead,
        minor: reading(Nvml::one(functions.nvmlDeviceGetMinorNumber, device)),
        model: reading(Nvml::text(functions.nvmlDeviceGetName, device)),
        serial: reading(Nvml::text(functions.nvmlDeviceGetSerial, device)),
        persistence: reading(Nvml::one(functions.nvmlDeviceGetPersistenceMode, device)).map(|mode| mode == 1),
        mig: reading(Nvml::two(functions.nvmlDeviceGetMigMode, device)).map(|(now, _)| now == 1),
        recovery_action: unsigned(action),
        // NVML_TEMPERATURE_GPU is 0.
        temp_c: reading(Nvml::of(functions.nvmlDeviceGetTemperature, device, 0)),
        counters: Counters {
            energy_mj: unsigned(energy),
            ecc_volatile_uncorr: unsigned(volatile_uncorr),
            ecc_volatile_corr: unsigned(volatile_corr),
            ecc_aggregate_uncorr: unsigned(aggregate_uncorr),
            ecc_aggregate_corr: unsigned(aggregate_corr),
            remapped_uncorr: unsigned(remapped_uncorr),
            remapped_corr: unsigned(remapped_corr),
            pcie_replay: unsigned(replay),
            throttle_sw_thermal_ns: sw_heat,
            throttle_hw_thermal_ns: hw_heat,
            throttle_power_brake_ns: brake,
        },
        remap_pending: unsigned(pending).map(|flag: u32| flag == 1),
        remap_failed: unsigned(failed).map(|flag: u32| flag == 1),
        took_us: 0,
        detail: None,
    }
}

/// The throttle times for software and hardware heat and for the power brake moved with driver 580.82 (CUDA 13.0
/// Update 1), when power smoothing took their numbers.
fn throttle_ids(driver: &str) -> [u32; 3] {
    let mut parts = driver.split('.').map(|part| part.parse().unwrap_or(0));
    let version: [u32; 2] = [parts.next().unwrap_or(0), parts.next().unwrap_or(0)];
    if version >= [580, 82] { [269, 270, 271] } else { [251, 252, 253] }
}

/// Field values by id and scope, each with its own answer.
pub(super) fn fields<const N: usize>(
    nvml: &Nvml,
    device: Device,
    wanted: [(u32, u32); N],
) -> [Reading<i128>; N] {
    match nvml.field_values(device, wanted) {
        Ok(values) => values.map(|value| number(&value)),
        Err(code) => [of_code(code); N],
    }
}

/// nvmlValueType_t: 1 unsigned int, 2 unsigned long, 3 unsigned long long, 4 long long, 5 int. A double is no counter.
fn number(value: &FieldValue) -> Reading<i128> {
    // A driver that does not know a field says "invalid argument" in its place.
    if value.code != 0 {
        return if value.code == super::INVALID_ARGUMENT {
            Reading::NotSupported
        } else {
            of_code(value.code)
        };
    }
    let [a, b, c, d, ..] = value.value.to_ne_bytes();
    match value.kind {
        1 => Reading::Value(u32::from_ne_bytes([a, b, c, d]).into()),
        2 | 3 => Reading::Value(value.value.into()),
        4 => Reading::Value(i64::from_ne_bytes(value.value.to_ne_bytes()).into()),
        5 => Reading::Value(i32::from_ne_bytes([a, b, c, d]).into()),
        _ => Reading::NotSupported,
    }
}

/// A field that counts.
pub(super) fn unsigned<T: TryFrom<i128>>(field: Reading<i128>) -> Reading<T> {
    field.and_then(|number| T::try_from(number).map_or(Reading::NotSupported, Reading::Value))
}

/// nvmlReturn_t as what the model calls it.
pub(super) fn of_code<T>(code: u32) -> Reading<T> {
    match code {
        // Not supported, function not found, no data, argument version mismatch, deprecated.
        3 | 13 | 21 | 25 | 26 => Reading::NotSupported,
        4 => Reading::NoPermission,
        15 => Reading::Lost,
        16 => Reading::ResetRequired,
        other => Reading::Failed(other.into()),
    }
}

pub(super) fn reading<T>(answer: Answer<T>) -> Reading<T> {
    answer.map_or_else(of_code, Reading::Value)
}

pub(super) fn parsed<T: FromStr>(answer: Answer<String>) -> Reading<T> {
    reading(answer).and_then(|text| text.parse().map_or(Reading::NotSupported, Reading::Value))
}

/// The address in nvmlPciInfo_t.
pub(super) fn address(bus_id: &[u8]) -> Reading<PciAddress> {
    parsed(Ok(text(bus_id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttle_times_are_asked_for_under_the_drivers_own_numbers() {
        for old in ["470.57.02", "570.124.06", "580.65.06", ""] {
            assert_eq!(throttle_ids(old), [251, 252, 253], "{old}");
        }
        for new in ["580.82.07", "580.105.08", "590.44.01"] {
            assert_eq!(throttle_ids(new), [269, 270, 271], "{new}");
        }
    }
}
