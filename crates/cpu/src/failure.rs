//! How we report a failed kernel: the place and the reason.

use std::ffi::{CStr, c_char};

use crate::abi::Lane;
use crate::fiber::LOCALS_BYTES;

/// The line in the source that a thread waits in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    pub(crate) file: *const c_char,
    pub(crate) line: u32,
}

impl Default for Site {
    fn default() -> Self {
        Self { file: std::ptr::null(), line: 0 }
    }
}

impl From<&Lane> for Site {
    fn from(lane: &Lane) -> Self {
        Self { file: lane.file, line: lane.line }
    }
}

impl std::fmt::Display for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.file.is_null() {
            return write!(f, "an unknown place");
        }
        // SAFETY: the compiler's __builtin_FILE(), a literal of the module, which is loaded.
        let file = unsafe { CStr::from_ptr(self.file) }.to_string_lossy();
        write!(f, "{file}:{}", self.line)
    }
}

/// The block and thread that failed, and the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Linear number of the block.
    pub(crate) block: u64,
    /// The number of the thread in its block, if we know it.
    pub(crate) thread: Option<u32>,
    pub(crate) message: String,
}

/// A crash, as the signal handler saw it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crash {
    pub(crate) signal: i32,
    pub(crate) address: usize,
    /// True if the address is just past the thread's stack.
    pub(crate) overflow: bool,
}

impl Crash {
    /// Returns true if `address` is memory that the kernel wanted to access. A trap's address is that of its
    /// own instruction.
    pub(crate) fn is_access(&self) -> bool {
        !self.overflow && matches!(self.signal, libc::SIGSEGV | libc::SIGBUS)
    }
}

impl std::fmt::Display for Crash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.overflow {
            return write!(
                f,
                "needs more stack than the {} KiB that a thread has for local variables: a local array is too large, \
                 or a recursion too deep",
                LOCALS_BYTES >> 10
            );
        }
        match self.signal {
            libc::SIGSEGV => {
                write!(f, "accesses memory at {:#x}, which it may not access (SIGSEGV)", self.address)
            }
            libc::SIGBUS => {
                write!(f, "accesses memory at {:#x}, which does not exist (SIGBUS)", self.address)
            }
            libc::SIGFPE => write!(f, "divides an integer by zero or overflows dividing (SIGFPE)"),
            libc::SIGILL => write!(f, "executes an illegal instruction or a trap (SIGILL)"),
            libc::SIGTRAP => write!(f, "executes a trap (SIGTRAP)"),
            signal => write!(f, "is ended by signal {signal}"),
        }
    }
}
