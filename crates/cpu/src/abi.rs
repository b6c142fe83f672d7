//! The C interface between a kernel module and this backend. It mirrors `gpustream/cpu/abi.h`, so if you
//! change one, you must change the other and increase [`ABI`].

use std::ffi::c_char;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// The version of this interface. A module states the version that it was compiled with, so that we can
/// refuse an old one instead of crashing in it.
pub const ABI: u32 = 7;

/// The only symbol that a module exports: a [`Module`].
pub const MODULE_SYMBOL: &str = "gpustream_cpu_module";

/// How many bytes of dynamic shared memory a block can have.
pub const DYNAMIC_SHARED_MAX: u32 = 232_448;

/// How many threads a block can have.
pub const MAX_THREADS: usize = 1024;

/// How many bytes all parameters of a kernel can have.
pub const PARAMS_MAX: u32 = 32_764;

/// The largest alignment of a parameter, in bytes.
pub const PARAMS_ALIGN_MAX: usize = 256;

/// If a grid has at most this many threads along x, it can use the entry with 32-bit index hints, because no
/// index can then overflow.
pub const NARROW_MAX: u64 = 0x7fff_0000;

/// The name of the array that holds a module's dynamic shared memory, with [`DYNAMIC_SHARED_MARGIN`] unused
/// bytes on either side.
pub const DYNAMIC_SHARED_SYMBOL: &str = "gs_cpu_dynamic_shared";

/// Unused bytes before and after dynamic shared memory.
pub const DYNAMIC_SHARED_MARGIN: usize = 4096;

/// The name of the variable whose address [`Module::anchor`] returns.
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
    /// Makes extents from the form that the trait crate uses.
    pub const fn new([x, y, z]: [u32; 3]) -> Self {
        Self { x, y, z }
    }

    /// Returns the product of the extents.
    pub const fn count(self) -> u64 {
        self.x as u64 * self.y as u64 * self.z as u64
    }

    /// Returns the coordinates of linear number `index`. x is fastest.
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
    /// A mask of the lanes whose value is not 0.
    pub const BALLOT: u32 = 2;
    /// A mask of the lanes with the same value.
    pub const MATCH: u32 = 3;
    /// Waits until a thread of the block calls [`WAKE`] with the same value.
    pub const AWAIT: u32 = 4;
    /// Lets the threads go on that wait with the same value.
    pub const WAKE: u32 = 5;
}

/// A thread's part in a warp operation (`gs_cpu_lane`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Lane {
    /// The value that the thread gives, and afterwards the value that it gets.
    pub value: u64,
    /// Afterwards, a mask of the lanes that took part.
    pub active: u64,
    /// The lanes that the thread waits for. 0 means those of the warp that can get here.
    pub mask: u64,
    /// The source file of the call that waits, as a nul-terminated string in the module.
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
    /// A thread that is not in an operation.
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

/// An array, a texture or a surface, which kernels know by its address (`gs_cpu_image`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Image {
    /// The first texel.
    pub data: *mut u8,
    /// Bytes from one row to the next.
    pub row: u64,
    /// Bytes from one plane or layer to the next.
    pub slice: u64,
    /// The extents in texels, rows, and planes or layers. None is zero, except that linear memory may have no
    /// texels.
    pub extent: [u64; 3],
    /// 1 to 3, without the layers.
    pub dimensions: u8,
    /// 1 if the slices are layers.
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
    /// 1 if coordinates run from 0 to 1.
    pub normalized_coordinates: u8,
    /// 1 if integers are read as numbers from 0 or -1 to 1.
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
    /// Takes thread, predicate, file and line. Returns when all threads of the block are here, with
    /// [`Context::vote`] set.
    pub barrier: unsafe extern "C" fn(*mut Context, u32, u32, *const c_char, u32),
    /// Takes a thread whose [`Lane`] describes the operation. Returns when the lanes of its mask are here,
    /// with the result in the lane.
    pub warp: unsafe extern "C" fn(*mut Context, u32),
    /// Ends the kernel with an error; never returns.
    pub fail: unsafe extern "C" fn(*mut Context, u32, *const c_char, *const c_char, u32),
}

/// A launch, as one worker sees it (`gs_cpu_context`).
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
    /// The linear number of the block that the entry is in.
    pub current_block: u64,
    /// The thread that was switched to last.
    pub current_thread: u32,
    /// Nonzero to use the general entry. It keeps `threadIdx` in memory and allows any grid.
    pub wide: u32,
    /// Nonzero to report errors that a GPU would not notice.
    pub check: u32,
    /// How many predicates held at the last barrier.
    pub vote: u32,
    /// One per thread of a block.
    pub lanes: *mut Lane,
    /// Where the blocks meet. Null if the launch is not cooperative.
    pub meeting: *const GridBarrier,
}

/// Where the blocks of a cooperative launch meet (`gs_cpu_meeting`).
#[derive(Debug)]
#[repr(C)]
pub struct GridBarrier {
    /// How many blocks run, times 2^32, plus how many of them wait.
    pub state: AtomicU64,
    /// How often all of them have met.
    pub round: AtomicU32,
    /// Nonzero once a block has ended with an error. The waiting blocks then end too.
    pub failed: AtomicU32,
}

/// Runs blocks `[first, end)`, or the block that this OS thread began last, from a given thread on
/// (`gs_cpu_entry`).
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
    /// How many threads a block may have; 0 if the kernel has no limit of its own.
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

// SAFETY: the table is constant data of the shared object, and its pointers point to constant data too.
unsafe impl Sync for Module {}
