//! Functions that a real library exports and this one does not simulate.
//!
//! They are there because clients look every function up when they load the library, and one that is missing means an
//! older driver. Each answers "not supported", which every client must bear.

use crate::code::Code;

macro_rules! unsimulated {
    ($($name:ident)*) => {
        $(
            #[allow(non_snake_case)]
            #[doc = "Not simulated: answers NVML_ERROR_NOT_SUPPORTED and touches nothing."]
            // SAFETY: the name is NVML's own, exported by this library once. Arguments are ignored, which the C calling
            // convention allows: the caller passes them and takes them away.
            #[unsafe(no_mangle)]
            pub extern "C" fn $name() -> u32 {
                Code::NOT_SUPPORTED.0
            }
        )*
    };
}

unsimulated! {
    nvmlComputeInstanceDestroy nvmlComputeInstanceGetInfo nvmlComputeInstanceGetInfo_v2
    nvmlDeviceClearCpuAffinity nvmlDeviceClearEccErrorCounts nvmlDeviceClearFieldValues
    nvmlDeviceCreateGpuInstance nvmlDeviceCreateGpuInstanceWithPlacement nvmlDeviceDiscoverGpus
    nvmlDeviceFreezeNvLinkUtilizationCounter nvmlDeviceGetAPIRestriction nvmlDeviceGetActiveVgpus
    nvmlDeviceGetAdaptiveClockInfoStatus nvmlDeviceGetAddressingMode nvmlDeviceGetAttributes
    nvmlDeviceGetAutoBoostedClocksEnabled nvmlDeviceGetBoardId nvmlDeviceGetBridgeChipInfo
    nvmlDeviceGetBusType nvmlDeviceGetCapabilities nvmlDeviceGetClkMonStatus nvmlDeviceGetClock
    nvmlDeviceGetClockOffsets nvmlDeviceGetConfComputeGpuAttestationReport
    nvmlDeviceGetConfComputeGpuCertificate nvmlDeviceGetConfComputeMemSizeInfo
    nvmlDeviceGetConfComputeProtectedMemoryUsage nvmlDeviceGetCoolerInfo nvmlDeviceGetCreatableVgpus
    nvmlDeviceGetCurrentClockFreqs nvmlDeviceGetDecoderUtilization nvmlDeviceGetDefaultEccMode
    nvmlDeviceGetDisplayActive nvmlDeviceGetDisplayMode nvmlDeviceGetDramEncryptionMode
    nvmlDeviceGetDriverModel nvmlDeviceGetDriverModel_v2 nvmlDeviceGetDynamicPstatesInfo
    nvmlDeviceGetEncoderCapacity nvmlDeviceGetEncoderSessions nvmlDeviceGetEncoderStats
    nvmlDeviceGetEncoderUtilization nvmlDeviceGetFBCSessions nvmlDeviceGetFBCStats
    nvmlDeviceGetFanControlPolicy_v2 nvmlDeviceGetFanSpeed nvmlDeviceGetFanSpeedRPM nvmlDeviceGetFanSpeed_v2
    nvmlDeviceGetGpcClkMinMaxVfOffset nvmlDeviceGetGpcClkVfOffset nvmlDeviceGetGpuInstanceById
    nvmlDeviceGetGpuInstancePossiblePlacements nvmlDeviceGetGpuInstancePossiblePlacements_v2
    nvmlDeviceGetGpuInstanceProfileInfo nvmlDeviceGetGpuInstanceProfileInfoByIdV
    nvmlDeviceGetGpuInstanceProfileInfoV nvmlDeviceGetGpuInstanceRemainingCapacity nvmlDeviceGetGpuInstances
    nvmlDeviceGetGpuOperationMode nvmlDeviceGetGridLicensableFeatures nvmlDeviceGetGridLicensableFeatures_v2
    nvmlDeviceGetGridLicensableFeatures_v3 nvmlDeviceGetGridLicensableFeatures_v4 nvmlDeviceGetHandleByUUIDV
    nvmlDeviceGetHostVgpuMode nvmlDeviceGetInforomConfigurationChecksum nvmlDeviceGetInforomVersion
    nvmlDeviceGetIrqNum nvmlDeviceGetJpgUtilization nvmlDeviceGetLastBBXFlushTime
    nvmlDeviceGetMaxCustomerBoostClock nvmlDeviceGetMemClkMinMaxVfOffset nvmlDeviceGetMemClkVfOffset
    nvmlDeviceGetMemoryBusWidth nvmlDeviceGetMinMaxClockOfPState nvmlDeviceGetMinMaxFanSpeed
    nvmlDeviceGetModuleId nvmlDeviceGetMultiGpuBoard nvmlDeviceGetNumFans nvmlDeviceGetNumGpuCores
    nvmlDeviceGetNvLinkInfo nvmlDeviceGetNvLinkUtilizationControl nvmlDeviceGetNvLinkUtilizationCounter
    nvmlDeviceGetNvlinkBwMode nvmlDeviceGetNvlinkSupportedBwModes nvmlDeviceGetOfaUtilization
    nvmlDeviceGetPcieLinkMaxSpeed nvmlDeviceGetPcieSpeed nvmlDeviceGetPcieThroughput nvmlDeviceGetPdi
    nvmlDeviceGetPerformanceModes nvmlDeviceGetPgpuMetadataString nvmlDeviceGetPlatformInfo
    nvmlDeviceGetPowerManagementMode nvmlDeviceGetPowerMizerMode_v1 nvmlDeviceGetPowerSource
    nvmlDeviceGetPowerState nvmlDeviceGetSamples nvmlDeviceGetSramUniqueUncorrectedEccErrorCounts
    nvmlDeviceGetSupportedPerformanceStates nvmlDeviceGetSupportedVgpus nvmlDeviceGetTargetFanSpeed
    nvmlDeviceGetThermalSettings nvmlDeviceGetTopologyNearestGpus nvmlDeviceGetVgpuCapabilities
    nvmlDeviceGetVgpuHeterogeneousMode nvmlDeviceGetVgpuInstancesUtilizationInfo nvmlDeviceGetVgpuMetadata
    nvmlDeviceGetVgpuProcessUtilization nvmlDeviceGetVgpuProcessesUtilizationInfo
    nvmlDeviceGetVgpuSchedulerCapabilities nvmlDeviceGetVgpuSchedulerLog nvmlDeviceGetVgpuSchedulerState
    nvmlDeviceGetVgpuTypeCreatablePlacements nvmlDeviceGetVgpuTypeSupportedPlacements
    nvmlDeviceGetVgpuUtilization nvmlDeviceGetVirtualizationMode nvmlDeviceModifyDrainState
    nvmlDeviceOnSameBoard nvmlDevicePowerSmoothingActivatePresetProfile nvmlDevicePowerSmoothingSetState
    nvmlDevicePowerSmoothingUpdatePresetProfileParam nvmlDeviceQueryDrainState nvmlDeviceReadWritePRM_v1
    nvmlDeviceRemoveGpu nvmlDeviceRemoveGpu_v2 nvmlDeviceResetNvLinkErrorCounters
    nvmlDeviceResetNvLinkUtilizationCounter nvmlDeviceSetAPIRestriction nvmlDeviceSetAutoBoostedClocksEnabled
    nvmlDeviceSetClockOffsets nvmlDeviceSetConfComputeUnprotectedMemSize nvmlDeviceSetCpuAffinity
    nvmlDeviceSetDefaultAutoBoostedClocksEnabled nvmlDeviceSetDefaultFanSpeed_v2
    nvmlDeviceSetDramEncryptionMode nvmlDeviceSetDriverModel nvmlDeviceSetEccMode
    nvmlDeviceSetFanControlPolicy nvmlDeviceSetFanSpeed_v2 nvmlDeviceSetGpcClkVfOffset
    nvmlDeviceSetGpuOperationMode nvmlDeviceSetMemClkVfOffset nvmlDeviceSetMigMode
    nvmlDeviceSetNvLinkDeviceLowPowerThreshold nvmlDeviceSetNvLinkUtilizationControl nvmlDeviceSetNvlinkBwMode
    nvmlDeviceSetPowerManagementLimit_v2 nvmlDeviceSetPowerMizerMode_v1 nvmlDeviceSetTemperatureThreshold
    nvmlDeviceSetVgpuCapabilities nvmlDeviceSetVgpuHeterogeneousMode nvmlDeviceSetVgpuSchedulerState
    nvmlDeviceSetVirtualizationMode nvmlDeviceWorkloadPowerProfileClearRequestedProfiles
    nvmlDeviceWorkloadPowerProfileGetCurrentProfiles nvmlDeviceWorkloadPowerProfileGetProfilesInfo
    nvmlDeviceWorkloadPowerProfileSetRequestedProfiles nvmlGetExcludedDeviceCount
    nvmlGetExcludedDeviceInfoByIndex nvmlGetVgpuCompatibility nvmlGetVgpuDriverCapabilities nvmlGetVgpuVersion
    nvmlGpmQueryIfStreamingEnabled nvmlGpmSetStreamingEnabled nvmlGpuInstanceCreateComputeInstance
    nvmlGpuInstanceCreateComputeInstanceWithPlacement nvmlGpuInstanceDestroy nvmlGpuInstanceGetActiveVgpus
    nvmlGpuInstanceGetComputeInstanceById nvmlGpuInstanceGetComputeInstancePossiblePlacements
    nvmlGpuInstanceGetComputeInstanceProfileInfo nvmlGpuInstanceGetComputeInstanceProfileInfoV
    nvmlGpuInstanceGetComputeInstanceRemainingCapacity nvmlGpuInstanceGetComputeInstances
    nvmlGpuInstanceGetCreatableVgpus nvmlGpuInstanceGetInfo nvmlGpuInstanceGetVgpuHeterogeneousMode
    nvmlGpuInstanceGetVgpuSchedulerLog nvmlGpuInstanceGetVgpuSchedulerState
    nvmlGpuInstanceGetVgpuTypeCreatablePlacements nvmlGpuInstanceSetVgpuHeterogeneousMode
    nvmlGpuInstanceSetVgpuSchedulerState nvmlSetVgpuVersion nvmlSystemEventSetCreate nvmlSystemEventSetFree
    nvmlSystemEventSetWait nvmlSystemGetConfComputeCapabilities nvmlSystemGetConfComputeGpusReadyState
    nvmlSystemGetConfComputeKeyRotationThresholdInfo nvmlSystemGetConfComputeSettings
    nvmlSystemGetConfComputeState nvmlSystemGetDriverBranch nvmlSystemGetHicVersion nvmlSystemGetNvlinkBwMode
    nvmlSystemGetTopologyGpuSet nvmlSystemRegisterEvents nvmlSystemSetConfComputeGpusReadyState
    nvmlSystemSetConfComputeKeyRotationThresholdInfo nvmlSystemSetNvlinkBwMode nvmlUnitGetCount
    nvmlUnitGetDevices nvmlUnitGetFanSpeedInfo nvmlUnitGetHandleByIndex nvmlUnitGetLedState nvmlUnitGetPsuInfo
    nvmlUnitGetTemperature nvmlUnitGetUnitInfo nvmlUnitSetLedState nvmlVgpuInstanceClearAccountingPids
    nvmlVgpuInstanceGetAccountingMode nvmlVgpuInstanceGetAccountingPids nvmlVgpuInstanceGetAccountingStats
    nvmlVgpuInstanceGetEccMode nvmlVgpuInstanceGetEncoderCapacity nvmlVgpuInstanceGetEncoderSessions
    nvmlVgpuInstanceGetEncoderStats nvmlVgpuInstanceGetFBCSessions nvmlVgpuInstanceGetFBCStats
    nvmlVgpuInstanceGetFbUsage nvmlVgpuInstanceGetFrameRateLimit nvmlVgpuInstanceGetGpuInstanceId
    nvmlVgpuInstanceGetGpuPciId nvmlVgpuInstanceGetLicenseInfo nvmlVgpuInstanceGetLicenseInfo_v2
    nvmlVgpuInstanceGetLicenseStatus nvmlVgpuInstanceGetMdevUUID nvmlVgpuInstanceGetMetadata
    nvmlVgpuInstanceGetPlacementId nvmlVgpuInstanceGetRuntimeStateSize nvmlVgpuInstanceGetType
    nvmlVgpuInstanceGetUUID nvmlVgpuInstanceGetVmDriverVersion nvmlVgpuInstanceGetVmID
    nvmlVgpuInstanceSetEncoderCapacity nvmlVgpuTypeGetBAR1Info nvmlVgpuTypeGetCapabilities
    nvmlVgpuTypeGetClass nvmlVgpuTypeGetDeviceID nvmlVgpuTypeGetFbReservation nvmlVgpuTypeGetFrameRateLimit
    nvmlVgpuTypeGetFramebufferSize nvmlVgpuTypeGetGpuInstanceProfileId nvmlVgpuTypeGetGspHeapSize
    nvmlVgpuTypeGetLicense nvmlVgpuTypeGetMaxInstances nvmlVgpuTypeGetMaxInstancesPerGpuInstance
    nvmlVgpuTypeGetMaxInstancesPerVm nvmlVgpuTypeGetName nvmlVgpuTypeGetNumDisplayHeads
    nvmlVgpuTypeGetResolution
}
