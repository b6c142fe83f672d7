// The vendors' host functions by name only, so that headers with host functions beside device functions compile. If a
// kernel calls one, it gets an error that says so. The build leaves out the host functions in the kernel file itself.
#ifndef GPUSTREAM_CPU_HOST_API_CUH
#define GPUSTREAM_CPU_HOST_API_CUH

#if defined(__has_attribute)
#if __has_attribute(error)
#define GS_CPU_HOST_ERROR(name)                                                                             \
    __attribute__((error(#name " is a function of the host, which kernels cannot call: memory, streams and launches are " \
                               "the Rust program's")))
#endif
#endif
#ifndef GS_CPU_HOST_ERROR
#define GS_CPU_HOST_ERROR(name)
#endif

// Any arguments will do, because nothing may call these functions.
#define GS_CPU_HOST_CALL(Result, name) \
    template <class... Any>            \
    GS_CPU_HOST_ERROR(name) Result name(Any&&...);

#define GS_CPU_HOST_API(vendor)                                                                             \
    enum vendor##Error_t { vendor##Success, vendor##ErrorInvalidValue, vendor##ErrorMemoryAllocation,       \
                           vendor##ErrorUnknown, vendor##ErrorNotReady };                                   \
    enum vendor##MemcpyKind { vendor##MemcpyHostToHost, vendor##MemcpyHostToDevice, vendor##MemcpyDeviceToHost, \
                              vendor##MemcpyDeviceToDevice, vendor##MemcpyDefault };                        \
    typedef struct gs_cpu_host_##vendor##_stream* vendor##Stream_t;                                         \
    typedef struct gs_cpu_host_##vendor##_event* vendor##Event_t;                                           \
    typedef struct gs_cpu_host_##vendor##_graph* vendor##Graph_t;                                           \
    typedef struct gs_cpu_host_##vendor##_exec* vendor##GraphExec_t;                                        \
    typedef struct gs_cpu_host_##vendor##_array* vendor##Array_t;                                           \
    typedef unsigned long long vendor##TextureObject_t;                                                     \
    typedef unsigned long long vendor##SurfaceObject_t;                                                     \
    GS_CPU_HOST_CALL(const char*, vendor##GetErrorString)                                                   \
    GS_CPU_HOST_CALL(const char*, vendor##GetErrorName)                                                     \
    GS_CPU_HOST_CALLS(vendor)

#define GS_CPU_HOST_CALLS_(vendor, X)                                                                       \
    X(Malloc) X(MallocManaged) X(MallocPitch) X(MallocAsync) X(Free) X(FreeAsync) X(HostAlloc) X(HostMalloc) \
    X(MallocHost) X(FreeHost) X(HostFree) X(HostRegister) X(HostUnregister) X(HostGetDevicePointer) X(Memcpy) \
    X(MemcpyAsync) X(Memcpy2D) X(Memcpy2DAsync) X(Memcpy3D) X(MemcpyToSymbol) X(MemcpyFromSymbol)           \
    X(MemcpyToSymbolAsync) X(GetSymbolAddress) X(Memset) X(MemsetAsync) X(Memset2D) X(MemGetInfo)           \
    X(MemPrefetchAsync) X(MemAdvise) X(GetDevice) X(SetDevice) X(GetDeviceCount) X(GetDeviceProperties)     \
    X(ChooseDevice) X(SetDeviceFlags) X(DeviceGetAttribute) X(DeviceReset) X(DeviceSynchronize)             \
    X(DeviceCanAccessPeer) X(DeviceEnablePeerAccess) X(DeviceDisablePeerAccess) X(ThreadSynchronize)        \
    X(GetLastError) X(PeekAtLastError) X(StreamCreate) X(StreamCreateWithFlags) X(StreamCreateWithPriority) \
    X(StreamDestroy) X(StreamSynchronize) X(StreamQuery) X(StreamWaitEvent) X(StreamAddCallback) X(EventCreate) \
    X(EventCreateWithFlags) X(EventRecord) X(EventSynchronize) X(EventElapsedTime) X(EventQuery) X(EventDestroy) \
    X(FuncGetAttributes) X(FuncSetAttribute) X(FuncSetCacheConfig) X(LaunchKernel) X(LaunchCooperativeKernel) \
    X(OccupancyMaxActiveBlocksPerMultiprocessor) X(OccupancyMaxPotentialBlockSize) X(CreateTextureObject)   \
    X(DestroyTextureObject) X(CreateSurfaceObject) X(DestroySurfaceObject) X(FreeArray) X(MallocArray)      \
    X(Malloc3DArray) X(BindTexture) X(UnbindTexture) X(ProfilerStart) X(ProfilerStop) X(DriverGetVersion)   \
    X(RuntimeGetVersion)
#define GS_CPU_HOST_CALLS(vendor) GS_CPU_HOST_CALLS_##vendor()
#define GS_CPU_HOST_CUDA(name) GS_CPU_HOST_CALL(cudaError_t, cuda##name)
#define GS_CPU_HOST_HIP(name) GS_CPU_HOST_CALL(hipError_t, hip##name)
#define GS_CPU_HOST_CALLS_cuda() GS_CPU_HOST_CALLS_(cuda, GS_CPU_HOST_CUDA)
#define GS_CPU_HOST_CALLS_hip() GS_CPU_HOST_CALLS_(hip, GS_CPU_HOST_HIP)
GS_CPU_HOST_API(cuda)
GS_CPU_HOST_API(hip)

typedef cudaError_t cudaError;
enum cudaTextureReadMode { cudaReadModeElementType, cudaReadModeNormalizedFloat };
enum cudaResourceType { cudaResourceTypeArray, cudaResourceTypeMipmappedArray, cudaResourceTypeLinear,
                        cudaResourceTypePitch2D };
enum cudaTextureAddressMode { cudaAddressModeWrap, cudaAddressModeClamp, cudaAddressModeMirror, cudaAddressModeBorder };
enum cudaTextureFilterMode { cudaFilterModePoint, cudaFilterModeLinear };
struct cudaExtent { size_t width, height, depth; };
struct cudaPitchedPtr { void* ptr; size_t pitch, xsize, ysize; };
struct cudaArray;
typedef unsigned long long cudaGraphConditionalHandle;
enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1 };
enum { cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2 };
enum { cudaHostAllocDefault = 0, cudaHostAllocPortable = 1, cudaHostAllocMapped = 2 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
                         cudaFuncAttributePreferredSharedMemoryCarveout = 9 };
enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_64F = 1, CUDA_R_16F = 2, CUDA_R_8I = 3, CUDA_C_32F = 4, CUDA_C_64F = 5,
                      CUDA_R_32I = 10, CUDA_R_16BF = 14, CUDA_R_8F_E4M3 = 28, CUDA_R_8F_E5M2 = 29 };
typedef cudaDataType_t cudaDataType;
#define CUDART_CB
#ifndef CUDART_VERSION
#define CUDART_VERSION 12040
#endif
#ifndef CUDA_VERSION
#define CUDA_VERSION 12040  // a number, so that an `#if` about it also holds in a first pass of the preprocessor
#endif

// The attributes of a device, without those of textures and surfaces.
enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1, cudaDevAttrMaxBlockDimX = 2, cudaDevAttrMaxBlockDimY = 3,
    cudaDevAttrMaxBlockDimZ = 4, cudaDevAttrMaxGridDimX = 5, cudaDevAttrMaxGridDimY = 6, cudaDevAttrMaxGridDimZ = 7,
    cudaDevAttrMaxSharedMemoryPerBlock = 8, cudaDevAttrTotalConstantMemory = 9, cudaDevAttrWarpSize = 10,
    cudaDevAttrMaxPitch = 11, cudaDevAttrMaxRegistersPerBlock = 12, cudaDevAttrClockRate = 13,
    cudaDevAttrTextureAlignment = 14, cudaDevAttrGpuOverlap = 15, cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrKernelExecTimeout = 17, cudaDevAttrIntegrated = 18, cudaDevAttrCanMapHostMemory = 19,
    cudaDevAttrComputeMode = 20, cudaDevAttrSurfaceAlignment = 30, cudaDevAttrConcurrentKernels = 31,
    cudaDevAttrEccEnabled = 32, cudaDevAttrPciBusId = 33, cudaDevAttrPciDeviceId = 34, cudaDevAttrTccDriver = 35,
    cudaDevAttrMemoryClockRate = 36, cudaDevAttrGlobalMemoryBusWidth = 37, cudaDevAttrL2CacheSize = 38,
    cudaDevAttrMaxThreadsPerMultiProcessor = 39, cudaDevAttrAsyncEngineCount = 40, cudaDevAttrUnifiedAddressing = 41,
    cudaDevAttrPciDomainId = 50, cudaDevAttrTexturePitchAlignment = 51, cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76, cudaDevAttrStreamPrioritiesSupported = 78,
    cudaDevAttrGlobalL1CacheSupported = 79, cudaDevAttrLocalL1CacheSupported = 80,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81, cudaDevAttrMaxRegistersPerMultiprocessor = 82,
    cudaDevAttrManagedMemory = 83, cudaDevAttrIsMultiGpuBoard = 84, cudaDevAttrMultiGpuBoardGroupID = 85,
    cudaDevAttrHostNativeAtomicSupported = 86, cudaDevAttrSingleToDoublePrecisionPerfRatio = 87,
    cudaDevAttrPageableMemoryAccess = 88, cudaDevAttrConcurrentManagedAccess = 89,
    cudaDevAttrComputePreemptionSupported = 90, cudaDevAttrCanUseHostPointerForRegisteredMem = 91,
    cudaDevAttrCooperativeLaunch = 95, cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
    cudaDevAttrCanFlushRemoteWrites = 98, cudaDevAttrHostRegisterSupported = 99,
    cudaDevAttrPageableMemoryAccessUsesHostPageTables = 100, cudaDevAttrDirectManagedMemAccessFromHost = 101,
    cudaDevAttrMaxBlocksPerMultiprocessor = 106, cudaDevAttrMaxPersistingL2CacheSize = 108,
    cudaDevAttrMaxAccessPolicyWindowSize = 109, cudaDevAttrSparseCudaArraySupported = 112,
    cudaDevAttrHostRegisterReadOnlySupported = 113, cudaDevAttrTimelineSemaphoreInteropSupported = 114,
    cudaDevAttrMemoryPoolsSupported = 115, cudaDevAttrGPUDirectRDMASupported = 116,
    cudaDevAttrGPUDirectRDMAFlushWritesOptions = 117, cudaDevAttrGPUDirectRDMAWritesOrdering = 118,
    cudaDevAttrMemoryPoolSupportedHandleTypes = 119, cudaDevAttrClusterLaunch = 120
};

// What a program may ask about a device, as far as programs do.
struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor, totalConstMem, memPitch,
        textureAlignment;
    int regsPerBlock, regsPerMultiprocessor, warpSize, maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], clockRate,
        major, minor, multiProcessorCount, maxThreadsPerMultiProcessor, maxBlocksPerMultiProcessor, l2CacheSize,
        persistingL2CacheMaxSize, memoryBusWidth, memoryClockRate, concurrentKernels, asyncEngineCount, integrated,
        canMapHostMemory, unifiedAddressing, managedMemory, concurrentManagedAccess, cooperativeLaunch, deviceOverlap,
        computeMode, ECCEnabled, pciBusID, pciDeviceID, pciDomainID;
};
typedef cudaDeviceProp hipDeviceProp_t;

// The driver's interface.
enum CUresult { CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_UNKNOWN = 999 };
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUtexObject;
typedef unsigned long long CUsurfObject;
typedef struct gs_cpu_host_context* CUcontext;
typedef struct gs_cpu_host_module* CUmodule;
typedef struct gs_cpu_host_function* CUfunction;
typedef struct gs_cpu_host_array* CUarray;
typedef cudaStream_t CUstream;
typedef cudaEvent_t CUevent;
GS_CPU_HOST_CALL(CUresult, cuGetErrorName)
GS_CPU_HOST_CALL(CUresult, cuGetErrorString)
GS_CPU_HOST_CALL(CUresult, cuInit)
GS_CPU_HOST_CALL(CUresult, cuDeviceGet)
GS_CPU_HOST_CALL(CUresult, cuDeviceGetName)
GS_CPU_HOST_CALL(CUresult, cuDeviceGetCount)
GS_CPU_HOST_CALL(CUresult, cuDeviceGetAttribute)

#endif
