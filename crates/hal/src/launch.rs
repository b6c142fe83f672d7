//! Launching kernels.

use std::ffi::{c_uint, c_void};
use std::{fmt, mem, ptr};

use crate::driver::Status;
use crate::{Error, RawBuffer, RawFunction, RawStream, Result};

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
    /// Whether all blocks must be resident at once, so that a grid-wide barrier works.
    pub cooperative: bool,
    /// How many blocks form a cluster, in x, y, z. `[1, 1, 1]` means no clusters.
    pub cluster: [u32; 3],
    /// Whether the kernel may start before the previous one in the stream has ended (CUDA's programmatic dependent launch).
    /// A backend without it keeps plain stream order, which is also correct.
    pub early_dependent: bool,
}

impl LaunchConfig {
    /// Returns a launch of `grid` blocks of `block` threads each, with no shared memory and no attributes.
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

    /// Returns true if a plain launch call is enough.
    pub const fn is_plain(&self) -> bool {
        !self.cooperative && !self.early_dependent && matches!(self.cluster, [1, 1, 1])
    }
}

/// The memory behind one argument of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "backends and the core are of one version")]
pub struct ArgumentMemory {
    /// The argument's number, from 0.
    pub argument: usize,
    /// Where the memory begins.
    pub address: RawBuffer,
    /// How long it is, in bytes.
    pub bytes: usize,
    /// The size of an element, in bytes.
    pub element: usize,
    /// Whether the kernel may write it.
    pub writes: bool,
}

/// A driver's function for plain launches: `cuLaunchKernelEx`, `hipModuleLaunchKernel`.
#[derive(Clone, Copy)]
pub struct PlainLaunch(LaunchFunction);

/// Such a function. Each driver has its own pointer types for the handles.
#[derive(Clone, Copy)]
enum LaunchFunction {
    WithShape(WithShape<c_void, c_void>),
    WithConfig(WithConfig<DriverConfig, c_void>),
}

type WithShape<F, S> = unsafe extern "C" fn(
    function: *mut F,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: *mut S,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Status;

type WithConfig<C, F> = unsafe extern "C" fn(
    config: *const C,
    function: *mut F,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Status;

/// A launch as drivers read it: `CUlaunchConfig`.
#[repr(C)]
#[derive(Debug)]
pub struct DriverConfig {
    /// Blocks in x, y, z.
    pub grid: [c_uint; 3],
    /// Threads of a block in x, y, z.
    pub block: [c_uint; 3],
    /// Dynamic shared memory per block, in bytes.
    pub shared: c_uint,
    /// The stream's handle.
    pub stream: *mut c_void,
    /// The launch's attributes.
    pub attributes: *mut c_void,
    /// The number of attributes.
    pub attribute_count: c_uint,
}

impl DriverConfig {
    /// Returns a launch of this shape on `stream`, without attributes.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the path of a launch")]
    pub fn new(config: &LaunchConfig, stream: RawStream) -> Self {
        // Number by number, because then the arrays are not copied in between.
        let ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]) = (config.grid, config.block);
        Self {
            grid: [grid_x, grid_y, grid_z],
            block: [block_x, block_y, block_z],
            shared: config.dynamic_shared,
            stream: stream.0 as *mut c_void,
            attributes: ptr::null_mut(),
            attribute_count: 0,
        }
    }
}

impl PlainLaunch {
    /// Wraps a driver function that takes the shape as numbers.
    pub fn with_shape<F, S>(function: WithShape<F, S>) -> Self {
        // SAFETY: a pointer is passed in the same way, whatever type it points to.
        let function = unsafe { mem::transmute::<WithShape<F, S>, WithShape<c_void, c_void>>(function) };
        Self(LaunchFunction::WithShape(function))
    }

    /// Wraps a driver function that takes shape and stream in one struct.
    ///
    /// # Safety
    /// `C` has the fields of [`DriverConfig`], in its order.
    pub unsafe fn with_config<C, F>(function: WithConfig<C, F>) -> Self {
        // SAFETY: pointers to other types are passed in the same way, and the caller vouches for the struct.
        let function =
            unsafe { mem::transmute::<WithConfig<C, F>, WithConfig<DriverConfig, c_void>>(function) };
        Self(LaunchFunction::WithConfig(function))
    }

    /// Makes the launch.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// As for [`Launch::launch`], on the thread and with the shape that you gave to `device` when it returned the function.
    /// `config` must have no attributes.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "it is there to have no function around the driver's")]
    pub unsafe fn call(
        self,
        device: &(impl Launch + ?Sized),
        function: RawFunction,
        config: &DriverConfig,
        args: &[*mut c_void],
    ) -> Result<()> {
        let function = function.0 as *mut c_void;
        let (params, extra) = (args.as_ptr().cast_mut(), ptr::null_mut());
        // SAFETY: the caller vouches for handles and arguments. Before it returns, the driver reads the argument values and
        // the shape, and nothing else through the array.
        let status = unsafe {
            match self.0 {
                LaunchFunction::WithConfig(launch) => launch(config, function, params, extra),
                LaunchFunction::WithShape(launch) => {
                    let ([gx, gy, gz], [bx, by, bz]) = (config.grid, config.block);
                    let (shared, stream) = (config.shared, config.stream);
                    launch(function, gx, gy, gz, bx, by, bz, shared, stream, params, extra)
                }
            }
        };
        match status {
            Status::SUCCESS => Ok(()),
            status => Err(device.launch_error(status)),
        }
    }
}

impl fmt::Debug for PlainLaunch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlainLaunch").finish_non_exhaustive()
    }
}

/// A grid and block size that let one kernel fill a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuggestedLaunch {
    /// Blocks of the grid.
    pub blocks: u32,
    /// Threads in each block.
    pub threads_per_block: u32,
}

/// How many blocks fit on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Occupancy {
    /// How many blocks one multiprocessor can hold at once.
    pub blocks_per_multiprocessor: u32,
}

impl Occupancy {
    /// Makes it from a backend's answer.
    pub const fn new(blocks_per_multiprocessor: u32) -> Self {
        Self { blocks_per_multiprocessor }
    }
}

/// Launching kernels, and asking how they fit.
///
/// # Safety
/// If you implement this, you promise that a launch runs exactly that kernel with that shape and those arguments, in its
/// stream's order; that it has read the arguments when it returns; and that it runs nothing if it fails.
#[expect(unused_variables, reason = "the names in the defaults are documentation")]
pub unsafe trait Launch {
    /// Enqueues a kernel (`cuLaunchKernelEx`, `hipModuleLaunchKernel`, `hipModuleLaunchCooperativeKernel`). `args[i]` points
    /// to the value of parameter `i`. The value need not be aligned for its type, and the call reads it before it returns.
    ///
    /// # Errors
    /// As for [`fill`](crate::Buffers::fill); [`InvalidLaunch`](crate::ErrorKind::InvalidLaunch) if the kernel cannot have
    /// this shape; [`Unsupported`](crate::ErrorKind::Unsupported) if the backend lacks an attribute.
    ///
    /// # Safety
    /// Function and stream are alive and of this device; `args` matches the kernel's parameters in number and
    /// size; the kernel's use of them is sound.
    unsafe fn launch(
        &self,
        function: RawFunction,
        config: &LaunchConfig,
        args: &[*mut c_void],
        stream: RawStream,
    ) -> Result<()>;

    /// Does what [`launch`](Self::launch) does, and knows which memory the kernel may touch. A device that
    /// [checks](crate::DeviceQuirks::checked) can then report a kernel that writes any other.
    ///
    /// # Errors
    /// As for [`launch`](Self::launch).
    ///
    /// # Safety
    /// As for [`launch`](Self::launch).
    unsafe fn launch_within(
        &self,
        function: RawFunction,
        config: &LaunchConfig,
        args: &[*mut c_void],
        memory: &[ArgumentMemory],
        stream: RawStream,
    ) -> Result<()> {
        let _ = memory;
        // SAFETY: passed on to the caller.
        unsafe { self.launch(function, config, args, stream) }
    }

    /// Makes this thread ready for a [plain](LaunchConfig::is_plain) launch, and returns the driver's function for it. You
    /// call that function yourself, because each function around a driver's call takes time. Returns `None` if the launch
    /// has attributes, or needs more than one call; then use [`launch`](Self::launch).
    ///
    /// # Errors
    /// Those that [`launch`](Self::launch) can return before it calls the driver.
    fn plain_launch(&self, config: &LaunchConfig) -> Result<Option<PlainLaunch>> {
        Ok(None)
    }

    /// Returns the error for what a function from [`plain_launch`](Self::plain_launch) has returned.
    fn launch_error(&self, status: Status) -> Error {
        Error::unsupported("a plain launch")
    }

    /// Returns how many blocks of this shape fit on one multiprocessor (`cuOccupancyMaxActiveBlocksPerMultiprocessor`).
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the backend cannot tell; otherwise the driver's failure.
    ///
    /// # Safety
    /// The function's module is loaded.
    unsafe fn occupancy(
        &self,
        function: RawFunction,
        threads_per_block: u32,
        dynamic_shared: u32,
    ) -> Result<Occupancy> {
        Err(Error::unsupported("an occupancy query"))
    }

    /// Returns a grid and block size that fill the device (`cuOccupancyMaxPotentialBlockSize`).
    ///
    /// # Errors
    /// As for [`occupancy`](Self::occupancy); [`InvalidLaunch`](crate::ErrorKind::InvalidLaunch) if no block can have that
    /// much shared memory, and the backend can tell.
    ///
    /// # Safety
    /// The function's module is loaded.
    unsafe fn suggested_launch(&self, function: RawFunction, dynamic_shared: u32) -> Result<SuggestedLaunch> {
        Err(Error::unsupported("an occupancy query"))
    }
}
