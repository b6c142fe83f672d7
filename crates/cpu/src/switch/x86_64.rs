//! x86-64, System V calling convention.

use std::arch::naked_asm;
use std::ffi::c_char;

use super::{Body, Waits};
use crate::abi::Context;

/// Saves the registers that a call preserves. We leave floating-point modes alone, because kernels do not
/// change them.
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

/// Leaves this stack, stores its stack pointer in `from`, and continues with the stack that waits at `to`.
///
/// # Safety
/// `to` must be the stack pointer of a waiting stack, or come from [`prepare`].
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn switch(from: *mut usize, to: usize) {
    naked_asm!(save!(), "mov [rdi], rsp", "mov rsp, rsi", restore!(), "pop rcx", "jmp rcx",)
}

/// This is `gs_cpu_host.barrier`. It saves the registers, asks [`Waits::barrier`] for the stack to continue
/// with (the stack pointer is the sixth argument), and resumes it.
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

/// This is `gs_cpu_host.warp`. It does the same with [`Waits::warp`], which takes the stack pointer as its
/// third argument.
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

/// The first code on a new stack. Calls `rbx` with `r12` and a stack pointer that leads here again (the
/// call's frame begins below it). Then continues with the stack that the call returns.
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

/// The top of a waiting stack. [`switch`] pops in this order: r15, r14, r13, r12, rbx, rbp, and the address
/// to continue at.
type Frame = [usize; 7];

/// Prepares a new stack so that switching to the result calls `body(argument, result)`, each time.
///
/// # Safety
/// The stack below `top` must be mapped.
pub(crate) unsafe fn prepare<T>(top: usize, body: Body<T>, argument: *mut T) -> usize {
    let frame: Frame = [0, 0, 0, argument as usize, body as usize, 0, enter as *const () as usize];
    // `enter` calls 8 bytes below the frame, aligned as a call wants it.
    let at = top - 16 - size_of_val(&frame);
    // SAFETY: within the stack, which is aligned to 64 bytes.
    unsafe { (at as *mut Frame).write(frame) };
    at
}

/// Returns the stack pointer for the first instruction of a called function.
pub(crate) fn call_frame(top: usize) -> usize {
    top - 8
}

/// Prefetches what a stack that waits at `at` needs first: the registers and the kernel's frame.
#[inline]
pub(crate) fn prefetch(at: usize) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    for line in 0..3 {
        // SAFETY: a prefetch faults nowhere.
        unsafe { _mm_prefetch::<_MM_HINT_T0>((at + 64 * line) as *const i8) };
    }
}
