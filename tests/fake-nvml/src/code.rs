//! NVML's return codes.

use std::ffi::CStr;

/// A return code of NVML (`nvmlReturn_t`), any number allowed so that a fault script can play codes to come.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code(pub u32);

macro_rules! codes {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        #[allow(missing_docs)]
        impl Code {
            $(pub const $name: Self = Self($number);)*

            /// NVML's own wording, as `nvmlErrorString` gives it.
            pub fn text(self) -> &'static CStr {
                match self.0 {
                    $($number => $text,)*
                    _ => c"Unknown Error",
                }
            }
        }
    };
}

codes! {
    SUCCESS = 0, c"Success";
    UNINITIALIZED = 1, c"Uninitialized";
    INVALID_ARGUMENT = 2, c"Invalid Argument";
    NOT_SUPPORTED = 3, c"Not Supported";
    NO_PERMISSION = 4, c"Insufficient Permissions";
    ALREADY_INITIALIZED = 5, c"Already Initialized";
    NOT_FOUND = 6, c"Not Found";
    INSUFFICIENT_SIZE = 7, c"Insufficient Size";
    INSUFFICIENT_POWER = 8, c"Insufficient External Power";
    DRIVER_NOT_LOADED = 9, c"Driver Not Loaded";
    TIMEOUT = 10, c"Timeout";
    IRQ_ISSUE = 11, c"Interrupt Request Issue";
    LIBRARY_NOT_FOUND = 12, c"NVML Shared Library Not Found";
    FUNCTION_NOT_FOUND = 13, c"Function Not Found";
    CORRUPTED_INFOROM = 14, c"Corrupted infoROM";
    GPU_IS_LOST = 15, c"GPU is lost";
    RESET_REQUIRED = 16, c"GPU requires reset";
    OPERATING_SYSTEM = 17, c"GPU access blocked by the operating system";
    LIB_RM_VERSION_MISMATCH = 18, c"Driver/library version mismatch";
    IN_USE = 19, c"GPU is in use by another client";
    MEMORY = 20, c"Insufficient Memory";
    NO_DATA = 21, c"No data";
    VGPU_ECC_NOT_SUPPORTED = 22, c"vGPU ECC is not supported";
    INSUFFICIENT_RESOURCES = 23, c"Insufficient resources";
    FREQ_NOT_SUPPORTED = 24, c"Frequency not supported";
    ARGUMENT_VERSION_MISMATCH = 25, c"Argument version mismatch";
    DEPRECATED = 26, c"Deprecated";
    NOT_READY = 27, c"Not ready";
    GPU_NOT_FOUND = 28, c"GPU not found";
    INVALID_STATE = 29, c"Invalid state";
    RESET_TYPE_NOT_SUPPORTED = 30, c"Reset type not supported";
    UNKNOWN = 999, c"Unknown Error";
}
