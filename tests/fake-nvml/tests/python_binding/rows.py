"""The rows of one GPU, but for its fields: name, call and what follows from the scenario."""

import pynvml as nv

from machine import (
    INVALID, MIB, NOT_FOUND, NOT_SUPPORTED, address, all_links, bus_id, by_load, ecc, ecc_total, energy, filled,
    link_errors, links, mask, processes, remap, stated
)


def clock_rows(gpu, h):
    """Four clocks each: graphics, SM, memory, video."""
    clocks = gpu["clocks"]
    for kind in range(5):
        pick = lambda values, kind=kind: values[kind] if kind < 4 else INVALID
        yield f"ClockInfo {kind}", lambda kind=kind: nv.nvmlDeviceGetClockInfo(h, kind), pick(
            by_load(gpu, clocks["idle_mhz"], clocks["busy_mhz"])
        )
        yield f"MaxClockInfo {kind}", lambda kind=kind: nv.nvmlDeviceGetMaxClockInfo(h, kind), pick(clocks["max_mhz"])
        # Graphics and SM share theirs, video has none.
        app = lambda pair: pick([pair[0], pair[0], pair[1], NOT_SUPPORTED]) if pair else NOT_SUPPORTED
        default = clocks["app_default_mhz"]
        yield f"ApplicationsClock {kind}", lambda kind=kind: nv.nvmlDeviceGetApplicationsClock(h, kind), app(
            clocks["app_mhz"] or default
        )
        yield f"DefaultApplicationsClock {kind}", lambda kind=kind: nv.nvmlDeviceGetDefaultApplicationsClock(
            h, kind
        ), app(default)
    memory = clocks["supported_memory_mhz"]
    low, high, step = clocks["supported_graphics_mhz"]
    graphics = list(range(low, high + 1, step))[::-1] if step else NOT_SUPPORTED
    yield "SupportedMemoryClocks", lambda: nv.nvmlDeviceGetSupportedMemoryClocks(h), memory or NOT_SUPPORTED
    for mhz in [*memory, 1]:
        yield f"SupportedGraphicsClocks {mhz}", lambda mhz=mhz: nv.nvmlDeviceGetSupportedGraphicsClocks(h, mhz), (
            graphics if mhz in memory or not step else NOT_FOUND
        )
    reasons = clocks["event_reasons"]
    reasons = by_load(gpu, nv.nvmlClocksEventReasonGpuIdle, 0) if reasons is None else reasons
    for name in ("Throttle", "Event"):
        yield f"{name}Reasons", lambda name=name: getattr(nv, f"nvmlDeviceGetCurrentClocks{name}Reasons")(h), reasons
        yield f"Supported{name}Reasons", lambda name=name: getattr(
            nv, f"nvmlDeviceGetSupportedClocks{name}Reasons"
        )(h), 0x1FF
    spent = clocks["throttle_ns"]
    kinds = ["power", "thermal", "sync_boost", "board_limit", "low_utilization", "reliability"]
    for policy in range(13):
        known = spent[kinds[policy]] if policy < 6 else 0 if policy in (10, 11) else INVALID
        yield f"ViolationStatus {policy}", lambda policy=policy: nv.nvmlDeviceGetViolationStatus(
            h, policy
        ).violationTime, known


def heat_and_power_rows(gpu, h):
    temp, power = gpu["temp"], gpu["power"]
    now = by_load(gpu, temp["gpu_c"], temp["gpu_busy_c"])
    yield "Temperature", lambda: nv.nvmlDeviceGetTemperature(h, 0), now
    yield "Temperature of another sensor", lambda: nv.nvmlDeviceGetTemperature(h, 1), INVALID
    yield "TemperatureV", lambda: nv.nvmlDeviceGetTemperatureV(h, 0), now
    limits = [temp["shutdown_c"], temp["slowdown_c"], temp["memory_max_c"], temp["gpu_max_c"], *[None] * 4]
    for kind, limit in enumerate(limits):
        yield f"TemperatureThreshold {kind}", lambda kind=kind: nv.nvmlDeviceGetTemperatureThreshold(
            h, kind
        ), stated(limit)
    yield "TemperatureThreshold 8", lambda: nv.nvmlDeviceGetTemperatureThreshold(h, 8), INVALID
    margin = NOT_SUPPORTED if temp["gpu_max_c"] is None else temp["gpu_max_c"] - now
    yield "MarginTemperature", lambda: nv.nvmlDeviceGetMarginTemperature(h), margin
    asked = power["default_limit_mw"] if power["limit_mw"] is None else power["limit_mw"]
    enforced = asked if power["enforced_limit_mw"] is None else power["enforced_limit_mw"]
    draw = by_load(gpu, power["idle_mw"], power["busy_mw"])
    yield "PowerUsage", lambda: nv.nvmlDeviceGetPowerUsage(h), draw
    yield "EnforcedPowerLimit", lambda: nv.nvmlDeviceGetEnforcedPowerLimit(h), enforced
    yield "PowerManagementLimit", lambda: nv.nvmlDeviceGetPowerManagementLimit(h), asked
    yield "PowerManagementDefaultLimit", lambda: nv.nvmlDeviceGetPowerManagementDefaultLimit(
        h
    ), power["default_limit_mw"]
    yield "PowerManagementLimitConstraints", lambda: nv.nvmlDeviceGetPowerManagementLimitConstraints(
        h
    ), [power["min_limit_mw"], power["max_limit_mw"]]
    yield "PerformanceState", lambda: nv.nvmlDeviceGetPerformanceState(h), by_load(gpu, gpu["clocks"]["idle_pstate"], 0)
    yield "TotalEnergyConsumption", lambda: nv.nvmlDeviceGetTotalEnergyConsumption(h), energy(gpu)
    util = by_load(gpu, [0, 0], [gpu["util"]["gpu_pct"], gpu["util"]["memory_pct"]])
    util = NOT_SUPPORTED if gpu["mig"]["enabled"] else util
    yield "UtilizationRates", lambda: nv.nvmlDeviceGetUtilizationRates(h), util


def memory_rows(gpu, h):
    memory = gpu["memory"]
    held = sum(process["memory_mib"] for process, _ in processes(gpu, None))
    total, reserved, used = memory["total_mib"], memory["reserved_mib"], memory["used_mib"] + held
    free = total - reserved - used
    yield "MemoryInfo", lambda: nv.nvmlDeviceGetMemoryInfo(h), [total * MIB, free * MIB, (used + reserved) * MIB]
    yield "MemoryInfo_v2", lambda: nv.nvmlDeviceGetMemoryInfo(h, nv.nvmlMemory_v2), [
        part * MIB for part in (total, reserved, free, used)
    ]
    bar, bar_used = memory["bar1_mib"], memory["bar1_used_mib"]
    yield "BAR1MemoryInfo", lambda: nv.nvmlDeviceGetBAR1MemoryInfo(h), [
        bar * MIB, (bar - bar_used) * MIB, bar_used * MIB
    ]
    on, pending = gpu["ecc"]["enabled"], gpu["ecc"]["pending"]
    both = NOT_SUPPORTED if on is None else [int(on), int(on if pending is None else pending)]
    yield "EccMode", lambda: nv.nvmlDeviceGetEccMode(h), both
    for error, counter in ((0, 0), (0, 1), (1, 0), (1, 1)):
        name = f"{error} {counter}"
        yield f"TotalEccErrors {name}", lambda e=error, c=counter: nv.nvmlDeviceGetTotalEccErrors(
            h, e, c
        ), ecc_total(gpu, error, counter)
        dram, sram = (ecc(gpu, part, error, counter) for part in ("dram", "sram"))
        detailed = NOT_SUPPORTED if dram == NOT_SUPPORTED else [0, sram, dram, 0]
        yield f"DetailedEccErrors {name}", lambda e=error, c=counter: nv.nvmlDeviceGetDetailedEccErrors(
            h, e, c
        ), detailed
        for place in range(9):
            there = {2: dram, 7: sram, 8: INVALID}.get(place, NOT_SUPPORTED)
            yield f"MemoryErrorCounter {name} {place}", (
                lambda e=error, c=counter, p=place: nv.nvmlDeviceGetMemoryErrorCounter(h, e, c, p)
            ), there
    yield "TotalEccErrors of another kind", lambda: nv.nvmlDeviceGetTotalEccErrors(h, 2, 0), INVALID
    status = nv.c_nvmlEccSramErrorStatus_v1_t()
    yield "SramEccErrorStatus", filled(status, nv.nvmlDeviceGetSramEccErrorStatus, h), sram_status(gpu)
    rows = remap(gpu)
    flags = rows and [rows["corr"], rows["uncorr"], int(rows["pending"]), int(rows["failure"])]
    yield "RemappedRows", lambda: nv.nvmlDeviceGetRemappedRows(h), stated(flags)
    yield "RowRemapperHistogram", lambda: nv.nvmlDeviceGetRowRemapperHistogram(h), stated(rows and rows["histogram"])
    repair = gpu["ecc"]["repair_pending"]
    yield "RepairStatus", lambda: nv.nvmlDeviceGetRepairStatus(h), stated(repair and [int(part) for part in repair])
    retired = gpu["retired"]
    for cause, key in enumerate(("single_bit", "double_bit")):
        pages = stated(retired and retired[key])
        yield f"RetiredPages {cause}", lambda cause=cause: nv.nvmlDeviceGetRetiredPages(h, cause), pages
        yield f"RetiredPages_v2 {cause}", lambda cause=cause: [
            page["address"] for page in nv.nvmlDeviceGetRetiredPages_v2(h, cause)
        ], pages
    yield "RetiredPagesPendingStatus", lambda: nv.nvmlDeviceGetRetiredPagesPendingStatus(
        h
    ), stated(retired and int(retired["pending"]))


def sram_status(gpu):
    counts = [[ecc(gpu, "sram", error, counter) for error in (0, 1)] for counter in (0, 1)]
    if NOT_SUPPORTED in counts[0] + counts[1]:
        return NOT_SUPPORTED
    (corr, uncorr), (all_corr, all_uncorr) = counts
    parity, all_parity = gpu["ecc"]["sram_parity"]
    totals = [all_parity, all_uncorr - all_parity, all_corr, parity, uncorr - parity, corr]
    return totals + [all_uncorr, 0, 0, 0, 0, int(gpu["ecc"]["sram_threshold_exceeded"])]


def process_rows(gpu, h, device=None):
    none = 0xFFFFFFFF
    for name, kind in (("Compute", "compute"), ("Graphics", "graphics"), ("MPSCompute", "mps")):
        wanted = [
            [
                process["pid"],
                process["memory_mib"] * MIB,
                mig["gpu_instance"] if mig else none,
                mig["compute_instance"] if mig else none,
            ]
            for process, mig in processes(gpu, kind, device)
        ]
        of = lambda one: [one.pid, one.usedGpuMemory, one.gpuInstanceId, one.computeInstanceId]
        for version in (2, 3):
            call = getattr(nv, f"nvmlDeviceGet{name}RunningProcesses_v{version}")
            yield f"{name}RunningProcesses_v{version}", lambda call=call: [of(one) for one in call(h)], wanted
        mode = ("compute", "graphics", "mps").index(kind)
        yield f"RunningProcessDetailList {name}", lambda mode=mode: [
            of(one) for one in nv.nvmlDeviceGetRunningProcessDetailList(h, 0x1000018, mode)
        ], wanted


def mode_rows(gpu, h):
    yield "PersistenceMode", lambda: nv.nvmlDeviceGetPersistenceMode(h), int(gpu["persistence"])
    yield "ComputeMode", lambda: nv.nvmlDeviceGetComputeMode(h), gpu["compute_mode"]
    own = gpu["accounting"]
    on = own["enabled"]
    # nvml.h: MIG mode switches it off.
    if on and gpu["mig"]["enabled"]:
        on = False
    yield "AccountingMode", lambda: nv.nvmlDeviceGetAccountingMode(h), stated(None if on is None else int(on))
    size = stated(None if on is None else own["buffer_size"])
    yield "AccountingBufferSize", lambda: nv.nvmlDeviceGetAccountingBufferSize(h), size
    pids = [entry["pid"] for entry in own["entries"]] if on else NOT_SUPPORTED
    yield "AccountingPids", lambda: nv.nvmlDeviceGetAccountingPids(h), pids
    for entry in own["entries"]:
        values = [entry[key] for key in ("gpu_pct", "memory_pct")] + [entry["max_memory_mib"] * MIB]
        values += [entry["time_ms"], entry["start_unix_us"], int(entry["running"]), [0] * 5]
        yield f"AccountingStats {entry['pid']}", lambda pid=entry["pid"]: nv.nvmlDeviceGetAccountingStats(
            h, pid
        ), values if on else NOT_SUPPORTED
        # Newer than some drivers.
        if not hasattr(nv.nvmlLib, "nvmlDeviceGetAccountingStats_v2"):
            continue
        order = ("pid", "isRunning", "gpuUtilization", "memoryUtilization", "maxMemoryUsage", "time", "startTime")
        newer = [entry["pid"], values[5], *values[:5]]
        yield f"AccountingStats_v2 {entry['pid']}", lambda pid=entry["pid"]: (
            lambda stats: [getattr(stats, name) for name in order]
        )(nv.nvmlDeviceGetAccountingStats_v2(h, pid)), newer if on else NOT_SUPPORTED
    yield "AccountingStats of another process", lambda: nv.nvmlDeviceGetAccountingStats(h, 1), (
        NOT_FOUND if on else NOT_SUPPORTED
    )
    mig = gpu["mig"]
    modes = [int(mig["enabled"]), int(mig["enabled"] if mig["pending"] is None else mig["pending"])]
    yield "MigMode", lambda: nv.nvmlDeviceGetMigMode(h), modes if mig["max_devices"] else NOT_SUPPORTED
    yield "MaxMigDeviceCount", lambda: nv.nvmlDeviceGetMaxMigDeviceCount(h), mig["max_devices"] if mig["enabled"] else 0
    there = len(mig["devices"]) if mig["enabled"] else 0
    first_not = INVALID if there >= mig["max_devices"] else NOT_FOUND
    yield "MigDeviceHandleByIndex beyond", lambda: nv.nvmlDeviceGetMigDeviceHandleByIndex(h, there), (
        first_not if mig["max_devices"] else NOT_SUPPORTED
    )
    # Which share of the work is whose, and whether idle processes have samples, nvml.h does not say.
    pids = [process["pid"] for process, _ in processes(gpu, None)]
    if gpu["busy"] or mig["enabled"] or not pids:
        for name in ("ProcessUtilization", "ProcessesUtilizationInfo"):
            call = getattr(nv, f"nvmlDeviceGet{name}")
            yield name, lambda call=call: [one.pid for one in call(h, 0)], (
                NOT_SUPPORTED if mig["enabled"] else pids or NOT_FOUND
            )


def identity_rows(machine, gpu, h, index):
    yield "Name", lambda: nv.nvmlDeviceGetName(h), gpu["name"]
    yield "UUID", lambda: nv.nvmlDeviceGetUUID(h), gpu["uuid"]
    yield "Serial", lambda: nv.nvmlDeviceGetSerial(h), stated(gpu["serial"])
    yield "Index", lambda: nv.nvmlDeviceGetIndex(h), index
    yield "MinorNumber", lambda: nv.nvmlDeviceGetMinorNumber(h), gpu["minor"]
    yield "Brand", lambda: nv.nvmlDeviceGetBrand(h), gpu["brand"]
    yield "Architecture", lambda: nv.nvmlDeviceGetArchitecture(h), gpu["architecture"]
    yield "CudaComputeCapability", lambda: nv.nvmlDeviceGetCudaComputeCapability(h), gpu["compute_capability"]
    yield "VbiosVersion", lambda: nv.nvmlDeviceGetVbiosVersion(h), gpu["vbios"]
    yield "BoardPartNumber", lambda: nv.nvmlDeviceGetBoardPartNumber(h), stated(gpu["board_part_number"])
    yield "InforomImageVersion", lambda: nv.nvmlDeviceGetInforomImageVersion(h), stated(gpu["inforom"])
    valid = "NVMLError_CorruptedInforom" if gpu["inforom_corrupt"] else "valid"
    valid = valid if gpu["inforom"] else NOT_SUPPORTED
    yield "ValidateInforom", lambda: nv.nvmlDeviceValidateInforom(h) or "valid", valid
    gsp = gpu["gsp"]
    yield "GspFirmwareMode", lambda: nv.nvmlDeviceGetGspFirmwareMode(h), stated(None if gsp is None else [int(gsp), 1])
    yield "GspFirmwareVersion", lambda: nv.nvmlDeviceGetGspFirmwareVersion(h), (
        machine.all["driver"]["version"] if gsp else NOT_SUPPORTED
    )
    domain, bus, device, _ = address(gpu["pci"])
    ids, long = [gpu["pci_device_id"], gpu["pci_subsystem_id"]], bus_id(gpu["pci"])
    yield "PciInfo", lambda: nv.nvmlDeviceGetPciInfo(h), [long[4:], domain, bus, device, *ids, long]
    extended = nv.nvmlPciInfoExt_v1_t(version=nv.nvmlPciInfoExt_v1)
    # A 3D controller: class 3, subclass 2.
    yield "PciInfoExt", filled(extended, nv.nvmlDeviceGetPciInfoExt, h), [domain, bus, device, *ids, 3, 2, long]
    open_by = {"UUID": gpu["uuid"], "PciBusId": gpu["pci"], "Serial": gpu["serial"]}
    for kind, value in open_by.items():
        call = getattr(nv, f"nvmlDeviceGetHandleBy{kind}")
        # nvml.h: a serial number that GPUs of one board share opens none of them.
        alone = kind != "Serial" or [other["serial"] for other in machine.gpus].count(value) == 1
        if value is not None:
            yield f"HandleBy{kind}", lambda call=call, value=value: nv.nvmlDeviceGetIndex(call(value)), (
                index if alone else INVALID
            )
    yield "IsMigDeviceHandle", lambda: nv.nvmlDeviceIsMigDeviceHandle(h), 0
    yield "DeviceHandleFromMigDeviceHandle", lambda: nv.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(h), INVALID
    for name in ("GpuInstanceId", "ComputeInstanceId", "Attributes_v2"):
        yield name, lambda name=name: getattr(nv, f"nvmlDeviceGet{name}")(h), NOT_SUPPORTED


def place_rows(machine, gpu, h):
    words = 16
    near = machine.near(gpu)
    wide = machine.on_sockets_of(near)
    yield "CpuAffinity", lambda: nv.nvmlDeviceGetCpuAffinity(h, words), mask(near, words)
    for scope, cpus in enumerate((near, wide)):
        yield f"CpuAffinityWithinScope {scope}", lambda scope=scope: nv.nvmlDeviceGetCpuAffinityWithinScope(
            h, words, scope
        ), mask(cpus, words)
        yield f"MemoryAffinity {scope}", lambda scope=scope: nv.nvmlDeviceGetMemoryAffinity(h, 1, scope), mask(
            machine.nodes_of(cpus), 1
        )
    yield "CpuAffinityWithinScope 2", lambda: nv.nvmlDeviceGetCpuAffinityWithinScope(h, words, 2), INVALID
    yield "NumaNodeId", lambda: nv.nvmlDeviceGetNumaNodeId(h), stated(gpu["memory_numa_node"])
    pcie = gpu["pcie"]
    now = by_load(gpu, pcie["idle_generation"], pcie["generation"])
    yield "CurrPcieLinkGeneration", lambda: nv.nvmlDeviceGetCurrPcieLinkGeneration(h), now
    yield "CurrPcieLinkWidth", lambda: nv.nvmlDeviceGetCurrPcieLinkWidth(h), pcie["width"]
    yield "MaxPcieLinkGeneration", lambda: nv.nvmlDeviceGetMaxPcieLinkGeneration(h), pcie["max_generation"]
    yield "MaxPcieLinkWidth", lambda: nv.nvmlDeviceGetMaxPcieLinkWidth(h), pcie["max_width"]
    yield "GpuMaxPcieLinkGeneration", lambda: nv.nvmlDeviceGetGpuMaxPcieLinkGeneration(h), pcie["gpu_max_generation"]
    yield "PcieReplayCounter", lambda: nv.nvmlDeviceGetPcieReplayCounter(h), pcie["replay"]


def link_rows(machine, gpu, h):
    there, up, version = all_links(gpu), links(gpu), gpu["nvlink"]["version"]
    gpus = {other["pci"] for other in machine.gpus}
    for link in range(len(there) + 1):
        missing = NOT_SUPPORTED if version is None else None if link in there else INVALID
        answers = {
            "State": int(link in up),
            "Version": version,
            # 0 for a GPU, 2 for a switch.
            "RemoteDeviceType": 0 if there.get(link) in gpus else 2,
        }
        for name, value in answers.items():
            call = getattr(nv, f"nvmlDeviceGetNvLink{name}")
            yield f"NvLink{name} {link}", lambda call=call, link=link: call(h, link), missing or value
        far = bus_id(there[link]) if link in there else None
        yield f"NvLinkRemotePciInfo {link}", lambda link=link: nv.nvmlDeviceGetNvLinkRemotePciInfo(
            h, link
        ).busId, missing or far
        for number, key in enumerate(("replay", "recovery", "crc_flit", "crc_data", "ecc_data")):
            call = lambda link=link, number=number: nv.nvmlDeviceGetNvLinkErrorCounter(h, link, number)
            yield f"NvLinkErrorCounter {link} {key}", call, missing or link_errors(gpu, link, key)
        for number in range(6):
            # P2P, and atomics over it; neither system memory nor SLI.
            able = int(number in (nv.NVML_NVLINK_CAP_P2P_SUPPORTED, nv.NVML_NVLINK_CAP_P2P_ATOMICS))
            call = lambda link=link, number=number: nv.nvmlDeviceGetNvLinkCapability(h, link, number)
            yield f"NvLinkCapability {link} {number}", call, missing or able
    c2c = gpu.get("c2c")
    yield "C2cModeInfoV", lambda: nv.nvmlDeviceGetC2cModeInfoV(h), stated(c2c and [int(c2c["links"] > 0)])
    fabric = gpu["fabric"]
    digits = (fabric or {}).get("cluster_uuid", "").replace("-", "")
    cluster = list(bytes.fromhex(digits.rjust(32, "0")))
    old = fabric and [cluster, fabric["status"], fabric["clique"], fabric["state"]]
    second = fabric and [*old, fabric["health_mask"]]
    structs = {
        "GpuFabricInfo": (nv.c_nvmlGpuFabricInfo_t(), nv.nvmlDeviceGetGpuFabricInfo, old),
        "GpuFabricInfoV 2": (nv.c_nvmlGpuFabricInfo_v2_t(), nv.nvmlDeviceGetGpuFabricInfoV, second),
        "GpuFabricInfoV 3": (
            nv.c_nvmlGpuFabricInfo_v3_t(),
            nv.nvmlDeviceGetGpuFabricInfoV,
            fabric and [*second, fabric["health_summary"]],
        ),
    }
    for name, (struct, call, value) in structs.items():
        yield name, filled(struct, call, h), stated(value)
