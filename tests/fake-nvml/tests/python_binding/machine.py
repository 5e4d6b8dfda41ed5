"""What follows from a scenario, and how values of the binding are compared with it."""

import json
import time
from ctypes import byref

import pynvml as nv

NOT_SUPPORTED = "NVMLError_NotSupported"
INVALID = "NVMLError_InvalidArgument"
NOT_FOUND = "NVMLError_NotFound"
MIB = 1 << 20


class Between:
    """A counter that grows with the time since boot: its value at the row's making, and its growth a second."""

    def __init__(self, start, per_second):
        self.start, self.per_second, self.since = start, per_second, time.clock_gettime(time.CLOCK_BOOTTIME)

    def __eq__(self, value):
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        low, high = (self.start + self.per_second * at for at in (self.since, now))
        # The library counts whole milliseconds.
        slack = self.per_second / 500
        return isinstance(value, int) and low - slack <= value <= high + slack

    def __repr__(self):
        return f"{self.start} + {self.per_second}/s"


class Near(float):
    """A mean between two samples, which are not quite as far apart as the clock says."""

    def __eq__(self, value):
        return isinstance(value, float) and abs(value - float(self)) <= 0.1 * abs(float(self))


def read(call):
    """A value, or the name of the error class, so that a row states either."""
    try:
        return call()
    except nv.NVMLError as error:
        return type(error).__name__


def plain(value):
    """Structs as lists without their version word, arrays as lists, texts without zeros behind."""
    if hasattr(value, "_fields_"):
        names = [field[0] for field in value._fields_ if field[0] != "version"]
        return [plain(getattr(value, name)) for name in names]
    if hasattr(value, "_length_"):
        return [plain(item) for item in value]
    if hasattr(value, "value") and not isinstance(value, nv.NVMLError):
        return plain(value.value)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value.decode() if isinstance(value, bytes) else value


def stated(value):
    return NOT_SUPPORTED if value is None else value


def filled(struct, call, *args):
    """For calls that fill a struct of the caller's."""

    def fill():
        call(*args, byref(struct))
        return struct

    return fill


def numbers(text):
    """A list like 0-4,7."""
    found = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def mask(bits, words):
    """Bits as NVML's words of 64."""
    return [sum(1 << bit % 64 for bit in set(bits) if bit // 64 == word) for word in range(words)]


def address(text):
    place, function = text.rsplit(".", 1)
    domain, bus, device = place.split(":")
    return int(domain, 16), int(bus, 16), int(device, 16), int(function, 16)


def bus_id(text):
    return "%08X:%02X:%02X.%X" % address(text)


class Machine:
    """The scenario, and what follows from it about the whole machine."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self.all = json.load(file)
        self.gpus = self.all["gpus"]
        in_order = sorted(self.gpus, key=lambda gpu: address(gpu["pci"]))
        by_slot = {gpu["slot"]: gpu for gpu in self.gpus}
        self.order = [by_slot[slot] for slot in self.all["nvml_order"]] or in_order
        self.new_fields = tuple(map(int, self.all["driver"]["version"].split(".")[:2])) >= (580, 82)

    def ports(self, port):
        """From the root port down to a port."""
        if any(root["at"] == port for root in self.all["root_ports"]):
            return [port]
        for switch in self.all["switches"]:
            if switch["up"] == port:
                return self.ports(switch["under"]) + [port]
            if port in switch["down"]:
                return self.ports(switch["up"]) + [port]
        raise KeyError(port)

    def switches_between(self, one, other):
        """The switches that a message crosses below the port where the ways part; None where they never meet."""
        a, b = self.ports(one["under"]), self.ports(other["under"])
        shared = [left for left, right in zip(a, b) if left == right]
        if not shared:
            return None
        own = a[len(shared) :] + b[len(shared) :]
        return {switch["up"] for switch in self.all["switches"] if set(own) & set(switch["down"])}

    def numa(self, gpu):
        root = self.ports(gpu["under"])[0]
        node = next(port["numa"] for port in self.all["root_ports"] if port["at"] == root)
        return None if node < 0 else node

    def ancestor(self, one, other):
        if one is other:
            return nv.NVML_TOPOLOGY_INTERNAL
        between = self.switches_between(one, other)
        if between is not None:
            return nv.NVML_TOPOLOGY_SINGLE if len(between) <= 1 else nv.NVML_TOPOLOGY_MULTIPLE
        if address(self.ports(one["under"])[0])[:2] == address(self.ports(other["under"])[0])[:2]:
            return nv.NVML_TOPOLOGY_HOSTBRIDGE
        same_node = self.numa(one) is not None and self.numa(one) == self.numa(other)
        return nv.NVML_TOPOLOGY_NODE if same_node else nv.NVML_TOPOLOGY_SYSTEM

    def near(self, gpu):
        if gpu["cpus"] is not None:
            return numbers(gpu["cpus"])
        node = self.numa(gpu)
        cpu = self.all["cpu"]
        if node is None:
            return range(cpu["sockets"] * cpu["cores_per_socket"] * cpu["threads_per_core"])
        return numbers(next(entry["cpus"] for entry in self.all["numa"] if entry["node"] == node))

    def on_sockets_of(self, cpus):
        cpu = self.all["cpu"]
        cores, threads = cpu["sockets"] * cpu["cores_per_socket"], cpu["threads_per_core"]

        def socket(number):
            if cpu["numbering"] == "sockets-interleaved":
                return number % cpu["sockets"]
            core = number // threads if cpu["numbering"] == "threads-together" else number % cores
            return core // cpu["cores_per_socket"]

        wanted = {socket(number) for number in cpus}
        return [number for number in range(cores * threads) if socket(number) in wanted]

    def nodes_of(self, cpus):
        return [node["node"] for node in self.all["numa"] if set(numbers(node["cpus"])) & set(cpus)]

    def joined(self, one, other):
        """By links that are up, straight or through one NVSwitch."""
        ends, back = set(links(one).values()), set(links(other).values())
        switches = {switch["pci"] for switch in self.all["nvswitches"]}
        return other["pci"] in ends or bool(ends & back & switches)


def all_links(gpu):
    """Remote end by link number."""
    return {link: group["to"] for group in gpu["nvlink"]["links"] for link in numbers(group["links"])}


def links(gpu):
    """The same of those that are up."""
    down = numbers(gpu["nvlink"]["down"])
    return {link: end for link, end in all_links(gpu).items() if link not in down}


def by_load(gpu, idle, busy):
    return busy if gpu["busy"] else idle


def traffic(gpu, start, per_busy_second):
    return Between(start, by_load(gpu, 0, per_busy_second))


def energy(gpu):
    power = gpu["power"]
    if power["energy_base_mj"] is None:
        return NOT_SUPPORTED
    return Between(power["energy_base_mj"], by_load(gpu, power["idle_mw"], power["busy_mw"]))


def ecc(gpu, part, error, counter):
    """Volatile counters cannot be read while MIG is on."""
    if gpu["ecc"]["enabled"] is not True or (gpu["mig"]["enabled"] and counter == 0):
        return NOT_SUPPORTED
    return gpu["ecc"][part][("volatile", "aggregate")[counter] + ("_corr", "_uncorr")[error]]


def ecc_total(gpu, error, counter):
    parts = [ecc(gpu, part, error, counter) for part in ("dram", "sram")]
    return NOT_SUPPORTED if NOT_SUPPORTED in parts else sum(parts)


def remap(gpu):
    return None if gpu["mig"]["enabled"] and gpu["mig"]["devices"] else gpu["remap"]


def processes(gpu, kind, device=None):
    """Pairs of a process and its MIG device. A GPU in MIG mode shows those of its instances too."""
    found = [] if device else [(process, None) for process in gpu["processes"]]
    for mig in gpu["mig"]["devices"]:
        if device in (None, mig):
            found += [(process, mig) for process in mig["processes"]]
    return [(process, mig) for process, mig in found if kind in (None, process["kind"])]


def link_errors(gpu, link, key):
    return next((entry[key] for entry in gpu["nvlink"]["errors"] if entry["link"] == link), 0)
