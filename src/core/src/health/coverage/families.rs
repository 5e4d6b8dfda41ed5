//! The same for the families that judge one part of a GPU or of the machine each.

use super::Needs::{Gpu, Node};
use super::{Missing, Needs, missing};
use crate::health::Case;
use crate::model::detail::GpuDetail;
use crate::model::snapshot::ProbedGpu;

pub(super) fn needs(code: &str) -> Option<Needs> {
    Some(match code {
        "PCIE_GONE" | "GPU_INIT" | "BAR1" | "GSP_DEAD" | "PROC_STUCK" | "PCIE_AER" | "IOMMU_FAULT"
        | "NVLINK_INIT" | "PEERMEM_ERR" | "API_MISMATCH" | "XID_REPEAT" | "MOD_REFUSED" | "CRASH_DUMP"
        | "KMSG_LOST" => Node(|case| missing(&case.snapshot.host.kernel_log, "the kernel log")),
        // It says itself that the log could not be read.
        "KMSG_UNREAD" => Needs::Nothing,
        "REMAP_PEND" => Gpu(|_, gpu| missing(&gpu.reading.remap_pending, "row remapping")),
        "REMAP_ROOM" => Gpu(|_, gpu| missing(&gpu.reading.counters.remapped_uncorr, "remapped rows")),
        "ECC_CORR" => Gpu(|_, gpu| missing(&gpu.reading.counters.ecc_aggregate_corr, "ECC errors")),
        "PERSIST_OFF" => Gpu(|_, gpu| missing(&gpu.reading.persistence, "persistence mode")),
        "TEMP_GPU" => Gpu(|_, gpu| missing(&gpu.reading.temp_c, "the temperature")),
        "PCIE_REPLAY" => Gpu(|case, gpu| {
            missing(&gpu.reading.counters.pcie_replay, "PCIe replays").or_else(|| earlier(case, gpu))
        }),
        "THROT_TIME" => Gpu(|case, gpu| {
            missing(&gpu.reading.counters.throttle_hw_thermal_ns, "throttle times")
                .or_else(|| earlier(case, gpu))
        }),
        _ => return of_detail(code).or_else(|| of_node(code)),
    })
}

fn of_detail(code: &str) -> Option<Needs> {
    Some(match code {
        "SRAM_LIMIT" => {
            Gpu(|_, gpu| detail(gpu, |of| missing(&of.ecc.sram_threshold_exceeded, "the SRAM limit")))
        }
        "PAGES_RETIRE" => Gpu(|_, gpu| detail(gpu, |of| missing(&of.ecc.retired_pages, "retired pages"))),
        "MEM_REPAIR" => Gpu(|_, gpu| detail(gpu, |of| missing(&of.ecc.repair_pending, "the repair status"))),
        "ECC_MODE" => Gpu(|_, gpu| detail(gpu, |of| missing(&of.ecc.enabled, "the ECC mode"))),
        "TEMP_MEM" => Gpu(|_, gpu| detail(gpu, |of| missing(&of.temp.memory_c, "the memory's temperature"))),
        "THROTTLE" => Gpu(|case, gpu| {
            detail(gpu, |of| missing(&of.clocks.event_reasons, "clock event reasons"))
                .or_else(|| earlier(case, gpu))
        }),
        "CLOCK_LOW" => Gpu(|_, gpu| detail(gpu, |of| missing(&of.clocks.now_mhz, "clocks"))),
        "LEFT_CLOCKS" => Gpu(|_, gpu| detail(gpu, |of| missing(&of.clocks.app_mhz, "application clocks"))),
        "POWER_LIMIT" => {
            Gpu(|_, gpu| detail(gpu, |of| missing(&of.power.enforced_limit_mw, "the power limit")))
        }
        "POWER_READ" => Gpu(|_, gpu| detail(gpu, |of| missing(&of.power.draw_mw, "the power draw"))),
        "COMPUTE_MODE" => Gpu(|_, gpu| detail(gpu, |of| missing(&of.compute_mode, "the compute mode"))),
        "FABRIC" => Gpu(|_, gpu| detail(gpu, |of| missing(&of.fabric, "the NVLink fabric"))),
        "NVLINK_DOWN" | "NVLINK_ERR" | "NVLINK_BER" => Gpu(|_, gpu| detail(gpu, no_links)),
        "PCIE_GEN" => Gpu(|_, gpu| detail(gpu, |of| missing(&of.pcie.generation, "the PCIe generation"))),
        "P2P" => Gpu(|case, gpu| {
            let alone = case.snapshot.gpus.len() < 2;
            detail(gpu, |of| (!alone && of.peers.is_empty()).then(|| "pairs of GPUs were not read".into()))
        }),
        "LEFT_PROC" | "LEFT_MEM" => Gpu(|_, gpu| detail(gpu, |of| missing(&of.processes, "processes"))),
        "VBIOS_MIX" => Gpu(|_, gpu| detail(gpu, |of| missing(&of.board.vbios, "the video BIOS"))),
        "GSP_INFO" => Gpu(|_, gpu| detail(gpu, |of| missing(&of.board.gsp, "the GSP firmware"))),
        "MIG_LAYOUT" => Gpu(|_, gpu| missing(&gpu.reading.mig, "the MIG mode")),
        "PCIE_WIDTH" => Gpu(width),
        _ => return None,
    })
}

fn of_node(code: &str) -> Option<Needs> {
    Some(match code {
        "GPU_CHANGED" => Node(|case| {
            case.expected.known.is_empty().then(|| "nothing was learned about this node yet".into())
        }),
        "GPU_FOREIGN" => Node(|case| missing(&case.snapshot.host.pci_gpus, "the list of PCI devices")),
        "UVM_MISSING" => Node(|case| missing(&case.snapshot.host.platform.uvm, "the kernel's modules")),
        "FABRIC_MGR" => {
            Node(|case| missing(&case.snapshot.host.fabric_manager, "the fabric manager's service"))
        }
        "NIC_DOWN" | "NIC_RATE" => Node(|case| match &case.snapshot.host.layout {
            Some(layout) => missing(&layout.nics, "RDMA devices"),
            None => Some("RDMA devices were not read".into()),
        }),
        "NUMA" => Node(|case| match &case.snapshot.host.layout {
            Some(layout) => missing(&layout.cores, "CPUs"),
            None => Some("CPUs were not read".into()),
        }),
        "IOMMU_ACS" => {
            Node(|case| missing(&case.snapshot.host.platform.switch_ports, "ACS of the PCIe switches"))
        }
        "PEERMEM" => Node(|case| missing(&case.snapshot.host.platform.peermem, "the kernel's modules")),
        "IMEX" => Node(|case| missing(&case.snapshot.host.platform.imex_service, "the IMEX service")),
        "CUDA_DRIVER" => Node(|case| {
            (case.limits.cuda_major == 0).then(|| "no cuda_major is stated in gpuward.toml".into())
        }),
        "CSTATE" => Node(|case| {
            let stated = !case.limits.cpu_governor.is_empty() || case.limits.cpu_idle_latency_us > 0;
            (!stated).then(|| "no CPU power settings are stated in gpuward.toml".into())
        }),
        _ => return None,
    })
}

fn detail(gpu: &ProbedGpu, missing: impl Fn(&GpuDetail) -> Missing) -> Missing {
    gpu.reading.detail.as_deref().map_or_else(|| Some("the GPU's states were not read".into()), missing)
}

/// What needs two looks.
fn earlier(case: &Case<'_>, gpu: &ProbedGpu) -> Missing {
    case.history.seen(gpu.uuid()).is_none().then(|| "needs an earlier look to compare with".into())
}

fn no_links(of: &GpuDetail) -> Missing {
    of.nvlinks.is_empty().then(|| "no NVLinks".into())
}

fn width(case: &Case<'_>, gpu: &ProbedGpu) -> Missing {
    let by_driver = detail(gpu, |of| missing(&of.pcie.width, "PCIe lanes"));
    let known = case.snapshot.host.driver_gpus.iter().find(|known| Some(known.pci) == gpu.pci());
    by_driver.filter(|_| known.is_none_or(|known| known.link.width.is_none()))
}
