//! How we switch from one stack to another. This is what a barrier costs.
//!
//! A waiting stack has at its top the registers that a call preserves, and above them the address to continue
//! at. All functions that leave or resume stacks agree on that: [`switch`], which Rust calls, and [`barrier`]
//! and [`warp`], which kernels call. These two save the registers, ask Rust for the stack to continue with,
//! and resume it. So a waiting kernel only leaves its own frame and one line of registers on its stack, and
//! no Rust frame in between. A barrier touches that memory once per thread, so every further cache line would
//! count.
//!
//! All three end in a jump instead of a return. A thread that comes to one barrier resumes a thread that
//! waited at the previous barrier. So if a kernel has two barriers, the return address that the processor
//! remembers is always wrong. For a jump it learns the target, and that is right for all threads at a barrier
//! except the first. Measured on Zen 5, with two barriers in a loop over 256 threads: 19 ns per barrier and
//! thread with a return, 11 ns with a jump, and 8 ns with the short way in `block.rs` as well. General
//! coroutine libraries return to a common parent, and mispredict three times per thread and barrier.
//!
//! A fiber's body is called anew for each stretch, and returns the stack to continue with. So a kernel that
//! never waits begins and ends like an ordinary call, with one set of registers saved and no address
//! mispredicted.

use std::ffi::c_char;

use crate::abi::Context;

cfg_if::cfg_if! {
    if #[cfg(target_arch = "aarch64")] {
        mod aarch64;
        use aarch64 as processor;
    } else {
        mod x86_64;
        use x86_64 as processor;
    }
}

pub(crate) use processor::{barrier, call_frame, prefetch, prepare, switch, warp};

/// The function that runs on its own stack whenever something switches to `start`. It returns the stack
/// pointer to continue with.
pub(crate) type Body<T> = unsafe extern "C" fn(*mut T, start: usize) -> usize;

/// What [`barrier`] and [`warp`] ask. A thread waits with its stack pointer at `here`. Each returns the stack
/// pointer to continue with: another thread's, the worker's, or the same one.
pub(crate) trait Waits {
    /// Handles a thread that comes to a barrier of its block.
    ///
    /// # Safety
    /// Must be called by [`barrier`] for the running thread.
    unsafe extern "C" fn barrier(
        context: *mut Context,
        thread: u32,
        predicate: u32,
        file: *const c_char,
        line: u32,
        here: usize,
    ) -> usize;

    /// Handles a thread that comes to the warp operation that its lane describes.
    ///
    /// # Safety
    /// Must be called by [`warp`] for the running thread.
    unsafe extern "C" fn warp(context: *mut Context, thread: u32, here: usize) -> usize;
}
