//! Crashes in kernels: a signal handler turns them into errors of the device.
//!
//! If a kernel faults while a fiber runs it (`SIGSEGV`, `SIGBUS`, `SIGFPE`, `SIGILL`; `SIGTRAP` on aarch64),
//! the handler makes that fiber return to its worker. The worker reports the kernel, block and, if known,
//! thread. We simply drop the kernel's stack frames, because kernels own nothing.
//!
//! Any other signal of these kinds is not ours: a fault in a copy, in a host function or on a thread of your
//! program, or a signal that `kill` or `raise` sent to any thread. The process then continues as it would
//! without this library. If there was a handler before ours, we call it as it asked to be called (its
//! signature, its mask, only once). The default action ends the process with that signal, and an ignored
//! signal stays ignored. Some handlers replace themselves when they run, as Rust's own do for `SIGSEGV` and
//! `SIGBUS`. We let such a handler replace itself, but not ours, because we may still need to report a
//! kernel.
//!
//! One limitation remains: if a kernel faults inside a C library function that it called (such as `printf`
//! with a wild pointer), that library's locks may stay locked, because the function never returns.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::{transmute, zeroed};
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Once, OnceLock};

use cfg_if::cfg_if;

use crate::block::Runner;
use crate::failure::Crash;

cfg_if! {
    if #[cfg(target_arch = "aarch64")] {
        /// `__builtin_trap()` is a SIGTRAP.
        const SIGNALS: [c_int; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP];

        fn stack_pointer(registers: &libc::mcontext_t) -> usize {
            registers.sp as usize
        }

        /// Makes the interrupted thread call `to(argument)` on another stack.
        fn redirect(registers: &mut libc::mcontext_t, to: usize, stack: usize, argument: usize) {
            registers.pc = to as u64;
            registers.sp = stack as u64;
            registers.regs[0] = argument as u64;
        }
    } else {
        /// `__builtin_trap()` is an illegal instruction; SIGTRAP is a debugger's.
        const SIGNALS: [c_int; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];

        fn stack_pointer(registers: &libc::mcontext_t) -> usize {
            registers.gregs[libc::REG_RSP as usize] as usize
        }

        /// Makes the interrupted thread call `to(argument)` on another stack.
        fn redirect(registers: &mut libc::mcontext_t, to: usize, stack: usize, argument: usize) {
            registers.gregs[libc::REG_RIP as usize] = to as i64;
            registers.gregs[libc::REG_RSP as usize] = stack as i64;
            registers.gregs[libc::REG_RDI as usize] = argument as i64;
        }
    }
}

const ALT_STACK_BYTES: usize = 64 << 10;

thread_local! {
    /// This worker's runner, for the handler.
    static RUNNER: Cell<*mut Runner> = const { Cell::new(ptr::null_mut()) };
}

/// The actions from before. We set them before ours can run.
static PREVIOUS: OnceLock<[libc::sigaction; SIGNALS.len()]> = OnceLock::new();
/// The action that a previous handler has set in place of itself: a [`Replaced`].
static REPLACED: [AtomicU8; SIGNALS.len()] = [const { AtomicU8::new(Replaced::Not as u8) }; SIGNALS.len()];
static INSTALL: Once = Once::new();

#[repr(u8)]
enum Replaced {
    Not,
    Default,
    Ignore,
}

/// A worker's stack for signal handlers, because a kernel may have used up its own. It also remembers the
/// thread's previous one.
pub(crate) struct AltStack {
    _memory: Box<[u8]>,
    before: libc::stack_t,
}

impl AltStack {
    /// Installs the handlers, once per process, and a stack for them on this thread.
    pub(crate) fn install(runner: *mut Runner) -> Self {
        INSTALL.call_once(install_handlers);
        let mut memory = vec![0; ALT_STACK_BYTES].into_boxed_slice();
        let stack = libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: memory.len() };
        // SAFETY: zero is a valid `stack_t`, which the system fills in; the memory lives until `drop`, which takes it
        // out of use first.
        let before = unsafe {
            let mut before: libc::stack_t = zeroed();
            libc::sigaltstack(&raw const stack, &raw mut before);
            before
        };
        RUNNER.set(runner);
        Self { _memory: memory, before }
    }
}

impl Drop for AltStack {
    fn drop(&mut self) {
        RUNNER.set(ptr::null_mut());
        // SAFETY: the stack that this thread had before, or none; it is the thread's until its end.
        unsafe { libc::sigaltstack(&raw const self.before, ptr::null_mut()) };
    }
}

fn install_handlers() {
    // SAFETY: zero is a valid `sigaction`, and so is what the system fills in.
    let previous = SIGNALS.map(|signal| unsafe { action_of(signal) });
    // Called once.
    let _ = PREVIOUS.set(previous);
    for signal in SIGNALS {
        // SAFETY: the previous actions are known.
        unsafe { install(signal) };
    }
}

unsafe fn action_of(signal: c_int) -> libc::sigaction {
    // SAFETY: zero is a valid `sigaction`, and so is what the system fills in.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        libc::sigaction(signal, ptr::null(), &raw mut action);
        action
    }
}

/// Installs our handler. The handler calls this too.
unsafe fn install(signal: c_int) {
    // SAFETY: zero is a valid `sigaction`; the handler has the signature that SA_SIGINFO asks for.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // Only one signal at a time: the stack that Rust gives a thread for handlers has little more room
        // than one signal's frame.
        libc::sigemptyset(&raw mut action.sa_mask);
        for other in SIGNALS {
            libc::sigaddset(&raw mut action.sa_mask, other);
        }
        libc::sigaction(signal, &raw const action, ptr::null_mut());
    }
}

/// It touches only the faulting worker's runner, and allocates nothing.
unsafe extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let runner = RUNNER.get();
    // SAFETY: the kernel passes a ucontext, and the signal's description in `info`. The runner belongs to
    // this thread. If the stack pointer is in the running fiber, we interrupted a kernel, so no reference to
    // the runner is alive.
    unsafe {
        if !runner.is_null() && !is_sent(info) {
            let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext;
            let fiber = (*runner).running().filter(|fiber| fiber.contains(stack_pointer(registers)));
            if let Some(fiber) = fiber {
                let address = (*info).si_addr() as usize;
                let (to, stack) = fiber.crash_landing();
                let overflow = signal == libc::SIGSEGV && fiber.guards(address);
                (*runner).crash = Some(Crash { signal, address, overflow });
                redirect(registers, to, stack, (*runner).exchange() as usize);
                return;
            }
        }
        let errno = *libc::__errno_location();
        pass_on(signal, info, context);
        *libc::__errno_location() = errno;
    }
}

/// Returns true if the signal was sent (`kill`, `raise`, `sigqueue`). Otherwise an instruction caused it.
unsafe fn is_sent(info: *const libc::siginfo_t) -> bool {
    // SAFETY: passed by the kernel.
    unsafe { (*info).si_code <= 0 }
}

/// Does what would happen without our handler.
unsafe fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let Some(index) = SIGNALS.iter().position(|&s| s == signal) else { return };
    let Some(previous) = PREVIOUS.get().map(|all| &all[index]) else { return };
    let replaced = REPLACED[index].load(Ordering::Relaxed);
    // SAFETY: passed by the kernel.
    let is_sent = unsafe { is_sent(info) };
    let is_default = previous.sa_sigaction == libc::SIG_DFL && replaced == Replaced::Not as u8
        || replaced == Replaced::Default as u8;
    let is_ignored = previous.sa_sigaction == libc::SIG_IGN && replaced == Replaced::Not as u8
        || replaced == Replaced::Ignore as u8;
    if is_ignored && is_sent {
        return;
    }
    // Faults cannot be ignored.
    if is_default || is_ignored {
        // SAFETY: without our handler the process would have ended this way too.
        return unsafe { end_by(signal, is_sent) };
    }
    if previous.sa_flags & libc::SA_RESETHAND != 0 {
        REPLACED[index].store(Replaced::Default as u8, Ordering::Relaxed);
    }
    // SAFETY: called as the system would.
    unsafe { call(previous, signal, info, context) };
    // SAFETY: a query; the action that we restore is ours.
    unsafe {
        let by = match action_of(signal).sa_sigaction {
            libc::SIG_DFL => Replaced::Default,
            libc::SIG_IGN => Replaced::Ignore,
            // The action is still ours, or another one that may call ours.
            _ => return,
        };
        REPLACED[index].store(by as u8, Ordering::Relaxed);
        install(signal);
    }
}

/// Makes the signal's default action end the process.
unsafe fn end_by(signal: c_int, is_sent: bool) {
    // SAFETY: zero is a valid `sigaction`, which stands for the default.
    unsafe {
        let default: libc::sigaction = zeroed();
        libc::sigaction(signal, &raw const default, ptr::null_mut());
        // After we return, the instruction is repeated and faults again.
        if is_sent {
            let mut blocked = zeroed();
            libc::sigaddset(&raw mut blocked, signal);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const blocked, ptr::null_mut());
            libc::raise(signal);
            // Only the first process of a container is still alive here.
            install(signal);
        }
    }
}

/// Calls a handler as its action specifies.
unsafe fn call(action: &libc::sigaction, signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the handler's type is what its flags say; the system passed the context; a set of signals is valid when
    // zero.
    unsafe {
        let interrupted = &raw const (*context.cast::<libc::ucontext_t>()).uc_sigmask;
        let is_blocked = |other: c_int| {
            (other == signal && action.sa_flags & libc::SA_NODEFER == 0)
                || libc::sigismember(&raw const action.sa_mask, other) == 1
                || libc::sigismember(interrupted, other) == 1
        };
        let (mut ours, mut before) = (zeroed(), zeroed());
        for other in SIGNALS.into_iter().filter(|&other| !is_blocked(other)) {
            libc::sigaddset(&raw mut ours, other);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const action.sa_mask, &raw mut before);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const ours, ptr::null_mut());
        if action.sa_flags & libc::SA_SIGINFO != 0 {
            type Handler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
            transmute::<usize, Handler>(action.sa_sigaction)(signal, info, context);
        } else {
            transmute::<usize, unsafe extern "C" fn(c_int)>(action.sa_sigaction)(signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
    }
}
