//! Count and handles, MIG handles among them.

use super::pointers::{Handle, InText, Out};
use super::runtime::State;
use super::{exported, guarded, runtime, submit};
use crate::code::Code;
use crate::engine::Answer;
use crate::scenario::{Gpu, PciAddress};

/// Slots in NVML's order without those that have vanished.
fn present(state: &State) -> Vec<u32> {
    let mut slots = state.machine.nvml_slots();
    slots.retain(|&slot| !state.script.vanished(slot));
    slots
}

/// Opens a handle: the fault script sees which GPU is meant.
fn open(function: &str, out: Out<Handle>, find: impl FnOnce(&State) -> Answer<Handle>) -> Code {
    guarded(|| {
        let state = runtime::state()?;
        let handle = find(&state);
        let slot = handle.as_ref().ok().and_then(|handle| handle.parts().ok()).map(|(slot, _)| slot);
        submit(&state, function, slot)?;
        out.put(handle?)
    })
}

/// The same without those that are kept from the process: the first form of count and index leaves them out, the
/// second counts them and refuses to open them (nvml.h).
fn permitted(state: &State) -> Vec<u32> {
    let mut slots = present(state);
    slots.retain(|&slot| state.script.hidden(slot).is_none());
    slots
}

fn by_index(slots: &[u32], index: u32) -> Answer<Handle> {
    let slot = slots.get(index as usize).copied().ok_or(Code::INVALID_ARGUMENT)?;
    Ok(Handle::new(slot, None))
}

fn by(state: &State, mut wanted: impl FnMut(&Gpu) -> bool) -> Answer<Handle> {
    let found = state.machine.gpus.iter().find(|gpu| !state.script.vanished(gpu.slot()) && wanted(gpu));
    found.map(|gpu| Handle::new(gpu.slot(), None)).ok_or(Code::NOT_FOUND)
}

fn by_pci(state: &State, text: InText) -> Answer<Handle> {
    let address: PciAddress = text.get()?.parse().map_err(|_| Code::INVALID_ARGUMENT)?;
    by(state, |gpu| gpu.pci == address)
}

fn by_uuid(state: &State, text: InText) -> Answer<Handle> {
    let uuid = text.get()?;
    for gpu in state.machine.gpus.iter().filter(|gpu| !state.script.vanished(gpu.slot())) {
        if let Some(place) = gpu.mig.devices.iter().position(|mig| mig.uuid == uuid) {
            return Ok(Handle::new(gpu.slot(), Some(place)));
        }
    }
    by(state, |gpu| gpu.uuid == uuid)
}

/// `nvmlDeviceGetHandleByIndex`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetHandleByIndex(index: u32, device: Out<Handle>) -> Code {
    open("nvmlDeviceGetHandleByIndex", device, |state| by_index(&permitted(state), index))
}

/// `nvmlDeviceGetHandleByIndex_v2`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: u32, device: Out<Handle>) -> Code {
    open("nvmlDeviceGetHandleByIndex_v2", device, |state| by_index(&present(state), index))
}

/// `nvmlDeviceGetHandleByPciBusId`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetHandleByPciBusId(address: InText, device: Out<Handle>) -> Code {
    open("nvmlDeviceGetHandleByPciBusId", device, |state| by_pci(state, address))
}

/// `nvmlDeviceGetHandleByPciBusId_v2`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(address: InText, device: Out<Handle>) -> Code {
    open("nvmlDeviceGetHandleByPciBusId_v2", device, |state| by_pci(state, address))
}

/// `nvmlDeviceGetHandleByUUID`: GPUs and MIG devices.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetHandleByUUID(uuid: InText, device: Out<Handle>) -> Code {
    open("nvmlDeviceGetHandleByUUID", device, |state| by_uuid(state, uuid))
}

/// `nvmlDeviceGetHandleBySerial`: "invalid argument" where several GPUs of one board share the number, as nvml.h says.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetHandleBySerial(serial: InText, device: Out<Handle>) -> Code {
    open("nvmlDeviceGetHandleBySerial", device, |state| {
        let serial = serial.get()?;
        let has_it = |gpu: &Gpu| gpu.serial.as_deref() == Some(serial);
        match state.machine.gpus.iter().filter(|gpu| has_it(gpu)).count() {
            0 | 1 => by(state, has_it),
            _ => Err(Code::INVALID_ARGUMENT),
        }
    })
}

exported! {
    /// `nvmlDeviceGetCount`.
    system nvmlDeviceGetCount(count: Out<u32>) |state| put_count(&permitted(state), count);

    /// `nvmlDeviceGetCount_v2`: lost GPUs still count unless the script lets them vanish.
    system nvmlDeviceGetCount_v2(count: Out<u32>) |state| put_count(&present(state), count);

    /// `nvmlDeviceGetIndex`.
    gpu nvmlDeviceGetIndex(index: Out<u32>) |device| {
        if let Some(mig) = device.mig {
            let place = device.gpu.mig.devices.iter().position(|other| other.uuid == mig.uuid);
            return index.put(u32::try_from(place.unwrap_or(0)).map_err(|_| Code::UNKNOWN)?);
        }
        let order = device.machine.nvml_slots();
        let order = order.iter().filter(|&&slot| !device.script.vanished(slot));
        let mut numbered = (0..).zip(order);
        let found = numbered.find(|(_, slot)| **slot == device.gpu.slot());
        index.put(found.ok_or(Code::GPU_IS_LOST)?.0)
    };

    /// `nvmlDeviceGetMigMode`.
    gpu nvmlDeviceGetMigMode(current: Out<u32>, pending: Out<u32>) |device| {
        let mig = &device.whole()?.mig;
        if mig.max_devices == 0 {
            return Err(Code::NOT_SUPPORTED);
        }
        current.put(u32::from(mig.enabled))?;
        pending.put(u32::from(mig.pending.unwrap_or(mig.enabled)))
    };

    /// `nvmlDeviceGetMaxMigDeviceCount`: 0 on boards without MIG and while the mode is off.
    gpu nvmlDeviceGetMaxMigDeviceCount(count: Out<u32>) |device| {
        let mig = &device.whole()?.mig;
        count.put(if mig.enabled { mig.max_devices } else { 0 })
    };

    /// `nvmlDeviceGetMigDeviceHandleByIndex`.
    gpu nvmlDeviceGetMigDeviceHandleByIndex(index: u32, mig: Out<Handle>) |device| {
        let own = &device.whole()?.mig;
        let place = index as usize;
        match () {
            () if own.max_devices == 0 => Err(Code::NOT_SUPPORTED),
            () if index >= own.max_devices => Err(Code::INVALID_ARGUMENT),
            () if !own.enabled || place >= own.devices.len() => Err(Code::NOT_FOUND),
            () => mig.put(Handle::new(device.gpu.slot(), Some(place))),
        }
    };

    /// `nvmlDeviceGetDeviceHandleFromMigDeviceHandle`.
    gpu nvmlDeviceGetDeviceHandleFromMigDeviceHandle(parent: Out<Handle>) |device| {
        device.mig.ok_or(Code::INVALID_ARGUMENT)?;
        parent.put(Handle::new(device.gpu.slot(), None))
    };

    /// `nvmlDeviceIsMigDeviceHandle`.
    gpu nvmlDeviceIsMigDeviceHandle(answer: Out<u32>) |device| answer.put(u32::from(device.mig.is_some()));

    /// `nvmlDeviceGetGpuInstanceId`.
    gpu nvmlDeviceGetGpuInstanceId(id: Out<u32>) |device|
        id.put(device.mig.ok_or(Code::NOT_SUPPORTED)?.gpu_instance);

    /// `nvmlDeviceGetComputeInstanceId`.
    gpu nvmlDeviceGetComputeInstanceId(id: Out<u32>) |device|
        id.put(device.mig.ok_or(Code::NOT_SUPPORTED)?.compute_instance);
}

fn put_count(slots: &[u32], count: Out<u32>) -> Answer<()> {
    count.put(u32::try_from(slots.len()).map_err(|_| Code::UNKNOWN)?)
}
