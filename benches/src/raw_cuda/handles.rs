//! Handles of the driver that end when you drop them. Their fields are private, so a closure that uses a handle captures the
//! whole value.

use std::ffi::c_void;
use std::ptr;

use anyhow::Result;
use cudarc::driver::sys::{self, CUdeviceptr, CUevent, CUgraph, CUgraphExec, CUstream};

use crate::measure::Queue;

/// Turns a driver's answer into a result. The driver gives only codes that cudarc has a name for.
macro_rules! driver {
    ($name:ident($($arg:expr),* $(,)?)) => {{
        // SAFETY: every pointer is to a local or to the case's memory, with the size given to the call; handles live as long as
        // the case.
        #[allow(clippy::undocumented_unsafe_blocks)]
        let status = unsafe { sys::$name($($arg),*) };
        if status == sys::CUresult::CUDA_SUCCESS {
            Ok(())
        } else {
            Err(anyhow::anyhow!("{} answered {status:?}", stringify!($name)))
        }
    }};
}
pub(super) use driver;

/// Defines a handle, and the call that ends it.
macro_rules! handle {
    ($(#[$doc:meta])* $name:ident($raw:ty), $destroy:ident) => {
        $(#[$doc])*
        pub(super) struct $name($raw);

        impl $name {
            pub(super) fn raw(&self) -> $raw {
                self.0
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                let _ = driver!($destroy(self.0));
            }
        }
    };
}

handle!(Stream(CUstream), cuStreamDestroy_v2);
handle!(Event(CUevent), cuEventDestroy_v2);
handle!(
    /// Zeroed device memory.
    Memory(CUdeviceptr),
    cuMemFree_v2
);
handle!(
    /// Zeroed pinned memory.
    Pinned(*mut c_void),
    cuMemFreeHost
);

impl Stream {
    pub(super) fn new() -> Result<Self> {
        let mut stream = ptr::null_mut();
        driver!(cuStreamCreate(&raw mut stream, sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32))?;
        Ok(Self(stream))
    }
}

impl Queue for Stream {
    fn finish(&self) -> Result<()> {
        driver!(cuStreamSynchronize(self.0))
    }
}

impl Event {
    pub(super) fn new() -> Result<Self> {
        let mut event = ptr::null_mut();
        driver!(cuEventCreate(&raw mut event, sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32))?;
        Ok(Self(event))
    }
}

impl Memory {
    pub(super) fn new(bytes: usize) -> Result<Self> {
        let mut address = 0;
        driver!(cuMemAlloc_v2(&raw mut address, bytes))?;
        let memory = Self(address);
        driver!(cuMemsetD8_v2(address, 0, bytes))?;
        Ok(memory)
    }
}

impl Pinned {
    pub(super) fn new(bytes: usize) -> Result<Self> {
        let mut address = ptr::null_mut();
        driver!(cuMemHostAlloc(&raw mut address, bytes, 0))?;
        // SAFETY: we have just allocated the memory with this many bytes.
        unsafe { ptr::write_bytes(address.cast::<u8>(), 0, bytes) };
        Ok(Self(address))
    }
}

pub(super) struct Graph {
    graph: CUgraph,
    exec: CUgraphExec,
}

impl Graph {
    /// Makes a graph launchable, and owns it.
    pub(super) fn instantiate(graph: CUgraph) -> Result<Self> {
        let mut made = Self { graph, exec: ptr::null_mut() };
        driver!(cuGraphInstantiateWithFlags(&raw mut made.exec, made.graph, 0))?;
        Ok(made)
    }

    pub(super) fn exec(&self) -> CUgraphExec {
        self.exec
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if !self.exec.is_null() {
            let _ = driver!(cuGraphExecDestroy(self.exec));
        }
        let _ = driver!(cuGraphDestroy(self.graph));
    }
}
