//! Leaving one stack and going on with another: the price of a barrier.
//!
//! A stack that waits has the registers that a call preserves on its top, and above them where to go on. All that
//! leave and resume stacks agree on that: [`switch`], called by Rust, and [`barrier`] and [`warp`], which kernels
//! call. These two save the registers, ask Rust with whom to go on, and resume that one, so that what waits of a
//! kernel is its own frame and one line of registers, with no frame of Rust's between.
//!
//! They end in a jump and not in a return. A thread that comes to one barrier resumes one that waited at the barrier
//! before, so that the return address which the processor remembers from the call is the wrong one whenever a
//! kernel has two barriers; what it learns about a jump is right for all threads of a barrier but the first.
//! Measured on Zen 5, with two barriers in a loop over 256 threads: 19 ns per barrier and thread with a return, 11 with a
//! jump; and 8 with the short way of `block.rs` on top.
//! General coroutine libraries, which return to a common parent, mispredict three times per thread and barrier.

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

/// The function that runs on a new stack, and never returns.
pub(crate) type Body<T> = unsafe extern "C" fn(*mut T) -> !;

/// The decisions behind [`barrier`] and [`warp`]: a thread waits with its stack pointer at `here`, and each returns the
/// stack pointer to go on with: another thread's, the worker's, or its own again.
pub(crate) trait Waits {
    /// A thread comes to a barrier of its block.
    ///
    /// # Safety
    /// Called by [`barrier`] for the thread that runs.
    unsafe extern "C" fn barrier(
        context: *mut Context,
        thread: u32,
        predicate: u32,
        file: *const c_char,
        line: u32,
        here: usize,
    ) -> usize;

    /// A thread comes to the warp operation that its lane describes.
    ///
    /// # Safety
    /// Called by [`warp`] for the thread that runs.
    unsafe extern "C" fn warp(context: *mut Context, thread: u32, here: usize) -> usize;
}
