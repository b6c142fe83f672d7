//! The handles that backends give out.

/// Defines `Copy` handles: newtypes around an integer of pointer size, because CUDA's and HIP's handles have that size.
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

/// Defines functions that convert a handle to the driver's own type, for a driver's crate.
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
    /// An array. The device decides its layout: `CUarray`, `hipArray_t`.
    RawArray
    /// A texture, in the form that kernels take: `cudaTextureObject_t`, `hipTextureObject_t`.
    RawTexture
    /// A surface, in the form that kernels take: `cudaSurfaceObject_t`, `hipSurfaceObject_t`.
    RawSurface
}

impl std::fmt::Display for RawBuffer {
    /// `0x7f3a5c000000`
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl RawBuffer {
    /// Returns the address that is `bytes` bytes further on.
    #[must_use]
    pub const fn offset(self, bytes: usize) -> Self {
        Self(self.0 + bytes)
    }

    /// Returns the address as a pointer. If the device is a GPU, the host must not access memory through it.
    #[must_use]
    pub fn as_mut_ptr<T>(self) -> *mut T {
        std::ptr::with_exposed_provenance_mut(self.0)
    }
}
