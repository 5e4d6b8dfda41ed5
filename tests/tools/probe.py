"""Reads the GPUs named by PCI address as gpuward's prolog does, through NVIDIA's own Python binding.

The yardstick of `make bench`: what a site's Python prolog would cost for the first rules' reads.
"""

import sys

import pynvml

# The same field values in one batch: ECC, energy, PCIe replay, row remapping, recovery action.
FIELDS = [3, 4, 5, 6, 83, 94, 142, 143, 144, 145, 230]

pynvml.nvmlInit()
pynvml.nvmlSystemGetDriverVersion()
pynvml.nvmlSystemGetNVMLVersion()
pynvml.nvmlDeviceGetCount()
for address in sys.argv[1:]:
    gpu = pynvml.nvmlDeviceGetHandleByPciBusId(address)
    pynvml.nvmlDeviceGetUUID(gpu)
    pynvml.nvmlDeviceGetMinorNumber(gpu)
    pynvml.nvmlDeviceGetName(gpu)
    pynvml.nvmlDeviceGetSerial(gpu)
    pynvml.nvmlDeviceGetPersistenceMode(gpu)
    pynvml.nvmlDeviceGetMigMode(gpu)
    pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU)
    pynvml.nvmlDeviceGetFieldValues(gpu, FIELDS)
