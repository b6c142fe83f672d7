//! The handles that backends give out.

/// Defines a `Copy` handle: a newtype over a pointer-sized integer, as CUDA's and HIP's handles are.
macro_rules! handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(transparent)]
        pub struct $name(pub usize);

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }
    };
}

handle! {
    /// A stream: `CUstream`, `hipStream_t`.
    RawStream
}
handle! {
    /// An event: `CUevent`, `hipEvent_t`.
    RawEvent
}
handle! {
    /// An address in device memory: `CUdeviceptr`, `hipDeviceptr_t`. Unlike other handles, an address may be offset.
    RawBuffer
}

impl RawBuffer {
    /// Returns the address `bytes` further on.
    #[must_use]
    pub const fn offset(self, bytes: usize) -> Self {
        Self(self.0 + bytes)
    }
}

handle! {
    /// A loaded module: `CUmodule`, `hipModule_t`.
    RawModule
}
handle! {
    /// A kernel of a loaded module: `CUfunction`, `hipFunction_t`. It lives as long as its module.
    RawFunction
}
handle! {
    /// A graph that can be edited: `CUgraph`, `hipGraph_t`.
    RawGraph
}
handle! {
    /// A graph that can be launched: `CUgraphExec`, `hipGraphExec_t`.
    RawGraphExec
}
handle! {
    /// A node of a graph: `CUgraphNode`, `hipGraphNode_t`.
    RawGraphNode
}
