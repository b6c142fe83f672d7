//! What is checked about a launch before the driver is called.

use std::sync::atomic::Ordering;

use gpustream_core::launch::{LaunchRequest, most_threads};
use gpustream_core::reentrancy;
use gpustream_hal::{DeviceInfo, Error, ErrorKind, LaunchConfig, Result};

use crate::module::Kernel;
use crate::stream::Stream;

impl Kernel {
    /// Checks that the kernel was loaded through the same handle of the device as the stream.
    #[inline]
    pub(super) fn check_device(&self, stream: &Stream) -> Result<()> {
        if self.device().is_same(stream.device()) { Ok(()) } else { Err(self.foreign(stream)) }
    }

    /// Writes the shape of a launch on the stream to `shape`, and checks everything that a backend assumes about it.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the path of a launch")]
    pub(super) fn shape(
        &self,
        stream: &Stream,
        launch: &LaunchRequest,
        shape: &mut LaunchConfig,
    ) -> Result<()> {
        if let Some(usual) = launch.usual(&self.limits) {
            *shape = usual;
            return Ok(());
        }
        self.any_shape(stream, launch, shape)
    }

    /// Like [`shape`](Self::shape), for a launch of any form.
    #[inline(never)]
    fn any_shape(&self, stream: &Stream, launch: &LaunchRequest, shape: &mut LaunchConfig) -> Result<()> {
        *shape = launch.resolve(stream.device().info())?;
        self.check_block(shape.block, shape.dynamic_shared)?;
        if shape.is_plain() { Ok(()) } else { self.check_attributes(stream, shape) }
    }

    /// Checks the attributes of a launch: cooperative launch and clusters.
    #[cold]
    fn check_attributes(&self, stream: &Stream, config: &LaunchConfig) -> Result<()> {
        check_attributes(config, stream.device().info())?;
        match stream.core.part() {
            Some(part) if config.cooperative => self.check_fits_part(config, part),
            _ => Ok(()),
        }
    }

    /// Checks that all blocks of a grid fit on a part of the device at once, because drivers may only compare with the whole
    /// device.
    fn check_fits_part(&self, config: &LaunchConfig, part: u32) -> Result<()> {
        let threads = config.block.iter().product();
        let at_once = u64::from(self.blocks_at_once(threads, config.dynamic_shared)?) * u64::from(part);
        let blocks = config.grid.iter().fold(1, |all: u64, &blocks| all.saturating_mul(blocks.into()));
        if blocks <= at_once {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::InvalidLaunch,
            format!(
                "a cooperative launch of `{}` has {blocks} blocks, and its stream's {part} multiprocessors can run {at_once} \
                 at once; launch fewer blocks, or use a stream of the whole device",
                self.name
            ),
        ))
    }

    /// Checks that the device can run this kernel in such blocks. If they need more dynamic shared memory than the kernel may
    /// use yet, raises its limit.
    pub(crate) fn check_block(&self, block: [u32; 3], dynamic_shared: u32) -> Result<()> {
        let info = self.device().info();
        let (threads, limit, shared) = self.needs(block, dynamic_shared);
        if threads > u64::from(limit) || shared > u64::from(info.limits.shared_memory_per_block_optin) {
            return Err(self.beyond_limits(
                threads,
                limit,
                shared,
                info.limits.shared_memory_per_block_optin,
            ));
        }
        if shared <= u64::from(info.limits.shared_memory_per_block) {
            Ok(())
        } else {
            self.allow_most_shared()
        }
    }

    /// Returns how many threads such a block has, how many it may have, and how many bytes of shared memory it needs.
    fn needs(&self, block: [u32; 3], dynamic_shared: u32) -> (u64, u32, u64) {
        let threads = block.iter().map(|&threads| u64::from(threads)).product::<u64>();
        let limit = most_threads(self.device().info(), self.info);
        (threads, limit, u64::from(dynamic_shared) + u64::from(self.info.static_shared))
    }

    /// Returns true if a launch in this shape passes [`shape`](Self::shape) without calling the driver.
    pub(super) fn takes(&self, config: &LaunchConfig) -> bool {
        let (threads, limit, shared) = self.needs(config.block, config.dynamic_shared);
        config.is_plain()
            && threads <= u64::from(limit)
            && shared <= u64::from(self.device().info().limits.shared_memory_per_block)
    }

    /// Raises the kernel's limit of dynamic shared memory to the device's. What one launch needs would not be enough, because
    /// another thread's launch or query may need more at the same moment.
    #[cold]
    fn allow_most_shared(&self) -> Result<()> {
        if self.may_share_most.load(Ordering::Acquire) {
            return Ok(());
        }
        reentrancy::check_outside()?;
        let device = self.device();
        let most = device.info().limits.shared_memory_per_block_optin.saturating_sub(self.info.static_shared);
        // SAFETY: the kernel's module is loaded as long as `self`.
        unsafe { device.raw().function_set_max_dynamic_shared(self.raw, most) }?;
        self.may_share_most.store(true, Ordering::Release);
        Ok(())
    }

    #[cold]
    fn foreign(&self, stream: &Stream) -> Error {
        let (own, other) = (self.device(), stream.device());
        let what = if own.info().backend == other.info().backend && own.info().ordinal == other.info().ordinal
        {
            "another handle of the stream's device, and a module belongs to one handle"
        } else {
            "a device that is not the stream's"
        };
        Error::new(
            ErrorKind::DeviceMismatch,
            format!(
                "the kernel `{}` was loaded with {}, {what} ({}); load its module with the stream's: \
                 `Kernels::load(stream.device())`",
                self.name,
                own.place(),
                other.place()
            ),
        )
    }

    #[cold]
    fn beyond_limits(&self, threads: u64, limit: u32, shared: u64, shared_limit: u32) -> Error {
        Error::new(
            ErrorKind::InvalidLaunch,
            format!(
                "the launch of `{}` asks for {threads} threads per block and {shared} bytes of shared memory (static and \
                 dynamic), but this device and kernel allow at most {limit} threads and {shared_limit} bytes; use a smaller \
                 block or less shared memory",
                self.name
            ),
        )
    }
}

/// The largest cluster that every device with clusters allows.
const MAX_CLUSTER: u64 = 8;

/// Checks that the device can do what a launch asks for.
fn check_attributes(config: &LaunchConfig, info: &DeviceInfo) -> Result<()> {
    let lacks = |what: &str, instead: &str| {
        let message = format!("{what} is not supported here; {instead}");
        Err(Error::new(ErrorKind::Unsupported, message).with_backend(info.backend))
    };
    if config.cooperative && !info.features.cooperative_launch {
        return lacks(
            "a cooperative launch",
            "split the kernel at its grid barriers, and launch the parts in a row",
        );
    }
    if config.cluster == [1, 1, 1] {
        return Ok(());
    }
    let invalid = |message: String| Err(Error::new(ErrorKind::InvalidLaunch, message));
    let ([x, y, z], [gx, gy, gz]) = (config.cluster, config.grid);
    if config.cluster.contains(&0) {
        return invalid(format!(
            "a cluster of {x} by {y} by {z} blocks has no blocks; write 1 for an axis that you don't use"
        ));
    }
    if !info.features.cluster_launch {
        return lacks("a launch with clusters", "launch a kernel that needs none, and leave out `cluster`");
    }
    let blocks = config.cluster.iter().fold(1, |blocks: u64, &n| blocks.saturating_mul(u64::from(n)));
    if blocks > MAX_CLUSTER {
        return invalid(format!(
            "a cluster of {x} by {y} by {z} blocks has {blocks} blocks, but at most {MAX_CLUSTER} are possible; make it smaller"
        ));
    }
    if config.grid.iter().zip(config.cluster).any(|(blocks, cluster)| blocks % cluster != 0) {
        return invalid(format!(
            "clusters of {x} by {y} by {z} blocks do not divide a grid of {gx} by {gy} by {gz} blocks; round the grid up"
        ));
    }
    Ok(())
}
