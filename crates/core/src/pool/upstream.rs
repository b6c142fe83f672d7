//! The drivers' plain allocators, under the program's limit.

use std::sync::Arc;

use gpustream_hal::{self as hal, Error, ErrorKind, HostPtr, PinnedOptions, RawBuffer, Result};
use gpustream_timeline::text::Bytes;

use super::SMALL;
use super::arena::Slab;
use crate::inside;
use crate::memory::{self, Kind, PAGE_LOCKED};
use crate::sync::{Mutex, MutexGuard, lock};
use crate::trace;

/// The source of slabs.
pub(super) struct Upstream {
    device: Arc<dyn hal::Device>,
    /// The most bytes of device memory to reserve.
    limit: Option<u64>,
    /// Held while the driver is asked for more memory under a limit, so that two threads do not exceed the limit
    /// together.
    growth: Mutex<()>,
}

impl Upstream {
    pub(super) fn new(device: Arc<dyn hal::Device>, limit: Option<u64>) -> Self {
        Self { device, limit, growth: Mutex::default() }
    }

    /// Keeps other threads from growing memory of this kind, from the look at what is reserved to the entry of the new
    /// slab. Memory without a limit needs no such lock.
    pub(super) fn lock_growth(&self, kind: Kind) -> Option<MutexGuard<'_, ()>> {
        self.limit.filter(|_| kind == Kind::Device).map(|_| lock(&self.growth))
    }

    /// Checks that `size` more bytes may be reserved.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] beyond the limit.
    pub(super) fn check_limit(&self, kind: Kind, reserved: u64, size: usize) -> Result<()> {
        match self.limit {
            Some(limit) if kind == Kind::Device && reserved + size as u64 > limit => Err(over_limit(limit)),
            _ => Ok(()),
        }
    }

    /// Returns the length of an allocation that the driver gives by itself: the length to the byte, since tools that
    /// look for accesses beside an allocation know no other. So a freed allocation serves no request of another length:
    /// the allocation may be shorter than the size it is counted with.
    pub(super) fn exact(&self, bytes: usize) -> usize {
        if self.device.info().checked { bytes } else { bytes.max(1) }
    }

    /// Asks the driver for a slab to cut up or, if there is no room for one, for the request's size alone.
    pub(super) fn alloc_shared(&self, kind: Kind, size: usize, reserved: usize) -> Result<Slab> {
        let preferred = slab_size(kind, size, reserved);
        match self.alloc(kind, preferred, preferred, reserved) {
            Err(error) if preferred > size && error.kind() == ErrorKind::OutOfMemory => {
                self.alloc(kind, size, size, reserved)
            }
            outcome => outcome,
        }
    }

    /// Asks the driver for a slab of `bytes` bytes, which counts as `size` bytes.
    pub(super) fn alloc(&self, kind: Kind, size: usize, bytes: usize, reserved: usize) -> Result<Slab> {
        self.check_limit(kind, reserved as u64, size)?;
        if trace::is_on() {
            return trace::allocation(&self.device, bytes as u64, || self.ask(kind, size, bytes));
        }
        self.ask(kind, size, bytes)
    }

    fn ask(&self, kind: Kind, size: usize, bytes: usize) -> Result<Slab> {
        let options = match kind {
            Kind::Device => {
                let start = self.device.alloc(bytes)?.0;
                return Ok(Slab { start, size, host: 0 });
            }
            Kind::Managed => {
                let start = self.device.managed_alloc(bytes)?.0;
                PAGE_LOCKED.include(start, size);
                return Ok(Slab { start, size, host: start });
            }
            Kind::Pinned | Kind::Registered | Kind::Array | Kind::Texels => PinnedOptions::default(),
            Kind::WriteCombined => PinnedOptions::default().write_combined(true),
        };
        let host = self.device.pinned_alloc(bytes, options)?;
        PAGE_LOCKED.include(host.addr(), size);
        // SAFETY: the memory was just allocated as pinned, and nothing uses it yet.
        let address = unsafe {
            self.device.pinned_device_address(host).inspect_err(|_| {
                let _ = self.device.pinned_free(host);
            })
        };
        Ok(Slab { start: address?.0, size, host: host as usize })
    }

    /// Gives a slab back to the driver.
    ///
    /// # Safety
    /// All uses of the slab are done, and nobody holds any of it.
    pub(super) unsafe fn free(&self, kind: Kind, slab: Slab) {
        memory::note_return();
        let device = self.device.clone();
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

/// Returns how many bytes to ask the driver for. Slabs grow with the bytes that are reserved already, so that their
/// number stays small, and the memory that may lie idle is a share of the memory that is used.
pub(super) fn slab_size(kind: Kind, size: usize, reserved: usize) -> usize {
    let (small, least, most) = match kind {
        Kind::Device => (2 << 20, 16 << 20, 512 << 20),
        // Page-locking takes time in proportion to the size.
        Kind::Pinned
        | Kind::WriteCombined
        | Kind::Managed
        | Kind::Registered
        | Kind::Array
        | Kind::Texels => (256 << 10, 1 << 20, 64 << 20),
    };
    if size <= SMALL {
        return small;
    }
    let wanted = (reserved / 16).clamp(least, most);
    let grain = small;
    size.max(wanted).checked_next_multiple_of(grain).unwrap_or(size)
}

#[cold]
fn over_limit(limit: u64) -> Error {
    let message = format!("the limit of {} for this device would be exceeded", Bytes(limit));
    Error::new(ErrorKind::OutOfMemory, message)
}
