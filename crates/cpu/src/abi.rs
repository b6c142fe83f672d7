//! The C interface between a kernel module and this backend: the mirror of `gpustream/cpu/abi.h`.

use std::ffi::c_char;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Version of this interface; a module states the one it was compiled with.
pub const ABI: u32 = 6;

/// The one symbol a module exports: a [`Module`].
pub const MODULE_SYMBOL: &str = "gpustream_cpu_module";

/// Most bytes of dynamic shared memory a block can have.
pub const DYNAMIC_SHARED_MAX: u32 = 232_448;

/// Most threads of a block.
pub const MAX_THREADS: usize = 1024;

/// Most bytes of all parameters of a kernel.
pub const PARAMS_MAX: u32 = 32_764;

/// Largest alignment of a parameter, in bytes.
pub const PARAMS_ALIGN_MAX: usize = 256;

/// A grid whose x extent in threads is at most this can use the entry with 32-bit index hints.
pub const NARROW_MAX: u64 = 0x7fff_0000;

/// Name of the array in which a module's dynamic shared memory lies, with
/// [`DYNAMIC_SHARED_MARGIN`] unused bytes on either side.
pub const DYNAMIC_SHARED_SYMBOL: &str = "gs_cpu_dynamic_shared";

/// Unused bytes before and after dynamic shared memory.
pub const DYNAMIC_SHARED_MARGIN: usize = 4096;

/// Name of the variable whose address [`Module::anchor`] gives.
pub const ANCHOR_SYMBOL: &str = "_ZL13gs_cpu_anchor";

/// Name of the variable `threadIdx`.
pub const THREAD_INDEX_SYMBOL: &str = "_ZL9threadIdx";

/// Extents in x, y, z.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Dim {
    /// Fastest dimension.
    pub x: u32,
    /// Middle dimension.
    pub y: u32,
    /// Slowest dimension.
    pub z: u32,
}

impl Dim {
    /// Returns extents as the trait crate writes them.
    pub const fn new([x, y, z]: [u32; 3]) -> Self {
        Self { x, y, z }
    }

    /// Returns the product of the extents.
    pub const fn count(self) -> u64 {
        self.x as u64 * self.y as u64 * self.z as u64
    }

    /// Returns the place of linear number `index`, x fastest.
    #[must_use]
    pub const fn place(self, index: u64) -> Self {
        let (x, y) = (self.x as u64, self.y as u64);
        Self { x: (index % x) as u32, y: (index / x % y) as u32, z: (index / x / y) as u32 }
    }
}

impl std::fmt::Display for Dim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "({}, {}, {})", self.x, self.y, self.z)
    }
}

/// `gs_cpu_warp_kind`.
pub mod warp {
    /// No value.
    pub const SYNC: u32 = 0;
    /// Another lane's value.
    pub const SHUFFLE: u32 = 1;
    /// Mask of lanes with a value other than 0.
    pub const BALLOT: u32 = 2;
    /// Mask of lanes with the same value.
    pub const MATCH: u32 = 3;
}

/// A thread's part in a warp operation (`gs_cpu_lane`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Lane {
    /// The value that the thread gives; afterwards the one that it gets.
    pub value: u64,
    /// Set afterwards: mask of the lanes that took part.
    pub active: u64,
    /// The lanes that the thread waits for; 0 for those of the warp that can get here.
    pub mask: u64,
    /// The source file in which the thread waits: a nul-terminated string of the module.
    pub file: *const c_char,
    /// The line in that file.
    pub line: u32,
    /// The operation, a constant of [`warp`].
    pub kind: u32,
    /// The lane that a shuffle reads.
    pub source: u32,
    /// Unused.
    pub reserved: u32,
}

impl Lane {
    /// A thread in no operation.
    pub const NONE: Self = Self {
        value: 0,
        active: 0,
        mask: 0,
        file: std::ptr::null(),
        line: 0,
        kind: warp::SYNC,
        source: 0,
        reserved: 0,
    };
}

/// An array, a texture or a surface, as kernels know it by its address (`gs_cpu_image`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Image {
    /// The first texel.
    pub data: *mut u8,
    /// Bytes from one row to the next.
    pub row: u64,
    /// Bytes from one plane or layer to the next.
    pub slice: u64,
    /// Texels of a row, rows, and planes or layers; none is zero, except the texels of linear memory.
    pub extent: [u64; 3],
    /// 1 to 3, without the layers.
    pub dimensions: u8,
    /// 1 where the slices are layers.
    pub layered: u8,
    /// 1 for a texture of linear memory.
    pub linear: u8,
    /// 1 for a surface.
    pub surface: u8,
    /// `gs_cpu_channel`.
    pub channel: u8,
    /// 1, 2 or 4.
    pub channels: u8,
    /// `gs_cpu_address`, along x, y and z.
    pub address: [u8; 3],
    /// 1 for linear filtering.
    pub filter: u8,
    /// 1 where coordinates run from 0 to 1.
    pub normalized_coordinates: u8,
    /// 1 where integers are read as numbers from 0 or -1 to 1.
    pub normalized_values: u8,
}

impl Image {
    /// An image without texels.
    pub const EMPTY: Self = Self {
        data: std::ptr::null_mut(),
        row: 0,
        slice: 0,
        extent: [0; 3],
        dimensions: 0,
        layered: 0,
        linear: 0,
        surface: 0,
        channel: 0,
        channels: 0,
        address: [0; 3],
        filter: 0,
        normalized_coordinates: 0,
        normalized_values: 0,
    };
}

/// The calls that a kernel can make to the backend (`gs_cpu_host`).
#[repr(C)]
pub struct Host {
    /// Takes thread, predicate, file and line; returns when all threads of the block are here, with
    /// [`Context::vote`] set.
    pub barrier: unsafe extern "C" fn(*mut Context, u32, u32, *const c_char, u32),
    /// Takes a thread whose [`Lane`] says the rest; returns when the lanes of its mask are here, with the result in it.
    pub warp: unsafe extern "C" fn(*mut Context, u32),
    /// Ends the kernel with an error; never returns.
    pub fail: unsafe extern "C" fn(*mut Context, u32, *const c_char, *const c_char, u32),
}

/// One launch as one worker sees it (`gs_cpu_context`).
#[repr(C)]
pub struct Context {
    /// The calls that the kernel can make.
    pub host: *const Host,
    /// The parameter block.
    pub params: *const u8,
    /// Blocks of the grid.
    pub grid: Dim,
    /// Threads of a block.
    pub block: Dim,
    /// Lanes of a warp.
    pub warp_size: u32,
    /// Bytes of dynamic shared memory.
    pub dynamic_shared: u32,
    /// Linear number of the block that the entry is in.
    pub current_block: u64,
    /// Thread that was switched to last.
    pub current_thread: u32,
    /// Nonzero to use the general entry, which keeps `threadIdx` in memory and allows any grid.
    pub wide: u32,
    /// Nonzero to report errors that a GPU would not notice.
    pub check: u32,
    /// The number of predicates that held at the barrier that was passed last.
    pub vote: u32,
    /// One per thread of a block.
    pub lanes: *mut Lane,
    /// The place where the blocks meet; null in a launch that is not cooperative.
    pub meeting: *const GridBarrier,
}

/// The place where the blocks of a cooperative launch meet (`gs_cpu_meeting`).
#[derive(Debug)]
#[repr(C)]
pub struct GridBarrier {
    /// The number of blocks that run, times 2^32, and the number of those that wait.
    pub state: AtomicU64,
    /// The number of times that all have met.
    pub round: AtomicU32,
    /// Nonzero once a block ended with an error: the blocks that wait then end too.
    pub failed: AtomicU32,
}

/// Runs blocks `[first, end)`, or the block this OS thread began last from a given thread on (`gs_cpu_entry`).
pub type Entry = unsafe extern "C" fn(*mut Context, u64, u64, u32);

/// Offset and size of a parameter (`gs_cpu_param`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Param {
    /// Bytes from the start of the parameter block.
    pub offset: u32,
    /// Bytes of the parameter.
    pub size: u32,
}

/// One kernel of a module (`gs_cpu_kernel`).
#[repr(C)]
pub struct Kernel {
    /// C name, nul-terminated.
    pub name: *const c_char,
    /// The compiled loop over threads.
    pub entry: Entry,
    /// `param_count` entries.
    pub params: *const Param,
    /// Number of parameters.
    pub param_count: u32,
    /// Bytes of the parameter block.
    pub params_size: u32,
    /// Threads that a block may have; 0 for no limit of the kernel's own.
    pub max_threads: u32,
    /// Alignment of the parameter block, in bytes.
    pub params_align: u32,
}

/// A variable of a module (`gs_cpu_global`).
#[repr(C)]
pub struct Global {
    /// The program's name, nul-terminated.
    pub name: *const c_char,
    /// The first byte of the variable.
    pub address: *mut u8,
    /// Bytes of the variable.
    pub size: u64,
}

/// The export of a module (`gs_cpu_module`).
#[repr(C)]
pub struct Module {
    /// The [`ABI`] that the module was compiled with.
    pub abi: u32,
    /// Number of kernels.
    pub kernel_count: u32,
    /// `kernel_count` entries.
    pub kernels: *const Kernel,
    /// `global_count` entries.
    pub globals: *const Global,
    /// Number of variables.
    pub global_count: u64,
    /// Address of the calling thread's [`ANCHOR_SYMBOL`].
    pub anchor: unsafe extern "C" fn() -> *mut u8,
}

// SAFETY: the table is constant data of the shared object; its pointers lead to constant data too.
unsafe impl Sync for Module {}
