//! NVML's structs, written from the sizes and version words that nvml.h states. A test compares them with
//! nvml-wrapper-sys.

use std::ffi::c_char;

use super::pointers::{Handle, Out, Ticket};

macro_rules! c_structs {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Debug, Clone, Copy)]
            #[allow(missing_docs)]
            pub struct $name { $(pub $field: $type,)* }

            // Padding would carry bytes of our stack to the caller, other ones each time.
            const _: () = assert!(size_of::<$name>() == 0 $(+ size_of::<$type>())*, "name the padding");
        )*
    };
}

c_structs! {
    /// `nvmlPciInfo_t`.
    PciInfo {
        bus_id_legacy: [c_char; 16],
        domain: u32,
        bus: u32,
        device: u32,
        pci_device_id: u32,
        pci_subsystem_id: u32,
        bus_id: [c_char; 32],
    }

    /// What `nvmlDeviceGetPciInfo` fills in: the first form of the struct had no more.
    PciInfoV1 { bus_id: [c_char; 16], domain: u32, bus: u32, device: u32, pci_device_id: u32, }

    /// The second form. Four reserved words follow, which are left alone.
    PciInfoV2 {
        bus_id: [c_char; 16],
        domain: u32,
        bus: u32,
        device: u32,
        pci_device_id: u32,
        pci_subsystem_id: u32,
    }

    /// `nvmlPciInfoExt_v1_t`.
    PciInfoExtV1 {
        version: u32,
        domain: u32,
        bus: u32,
        device: u32,
        pci_device_id: u32,
        pci_subsystem_id: u32,
        base_class: u32,
        sub_class: u32,
        bus_id: [c_char; 32],
    }

    /// `nvmlMemory_t`.
    MemoryV1 { total: u64, free: u64, used: u64, }

    /// `nvmlMemory_v2_t`.
    MemoryV2 { version: u32, padding: u32, total: u64, reserved: u64, free: u64, used: u64, }

    /// `nvmlBAR1Memory_t`.
    Bar1Memory { total: u64, free: u64, used: u64, }

    /// `nvmlEccErrorCounts_t`.
    EccErrorCounts { l1_cache: u64, l2_cache: u64, device_memory: u64, register_file: u64, }

    /// `nvmlEccSramErrorStatus_v1_t`.
    SramErrorStatusV1 {
        version: u32,
        padding: u32,
        aggregate_unc_parity: u64,
        aggregate_unc_sec_ded: u64,
        aggregate_cor: u64,
        volatile_unc_parity: u64,
        volatile_unc_sec_ded: u64,
        volatile_cor: u64,
        aggregate_unc_bucket_l2: u64,
        aggregate_unc_bucket_sm: u64,
        aggregate_unc_bucket_pcie: u64,
        aggregate_unc_bucket_mcu: u64,
        aggregate_unc_bucket_other: u64,
        threshold_exceeded: u32,
        end_padding: u32,
    }

    /// `nvmlRepairStatus_v1_t`.
    RepairStatusV1 { version: u32, channel_repair_pending: u32, tpc_repair_pending: u32, }

    /// `nvmlRowRemapperHistogramValues_t`.
    RowRemapperHistogram { max: u32, high: u32, partial: u32, low: u32, none: u32, }

    /// `nvmlMarginTemperature_v1_t`.
    MarginTemperatureV1 { version: u32, margin_c: i32, }

    /// `nvmlTemperature_v1_t`.
    TemperatureV1 { version: u32, sensor: u32, temperature_c: i32, }

    /// `nvmlUtilization_t`.
    Utilization { gpu_pct: u32, memory_pct: u32, }

    /// `nvmlViolationTime_t`.
    ViolationTime { reference_us: u64, violation_ns: u64, }

    /// `nvmlProcessInfo_t`, versions 2 and 3.
    ProcessInfo { pid: u32, padding: u32, used_bytes: u64, gpu_instance: u32, compute_instance: u32, }

    /// `nvmlProcessInfo_v1_t`.
    ProcessInfoV1 { pid: u32, padding: u32, used_bytes: u64, }

    /// `nvmlProcessDetail_v1_t`.
    ProcessDetail {
        pid: u32,
        padding: u32,
        used_bytes: u64,
        gpu_instance: u32,
        compute_instance: u32,
        protected_bytes: u64,
    }

    /// `nvmlProcessDetailList_v1_t`.
    ProcessDetailList { version: u32, mode: u32, count: u32, padding: u32, array: Out<ProcessDetail>, }

    /// `nvmlProcessUtilizationInfo_v1_t`.
    ProcessLoadV1 {
        time_us: u64,
        pid: u32,
        sm_pct: u32,
        memory_pct: u32,
        encoder_pct: u32,
        decoder_pct: u32,
        jpeg_pct: u32,
        ofa_pct: u32,
        padding: u32,
    }

    /// `nvmlProcessesUtilizationInfo_v1_t`.
    ProcessLoadsV1 { version: u32, count: u32, newer_than_us: u64, array: Out<ProcessLoadV1>, }

    /// `nvmlEventData_t` of nvmlEventSetWait.
    EventDataV1 { device: Handle, kinds: u64, data: u64, }

    /// `nvmlEventData_t` of nvmlEventSetWait_v2.
    EventData { device: Handle, kinds: u64, data: u64, gpu_instance: u32, compute_instance: u32, }

    /// `nvmlProcessUtilizationSample_t`.
    ProcessSample {
        pid: u32,
        padding: u32, time_us: u64, sm_pct: u32, memory_pct: u32, encoder_pct: u32, decoder_pct: u32, }

    /// `nvmlDeviceAttributes_t`.
    Attributes {
        multiprocessors: u32,
        copy_engines: u32,
        decoders: u32,
        encoders: u32,
        jpeg: u32,
        ofa: u32,
        gpu_slices: u32,
        compute_slices: u32,
        memory_mib: u64,
    }

    /// `nvmlFieldValue_t`. The union stands as its eight bytes.
    FieldValue {
        field: u32,
        scope: u32,
        timestamp_us: i64,
        latency_us: i64,
        value_type: u32,
        code: u32,
        value: u64,
    }

    /// `nvmlGpuFabricInfo_t`.
    FabricInfo { cluster_uuid: [u8; 16], status: u32, clique: u32, state: u32, }

    /// `nvmlGpuFabricInfo_v2_t`.
    FabricInfoV2 {
        version: u32,
        cluster_uuid: [u8; 16],
        status: u32,
        clique: u32,
        state: u32,
        health_mask: u32,
    }

    /// `nvmlGpuFabricInfo_v3_t`.
    FabricInfoV3 {
        version: u32,
        cluster_uuid: [u8; 16],
        status: u32,
        clique: u32,
        state: u32,
        health_mask: u32,
        health_summary: u8,
        padding: [u8; 3],
    }

    /// `nvmlGpmSupport_t`.
    GpmSupport { version: u32, supported: u32, }

    /// Head of `nvmlGpmMetricsGet_t`; the metrics follow.
    GpmRequest { version: u32, count: u32, first: Ticket, second: Ticket, }

    /// `nvmlGpmMetric_t`.
    GpmMetric {
        id: u32,
        code: u32,
        value: f64,
        short_name: *const c_char,
        long_name: *const c_char,
        unit: *const c_char,
    }

    /// `nvmlAccountingStats_t`.
    AccountingStats {
        gpu_pct: u32,
        memory_pct: u32,
        max_memory_bytes: u64,
        time_ms: u64,
        start_unix_us: u64,
        running: u32,
        reserved: [u32; 5],
    }

    /// `nvmlAccountingStats_v2_t` of nvml.h 13.3, which nvml-wrapper-sys does not have.
    AccountingStatsV2 {
        pid: u32,
        running: u32,
        gpu_pct: u32,
        memory_pct: u32,
        max_memory_bytes: u64,
        samples: u32,
        padding: u32,
        sum_gpu: u64,
        sum_memory: u64,
        time_ms: u64,
        start_unix_us: u64,
    }
}

/// The version word of a struct: its size, and the version in the top byte.
pub(super) const fn version_word<T>(version: u32) -> u32 {
    // The largest of these structs has 104 bytes.
    #[allow(clippy::cast_possible_truncation)]
    let size = size_of::<T>() as u32;
    size | (version << 24)
}

/// A text in a fixed array, cut where it does not fit, always with a NUL.
pub(super) fn chars<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    for (place, byte) in array.iter_mut().zip(text.bytes().take(N - 1)) {
        *place = c_char::from_ne_bytes([byte]);
    }
    array
}

#[cfg(test)]
mod tests {
    use nvml_wrapper_sys::bindings as sys;

    use super::*;

    /// Size and alignment equal, and each named member at the same place.
    macro_rules! same_layout {
        ($ours:ty, $theirs:ty, $(($our_field:ident, $their_field:ident)),*) => {
            assert_eq!(size_of::<$ours>(), size_of::<$theirs>(), stringify!($ours));
            assert_eq!(align_of::<$ours>(), align_of::<$theirs>(), stringify!($ours));
            $(assert_eq!(
                std::mem::offset_of!($ours, $our_field),
                std::mem::offset_of!($theirs, $their_field),
                stringify!($ours::$our_field),
            );)*
        };
    }

    #[test]
    fn structs_have_the_layout_of_nvml() {
        same_layout!(
            PciInfo,
            sys::nvmlPciInfo_t,
            (bus_id_legacy, busIdLegacy),
            (domain, domain),
            (bus, bus),
            (device, device),
            (pci_device_id, pciDeviceId),
            (pci_subsystem_id, pciSubSystemId),
            (bus_id, busId)
        );
        same_layout!(
            PciInfoExtV1,
            sys::nvmlPciInfoExt_v1_t,
            (version, version),
            (domain, domain),
            (pci_subsystem_id, pciSubSystemId),
            (base_class, baseClass),
            (sub_class, subClass),
            (bus_id, busId)
        );
        same_layout!(MemoryV1, sys::nvmlMemory_t, (total, total), (free, free), (used, used));
        same_layout!(
            MemoryV2,
            sys::nvmlMemory_v2_t,
            (version, version),
            (total, total),
            (reserved, reserved),
            (free, free),
            (used, used)
        );
        same_layout!(
            Bar1Memory,
            sys::nvmlBAR1Memory_t,
            (total, bar1Total),
            (free, bar1Free),
            (used, bar1Used)
        );
        same_layout!(
            EccErrorCounts,
            sys::nvmlEccErrorCounts_t,
            (l1_cache, l1Cache),
            (l2_cache, l2Cache),
            (device_memory, deviceMemory),
            (register_file, registerFile)
        );
        same_layout!(
            SramErrorStatusV1,
            sys::nvmlEccSramErrorStatus_v1_t,
            (version, version),
            (aggregate_unc_parity, aggregateUncParity),
            (aggregate_unc_sec_ded, aggregateUncSecDed),
            (aggregate_cor, aggregateCor),
            (volatile_unc_parity, volatileUncParity),
            (volatile_unc_sec_ded, volatileUncSecDed),
            (volatile_cor, volatileCor),
            (aggregate_unc_bucket_other, aggregateUncBucketOther),
            (threshold_exceeded, bThresholdExceeded)
        );
        same_layout!(
            RepairStatusV1,
            sys::nvmlRepairStatus_v1_t,
            (version, version),
            (channel_repair_pending, bChannelRepairPending),
            (tpc_repair_pending, bTpcRepairPending)
        );
        same_layout!(
            RowRemapperHistogram,
            sys::nvmlRowRemapperHistogramValues_t,
            (max, max),
            (high, high),
            (partial, partial),
            (low, low),
            (none, none)
        );
        same_layout!(
            MarginTemperatureV1,
            sys::nvmlMarginTemperature_v1_t,
            (version, version),
            (margin_c, marginTemperature)
        );
        same_layout!(
            TemperatureV1,
            sys::nvmlTemperature_v1_t,
            (version, version),
            (sensor, sensorType),
            (temperature_c, temperature)
        );
        same_layout!(Utilization, sys::nvmlUtilization_t, (gpu_pct, gpu), (memory_pct, memory));
        same_layout!(
            ViolationTime,
            sys::nvmlViolationTime_t,
            (reference_us, referenceTime),
            (violation_ns, violationTime)
        );
        same_layout!(
            ProcessInfo,
            sys::nvmlProcessInfo_t,
            (pid, pid),
            (used_bytes, usedGpuMemory),
            (gpu_instance, gpuInstanceId),
            (compute_instance, computeInstanceId)
        );
        same_layout!(ProcessInfoV1, sys::nvmlProcessInfo_v1_t, (pid, pid), (used_bytes, usedGpuMemory));
        same_layout!(
            ProcessDetail,
            sys::nvmlProcessDetail_v1_t,
            (pid, pid),
            (used_bytes, usedGpuMemory),
            (gpu_instance, gpuInstanceId),
            (compute_instance, computeInstanceId),
            (protected_bytes, usedGpuCcProtectedMemory)
        );
        same_layout!(
            ProcessDetailList,
            sys::nvmlProcessDetailList_v1_t,
            (version, version),
            (mode, mode),
            (count, numProcArrayEntries),
            (array, procArray)
        );
        same_layout!(
            ProcessLoadV1,
            sys::nvmlProcessUtilizationInfo_v1_t,
            (time_us, timeStamp),
            (pid, pid),
            (sm_pct, smUtil),
            (ofa_pct, ofaUtil)
        );
        same_layout!(
            ProcessLoadsV1,
            sys::nvmlProcessesUtilizationInfo_v1_t,
            (version, version),
            (count, processSamplesCount),
            (newer_than_us, lastSeenTimeStamp),
            (array, procUtilArray)
        );
        same_layout!(
            EventData,
            sys::nvmlEventData_t,
            (device, device),
            (kinds, eventType),
            (data, eventData),
            (gpu_instance, gpuInstanceId),
            (compute_instance, computeInstanceId)
        );
        same_layout!(
            ProcessSample,
            sys::nvmlProcessUtilizationSample_t,
            (pid, pid),
            (time_us, timeStamp),
            (sm_pct, smUtil),
            (memory_pct, memUtil),
            (encoder_pct, encUtil),
            (decoder_pct, decUtil)
        );
        same_layout!(
            Attributes,
            sys::nvmlDeviceAttributes_t,
            (multiprocessors, multiprocessorCount),
            (gpu_slices, gpuInstanceSliceCount),
            (compute_slices, computeInstanceSliceCount),
            (memory_mib, memorySizeMB)
        );
        same_layout!(
            FieldValue,
            sys::nvmlFieldValue_t,
            (field, fieldId),
            (scope, scopeId),
            (timestamp_us, timestamp),
            (latency_us, latencyUsec),
            (value_type, valueType),
            (code, nvmlReturn),
            (value, value)
        );
        same_layout!(
            FabricInfo,
            sys::nvmlGpuFabricInfo_t,
            (cluster_uuid, clusterUuid),
            (status, status),
            (clique, cliqueId),
            (state, state)
        );
        same_layout!(
            FabricInfoV3,
            sys::nvmlGpuFabricInfo_v3_t,
            (version, version),
            (cluster_uuid, clusterUuid),
            (status, status),
            (clique, cliqueId),
            (state, state),
            (health_mask, healthMask),
            (health_summary, healthSummary)
        );
        same_layout!(GpmSupport, sys::nvmlGpmSupport_t, (version, version), (supported, isSupportedDevice));
        same_layout!(
            GpmMetric,
            sys::nvmlGpmMetric_t,
            (id, metricId),
            (code, nvmlReturn),
            (value, value),
            (short_name, metricInfo)
        );
        assert_eq!(size_of::<GpmRequest>(), std::mem::offset_of!(sys::nvmlGpmMetricsGet_t, metrics));
        assert_eq!(
            std::mem::offset_of!(GpmRequest, second),
            std::mem::offset_of!(sys::nvmlGpmMetricsGet_t, sample2)
        );
        same_layout!(
            AccountingStats,
            sys::nvmlAccountingStats_t,
            (gpu_pct, gpuUtilization),
            (memory_pct, memoryUtilization),
            (max_memory_bytes, maxMemoryUsage),
            (time_ms, time),
            (start_unix_us, startTime),
            (running, isRunning)
        );
    }

    #[test]
    fn sizes_and_version_words_are_those_of_nvml() {
        assert_eq!(size_of::<PciInfo>(), 68);
        assert_eq!(size_of::<FieldValue>(), 40);
        assert_eq!(size_of::<PciInfoV2>(), 36);
        assert_eq!(size_of::<AccountingStatsV2>(), 64);
        assert_eq!(version_word::<ProcessDetailList>(1), 0x0100_0018);
        assert_eq!(size_of::<FabricInfo>(), 28);
        assert_eq!(version_word::<MemoryV2>(2), 0x0200_0028);
        assert_eq!(version_word::<FabricInfoV2>(2), 0x0200_0024);
        assert_eq!(version_word::<FabricInfoV3>(3), 0x0300_0028);
        assert_eq!(version_word::<SramErrorStatusV1>(1), 0x0100_0068);
        assert_eq!(version_word::<MarginTemperatureV1>(1), 0x0100_0008);
        assert_eq!(version_word::<TemperatureV1>(1), 0x0100_000c);
        assert_eq!(version_word::<RepairStatusV1>(1), 0x0100_000c);
        assert_eq!(version_word::<PciInfoExtV1>(1), 0x0100_0040);
    }

    #[test]
    fn a_text_that_is_too_long_is_cut_with_its_nul() {
        let array: [c_char; 4] = chars("abcdef");
        assert_eq!(array.map(|c| c.to_ne_bytes()[0]), *b"abc\0");
    }
}
