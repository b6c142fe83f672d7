//! Turns handles and pointers into a launch.

use std::ffi::c_void;
use std::sync::Arc;

use gpustream_hal::{
    ArgumentMemory, ErrorKind, Launch, LaunchConfig, Occupancy, RawFunction, RawStream, Result,
    SuggestedLaunch,
};

use crate::abi;
use crate::device::CpuDevice;
use crate::error::{error, unsupported};
use crate::grid::{self, FunctionRef, MAX_GRID_YZ, Params};
use crate::kernel::Function;
use crate::work::Task;

/// Returns a launch as work, if the device can do it.
///
/// # Safety
/// As for [`Launch::launch`].
pub(crate) unsafe fn prepare(
    function: RawFunction,
    config: &LaunchConfig,
    args: &[*mut c_void],
    workers: u32,
) -> Result<grid::Launch> {
    // SAFETY: passed on to the caller.
    let kernel = unsafe { Function::borrow(function) };
    refuse(kernel, config, args.len(), workers)?;
    Ok(grid::Launch {
        function: FunctionRef(kernel),
        config: *config,
        // SAFETY: passed on to the caller; the number was compared.
        params: unsafe { Params::new(kernel, args) },
        lent: None,
    })
}

/// Refuses a launch that a driver would refuse too. We always check, because it is cheap and the alternative
/// is a crash.
fn refuse(kernel: &Function, config: &LaunchConfig, args: usize, workers: u32) -> Result<()> {
    let [gx, gy, gz] = config.grid;
    let threads: u64 = config.block.iter().map(|&n| u64::from(n)).product();
    let invalid = |message: String| Err(error(ErrorKind::InvalidLaunch, message));
    if args != kernel.params.len() {
        let message = format!(
            "kernel `{}` has {} parameters, but the launch passes {args} arguments: pass one for each parameter",
            kernel.name,
            kernel.params.len()
        );
        return Err(error(ErrorKind::ArgumentMismatch, message));
    }
    if config.cluster != [1, 1, 1] {
        return Err(unsupported("a launch in clusters"));
    }
    if gx == 0 || gy == 0 || gz == 0 || gx > i32::MAX as u32 || gy > MAX_GRID_YZ || gz > MAX_GRID_YZ {
        return invalid(format!(
            "the launch has a grid of {gx} x {gy} x {gz} blocks, but each extent must be at least 1, x at most {}, y and z \
             at most {MAX_GRID_YZ}",
            i32::MAX
        ));
    }
    if threads == 0 || threads > u64::from(kernel.most_threads()) {
        return invalid(format!(
            "the launch has a block of {threads} threads, but kernel `{}` takes 1 to {}",
            kernel.name,
            kernel.most_threads()
        ));
    }
    let (blocks, at_once) =
        (u64::from(gx) * u64::from(gy) * u64::from(gz), blocks_at_once(threads) * workers);
    if config.cooperative && blocks > u64::from(at_once) {
        return invalid(format!(
            "the cooperative launch has {blocks} blocks of {threads} threads, but at most {at_once} can run at once: use a \
             smaller grid"
        ));
    }
    if config.dynamic_shared > abi::DYNAMIC_SHARED_MAX {
        return invalid(format!(
            "the launch asks for {} bytes of dynamic shared memory, but a block can have at most {}",
            config.dynamic_shared,
            abi::DYNAMIC_SHARED_MAX
        ));
    }
    Ok(())
}

/// Returns how many blocks of a cooperative launch are allowed per worker. Each of these blocks has its own
/// thread.
fn blocks_at_once(threads: u64) -> u32 {
    (abi::MAX_THREADS as u32 / threads.clamp(1, abi::MAX_THREADS as u64) as u32).min(16)
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
        unsafe { self.launch_within(function, config, args, &[], stream) }
    }

    unsafe fn launch_within(
        &self,
        function: RawFunction,
        config: &LaunchConfig,
        args: &[*mut c_void],
        memory: &[ArgumentMemory],
        stream: RawStream,
    ) -> Result<()> {
        // SAFETY: passed on to the caller.
        let (mut launch, stream) = unsafe {
            (prepare(function, config, args, self.shared.options.workers as u32)?, self.stream(stream))
        };
        launch.lent = self.shared.options.check.then(|| Arc::new(memory.to_vec()));
        stream.submit(Task::Launch(launch))
    }

    unsafe fn occupancy(
        &self,
        _function: RawFunction,
        threads_per_block: u32,
        dynamic_shared: u32,
    ) -> Result<Occupancy> {
        let fits = (1..=abi::MAX_THREADS as u32).contains(&threads_per_block)
            && dynamic_shared <= abi::DYNAMIC_SHARED_MAX;
        Ok(Occupancy::new(if fits { blocks_at_once(threads_per_block.into()) } else { 0 }))
    }

    unsafe fn suggested_launch(&self, function: RawFunction, dynamic_shared: u32) -> Result<SuggestedLaunch> {
        if dynamic_shared > abi::DYNAMIC_SHARED_MAX {
            return Err(error(
                ErrorKind::InvalidLaunch,
                format!(
                    "the launch asks for {dynamic_shared} bytes of dynamic shared memory, but a block can have at most {}",
                    abi::DYNAMIC_SHARED_MAX
                ),
            ));
        }
        // SAFETY: passed on to the caller.
        let most = unsafe { Function::borrow(function) }.most_threads();
        // Several blocks per worker, so that the workers finish together.
        Ok(SuggestedLaunch {
            blocks: self.shared.options.workers as u32 * 4,
            threads_per_block: most.min(256),
        })
    }
}
