//! Launching kernels.

use std::ffi::c_void;

use gpustream_hal::driver::{Answer, Status};
use gpustream_hal::{
    DriverConfig, Error, ErrorKind, Launch, LaunchConfig, Occupancy, PlainLaunch, RawFunction, RawStream,
    Result, SuggestedLaunch,
};

use crate::api::functions;
use crate::device::HipDevice;
use crate::error::error;
use crate::handle::{function_of, stream_of};

/// If HIP cannot make a launch, refuses it, so that the error can tell you why.
///
/// HIP counts a launch's threads in 32 bits per dimension, and AMD devices have no clusters. We may ignore the wish for
/// an early dependent launch, because plain stream order is correct too.
pub(crate) fn check(config: &LaunchConfig) -> Result<()> {
    if config.cluster != [1, 1, 1] {
        return Err(error(
            ErrorKind::Unsupported,
            "the launch asks for clusters of blocks, but AMD devices have none: launch without `cluster`",
        ));
    }
    for (blocks, threads) in config.grid.into_iter().zip(config.block) {
        if blocks.checked_mul(threads).is_none() {
            let message = format!(
                "the launch has {blocks} blocks of {threads} threads in one dimension, but HIP can only launch fewer than 2^32 \
                 threads there: let each thread handle more elements"
            );
            return Err(error(ErrorKind::InvalidLaunch, message));
        }
    }
    Ok(())
}

// SAFETY: the HIP driver makes the launch, with the shape and arguments given.
unsafe impl Launch for HipDevice {
    unsafe fn launch(
        &self,
        function: RawFunction,
        config: &LaunchConfig,
        args: &[*mut c_void],
        stream: RawStream,
    ) -> Result<()> {
        if let Some(plain) = self.plain_launch(config)? {
            // SAFETY: handed on.
            return unsafe { plain.call(self, function, &DriverConfig::new(config, stream), args) };
        }
        let api = self.enter()?;
        let ([gx, gy, gz], [bx, by, bz], shared) = (config.grid, config.block, config.dynamic_shared);
        let (function, stream) = (function_of(function), stream_of(stream));
        let params = args.as_ptr().cast_mut();
        // SAFETY: the caller vouches for handles and arguments. HIP reads the argument values before it returns, and nothing else
        // through the array.
        let answer = unsafe {
            api.hipModuleLaunchCooperativeKernel(function, gx, gy, gz, bx, by, bz, shared, stream, params)
        };
        answer.launched()
    }

    fn plain_launch(&self, config: &LaunchConfig) -> Result<Option<PlainLaunch>> {
        check(config)?;
        if config.cooperative {
            return Ok(None);
        }
        Ok(self.enter()?.hipModuleLaunchKernel.map(PlainLaunch::with_shape))
    }

    fn launch_error(&self, status: Status) -> Error {
        let function = &functions::hipModuleLaunchKernel;
        Answer { api: &self.api, function, status: Some(status) }.launch_error()
    }

    unsafe fn occupancy(
        &self,
        function: RawFunction,
        threads_per_block: u32,
        dynamic_shared: u32,
    ) -> Result<Occupancy> {
        let api = self.enter()?;
        let mut blocks = 0;
        // SAFETY: the pointer is to a local; the caller vouches for the function.
        let answer = unsafe {
            api.hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
                &raw mut blocks,
                function_of(function),
                threads_per_block as i32,
                dynamic_shared as usize,
            )
        };
        answer.ok()?;
        Ok(Occupancy::new(u32::try_from(blocks).unwrap_or(0)))
    }

    unsafe fn suggested_launch(&self, function: RawFunction, dynamic_shared: u32) -> Result<SuggestedLaunch> {
        let api = self.enter()?;
        let (mut grid, mut block) = (0, 0);
        // SAFETY: both pointers are to locals; the caller vouches for the function. Limit 0 means the kernel's own.
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
        let count = |number| u32::try_from(number).unwrap_or(0);
        Ok(SuggestedLaunch { blocks: count(grid), threads_per_block: count(block) })
    }
}
