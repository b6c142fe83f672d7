//! The calls that kernels make to the backend: a thread reaches a barrier or a warp operation, or ends the
//! kernel.

use std::ffi::{CStr, c_char};

use crate::abi::{Context, Host};
use crate::block::Runner;
use crate::failure::Site;
use crate::fiber::{Exchange, Stop};
use crate::switch::{self, Waits};

/// The functions that every kernel gets.
pub(crate) static HOST: Host = Host { barrier: switch::barrier::<Calls>, warp: switch::warp::<Calls>, fail };

/// What [`switch`]'s two entries call.
struct Calls;

impl Waits for Calls {
    unsafe extern "C" fn barrier(
        context: *mut Context,
        thread: u32,
        predicate: u32,
        file: *const c_char,
        line: u32,
        here: usize,
    ) -> usize {
        // SAFETY: the context is the first field of a runner, whose worker waits in `Exchange::run` while kernels run.
        let runner = unsafe { &mut *context.cast::<Runner>() };
        match runner.take_turns(thread, predicate, line, here) {
            Some(next) => next,
            // SAFETY: passed on to the caller.
            None => unsafe { barrier_anyhow(context, thread, predicate, file, line, here) },
        }
    }

    unsafe extern "C" fn warp(context: *mut Context, thread: u32, here: usize) -> usize {
        // SAFETY: the context is the first field of a runner, whose worker waits in `Exchange::run` while kernels run.
        let runner = unsafe { &mut *context.cast::<Runner>() };
        runner.arrive_at_warp(thread, here)
    }
}

/// Handles any arrival at a barrier. It has the same signature as its caller, so that the caller can jump
/// here. The usual arrival then needs no stack frame of its own, which would cost one more cache line per
/// thread.
#[inline(never)]
unsafe extern "C" fn barrier_anyhow(
    context: *mut Context,
    thread: u32,
    predicate: u32,
    file: *const c_char,
    line: u32,
    here: usize,
) -> usize {
    // SAFETY: the context is the first field of a runner, whose worker waits in `Exchange::run` while kernels run.
    let runner = unsafe { &mut *context.cast::<Runner>() };
    runner.arrive_at_barrier(thread, predicate, Site { file, line }, here)
}

/// Ends the kernel, for `assert`, `__trap` and checks. The thread never continues.
unsafe extern "C" fn fail(
    context: *mut Context,
    thread: u32,
    message: *const c_char,
    file: *const c_char,
    line: u32,
) {
    let this = context.cast::<Runner>();
    {
        // SAFETY: the context is the first field of a runner, whose worker waits in `Exchange::run` while kernels run.
        let runner = unsafe { &mut *this };
        // SAFETY: a string in the module or on the thread's stack, alive while the thread waits here.
        let text = unsafe { CStr::from_ptr(message) }.to_string_lossy();
        let failure = runner.failure_at(Some(thread), format!("{} at {}", text, Site { file, line }));
        runner.set_failure(failure);
    }
    // SAFETY: this is the running fiber, and the reference above is gone. The worker sees the failure.
    unsafe { Exchange::give_up((*this).exchange(), Stop::Idle) }
}
