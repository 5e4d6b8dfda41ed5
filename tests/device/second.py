"""Reads every GPU through NVIDIA's own Python binding and prints it in the form of gpuward's snapshot.

The second opinion of tests/device/check.sh. Where NVML has a function for what gpuward reads as a field value (energy, ECC
sums, PCIe replays, row remapping), the function is asked: the field's number is proved, too. What the binding cannot
read is left out. Only reads.
"""

import json
from ctypes import byref

import pynvml as nv

MIB = 1024 * 1024

# What speaks neither for nor against a GPU: invalid argument, not supported, function not found, no data, argument
# version mismatch, deprecated.
NEUTRAL = (2, 3, 13, 21, 25, 26)
OTHER = {4: "no_permission", 15: "lost", 16: "reset_required"}


class Refused(Exception):
    """A reading without a value."""


def of_code(code):
    return "not_supported" if code in NEUTRAL else OTHER.get(code, {"failed": code})


def answer(call):
    """The call's value; raises what it says instead."""
    try:
        return call()
    except nv.NVMLError as error:
        raise Refused(of_code(error.value)) from error


def reading(call):
    try:
        return {"value": answer(call)}
    except Refused as refused:
        return refused.args[0]


def text(value):
    return value.decode() if isinstance(value, bytes) else value


def fields(gpu, wanted):
    """Field values by id or (id, scope), each with an answer of its own."""
    try:
        values = answer(lambda: nv.nvmlDeviceGetFieldValues(gpu, wanted))
    except Refused as refused:
        return [refused.args[0]] * len(wanted)
    return [of_code(value.nvmlReturn) if value.nvmlReturn else {"value": number(value)} for value in values]


def number(value):
    kinds = {1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal"}
    return getattr(value.value, kinds.get(value.valueType, "ullVal"))


def together(readings):
    """Values that mean something only together."""
    for one in readings:
        if not isinstance(one, dict) or "value" not in one:
            return one
    return {"value": [one["value"] for one in readings]}


def address(bus_id):
    """NVML's eight-digit domain as gpuward and the kernel write it."""
    domain, rest = text(bus_id).lower().split(":", 1)
    return f"{int(domain, 16):04x}:{rest}"


def flag(read):
    return {"value": bool(read["value"])} if isinstance(read, dict) and "value" in read else read


def throttle_fields():
    """The three throttle times that have other numbers from driver 580.82 on."""
    version = [int(part) for part in text(nv.nvmlSystemGetDriverVersion()).split(".")[:2]]
    return [269, 270, 271] if version >= [580, 82] else [251, 252, 253]


def gpu_reading(gpu, others):
    errors = lambda kind, period: reading(lambda: nv.nvmlDeviceGetTotalEccErrors(gpu, kind, period))
    sw_ns, hw_ns, brake_ns = fields(gpu, throttle_fields())
    remapped = lambda at: reading(lambda: nv.nvmlDeviceGetRemappedRows(gpu)[at])
    [action] = fields(gpu, [230])
    return {
        "handle": {"value": None},
        "pci": reading(lambda: address(nv.nvmlDeviceGetPciInfo(gpu).busId)),
        "uuid": reading(lambda: text(nv.nvmlDeviceGetUUID(gpu))),
        "minor": reading(lambda: nv.nvmlDeviceGetMinorNumber(gpu)),
        "model": reading(lambda: text(nv.nvmlDeviceGetName(gpu))),
        "serial": reading(lambda: text(nv.nvmlDeviceGetSerial(gpu))),
        "persistence": flag(reading(lambda: nv.nvmlDeviceGetPersistenceMode(gpu))),
        "mig": flag(reading(lambda: nv.nvmlDeviceGetMigMode(gpu)[0])),
        "recovery_action": action,
        "temp_c": reading(lambda: nv.nvmlDeviceGetTemperature(gpu, 0)),
        "counters": {
            "energy_mj": reading(lambda: nv.nvmlDeviceGetTotalEnergyConsumption(gpu)),
            "ecc_volatile_uncorr": errors(1, 0),
            "ecc_volatile_corr": errors(0, 0),
            "ecc_aggregate_uncorr": errors(1, 1),
            "ecc_aggregate_corr": errors(0, 1),
            "remapped_uncorr": remapped(1),
            "remapped_corr": remapped(0),
            "pcie_replay": reading(lambda: nv.nvmlDeviceGetPcieReplayCounter(gpu)),
            "throttle_sw_thermal_ns": sw_ns,
            "throttle_hw_thermal_ns": hw_ns,
            "throttle_power_brake_ns": brake_ns,
        },
        "remap_pending": flag(remapped(2)),
        "remap_failed": flag(remapped(3)),
        "detail": detail(gpu, others),
    }


def detail(gpu, others):
    [c2c] = fields(gpu, [170])
    return {
        "board": board(gpu),
        "memory": memory(gpu),
        "power": power(gpu),
        "temp": temperatures(gpu),
        "clocks": clocks(gpu),
        "ecc": ecc(gpu),
        "pcie": pcie(gpu),
        "nvlinks": list(nvlinks(gpu)),
        "fabric": fabric(gpu),
        "c2c_links": c2c,
        "peers": [peer(gpu, pci, other) for pci, other in others],
        "mig": mig(gpu),
        "processes": processes(gpu),
        "compute_mode": reading(lambda: nv.nvmlDeviceGetComputeMode(gpu)),
        "accounting": flag(reading(lambda: nv.nvmlDeviceGetAccountingMode(gpu))),
        "accounting_buffer": reading(lambda: nv.nvmlDeviceGetAccountingBufferSize(gpu)),
        "gpm": flag(reading(lambda: nv.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice)),
        "cpus": reading(lambda: cpu_list(nv.nvmlDeviceGetCpuAffinity(gpu, 128))),
        "memory_node": reading(lambda: nv.nvmlDeviceGetNumaNodeId(gpu)),
    }


def board(gpu):
    return {
        "brand": reading(lambda: nv.nvmlDeviceGetBrand(gpu)),
        "architecture": reading(lambda: nv.nvmlDeviceGetArchitecture(gpu)),
        "compute_capability": reading(lambda: list(nv.nvmlDeviceGetCudaComputeCapability(gpu))),
        "vbios": reading(lambda: text(nv.nvmlDeviceGetVbiosVersion(gpu))),
        "part_number": reading(lambda: text(nv.nvmlDeviceGetBoardPartNumber(gpu))),
        "inforom": reading(lambda: text(nv.nvmlDeviceGetInforomImageVersion(gpu))),
        "inforom_check": reading(lambda: nv.nvmlDeviceValidateInforom(gpu)),
        "gsp": flag(reading(lambda: nv.nvmlDeviceGetGspFirmwareMode(gpu)[0])),
        "pci_device_id": reading(lambda: nv.nvmlDeviceGetPciInfo(gpu).pciDeviceId),
        "pci_subsystem_id": reading(lambda: nv.nvmlDeviceGetPciInfo(gpu).pciSubSystemId),
    }


def memory(gpu):
    whole = lambda name: reading(lambda: getattr(nv.nvmlDeviceGetMemoryInfo(gpu, nv.nvmlMemory_v2), name) // MIB)
    bar1 = lambda name: reading(lambda: getattr(nv.nvmlDeviceGetBAR1MemoryInfo(gpu), name) // MIB)
    return {
        "total_mib": whole("total"),
        "reserved_mib": whole("reserved"),
        "used_mib": whole("used"),
        "bar1_mib": bar1("bar1Total"),
        "bar1_used_mib": bar1("bar1Used"),
    }


def power(gpu):
    limits = lambda at: reading(lambda: nv.nvmlDeviceGetPowerManagementLimitConstraints(gpu)[at])
    return {
        "draw_mw": reading(lambda: nv.nvmlDeviceGetPowerUsage(gpu)),
        "default_limit_mw": reading(lambda: nv.nvmlDeviceGetPowerManagementDefaultLimit(gpu)),
        "limit_mw": reading(lambda: nv.nvmlDeviceGetPowerManagementLimit(gpu)),
        "enforced_limit_mw": reading(lambda: nv.nvmlDeviceGetEnforcedPowerLimit(gpu)),
        "min_limit_mw": limits(0),
        "max_limit_mw": limits(1),
    }


def temperatures(gpu):
    limit = lambda kind: reading(lambda: nv.nvmlDeviceGetTemperatureThreshold(gpu, kind))
    memory_c, *distances = fields(gpu, [82, 193, 194, 195, 196])
    return {
        "memory_c": memory_c,
        "shutdown_c": limit(0),
        "slowdown_c": limit(1),
        "memory_max_c": limit(2),
        "gpu_max_c": limit(3),
        "tlimit_c": together(distances),
        "margin_c": reading(lambda: nv.nvmlDeviceGetMarginTemperature(gpu)),
    }


def clocks(gpu):
    each = lambda call, kinds: together([reading(lambda kind=kind: call(gpu, kind)) for kind in kinds])
    power_ns, thermal_ns = fields(gpu, [74, 75])
    util = lambda: nv.nvmlDeviceGetUtilizationRates(gpu)
    return {
        "now_mhz": each(nv.nvmlDeviceGetClockInfo, range(4)),
        "max_mhz": each(nv.nvmlDeviceGetMaxClockInfo, range(4)),
        "app_default_mhz": each(nv.nvmlDeviceGetDefaultApplicationsClock, (0, 2)),
        "app_mhz": each(nv.nvmlDeviceGetApplicationsClock, (0, 2)),
        "pstate": reading(lambda: nv.nvmlDeviceGetPerformanceState(gpu)),
        "util_pct": reading(lambda: [getattr(util(), part) for part in ("gpu", "memory")]),
        "event_reasons": reading(lambda: nv.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)),
        "throttle_power_ns": power_ns,
        "throttle_thermal_ns": thermal_ns,
    }


def ecc(gpu):
    def sram(part):
        status = nv.c_nvmlEccSramErrorStatus_v1_t()
        nv.nvmlDeviceGetSramEccErrorStatus(gpu, byref(status))
        return part(status)

    retired = [reading(lambda cause=cause: len(nv.nvmlDeviceGetRetiredPages(gpu, cause))) for cause in (0, 1)]
    mode = lambda at: flag(reading(lambda: nv.nvmlDeviceGetEccMode(gpu)[at]))
    histogram = lambda: nv.nvmlDeviceGetRowRemapperHistogram(gpu)
    return {
        "enabled": mode(0),
        "pending": mode(1),
        "sram_aggregate_uncorr": reading(lambda: sram(lambda s: s.aggregateUncParity + s.aggregateUncSecDed)),
        "dram_aggregate_uncorr": reading(lambda: nv.nvmlDeviceGetMemoryErrorCounter(gpu, 1, 1, 2)),
        "sram_threshold_exceeded": flag(reading(lambda: sram(lambda s: s.bThresholdExceeded))),
        "remap_histogram": reading(
            lambda: [getattr(histogram(), part) for part in ("max", "high", "partial", "low", "none")]
        ),
        "retired_pages": together(retired),
        "retire_pending": flag(reading(lambda: nv.nvmlDeviceGetRetiredPagesPendingStatus(gpu))),
        "repair_pending": reading(lambda: [bool(part) for part in nv.nvmlDeviceGetRepairStatus(gpu)]),
    }


def pcie(gpu):
    return {
        "generation": reading(lambda: nv.nvmlDeviceGetCurrPcieLinkGeneration(gpu)),
        "width": reading(lambda: nv.nvmlDeviceGetCurrPcieLinkWidth(gpu)),
        "max_generation": reading(lambda: nv.nvmlDeviceGetMaxPcieLinkGeneration(gpu)),
        "max_width": reading(lambda: nv.nvmlDeviceGetMaxPcieLinkWidth(gpu)),
        "gpu_max_generation": reading(lambda: nv.nvmlDeviceGetGpuMaxPcieLinkGeneration(gpu)),
    }


def nvlinks(gpu):
    ends = {0: "gpu", 1: "npu", 2: "switch"}
    for link in range(128):
        up = flag(reading(lambda: nv.nvmlDeviceGetNvLinkState(gpu, link)))
        if up == "not_supported":
            return
        wanted = (161, 162, 163, 164, 213, 214, 220, 222)
        replay, recovery, crc, speed, *newer = fields(gpu, [(id, link) for id in wanted])
        yield {
            "link": link,
            "up": up,
            "version": reading(lambda: nv.nvmlDeviceGetNvLinkVersion(gpu, link)),
            "speed_mbps": speed,
            "end": reading(lambda: ends.get(nv.nvmlDeviceGetNvLinkRemoteDeviceType(gpu, link), "unknown")),
            "end_pci": reading(lambda: address(nv.nvmlDeviceGetNvLinkRemotePciInfo(gpu, link).busId)),
            "errors": together([replay, recovery, crc]),
            "recoveries": together(newer[:2]),
            "error_rates": together(newer[2:]),
        }


def fabric(gpu):
    def newest():
        info = nv.c_nvmlGpuFabricInfo_v3_t()
        try:
            nv.nvmlDeviceGetGpuFabricInfoV(gpu, byref(info))
        except nv.NVMLError as error:
            if error.value not in (13, 25):
                raise
            info = nv.c_nvmlGpuFabricInfo_v2_t()
            try:
                nv.nvmlDeviceGetGpuFabricInfoV(gpu, byref(info))
            except nv.NVMLError as older:
                if older.value not in (13, 25):
                    raise
                info = nv.c_nvmlGpuFabricInfo_t()
                nv.nvmlDeviceGetGpuFabricInfo(gpu, byref(info))
        return fabric_parts(info)

    return reading(newest)


def fabric_parts(info):
    digits = "".join(f"{byte:02x}" for byte in info.clusterUuid)
    uuid = "-".join([digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]])
    parts = {
        "state": info.state,
        "status": info.status,
        "clique": info.cliqueId,
        "cluster_uuid": uuid if digits.strip("0") else "",
        "health_mask": getattr(info, "healthMask", None),
        "health_summary": getattr(info, "healthSummary", None),
    }
    # The snapshot leaves out what is at its default.
    return {name: value for name, value in parts.items() if value or value is not None and "health" in name}


def peer(gpu, pci, other):
    status = lambda capability: reading(lambda: nv.nvmlDeviceGetP2PStatus(gpu, other, capability))
    return {"pci": pci, "read": status(0), "write": status(1), "nvlink": status(2)}


def mig(gpu):
    most = reading(lambda: nv.nvmlDeviceGetMaxMigDeviceCount(gpu))
    mode = reading(lambda: nv.nvmlDeviceGetMigMode(gpu))
    devices = []
    if isinstance(mode, dict) and "value" in mode and mode["value"][0] == 1:
        for place in range(most["value"] if isinstance(most, dict) and "value" in most else 0):
            try:
                devices.append(mig_device(nv.nvmlDeviceGetMigDeviceHandleByIndex(gpu, place)))
            except nv.NVMLError:
                pass
    pending = flag(reading(lambda: nv.nvmlDeviceGetMigMode(gpu)[1]))
    return {"pending": pending, "max_devices": most, "devices": devices}


def mig_device(gpu):
    part = lambda name: reading(lambda: getattr(nv.nvmlDeviceGetAttributes(gpu), name))
    uuid = reading(lambda: text(nv.nvmlDeviceGetUUID(gpu)))
    return {
        "uuid": uuid["value"] if isinstance(uuid, dict) else None,
        "name": reading(lambda: text(nv.nvmlDeviceGetName(gpu))),
        "gpu_instance": reading(lambda: nv.nvmlDeviceGetGpuInstanceId(gpu)),
        "compute_instance": reading(lambda: nv.nvmlDeviceGetComputeInstanceId(gpu)),
        "slices": part("gpuInstanceSliceCount"),
        "multiprocessors": part("multiprocessorCount"),
        "memory_mib": part("memorySizeMB"),
    }


def processes(gpu):
    lists = (
        ("compute", nv.nvmlDeviceGetComputeRunningProcesses_v3),
        ("graphics", nv.nvmlDeviceGetGraphicsRunningProcesses_v3),
        ("mps", nv.nvmlDeviceGetMPSComputeRunningProcesses_v3),
    )
    found = []
    for kind, call in lists:
        listed = reading(lambda: call(gpu))
        if isinstance(listed, dict) and "value" in listed:
            found += [process(kind, one) for one in listed["value"]]
        elif kind == "compute" or listed != "not_supported":
            return listed
    return {"value": sorted(found, key=lambda one: (one["pid"], one["kind"]))}


def process(kind, one):
    whole = {"pid": one.pid, "kind": kind, "memory_mib": one.usedGpuMemory and one.usedGpuMemory // MIB}
    whole |= {"gpu_instance": one.gpuInstanceId, "compute_instance": one.computeInstanceId}
    none = (None, 0xFFFFFFFF)
    # The snapshot leaves out what is at its default, and "compute" is one.
    return {name: value for name, value in whole.items() if value not in none and (name, value) != ("kind", "compute")}


def cpu_list(words):
    cpus = [word * 64 + bit for word, bits in enumerate(words) for bit in range(64) if bits >> bit & 1]
    ranges = []
    for cpu in cpus:
        if ranges and ranges[-1][1] == cpu - 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)


def main():
    nv.nvmlInit()
    count = nv.nvmlDeviceGetCount()
    node = {
        "driver_version": reading(lambda: text(nv.nvmlSystemGetDriverVersion())),
        "nvml_version": reading(lambda: text(nv.nvmlSystemGetNVMLVersion())),
        "gpu_count": {"value": count},
    }
    opened = []
    for index in range(count):
        try:
            gpu = nv.nvmlDeviceGetHandleByIndex(index)
            opened.append((address(nv.nvmlDeviceGetPciInfo(gpu).busId), gpu))
        except nv.NVMLError:
            # gpuward's own answer about such a GPU has no counterpart here.
            pass
    opened.sort()
    gpus = [gpu_reading(gpu, [pair for pair in opened if pair[0] != pci]) for pci, gpu in opened]
    print(json.dumps({"reader": "nvidia-ml-py", "node": node, "gpus": gpus}))


if __name__ == "__main__":
    main()
