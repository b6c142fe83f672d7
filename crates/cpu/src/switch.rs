//! The switch from one stack to another: the price of a barrier.
//!
//! A stack that waits has the registers that a call preserves on its top, and above them the address to go on at. All
//! functions that leave and resume stacks agree on that: [`switch`], called by Rust, and [`barrier`] and [`warp`],
//! which kernels call. These two save the registers, ask Rust for the stack to go on with, and resume it, so that of a
//! kernel that waits only its own frame and one line of registers remain, with no frame of Rust's between.
//!
//! All three end in a jump and not in a return. A thread that comes to one barrier resumes one that waited at the barrier
//! before, so that the return address which the processor remembers from the call is the wrong one whenever a
//! kernel has two barriers; the target that it learns for a jump is right for all threads of a barrier but the first.
//! Measured on Zen 5, with two barriers in a loop over 256 threads: 19 ns per barrier and thread with a return, 11 with
//! a jump; and 8 with the short way of `block.rs` on top.
//! General coroutine libraries, which return to a common parent, mispredict three times per thread and barrier.
//!
//! A fiber's body is called anew for each stretch, and returns the stack to go on with. A kernel that never waits so begins
//! and ends as a call does, with one set of registers saved, and no address mispredicted.

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

/// The function that runs on a stack of its own, whenever somebody switches to `start`. Returns the stack pointer to go on
/// with.
pub(crate) type Body<T> = unsafe extern "C" fn(*mut T, start: usize) -> usize;

/// The decisions behind [`barrier`] and [`warp`]: a thread waits with its stack pointer at `here`, and each returns the
/// stack pointer to go on with: another thread's, the worker's, or its own again.
pub(crate) trait Waits {
    /// Takes a thread that comes to a barrier of its block.
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

    /// Takes a thread that comes to the warp operation that its lane describes.
    ///
    /// # Safety
    /// Called by [`warp`] for the thread that runs.
    unsafe extern "C" fn warp(context: *mut Context, thread: u32, here: usize) -> usize;
}
