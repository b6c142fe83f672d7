//! The driver's functions, as a table of pointers that answer a plain integer.

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_ushort, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;

use cudarc::driver::sys::{
    self, CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction, CUfunction_attribute,
    CUgraph, CUgraphEdgeData, CUgraphExec, CUgraphExecUpdateResultInfo, CUgraphNode, CUhostFn, CUjit_option,
    CUlaunchAttributeID, CUlaunchAttributeValue, CUlaunchConfig, CUmem_advise, CUmemLocation,
    CUmemcpyAttributes, CUmodule, CUoccupancyB2DSize, CUstream, CUstreamCaptureMode, CUstreamCaptureStatus,
};
use cudarc::driver::sys::{
    CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS,
};
use gpustream_hal::library::{Search, file_of};
use gpustream_hal::{Error, ErrorKind, Result};
use libloading::Library;

use crate::context::Context;
use crate::error::{advice, describe, failed};
use crate::library::driver_names;

/// What a driver function answered: a `CUresult` read as an integer, since newer drivers return codes that
/// cudarc's enum does not have.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(pub(crate) u32);

impl Status {
    /// `CUDA_SUCCESS`.
    pub(crate) const OK: Self = Self(0);
    /// `CUDA_ERROR_INVALID_VALUE`.
    pub(crate) const INVALID_VALUE: Self = Self(1);
    /// `CUDA_ERROR_NOT_READY`.
    pub(crate) const NOT_READY: Self = Self(600);
    /// `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`.
    pub(crate) const PEER_ACCESS_ALREADY_ENABLED: Self = Self(704);
    /// `CUDA_ERROR_NOT_SUPPORTED`.
    pub(crate) const NOT_SUPPORTED: Self = Self(801);
    /// `CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE`.
    pub(crate) const GRAPH_EXEC_UPDATE_FAILURE: Self = Self(910);
}

/// Defines the table. Each prototype is compared with cudarc's at compile time, and differs from it in the
/// return type alone (`by_code`: in the first parameter too, which is a code).
///
/// `required` functions exist in every driver since CUDA 12.0; a library without one of them is refused.
/// `optional` ones came later: absent is `None`.
macro_rules! functions {
    (
        required { $($name:ident($($arg:ty),*);)* }
        optional { $($opt:ident($($opt_arg:ty),*);)* }
        by_code { $($code:ident($($code_arg:ty),*);)* }
    ) => {
        /// Pointers to the driver's functions, under the names it exports.
        #[allow(non_snake_case)]
        pub(crate) struct Functions {
            $(pub(crate) $name: unsafe extern "C" fn($($arg),*) -> Status,)*
            $(pub(crate) $opt: Option<unsafe extern "C" fn($($opt_arg),*) -> Status>,)*
            $(pub(crate) $code: unsafe extern "C" fn(Status, $($code_arg),*) -> Status,)*
        }

        $(const _: unsafe fn($($arg),*) -> sys::CUresult = sys::$name;)*
        $(const _: unsafe fn($($opt_arg),*) -> sys::CUresult = sys::$opt;)*
        $(const _: unsafe fn(sys::CUresult, $($code_arg),*) -> sys::CUresult = sys::$code;)*

        impl Functions {
            /// Looks every function up; the name of the first required one that is missing otherwise.
            fn load(library: &Library) -> Result<Self, &'static str> {
                // SAFETY: each name is looked up with the prototype cudarc's bindings give it (checked above),
                // except that the result, a C enum, is read as the integer it is. `Status` is transparent.
                unsafe {
                    Ok(Self {
                        $($name: *library.get(stringify!($name)).map_err(|_| stringify!($name))?,)*
                        $($opt: library.get(stringify!($opt)).ok().map(|symbol| *symbol),)*
                        $($code: *library.get(stringify!($code)).map_err(|_| stringify!($code))?,)*
                    })
                }
            }
        }
    };
}

const _: () = assert!(size_of::<Status>() == size_of::<sys::CUresult>());

functions! {
    required {
        cuInit(c_uint);
        cuDriverGetVersion(*mut c_int);
        cuDeviceGetCount(*mut c_int);
        cuDeviceGet(*mut CUdevice, c_int);
        cuDeviceGetName(*mut c_char, c_int, CUdevice);
        cuDeviceTotalMem_v2(*mut usize, CUdevice);
        cuDeviceGetAttribute(*mut c_int, CUdevice_attribute, CUdevice);
        cuDeviceCanAccessPeer(*mut c_int, CUdevice, CUdevice);
        cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice);

        cuCtxGetCurrent(*mut CUcontext);
        cuCtxSetCurrent(CUcontext);
        cuCtxSynchronize();
        cuCtxGetStreamPriorityRange(*mut c_int, *mut c_int);
        cuCtxEnablePeerAccess(CUcontext, c_uint);

        cuStreamCreateWithPriority(*mut CUstream, c_uint, c_int);
        cuStreamDestroy_v2(CUstream);
        cuStreamQuery(CUstream);
        cuStreamSynchronize(CUstream);
        cuStreamWaitEvent(CUstream, CUevent, c_uint);
        cuLaunchHostFunc(CUstream, CUhostFn, *mut c_void);

        cuEventCreate(*mut CUevent, c_uint);
        cuEventDestroy_v2(CUevent);
        cuEventRecord(CUevent, CUstream);
        cuEventQuery(CUevent);
        cuEventSynchronize(CUevent);
        cuEventElapsedTime(*mut f32, CUevent, CUevent);

        cuMemGetInfo_v2(*mut usize, *mut usize);
        cuMemAlloc_v2(*mut CUdeviceptr, usize);
        cuMemFree_v2(CUdeviceptr);
        cuMemAllocAsync(*mut CUdeviceptr, usize, CUstream);
        cuMemFreeAsync(CUdeviceptr, CUstream);
        cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
        cuMemFreeHost(*mut c_void);
        cuMemHostRegister_v2(*mut c_void, usize, c_uint);
        cuMemHostUnregister(*mut c_void);
        cuMemHostGetDevicePointer_v2(*mut CUdeviceptr, *mut c_void, c_uint);
        cuMemAllocManaged(*mut CUdeviceptr, usize, c_uint);
        cuMemsetD8Async(CUdeviceptr, c_uchar, usize, CUstream);
        cuMemsetD16Async(CUdeviceptr, c_ushort, usize, CUstream);
        cuMemsetD32Async(CUdeviceptr, c_uint, usize, CUstream);
        cuMemcpyHtoDAsync_v2(CUdeviceptr, *const c_void, usize, CUstream);
        cuMemcpyDtoHAsync_v2(*mut c_void, CUdeviceptr, usize, CUstream);
        cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, usize, CUstream);
        cuMemcpyPeerAsync(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, usize, CUstream);
        cuMemcpy3DAsync_v2(*const CUDA_MEMCPY3D, CUstream);

        cuModuleLoadDataEx(*mut CUmodule, *const c_void, c_uint, *mut CUjit_option, *mut *mut c_void);
        cuModuleUnload(CUmodule);
        cuModuleGetFunction(*mut CUfunction, CUmodule, *const c_char);
        cuFuncGetAttribute(*mut c_int, CUfunction_attribute, CUfunction);
        cuFuncSetAttribute(CUfunction, CUfunction_attribute, c_int);

        cuLaunchKernel(
            CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, *mut *mut c_void,
            *mut *mut c_void
        );
        cuLaunchKernelEx(*const CUlaunchConfig, CUfunction, *mut *mut c_void, *mut *mut c_void);
        cuOccupancyMaxActiveBlocksPerMultiprocessor(*mut c_int, CUfunction, c_int, usize);
        cuOccupancyMaxPotentialBlockSize(*mut c_int, *mut c_int, CUfunction, CUoccupancyB2DSize, usize, c_int);

        cuStreamBeginCapture_v2(CUstream, CUstreamCaptureMode);
        cuStreamEndCapture(CUstream, *mut CUgraph);
        cuStreamIsCapturing(CUstream, *mut CUstreamCaptureStatus);
        cuGraphCreate(*mut CUgraph, c_uint);
        cuGraphDestroy(CUgraph);
        cuGraphGetNodes(CUgraph, *mut CUgraphNode, *mut usize);
        cuGraphGetEdges(CUgraph, *mut CUgraphNode, *mut CUgraphNode, *mut usize);
        cuGraphAddEmptyNode(*mut CUgraphNode, CUgraph, *const CUgraphNode, usize);
        cuGraphAddKernelNode_v2(
            *mut CUgraphNode, CUgraph, *const CUgraphNode, usize, *const CUDA_KERNEL_NODE_PARAMS
        );
        cuGraphAddMemcpyNode(
            *mut CUgraphNode, CUgraph, *const CUgraphNode, usize, *const CUDA_MEMCPY3D, CUcontext
        );
        cuGraphAddMemsetNode(
            *mut CUgraphNode, CUgraph, *const CUgraphNode, usize, *const CUDA_MEMSET_NODE_PARAMS, CUcontext
        );
        cuGraphAddHostNode(
            *mut CUgraphNode, CUgraph, *const CUgraphNode, usize, *const CUDA_HOST_NODE_PARAMS
        );
        cuGraphAddChildGraphNode(*mut CUgraphNode, CUgraph, *const CUgraphNode, usize, CUgraph);
        cuGraphDestroyNode(CUgraphNode);
        cuGraphKernelNodeSetAttribute(CUgraphNode, CUlaunchAttributeID, *const CUlaunchAttributeValue);
        cuGraphInstantiateWithFlags(*mut CUgraphExec, CUgraph, c_ulonglong);
        cuGraphLaunch(CUgraphExec, CUstream);
        cuGraphUpload(CUgraphExec, CUstream);
        cuGraphExecUpdate_v2(CUgraphExec, CUgraph, *mut CUgraphExecUpdateResultInfo);
        cuGraphExecKernelNodeSetParams_v2(CUgraphExec, CUgraphNode, *const CUDA_KERNEL_NODE_PARAMS);
        cuGraphExecMemcpyNodeSetParams(CUgraphExec, CUgraphNode, *const CUDA_MEMCPY3D, CUcontext);
        cuGraphExecMemsetNodeSetParams(CUgraphExec, CUgraphNode, *const CUDA_MEMSET_NODE_PARAMS, CUcontext);
        cuGraphExecHostNodeSetParams(CUgraphExec, CUgraphNode, *const CUDA_HOST_NODE_PARAMS);
        cuGraphExecDestroy(CUgraphExec);
    }
    optional {
        // CUDA 12.4.
        cuFuncGetParamInfo(CUfunction, usize, *mut usize, *mut usize);
        // CUDA 12.8. What 13 headers call by this name is `cuMemcpyBatchAsync_v2`.
        cuMemcpyBatchAsync(
            *mut CUdeviceptr, *mut CUdeviceptr, *mut usize, usize, *mut CUmemcpyAttributes, *mut usize, usize,
            *mut usize, CUstream
        );
        // CUDA 12.3; the older one refuses graphs with programmatic edges.
        cuGraphGetEdges_v2(CUgraph, *mut CUgraphNode, *mut CUgraphNode, *mut CUgraphEdgeData, *mut usize);
        // The first two are what 12.0 has; the others came with 12.2, and 13 headers know them alone.
        cuMemPrefetchAsync(CUdeviceptr, usize, CUdevice, CUstream);
        cuMemAdvise(CUdeviceptr, usize, CUmem_advise, CUdevice);
        cuMemPrefetchAsync_v2(CUdeviceptr, usize, CUmemLocation, c_uint, CUstream);
        cuMemAdvise_v2(CUdeviceptr, usize, CUmem_advise, CUmemLocation);
    }
    by_code {
        cuGetErrorName(*mut *const c_char);
        cuGetErrorString(*mut *const c_char);
    }
}

/// The opened and initialised driver. One per process.
pub(crate) struct Driver {
    pub(crate) api: Functions,
    /// As `cuDriverGetVersion` writes it: 12080 is 12.8.
    pub(crate) version: c_int,
    /// Primary contexts by device ordinal, filled on first use and kept until the process ends.
    pub(crate) contexts: Box<[OnceLock<Context>]>,
}

/// What opening the driver came to; kept for [`Probe`](gpustream_hal::Probe).
pub(crate) struct Found {
    pub(crate) driver: Result<Driver>,
    pub(crate) library: Option<PathBuf>,
    pub(crate) tried: Vec<String>,
}

/// Opens and initialises the driver on first use; later calls return the same answer.
pub(crate) fn found() -> &'static Found {
    static FOUND: OnceLock<Found> = OnceLock::new();
    FOUND.get_or_init(|| {
        // SAFETY: the names are those of NVIDIA's driver.
        let Search { library, tried } = unsafe { Search::open("GPUSTREAM_CUDA_LIBRARY", driver_names()) };
        let Some(library) = library else {
            return Found { driver: Err(missing(&tried)), library: None, tried };
        };
        match Functions::load(&library) {
            Ok(api) => {
                // The table's pointers outlive this scope: the library stays open for good.
                std::mem::forget(library);
                let path = file_of(api.cuInit as usize);
                Found { driver: Driver::initialise(api), library: path, tried }
            }
            Err(symbol) => {
                let name = tried.last().map_or("libcuda", String::as_str);
                let driver = Err(Error::new(
                    ErrorKind::DriverMissing,
                    format!(
                        "{name} has no function {symbol}: the driver is older than CUDA 12.0, or this is not \
                         NVIDIA's driver library; install driver 525 or newer"
                    ),
                )
                .with_backend("cuda"));
                Found { driver, library: Some(name.into()), tried }
            }
        }
    })
}

/// The driver, or why there is none.
pub(crate) fn driver() -> Result<&'static Driver> {
    found().driver.as_ref().map_err(Clone::clone)
}

impl Driver {
    fn initialise(api: Functions) -> Result<Self> {
        // SAFETY: cuInit takes no pointers.
        let status = unsafe { (api.cuInit)(0) };
        if status != Status::OK {
            let kind = match status.0 {
                // Hidden by CUDA_VISIBLE_DEVICES, or there is none.
                100 | 101 => ErrorKind::NoDevice,
                // Whatever else keeps the driver from starting, the remedy is at the driver's installation.
                _ => ErrorKind::DriverMissing,
            };
            let text = format!("{}; {}", describe(&api, status), advice(status));
            return Err(Error::new(kind, text).with_call("cuInit", status.0.into()).with_backend("cuda"));
        }
        let mut version = 0;
        // SAFETY: the pointer is to a local integer.
        let status = unsafe { (api.cuDriverGetVersion)(&raw mut version) };
        if status != Status::OK {
            return Err(failed(&api, "cuDriverGetVersion", status));
        }
        if version < 12_000 {
            return Err(Error::new(
                ErrorKind::DriverMissing,
                format!(
                    "the driver supports CUDA {}, and 12.0 is needed: install driver 525 or newer",
                    version_text(version)
                ),
            )
            .with_backend("cuda"));
        }
        let mut count = 0;
        // SAFETY: the pointer is to a local integer.
        let status = unsafe { (api.cuDeviceGetCount)(&raw mut count) };
        if status != Status::OK {
            return Err(failed(&api, "cuDeviceGetCount", status));
        }
        let contexts = (0..count).map(|_| OnceLock::new()).collect();
        Ok(Self { api, version, contexts })
    }

    /// Turns a function's answer into a result that names the function.
    #[inline]
    pub(crate) fn check(&self, call: &'static str, status: Status) -> Result<()> {
        if status == Status::OK { Ok(()) } else { Err(failed(&self.api, call, status)) }
    }

    /// The version as the vendor writes it.
    pub(crate) fn version_text(&self) -> String {
        version_text(self.version)
    }
}

fn version_text(version: c_int) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

fn missing(tried: &[String]) -> Error {
    let tried = if tried.is_empty() { "nothing".to_owned() } else { tried.join("; ") };
    Error::new(
        ErrorKind::DriverMissing,
        format!(
            "NVIDIA's driver library was not found; install the NVIDIA driver (in a container: start it with \
             GPU access, for example `--gpus all`), or set GPUSTREAM_CUDA_LIBRARY to libcuda.so.1; tried: {tried}"
        ),
    )
    .with_backend("cuda")
}

/// Calls a function of the table and turns its answer into a result that carries the function's name.
///
/// `call!(driver, cuMemFree_v2(pointer))`. Expands to an expression that must stand in an `unsafe` block.
macro_rules! call {
    ($driver:expr, $name:ident($($arg:expr),* $(,)?)) => {{
        let driver: &$crate::driver::Driver = $driver;
        driver.check(stringify!($name), (driver.api.$name)($($arg),*))
    }};
}
pub(crate) use call;
