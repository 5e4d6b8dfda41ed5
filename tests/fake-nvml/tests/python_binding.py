"""Reads a machine through nvidia-ml-py and prints what it sees as JSON; started by python_binding.rs."""

import json
import sys
import time

import pynvml as nv


def read(call, *args):
    """A value, or the name of the error class, as a test compares both."""
    try:
        return call(*args)
    except nv.NVMLError as error:
        return type(error).__name__


def field(handle, *wanted):
    return [
        {"code": value.nvmlReturn, "type": value.valueType, "uint": value.value.uiVal, "ull": value.value.ullVal}
        for value in nv.nvmlDeviceGetFieldValues(handle, list(wanted))
    ]


def sram_threshold(handle):
    status = nv.c_nvmlEccSramErrorStatus_v1_t()
    nv.nvmlDeviceGetSramEccErrorStatus(handle, nv.byref(status))
    return status.bThresholdExceeded


def fabric_state(handle):
    info = nv.c_nvmlGpuFabricInfo_v3_t()
    nv.nvmlDeviceGetGpuFabricInfoV(handle, nv.byref(info))
    return [info.state, info.healthSummary]


def links(handle):
    found = []
    for link in range(18):
        state = read(nv.nvmlDeviceGetNvLinkState, handle, link)
        if state != 1:
            return found or state
        found.append(nv.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId)
    return found


def gpu(handle):
    pci = nv.nvmlDeviceGetPciInfo(handle)
    old, new = nv.nvmlDeviceGetMemoryInfo(handle), nv.nvmlDeviceGetMemoryInfo(handle, nv.nvmlMemory_v2)
    start = nv.nvmlDeviceGetTotalEnergyConsumption(handle), time.clock_gettime(time.CLOCK_BOOTTIME)
    time.sleep(0.3)
    end = nv.nvmlDeviceGetTotalEnergyConsumption(handle), time.clock_gettime(time.CLOCK_BOOTTIME)
    mig = read(nv.nvmlDeviceGetMigMode, handle)
    return {
        "name": nv.nvmlDeviceGetName(handle),
        "uuid": nv.nvmlDeviceGetUUID(handle),
        "serial": nv.nvmlDeviceGetSerial(handle),
        "bus_id": pci.busId,
        "bus_id_legacy": pci.busIdLegacy,
        "pci": [pci.domain, pci.bus, pci.device, pci.pciDeviceId],
        "minor": nv.nvmlDeviceGetMinorNumber(handle),
        "by_uuid": nv.nvmlDeviceGetIndex(nv.nvmlDeviceGetHandleByUUID(nv.nvmlDeviceGetUUID(handle))),
        "vbios": nv.nvmlDeviceGetVbiosVersion(handle),
        "compute_capability": nv.nvmlDeviceGetCudaComputeCapability(handle),
        "memory": [new.total, new.reserved, new.free, new.used],
        "memory_v1": [old.total, old.free, old.used],
        "power": nv.nvmlDeviceGetPowerUsage(handle),
        "limits": [
            nv.nvmlDeviceGetEnforcedPowerLimit(handle),
            nv.nvmlDeviceGetPowerManagementDefaultLimit(handle),
        ],
        "temperature": nv.nvmlDeviceGetTemperature(handle, nv.NVML_TEMPERATURE_GPU),
        "temperature_v": nv.nvmlDeviceGetTemperatureV(handle, nv.NVML_TEMPERATURE_GPU),
        "margin": nv.nvmlDeviceGetMarginTemperature(handle),
        "ecc_mode": nv.nvmlDeviceGetEccMode(handle),
        "ecc": [
            nv.nvmlDeviceGetTotalEccErrors(handle, kind, counter) for kind in (0, 1) for counter in (0, 1)
        ],
        "sram_threshold": sram_threshold(handle),
        "fabric_state": read(fabric_state, handle),
        "remapped": nv.nvmlDeviceGetRemappedRows(handle),
        "throttle": [
            nv.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
            nv.nvmlDeviceGetCurrentClocksEventReasons(handle),
        ],
        "pcie": [
            nv.nvmlDeviceGetCurrPcieLinkGeneration(handle),
            nv.nvmlDeviceGetCurrPcieLinkWidth(handle),
            nv.nvmlDeviceGetMaxPcieLinkGeneration(handle),
            nv.nvmlDeviceGetPcieReplayCounter(handle),
        ],
        "links": links(handle),
        "fields": field(handle, 230, 83, 82, 144, 190, 193, (165, 3), 9999),
        "affinity": list(nv.nvmlDeviceGetCpuAffinity(handle, 8)),
        "persistence": nv.nvmlDeviceGetPersistenceMode(handle),
        "compute_mode": nv.nvmlDeviceGetComputeMode(handle),
        "mig": mig,
        "processes": [
            {"pid": process.pid, "bytes": process.usedGpuMemory}
            for process in nv.nvmlDeviceGetComputeRunningProcesses(handle)
        ],
        "energy": [start[0], end[0]],
        "elapsed": end[1] - start[1],
    }


def main():
    nv.nvmlInit()
    print(
        json.dumps(
            {
                "driver": nv.nvmlSystemGetDriverVersion(),
                "nvml": nv.nvmlSystemGetNVMLVersion(),
                "cuda": nv.nvmlSystemGetCudaDriverVersion(),
                "gpus": [gpu(nv.nvmlDeviceGetHandleByIndex(i)) for i in range(nv.nvmlDeviceGetCount())],
                "beyond": read(nv.nvmlDeviceGetHandleByIndex, nv.nvmlDeviceGetCount()),
                "error_text": str(nv.NVMLError(nv.NVML_ERROR_GPU_IS_LOST)),
            }
        )
    )
    nv.nvmlShutdown()


sys.exit(main())
