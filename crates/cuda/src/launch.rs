//! Launching kernels.

use std::ffi::{c_char, c_void};
use std::mem::offset_of;
use std::ptr;

use cudarc::driver::sys::{
    CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue,
    CUlaunchAttributeValue_union__bindgen_ty_1 as ClusterDim, CUlaunchConfig,
};
use gpustream_hal::cold_path::cold_path;
use gpustream_hal::driver::{Answer, Status};
use gpustream_hal::{
    DriverConfig, Error, Launch, LaunchConfig, Occupancy, PlainLaunch, RawFunction, RawStream, Result,
    SuggestedLaunch,
};

use crate::api::{Api, functions};
use crate::device::CudaDevice;
use crate::handle::function_of;

// SAFETY: the CUDA driver makes the launch, with the shape and arguments given.
unsafe impl Launch for CudaDevice {
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
        // SAFETY: the caller vouches for handles and arguments.
        unsafe { launch_with_attributes(self.enter()?, function, config, args, stream) }
    }

    fn plain_launch(&self, config: &LaunchConfig) -> Result<Option<PlainLaunch>> {
        if !config.is_plain() {
            cold_path();
            return Ok(None);
        }
        // This takes 2 to 3 % less time than `cuLaunchKernel` (driver 580). SAFETY: the assertions below compare the fields.
        Ok(self.enter()?.cuLaunchKernelEx.map(|launch| unsafe { PlainLaunch::with_config(launch) }))
    }

    fn launch_error(&self, status: Status) -> Error {
        let function = &functions::cuLaunchKernelEx;
        Answer { api: &self.context.api, function, status: Some(status) }.launch_error()
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
            api.cuOccupancyMaxActiveBlocksPerMultiprocessor(
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
        // SAFETY: both pointers are to locals; the caller vouches for the function. We need no callback, because the shared
        // memory does not depend on the block size. Limit 0 means the kernel's own.
        let answer = unsafe {
            api.cuOccupancyMaxPotentialBlockSize(
                &raw mut grid,
                &raw mut block,
                function_of(function),
                None,
                dynamic_shared as usize,
                0,
            )
        };
        answer.ok()?;
        let count = |number| u32::try_from(number).unwrap_or(0);
        Ok(SuggestedLaunch { blocks: count(grid), threads_per_block: count(block) })
    }
}

// `DriverConfig` is `CUlaunchConfig`.
const _: () = {
    assert!(size_of::<DriverConfig>() == size_of::<CUlaunchConfig>());
    assert!(offset_of!(DriverConfig, grid) == offset_of!(CUlaunchConfig, gridDimX));
    assert!(offset_of!(DriverConfig, block) == offset_of!(CUlaunchConfig, blockDimX));
    assert!(offset_of!(DriverConfig, shared) == offset_of!(CUlaunchConfig, sharedMemBytes));
    assert!(offset_of!(DriverConfig, stream) == offset_of!(CUlaunchConfig, hStream));
    assert!(offset_of!(DriverConfig, attributes) == offset_of!(CUlaunchConfig, attrs));
    assert!(offset_of!(DriverConfig, attribute_count) == offset_of!(CUlaunchConfig, numAttrs));
};

/// Launches with more than a grid and blocks.
///
/// # Safety
/// The same as of [`Launch::launch`].
unsafe fn launch_with_attributes(
    api: &Api,
    function: RawFunction,
    config: &LaunchConfig,
    args: &[*mut c_void],
    stream: RawStream,
) -> Result<()> {
    let mut attributes = Attributes::of(config);
    let mut launch = DriverConfig::new(config, stream);
    launch.attributes = attributes.list.as_mut_ptr().cast();
    launch.attribute_count = attributes.count as u32;
    // SAFETY: `launch` and its attributes live on this stack until after the call; the caller vouches for the rest.
    let answer = unsafe {
        api.cuLaunchKernelEx(
            (&raw const launch).cast(),
            function_of(function),
            args.as_ptr().cast_mut(),
            ptr::null_mut(),
        )
    };
    answer.launched()
}

/// A launch's attributes, as the driver wants them.
pub(crate) struct Attributes {
    list: [CUlaunchAttribute; 3],
    count: usize,
}

impl Attributes {
    /// Returns what `config` asks for beyond grid, block and shared memory.
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

    /// Returns the attributes that were asked for.
    pub(crate) fn list(&self) -> &[CUlaunchAttribute] {
        &self.list[..self.count]
    }
}
