//! Launching on `hipModuleLaunchKernel`.

use std::ffi::{c_int, c_void};
use std::ptr;

use gpustream_hal::{ErrorKind, Launch, LaunchConfig, Occupancy, RawFunction, RawStream, Result};

use crate::device::HipDevice;
use crate::error::error;
use crate::module::function_of;
use crate::stream::stream_of;

/// What HIP cannot launch, found before it is asked.
///
/// HIP counts a launch's threads in 32 bits per dimension, and AMD devices have no clusters. Early dependent
/// launch needs nothing: plain stream order is a correct answer.
pub(crate) fn check(config: &LaunchConfig) -> Result<()> {
    if config.cluster != [1, 1, 1] {
        return Err(error(ErrorKind::Unsupported, "AMD devices have no block clusters"));
    }
    for (blocks, threads) in config.grid.into_iter().zip(config.block) {
        if blocks.checked_mul(threads).is_none() {
            let message = format!(
                "{blocks} blocks of {threads} threads: HIP launches fewer than 2^32 threads in a dimension; let \
                 each thread handle more elements"
            );
            return Err(error(ErrorKind::InvalidLaunch, message));
        }
    }
    Ok(())
}

// SAFETY: the launch is the HIP driver's, with the shape and arguments given.
unsafe impl Launch for HipDevice {
    unsafe fn launch(
        &self,
        function: RawFunction,
        config: &LaunchConfig,
        args: &[*mut c_void],
        stream: RawStream,
    ) -> Result<()> {
        check(config)?;
        let api = self.enter()?;
        let ([gx, gy, gz], [bx, by, bz], shared) = (config.grid, config.block, config.dynamic_shared);
        let (function, stream) = (function_of(function), stream_of(stream));
        let params = args.as_ptr().cast_mut();
        // SAFETY: function and stream are alive and the arguments match, by the trait's contract; HIP reads
        // the arguments before it returns and does not write to the array.
        let answer = unsafe {
            if config.cooperative {
                api.hipModuleLaunchCooperativeKernel(function, gx, gy, gz, bx, by, bz, shared, stream, params)
            } else {
                let extra = ptr::null_mut();
                api.hipModuleLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, stream, params, extra)
            }
        };
        answer.launched()
    }

    unsafe fn occupancy(
        &self,
        function: RawFunction,
        threads_per_block: u32,
        dynamic_shared: u32,
    ) -> Result<Occupancy> {
        let api = self.enter()?;
        let mut blocks: c_int = 0;
        // SAFETY: the function's module is loaded, by the trait's contract; the pointer is to a local.
        let answer = unsafe {
            api.hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
                &raw mut blocks,
                function_of(function),
                threads_per_block as c_int,
                dynamic_shared as usize,
            )
        };
        answer.ok()?;
        Ok(Occupancy::new(blocks.max(0) as u32))
    }

    unsafe fn suggested_block(&self, function: RawFunction, dynamic_shared: u32) -> Result<(u32, u32)> {
        let api = self.enter()?;
        let (mut grid, mut block): (c_int, c_int) = (0, 0);
        // SAFETY: the function's module is loaded, by the trait's contract; the pointers are to locals.
        let answer = unsafe {
            api.hipModuleOccupancyMaxPotentialBlockSize(
                &raw mut grid,
                &raw mut block,
                function_of(function),
                dynamic_shared as usize,
                0,
            )
        };
        answer.ok()?;
        Ok((grid.max(0) as u32, block.max(0) as u32))
    }
}
