//! Notes allocations for traces.

use std::sync::Arc;

use gpustream_hal::{self as hal, Result};

use super::Source;
use crate::memory::MemoryKind;
use crate::pool::arena::Slab;
use crate::trace;

pub(in crate::pool) struct Log<S> {
    device: Arc<dyn hal::Device>,
    source: S,
}

impl<S> Log<S> {
    pub(super) fn new(device: Arc<dyn hal::Device>, source: S) -> Self {
        Self { device, source }
    }
}

impl<S: Source> Source for Log<S> {
    fn alloc(&self, kind: MemoryKind, size: usize, bytes: usize) -> Result<Slab> {
        let ask = || self.source.alloc(kind, size, bytes);
        if trace::is_on() { trace::allocation(&self.device, bytes as u64, ask) } else { ask() }
    }

    unsafe fn free(&self, kind: MemoryKind, slab: Slab) {
        // SAFETY: handed on.
        unsafe { self.source.free(kind, slab) }
    }
}
