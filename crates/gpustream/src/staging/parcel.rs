//! The shortest path: a few bytes that go along with the command.
//!
//! A driver may put a short copy from ordinary memory into its command buffer, which costs less than having the copy
//! engine fetch the bytes from page-locked memory. Whether it has read them when the call returns is undocumented in
//! part, and not so where a caller's slice happens to be page-locked. So they are taken from here, where they stay
//! until the stream has passed: nothing rests on when the driver reads.

use gpustream_hal::Result;

use crate::stream_core::StreamCore;

/// Bytes of a part. A mark at its end and a question at its next beginning are all that the driver is asked.
const PART: usize = 64 << 10;

/// Parts that take turns.
const PARTS: usize = 4;

/// Parcels start at multiples of this: the width of a cache line.
const STEP: usize = 64;

/// Ordinary memory for what a stream sends along with its commands, written round and round.
pub(super) struct Parcels {
    memory: Box<[u8]>,
    /// Where the next one goes, in the part that `part` is the number of.
    at: usize,
    part: usize,
    /// The number of the last submission that may read each part.
    until: [u64; PARTS],
    /// Whether the present part is full, and its end marked.
    full: bool,
}

impl Parcels {
    pub(super) fn new() -> Self {
        Self { memory: vec![0; PART * PARTS].into(), at: 0, part: 0, until: [0; PARTS], full: false }
    }

    /// Puts `bytes` where they stay until the stream has passed what is submitted next. Not where that would take
    /// waiting.
    #[inline]
    pub(super) fn put(&mut self, stream: &StreamCore, bytes: &[u8]) -> Result<Option<*const u8>> {
        let len = bytes.len();
        if (self.full || self.at + len > PART) && !self.turn(stream)? {
            return Ok(None);
        }
        let Some(place) =
            self.memory.get_mut(self.part * PART + self.at..).and_then(|rest| rest.get_mut(..len))
        else {
            return Ok(None);
        };
        place.copy_from_slice(bytes);
        self.at = (self.at + len).next_multiple_of(STEP);
        Ok(Some(place.as_ptr()))
    }

    /// Goes to the next part, if the stream is done with what was there.
    #[cold]
    fn turn(&mut self, stream: &StreamCore) -> Result<bool> {
        if !self.full {
            let number = stream.submitted();
            self.until[self.part] = number;
            // So that the end of this part can be told from the end of what follows.
            stream.mark_for(number)?;
            self.full = true;
        }
        let next = (self.part + 1) % PARTS;
        if !stream.query_number(self.until[next])? {
            return Ok(false);
        }
        (self.part, self.at, self.full) = (next, 0, false);
        Ok(true)
    }
}
