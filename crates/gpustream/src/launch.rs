//! Launching kernels.

mod argument;
mod check;

use std::panic::Location;

use gpustream_core::launch::{BLOCK, Grid, LaunchRequest};
use gpustream_core::operation::{DriverCalls, HostWait, KernelLaunch, Operation, Retained, call_site, named};
use gpustream_core::stream::{Begun, StreamEntry};
use gpustream_hal::cold_path::cold_path;
use gpustream_hal::{
    CallSite, DeviceInfo, DriverConfig, Error, ErrorKind, LaunchConfig, ParamInfo, PlainLaunch, RawFunction,
    Result, Work,
};

use crate::module::Kernel;
use crate::stream::Stream;

pub use argument::Arg;
use argument::{AccessRoom, Pointers, lower};

/// The shape and attributes of a launch.
///
/// ```
/// use gpustream::Launch;
/// let exact = Launch::new([64, 64, 1], [16, 16, 1]).shared(4096);
/// let one_thread_per_element = Launch::covering(1_000_000);
/// # let _ = (exact, one_thread_per_element);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch(LaunchRequest);

impl Launch {
    /// Makes a launch of `grid` blocks of `block` threads, in x, y, z.
    pub const fn new(grid: [u32; 3], block: [u32; 3]) -> Self {
        let [x, y, z] = grid;
        Self(LaunchRequest::new(Grid::Exact, [x as usize, y as usize, z as usize], block))
    }

    /// Makes a launch of one thread for each of `elements`, in blocks of 256; the last block may have threads to spare.
    pub const fn covering(elements: usize) -> Self {
        Self::covering_blocks([elements, 1, 1], [BLOCK, 1, 1])
    }

    /// Makes a launch of one thread for each element of `extent`, in blocks of the given shape.
    pub const fn covering_blocks(extent: [usize; 3], block: [u32; 3]) -> Self {
        Self(LaunchRequest::new(Grid::Covering, extent, block))
    }

    /// Makes a launch of a few elements per thread, for kernels that loop over `elements` with any grid
    /// (`GS_FOR_EACH`).
    pub const fn strided(elements: usize) -> Self {
        Self(LaunchRequest::new(Grid::Strided, [elements, 1, 1], [BLOCK, 1, 1]))
    }

    /// Makes a launch whose grid fills the device a few times, for kernels that loop over `elements` and whose blocks
    /// have something to set up or to hand in: a reduction, a histogram.
    pub const fn filling(elements: usize) -> Self {
        Self(LaunchRequest::new(Grid::Filling, [elements, 1, 1], [BLOCK, 1, 1]))
    }

    /// Sets the dynamic shared memory of each block, in bytes.
    #[must_use]
    pub const fn shared(mut self, bytes: u32) -> Self {
        self.0.shared = bytes;
        self
    }

    /// Sets whether all blocks are resident at once, so that a grid-wide barrier works. A grid that does not fit is
    /// refused. Launchers of kernels whose contract has the condition `cooperative` always launch so.
    #[must_use]
    pub const fn cooperative(mut self, cooperative: bool) -> Self {
        self.0.cooperative = cooperative;
        self
    }

    /// Groups blocks into clusters of this shape, of at most 8 blocks: the blocks of a cluster are on the device at
    /// once, and reach each other's shared memory (`<gpustream/cluster.cuh>`). An exact grid must be a multiple of the
    /// cluster in each dimension; other shapes are rounded up.
    #[must_use]
    pub const fn cluster(mut self, shape: [u32; 3]) -> Self {
        self.0.cluster = shape;
        self
    }

    /// Lets the kernel start before its predecessor in the stream has ended, where the device can (programmatic
    /// dependent launch). Elsewhere the stream's order holds.
    ///
    /// # Safety
    /// The kernel calls `gs::wait_for_predecessor()` of `<gpustream/grid.cuh>` before it touches memory that earlier
    /// work of the stream touches.
    #[must_use]
    pub const unsafe fn early_dependent(mut self) -> Self {
        self.0.early_dependent = true;
        self
    }

    /// Returns whether the launch is over zero elements, so that there is nothing to do.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the shape that this launch has on a device.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidLaunch`] where the device's limits are exceeded, with the limit.
    #[inline]
    #[track_caller]
    pub fn resolve(&self, info: &DeviceInfo) -> Result<LaunchConfig> {
        named(call_site("resolve"), || self.0.resolve(info))
    }
}

impl Kernel {
    /// Enqueues this kernel on `stream`, ordered after all work that its memory arguments need.
    ///
    /// This is the untyped launch, which generated launchers use; prefer those.
    ///
    /// # Errors
    /// [`ErrorKind::ArgumentMismatch`] where number or sizes differ from the compiled parameters,
    /// [`ErrorKind::InvalidLaunch`] beyond the limits of device or kernel, [`ErrorKind::DeviceMismatch`] for
    /// objects of another device, [`ErrorKind::Unsupported`] for an attribute the backend lacks.
    ///
    /// # Safety
    /// The kernel is sound with these arguments in this shape: it stays inside the memory that it is given, writes only
    /// memory passed by [`Arg::write`] or [`Arg::volatile_mut`] and its module's variables, and interprets each value as the
    /// type it was passed as. If it writes variables that its module was loaded without
    /// ([`ModuleSource::globals`](crate::ModuleSource::globals)), no other work that uses these runs at the same time.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "around a driver's call: see `Lowered`")]
    #[track_caller]
    pub unsafe fn launch(&self, stream: &Stream, launch: &Launch, args: &[Arg<'_>]) -> Result<()> {
        let entry = stream.enter(CallSite { label: self.label, location: Location::caller() })?;
        if stream.core.expects_a_launch()
            // SAFETY: handed on.
            && let Some(followed) = unsafe { self.follow(&entry, stream, launch, args) }
        {
            return followed;
        }
        let mut lowered = Lowered::new();
        // SAFETY: the caller keeps this function's contract.
        let begun = unsafe { self.begin(&entry, stream, launch, args, &mut lowered) }?;
        let Some(begun) = begun else { return Ok(()) };
        // SAFETY: kernel and stream are alive and of one device; arguments match in number and size; memory arguments are not
        // freed before this use is done; the rest is this function's contract.
        let result = unsafe { lowered.launch(self.raw, stream) };
        // Module variables are left out: only the host may have to know of the end, and it does not reach them.
        let accesses = args.iter().filter_map(Arg::access).map(|(access, _)| access);
        entry.finish(begun, accesses, HostWait::Alone, result)
    }

    /// Does everything about a launch that comes before the driver's call. `None` where the launch then needs no such call: it
    /// was recorded, traced or held back.
    ///
    /// # Safety
    /// As for [`launch`](Self::launch).
    #[inline(never)]
    unsafe fn begin<'s>(
        &self,
        entry: &StreamEntry<'s>,
        stream: &Stream,
        launch: &Launch,
        args: &[Arg<'_>],
        lowered: &mut Lowered,
    ) -> Result<Option<Begun<'s>>> {
        let Lowered { call, pointers } = lowered;
        let mut config = LaunchConfig::new([1; 3], [1; 3]);
        let mut variables = None;
        let globals: &[_] = match &self.globals {
            None => &[],
            Some(globals) => {
                cold_path();
                variables.insert(globals.accesses())
            }
        };
        let mut room = AccessRoom::new();
        let checked = self
            .check_device(stream)
            .and_then(|()| self.shape(stream, &launch.0, &mut config))
            .and_then(|()| lower(self, stream, args, globals, pointers, &mut room));
        let accesses = entry.named(checked)?;
        let core = &stream.core;
        if let Some(begun) = entry.begin(accesses)? {
            return match core.device.plain_launch(&config) {
                Ok(Some(plain)) => {
                    *call = DriverCall::Plain(plain, DriverConfig::new(&config, core.raw()));
                    Ok(Some(begun))
                }
                Ok(None) => {
                    *call = DriverCall::Other(config);
                    Ok(Some(begun))
                }
                Err(error) => {
                    let (accesses, failed) = (accesses.iter().copied(), Err(error));
                    entry.finish(begun, accesses, HostWait::Alone, failed).map(|()| None)
                }
            };
        }
        cold_path();
        let mut submission = Operation {
            caller: &entry.caller,
            accesses,
            call: DriverCalls::Work(Work::Kernel {
                function: self.raw,
                config: &config,
                args: pointers.filled(),
            }),
            kept: Retained::Kernel { module: self.module(), sizes: self.params.as_ref(), request: &launch.0 },
            waited: HostWait::Alone,
        };
        // SAFETY: kernel, stream and arguments were checked, and are alive until this use is done; the rest is this
        // function's contract.
        unsafe { entry.submit_elsewhere(&mut submission) }?;
        Ok(None)
    }
}

/// A launch in the form in which the driver takes it. It lies in the frame of the function that launches, which makes the
/// driver's call itself, with as few functions around it as possible: see [`Begun`]. Each part is read as it was
/// written: a processor stalls on one read of bytes that were just written in several pieces.
struct Lowered {
    call: DriverCall,
    pointers: Pointers,
}

/// The call that makes a launch.
enum DriverCall {
    /// None is left to make.
    None,
    /// The driver's function, and what it reads.
    Plain(PlainLaunch, DriverConfig),
    /// The backend's, which may be several of the driver's.
    Other(LaunchConfig),
}

impl Lowered {
    #[inline]
    const fn new() -> Self {
        Self { call: DriverCall::None, pointers: Pointers::new() }
    }

    /// Calls the driver.
    ///
    /// # Safety
    /// As for [`gpustream_hal::Launch::launch`], with the arguments that `pointers` was filled with, on the thread that did it.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "around a driver's call: see the type")]
    unsafe fn launch(&self, function: RawFunction, stream: &Stream) -> Result<()> {
        let (core, args) = (&stream.core, self.pointers.filled());
        // SAFETY: handed on.
        unsafe {
            match &self.call {
                DriverCall::Plain(plain, config) => plain.call(&*core.device, function, config, args),
                DriverCall::Other(config) => core.device.launch(function, config, args, core.raw()),
                DriverCall::None => Ok(()),
            }
        }
    }
}

impl Kernel {
    /// Has the stream's step hold the launch back, or its node take it, if they expect it; otherwise returns `None`.
    ///
    /// # Safety
    /// As for [`launch`](Self::launch).
    #[inline(never)]
    unsafe fn follow(
        &self,
        entry: &StreamEntry<'_>,
        stream: &Stream,
        launch: &Launch,
        args: &[Arg<'_>],
    ) -> Option<Result<()>> {
        let launched = KernelLaunch { caller: &entry.caller, function: self.raw, request: &launch.0, args };
        let resolved = || self.taken(launch, stream);
        if !self.device().is_same(stream.device()) {
            return None;
        }
        // SAFETY: handed on.
        unsafe { entry.follow(&launched, |arg| arg.on(&stream.device), resolved) }
    }

    /// Returns the shape of a launch on the stream's device, if it is one that the kernel takes.
    #[cold]
    fn taken(&self, launch: &Launch, stream: &Stream) -> Option<LaunchConfig> {
        launch.0.resolve(stream.device().info()).ok().filter(|config| self.takes(config))
    }
}

/// Functions for generated bindings. They are not for use by hand, since they change with the generator.
#[doc(hidden)]
pub mod codegen {
    use super::{
        Arg, CallSite, Error, ErrorKind, Kernel, Launch, LaunchConfig, Location, ParamInfo, Result, Stream,
        call_site, named,
    };

    pub use crate::global::global_of as global;
    pub use crate::module::{Variables, load_built as load};
    pub use gpustream_core::checksum::Checksum;

    /// Describes a parameter of `size` bytes at `offset`.
    pub const fn param(offset: usize, size: usize) -> ParamInfo {
        ParamInfo { offset, size }
    }

    /// Returns the shape of a launch of `kernel` on the stream's device.
    #[inline]
    #[track_caller]
    pub fn resolve(launch: &Launch, kernel: &Kernel, stream: &Stream) -> Result<LaunchConfig> {
        named(call_site(kernel.label), || launch.0.resolve(stream.device().info()))
    }

    /// Returns the shape of `launch` on the stream's device for a kernel whose blocks wait for each other. A grid of
    /// the library's choice is made to fit on the device at once; the driver refuses any other grid that does not fit.
    #[track_caller]
    pub fn resolve_cooperative(launch: &Launch, kernel: &Kernel, stream: &Stream) -> Result<LaunchConfig> {
        named(call_site(kernel.label), || {
            let info = stream.device().info();
            let mut config = launch.cooperative(true).0.resolve(info)?;
            if launch.0.is_devices_choice() && info.features.cooperative_launch {
                let threads = config.block.iter().product();
                let at_once = kernel.blocks_at_once(threads, config.dynamic_shared)?;
                config.grid[0] = config.grid[0].min(at_once.saturating_mul(stream.multiprocessors()).max(1));
            }
            Ok(config)
        })
    }

    /// Launches in an already resolved shape.
    ///
    /// # Safety
    /// As for [`Kernel::launch`].
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "around a driver's call: see `Lowered`")]
    #[track_caller]
    pub unsafe fn launch(
        kernel: &Kernel,
        stream: &Stream,
        config: &LaunchConfig,
        args: &[Arg<'_>],
    ) -> Result<()> {
        let mut launch = Launch::new(config.grid, config.block).shared(config.dynamic_shared);
        (launch.0.cooperative, launch.0.cluster) = (config.cooperative, config.cluster);
        launch.0.early_dependent = config.early_dependent;
        // SAFETY: the caller keeps this contract.
        unsafe { kernel.launch(stream, &launch, args) }
    }

    /// Returns the error for a clause of a kernel's contract that does not hold.
    #[cold]
    #[track_caller]
    pub fn violated(kernel: &'static str, clause: &str, values: &[(&str, i128)]) -> Error {
        let values: Vec<String> = values.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        let operation = CallSite { label: kernel, location: Location::caller() };
        Error::new(
            ErrorKind::ContractViolated,
            format!("kernel `{kernel}` requires {clause}, but {}", values.join(", ")),
        )
        .with_call_site(operation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> DeviceInfo {
        let mut info = DeviceInfo::new(gpustream_hal::BackendName::new("test"), 0);
        info.multiprocessors = 4;
        info.limits.max_threads_per_multiprocessor = 1024;
        info
    }

    #[test]
    fn covering_rounds_up_and_filling_fills_the_device() {
        let shape = |launch: Launch| launch.resolve(&info()).map(|config| (config.grid, config.block));
        assert_eq!(shape(Launch::covering(1)).unwrap(), ([1, 1, 1], [256, 1, 1]));
        assert_eq!(shape(Launch::covering(257)).unwrap(), ([2, 1, 1], [256, 1, 1]));
        assert_eq!(shape(Launch::covering_blocks([33, 17, 1], [16, 16, 1])).unwrap().0, [3, 2, 1]);
        assert_eq!(shape(Launch::filling(1 << 40)).unwrap().0, [128, 1, 1]);
        assert_eq!(shape(Launch::filling(40_000)).unwrap().0, [20, 1, 1]);
        assert_eq!(shape(Launch::filling(20_000)).unwrap().0, [16, 1, 1]);
        assert_eq!(shape(Launch::filling(300)).unwrap().0, [2, 1, 1]);
        assert_eq!(shape(Launch::strided(1 << 30)).unwrap().0, [524_288, 1, 1]);
        assert_eq!(shape(Launch::strided(300)).unwrap().0, [2, 1, 1]);
        assert!([Launch::covering(0), Launch::strided(0), Launch::filling(0)].iter().all(Launch::is_empty));
    }

    #[test]
    fn limits_are_named() {
        for (launch, text) in [
            (Launch::new([0, 1, 1], [1, 1, 1]), "0 blocks in the grid along x"),
            (Launch::new([1, 70_000, 1], [1, 1, 1]), "70000 blocks in the grid along y"),
            (Launch::new([1, 1, 1], [1, 1, 65]), "65 threads in a block along z; test:0 allows 1 to 64"),
            (Launch::covering(1 << 42), "blocks in the grid along x"),
            (
                Launch::covering_blocks([usize::MAX, 1, 1], [1, 1, 1]).cluster([2, 1, 1]),
                "18446744073709551615 blocks in the grid along x",
            ),
        ] {
            let error = launch.resolve(&info()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidLaunch);
            assert!(error.message().contains(text), "{error}");
        }
    }
}
