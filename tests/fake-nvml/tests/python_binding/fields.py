"""The rows of field values and of GPU performance monitoring."""

import time

import pynvml as nv

from machine import (
    INVALID, MIB, NOT_SUPPORTED, Near, all_links, by_load, ecc_total, energy, link_errors, links, numbers,
    read, remap, stated, traffic
)


def fields(machine, gpu):
    """What each field is, by the binding's own names; a field without an entry is not supported."""
    power, pcie, spent = gpu["power"], gpu["pcie"], gpu["clocks"]["throttle_ns"]
    on, pending = gpu["ecc"]["enabled"], gpu["ecc"]["pending"]
    rows, retired = remap(gpu), gpu["retired"]
    asked = power["default_limit_mw"] if power["limit_mw"] is None else power["limit_mw"]
    draw = by_load(gpu, power["idle_mw"], power["busy_mw"])
    temp = gpu["temp"]
    found = {
        "ECC_CURRENT": None if on is None else int(on),
        "ECC_PENDING": None if on is None else int(on if pending is None else pending),
        "MEMORY_TEMP": by_load(gpu, temp["memory_c"], temp["memory_busy_c"]),
        "TOTAL_ENERGY_CONSUMPTION": energy(gpu),
        "ENERGY": energy(gpu),
        "GET_GPU_RECOVERY_ACTION": gpu["recovery_action"],
        "PCIE_REPLAY_COUNTER": pcie["replay"],
        "PCIE_REPLAY_ROLLOVER_COUNTER": pcie["replay_rollover"],
        "PCIE_L0_TO_RECOVERY_COUNTER": pcie["l0_to_recovery"],
        "PCIE_COUNT_TX_BYTES": traffic(gpu, *pcie["tx_bytes"]),
        "PCIE_COUNT_RX_BYTES": traffic(gpu, *pcie["rx_bytes"]),
        "POWER_AVERAGE": draw,
        "POWER_INSTANT": draw,
        "POWER_MIN_LIMIT": power["min_limit_mw"],
        "POWER_MAX_LIMIT": power["max_limit_mw"],
        "POWER_DEFAULT_LIMIT": power["default_limit_mw"],
        "POWER_CURRENT_LIMIT": asked if power["enforced_limit_mw"] is None else power["enforced_limit_mw"],
        "POWER_REQUESTED_LIMIT": asked,
    }
    for error, short in enumerate(("SBE", "DBE")):
        for counter, name in enumerate(("VOL", "AGG")):
            found[f"ECC_{short}_{name}_TOTAL"] = ecc_total(gpu, error, counter)
        found[f"RETIRED_{short}"] = retired and len(retired[("single_bit", "double_bit")[error]])
    found["RETIRED_PENDING"] = retired and int(retired["pending"])
    for name, key in (("COR", "corr"), ("UNC", "uncorr"), ("PENDING", "pending"), ("FAILURE", "failure")):
        found[f"REMAPPED_{name}"] = rows and int(rows[key])
    for key in ("power", "thermal", "sync_boost", "board_limit", "low_utilization", "reliability"):
        found[f"PERF_POLICY_{key.upper()}"] = spent[key]
    for at, limit in enumerate(("SHUTDOWN", "SLOWDOWN", "MEM_MAX", "GPU_MAX")):
        found[f"TEMPERATURE_{limit}_TLIMIT"] = temp["tlimit_c"] and temp["tlimit_c"][at]
    found |= link_fields(gpu)
    c2c = gpu.get("c2c")
    if c2c:
        found["C2C_LINK_COUNT"] = c2c["links"]
        for at, name in enumerate(("INTR", "REPLAY", "REPLAY_B2B")):
            found[f"C2C_LINK_ERROR_{name}"] = c2c["errors"][at]
    by_id = {getattr(nv, f"NVML_FI_DEV_{name}"): stated(value) for name, value in found.items()}
    first = nv.NVML_FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS
    by_id |= {first + at: value for at, value in enumerate(pcie["errors"])}
    # The binding has the numbers from driver 580.82 on.
    slow = nv.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN if machine.new_fields else 251
    by_id |= {slow + at: spent[key] for at, key in enumerate(("sw_thermal", "hw_thermal", "hw_power_brake"))}
    end = 274 if machine.new_fields else 256
    return {number: by_id.get(number, NOT_SUPPORTED if number < end else INVALID) for number in range(1, 300)}


def link_fields(gpu):
    """Those without a link in their scope."""
    nvlink, there, up = gpu["nvlink"], all_links(gpu), links(gpu)
    if nvlink["version"] is None:
        return {}
    found = {"NVLINK_SPEED_MBPS_COMMON": nvlink["speed_mbps"], "NVLINK_LINK_COUNT": len(there)}
    for link in range(12):
        missing = None if link in there else INVALID
        found[f"NVLINK_SPEED_MBPS_L{link}"] = missing or (nvlink["speed_mbps"] if link in up else 0)
    for name in ("CRC_FLIT", "CRC_DATA", "REPLAY", "RECOVERY", "ECC_DATA"):
        key = name.lower()
        found[f"NVLINK_{name}_ERROR_COUNT_TOTAL"] = sum(entry[key] for entry in nvlink["errors"])
        for link in range(12):
            count = link_errors(gpu, link, key) if link in there else INVALID
            found[f"NVLINK_{name}_ERROR_COUNT_L{link}"] = count
    return found


def scoped_fields(gpu):
    """Those whose scope is a link, with its number; all links together for the traffic.

    What links that are down have carried is left out: nvml.h does not say it.
    """
    nvlink, there, up = gpu["nvlink"], all_links(gpu), links(gpu)
    version, rate = nvlink["version"], nvlink["busy_kib_per_s"]
    for link in range(len(there) + 1):
        missing = NOT_SUPPORTED if version is None else None if link in there else INVALID
        yield "NVLINK_GET_SPEED", link, missing or (nvlink["speed_mbps"] if link in up else 0)
        yield "NVLINK_GET_STATE", link, missing or int(link in up)
        yield "NVLINK_GET_VERSION", link, missing or version
        # nvml.h: not on Blackwell and newer, which have the counters below.
        newer = NOT_SUPPORTED if version is not None and version >= 5 else missing
        for name, key in (("REPLAY", "replay"), ("RECOVERY", "recovery"), ("CRC", "crc_flit")):
            yield f"NVLINK_ERROR_DL_{name}", link, newer or link_errors(gpu, link, key)
        if link in up or missing:
            for name in THROUGHPUT:
                yield f"NVLINK_THROUGHPUT_{name}", link, missing or traffic(gpu, 0, rate)
        if version is not None and version >= 5:
            yield from newer_link_fields(gpu, link, missing)
    if version is None or len(up) == len(there):
        for name in THROUGHPUT:
            yield f"NVLINK_THROUGHPUT_{name}", ALL_LINKS, NOT_SUPPORTED if version is None else traffic(
                gpu, 0, rate * len(up)
            )
    c2c = gpu.get("c2c")
    for link in range(c2c["links"] + 1 if c2c else 0):
        missing = None if link < c2c["links"] else INVALID
        working = link not in numbers(c2c["down"])
        yield "C2C_LINK_GET_STATUS", link, missing or int(working)
        yield "C2C_LINK_GET_MAX_BW", link, missing or (c2c["max_mbps"] if working else 0)


ALL_LINKS = 0xFFFFFFFF
THROUGHPUT = ("DATA_TX", "DATA_RX", "RAW_TX", "RAW_RX")
# In the order of the scenario's list of packet counters.
PACKETS = (
    "MALFORMED_PACKET_ERRORS", "BUFFER_OVERRUN_ERRORS", "RCV_ERRORS", "RCV_REMOTE_ERRORS", "RCV_GENERAL_ERRORS",
    "LOCAL_LINK_INTEGRITY_ERRORS", "XMIT_DISCARDS", "LINK_RECOVERY_SUCCESSFUL_EVENTS", "LINK_RECOVERY_FAILED_EVENTS",
    "LINK_RECOVERY_EVENTS",
)


def newer_link_fields(gpu, link, missing):
    """Counters of NVLink 5."""
    own = next((entry for entry in gpu["nvlink"]["errors"] if entry["link"] == link), {})
    for at, name in enumerate(PACKETS):
        yield f"NVLINK_COUNT_{name}", link, missing or own.get("packets", [0] * 10)[at]
    for name in ("EFFECTIVE", "SYMBOL"):
        yield f"NVLINK_COUNT_{name}_ERRORS", link, missing or own.get(name.lower(), 0)
    for at in range(16):
        yield f"NVLINK_COUNT_FEC_HISTORY_{at}", link, missing or own.get("fec", [0] * 16)[at]
    # nvml.h: eight bits of exponent, four of mantissa above.
    for at, name in enumerate(("RAW", "EFFECTIVE", "SYMBOL")):
        mantissa, exponent = own.get("ber", [[0, 0]] * 3)[at]
        yield f"NVLINK_COUNT_{name}_BER", link, missing or mantissa << 8 | exponent
    if link in links(gpu) or missing:
        for name in ("XMIT", "RCV"):
            bytes_per_s = gpu["nvlink"]["busy_kib_per_s"] * 1024
            yield f"NVLINK_COUNT_{name}_BYTES", link, missing or traffic(gpu, 0, bytes_per_s)


def field_value(h, number, scope=0):
    value = nv.nvmlDeviceGetFieldValues(h, [(number, scope)])[0]
    if value.nvmlReturn:
        raise nv.NVMLError(value.nvmlReturn)
    parts = {
        nv.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
        nv.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
        nv.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
    }
    return int(getattr(value.value, parts[value.valueType]))


def field_rows(machine, gpu, h):
    with_scope = {getattr(nv, f"NVML_FI_DEV_{name}") for name, _, _ in scoped_fields(gpu)}
    for number, value in fields(machine, gpu).items():
        if number not in with_scope:
            yield f"field {number}", lambda number=number: field_value(h, number), value
    for name, link, value in scoped_fields(gpu):
        number = getattr(nv, f"NVML_FI_DEV_{name}")
        yield f"field {number} of {link}", lambda number=number, link=link: field_value(h, number, link), value


def metrics(gpu, of_instance):
    """GPU performance monitoring: occupancy and pipes are half of the activity in this fake."""
    util, pcie = gpu["util"], gpu["pcie"]
    values = {1: util["gpu_pct"], 2: util["gpu_pct"], 10: util["memory_pct"]}
    if not util.get("sm"):
        values |= {number: util["gpu_pct"] // 2 for number in (3, 5, 12)}
    # What an instance moves over links that it shares is nobody's word.
    if not of_instance:
        values |= {20: pcie["tx_bytes"][1] / MIB, 21: pcie["rx_bytes"][1] / MIB}
    if not of_instance and all_links(gpu):
        rate = gpu["nvlink"]["busy_kib_per_s"] * len(links(gpu)) / 1024
        values |= {60: rate, 61: rate}
    # nvml.h has no metric 99.
    return {number: Near(value if gpu["busy"] else 0) for number, value in values.items()} | {99: NOT_SUPPORTED}


def metric(first, second, number):
    request = nv.c_nvmlGpmMetricsGet_t(version=1, numMetrics=1, sample1=first, sample2=second)
    request.metrics[0].metricId = number
    answer = nv.nvmlGpmMetricsGet(request).metrics[0]
    if answer.nvmlReturn:
        raise nv.NVMLError(answer.nvmlReturn)
    return answer.value


def sampled(take):
    """Two samples that the clock tells apart."""
    pair = [nv.nvmlGpmSampleAlloc() for _ in range(2)]
    take(pair[0])
    time.sleep(0.05)
    take(pair[1])
    return pair


def gpm_rows(gpu, h):
    yield "GpmQueryDeviceSupport", lambda: nv.nvmlGpmQueryDeviceSupport(h), [int(gpu["gpm"])]
    takes = {"Gpm": lambda sample: nv.nvmlGpmSampleGet(h, sample)}
    if gpu["mig"]["enabled"] and gpu["mig"]["devices"]:
        instance = gpu["mig"]["devices"][0]["gpu_instance"]
        takes["GpmMig"] = lambda sample: nv.nvmlGpmMigSampleGet(h, instance, sample)
    else:
        yield "GpmMigSampleGet", lambda: nv.nvmlGpmMigSampleGet(h, 0, nv.nvmlGpmSampleAlloc()), INVALID
    for name, take in takes.items():
        pair = read(lambda take=take: sampled(take)) if gpu["gpm"] else None
        if pair is None or isinstance(pair, str):
            yield f"{name}SampleGet", lambda take=take: take(nv.nvmlGpmSampleAlloc()) and None, (
                None if gpu["gpm"] else NOT_SUPPORTED
            )
            continue
        for number, value in metrics(gpu, name == "GpmMig").items():
            yield f"{name} {number}", lambda pair=pair, number=number: metric(*pair, number), value
        yield f"{name}SampleFree", lambda pair=pair: [nv.nvmlGpmSampleFree(sample) for sample in pair], [None, None]
