//! The CPU backend of gpustream: a device made of threads, for machines without a GPU and for finding errors
//! that a GPU would not notice.
//!
//! The device is really asynchronous. Calls enqueue work and return. Kernels, copies and host functions of
//! different streams run at the same time, even on one core. Events, default streams, priorities, capture and
//! graphs behave as on a GPU. It runs the same kernel sources, compiled by the host's C++ compiler (see
//! [`flags`] and the headers in `gpustream/cpu/`).
//!
//! # How it works
//!
//! * A stream is a queue of numbered operations, and a counter says how many are done. So an event is just a
//!   pair `(stream, number)` and costs the stream nothing (`queue.rs`, `progress.rs`).
//! * There is one worker per core (`worker.rs`). A worker takes a stream that has something to do, and only
//!   one worker runs a stream at a time. A kernel may wait for a kernel in another stream, so if streams
//!   queue up and no worker becomes free for a millisecond, we add workers; otherwise two kernels could wait
//!   for each other forever. Idle workers take a share of long operations: a launch's blocks or a copy's
//!   pieces (`job.rs`).
//! * A block is a loop over its threads on one fiber (`block.rs`, `fiber.rs`). If a thread comes to a
//!   barrier, its stack must stay as it is (`calls.rs`, `switch.rs`), so another fiber continues with the
//!   next thread. A kernel without barriers pays nothing for this. Warp operations work the same way.
//! * If a kernel's text shows that all threads of a block reach the same barriers, the build writes a second
//!   form of it (`loops` in `gpustream-build`): loops over the block's threads between the barriers, all on
//!   one fiber. We use it for warps of 32 lanes, outside checked mode. `gpustream build-kernels` lists
//!   which kernels have one, and why the others do not.
//! * A stream that waits for a word in memory occupies no worker, because a single thread looks at all such
//!   words (`memory_waits.rs`).
//! * A graph is a real dependency graph: a node begins as soon as its last dependency is done, on any worker
//!   (`plan.rs`).
//! * Workers measure when traced operations run, and each node of their graphs (`trace.rs`).
//!
//! # When a kernel fails
//!
//! Some failures end the device, but not the process: a barrier that some thread does not reach, a failed
//! `assert`, a trap, or a crash (`SIGSEGV`, `SIGBUS`, `SIGFPE`, `SIGILL`; `fault.rs`). The error names the
//! kernel, block and thread (if the kernel was compiled into a vector loop, a crash only names the block).
//! Every later call and every waiter gets that error, and queued work is dropped. To continue, open the
//! device again: that gives you a fresh one.
//!
//! A thread of a block has 512 KiB for its local variables, as on a GPU. If it needs more, for an array or
//! for recursion, that is a failure like any other.
//!
//! Work that is running when another kernel fails is not torn down, because we cannot stop a thread without
//! leaving its locks and memory in an unknown state. A copy or a kernel with several blocks ends at its next
//! piece, a block when it is done. If you wait for a stream, an event or the device, the wait ends when no
//! worker is in the operation anymore, or five seconds after the failure if a kernel spins forever. We never
//! give back memory or code of work that may still be running
//! ([`has_stopped`](gpustream_hal::Device::has_stopped)).
//!
//! If such a signal is not a kernel's fault, it has the effect that it would have without this library.
//!
//! # When a stream is full
//!
//! A stream holds 1024 operations that are not done, about as many as GPU drivers accept. A graph's launch
//! counts as one, however many nodes it has. A thread that submits more blocks until half of them are done.
//! If the first operation waits for that same thread, for example for a flag or a channel, that is a
//! deadlock, as on a GPU.
//!
//! # Fork, and the end of the process
//!
//! After a `fork` the child has none of the threads. Its copies of devices are lost: each call on them
//! returns [`DeviceLost`](gpustream_hal::ErrorKind::DeviceLost) and never waits, and their memory stays
//! allocated. If the child opens a device, it gets a new one. Fork only while no other thread is inside a
//! call of the library, because the locks of such a call would stay locked in the child, as with every
//! library.
//!
//! The process may end at any time, by `exit` or by returning from `main`, whatever is queued or running:
//! nothing waits for the work. Running kernels continue until the system ends the threads, and modules are
//! not unloaded.
//!
//! # Environment
//!
//! We read these variables when a device is opened, and opening fails if a value is not allowed.
//! [`open_with`] takes the same settings as values.
//!
//! | variable | meaning |
//! |---|---|
//! | `GPUSTREAM_CPU_THREADS` | how many workers, 1 to 1024; one per core by default |
//! | `GPUSTREAM_CPU_WARP` | `32` (default) or `64` lanes in a warp |
//! | `GPUSTREAM_CPU_DEVICES` | present the machine as this many devices, 1 (default) to 64 |
//! | `GPUSTREAM_CHECK` | `1`: red zones around every allocation (`memory.rs`) and around dynamic shared memory (`check.rs`), bounds checks for shared arrays in images made for that ([`flags::CHECKED_GCC`]), a comparison of what a launch must not write (`stray.rs`), and no peer access |
//!
//! Supports Linux on x86-64 and aarch64. Clusters (`Unsupported`) and compiling at run time are missing.
#![warn(clippy::missing_errors_doc)]

/// Entry points for `fuzz/`.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    /// Reads any bytes as a module.
    pub fn module(bytes: &[u8]) {
        let _ = crate::elf::Image::read(bytes);
    }
}

// On other systems there should be one error, instead of one for each missing system function.
cfg_if::cfg_if! {
    if #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))] {
        pub mod abi;
        mod arch;
        mod barrier;
        mod block;
        mod buffer;
        mod calls;
        mod capture;
        mod check;
        mod device;
        mod elf;
        mod error;
        mod event;
        mod export;
        mod failure;
        mod fault;
        mod fiber;
        pub mod flags;
        mod fork;
        mod graph;
        mod grid;
        mod image;
        mod job;
        mod kernel;
        mod launch;
        mod loader;
        mod memory;
        mod module;
        mod options;
        mod plan;
        mod print;
        mod processor;
        mod progress;
        mod queue;
        mod recorder;
        mod shared;
        mod current_operation;
        mod stray;
        mod stream;
        mod switch;
        mod sync;
        mod texture;
        mod thread;
        mod trace;
        mod cooperative;
        mod warp;
        mod memory_waits;
        mod work;
        mod worker;

        pub use device::{backend, backend_with, open_with};
        pub use options::CpuOptions;
    } else {
        compile_error!(
            "the CPU backend only runs on Linux, on x86-64 and aarch64: build gpustream without its feature `cpu` \
             (`default-features = false`, `features = [\"cuda\"]`), or for one of these targets"
        );
    }
}
