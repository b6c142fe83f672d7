//! The handles that backends give out.

/// Defines `Copy` handles: newtypes over a pointer-sized integer, as CUDA's and HIP's handles are.
macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(transparent)]
        pub struct $name(pub usize);

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }
    )*};
}

/// Defines functions that return a handle as the driver's own, for the crate of a driver.
#[macro_export]
macro_rules! handles_of_driver {
    ($($name:ident: $raw:ident => $own:ty;)*) => {$(
        pub(crate) fn $name(handle: $crate::$raw) -> $own {
            handle.0 as $own
        }
    )*};
}

handles! {
    /// A stream: `CUstream`, `hipStream_t`.
    RawStream
    /// An event: `CUevent`, `hipEvent_t`.
    RawEvent
    /// An address in device memory: `CUdeviceptr`, `hipDeviceptr_t`. Unlike other handles, an address may be offset.
    RawBuffer
    /// A loaded module: `CUmodule`, `hipModule_t`.
    RawModule
    /// A kernel of a loaded module: `CUfunction`, `hipFunction_t`. It lives as long as its module.
    RawFunction
    /// A graph that can be edited: `CUgraph`, `hipGraph_t`.
    RawGraph
    /// A graph that can be launched: `CUgraphExec`, `hipGraphExec_t`.
    RawGraphExec
    /// A node of a graph: `CUgraphNode`, `hipGraphNode_t`.
    RawGraphNode
    /// An array, whose layout is the device's: `CUarray`, `hipArray_t`.
    RawArray
    /// A texture, as kernels take it: `cudaTextureObject_t`, `hipTextureObject_t`.
    RawTexture
    /// A surface, as kernels take it: `cudaSurfaceObject_t`, `hipSurfaceObject_t`.
    RawSurface
}

impl std::fmt::Display for RawBuffer {
    /// `0x7f3a5c000000`
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl RawBuffer {
    /// Returns the address `bytes` further on.
    #[must_use]
    pub const fn offset(self, bytes: usize) -> Self {
        Self(self.0 + bytes)
    }

    /// Returns the address as a pointer. On a GPU the host reaches nothing through it.
    #[must_use]
    pub fn as_mut_ptr<T>(self) -> *mut T {
        std::ptr::with_exposed_provenance_mut(self.0)
    }
}
