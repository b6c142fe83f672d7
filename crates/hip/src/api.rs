//! The HIP functions that this backend calls, with their prototypes, sorted by the HIP version that brought them. There is no
//! other list.
//!
//! Every version from 5.0 on has the `required` functions; if a library lacks one, we refuse to open it. An `optional`
//! one may be missing, so each caller must know another way or accept `Unsupported`. `unbound` ones are optional, and
//! hip-runtime-sys lacks them. `dropped` ones are optional too: ROCm's headers no longer have them, but its libraries
//! do. A test compares all but the dropped ones with newer bindings (`tests/newer_bindings.rs`).

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_ushort, c_void};

use gpustream_hal::functions;

#[allow(clippy::wildcard_imports)] // The prototypes below use most of it, under HIP's own names.
use crate::ffi::*;

/// Compares our prototypes with hip-runtime-sys's: the same words, but resolved among that crate's types. We must never
/// use the constants, because the linker may not see a reference to a symbol.
macro_rules! prove {
    ($result:ident [$($text:ident),*] $($need:ident $name:ident($($arg:ident: $ty:ty),*);)*) => {
        #[cfg(feature = "hip-runtime-sys")]
        #[allow(unused_imports, clippy::wildcard_imports)]
        mod prototypes {
            use hip_runtime_sys::*;
            use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_ushort, c_void};
            $( const _: unsafe extern "C" fn($result) -> *const c_char = $text; )*
            $( crate::api::prove_one!($result $need $name($($arg: $ty),*)); )*
        }
    };
}
#[cfg(newer_bindings)]
pub(crate) use prove;

#[cfg(all(feature = "hip-runtime-sys", not(newer_bindings)))]
macro_rules! prove_one {
    ($result:ident unbound $name:ident($($arg:ident: $ty:ty),*)) => {};
    ($result:ident $bound:ident $name:ident($($arg:ident: $ty:ty),*)) => {
        const _: unsafe extern "C" fn($($ty),*) -> $result = $name;
    };
}
/// Compares with newer bindings by a call, because ROCm 7 takes some pointers as `const` that were not before, and you can pass
/// either to a call.
#[cfg(all(feature = "hip-runtime-sys", newer_bindings))]
macro_rules! prove_one {
    ($result:ident dropped $name:ident($($arg:ident: $ty:ty),*)) => {};
    ($result:ident $bound:ident $name:ident($($arg:ident: $ty:ty),*)) => {
        // SAFETY: never called.
        const _: unsafe fn($($ty),*) -> $result = |$($arg),*| unsafe { $name($($arg),*) };
    };
}
#[cfg(feature = "hip-runtime-sys")]
pub(crate) use prove_one;

functions! {
    /// libamdhip64's functions, as we found them in one library.
    Api -> hipError_t, proved by prove;
    texts { hipGetErrorName, hipGetErrorString }
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
        hipModuleGetGlobal(
            address: *mut hipDeviceptr_t, bytes: *mut usize, module: hipModule_t, name: *const c_char
        );
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

    optional "4.2" {
        hipDeviceGetPCIBusId(text: *mut c_char, length: c_int, device: c_int);
        hipStreamWaitValue32(stream: hipStream_t, address: *mut c_void, value: c_uint, flags: c_uint, mask: c_uint);
        hipStreamWriteValue32(stream: hipStream_t, address: *mut c_void, value: c_uint, flags: c_uint);
    }

    // HIP 5 has only the first. HIP 6 and 7 still export it, with its old layout, but in their headers its name stands for the
    // second.
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

    optional "4.2" {
        hipExtStreamCreateWithCUMask(stream: *mut hipStream_t, words: u32, mask: *const u32);
        hipArray3DCreate(array: *mut hipArray_t, description: *const HIP_ARRAY3D_DESCRIPTOR);
        hipArrayDestroy(array: hipArray_t);
        hipTexObjectCreate(
            texture: *mut hipTextureObject_t, resource: *const HIP_RESOURCE_DESC, description: *const HIP_TEXTURE_DESC,
            view: *const HIP_RESOURCE_VIEW_DESC
        );
        hipTexObjectDestroy(texture: hipTextureObject_t);
    }

    unbound "4.2" {
        hipCreateSurfaceObject(surface: *mut hipSurfaceObject_t, resource: *const hipResourceDesc);
        hipDestroySurfaceObject(surface: hipSurfaceObject_t);
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

    unbound "5.0" {
        hipPointerGetAttribute(data: *mut c_void, attribute: hipPointer_attribute, pointer: hipDeviceptr_t);
    }

    optional "5.1" {
        hipMallocAsync(pointer: *mut *mut c_void, bytes: usize, stream: hipStream_t);
        hipFreeAsync(pointer: *mut c_void, stream: hipStream_t);
    }

    optional "5.2" {
        hipDeviceGetUuid(uuid: *mut hipUUID, device: hipDevice_t);
        hipMemGetAllocationGranularity(
            granularity: *mut usize, properties: *const hipMemAllocationProp, option: hipMemAllocationGranularity_flags
        );
        hipMemCreate(
            handle: *mut hipMemGenericAllocationHandle_t, bytes: usize, properties: *const hipMemAllocationProp,
            flags: c_ulonglong
        );
        hipMemRelease(handle: hipMemGenericAllocationHandle_t);
        hipMemAddressReserve(
            pointer: *mut *mut c_void, bytes: usize, alignment: usize, address: *mut c_void, flags: c_ulonglong
        );
        hipMemAddressFree(pointer: *mut c_void, bytes: usize);
        hipMemMap(
            pointer: *mut c_void, bytes: usize, offset: usize, handle: hipMemGenericAllocationHandle_t,
            flags: c_ulonglong
        );
        hipMemUnmap(pointer: *mut c_void, bytes: usize);
        hipMemSetAccess(pointer: *mut c_void, bytes: usize, access: *const hipMemAccessDesc, count: usize);
        hipMemExportToShareableHandle(
            to: *mut c_void, handle: hipMemGenericAllocationHandle_t, kind: hipMemAllocationHandleType,
            flags: c_ulonglong
        );
        hipMemImportFromShareableHandle(
            handle: *mut hipMemGenericAllocationHandle_t, from: *mut c_void, kind: hipMemAllocationHandleType
        );
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

    unbound "7.1" {
        hipMemcpyBatchAsync(
            dsts: *mut *mut c_void, srcs: *mut *mut c_void, sizes: *mut usize, count: usize,
            attributes: *mut hipMemcpyAttributes, firsts: *mut usize, attribute_count: usize, failed: *mut usize,
            stream: hipStream_t
        );
    }
}
