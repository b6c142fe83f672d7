//! Handles of the driver that are destroyed when they are dropped. Their fields are private, so that a closure that
//! uses a handle captures the whole value.

use std::ffi::c_void;
use std::ptr;

use anyhow::Result;
use cudarc::driver::sys::{self, CUdeviceptr, CUevent, CUgraph, CUgraphExec, CUstream};

/// Turns a driver's answer into a result. The driver gives only codes for which cudarc has a name.
macro_rules! driver {
    ($name:ident($($arg:expr),* $(,)?)) => {{
        // SAFETY: every pointer is to a local or to memory of the case, of the size given to the call; handles live as
        // long as the case.
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

pub(super) struct Stream(CUstream);

impl Stream {
    pub(super) fn raw(&self) -> CUstream {
        self.0
    }

    pub(super) fn new() -> Result<Self> {
        let mut stream = ptr::null_mut();
        driver!(cuStreamCreate(&raw mut stream, sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32))?;
        Ok(Self(stream))
    }

    pub(super) fn wait(&self) -> Result<()> {
        driver!(cuStreamSynchronize(self.0))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = driver!(cuStreamDestroy_v2(self.0));
    }
}

pub(super) struct Event(CUevent);

impl Event {
    pub(super) fn raw(&self) -> CUevent {
        self.0
    }

    pub(super) fn new() -> Result<Self> {
        let mut event = ptr::null_mut();
        driver!(cuEventCreate(&raw mut event, sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32))?;
        Ok(Self(event))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _ = driver!(cuEventDestroy_v2(self.0));
    }
}

/// Zeroed device memory.
pub(super) struct Memory(CUdeviceptr);

impl Memory {
    pub(super) fn raw(&self) -> CUdeviceptr {
        self.0
    }

    pub(super) fn device(bytes: usize) -> Result<Self> {
        let mut address = 0;
        driver!(cuMemAlloc_v2(&raw mut address, bytes))?;
        let memory = Self(address);
        driver!(cuMemsetD8_v2(address, 0, bytes))?;
        Ok(memory)
    }

    pub(super) fn pinned(bytes: usize) -> Result<Pinned> {
        let mut address = ptr::null_mut();
        driver!(cuMemHostAlloc(&raw mut address, bytes, 0))?;
        // SAFETY: the memory was just allocated with that many bytes.
        unsafe { ptr::write_bytes(address.cast::<u8>(), 0, bytes) };
        Ok(Pinned(address))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = driver!(cuMemFree_v2(self.0));
    }
}

pub(super) struct Pinned(*mut c_void);

impl Pinned {
    pub(super) fn raw(&self) -> *mut c_void {
        self.0
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = driver!(cuMemFreeHost(self.0));
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
