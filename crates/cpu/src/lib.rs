//! The CPU backend of gpustream: a device made of threads, for machines without a GPU and for finding errors that a
//! GPU would not notice.
//!
//! It is a real asynchronous device. Calls enqueue and return; kernels, copies and host functions of different
//! streams run at the same time, also on one core; events, default streams, priorities, capture and graphs behave as on
//! a GPU. The same kernel sources run on it, compiled by the host's C++ compiler (see [`flags`] and the headers
//! in `gpustream/cpu/`).
//!
//! # How it works
//!
//! * A stream is a queue, and its operations are numbered; how far it has got is one counter, so an event is a
//!   `(stream, number)` pair and costs the stream nothing (`queue.rs`).
//! * Workers, one per core (`worker.rs`), take streams that have something to do, one worker per stream at a time. A
//!   kernel may wait for another stream's, so when streams queue up and no worker comes free for a millisecond, workers
//!   are added. Idle workers take a share of long operations: a launch's blocks, a copy's pieces (`job.rs`).
//! * A block is a loop over its threads on one fiber (`block.rs`, `fiber.rs`). The first barrier keeps the thread where it is
//!   (`barrier.rs`, `switch.rs`),
//!   and another fiber goes on with the next thread; a kernel without barriers never notices. Warp
//!   operations work the same way.
//! * A graph is a real dependency graph: a node begins when the last of its dependencies is done, on any
//!   worker (`plan.rs`).
//!
//! # When a kernel fails
//!
//! A barrier that a thread does not reach, a failed `assert`, a trap, and a crash (`SIGSEGV`, `SIGBUS`, `SIGFPE`,
//! `SIGILL`; `fault.rs`) end the device, not the process: the error names kernel, block and thread (a crash in a
//! kernel that is compiled into a vector loop names the block), every later call and every waiter gets it,
//! and what was queued is dropped. Memory is kept until it is freed. Opening the device anew gives a fresh one.
//!
//! # Environment
//!
//! Read when a device is opened; [`open_with`] takes the same as values.
//!
//! | variable | meaning |
//! |---|---|
//! | `GPUSTREAM_CPU_THREADS` | workers; by default one per core |
//! | `GPUSTREAM_CPU_WARP` | `32` (default) or `64` lanes in a warp |
//! | `GPUSTREAM_CPU_DEVICES` | present the machine as this many devices |
//! | `GPUSTREAM_CHECK` | `1`: red zones around device memory (`memory.rs`) and dynamic shared memory (`check.rs`), bounds of shared arrays in images made for it ([`flags::CHECKED_GCC`]) |
//!
//! Linux on x86-64 and aarch64. Not there: cooperative launches, clusters (`Unsupported`), compiling at run time.

pub mod abi;
mod arch;
mod barrier;
mod block;
mod buffer;
mod capture;
mod check;
mod device;
mod elf;
mod error;
mod event;
mod failure;
mod fault;
mod fiber;
pub mod flags;
mod graph;
mod job;
mod launch;
mod memory;
mod module;
mod options;
mod plan;
mod queue;
mod stream;
mod switch;
mod sync;
mod warp;
mod work;
mod worker;

pub use device::{backend, open_with};
pub use options::CpuOptions;
