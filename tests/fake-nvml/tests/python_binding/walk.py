"""Reads a machine through nvidia-ml-py and compares every value with the scenario; started by python_binding.rs.

usage: walk.py SCENARIO.json [FUNCTION...]

Each row of the table pairs a call of the binding with the value that follows from the scenario by what nvml.h says, not
by what the library does. FUNCTIONs are those that the library does not simulate: they are "not supported".
Prints, as JSON: the names of all rows, those that no fault script reaches, the functions called, and the rows that
differ.
"""

import inspect
import json
import sys

import pynvml as nv

from fields import field_rows, gpm_rows
from machine import INVALID, MIB, NOT_FOUND, NOT_SUPPORTED, Machine, plain, processes, read
from rows import (
    clock_rows, heat_and_power_rows, identity_rows, link_rows, memory_rows, mode_rows, place_rows, process_rows
)


def pair_rows(machine, handles):
    for a, one in enumerate(machine.order):
        for b, other in enumerate(machine.order):
            first, second = handles[a], handles[b]
            yield f"TopologyCommonAncestor {a} {b}", lambda f=first, s=second: nv.nvmlDeviceGetTopologyCommonAncestor(
                f, s
            ), machine.ancestor(one, other)
            for index in range(6):
                yield f"P2PStatus {a} {b} {index}", lambda f=first, s=second, i=index: nv.nvmlDeviceGetP2PStatus(
                    f, s, i
                ), p2p(machine, one, other, index)


def p2p(machine, one, other, index):
    if one is other or index > nv.NVML_P2P_CAPS_INDEX_PROP:
        return INVALID
    if machine.joined(one, other):
        return nv.NVML_P2P_STATUS_OK
    if index == nv.NVML_P2P_CAPS_INDEX_NVLINK:
        return nv.NVML_P2P_STATUS_NOT_SUPPORTED
    near = machine.ancestor(one, other) <= nv.NVML_TOPOLOGY_HOSTBRIDGE
    return nv.NVML_P2P_STATUS_OK if near else nv.NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED


# What a MIG device answers of its GPU; the rest of the GPU's rows is not supported there.
OF_THE_GPU = {"MinorNumber", "Brand", "Architecture", "CudaComputeCapability", "PciInfo", "PciInfoExt", "CpuAffinity"}


def mig_rows(machine, gpu, parent, place, mig):
    h = nv.nvmlDeviceGetMigDeviceHandleByIndex(parent, place)
    held = sum(process["memory_mib"] for process in mig["processes"])
    total = mig["memory_mib"]
    yield "Name", lambda: nv.nvmlDeviceGetName(h), f"{gpu['name']} MIG {mig['profile']}"
    yield "UUID", lambda: nv.nvmlDeviceGetUUID(h), mig["uuid"]
    yield "Index", lambda: nv.nvmlDeviceGetIndex(h), place
    yield "HandleByUUID", lambda: nv.nvmlDeviceGetUUID(nv.nvmlDeviceGetHandleByUUID(mig["uuid"])), mig["uuid"]
    yield "parent", lambda: nv.nvmlDeviceGetUUID(nv.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(h)), gpu["uuid"]
    yield "IsMigDeviceHandle", lambda: nv.nvmlDeviceIsMigDeviceHandle(h), 1
    yield "GpuInstanceId", lambda: nv.nvmlDeviceGetGpuInstanceId(h), mig["gpu_instance"]
    yield "ComputeInstanceId", lambda: nv.nvmlDeviceGetComputeInstanceId(h), mig["compute_instance"]
    yield "MemoryInfo", lambda: nv.nvmlDeviceGetMemoryInfo(h), [part * MIB for part in (total, total - held, held)]
    yield "MemoryInfo_v2", lambda: nv.nvmlDeviceGetMemoryInfo(h, nv.nvmlMemory_v2), [
        part * MIB for part in (total, 0, total - held, held)
    ]
    slices = mig["slices"]
    engines = [mig["multiprocessors"], slices, slices, 0, slices, 0]
    yield "Attributes_v2", lambda: nv.nvmlDeviceGetAttributes_v2(h), [*engines, slices, slices, total]
    yield from process_rows(gpu, h, mig)
    own = ["Name", "UUID", "Index", "IsMigDeviceHandle", "GpuInstanceId", "ComputeInstanceId", "Attributes_v2"]
    own += ["MemoryInfo", "MemoryInfo_v2", "DeviceHandleFromMigDeviceHandle", "HandleByUUID", "HandleBySerial"]
    own += ["HandleByPciBusId"]
    for name, call, value in whole_rows(machine, gpu, h, None):
        # A wrong argument may be told before the wrong device.
        if name in own or value in (INVALID, NOT_FOUND) or name.startswith(("CpuAffinityW", "MemoryAffinity")):
            continue
        yield name, call, value if name in OF_THE_GPU else NOT_SUPPORTED


def whole_rows(machine, gpu, h, index):
    yield from identity_rows(machine, gpu, h, index)
    yield from memory_rows(gpu, h)
    yield from heat_and_power_rows(gpu, h)
    yield from clock_rows(gpu, h)
    yield from mode_rows(gpu, h)
    yield from place_rows(machine, gpu, h)
    yield from link_rows(machine, gpu, h)
    yield from field_rows(machine, gpu, h)


def system_rows(machine):
    driver = machine.all["driver"]
    yield "DriverVersion", nv.nvmlSystemGetDriverVersion, driver["version"]
    yield "NVMLVersion", nv.nvmlSystemGetNVMLVersion, f"{driver['cuda'] // 1000}.{driver['version']}"
    yield "CudaDriverVersion", nv.nvmlSystemGetCudaDriverVersion, driver["cuda"]
    yield "CudaDriverVersion_v2", nv.nvmlSystemGetCudaDriverVersion_v2, driver["cuda"]
    for code, text in ((nv.NVML_ERROR_NOT_SUPPORTED, "Not Supported"), (nv.NVML_ERROR_GPU_IS_LOST, "GPU is lost")):
        yield f"ErrorString {code}", lambda code=code: nv.nvmlErrorString(code), text
    yield "Count", nv.nvmlDeviceGetCount, len(machine.order)
    yield "HandleByIndex beyond", lambda: nv.nvmlDeviceGetHandleByIndex(len(machine.order)), INVALID
    yield "HandleByUUID of another", lambda: nv.nvmlDeviceGetHandleByUUID("GPU-0"), NOT_FOUND
    for gpu in machine.gpus:
        for process, _ in processes(gpu, None):
            yield f"ProcessName {process['pid']}", lambda pid=process["pid"]: nv.nvmlSystemGetProcessName(
                pid
            ), process["name"]
    yield "ProcessName of another", lambda: nv.nvmlSystemGetProcessName(1), NOT_FOUND


def unsimulated_rows(functions, h):
    """Those that the binding calls with nothing but a handle, and under their own name."""
    for name in sorted(functions):
        call = getattr(nv, name, None)
        alone = call and len(inspect.signature(call).parameters) == 1
        if name.startswith("nvmlDeviceGet") and alone and f'"{name}"' in inspect.getsource(call):
            yield name, lambda call=call: call(h), NOT_SUPPORTED


def all_rows(machine, unsimulated):
    handles = [nv.nvmlDeviceGetHandleByIndex(index) for index in range(nv.nvmlDeviceGetCount())]
    groups = {"system": list(system_rows(machine)), "pairs": list(pair_rows(machine, handles))}
    groups["not simulated"] = list(unsimulated_rows(unsimulated, handles[0]))
    for index, (gpu, h) in enumerate(zip(machine.order, handles)):
        rows = [*whole_rows(machine, gpu, h, index), *process_rows(gpu, h), *gpm_rows(gpu, h)]
        groups[f"GPU{index}"] = rows
        for place, mig in enumerate(gpu["mig"]["devices"] if gpu["mig"]["enabled"] else []):
            groups[f"GPU{index} MIG{place}"] = list(mig_rows(machine, gpu, h, place, mig))
    return [(f"{group} {name}", call, value) for group, rows in groups.items() for name, call, value in rows]


def watched():
    """The set into which the binding writes each function that it looks up."""
    used, look_up = set(), nv._nvmlGetFunctionPointer

    def noting(name):
        used.add(name)
        return look_up(name)

    nv._nvmlGetFunctionPointer = noting
    return used


def main():
    machine, used = Machine(sys.argv[1]), watched()
    # An old driver's library lacks some; the scenario names them.
    missing = set(machine.all["driver"].get("missing_symbols", []))
    nv.nvmlInit()
    unsimulated = set(sys.argv[2:])
    rows, called, constant, differ = all_rows(machine, unsimulated), set(used), [], {}
    for name, call, wanted in rows:
        used.clear()
        seen = plain(read(call))
        called |= used
        if used & unsimulated:
            wanted = NOT_SUPPORTED
        if used & (unsimulated | {"nvmlErrorString"}):
            constant.append(name)
        wanted = "NVMLError_FunctionNotFound" if used & missing else wanted
        if not wanted == seen:
            differ[name] = f"{seen!r} instead of {wanted!r}"
    nv.nvmlShutdown()
    called |= used
    names = [name for name, _, _ in rows]
    json.dump({"rows": names, "constant": constant, "called": sorted(called), "differ": differ}, sys.stdout)


main()
