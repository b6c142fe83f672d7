//! x86-64, System V calling convention.

use std::arch::naked_asm;
use std::ffi::c_char;

use super::{Body, Waits};
use crate::abi::Context;

/// Saves the registers that a call preserves. Floating-point modes are left alone: kernels do not change them.
macro_rules! save {
    () => {
        "push rbp; push rbx; push r12; push r13; push r14; push r15"
    };
}

/// Restores them.
macro_rules! restore {
    () => {
        "pop r15; pop r14; pop r13; pop r12; pop rbx; pop rbp"
    };
}

/// Leaves this stack, noting its stack pointer in `from`, and goes on with the one that waits at `to`.
///
/// # Safety
/// `to` is the stack pointer of a stack that waits, or made by [`prepare`].
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn switch(from: *mut usize, to: usize) {
    naked_asm!(save!(), "mov [rdi], rsp", "mov rsp, rsi", restore!(), "pop rcx", "jmp rcx",)
}

/// Is `gs_cpu_host.barrier`: saves the registers, asks [`Waits::barrier`] with a sixth argument, the stack
/// pointer, for the stack to go on with, and resumes it.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn barrier<W: Waits>(_: *mut Context, _: u32, _: u32, _: *const c_char, _: u32) {
    naked_asm!(
        save!(),
        "mov r9, rsp",
        "sub rsp, 8",
        "call {arrive}",
        "mov rsp, rax",
        restore!(),
        "pop rcx",
        "jmp rcx",
        arrive = sym W::barrier,
    )
}

/// Is `gs_cpu_host.warp`: does the same with [`Waits::warp`], which takes the stack pointer as its third argument.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn warp<W: Waits>(_: *mut Context, _: u32) {
    naked_asm!(
        save!(),
        "mov rdx, rsp",
        "sub rsp, 8",
        "call {arrive}",
        "mov rsp, rax",
        restore!(),
        "pop rcx",
        "jmp rcx",
        arrive = sym W::warp,
    )
}

/// Runs on a stack that was left by none: calls `rbx` with `r12` and the stack pointer that leads here, below which the
/// call begins, and goes on with the stack that the call returns.
#[unsafe(naked)]
unsafe extern "C" fn enter() {
    naked_asm!(
        "mov rdi, r12",
        "lea rsi, [rsp - {frame}]",
        "lea rsp, [rsi - 8]",
        "call rbx",
        "mov rsp, rax",
        restore!(),
        "ret",
        frame = const size_of::<Frame>(),
    )
}

/// The top of a stack that waits, in the order in which [`switch`] pops: r15, r14, r13, r12, rbx, rbp, and the address to
/// go on at.
type Frame = [usize; 7];

/// Fills a new stack so that switching to the result calls `body(argument, result)`, then and ever again.
///
/// # Safety
/// The stack below `top` is mapped.
pub(crate) unsafe fn prepare<T>(top: usize, body: Body<T>, argument: *mut T) -> usize {
    let frame: Frame = [0, 0, 0, argument as usize, body as usize, 0, enter as *const () as usize];
    // `enter` calls 8 bytes below the frame, aligned as a call wants it.
    let at = top - 16 - size_of_val(&frame);
    // SAFETY: within the stack, which is aligned to 64 bytes.
    unsafe { (at as *mut Frame).write(frame) };
    at
}

/// Returns the stack pointer with which a function that was called starts.
pub(crate) fn call_frame(top: usize) -> usize {
    top - 8
}

/// Has the processor fetch the memory that a stack that waits at `at` needs first: the registers and the kernel's
/// frame.
#[inline]
pub(crate) fn prefetch(at: usize) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    for line in 0..3 {
        // SAFETY: a prefetch faults nowhere.
        unsafe { _mm_prefetch::<_MM_HINT_T0>((at + 64 * line) as *const i8) };
    }
}
