//! AArch64, procedure call standard.
//!
//! Unlike x86-64, resuming uses `ret` everywhere. If modules are built with branch protection, a jump may
//! only go to landing pads, and the instruction after a call is not one.

use std::arch::naked_asm;
use std::ffi::c_char;

use super::{Body, Waits};
use crate::abi::Context;

/// Saves the registers that a call preserves, and the address to continue at.
macro_rules! save {
    () => {
        "sub sp, sp, #160; stp x19, x20, [sp, #0]; stp x21, x22, [sp, #16]; stp x23, x24, [sp, #32]; \
         stp x25, x26, [sp, #48]; stp x27, x28, [sp, #64]; stp x29, x30, [sp, #80]; \
         stp d8, d9, [sp, #96]; stp d10, d11, [sp, #112]; stp d12, d13, [sp, #128]; \
         stp d14, d15, [sp, #144]"
    };
}

/// Restores them.
macro_rules! restore {
    () => {
        "ldp x19, x20, [sp, #0]; ldp x21, x22, [sp, #16]; ldp x23, x24, [sp, #32]; \
         ldp x25, x26, [sp, #48]; ldp x27, x28, [sp, #64]; ldp x29, x30, [sp, #80]; \
         ldp d8, d9, [sp, #96]; ldp d10, d11, [sp, #112]; ldp d12, d13, [sp, #128]; \
         ldp d14, d15, [sp, #144]; add sp, sp, #160"
    };
}

/// Leaves this stack, stores its stack pointer in `from`, and continues with the stack that waits at `to`.
///
/// # Safety
/// `to` must be the stack pointer of a waiting stack, or come from [`prepare`].
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn switch(from: *mut usize, to: usize) {
    naked_asm!(save!(), "mov x9, sp", "str x9, [x0]", "mov sp, x1", restore!(), "ret",)
}

/// This is `gs_cpu_host.barrier`. It saves the registers, asks [`Waits::barrier`] for the stack to continue
/// with (the stack pointer is the sixth argument), and resumes it.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn barrier<W: Waits>(_: *mut Context, _: u32, _: u32, _: *const c_char, _: u32) {
    naked_asm!(
        save!(),
        "mov x5, sp",
        "bl {arrive}",
        "mov sp, x0",
        restore!(),
        "ret",
        arrive = sym W::barrier,
    )
}

/// This is `gs_cpu_host.warp`. It does the same with [`Waits::warp`], which takes the stack pointer as its
/// third argument.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn warp<W: Waits>(_: *mut Context, _: u32) {
    naked_asm!(
        save!(),
        "mov x2, sp",
        "bl {arrive}",
        "mov sp, x0",
        restore!(),
        "ret",
        arrive = sym W::warp,
    )
}

/// The first code on a new stack. Calls `x19` with `x20` and a stack pointer that leads here again (the
/// call's frame begins below it). Then continues with the stack that the call returns.
#[unsafe(naked)]
unsafe extern "C" fn enter() {
    naked_asm!(
        "mov x0, x20",
        "sub x1, sp, #{frame}",
        "mov sp, x1",
        "blr x19",
        "mov sp, x0",
        restore!(),
        "ret",
        frame = const size_of::<Frame>(),
    )
}

/// The top of a waiting stack, as [`switch`] restores it.
type Frame = [usize; 20];

/// Prepares a new stack so that switching to the result calls `body(argument, result)`, each time.
///
/// # Safety
/// The stack below `top` must be mapped.
pub(crate) unsafe fn prepare<T>(top: usize, body: Body<T>, argument: *mut T) -> usize {
    let mut frame: Frame = [0; 20];
    frame[0] = body as usize;
    frame[1] = argument as usize;
    frame[11] = enter as *const () as usize;
    let at = top - size_of_val(&frame);
    // SAFETY: within the stack, which is aligned to 64 bytes.
    unsafe { (at as *mut Frame).write(frame) };
    at
}

/// Returns the stack pointer for the first instruction of a called function.
pub(crate) fn call_frame(top: usize) -> usize {
    top
}

/// Prefetches what a stack that waits at `at` needs first: the registers and the kernel's frame.
#[inline]
pub(crate) fn prefetch(at: usize) {
    for line in 0..4 {
        // SAFETY: a prefetch faults nowhere.
        unsafe {
            std::arch::asm!("prfm pldl1keep, [{}]", in(reg) at + 64 * line, options(nostack, readonly));
        }
    }
}
