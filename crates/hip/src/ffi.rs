//! What we use of the HIP C interface: handles, structs and constants, with HIP's names.
//!
//! We declare them here rather than import them, so that you can turn HIP on without ROCm and without a cargo
//! configuration. With the feature `hip-runtime-sys`, the compiler compares each declaration with that crate's: every
//! constant's value, every struct's size and its fields' offsets and sizes, and (in [`api`](crate::api)) every
//! prototype. That crate ends with HIP 5.4. So `tests/newer_bindings.rs` compiles this crate with later bindings
//! instead, under the configuration `newer_bindings`. Enumerations must be plain integers, because newer versions of
//! ROCm may return values that older declarations lack.
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals)]

use std::ffi::{c_int, c_uint, c_void};

use gpustream_hal::driver::Status;

pub(crate) type hipError_t = Status;
pub(crate) type hipStream_t = *mut c_void;
pub(crate) type hipEvent_t = *mut c_void;
pub(crate) type hipModule_t = *mut c_void;
pub(crate) type hipFunction_t = *mut c_void;
pub(crate) type hipGraph_t = *mut c_void;
pub(crate) type hipGraphNode_t = *mut c_void;
pub(crate) type hipGraphExec_t = *mut c_void;
pub(crate) type hipArray_t = *mut c_void;
pub(crate) type hipTextureObject_t = *mut c_void;
pub(crate) type hipSurfaceObject_t = *mut c_void;
pub(crate) type hipDeviceptr_t = *mut c_void;
pub(crate) type hipMemGenericAllocationHandle_t = *mut c_void;
pub(crate) type hipDevice_t = c_int;
pub(crate) type hipHostFn_t = Option<unsafe extern "C" fn(*mut c_void)>;
pub(crate) type hipStreamCallback_t = Option<unsafe extern "C" fn(hipStream_t, hipError_t, *mut c_void)>;

/// The attributes for a batch's copies. HIP's headers up to 7.14 call them unsupported.
pub(crate) enum hipMemcpyAttributes {}

/// The part of its memory that a texture reads; nothing here asks for one.
pub(crate) enum HIP_RESOURCE_VIEW_DESC {}

/// Declares an enumeration's type and those of its values that are used.
macro_rules! enumeration {
    ($name:ident { $($value:ident = $number:literal),* $(,)? }) => {
        pub(crate) type $name = c_uint;
        $(
            pub(crate) const $value: $name = $number;
            #[cfg(feature = "hip-runtime-sys")]
            const _: () = assert!($value == hip_runtime_sys::$name::$value as c_uint);
        )*
        #[cfg(feature = "hip-runtime-sys")]
        const _: () = assert!(size_of::<$name>() == size_of::<hip_runtime_sys::$name>());
    };
}

/// Declares flags that the C header has as macros.
macro_rules! flags {
    ($($name:ident = $value:literal),* $(,)?) => {
        $(
            pub(crate) const $name: c_uint = $value;
            #[cfg(feature = "hip-runtime-sys")]
            const _: () = assert!($name == hip_runtime_sys::$name);
        )*
    };
}

#[cfg(feature = "hip-runtime-sys")]
const fn size_of_field<S, F>(_field: fn(&S) -> F) -> usize {
    size_of::<F>()
}

/// Declares a struct, field for field in HIP's order.
macro_rules! structure {
    ($(#[$meta:meta])* $name:ident { $($field:ident: $ty:ty),* $(,)? }) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub(crate) struct $name { $(pub(crate) $field: $ty),* }
        #[cfg(feature = "hip-runtime-sys")]
        const _: () = {
            use std::mem::offset_of;
            assert!(size_of::<$name>() == size_of::<hip_runtime_sys::$name>());
            $(
                assert!(offset_of!($name, $field) == offset_of!(hip_runtime_sys::$name, $field));
                let (ours, theirs) = (|s: &$name| s.$field, |s: &hip_runtime_sys::$name| s.$field);
                assert!(size_of_field(ours) == size_of_field(theirs));
            )*
        };
    };
}

// No number here changed between HIP 5.2 and 7.15, and hardly any equals CUDA's.
enumeration!(hipDeviceAttribute_t {
    hipDeviceAttributeAsyncEngineCount = 2,
    hipDeviceAttributeConcurrentKernels = 8,
    hipDeviceAttributeConcurrentManagedAccess = 9,
    hipDeviceAttributeCooperativeLaunch = 10,
    hipDeviceAttributeL2CacheSize = 19,
    hipDeviceAttributeManagedMemory = 24,
    hipDeviceAttributeMaxBlockDimX = 26,
    hipDeviceAttributeMaxBlockDimY = 27,
    hipDeviceAttributeMaxBlockDimZ = 28,
    hipDeviceAttributeMaxGridDimX = 29,
    hipDeviceAttributeMaxGridDimY = 30,
    hipDeviceAttributeMaxGridDimZ = 31,
    hipDeviceAttributeMaxThreadsPerBlock = 56,
    hipDeviceAttributeMaxThreadsPerMultiProcessor = 57,
    hipDeviceAttributeMultiprocessorCount = 63,
    hipDeviceAttributeMaxSharedMemoryPerBlock = 74,
    hipDeviceAttributeSharedMemPerBlockOptin = 75,
    hipDeviceAttributeSharedMemPerMultiprocessor = 76,
    hipDeviceAttributeWarpSize = 87,
    hipDeviceAttributeMemoryPoolsSupported = 88,
    hipDeviceAttributeVirtualMemoryManagementSupported = 89,
    hipDeviceAttributeMaxSharedMemoryPerMultiprocessor = 10002,
    hipDeviceAttributeCanUseStreamWaitValue = 10013,
    hipDeviceAttributeImageSupport = 10014,
    hipDeviceAttributePhysicalMultiProcessorCount = 10015,
});

enumeration!(hipMemcpyKind {
    hipMemcpyHostToHost = 0,
    hipMemcpyHostToDevice = 1,
    hipMemcpyDeviceToHost = 2,
    hipMemcpyDeviceToDevice = 3,
});

enumeration!(hipArray_Format {
    HIP_AD_FORMAT_UNSIGNED_INT8 = 1,
    HIP_AD_FORMAT_UNSIGNED_INT16 = 2,
    HIP_AD_FORMAT_UNSIGNED_INT32 = 3,
    HIP_AD_FORMAT_SIGNED_INT8 = 8,
    HIP_AD_FORMAT_SIGNED_INT16 = 9,
    HIP_AD_FORMAT_SIGNED_INT32 = 10,
    HIP_AD_FORMAT_HALF = 16,
    HIP_AD_FORMAT_FLOAT = 32,
});

// The bindings have these numbers under other names.
pub(crate) const HIP_TR_ADDRESS_MODE_WRAP: c_uint = 0;
pub(crate) const HIP_TR_ADDRESS_MODE_CLAMP: c_uint = 1;
pub(crate) const HIP_TR_ADDRESS_MODE_MIRROR: c_uint = 2;
pub(crate) const HIP_TR_ADDRESS_MODE_BORDER: c_uint = 3;
pub(crate) const HIP_TR_FILTER_MODE_POINT: c_uint = 0;
pub(crate) const HIP_TR_FILTER_MODE_LINEAR: c_uint = 1;

enumeration!(hipResourceType {
    hipResourceTypeArray = 0,
    hipResourceTypeLinear = 2,
});

enumeration!(hipPointer_attribute { HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9 });

enumeration!(hipMemoryAdvise {
    hipMemAdviseSetReadMostly = 1,
    hipMemAdviseSetPreferredLocation = 3,
    hipMemAdviseSetAccessedBy = 5,
});

enumeration!(hipFunction_attribute {
    HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
    HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
    HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
    HIP_FUNC_ATTRIBUTE_NUM_REGS = 4,
});

enumeration!(hipStreamCaptureMode { hipStreamCaptureModeRelaxed = 2 });

enumeration!(hipStreamCaptureStatus {
    hipStreamCaptureStatusNone = 0,
    hipStreamCaptureStatusActive = 1,
    hipStreamCaptureStatusInvalidated = 2,
});

enumeration!(hipGraphExecUpdateResult {
    hipGraphExecUpdateSuccess = 0,
    hipGraphExecUpdateError = 1,
});

enumeration!(hipKernelNodeAttrID { hipKernelNodeAttributeCooperative = 2 });

flags! {
    hipStreamDefault = 0x0,
    hipStreamNonBlocking = 0x1,
    hipEventDefault = 0x0,
    hipEventBlockingSync = 0x1,
    hipEventDisableTiming = 0x2,
    hipHostMallocPortable = 0x1,
    hipHostMallocMapped = 0x2,
    hipHostMallocWriteCombined = 0x4,
    hipHostMallocCoherent = 0x4000_0000,
    hipHostRegisterPortable = 0x1,
    hipHostRegisterMapped = 0x2,
    hipMemAttachGlobal = 0x1,
    hipArrayLayered = 0x1,
    hipArraySurfaceLoadStore = 0x2,
    HIP_TRSF_READ_AS_INTEGER = 0x1,
    HIP_TRSF_NORMALIZED_COORDINATES = 0x2,
    hipStreamWaitValueGte = 0x0,
    hipStreamWaitValueEq = 0x1,
    hipStreamWaitValueAnd = 0x2,
}

/// Means the host if a call asks for a device number (a macro in C, so the bindings lack it).
pub(crate) const hipCpuDeviceId: c_int = -1;
/// The handle for each thread's own default stream (a macro in C, so the bindings lack it).
pub(crate) const hipStreamPerThread: usize = 2;

enumeration!(hipMemLocationType { hipMemLocationTypeDevice = 1 });
enumeration!(hipMemAllocationType { hipMemAllocationTypePinned = 1 });
enumeration!(hipMemAllocationHandleType { hipMemHandleTypePosixFileDescriptor = 1 });
enumeration!(hipMemAllocationGranularity_flags { hipMemAllocationGranularityMinimum = 0 });
enumeration!(hipMemAccessFlags { hipMemAccessFlagsProtReadWrite = 3 });

structure!(hipUUID { bytes: [u8; 16] });
structure!(hipMemLocation { type_: hipMemLocationType, id: c_int });
structure!(hipMemAccessDesc { location: hipMemLocation, flags: hipMemAccessFlags });

/// The properties of memory. HIP 6 gave the second field two names, so we cannot compare the fields.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct hipMemAllocationProp {
    pub(crate) type_: hipMemAllocationType,
    pub(crate) requestedHandleType: hipMemAllocationHandleType,
    pub(crate) location: hipMemLocation,
    pub(crate) win32HandleMetaData: *mut c_void,
    pub(crate) allocFlags: [u8; 4],
}
#[cfg(feature = "hip-runtime-sys")]
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<hipMemAllocationProp>() == size_of::<hip_runtime_sys::hipMemAllocationProp>());
    assert!(
        offset_of!(hipMemAllocationProp, location)
            == offset_of!(hip_runtime_sys::hipMemAllocationProp, location)
    );
};

structure!(dim3 { x: u32, y: u32, z: u32 });
structure!(hipPos { x: usize, y: usize, z: usize });
structure!(hipExtent { width: usize, height: usize, depth: usize });
structure!(hipPitchedPtr { ptr: *mut c_void, pitch: usize, xsize: usize, ysize: usize });
structure!(hipMemcpy3DParms {
    srcArray: hipArray_t,
    srcPos: hipPos,
    srcPtr: hipPitchedPtr,
    dstArray: hipArray_t,
    dstPos: hipPos,
    dstPtr: hipPitchedPtr,
    extent: hipExtent,
    kind: hipMemcpyKind,
});
structure!(HIP_ARRAY3D_DESCRIPTOR {
    Width: usize,
    Height: usize,
    Depth: usize,
    Format: hipArray_Format,
    NumChannels: c_uint,
    Flags: c_uint,
});
structure!(HIP_TEXTURE_DESC {
    addressMode: [c_uint; 3],
    filterMode: c_uint,
    flags: c_uint,
    maxAnisotropy: c_uint,
    mipmapFilterMode: c_uint,
    mipmapLevelBias: f32,
    minMipmapLevelClamp: f32,
    maxMipmapLevelClamp: f32,
    borderColor: [f32; 4],
    reserved: [c_int; 12],
});
structure!(
    /// A texture's memory. `res` is a union: for an array its handle; for linear memory one word with the address, format and
    /// number of channels, and the length.
    HIP_RESOURCE_DESC {
        resType: hipResourceType,
        res: [u64; 16],
        flags: c_uint,
    }
);
structure!(
    /// A surface's memory. `res` is an array's handle.
    hipResourceDesc {
        resType: hipResourceType,
        res: [u64; 7],
    }
);
structure!(hipHostNodeParams { fn_: hipHostFn_t, userData: *mut c_void });
structure!(hipKernelNodeParams {
    blockDim: dim3,
    extra: *mut *mut c_void,
    func: *mut c_void,
    gridDim: dim3,
    kernelParams: *mut *mut c_void,
    sharedMemBytes: c_uint,
});
structure!(
    /// The field order in 5 and 6, and in AMD's headers for 7: see [`memset`](crate::memset).
    hipMemsetParams {
        dst: *mut c_void,
        elementSize: c_uint,
        height: usize,
        pitch: usize,
        value: c_uint,
        width: usize,
    }
);

/// `hipMemsetParams` in the order that AMD's documentation gives from HIP 7.0 on. It is CUDA's order, and the struct has the same
/// size in both.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct hipMemsetParamsDocumented {
    pub(crate) dst: *mut c_void,
    pub(crate) pitch: usize,
    pub(crate) value: c_uint,
    pub(crate) elementSize: c_uint,
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) rest: usize,
}
const _: () = assert!(size_of::<hipMemsetParamsDocumented>() == size_of::<hipMemsetParams>());

/// A kernel node's attribute: a union that grew to 64 bytes. For every flag, HIP reads the first four.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(crate) struct hipKernelNodeAttrValue {
    pub(crate) cooperative: c_int,
    pub(crate) rest: [c_int; 31],
}
#[cfg(feature = "hip-runtime-sys")]
const _: () = assert!(
    size_of::<hipKernelNodeAttrValue>() >= size_of::<hip_runtime_sys::hipKernelNodeAttrValue>()
        && std::mem::offset_of!(hip_runtime_sys::hipKernelNodeAttrValue, cooperative) == 0
);

/// Room for a device's properties in any version: they take 792 bytes up to 5.7 and 1472 from 6.0 on, and a later
/// version may take more.
///
/// We read only what we cannot get as an attribute, at the offsets in [`PropertyLayout`].
#[repr(C, align(16))]
pub(crate) struct hipDeviceProp_t(pub(crate) [u8; 4096]);

/// The offsets of the fields that we read from a version of `hipDeviceProp_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PropertyLayout {
    pub(crate) total_global_mem: usize,
    pub(crate) warp_size: usize,
    pub(crate) multiprocessors: usize,
    pub(crate) arch_name: usize,
}

impl PropertyLayout {
    /// HIP 5's layout. The plain `hipGetDeviceProperties` still fills it in 6 and 7.
    pub(crate) const R0000: Self =
        Self { total_global_mem: 256, warp_size: 276, multiprocessors: 336, arch_name: 396 };
    /// The layout that `hipGetDevicePropertiesR0600` fills.
    pub(crate) const R0600: Self =
        Self { total_global_mem: 288, warp_size: 308, multiprocessors: 388, arch_name: 1160 };
}

#[cfg(feature = "hip-runtime-sys")]
const _: () = {
    use hip_runtime_sys::hipDeviceProp_t as Bound;
    use std::mem::offset_of;
    // Headers from 6.0 on give this name to the newer layout.
    let layout = if cfg!(newer_bindings) { PropertyLayout::R0600 } else { PropertyLayout::R0000 };
    assert!(size_of::<Bound>() <= size_of::<hipDeviceProp_t>());
    assert!(align_of::<Bound>() <= align_of::<hipDeviceProp_t>());
    assert!(offset_of!(Bound, totalGlobalMem) == layout.total_global_mem);
    assert!(offset_of!(Bound, warpSize) == layout.warp_size);
    assert!(offset_of!(Bound, multiProcessorCount) == layout.multiprocessors);
    assert!(offset_of!(Bound, gcnArchName) == layout.arch_name);
};
