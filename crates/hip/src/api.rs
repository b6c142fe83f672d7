//! The one list of HIP functions this backend calls: each with its prototype and the HIP version it appeared in.
//!
//! `required` functions exist in every version from 5.0 on; a library without one is refused when it is opened.
//! `optional` ones may be absent: calling one then answers `Unsupported`, or the caller has another way.
//! `unbound` ones are optional and newer than hip-runtime-sys; `dropped` ones are optional, and ROCm's headers no longer
//! have them, though its libraries do. A test compares all but the dropped ones with newer bindings
//! (`tests/newer_bindings.rs`).
#![allow(non_snake_case)]

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ushort, c_void};

use libloading::Library;

use crate::error::{Answer, Function, Status, library_text};
#[allow(clippy::wildcard_imports)] // The prototypes below use most of it, under HIP's own names.
use crate::ffi::*;

/// Resolves a symbol to a function pointer, or to nothing.
///
/// # Safety
/// `F` is the type of a function pointer with the symbol's prototype.
pub(crate) unsafe fn symbol<F: Copy>(library: &Library, name: &str) -> Option<F> {
    // SAFETY: the type is right by this function's contract. The pointer outlives the `Symbol`, because no
    // caller ever closes the library.
    unsafe { library.get::<F>(name.as_bytes()) }.ok().map(|found| *found)
}

/// Whether a library may lack functions of a group.
macro_rules! is_required {
    (required) => {
        true
    };
    ($optional:ident) => {
        false
    };
}

/// Compares a prototype with hip-runtime-sys's: the same words, resolved among that crate's types. The
/// constant is never used, so that no reference to the symbol reaches the linker.
#[cfg(all(feature = "hip-runtime-sys", not(newer_bindings)))]
macro_rules! prove {
    (unbound $name:ident($($arg:ident: $ty:ty),*)) => {};
    ($bound:ident $name:ident($($arg:ident: $ty:ty),*)) => {
        const _: unsafe extern "C" fn($($ty),*) -> hip_runtime_sys::hipError_t = hip_runtime_sys::$name;
    };
}

/// The same against newer bindings, as a call: ROCm 7 takes some pointers as `const` that were not before, and a call
/// may pass either.
#[cfg(all(feature = "hip-runtime-sys", newer_bindings))]
macro_rules! prove {
    (dropped $name:ident($($arg:ident: $ty:ty),*)) => {};
    ($bound:ident $name:ident($($arg:ident: $ty:ty),*)) => {
        // SAFETY: never called.
        const _: unsafe fn($($ty),*) -> hipError_t = |$($arg),*| unsafe { $name($($arg),*) };
    };
}

macro_rules! api {
    ($($need:ident $since:literal { $( $name:ident($($arg:ident: $ty:ty),*); )* })*) => {
        /// libamdhip64's functions, as found in one library.
        pub(crate) struct Api {
            error_name: Option<unsafe extern "C" fn(Status) -> *const c_char>,
            error_string: Option<unsafe extern "C" fn(Status) -> *const c_char>,
            $($( $name: Option<unsafe extern "C" fn($($ty),*) -> hipError_t>, )*)*
        }

        impl Api {
            /// Looks every function up; also gives the required ones that are missing.
            ///
            /// # Safety
            /// `library` is a libamdhip64 and is never closed.
            pub(crate) unsafe fn load(library: &Library) -> (Self, Vec<&'static str>) {
                let mut missing = Vec::new();
                // SAFETY: the types are the functions' prototypes; hip-runtime-sys's where that has them.
                let api = unsafe {
                    Self {
                        error_name: symbol(library, "hipGetErrorName"),
                        error_string: symbol(library, "hipGetErrorString"),
                        $($( $name: symbol(library, stringify!($name)), )*)*
                    }
                };
                $($(
                    if is_required!($need) && api.$name.is_none() {
                        missing.push(stringify!($name));
                    }
                )*)*
                (api, missing)
            }

            $($(
                /// The HIP function of this name.
                ///
                /// # Safety
                /// As HIP's manual asks of its arguments.
                #[inline]
                pub(crate) unsafe fn $name(&self $(, $arg: $ty)*) -> Answer<'_> {
                    static FUNCTION: Function = Function { name: stringify!($name), since: $since };
                    // SAFETY: the pointer came from the library under this name with this prototype; the
                    // arguments are right by this function's contract.
                    let status = self.$name.map(|function| unsafe { function($($arg),*) });
                    Answer { api: self, function: &FUNCTION, status }
                }
            )*)*
        }

        #[cfg(feature = "hip-runtime-sys")]
        #[allow(unused_imports, clippy::wildcard_imports)]
        mod prototypes {
            use hip_runtime_sys::*;
            use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ushort, c_void};
            const _: [unsafe extern "C" fn(hipError_t) -> *const c_char; 2] = [hipGetErrorName, hipGetErrorString];
            $($( prove!($need $name($($arg: $ty),*)); )*)*
        }
    };
}

api! {
    required "4.2" {
        hipInit(flags: c_uint);
        hipRuntimeGetVersion(version: *mut c_int);
        hipDriverGetVersion(version: *mut c_int);

        hipGetDeviceCount(count: *mut c_int);
        hipGetDevice(device: *mut c_int);
        hipSetDevice(device: c_int);
        hipDeviceSynchronize();
        hipDeviceGetName(name: *mut c_char, length: c_int, device: hipDevice_t);
        hipDeviceGetAttribute(value: *mut c_int, attribute: hipDeviceAttribute_t, device: c_int);
        hipDeviceTotalMem(bytes: *mut usize, device: hipDevice_t);
        hipDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int);
        hipDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int);
        hipDeviceEnablePeerAccess(peer: c_int, flags: c_uint);
        hipMemGetInfo(free: *mut usize, total: *mut usize);

        hipStreamCreateWithPriority(stream: *mut hipStream_t, flags: c_uint, priority: c_int);
        hipStreamDestroy(stream: hipStream_t);
        hipStreamQuery(stream: hipStream_t);
        hipStreamSynchronize(stream: hipStream_t);
        hipStreamWaitEvent(stream: hipStream_t, event: hipEvent_t, flags: c_uint);
        hipStreamAddCallback(stream: hipStream_t, callback: hipStreamCallback_t, data: *mut c_void, flags: c_uint);

        hipEventCreateWithFlags(event: *mut hipEvent_t, flags: c_uint);
        hipEventDestroy(event: hipEvent_t);
        hipEventRecord(event: hipEvent_t, stream: hipStream_t);
        hipEventQuery(event: hipEvent_t);
        hipEventSynchronize(event: hipEvent_t);
        hipEventElapsedTime(milliseconds: *mut f32, start: hipEvent_t, end: hipEvent_t);

        hipMalloc(pointer: *mut *mut c_void, bytes: usize);
        hipFree(pointer: *mut c_void);
        hipHostMalloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint);
        hipHostFree(pointer: *mut c_void);
        hipHostRegister(pointer: *mut c_void, bytes: usize, flags: c_uint);
        hipHostUnregister(pointer: *mut c_void);
        hipHostGetDevicePointer(device: *mut *mut c_void, host: *mut c_void, flags: c_uint);
        hipMallocManaged(pointer: *mut *mut c_void, bytes: usize, flags: c_uint);
        hipMemPrefetchAsync(pointer: *const c_void, bytes: usize, device: c_int, stream: hipStream_t);
        hipMemAdvise(pointer: *const c_void, bytes: usize, advice: hipMemoryAdvise, device: c_int);
        hipMemsetD8Async(dst: hipDeviceptr_t, value: c_uchar, count: usize, stream: hipStream_t);
        hipMemsetD16Async(dst: hipDeviceptr_t, value: c_ushort, count: usize, stream: hipStream_t);
        hipMemsetD32Async(dst: hipDeviceptr_t, value: c_int, count: usize, stream: hipStream_t);
        hipMemcpyHtoDAsync(dst: hipDeviceptr_t, src: *mut c_void, bytes: usize, stream: hipStream_t);
        hipMemcpyDtoHAsync(dst: *mut c_void, src: hipDeviceptr_t, bytes: usize, stream: hipStream_t);
        hipMemcpyDtoDAsync(dst: hipDeviceptr_t, src: hipDeviceptr_t, bytes: usize, stream: hipStream_t);
        hipMemcpyPeerAsync(
            dst: *mut c_void, dst_device: c_int, src: *const c_void, src_device: c_int, bytes: usize, stream: hipStream_t
        );
        hipMemcpy3DAsync(copy: *const hipMemcpy3DParms, stream: hipStream_t);

        hipModuleLoadData(module: *mut hipModule_t, image: *const c_void);
        hipModuleUnload(module: hipModule_t);
        hipModuleGetFunction(function: *mut hipFunction_t, module: hipModule_t, name: *const c_char);
        hipFuncGetAttribute(value: *mut c_int, attribute: hipFunction_attribute, function: hipFunction_t);

        hipModuleLaunchKernel(
            function: hipFunction_t,
            grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
            block_x: c_uint, block_y: c_uint, block_z: c_uint,
            shared: c_uint, stream: hipStream_t, params: *mut *mut c_void, extra: *mut *mut c_void
        );
        hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
            blocks: *mut c_int, function: hipFunction_t, block: c_int, shared: usize
        );
        hipModuleOccupancyMaxPotentialBlockSize(
            grid: *mut c_int, block: *mut c_int, function: hipFunction_t, shared: usize, limit: c_int
        );
    }

    // One of the two answers. In 6 and 7 the first keeps its old layout, and is exported only: in their headers the
    // name stands for the second.
    dropped "4.2" {
        hipGetDeviceProperties(properties: *mut hipDeviceProp_t, device: c_int);
    }
    unbound "6.0" {
        hipGetDevicePropertiesR0600(properties: *mut hipDeviceProp_t, device: c_int);
    }

    optional "4.3" {
        hipStreamBeginCapture(stream: hipStream_t, mode: hipStreamCaptureMode);
        hipStreamEndCapture(stream: hipStream_t, graph: *mut hipGraph_t);
        hipStreamIsCapturing(stream: hipStream_t, status: *mut hipStreamCaptureStatus);
        hipGraphCreate(graph: *mut hipGraph_t, flags: c_uint);
        hipGraphDestroy(graph: hipGraph_t);
        hipGraphInstantiate(
            exec: *mut hipGraphExec_t, graph: hipGraph_t, error_node: *mut hipGraphNode_t, log: *mut c_char, log_size: usize
        );
        hipGraphLaunch(exec: hipGraphExec_t, stream: hipStream_t);
        hipGraphExecDestroy(exec: hipGraphExec_t);
        hipGraphAddKernelNode(
            node: *mut hipGraphNode_t, graph: hipGraph_t, dependencies: *const hipGraphNode_t, count: usize,
            params: *const hipKernelNodeParams
        );
        hipGraphAddMemcpyNode(
            node: *mut hipGraphNode_t, graph: hipGraph_t, dependencies: *const hipGraphNode_t, count: usize,
            params: *const hipMemcpy3DParms
        );
        hipGraphAddMemcpyNode1D(
            node: *mut hipGraphNode_t, graph: hipGraph_t, dependencies: *const hipGraphNode_t, count: usize,
            dst: *mut c_void, src: *const c_void, bytes: usize, kind: hipMemcpyKind
        );
        hipGraphAddMemsetNode(
            node: *mut hipGraphNode_t, graph: hipGraph_t, dependencies: *const hipGraphNode_t, count: usize,
            params: *const hipMemsetParams
        );
    }

    optional "4.4" {
        hipGraphAddEmptyNode(
            node: *mut hipGraphNode_t, graph: hipGraph_t, dependencies: *const hipGraphNode_t, count: usize
        );
        hipGraphGetNodes(graph: hipGraph_t, nodes: *mut hipGraphNode_t, count: *mut usize);
        hipGraphExecKernelNodeSetParams(
            exec: hipGraphExec_t, node: hipGraphNode_t, params: *const hipKernelNodeParams
        );
    }

    optional "4.5" {
        hipGraphGetEdges(
            graph: hipGraph_t, from: *mut hipGraphNode_t, to: *mut hipGraphNode_t, count: *mut usize
        );
        hipGraphDestroyNode(node: hipGraphNode_t);
        hipGraphExecUpdate(
            exec: hipGraphExec_t, graph: hipGraph_t, error_node: *mut hipGraphNode_t, result: *mut hipGraphExecUpdateResult
        );
        hipGraphAddHostNode(
            node: *mut hipGraphNode_t, graph: hipGraph_t, dependencies: *const hipGraphNode_t, count: usize,
            params: *const hipHostNodeParams
        );
        hipGraphAddChildGraphNode(
            node: *mut hipGraphNode_t, graph: hipGraph_t, dependencies: *const hipGraphNode_t, count: usize,
            child: hipGraph_t
        );
        hipGraphExecMemcpyNodeSetParams(exec: hipGraphExec_t, node: hipGraphNode_t, params: *mut hipMemcpy3DParms);
        hipGraphExecMemcpyNodeSetParams1D(
            exec: hipGraphExec_t, node: hipGraphNode_t,
            dst: *mut c_void, src: *const c_void, bytes: usize, kind: hipMemcpyKind
        );
        hipGraphExecMemsetNodeSetParams(exec: hipGraphExec_t, node: hipGraphNode_t, params: *const hipMemsetParams);
        hipGraphExecHostNodeSetParams(exec: hipGraphExec_t, node: hipGraphNode_t, params: *const hipHostNodeParams);
    }

    optional "5.1" {
        hipMallocAsync(pointer: *mut *mut c_void, bytes: usize, stream: hipStream_t);
        hipFreeAsync(pointer: *mut c_void, stream: hipStream_t);
    }

    optional "5.3" {
        hipLaunchHostFunc(stream: hipStream_t, function: hipHostFn_t, data: *mut c_void);
        hipGraphUpload(exec: hipGraphExec_t, stream: hipStream_t);
        hipGraphKernelNodeSetAttribute(
            node: hipGraphNode_t, attribute: hipKernelNodeAttrID, value: *const hipKernelNodeAttrValue
        );
    }

    unbound "5.5" {
        hipModuleLaunchCooperativeKernel(
            function: hipFunction_t,
            grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
            block_x: c_uint, block_y: c_uint, block_z: c_uint,
            shared: c_uint, stream: hipStream_t, params: *mut *mut c_void
        );
    }
}

impl Api {
    /// HIP's name and text for a status, as far as the library has them.
    #[cold]
    pub(crate) fn describe(&self, status: Status) -> String {
        // SAFETY: both functions take any number and return a static string.
        let text = |function: Option<unsafe extern "C" fn(Status) -> *const c_char>| unsafe {
            function.and_then(|function| library_text(function(status)))
        };
        match (text(self.error_name), text(self.error_string)) {
            (Some(name), Some(text)) if name != text => format!("{text} ({name})"),
            (Some(name), _) => name,
            (None, _) => format!("HIP error {}", status.0),
        }
    }

    /// Whether the library has `hipLaunchHostFunc`; before 5.3 there is `hipStreamAddCallback` alone.
    pub(crate) fn has_host_func(&self) -> bool {
        self.hipLaunchHostFunc.is_some()
    }

    /// Whether the library has `hipGetDevicePropertiesR0600`, and with it the newer layout.
    pub(crate) fn has_r0600(&self) -> bool {
        self.hipGetDevicePropertiesR0600.is_some()
    }

    /// Whether the library has `hipGraphUpload`.
    pub(crate) fn has_graph_upload(&self) -> bool {
        self.hipGraphUpload.is_some()
    }
}
