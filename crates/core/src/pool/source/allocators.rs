//! The drivers' plain allocators.

use std::sync::Arc;

use gpustream_hal::{
    self as hal, Bytes, Error, ErrorKind, HostPtr, PinnedOptions, RawBuffer, Result, host_memory,
};

use super::Source;
use crate::memory::{self, MemoryKind, PAGE_LOCKED};
use crate::pool::ALIGNED;
use crate::pool::arena::Slab;
use crate::reentrancy;

pub(in crate::pool) struct Allocators(Arc<dyn hal::Device>);

impl Allocators {
    pub(super) fn new(device: Arc<dyn hal::Device>) -> Self {
        Self(device)
    }
}

impl Source for Allocators {
    fn alloc(&self, kind: MemoryKind, size: usize, bytes: usize) -> Result<Slab> {
        let slab = self.ask(kind, size, bytes)?;
        // We check the alignment, because the host makes references there, and drivers only say how they align device
        // memory.
        let least = if self.0.info().quirks.checked { 1 << bytes.trailing_zeros().min(8) } else { ALIGNED };
        if (slab.start | slab.host).is_multiple_of(least) {
            return Ok(slab);
        }
        // SAFETY: the slab is new.
        unsafe { self.free(kind, slab) };
        let message = format!(
            "the driver gave {bytes} bytes of {} at {:#x}, which is not a multiple of {least}; please report this, with the \
             driver's version",
            kind.name(),
            slab.start
        );
        Err(Error::new(ErrorKind::Driver, message))
    }

    unsafe fn free(&self, kind: MemoryKind, slab: Slab) {
        memory::note_return();
        let device = self.0.clone();
        reentrancy::outside(move || {
            // SAFETY: by this function's contract. If this fails, there is nothing that we could do.
            let _ = unsafe {
                match kind {
                    MemoryKind::Device | MemoryKind::Managed => device.free(RawBuffer(slab.start)),
                    MemoryKind::Pinned
                    | MemoryKind::WriteCombined
                    | MemoryKind::Registered
                    | MemoryKind::Array
                    | MemoryKind::Texels => device.pinned_free(slab.host as HostPtr),
                }
            };
        });
    }
}

impl Allocators {
    fn ask(&self, kind: MemoryKind, size: usize, bytes: usize) -> Result<Slab> {
        let Self(device) = self;
        let options = match kind {
            MemoryKind::Device => {
                let start = device.alloc(bytes)?.0;
                return Ok(Slab { start, size, host: 0 });
            }
            MemoryKind::Managed => {
                self.check_room(bytes)?;
                let start = device.managed_alloc(bytes)?.0;
                PAGE_LOCKED.include(start, size);
                return Ok(Slab { start, size, host: start });
            }
            MemoryKind::Pinned | MemoryKind::Registered | MemoryKind::Array | MemoryKind::Texels => {
                PinnedOptions::default()
            }
            MemoryKind::WriteCombined => PinnedOptions::default().write_combined(true),
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

    /// Checks that the device and the host together can hold this many bytes. A driver would hand out managed memory for
    /// more than that, and the system would kill the process when it uses the memory.
    fn check_room(&self, bytes: usize) -> Result<()> {
        let (device, host) = (self.0.info().total_memory, host_memory::total());
        if bytes as u64 <= device.saturating_add(host) {
            return Ok(());
        }
        let (device, host) = (Bytes(device), Bytes(host));
        let message = format!(
            "managed memory must fit into the device's {device} and the host's {host} together; ask for less"
        );
        Err(Error::new(ErrorKind::OutOfMemory, message))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI32, Ordering};

    use gpustream_hal::DeviceInfo;
    use gpustream_hal::noop::{Call, Model, Noop};

    use super::*;

    /// A driver whose memory is aligned to only `self.0` bytes. Counts what is not freed.
    struct Crooked(usize, AtomicI32);

    // SAFETY: the host does not touch this memory, and no host function is called.
    unsafe impl Model for Crooked {
        fn call(&self, call: Call<'_>) -> Result<usize> {
            match call {
                Call::Alloc { .. } | Call::PinnedAlloc { .. } => {
                    self.1.fetch_add(1, Ordering::Relaxed);
                    Ok(4096 + self.0)
                }
                Call::Free(_) | Call::PinnedFree(_) => Ok(self.1.fetch_sub(1, Ordering::Relaxed) as usize),
                Call::PinnedDeviceAddress(address) => Ok(address.addr()),
                _ => Ok(0),
            }
        }
    }

    #[test]
    fn memory_that_is_not_aligned_goes_back() {
        for (align, fits) in [(64, false), (128, false), (256, true), (1024, true)] {
            for kind in [MemoryKind::Device, MemoryKind::Pinned, MemoryKind::WriteCombined] {
                let model = Arc::new(Crooked(align, AtomicI32::new(0)));
                let source = Allocators::new(Arc::new(Noop::new(
                    model.clone(),
                    DeviceInfo::new(gpustream_hal::BackendName::new("crooked"), 0),
                )));
                match source.alloc(kind, 1024, 1000) {
                    Ok(slab) => assert!(fits && slab.start == 4096 + align, "{kind:?} {align}"),
                    Err(error) => {
                        assert!(!fits && error.kind() == ErrorKind::Driver, "{kind:?} {align}: {error}");
                    }
                }
                assert_eq!(model.1.load(Ordering::Relaxed), i32::from(fits), "{kind:?} {align}");
            }
        }
    }
}
