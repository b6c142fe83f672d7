//! Launches: from handles and pointers to work, and from work to blocks.

use std::ffi::c_void;

use gpustream_hal::{
    Error, ErrorKind, Launch, LaunchConfig, Occupancy, RawFunction, RawStream, Result, SuggestedLaunch,
};

use crate::abi::{self, Dim};
use crate::block::Runner;
use crate::check::SharedGuard;
use crate::device::CpuDevice;
use crate::error::{error, unsupported};
use crate::failure::Failure;
use crate::module::Function;
use crate::work::{self, FunctionRef, Work};
use crate::worker::Worker;

/// Parameter blocks up to this size travel inside the operation; longer ones cost an allocation.
const INLINE: usize = 128;

/// Most blocks in y and z.
pub(crate) const MAX_GRID_YZ: u32 = 65_535;

/// A kernel's parameter block.
#[derive(Clone)]
pub(crate) struct Params {
    inline: Inline,
    long: Option<Box<[Inline]>>,
}

/// Aligned for any parameter.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Inline([u8; INLINE]);

impl Params {
    /// Copies the values that `args` point to into the kernel's layout.
    ///
    /// # Safety
    /// `args` matches the kernel's parameters in size.
    unsafe fn new(function: &Function, args: &[*mut c_void]) -> Self {
        let mut params = Self { inline: Inline([0; INLINE]), long: None };
        if function.params_size > INLINE {
            params.long = Some(vec![params.inline; function.params_size.div_ceil(INLINE)].into_boxed_slice());
        }
        let block = params.block_mut();
        for (param, arg) in function.params.iter().zip(args) {
            // SAFETY: the argument has the parameter's size, which lies in the block.
            unsafe {
                std::ptr::copy_nonoverlapping(arg.cast::<u8>(), block.add(param.offset), param.size);
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

/// A launch as work, if the device can do it.
///
/// # Safety
/// As for [`Launch::launch`].
pub(crate) unsafe fn prepare(
    function: RawFunction,
    config: &LaunchConfig,
    args: &[*mut c_void],
) -> Result<work::Launch> {
    // SAFETY: passed on to the caller.
    let kernel = unsafe { Function::borrow(function) };
    refuse(kernel, config, args.len())?;
    Ok(work::Launch {
        function: FunctionRef(kernel),
        config: *config,
        // SAFETY: passed on to the caller; the number was compared.
        params: unsafe { Params::new(kernel, args) },
    })
}

/// What a driver would refuse too. Cheap enough to look at always, where the alternative is a crash.
fn refuse(kernel: &Function, config: &LaunchConfig, args: usize) -> Result<()> {
    let [gx, gy, gz] = config.grid;
    let threads: u64 = config.block.iter().map(|&n| u64::from(n)).product();
    let invalid = |message: String| Err(error(ErrorKind::InvalidLaunch, message));
    if args != kernel.params.len() {
        let message = format!(
            "kernel `{}` has {} parameters, and {args} arguments were given",
            kernel.name,
            kernel.params.len()
        );
        return Err(error(ErrorKind::ArgumentMismatch, message));
    }
    if config.cooperative {
        return Err(unsupported("a cooperative launch"));
    }
    if config.cluster != [1, 1, 1] {
        return Err(unsupported("a launch in clusters"));
    }
    if gx == 0 || gy == 0 || gz == 0 || gx > i32::MAX as u32 || gy > MAX_GRID_YZ || gz > MAX_GRID_YZ {
        return invalid(format!(
            "a grid of {gx} x {gy} x {gz} blocks: each extent must be at least 1, x at most {}, y and z at most \
             {MAX_GRID_YZ}",
            i32::MAX
        ));
    }
    if threads == 0 || threads > u64::from(kernel.most_threads()) {
        return invalid(format!(
            "a block of {threads} threads: kernel `{}` takes 1 to {}",
            kernel.name,
            kernel.most_threads()
        ));
    }
    if config.dynamic_shared > abi::DYNAMIC_SHARED_MAX {
        return invalid(format!(
            "{} bytes of dynamic shared memory: at most {} are there",
            config.dynamic_shared,
            abi::DYNAMIC_SHARED_MAX
        ));
    }
    Ok(())
}

/// Runs blocks `first..end` of a launch.
///
/// # Safety
/// The launch was submitted as the traits ask.
pub(crate) unsafe fn run(launch: &work::Launch, worker: &mut Worker, first: u64, end: u64) -> Result<()> {
    let shared = worker.shared();
    let check = shared.options.check;
    let runner = worker.runner();
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
    }
    let result = if check {
        // SAFETY: passed on to the caller.
        unsafe { run_checked(kernel, worker, config.dynamic_shared, first, end) }
    } else {
        // SAFETY: passed on to the caller.
        unsafe { Runner::run(runner, kernel.entry, first, end) }
    };
    result.map_err(|failure| {
        // SAFETY: no kernel runs on it any more.
        let (context, address) = unsafe {
            let address = (*runner).crash_address();
            (std::ptr::read(&raw const (*runner).context), address)
        };
        // SAFETY: likewise.
        unsafe { (*runner).abandon() };
        describe(kernel, &context, &failure, address.and_then(|a| shared.memory.describe(a)))
    })
}

/// One block at a time, so that what is found can be told from the blocks before.
unsafe fn run_checked(
    kernel: &Function,
    worker: &mut Worker,
    dynamic_shared: u32,
    first: u64,
    end: u64,
) -> Result<(), Failure> {
    let (memory, runner) = (&worker.shared().memory, worker.runner());
    for block in first..end {
        // SAFETY: the module is loaded, and this worker runs no other block meanwhile.
        let guard = unsafe { SharedGuard::lay(&kernel.locals, dynamic_shared as usize) };
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
        // Only the general entry keeps the index where it can be read.
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

// SAFETY: every thread of the grid runs once, within its stream's order.
unsafe impl Launch for CpuDevice {
    unsafe fn launch(
        &self,
        function: RawFunction,
        config: &LaunchConfig,
        args: &[*mut c_void],
        stream: RawStream,
    ) -> Result<()> {
        // SAFETY: passed on to the caller.
        let (launch, stream) = unsafe { (prepare(function, config, args)?, self.stream(stream)) };
        stream.submit(Work::Launch(launch))
    }

    unsafe fn occupancy(
        &self,
        _function: RawFunction,
        threads_per_block: u32,
        dynamic_shared: u32,
    ) -> Result<Occupancy> {
        let fits = (1..=abi::MAX_THREADS as u32).contains(&threads_per_block)
            && dynamic_shared <= abi::DYNAMIC_SHARED_MAX;
        // A worker runs one block at a time.
        Ok(Occupancy::new(u32::from(fits)))
    }

    unsafe fn suggested_launch(&self, function: RawFunction, dynamic_shared: u32) -> Result<SuggestedLaunch> {
        if dynamic_shared > abi::DYNAMIC_SHARED_MAX {
            return Err(error(
                ErrorKind::InvalidLaunch,
                format!("{dynamic_shared} bytes of dynamic shared memory are more than there are"),
            ));
        }
        // SAFETY: passed on to the caller.
        let most = unsafe { Function::borrow(function) }.most_threads();
        // Some blocks for each worker, so that they end together.
        Ok(SuggestedLaunch {
            blocks: self.shared.options.workers as u32 * 4,
            threads_per_block: most.min(256),
        })
    }
}
