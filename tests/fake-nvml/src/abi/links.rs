//! PCIe, NVLink, fabric, distances between GPUs.

use super::identity::pci_info;
use super::pointers::{Handle, Out};
use super::runtime::State;
use super::types::{FabricInfo, FabricInfoV2, FabricInfoV3, PciInfo, version_word};
use super::{device, exported, guarded, runtime, submit};
use crate::code::Code;
use crate::engine::{Answer, Device, Level, common_ancestor, link_end, nvlink_joined};

/// `nvmlIntNvLinkDeviceType_t`.
const REMOTE_GPU: u32 = 0;
const REMOTE_SWITCH: u32 = 2;

/// A call on two GPUs: the fault script judges it for the first and then, for lost GPUs, for the second.
fn on_two(
    function: &str,
    first: Handle,
    second: Handle,
    body: impl FnOnce(&Device<'_>, &Device<'_>) -> Answer<()>,
) -> Code {
    guarded(|| {
        let state = runtime::state()?;
        let (first, second) = (device(&state, first), device(&state, second));
        submit(&state, function, slot(&first))?;
        second_gpu(&state, function, slot(&first), slot(&second))?;
        body(&first?, &second?)
    })
}

fn slot(device: &Answer<Device<'_>>) -> Option<u32> {
    device.as_ref().ok().map(|device| device.gpu.slot())
}

fn second_gpu(state: &State, function: &str, first: Option<u32>, second: Option<u32>) -> Answer<()> {
    if second.is_some() && second != first { submit(state, function, second) } else { Ok(()) }
}

fn remote_end(device: &Device<'_>, link: u32) -> Answer<(PciInfo, u32)> {
    let link = device.link(link)?;
    let (address, is_gpu) = link_end(device.machine, device.gpu, link).ok_or(Code::INVALID_ARGUMENT)?;
    let kind = if is_gpu { REMOTE_GPU } else { REMOTE_SWITCH };
    Ok((pci_info(address, None), kind))
}

/// Sixteen bytes of a UUID's hexadecimal digits; zeros where there are none.
fn uuid_bytes(text: &str) -> [u8; 16] {
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).unwrap_or(0).to_be_bytes()
}

fn fabric(device: &Device<'_>) -> Answer<FabricInfoV3> {
    let fabric = device.whole()?.fabric.as_ref().ok_or(Code::NOT_SUPPORTED)?;
    Ok(FabricInfoV3 {
        version: version_word::<FabricInfoV3>(3),
        cluster_uuid: uuid_bytes(&fabric.cluster_uuid),
        status: fabric.status,
        clique: fabric.clique,
        state: fabric.state,
        health_mask: fabric.health_mask,
        health_summary: fabric.health_summary,
        padding: [0; 3],
    })
}

/// `nvmlDeviceGetP2PStatus`: GPUs joined by NVLink do everything; others read and write below one root only.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetP2PStatus(
    first: Handle,
    second: Handle,
    index: u32,
    status: Out<u32>,
) -> Code {
    const OK: u32 = 0;
    const CHIPSET_NOT_SUPPORTED: u32 = 1;
    const NOT_SUPPORTED: u32 = 5;
    const NVLINK: u32 = 2;
    on_two("nvmlDeviceGetP2PStatus", first, second, |a, b| {
        let (left, right) = (a.whole()?, b.whole()?);
        if index > 4 || left.slot() == right.slot() {
            return Err(Code::INVALID_ARGUMENT);
        }
        let near = common_ancestor(a.machine, left.under, right.under) <= Level::HostBridge;
        let fine = left.p2p_status.or(right.p2p_status).unwrap_or(OK);
        status.put(match nvlink_joined(a.machine, left, right) {
            true => fine,
            false if index == NVLINK => NOT_SUPPORTED,
            false if near => fine,
            false => CHIPSET_NOT_SUPPORTED,
        })
    })
}

/// `nvmlDeviceGetTopologyCommonAncestor`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetTopologyCommonAncestor(
    first: Handle,
    second: Handle,
    level: Out<u32>,
) -> Code {
    on_two("nvmlDeviceGetTopologyCommonAncestor", first, second, |a, b| {
        let (left, right) = (a.whole()?, b.whole()?);
        let found = match left.slot() == right.slot() {
            true => Level::Internal,
            false => common_ancestor(a.machine, left.under, right.under),
        };
        level.put(found as u32)
    })
}

exported! {
    /// `nvmlDeviceGetCurrPcieLinkGeneration`.
    gpu nvmlDeviceGetCurrPcieLinkGeneration(generation: Out<u32>) |device| {
        device.whole()?;
        generation.put(device.pcie_generation())
    };

    /// `nvmlDeviceGetCurrPcieLinkWidth`.
    gpu nvmlDeviceGetCurrPcieLinkWidth(width: Out<u32>) |device| width.put(device.whole()?.pcie.width);

    /// `nvmlDeviceGetMaxPcieLinkGeneration`.
    gpu nvmlDeviceGetMaxPcieLinkGeneration(generation: Out<u32>) |device|
        generation.put(device.whole()?.pcie.max_generation);

    /// `nvmlDeviceGetMaxPcieLinkWidth`.
    gpu nvmlDeviceGetMaxPcieLinkWidth(width: Out<u32>) |device| width.put(device.whole()?.pcie.max_width);

    /// `nvmlDeviceGetGpuMaxPcieLinkGeneration`.
    gpu nvmlDeviceGetGpuMaxPcieLinkGeneration(generation: Out<u32>) |device|
        generation.put(device.whole()?.pcie.gpu_max_generation);

    /// `nvmlDeviceGetPcieReplayCounter`.
    gpu nvmlDeviceGetPcieReplayCounter(count: Out<u32>) |device| count.put(device.whole()?.pcie.replay);

    /// `nvmlDeviceGetNvLinkState`.
    gpu nvmlDeviceGetNvLinkState(link: u32, up: Out<u32>) |device| up.put(device.link_up(link)?.into());

    /// `nvmlDeviceGetNvLinkVersion`.
    gpu nvmlDeviceGetNvLinkVersion(link: u32, version: Out<u32>) |device| {
        device.link(link)?;
        version.put(device.gpu.nvlink.version.unwrap_or(0))
    };

    /// `nvmlDeviceGetNvLinkCapability`: 0 P2P and 2 P2P atomics; no system memory and no SLI over these links.
    gpu nvmlDeviceGetNvLinkCapability(link: u32, capability: u32, able: Out<u32>) |device| {
        device.link(link)?;
        match capability {
            0..6 => able.put((capability == 0 || capability == 2).into()),
            _ => Err(Code::INVALID_ARGUMENT),
        }
    };

    /// `nvmlDeviceGetNvLinkErrorCounter`.
    gpu nvmlDeviceGetNvLinkErrorCounter(link: u32, counter: u32, count: Out<u64>) |device| {
        let errors = device.link_errors(link)?;
        count.put(match counter {
            0 => errors.replay,
            1 => errors.recovery,
            2 => errors.crc_flit,
            3 => errors.crc_data,
            4 => errors.ecc_data,
            _ => return Err(Code::INVALID_ARGUMENT),
        })
    };

    /// `nvmlDeviceGetNvLinkRemotePciInfo`.
    gpu nvmlDeviceGetNvLinkRemotePciInfo(link: u32, pci: Out<PciInfo>) |device| pci.put(remote_end(device, link)?.0);

    /// `nvmlDeviceGetNvLinkRemotePciInfo_v2`.
    gpu nvmlDeviceGetNvLinkRemotePciInfo_v2(link: u32, pci: Out<PciInfo>) |device|
        pci.put(remote_end(device, link)?.0);

    /// `nvmlDeviceGetNvLinkRemoteDeviceType`.
    gpu nvmlDeviceGetNvLinkRemoteDeviceType(link: u32, kind: Out<u32>) |device| kind.put(remote_end(device, link)?.1);

    /// `nvmlDeviceGetC2cModeInfoV`: one word, whether such links are in use.
    gpu nvmlDeviceGetC2cModeInfoV(enabled: Out<u32>) |device|
        enabled.put(device.whole()?.c2c.as_ref().map(|c2c| c2c.links > 0).ok_or(Code::NOT_SUPPORTED)?.into());

    /// `nvmlDeviceGetGpuFabricInfo`: the unversioned struct.
    gpu nvmlDeviceGetGpuFabricInfo(info: Out<FabricInfo>) |device| {
        let FabricInfoV3 { cluster_uuid, status, clique, state, .. } = fabric(device)?;
        info.put(FabricInfo { cluster_uuid, status, clique, state })
    };

    /// `nvmlDeviceGetGpuFabricInfoV`: struct versions 2 and 3.
    gpu nvmlDeviceGetGpuFabricInfoV(info: Out<FabricInfoV3>) |device| {
        let version = info.cast::<u32>().get()?;
        let full = fabric(device)?;
        let FabricInfoV3 { cluster_uuid, status, clique, state, health_mask, .. } = full;
        match version {
            _ if version == full.version => info.put(full),
            _ if version == version_word::<FabricInfoV2>(2) => {
                info.cast().put(FabricInfoV2 { version, cluster_uuid, status, clique, state, health_mask })
            }
            _ => Err(Code::ARGUMENT_VERSION_MISMATCH),
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_becomes_its_bytes() {
        assert_eq!(uuid_bytes(""), [0; 16]);
        assert_eq!(uuid_bytes("00000000-0000-4000-a000-0000000000ff")[15], 0xff);
    }
}
