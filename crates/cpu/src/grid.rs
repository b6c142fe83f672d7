//! Launches: a kernel with its arguments, and how its blocks run.

use std::ffi::c_void;
use std::sync::Arc;

use gpustream_hal::{ArgumentMemory, Error, ErrorKind, LaunchConfig, Result};

use crate::abi::{self, Dim};
use crate::block::Runner;
use crate::check::SharedGuard;
use crate::error::error;
use crate::failure::Failure;
use crate::kernel::Function;
use crate::print;
use crate::shared::Shared;

/// Most blocks in y and z.
pub(crate) const MAX_GRID_YZ: u32 = 65_535;

/// A kernel with its shape and arguments.
#[derive(Clone)]
pub(crate) struct Launch {
    pub(crate) function: FunctionRef,
    pub(crate) config: LaunchConfig,
    pub(crate) params: Params,
    /// In checked mode, the memory of the arguments if it is known. One address, to keep operations short.
    pub(crate) lent: Option<Arc<Vec<ArgumentMemory>>>,
}

/// A reference to a kernel of a loaded module.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct FunctionRef(pub(crate) *const Function);

// SAFETY: a function is constant from load to unload, and the traits' callers keep modules loaded while work
// refers to them.
unsafe impl Send for FunctionRef {}
// SAFETY: a function is constant from load to unload, and the traits' callers keep modules loaded while work
// refers to them.
unsafe impl Sync for FunctionRef {}

/// Parameter blocks up to this size and alignment are stored inside the operation. Larger ones need an
/// allocation.
const INLINE: usize = 128;
const INLINE_ALIGN: usize = 16;

/// A kernel's parameter block. The kernel reads its parameters in place, so the block must be aligned for
/// each of them.
#[derive(Clone)]
pub(crate) struct Params {
    inline: Inline,
    long: Option<Box<[Wide]>>,
}

/// Bytes that are aligned for vectors and everything common.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Inline([u8; INLINE]);

/// Bytes that are aligned for any parameter.
#[derive(Clone, Copy)]
#[repr(C, align(256))]
struct Wide([u8; abi::PARAMS_ALIGN_MAX]);

const _: () = assert!(align_of::<Inline>() == INLINE_ALIGN && align_of::<Wide>() == abi::PARAMS_ALIGN_MAX);

impl Params {
    /// Copies the values that `args` point to into the kernel's layout.
    ///
    /// # Safety
    /// Each argument in `args` must have the size of its parameter.
    pub(crate) unsafe fn new(function: &Function, args: &[*mut c_void]) -> Self {
        let mut params = Self { inline: Inline([0; INLINE]), long: None };
        if function.params_size > INLINE || function.params_align > INLINE_ALIGN {
            let count = function.params_size.div_ceil(size_of::<Wide>());
            params.long = Some(vec![Wide([0; size_of::<Wide>()]); count].into_boxed_slice());
        }
        let block = params.block_mut();
        for (param, arg) in function.params.iter().zip(args) {
            // SAFETY: the argument has the parameter's size, which lies in the block.
            unsafe {
                let to = block.add(param.offset);
                match param.size {
                    8 => to.cast::<[u8; 8]>().write(arg.cast::<[u8; 8]>().read()),
                    4 => to.cast::<[u8; 4]>().write(arg.cast::<[u8; 4]>().read()),
                    size => to.copy_from_nonoverlapping(arg.cast::<u8>(), size),
                }
            }
        }
        params
    }

    fn block_mut(&mut self) -> *mut u8 {
        match &mut self.long {
            Some(long) => long.as_mut_ptr().cast(),
            None => self.inline.0.as_mut_ptr(),
        }
    }

    fn block(&self) -> *const u8 {
        match &self.long {
            Some(long) => long.as_ptr().cast(),
            None => self.inline.0.as_ptr(),
        }
    }
}

impl Launch {
    /// Returns how many pieces workers can share: the blocks, or one piece if all blocks run at once.
    pub(crate) fn units(&self) -> u64 {
        if self.config.cooperative { 1 } else { self.blocks() }
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.config.grid.iter().map(|&n| u64::from(n)).product()
    }
}

/// Runs blocks `first..end` of a launch on this thread's `runner`. In a cooperative launch the blocks meet at
/// `meeting`.
///
/// # Safety
/// The launch must have been submitted as the traits demand. The runner must be alive and belong to this
/// thread, and the meeting must be alive if there is one.
pub(crate) unsafe fn run_blocks(
    launch: &Launch,
    shared: &'static Shared,
    runner: *mut Runner,
    first: u64,
    end: u64,
    meeting: *const abi::GridBarrier,
) -> Result<()> {
    let check = shared.options.check;
    let config = &launch.config;
    // SAFETY: the module is loaded while its work is pending.
    let kernel = unsafe { &*launch.function.0 };
    // SAFETY: the runner is this worker's own, and no kernel runs on it now.
    unsafe {
        let context = &mut (*runner).context;
        context.params = launch.params.block();
        context.grid = Dim::new(config.grid);
        context.block = Dim::new(config.block);
        context.warp_size = shared.options.warp_size;
        context.dynamic_shared = config.dynamic_shared;
        let row = u64::from(config.grid[0]) * u64::from(config.block[0]);
        context.wide = u32::from(row > abi::NARROW_MAX || check);
        context.check = u32::from(check);
        context.meeting = meeting;
    }
    let result = if check {
        // SAFETY: passed on to the caller.
        unsafe { run_checked(kernel, (shared, runner), config.dynamic_shared, first, end) }
    } else {
        // SAFETY: passed on to the caller.
        unsafe { Runner::run(runner, kernel.entry, first, end) }
    };
    // Printed text must appear before the launch counts as done. A GPU's driver also prints it at the latest
    // when the host has waited.
    if kernel.prints && result.is_ok() {
        print::flush();
    }
    // SAFETY: no kernel runs on the runner any more.
    result.map_err(|failure| unsafe { clear_up(kernel, shared, runner, &failure) })
}

/// Makes the runner forget a failed kernel, and returns the error.
///
/// # Safety
/// The kernel's module must be loaded. The runner must be alive, belong to this thread, and not run a kernel.
#[cold]
unsafe fn clear_up(kernel: &Function, shared: &Shared, runner: *mut Runner, failure: &Failure) -> Error {
    // SAFETY: by this function's contract.
    let (context, address) = unsafe {
        let address = (*runner).crash_address();
        let context = std::ptr::read(&raw const (*runner).context);
        (*runner).abandon();
        (context, address)
    };
    describe(kernel, &context, failure, address.and_then(|a| shared.memory.describe(a)))
}

/// Runs one block at a time, so that we know which block caused a violation.
#[inline(never)]
unsafe fn run_checked(
    kernel: &Function,
    (shared, runner): (&'static Shared, *mut Runner),
    dynamic_shared: u32,
    first: u64,
    end: u64,
) -> Result<(), Failure> {
    let memory = &shared.memory;
    for block in first..end {
        // SAFETY: the module is loaded, and this worker runs no other block meanwhile.
        let guard = unsafe { SharedGuard::lay(kernel.locals.dynamic_shared(), dynamic_shared as usize) };
        // SAFETY: passed on to the caller.
        unsafe { Runner::run(runner, kernel.entry, block, block + 1) }?;
        if let Some(message) = guard.violation().or_else(|| memory.violation()) {
            return Err(Failure { block, thread: None, message });
        }
    }
    Ok(())
}

fn describe(kernel: &Function, context: &abi::Context, failure: &Failure, near: Option<String>) -> Error {
    let block = context.grid.place(failure.block);
    let thread = match failure.thread {
        Some(thread) => Some(context.block.place(u64::from(thread))),
        // Only the general entry keeps the index in memory, so that we can read it.
        // SAFETY: the module is loaded.
        None if context.wide != 0 && near.is_some() => unsafe { kernel.locals.thread_index() },
        None => None,
    };
    let thread = thread.map_or_else(String::new, |thread| format!(", thread {thread}"));
    let near = near.map_or_else(String::new, |near| format!(", {near}"));
    error(
        ErrorKind::DeviceLost,
        format!("kernel `{}`, block {block}{thread}: {}{near}", kernel.name, failure.message),
    )
}
