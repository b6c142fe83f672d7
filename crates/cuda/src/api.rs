//! The driver functions that this backend calls, with their prototypes, sorted by the CUDA version that brought them. There is no
//! other list.
//!
//! Every driver since CUDA 12.0 has the `required` functions; if a library lacks one, we refuse to open it. An
//! `optional` one may be missing, so each caller must know another way or accept `Unsupported`.

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_ushort, c_void};

#[allow(clippy::wildcard_imports)] // The prototypes below use most of it, under CUDA's own names.
use cudarc::driver::sys::{self as bindings, *};
use gpustream_hal::driver::Status;
use gpustream_hal::functions;

use crate::declarations::{
    CUdevResource, CUdevResourceDesc, CUdevResourceType, CUgraphConditionalHandle, CUgraphEdgeData,
    CUgraphNodeParams, CUgreenCtx, CUlogIterator, CUmemAccessDesc, CUmemAllocationProp, CUmemLocation,
    CUmemcpyAttributes,
};

type CUresult = Status;

/// Compares our prototypes with cudarc's: the same words, but resolved among cudarc's types.
///
/// The application chooses the version of the bindings, so a function or a type can be missing there. We use a rule of Rust: what
/// a block imports hides the names around the block. So inside `COMPARED` a name means cudarc's if there is one. Otherwise it
/// means our declaration, or a function that takes anything.
macro_rules! prove {
    ($result:ident [$($text:ident),*] $($need:ident $name:ident($($arg:ident: $ty:ty),*);)*) => {
        #[allow(unused, non_snake_case, clippy::wildcard_imports)]
        mod prototypes {
            use super::bindings::$result;
            use crate::declarations::*;
            use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_ushort, c_void};

            pub(super) struct Absent;
            trait Compared { const IS: bool; }
            impl Compared for $result { const IS: bool = true; }
            impl Compared for Absent { const IS: bool = false; }
            const fn is_compared<R: Compared>(_: fn() -> R) -> bool { R::IS }
            fn any<T>() -> T { std::process::abort() }

            $( unsafe fn $name($($arg: impl Sized),*) -> Absent { Absent } )*

            /// Each function, and whether the chosen bindings have it.
            pub(super) const COMPARED: &[(&str, bool)] = {
                use super::bindings::*;
                $( const _: unsafe fn($result) -> *const c_char = $text; )*
                // SAFETY: never called.
                &[ $( (stringify!($name), is_compared(|| unsafe { $name($( any::<$ty>() ),*) })), )* ]
            };
        }
    };
}
pub(crate) use prove;

functions! {
    /// The driver's functions, under their exported names.
    Api -> CUresult, proved by prove;
    texts { }
    required "12.0" {
        cuInit(flags: c_uint);
        cuDriverGetVersion(version: *mut c_int);
        cuGetErrorName(error: CUresult, text: *mut *const c_char);
        cuGetErrorString(error: CUresult, text: *mut *const c_char);

        cuDeviceGetCount(count: *mut c_int);
        cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
        cuDeviceGetName(name: *mut c_char, length: c_int, device: CUdevice);
        cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
        cuDeviceGetAttribute(value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice);
        cuDeviceCanAccessPeer(can: *mut c_int, device: CUdevice, peer: CUdevice);
        cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);

        cuCtxGetCurrent(context: *mut CUcontext);
        cuCtxSetCurrent(context: CUcontext);
        cuCtxSynchronize();
        cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int);
        cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint);

        cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int);
        cuStreamDestroy_v2(stream: CUstream);
        cuStreamQuery(stream: CUstream);
        cuStreamSynchronize(stream: CUstream);
        cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
        cuStreamWaitValue32_v2(stream: CUstream, address: CUdeviceptr, value: c_uint, flags: c_uint);
        cuStreamWriteValue32_v2(stream: CUstream, address: CUdeviceptr, value: c_uint, flags: c_uint);
        cuLaunchHostFunc(stream: CUstream, function: CUhostFn, data: *mut c_void);

        cuEventCreate(event: *mut CUevent, flags: c_uint);
        cuEventDestroy_v2(event: CUevent);
        cuEventRecord(event: CUevent, stream: CUstream);
        cuEventQuery(event: CUevent);
        cuEventSynchronize(event: CUevent);
        cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent);

        cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
        cuMemAlloc_v2(pointer: *mut CUdeviceptr, bytes: usize);
        cuMemFree_v2(pointer: CUdeviceptr);
        cuMemAllocAsync(pointer: *mut CUdeviceptr, bytes: usize, stream: CUstream);
        cuMemFreeAsync(pointer: CUdeviceptr, stream: CUstream);
        cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint);
        cuMemFreeHost(pointer: *mut c_void);
        cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, flags: c_uint);
        cuMemHostUnregister(pointer: *mut c_void);
        cuMemHostGetDevicePointer_v2(device: *mut CUdeviceptr, pointer: *mut c_void, flags: c_uint);
        cuPointerGetAttribute(data: *mut c_void, attribute: CUpointer_attribute, pointer: CUdeviceptr);
        cuMemAllocManaged(pointer: *mut CUdeviceptr, bytes: usize, flags: c_uint);
        cuMemsetD8Async(dst: CUdeviceptr, value: c_uchar, count: usize, stream: CUstream);
        cuMemsetD16Async(dst: CUdeviceptr, value: c_ushort, count: usize, stream: CUstream);
        cuMemsetD32Async(dst: CUdeviceptr, value: c_uint, count: usize, stream: CUstream);
        cuMemcpyHtoDAsync_v2(dst: CUdeviceptr, src: *const c_void, bytes: usize, stream: CUstream);
        cuMemcpyDtoHAsync_v2(dst: *mut c_void, src: CUdeviceptr, bytes: usize, stream: CUstream);
        cuMemcpyDtoDAsync_v2(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize, stream: CUstream);
        cuMemcpyPeerAsync(
            dst: CUdeviceptr, dst_context: CUcontext, src: CUdeviceptr, src_context: CUcontext, bytes: usize,
            stream: CUstream
        );
        cuMemcpy3DAsync_v2(copy: *const CUDA_MEMCPY3D, stream: CUstream);

        cuArray3DCreate_v2(array: *mut CUarray, description: *const CUDA_ARRAY3D_DESCRIPTOR);
        cuArrayDestroy(array: CUarray);
        cuTexObjectCreate(
            texture: *mut CUtexObject, resource: *const CUDA_RESOURCE_DESC, description: *const CUDA_TEXTURE_DESC,
            view: *const CUDA_RESOURCE_VIEW_DESC
        );
        cuTexObjectDestroy(texture: CUtexObject);
        cuSurfObjectCreate(surface: *mut CUsurfObject, resource: *const CUDA_RESOURCE_DESC);
        cuSurfObjectDestroy(surface: CUsurfObject);

        cuModuleLoadDataEx(
            module: *mut CUmodule, image: *const c_void, count: c_uint, options: *mut CUjit_option,
            values: *mut *mut c_void
        );
        cuModuleUnload(module: CUmodule);
        cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
        cuModuleGetGlobal_v2(address: *mut CUdeviceptr, bytes: *mut usize, module: CUmodule, name: *const c_char);
        cuFuncGetAttribute(value: *mut c_int, attribute: CUfunction_attribute, function: CUfunction);
        cuFuncSetAttribute(function: CUfunction, attribute: CUfunction_attribute, value: c_int);

        cuLaunchKernelEx(
            config: *const CUlaunchConfig, function: CUfunction, params: *mut *mut c_void, extra: *mut *mut c_void
        );
        cuOccupancyMaxActiveBlocksPerMultiprocessor(
            blocks: *mut c_int, function: CUfunction, block: c_int, shared: usize
        );
        cuOccupancyMaxPotentialBlockSize(
            grid: *mut c_int, block: *mut c_int, function: CUfunction, shared_of_block: CUoccupancyB2DSize,
            shared: usize, limit: c_int
        );

        cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode);
        cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph);
        cuStreamIsCapturing(stream: CUstream, status: *mut CUstreamCaptureStatus);
        cuStreamGetCaptureInfo_v2(
            stream: CUstream, status: *mut CUstreamCaptureStatus, id: *mut cuuint64_t, graph: *mut CUgraph,
            dependencies: *mut *const CUgraphNode, count: *mut usize
        );
        cuStreamUpdateCaptureDependencies(
            stream: CUstream, dependencies: *mut CUgraphNode, count: usize, flags: c_uint
        );
        cuGraphCreate(graph: *mut CUgraph, flags: c_uint);
        cuGraphDestroy(graph: CUgraph);
        cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize);
        cuGraphGetEdges(graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, count: *mut usize);
        cuGraphAddEmptyNode(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize);
        cuGraphAddKernelNode_v2(
            node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize,
            params: *const CUDA_KERNEL_NODE_PARAMS
        );
        cuGraphAddMemcpyNode(
            node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize,
            params: *const CUDA_MEMCPY3D, context: CUcontext
        );
        cuGraphAddMemsetNode(
            node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize,
            params: *const CUDA_MEMSET_NODE_PARAMS, context: CUcontext
        );
        cuGraphAddHostNode(
            node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize,
            params: *const CUDA_HOST_NODE_PARAMS
        );
        cuGraphAddChildGraphNode(
            node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, child: CUgraph
        );
        cuGraphAddDependencies(graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, count: usize);
        cuGraphDestroyNode(node: CUgraphNode);
        cuGraphKernelNodeSetAttribute(
            node: CUgraphNode, attribute: CUlaunchAttributeID, value: *const CUlaunchAttributeValue
        );
        cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: c_ulonglong);
        cuGraphLaunch(exec: CUgraphExec, stream: CUstream);
        cuGraphUpload(exec: CUgraphExec, stream: CUstream);
        cuGraphExecUpdate_v2(exec: CUgraphExec, graph: CUgraph, result: *mut CUgraphExecUpdateResultInfo);
        cuGraphExecKernelNodeSetParams_v2(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS);
        cuGraphExecMemcpyNodeSetParams(
            exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_MEMCPY3D, context: CUcontext
        );
        cuGraphExecMemsetNodeSetParams(
            exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_MEMSET_NODE_PARAMS, context: CUcontext
        );
        cuGraphExecHostNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_HOST_NODE_PARAMS);
        cuGraphExecDestroy(exec: CUgraphExec);
    }

    optional "12.0" {
        // Headers of 13 use these names for the later functions.
        cuMemPrefetchAsync(pointer: CUdeviceptr, count: usize, dst: CUdevice, stream: CUstream);
        cuMemAdvise(pointer: CUdeviceptr, count: usize, advice: CUmem_advise, device: CUdevice);
    }

    optional "12.0" {
        // On a MIG instance, the first returns the GPU's and the second the instance's own.
        cuDeviceGetUuid(uuid: *mut CUuuid, device: CUdevice);
        cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice);
        cuDeviceGetPCIBusId(text: *mut c_char, length: c_int, device: CUdevice);
        cuMemGetAllocationGranularity(
            granularity: *mut usize, properties: *const CUmemAllocationProp, option: CUmemAllocationGranularity_flags
        );
        cuMemCreate(
            handle: *mut CUmemGenericAllocationHandle, bytes: usize, properties: *const CUmemAllocationProp,
            flags: c_ulonglong
        );
        cuMemRelease(handle: CUmemGenericAllocationHandle);
        cuMemAddressReserve(
            pointer: *mut CUdeviceptr, bytes: usize, alignment: usize, address: CUdeviceptr, flags: c_ulonglong
        );
        cuMemAddressFree(pointer: CUdeviceptr, bytes: usize);
        cuMemMap(
            pointer: CUdeviceptr, bytes: usize, offset: usize, handle: CUmemGenericAllocationHandle,
            flags: c_ulonglong
        );
        cuMemUnmap(pointer: CUdeviceptr, bytes: usize);
        cuMemSetAccess(pointer: CUdeviceptr, bytes: usize, access: *const CUmemAccessDesc, count: usize);
        cuMemExportToShareableHandle(
            to: *mut c_void, handle: CUmemGenericAllocationHandle, kind: CUmemAllocationHandleType, flags: c_ulonglong
        );
        cuMemImportFromShareableHandle(
            handle: *mut CUmemGenericAllocationHandle, from: *mut c_void, kind: CUmemAllocationHandleType
        );
    }

    optional "12.2" {
        // Headers of 13 use the name for `cuGraphAddNode_v2`.
        cuGraphAddNode(
            node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize,
            params: *mut CUgraphNodeParams
        );
        cuMemPrefetchAsync_v2(
            pointer: CUdeviceptr, count: usize, location: CUmemLocation, flags: c_uint, stream: CUstream
        );
        cuMemAdvise_v2(pointer: CUdeviceptr, count: usize, advice: CUmem_advise, location: CUmemLocation);
    }

    optional "12.3" {
        // The older version refuses graphs with programmatic edges.
        cuGraphGetEdges_v2(
            graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, edges: *mut CUgraphEdgeData,
            count: *mut usize
        );
        cuGraphConditionalHandleCreate(
            handle: *mut CUgraphConditionalHandle, graph: CUgraph, context: CUcontext, initial: c_uint, flags: c_uint
        );
    }

    optional "12.4" {
        cuFuncGetParamInfo(function: CUfunction, index: usize, offset: *mut usize, size: *mut usize);
        cuDeviceGetDevResource(device: CUdevice, resource: *mut CUdevResource, kind: CUdevResourceType);
        cuDevSmResourceSplitByCount(
            groups: *mut CUdevResource, count: *mut c_uint, all: *const CUdevResource, rest: *mut CUdevResource,
            flags: c_uint, least: c_uint
        );
        cuDevResourceGenerateDesc(descriptor: *mut CUdevResourceDesc, resources: *mut CUdevResource, count: c_uint);
        cuGreenCtxCreate(context: *mut CUgreenCtx, descriptor: CUdevResourceDesc, device: CUdevice, flags: c_uint);
    }

    optional "12.5" {
        cuGreenCtxStreamCreate(stream: *mut CUstream, context: CUgreenCtx, flags: c_uint, priority: c_int);
    }

    optional "12.8" {
        // Headers of 13 use the name for `cuMemcpyBatchAsync_v2`.
        cuMemcpyBatchAsync(
            dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr, sizes: *mut usize, count: usize,
            attributes: *mut CUmemcpyAttributes, firsts: *mut usize, attribute_count: usize, failed: *mut usize,
            stream: CUstream
        );
    }

    optional "12.9" {
        cuLogsDumpToMemory(iterator: *mut CUlogIterator, buffer: *mut c_char, size: *mut usize, flags: c_uint);
    }
}

#[cfg(test)]
mod tests {
    use super::{bindings, prototypes};

    /// If we misspelled a function, no bindings could have it, and nothing would be compared. The bindings in this
    /// workspace have every function in the table, so here we must notice.
    #[test]
    fn every_prototype_is_compared() {
        if bindings::CUDA_VERSION != 12_090 {
            eprintln!("skipped: bindings of {}, which lack some", bindings::CUDA_VERSION);
            return;
        }
        let absent: Vec<_> = prototypes::COMPARED.iter().filter(|(_, is_compared)| !is_compared).collect();
        assert!(absent.is_empty(), "{absent:?}");
    }
}
