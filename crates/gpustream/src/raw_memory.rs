//! Our memory while another library uses it.

use std::fmt;
use std::mem::ManuallyDrop;

use gpustream_core::memory::Access;
use gpustream_core::reentrancy;
use gpustream_core::track::Mode;
use gpustream_hal::{CallSite, RawBuffer};

use crate::buffer::{Owned, hand_over};
use crate::stream::Stream;

/// Device memory that another library uses in the order of a stream. Made by [`Buffer::into_raw`](crate::Buffer::into_raw).
///
/// Drop it to give the memory back. We only use the memory again after everything that was enqueued on the stream by then,
/// through any library. If the other library used it on other streams, it must have made this stream wait for them. Sometimes
/// we cannot ensure that order: because the stream is being captured, is another thread's default stream, or the device has
/// failed. Then the memory is leaked.
///
/// ```
/// # let device = gpustream::Device::open("cpu")?;
/// # let stream = device.stream()?;
/// let buffer = stream.upload(&[1.0f32, 2.0])?;
/// let theirs = buffer.into_raw(&stream)?;
/// // Another library enqueues work on `stream.as_raw()` that uses the 8 bytes at `theirs.as_raw()`.
/// assert_eq!(theirs.bytes(), 8);
/// drop(theirs); // returns at once, and the memory is used again after that work
/// # Ok::<(), gpustream::Error>(())
/// ```
///
/// A `RawMemory` is `Send` and `Sync`.
pub struct RawMemory(ManuallyDrop<Lent>);

struct Lent {
    memory: Owned,
    /// In bytes.
    bytes: usize,
    stream: Stream,
    call_site: CallSite,
}

impl RawMemory {
    pub(crate) fn new(stream: &Stream, memory: Owned, bytes: usize, call_site: CallSite) -> Self {
        Self(ManuallyDrop::new(Lent { memory, bytes, stream: stream.share(), call_site }))
    }

    /// Returns the address, for calls of the other library.
    pub fn as_raw(&self) -> RawBuffer {
        self.0.memory.block().address
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// Returns the stream in whose order the memory is used.
    pub fn stream(&self) -> &Stream {
        &self.0.stream
    }
}

impl Lent {
    /// Gives the memory back, or leaks it if its uses cannot be ordered.
    fn give_back(self) {
        let Self { memory, bytes, stream, call_site: operation } = self;
        let access = Access { block: memory.block(), range: 0..bytes, mode: Mode::Write };
        let ordered = stream.enter(operation).and_then(|entry| {
            entry.check_running(
                "take memory back from another library in it; do so before or after the capture",
            )?;
            hand_over(&entry, &stream, &access, &memory.device)
        });
        if ordered.is_err() {
            std::mem::forget(memory);
        }
    }
}

impl Drop for RawMemory {
    fn drop(&mut self) {
        // SAFETY: the field is not used again.
        let lent = unsafe { ManuallyDrop::take(&mut self.0) };
        reentrancy::outside(move || lent.give_back());
    }
}

impl fmt::Debug for RawMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawMemory({} bytes at {}, in {:?})", self.0.bytes, self.as_raw(), self.0.stream)
    }
}
