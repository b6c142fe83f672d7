//! The drivers' plain allocators.

use std::sync::Arc;

use gpustream_hal::{self as hal, HostPtr, PinnedOptions, RawBuffer, Result};

use super::Source;
use crate::inside;
use crate::memory::{self, Kind, PAGE_LOCKED};
use crate::pool::arena::Slab;

pub(in crate::pool) struct Allocators(Arc<dyn hal::Device>);

impl Allocators {
    pub(super) fn new(device: Arc<dyn hal::Device>) -> Self {
        Self(device)
    }
}

impl Source for Allocators {
    fn alloc(&self, kind: Kind, size: usize, bytes: usize) -> Result<Slab> {
        let Self(device) = self;
        let options = match kind {
            Kind::Device => {
                let start = device.alloc(bytes)?.0;
                return Ok(Slab { start, size, host: 0 });
            }
            Kind::Managed => {
                let start = device.managed_alloc(bytes)?.0;
                PAGE_LOCKED.include(start, size);
                return Ok(Slab { start, size, host: start });
            }
            Kind::Pinned | Kind::Registered | Kind::Array | Kind::Texels => PinnedOptions::default(),
            Kind::WriteCombined => PinnedOptions::default().write_combined(true),
        };
        let host = device.pinned_alloc(bytes, options)?;
        PAGE_LOCKED.include(host.addr(), size);
        // SAFETY: the memory was just allocated as pinned, and nothing uses it yet.
        let address = unsafe {
            device.pinned_device_address(host).inspect_err(|_| {
                let _ = device.pinned_free(host);
            })
        };
        Ok(Slab { start: address?.0, size, host: host as usize })
    }

    unsafe fn free(&self, kind: Kind, slab: Slab) {
        memory::note_return();
        let device = self.0.clone();
        inside::outside(move || {
            // SAFETY: this function's contract. A failure leaves nothing to do.
            let _ = unsafe {
                match kind {
                    Kind::Device | Kind::Managed => device.free(RawBuffer(slab.start)),
                    Kind::Pinned | Kind::WriteCombined | Kind::Registered | Kind::Array | Kind::Texels => {
                        device.pinned_free(slab.host as HostPtr)
                    }
                }
            };
        });
    }
}
