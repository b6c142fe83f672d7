//! Launching kernels.

use std::ffi::c_void;

use crate::{Error, RawFunction, RawStream, Result};

/// The shape and attributes of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaunchConfig {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory per block, in bytes.
    pub dynamic_shared: u32,
    /// Whether all blocks are resident at once, so that a grid-wide barrier works.
    pub cooperative: bool,
    /// The shape, in blocks, of the clusters that blocks are grouped into; `[1, 1, 1]` for none.
    pub cluster: [u32; 3],
    /// Whether the kernel may start before its predecessor in the stream has ended (CUDA's programmatic dependent
    /// launch). Backends without it keep plain stream order, which is a correct answer.
    pub early_dependent: bool,
}

impl LaunchConfig {
    /// Returns a launch of `grid` blocks of `block` threads, with no shared memory and no attributes.
    pub const fn new(grid: [u32; 3], block: [u32; 3]) -> Self {
        Self {
            grid,
            block,
            dynamic_shared: 0,
            cooperative: false,
            cluster: [1, 1, 1],
            early_dependent: false,
        }
    }

    /// Returns whether a plain launch call will do.
    pub const fn is_plain(&self) -> bool {
        !self.cooperative && !self.early_dependent && matches!(self.cluster, [1, 1, 1])
    }
}

/// A grid and block size that fill a device with one kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuggestedLaunch {
    /// Blocks of the grid.
    pub blocks: u32,
    /// Threads in each block.
    pub threads_per_block: u32,
}

/// The number of blocks that fit on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Occupancy {
    /// Blocks resident on one multiprocessor at once.
    pub blocks_per_multiprocessor: u32,
}

impl Occupancy {
    /// Returns a backend's answer.
    pub const fn new(blocks_per_multiprocessor: u32) -> Self {
        Self { blocks_per_multiprocessor }
    }
}

/// Launching kernels and asking how they fit.
///
/// # Safety
/// An implementor promises that a launch runs that kernel with that shape and those arguments, in its stream's order,
/// that it has read the arguments when it returns, and that a launch that fails runs nothing.
pub unsafe trait Launch {
    /// Enqueues a kernel (`cuLaunchKernel`, `hipModuleLaunchKernel`; with attributes `cuLaunchKernelEx`,
    /// `hipModuleLaunchCooperativeKernel`). `args[i]` points to the value of parameter `i`, which is read before
    /// the call returns.
    ///
    /// # Safety
    /// Function and stream are alive and of this device; `args` matches the kernel's parameters in number and
    /// size; what the kernel does with them is sound.
    unsafe fn launch(
        &self,
        function: RawFunction,
        config: &LaunchConfig,
        args: &[*mut c_void],
        stream: RawStream,
    ) -> Result<()>;

    /// Returns how many blocks of this shape fit on one multiprocessor
    /// (`cuOccupancyMaxActiveBlocksPerMultiprocessor`).
    ///
    /// # Safety
    /// The function's module is loaded.
    unsafe fn occupancy(
        &self,
        function: RawFunction,
        threads_per_block: u32,
        dynamic_shared: u32,
    ) -> Result<Occupancy> {
        let _ = (function, threads_per_block, dynamic_shared);
        Err(Error::unsupported("an occupancy query"))
    }

    /// Returns a grid and block size that fill the device (`cuOccupancyMaxPotentialBlockSize`).
    ///
    /// # Safety
    /// The function's module is loaded.
    unsafe fn suggested_launch(&self, function: RawFunction, dynamic_shared: u32) -> Result<SuggestedLaunch> {
        let _ = (function, dynamic_shared);
        Err(Error::unsupported("an occupancy query"))
    }
}
