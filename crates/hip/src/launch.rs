//! Launching on `hipModuleLaunchKernel`.

use std::ffi::{c_int, c_void};
use std::ptr;

use gpustream_hal::{
    ErrorKind, Launch, LaunchConfig, Occupancy, RawFunction, RawStream, Result, SuggestedLaunch,
};

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
        self.bind()?;
        let api = &self.runtime.api;
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
        self.bind()?;
        let mut blocks: c_int = 0;
        // SAFETY: the function's module is loaded, by the trait's contract; the pointer is to a live integer.
        let answer = unsafe {
            self.runtime.api.hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
                &raw mut blocks,
                function_of(function),
                threads_per_block as c_int,
                dynamic_shared as usize,
            )
        };
        answer.ok()?;
        Ok(Occupancy::new(blocks.max(0) as u32))
    }

    unsafe fn suggested_launch(&self, function: RawFunction, dynamic_shared: u32) -> Result<SuggestedLaunch> {
        self.bind()?;
        let (mut grid, mut block): (c_int, c_int) = (0, 0);
        // SAFETY: the function's module is loaded, by the trait's contract; the pointers are to live integers.
        let answer = unsafe {
            self.runtime.api.hipModuleOccupancyMaxPotentialBlockSize(
                &raw mut grid,
                &raw mut block,
                function_of(function),
                dynamic_shared as usize,
                0,
            )
        };
        answer.ok()?;
        Ok(SuggestedLaunch { blocks: grid.max(0) as u32, threads_per_block: block.max(0) as u32 })
    }
}
