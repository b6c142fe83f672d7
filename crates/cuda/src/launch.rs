//! Launching kernels.

use std::ffi::{c_char, c_void};
use std::ptr;

use cudarc::driver::sys::{
    CUfunction, CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue,
    CUlaunchAttributeValue_union__bindgen_ty_1 as ClusterDim, CUlaunchConfig,
};
use gpustream_hal::{
    ErrorKind, Launch, LaunchConfig, Occupancy, RawFunction, RawStream, Result, SuggestedLaunch,
};

use crate::device::CudaDevice;
use crate::driver::{Driver, Status, call};
use crate::error::{failed_as, kind};
use crate::stream;

// SAFETY: the launch is the CUDA driver's, with the shape and arguments given.
unsafe impl Launch for CudaDevice {
    #[inline]
    unsafe fn launch(
        &self,
        function: RawFunction,
        config: &LaunchConfig,
        args: &[*mut c_void],
        stream: RawStream,
    ) -> Result<()> {
        let driver = self.enter()?;
        if !config.is_plain() {
            // SAFETY: as the caller vouches.
            return unsafe { launch_with_attributes(driver, function, config, args, stream) };
        }
        let ([gx, gy, gz], [bx, by, bz]) = (config.grid, config.block);
        // SAFETY: the caller vouches for handles and arguments; the driver reads the argument values, and
        // through the array nothing else, before it returns.
        let status = unsafe {
            (driver.api.cuLaunchKernel)(
                function.0 as CUfunction,
                gx,
                gy,
                gz,
                bx,
                by,
                bz,
                config.dynamic_shared,
                stream::raw(stream),
                args.as_ptr().cast_mut(),
                ptr::null_mut(),
            )
        };
        if status == Status::OK { Ok(()) } else { refused(driver, "cuLaunchKernel", status) }
    }

    unsafe fn occupancy(
        &self,
        function: RawFunction,
        threads_per_block: u32,
        dynamic_shared: u32,
    ) -> Result<Occupancy> {
        let driver = self.enter()?;
        let mut blocks = 0;
        // SAFETY: the pointer is to a local; the caller vouches for the function.
        unsafe {
            call!(
                driver,
                cuOccupancyMaxActiveBlocksPerMultiprocessor(
                    &raw mut blocks,
                    function.0 as CUfunction,
                    threads_per_block as i32,
                    dynamic_shared as usize,
                )
            )?;
        }
        Ok(Occupancy::new(u32::try_from(blocks).unwrap_or(0)))
    }

    unsafe fn suggested_launch(&self, function: RawFunction, dynamic_shared: u32) -> Result<SuggestedLaunch> {
        let driver = self.enter()?;
        let (mut blocks, mut threads) = (0, 0);
        // SAFETY: both pointers are to locals; the caller vouches for the function. No callback: the shared
        // memory does not depend on the block size. Limit 0 is the kernel's own.
        unsafe {
            call!(
                driver,
                cuOccupancyMaxPotentialBlockSize(
                    &raw mut blocks,
                    &raw mut threads,
                    function.0 as CUfunction,
                    None,
                    dynamic_shared as usize,
                    0,
                )
            )?;
        }
        let count = |number| u32::try_from(number).unwrap_or(0);
        Ok(SuggestedLaunch { blocks: count(blocks), threads_per_block: count(threads) })
    }
}

/// A launch that is more than a grid of blocks (`cuLaunchKernelEx`).
///
/// # Safety
/// As [`Launch::launch`].
unsafe fn launch_with_attributes(
    driver: &Driver,
    function: RawFunction,
    config: &LaunchConfig,
    args: &[*mut c_void],
    stream: RawStream,
) -> Result<()> {
    let mut attributes = Attributes::of(config);
    let ([gx, gy, gz], [bx, by, bz]) = (config.grid, config.block);
    let launch = CUlaunchConfig {
        gridDimX: gx,
        gridDimY: gy,
        gridDimZ: gz,
        blockDimX: bx,
        blockDimY: by,
        blockDimZ: bz,
        sharedMemBytes: config.dynamic_shared,
        hStream: stream::raw(stream),
        attrs: attributes.list.as_mut_ptr(),
        numAttrs: attributes.count as u32,
    };
    // SAFETY: `launch` and its attributes live on this stack beyond the call; the rest as the caller vouches.
    let status = unsafe {
        (driver.api.cuLaunchKernelEx)(
            &raw const launch,
            function.0 as CUfunction,
            args.as_ptr().cast_mut(),
            ptr::null_mut(),
        )
    };
    if status == Status::OK { Ok(()) } else { refused(driver, "cuLaunchKernelEx", status) }
}

/// A launch's attributes as the driver wants them.
pub(crate) struct Attributes {
    list: [CUlaunchAttribute; 3],
    count: usize,
}

impl Attributes {
    /// What `config` asks for beyond grid, block and shared memory.
    pub(crate) fn of(config: &LaunchConfig) -> Self {
        let empty = CUlaunchAttribute {
            id: CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_IGNORE,
            pad: [0 as c_char; 4],
            value: CUlaunchAttributeValue { pad: [0; 64] },
        };
        let mut attributes = Self { list: [empty; 3], count: 0 };
        if config.cooperative {
            let value = CUlaunchAttributeValue { cooperative: 1 };
            attributes.push(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE, value);
        }
        if config.cluster != [1, 1, 1] {
            let [x, y, z] = config.cluster;
            let value = CUlaunchAttributeValue { clusterDim: ClusterDim { x, y, z } };
            attributes.push(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, value);
        }
        if config.early_dependent {
            let value = CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 };
            attributes
                .push(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, value);
        }
        attributes
    }

    fn push(&mut self, id: CUlaunchAttributeID, value: CUlaunchAttributeValue) {
        let slot = &mut self.list[self.count];
        (slot.id, slot.value) = (id, value);
        self.count += 1;
    }

    /// The attributes that were asked for.
    pub(crate) fn list(&self) -> &[CUlaunchAttribute] {
        &self.list[..self.count]
    }
}

#[cold]
#[inline(never)]
fn refused(driver: &Driver, call: &'static str, status: Status) -> Result<()> {
    // The driver calls a shape it cannot launch an invalid value.
    let kind = if status == Status::INVALID_VALUE { ErrorKind::InvalidLaunch } else { kind(status) };
    Err(failed_as(&driver.api, call, status, kind))
}
