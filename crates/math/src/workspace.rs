//! Workspace of the vendors' libraries, kept for the next call in the same stream.

use std::sync::{Mutex, PoisonError};

use gpustream::{Buffer, Device, Result, Stream};

/// For how many streams a device keeps workspace.
const KEPT: usize = 4;

/// Workspace for the calls of a device. It is memory of the pool, and each call names it as memory that it writes, so calls that
/// share it follow each other. Allocating it in each call would take as long as all checks together.
pub(crate) struct Workspace {
    bytes: usize,
    /// Allocates what we keep. Memory of a stream of the program would keep the program's device, which keeps us.
    stream: Stream,
    /// With the numbers of the streams that used it last; the newest last.
    kept: Mutex<Vec<(u64, Buffer<u8>)>>,
}

impl Workspace {
    /// `device` is a handle that does not keep the device's extensions.
    pub(crate) fn new(device: &Device, bytes: usize) -> Result<Self> {
        Ok(Self { bytes, stream: device.stream()?, kept: Mutex::default() })
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
        let id = stream.id();
        let mut memory = match self.take(id) {
            Some(memory) => memory,
            None => self.stream.alloc(self.bytes)?,
        };
        let outcome = call(&mut memory);
        let forgotten = self.keep(id, memory);
        // Dropping memory takes other locks, so ours is free by now.
        drop(forgotten);
        outcome
    }

    fn take(&self, id: u64) -> Option<Buffer<u8>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|(of, _)| *of == id)?;
        Some(kept.remove(at).1)
    }

    /// Keeps memory, and returns what is to be dropped for it.
    fn keep(&self, id: u64, memory: Buffer<u8>) -> Option<Buffer<u8>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push((id, memory));
        (kept.len() > KEPT).then(|| kept.remove(0).1)
    }
}
