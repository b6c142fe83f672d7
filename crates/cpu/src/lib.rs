//! The CPU backend of gpustream: a device made of threads, for machines without a GPU and for finding errors that a
//! GPU would not notice.
//!
//! The device is a real asynchronous one. Calls enqueue and return; kernels, copies and host functions of different
//! streams run at the same time, also on one core; events, default streams, priorities, capture and graphs behave as on
//! a GPU. The same kernel sources run on it, compiled by the host's C++ compiler (see [`flags`] and the headers
//! in `gpustream/cpu/`).
//!
//! # How it works
//!
//! * A stream is a queue, and its operations are numbered; one counter tells how many are done, so an event is a
//!   `(stream, number)` pair and costs the stream nothing (`queue.rs`, `progress.rs`).
//! * Workers, one per core (`worker.rs`), take streams that have something to do, one worker per stream at a time. A
//!   kernel may wait for another stream's, so when streams queue up and no worker comes free for a millisecond, workers
//!   are added. Idle workers take a share of long operations: a launch's blocks, a copy's pieces (`job.rs`).
//! * A block is a loop over its threads on one fiber (`block.rs`, `fiber.rs`). The first barrier keeps the thread in
//!   its place (`calls.rs`, `switch.rs`), and another fiber goes on with the next thread; a kernel without barriers
//!   never notices. Warp operations work the same way.
//! * A kernel whose text shows that all threads of a block meet in the same places has a second form, which the build
//!   writes (`loops` in `gpustream-build`): loops over the block's threads between those places, on one fiber. It runs on
//!   warps of 32 lanes and outside of checked mode. `cargo xtask build-kernels` says which kernels have one, and why others
//!   have none.
//! * A stream that waits for a word in memory keeps no worker: one thread looks at the words (`words.rs`).
//! * A graph is a real dependency graph: a node begins when the last of its dependencies is done, on any
//!   worker (`plan.rs`).
//! * Workers take the times of traced operations, and of each node of their graphs (`trace.rs`).
//!
//! # When a kernel fails
//!
//! A barrier that a thread does not reach, a failed `assert`, a trap, and a crash (`SIGSEGV`, `SIGBUS`, `SIGFPE`,
//! `SIGILL`; `fault.rs`) end the device, not the process: the error names kernel, block and thread (a crash in a
//! kernel that is compiled into a vector loop names the block), every later call and every waiter gets it,
//! and work that was queued is dropped. Opening the device anew gives a fresh one.
//!
//! A thread of a block has 512 KiB for its local variables, as on a GPU. One that needs more, for an array or by
//! recursion, is such a failure too.
//!
//! Work that runs beside the failure is not torn down: a copy and a kernel of several blocks end at their next piece, a
//! block when it is done. Waits (for a stream, an event, the device) end when no worker is in the operation any more,
//! and for a kernel that spins for good five seconds after the failure. Memory and code of work that may still run
//! are not given back ([`has_stopped`](gpustream_hal::Device::has_stopped)).
//!
//! Signals of these kinds that are not a kernel's fault have the effect that they would have without this library.
//!
//! # A stream is full
//!
//! A stream holds 1024 operations that are not done, about as many as GPU drivers take; a graph's launch is one,
//! however many nodes it has. A thread that submits more waits until half of them are done. So a thread that is to let
//! work go, by a flag or a channel, must not have submitted more than that behind it, as with a GPU.
//!
//! # Fork, and the end of the process
//!
//! After a `fork` the child has none of the threads: its copies of devices are lost, each call on them is
//! [`DeviceLost`](gpustream_hal::ErrorKind::DeviceLost) and waits for nothing, and memory that they hold stays
//! allocated. A device that the child opens is a new one. The fork should come while no other thread is inside a call
//! of the library: the locks of such a call stay held in the child, as with every library.
//!
//! The process may end at any time, by `exit` or by returning from `main`, whatever is queued or runs: nothing waits
//! for the work. Kernels that run go on until the system ends the threads; modules are not unloaded.
//!
//! # Environment
//!
//! Read when a device is opened, which fails where a value is not allowed; [`open_with`] takes the same as values.
//!
//! | variable | meaning |
//! |---|---|
//! | `GPUSTREAM_CPU_THREADS` | workers, 1 to 1024; by default one per core |
//! | `GPUSTREAM_CPU_WARP` | `32` (default) or `64` lanes in a warp |
//! | `GPUSTREAM_CPU_DEVICES` | present the machine as this many devices, 1 (default) to 64 |
//! | `GPUSTREAM_CHECK` | `1`: red zones around allocations of every length (`memory.rs`) and dynamic shared memory (`check.rs`), bounds of shared arrays in images made for it ([`flags::CHECKED_GCC`]) |
//!
//! Linux on x86-64 and aarch64. Clusters (`Unsupported`) and compiling at run time are missing.
#![warn(clippy::missing_errors_doc)]

/// Entries for `fuzz/`.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    /// Reads any bytes as a module.
    pub fn module(bytes: &[u8]) {
        let _ = crate::elf::Image::read(bytes);
    }
}

// Elsewhere there must be one error, and not one for each function of the system that is missing.
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

        pub use device::{backend, open_with};
        pub use options::CpuOptions;
    } else {
        compile_error!(
            "the CPU backend runs on Linux on x86-64 and aarch64 alone: build gpustream without its feature `cpu` \
             (`default-features = false`, `features = [\"cuda\"]`), or for one of these targets"
        );
    }
}
