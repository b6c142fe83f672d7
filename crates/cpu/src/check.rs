//! Checked mode: red zones around a block's dynamic shared memory. If a block changes one, we can tell you
//! which block it was and how far outside it wrote.
//!
//! Static shared arrays are checked when they are indexed, in images that are compiled for it (`arch.rs`,
//! `builtins.cuh`). Device memory is checked by the bytes around it (`memory.rs`), and inside an allocation by
//! comparison (`stray.rs`).

use crate::abi::DYNAMIC_SHARED_MARGIN;

const PATTERN: u8 = 0xa5;

/// A block's red zones.
pub(crate) struct SharedGuard {
    start: Option<*mut u8>,
    bytes: usize,
}

impl SharedGuard {
    /// Fills the bytes around this thread's dynamic shared memory. It begins at `start` (if the module has
    /// any), and the block asked for `bytes` of it.
    ///
    /// # Safety
    /// The module must be loaded, and no block may run on this thread.
    pub(crate) unsafe fn lay(start: Option<*mut u8>, bytes: usize) -> Self {
        if let Some(start) = start {
            // SAFETY: the module keeps a margin on either side; `bytes` is at most the array's size.
            unsafe {
                start.sub(DYNAMIC_SHARED_MARGIN).write_bytes(PATTERN, DYNAMIC_SHARED_MARGIN);
                start.add(bytes).write_bytes(PATTERN, DYNAMIC_SHARED_MARGIN);
            }
        }
        Self { start, bytes }
    }

    /// Returns a message if the block wrote outside the bytes that it asked for.
    pub(crate) fn violation(&self) -> Option<String> {
        let start = self.start?;
        // SAFETY: the module keeps a margin on either side; `bytes` is at most the array's size.
        let (front, back) = unsafe {
            (
                std::slice::from_raw_parts(start.sub(DYNAMIC_SHARED_MARGIN), DYNAMIC_SHARED_MARGIN),
                std::slice::from_raw_parts(start.add(self.bytes), DYNAMIC_SHARED_MARGIN),
            )
        };
        if let Some(at) = back.iter().position(|&b| b != PATTERN) {
            return Some(format!(
                "writes {at} bytes past the end of its {} bytes of dynamic shared memory",
                self.bytes
            ));
        }
        let at = front.iter().rposition(|&b| b != PATTERN)?;
        let before = DYNAMIC_SHARED_MARGIN - at;
        Some(format!("writes {before} bytes before its {} bytes of dynamic shared memory", self.bytes))
    }
}
