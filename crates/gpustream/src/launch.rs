//! How kernels are launched.

mod argument;
mod check;
mod dims;
mod typed;

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
pub use dims::Dims;
pub(crate) use typed::placed;
pub use typed::{Parameter, Parameters, TypedKernel};

/// The shape and attributes of a launch.
///
/// ```
/// use gpustream::Launch;
/// let exact = Launch::new((64, 64), (16, 16)).shared(4096);
/// let one_thread_per_element = Launch::covering(1_000_000);
/// let one_thread_per_pixel = Launch::covering_blocks((1920, 1080), (32, 8));
/// # let _ = (exact, one_thread_per_element, one_thread_per_pixel);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch(LaunchRequest);

impl Launch {
    /// Makes a launch of `grid` blocks of `block` threads. You write both as for a `dim3` in C++: [`Dims`] lists the forms.
    ///
    /// ```
    /// use gpustream::Launch;
    /// assert_eq!(Launch::new(64, 256), Launch::new([64, 1, 1], [256, 1, 1]));
    /// assert_eq!(Launch::new((8, 4), (16, 16, 2)), Launch::new([8, 4, 1], [16, 16, 2]));
    /// ```
    #[inline]
    pub fn new(grid: impl Dims<u32>, block: impl Dims<u32>) -> Self {
        Self::exact(grid.xyz(), block.xyz())
    }

    /// Makes the same launch as [`new`](Self::new), but you can call this function for a `const`.
    ///
    /// ```
    /// use gpustream::Launch;
    /// const ONE_THREAD: Launch = Launch::exact([1; 3], [1; 3]);
    /// assert_eq!(ONE_THREAD, Launch::new(1, 1));
    /// ```
    #[inline]
    pub const fn exact(grid: [u32; 3], block: [u32; 3]) -> Self {
        let [x, y, z] = grid;
        Self(LaunchRequest::new(Grid::Exact, [x as usize, y as usize, z as usize], block))
    }

    /// Makes a launch of one thread per element, in blocks of 256. The last block may have more threads than there are elements
    /// left.
    pub const fn covering(elements: usize) -> Self {
        Self(LaunchRequest::new(Grid::Covering, [elements, 1, 1], [BLOCK, 1, 1]))
    }

    /// Makes a launch of one thread per element of `extent`, in blocks of the given shape. The last blocks of each dimension
    /// may have more threads than there are elements left.
    #[inline]
    pub fn covering_blocks(extent: impl Dims<usize>, block: impl Dims<u32>) -> Self {
        Self(LaunchRequest::new(Grid::Covering, extent.xyz(), block.xyz()))
    }

    /// Makes a launch of one thread for every few elements, for kernels that loop over `elements` with any grid
    /// (`GS_FOR_EACH`).
    pub const fn strided(elements: usize) -> Self {
        Self(LaunchRequest::new(Grid::Strided, [elements, 1, 1], [BLOCK, 1, 1]))
    }

    /// Makes a launch whose grid fills the device a few times, for kernels that loop over `elements` and whose blocks have
    /// something to set up or to combine at the end, for example a reduction or a histogram.
    pub const fn filling(elements: usize) -> Self {
        Self(LaunchRequest::new(Grid::Filling, [elements, 1, 1], [BLOCK, 1, 1]))
    }

    /// Sets how many bytes of dynamic shared memory each block has.
    #[must_use]
    pub const fn shared(mut self, bytes: u32) -> Self {
        self.0.shared = bytes;
        self
    }

    /// Sets whether all blocks must be on the device at the same time, so that a grid-wide barrier works. If the grid does not
    /// fit, the launch is an error. You need not call this if the kernel's contract has the condition `cooperative`: its
    /// launcher always does so.
    #[must_use]
    pub const fn cooperative(mut self, cooperative: bool) -> Self {
        self.0.cooperative = cooperative;
        self
    }

    /// Groups blocks into clusters of this shape, with at most 8 blocks each. The blocks of a cluster are on the device at the
    /// same time and can use each other's shared memory (`<gpustream/cluster.cuh>`). If you gave an exact grid, it must be a
    /// multiple of the cluster in each dimension. Other shapes are rounded up.
    #[must_use]
    pub fn cluster(mut self, shape: impl Dims<u32>) -> Self {
        self.0.cluster = shape.xyz();
        self
    }

    /// Lets the kernel start before its predecessor in the stream has ended, if the device can do that (programmatic dependent
    /// launch). Otherwise the stream's order holds.
    ///
    /// # Safety
    /// The kernel must call `gs::wait_for_predecessor()` of `<gpustream/grid.cuh>` before it touches memory that earlier work
    /// of the stream touches.
    #[must_use]
    pub const unsafe fn early_dependent(mut self) -> Self {
        self.0.early_dependent = true;
        self
    }

    /// Returns true if the launch covers zero elements, so that there is nothing to do.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the grid and block that this launch has on a device.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidLaunch`] if that exceeds a limit of the device; the message names the limit.
    #[inline]
    #[track_caller]
    pub fn resolve(&self, info: &DeviceInfo) -> Result<LaunchConfig> {
        named(call_site("resolve"), || self.0.resolve(info))
    }
}

impl Kernel {
    /// Enqueues this kernel on `stream`, after all work that it must wait for because of its memory arguments. This launch is
    /// untyped. If you can, use a generated launcher, which calls this.
    ///
    /// # Errors
    /// [`ErrorKind::ArgumentMismatch`] if the number or the sizes of the arguments differ from the compiled parameters;
    /// [`ErrorKind::InvalidLaunch`] if the launch exceeds a limit of the device or the kernel; [`ErrorKind::DeviceMismatch`] if
    /// something belongs to another device; [`ErrorKind::Unsupported`] if the backend lacks an attribute.
    ///
    /// # Safety
    /// The kernel must be sound with these arguments in this shape. It must stay inside the memory that you pass. It may only
    /// write memory that you pass by [`Arg::write`] or [`Arg::volatile_mut`], and its module's variables. It must interpret
    /// each value as the type that you pass. If you loaded its module without naming variables that the kernel writes
    /// ([`ModuleSource::globals`](crate::ModuleSource::globals)), other work must not use these at the same time.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "around a driver's call: see `Lowered`")]
    #[track_caller]
    pub unsafe fn launch(&self, stream: &Stream, launch: &Launch, args: &[Arg<'_>]) -> Result<()> {
        let entry = stream.enter(CallSite { label: self.label, location: Location::caller() })?;
        if stream.core.expects_a_launch()
            // SAFETY: handed on to the caller.
            && let Some(followed) = unsafe { self.follow(&entry, stream, launch, args) }
        {
            return followed;
        }
        let mut lowered = Lowered::new();
        // SAFETY: the caller keeps this function's contract.
        let begun = unsafe { self.begin(&entry, stream, launch, args, &mut lowered) }?;
        let Some(begun) = begun else { return Ok(()) };
        // SAFETY: kernel and stream are alive and of one device. The arguments match in number and size. Memory arguments are
        // not freed before this use is done. The rest is this function's contract.
        let result = unsafe { lowered.launch(self.raw, stream) };
        // We leave out module variables: accesses only matter here if the host has to learn of the end, and the host cannot
        // reach these.
        let accesses = args.iter().filter_map(Arg::access).map(|(access, _)| access);
        entry.finish(begun, accesses, HostWait::Alone, result)
    }

    /// Does everything for a launch that comes before the driver's call. Returns `None` if that call is no longer needed,
    /// because the launch was recorded, traced or deferred.
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
        if let Some(begun) = entry.begin(accesses, HostWait::Alone)? {
            return match core.device.plain_launch(&config) {
                Ok(Some(plain)) => {
                    *call = DriverCall::Plain(plain, DriverConfig::new(&config, core.raw()));
                    Ok(Some(begun))
                }
                Ok(None) if stream.device.0.info.quirks.checked => {
                    let (lent, args) = (argument::lent(args), pointers.filled());
                    // SAFETY: as for the driver's call in `launch`.
                    let launched =
                        unsafe { core.device.launch_within(self.raw, &config, args, &lent, core.raw()) };
                    let accesses = accesses.iter().copied();
                    entry.finish(begun, accesses, HostWait::Alone, launched).map(|()| None)
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
        // SAFETY: kernel, stream and arguments were checked and are alive until this use is done. The rest is this function's
        // contract.
        unsafe { entry.submit_elsewhere(&mut submission) }?;
        Ok(None)
    }
}

/// A launch as the driver takes it.
///
/// This is in the frame of the function that launches, because that function must make the driver's call itself, with as few
/// functions around it as possible: see [`Begun`]. We read each part in one piece as we wrote it, because a processor stalls if
/// one read needs bytes that were just written in several pieces.
struct Lowered {
    call: DriverCall,
    pointers: Pointers,
}

/// The call that makes a launch.
enum DriverCall {
    /// There is nothing left to call.
    None,
    /// The driver's function, and what it reads.
    Plain(PlainLaunch, DriverConfig),
    /// The backend's function, which may make several driver calls.
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
    /// As for [`gpustream_hal::Launch::launch`], with the arguments that `pointers` was filled with, and on the thread that
    /// filled them.
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
    /// Lets the stream's step defer the launch, or its node take it, if they expect exactly this launch. Otherwise returns
    /// `None`.
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

    /// Returns the shape of a launch on the stream's device, if the kernel can be launched in it.
    #[cold]
    fn taken(&self, launch: &Launch, stream: &Stream) -> Option<LaunchConfig> {
        launch.0.resolve(stream.device().info()).ok().filter(|config| self.takes(config))
    }
}

/// Functions for generated bindings. They change with the generator, so don't call them by hand.
#[doc(hidden)]
pub mod codegen {
    use super::{
        Arg, CallSite, Error, ErrorKind, Kernel, Launch, LaunchConfig, Location, ParamInfo, Result, Stream,
        call_site, named,
    };

    pub use crate::global::global_of as global;
    pub use crate::module::{Variables, load_built as load};
    pub use gpustream_core::checksum::Checksum;
    pub use gpustream_hal::Source;

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

    /// Returns the shape of `launch` on the stream's device, for a kernel whose blocks wait for each other. A grid of our
    /// choice is made small enough to be on the device at once. Any other that does not fit is refused by the driver.
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

    /// Returns the kernel that was looked for in a module, or `None` if the module has no such kernel.
    ///
    /// # Errors
    /// What else went wrong.
    pub fn if_compiled(found: Result<Kernel>) -> Result<Option<Kernel>> {
        match found {
            Ok(kernel) => Ok(Some(kernel)),
            Err(error) if error.kind() == ErrorKind::KernelNotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns a kernel that only some targets have. `targets` lists them.
    ///
    /// # Errors
    /// [`ErrorKind::KernelNotFound`] if the device's image has no such kernel.
    #[track_caller]
    pub fn compiled<'k>(kernel: Option<&'k Kernel>, name: &'static str, targets: &str) -> Result<&'k Kernel> {
        named(call_site(name), || {
            kernel.ok_or_else(|| {
                let has = if targets.is_empty() { "no target" } else { targets };
                let message = format!(
                    "kernel `{name}` is not in the image for this device, because an `#if` of its file leaves it out \
                     there; it was compiled for {has}"
                );
                Error::new(ErrorKind::KernelNotFound, message)
            })
        })
    }

    /// Launches a kernel if the shape is already known.
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
        let mut launch = Launch::exact(config.grid, config.block).shared(config.dynamic_shared);
        (launch.0.cooperative, launch.0.cluster) = (config.cooperative, config.cluster);
        launch.0.early_dependent = config.early_dependent;
        // SAFETY: the caller keeps this contract.
        unsafe { kernel.launch(stream, &launch, args) }
    }

    /// Returns the error for a condition that does not hold.
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
    fn sizes_are_written_as_for_a_dim3() {
        for [one, two, three] in [
            [Launch::new(2, 3), Launch::new((2, 4), (3, 5)), Launch::new((2, 4, 6), (3, 5, 7))],
            [Launch::new([2], [3]), Launch::new([2, 4], [3, 5]), Launch::new([2, 4, 6], [3, 5, 7])],
        ] {
            assert_eq!(one, Launch::exact([2, 1, 1], [3, 1, 1]));
            assert_eq!(two, Launch::exact([2, 4, 1], [3, 5, 1]));
            assert_eq!(three, Launch::exact([2, 4, 6], [3, 5, 7]));
        }
        let (width, height) = (33usize, 17usize);
        let covering = Launch::covering_blocks((width, height), (16, 16)).cluster(2);
        assert_eq!(covering, Launch::covering_blocks([33, 17, 1], [16, 16, 1]).cluster([2, 1, 1]));
        assert_eq!(Launch::covering_blocks(100, 256), Launch::covering(100));
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
