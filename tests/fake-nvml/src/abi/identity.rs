//! Who a GPU is.

use super::exported;
use super::pointers::{Out, OutText};
use super::types::{Attributes, PciInfo, PciInfoExtV1, PciInfoV1, PciInfoV2, chars, version_word};
use crate::code::Code;
use crate::engine::Answer;
use crate::scenario::{Gpu, PciAddress};

/// The struct for an address; GPUs also have device ids there, remote ends of links have zeros.
pub(super) fn pci_info(address: PciAddress, gpu: Option<&Gpu>) -> PciInfo {
    let full = address.bus_id();
    PciInfo {
        // Four digits of domain, as in the old struct.
        bus_id_legacy: chars(&full[4..]),
        domain: address.domain,
        bus: address.bus.into(),
        device: address.device.into(),
        pci_device_id: gpu.map_or(0, |gpu| gpu.pci_device_id),
        pci_subsystem_id: gpu.map_or(0, |gpu| gpu.pci_subsystem_id),
        bus_id: chars(&full),
    }
}

fn stated(text: Option<&String>) -> Answer<&str> {
    text.map(String::as_str).ok_or(Code::NOT_SUPPORTED)
}

exported! {
    /// `nvmlDeviceGetUUID`.
    gpu nvmlDeviceGetUUID(uuid: OutText, room: u32) |device|
        uuid.put(room, device.mig.map_or(&device.gpu.uuid, |mig| &mig.uuid));

    /// `nvmlDeviceGetSerial`.
    gpu nvmlDeviceGetSerial(serial: OutText, room: u32) |device|
        serial.put(room, stated(device.whole()?.serial.as_ref())?);

    /// `nvmlDeviceGetName`.
    gpu nvmlDeviceGetName(name: OutText, room: u32) |device| name.put(room, &device.name());

    /// `nvmlDeviceGetMinorNumber`: also for MIG devices, which live on the parent's device file.
    gpu nvmlDeviceGetMinorNumber(minor: Out<u32>) |device| minor.put(device.gpu.minor);

    /// `nvmlDeviceGetPciInfo`.
    gpu nvmlDeviceGetPciInfo(pci: Out<PciInfoV1>) |device| {
        let PciInfo { bus_id_legacy: bus_id, domain, bus, device, pci_device_id, .. } =
            pci_info(device.gpu.pci, Some(device.gpu));
        pci.put(PciInfoV1 { bus_id, domain, bus, device, pci_device_id })
    };

    /// `nvmlDeviceGetPciInfo_v2`.
    gpu nvmlDeviceGetPciInfo_v2(pci: Out<PciInfoV2>) |device| {
        let PciInfo { bus_id_legacy: bus_id, domain, bus, device, pci_device_id, pci_subsystem_id, .. } =
            pci_info(device.gpu.pci, Some(device.gpu));
        pci.put(PciInfoV2 { bus_id, domain, bus, device, pci_device_id, pci_subsystem_id })
    };

    /// `nvmlDeviceGetPciInfo_v3`.
    gpu nvmlDeviceGetPciInfo_v3(pci: Out<PciInfo>) |device| pci.put(pci_info(device.gpu.pci, Some(device.gpu)));

    /// `nvmlDeviceGetPciInfoExt`.
    gpu nvmlDeviceGetPciInfoExt(pci: Out<PciInfoExtV1>) |device| {
        let version = version_word::<PciInfoExtV1>(1);
        if pci.cast::<u32>().get()? != version {
            return Err(Code::ARGUMENT_VERSION_MISMATCH);
        }
        let PciInfo { domain, bus, device: number, pci_device_id, pci_subsystem_id, bus_id, .. } =
            pci_info(device.gpu.pci, Some(device.gpu));
        // Class 0x0302: display controller, 3D.
        let (base_class, sub_class) = (3, 2);
        pci.put(PciInfoExtV1 {
            version, domain, bus, device: number, pci_device_id, pci_subsystem_id, base_class, sub_class, bus_id,
        })
    };

    /// `nvmlDeviceGetVbiosVersion`.
    gpu nvmlDeviceGetVbiosVersion(version: OutText, room: u32) |device|
        version.put(room, &device.whole()?.vbios);

    /// `nvmlDeviceGetBoardPartNumber`.
    gpu nvmlDeviceGetBoardPartNumber(number: OutText, room: u32) |device|
        number.put(room, stated(device.whole()?.board_part_number.as_ref())?);

    /// `nvmlDeviceGetBrand`.
    gpu nvmlDeviceGetBrand(brand: Out<u32>) |device| brand.put(device.gpu.brand);

    /// `nvmlDeviceGetArchitecture`.
    gpu nvmlDeviceGetArchitecture(architecture: Out<u32>) |device| architecture.put(device.gpu.architecture);

    /// `nvmlDeviceGetCudaComputeCapability`.
    gpu nvmlDeviceGetCudaComputeCapability(major: Out<i32>, minor: Out<i32>) |device| {
        major.put(device.gpu.compute_capability[0])?;
        minor.put(device.gpu.compute_capability[1])
    };

    /// `nvmlDeviceGetGspFirmwareMode`: enabled, and enabled by default.
    gpu nvmlDeviceGetGspFirmwareMode(enabled: Out<u32>, by_default: Out<u32>) |device| {
        enabled.put(device.whole()?.gsp.ok_or(Code::NOT_SUPPORTED)?.into())?;
        by_default.put(1)
    };

    /// `nvmlDeviceGetGspFirmwareVersion`: nvml.h promises 64 characters of room.
    gpu nvmlDeviceGetGspFirmwareVersion(version: OutText) |device| match device.whole()?.gsp {
        Some(true) => version.put(64, &device.machine.driver.version),
        _ => Err(Code::NOT_SUPPORTED),
    };

    /// `nvmlDeviceGetInforomImageVersion`.
    gpu nvmlDeviceGetInforomImageVersion(version: OutText, room: u32) |device|
        version.put(room, stated(device.whole()?.inforom.as_ref())?);

    /// `nvmlDeviceValidateInforom`.
    gpu nvmlDeviceValidateInforom() |device| match device.whole()? {
        Gpu { inforom: None, .. } => Err(Code::NOT_SUPPORTED),
        Gpu { inforom_corrupt: true, .. } => Err(Code::CORRUPTED_INFOROM),
        _ => Ok(()),
    };

    /// `nvmlDeviceGetAttributes_v2`: MIG devices only.
    gpu nvmlDeviceGetAttributes_v2(attributes: Out<Attributes>) |device| {
        let mig = device.mig.ok_or(Code::NOT_SUPPORTED)?;
        attributes.put(Attributes {
            multiprocessors: mig.multiprocessors,
            copy_engines: mig.slices,
            decoders: mig.slices,
            encoders: 0,
            jpeg: mig.slices,
            ofa: 0,
            gpu_slices: mig.slices,
            compute_slices: mig.slices,
            memory_mib: mig.memory_mib,
        })
    };
}
