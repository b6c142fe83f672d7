//! Crashes in kernels: a signal handler that turns them into errors of the device.
//!
//! A kernel's own faults (`SIGSEGV`, `SIGBUS`, `SIGFPE`, `SIGILL`; `SIGTRAP` on aarch64) while a fiber runs it make
//! that fiber return to its worker, which reports the kernel, block and, where known, thread. The kernel's frames are
//! dropped as they stand: kernels own nothing. A fault anywhere else, in a copy or in a host function, goes to the handler that was
//! installed before, so that it ends the process as it would without this library.
//!
//! What this cannot save: a kernel that faults inside a C library call it made (a `printf` of a wild pointer) may
//! leave that library's locks held.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Once, OnceLock};

use crate::block::Runner;
use crate::failure::Crash;
use crate::fiber::Fiber;

/// `__builtin_trap()` is an illegal instruction on x86-64, where SIGTRAP is a debugger's, and a SIGTRAP elsewhere.
#[cfg(target_arch = "x86_64")]
const SIGNALS: [c_int; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];
#[cfg(not(target_arch = "x86_64"))]
const SIGNALS: [c_int; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP];
const ALT_STACK_BYTES: usize = 64 << 10;

thread_local! {
    /// This worker's runner, for the handler.
    static RUNNER: Cell<*mut Runner> = const { Cell::new(ptr::null_mut()) };
}

/// The handlers that were installed before; set before ours can run.
static PREVIOUS: OnceLock<[libc::sigaction; SIGNALS.len()]> = OnceLock::new();
static INSTALL: Once = Once::new();

/// A worker's stack for signal handlers, since a kernel may have used up its own.
pub(crate) struct AltStack(Box<[u8]>);

impl AltStack {
    /// Installs the handlers, once per process, and a stack for them on this thread.
    pub(crate) fn install(runner: *mut Runner) -> Self {
        INSTALL.call_once(install_handlers);
        let mut memory = vec![0; ALT_STACK_BYTES].into_boxed_slice();
        let stack = libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: memory.len() };
        // SAFETY: the memory lives until `drop`, which takes it out of use first.
        unsafe { libc::sigaltstack(&raw const stack, ptr::null_mut()) };
        RUNNER.set(runner);
        Self(memory)
    }
}

impl Drop for AltStack {
    fn drop(&mut self) {
        RUNNER.set(ptr::null_mut());
        let off = libc::stack_t {
            ss_sp: self.0.as_mut_ptr().cast(),
            ss_flags: libc::SS_DISABLE,
            ss_size: self.0.len(),
        };
        // SAFETY: disabling needs no memory.
        unsafe { libc::sigaltstack(&raw const off, ptr::null_mut()) };
    }
}

fn install_handlers() {
    // SAFETY: zero is a valid `sigaction`, and so is what the system fills in.
    let previous = SIGNALS.map(|signal| unsafe {
        let mut previous: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, ptr::null(), &raw mut previous);
        previous
    });
    // Called once.
    let _ = PREVIOUS.set(previous);
    for signal in SIGNALS {
        // SAFETY: likewise; the handler has the signature that SA_SIGINFO asks for.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_fault as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
            libc::sigemptyset(&raw mut action.sa_mask);
            libc::sigaction(signal, &raw const action, ptr::null_mut());
        }
    }
}

/// Touches nothing but the faulting worker's runner, and allocates nothing.
unsafe extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let runner = RUNNER.get();
    if !runner.is_null() && !context.is_null() {
        // SAFETY: the kernel passes a ucontext, and the fault address in `info`. The runner belongs to this thread;
        // if the stack pointer lies in the running fiber, the interrupted code is the kernel's, so that no
        // reference to the runner is alive.
        unsafe {
            let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext;
            let fiber = (*runner).running().filter(|fiber| fiber.contains(stack_pointer(registers)));
            if let Some((to, stack)) = fiber.map(Fiber::crash_landing) {
                (*runner).crash = Some(Crash { signal, address: (*info).si_addr() as usize });
                redirect(registers, to, stack, (*runner).exchange() as usize);
                return;
            }
        }
    }
    // SAFETY: passes on what the kernel passed.
    unsafe { pass_on(signal, info, context) };
}

unsafe fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let Some(index) = SIGNALS.iter().position(|&s| s == signal) else { return };
    let Some(previous) = PREVIOUS.get().map(|all| all[index]) else { return };
    match previous.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => {
            // Returning repeats the faulting instruction, now under the action that was there before.
            // SAFETY: restores what the system reported.
            unsafe { libc::sigaction(signal, &raw const previous, ptr::null_mut()) };
        }
        handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
            type Handler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
            // SAFETY: SA_SIGINFO says that this is its type.
            let handler: Handler = unsafe { std::mem::transmute(handler) };
            // SAFETY: called as the system would.
            unsafe { handler(signal, info, context) };
        }
        handler => {
            // SAFETY: without SA_SIGINFO this is its type.
            let handler: unsafe extern "C" fn(c_int) = unsafe { std::mem::transmute(handler) };
            // SAFETY: called as the system would.
            unsafe { handler(signal) };
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn stack_pointer(registers: &libc::mcontext_t) -> usize {
    registers.gregs[libc::REG_RSP as usize] as usize
}

/// Makes the interrupted thread call `to(argument)` on another stack.
#[cfg(target_arch = "x86_64")]
fn redirect(registers: &mut libc::mcontext_t, to: usize, stack: usize, argument: usize) {
    registers.gregs[libc::REG_RIP as usize] = to as i64;
    registers.gregs[libc::REG_RSP as usize] = stack as i64;
    registers.gregs[libc::REG_RDI as usize] = argument as i64;
}

#[cfg(target_arch = "aarch64")]
fn stack_pointer(registers: &libc::mcontext_t) -> usize {
    registers.sp as usize
}

/// Makes the interrupted thread call `to(argument)` on another stack.
#[cfg(target_arch = "aarch64")]
fn redirect(registers: &mut libc::mcontext_t, to: usize, stack: usize, argument: usize) {
    registers.pc = to as u64;
    registers.sp = stack as u64;
    registers.regs[0] = argument as u64;
}
