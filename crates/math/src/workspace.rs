//! Workspace of the vendors' libraries, kept for the next call in the same stream.

use gpustream::{Buffer, Device, Result, Stream};

use crate::recent::Recent;

/// Workspace for the calls of a device. It is memory of the pool, and each call names it as memory that it writes, so calls that
/// share it follow each other. Allocating it in each call would take as long as all checks together.
pub(crate) struct Workspace {
    bytes: usize,
    /// Allocates what we keep. Memory of a stream of the program would keep the program's device, which keeps us.
    stream: Stream,
    /// By the numbers of the last four streams.
    last: Recent<u64, Buffer<u8>, 4>,
}

impl Workspace {
    /// `device` is a handle that does not keep the device's extensions.
    pub(crate) fn new(device: &Device, bytes: usize) -> Result<Self> {
        Ok(Self { bytes, stream: device.stream()?, last: Recent::default() })
    }

    /// Returns how many bytes a call gets.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes one call, which gets the memory.
    #[track_caller]
    pub(crate) fn lend<R>(
        &self,
        stream: &Stream,
        call: impl FnOnce(&mut Buffer<u8>) -> Result<R>,
    ) -> Result<R> {
        // A graph that outlives the call would share its memory with later calls of the stream, and wait for them.
        if stream.is_recorded() || stream.is_in_step() {
            return call(&mut stream.alloc(self.bytes)?);
        }
        let mut memory = match self.last.take(&stream.id()) {
            Some(memory) => memory,
            None => self.stream.alloc(self.bytes)?,
        };
        let outcome = call(&mut memory);
        self.last.add(stream.id(), memory);
        outcome
    }
}
