//! One API for asynchronous GPU work on NVIDIA (CUDA), AMD (HIP) and, if there is no GPU, the CPU.
//!
//! **The host is a dispatcher, not an overseer.** Your calls enqueue work and return, so copies and kernels can overlap. If two
//! operations touch the same memory, the library makes the later one wait. It never frees memory that the device still uses. If
//! a call blocks, its documentation says so.
//!
//! ```
//! use gpustream::Device;
//!
//! let device = Device::best()?;                       // or Device::open("cuda:0"), or GPUSTREAM_DEVICE
//! let (a, b) = (device.stream()?, device.stream()?);
//! let x = a.upload(&[1.0f32, 2.0, 3.0])?;             // on stream a
//! let mut y = b.zeros::<f32>(3)?;                     // on stream b
//! b.copy(&x, &mut y)?;                                // b waits for a by itself
//! assert_eq!(b.download(&y)?, [1.0, 2.0, 3.0]);       // blocks, for this alone
//! # Ok::<(), gpustream::Error>(())
//! ```
//!
//! You write kernels in C++ that nvcc, hipcc and a host compiler accept. The crate `gpustream-build` compiles them in your
//! `build.rs` and writes a typed launcher for each, and [`include_kernels!`] brings the launchers into your code.
//!
//! Guides: [writing kernels](guide::writing_kernels), [what kernels can call](guide::device_header),
//! [matrix cores](guide::matrix_cores), [coming from cudarc](guide::coming_from_cudarc),
//! [using other libraries](guide::bringing_your_own), [a library on top](guide::library_on_top), [servers](guide::servers), and
//! [seeing what ran](guide::seeing_what_ran).
//!
//! You only need to depend on this crate. It is built on `gpustream-core`, whose interface may change with any version.
//!
//! # Soundness
//!
//! Safe calls cannot race, because the library tracks the memory of every operation per byte range and [`Tracking::Auto`] adds
//! the waits that are missing. Nothing relies on a destructor: if you leak a value, you leak its memory and nothing else.
//!
//! # Threads and dropping
//!
//! All types are `Send` and `Sync`, except [`Arg`] and [`Pipeline`]. Dropping a value returns at once, and what the device
//! still uses is freed later. There is one exception: dropping the last handle of a [`Device`], or the last object that keeps
//! the device open, blocks until the device has finished its work. Types that are `Copy` are plain data.
//!
//! # Errors
//!
//! The documentation of a call names the errors that are special to it. These can come from many calls:
//!
//! * [`ErrorKind::DeviceLost`] from any call that reaches the driver, once the device has failed. You get the fault itself
//!   once; later errors begin with "the device failed earlier", so that you can find the first.
//! * [`ErrorKind::InHostClosure`] inside a host closure, because it runs on a thread that must not call the driver.
//! * [`ErrorKind::InvalidArgument`] if you use another thread's default stream.
//! * [`ErrorKind::Driver`] if the driver refuses a call for a reason that has no kind of its own.
//! * From calls that submit work: [`ErrorKind::Hazard`] under [`Tracking::Strict`] if a wait is missing,
//!   [`ErrorKind::HostBorrowed`] if you hold a guard on the memory, [`ErrorKind::Captured`] if a capture cannot record the
//!   operation, and [`ErrorKind::NotANode`] if the operation cannot be a node, in a [`GraphBuilder`] or the body of a condition.
//!
//! # Environment
//!
#![doc = include_str!("environment.md")]
#![warn(clippy::missing_errors_doc)]

/// Entry points for `fuzz/`.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    /// Reads arbitrary bytes as if they were an entry of the cache of compiled images.
    pub fn cache_entry(bytes: &[u8]) {
        gpustream_core::compile_cache::fuzz(bytes);
    }
}

mod buffer;
mod choice;
mod condition;
mod copy;
mod device;
mod dot;
mod event;
#[cfg(feature = "tracing")]
mod events;
mod export;
mod extension;
mod external;
mod flag;
mod global;
mod graph;
mod graph_builder;
mod graph_stream;
mod graph_watcher;
pub mod guide;
pub mod interop;
mod launch;
mod managed;
mod module;
mod notify;
mod pinned;
mod pipeline;
mod plain;
mod raw_memory;
mod replay;
mod shared_event;
mod shared_memory;
mod stream;
mod strided;
mod surface;
mod texel_buffer;
mod texture;
mod trace;
#[cfg(feature = "tracing")]
mod trace_layer;
mod view;
mod volatile;

pub use bytemuck;
pub use gpustream_hal as hal;
pub use gpustream_timeline as timeline;
pub use half;

/// `bytemuck`'s trait for plain data. Derive it, and your type is [`Plain`].
///
/// Functions of this library ask for [`Plain`], and a type is `Plain` exactly if it is `Pod`. Numbers, [`half::f16`], arrays of
/// them and the structs in generated bindings already are. Derive it for a struct of your own as below; your crate need not
/// depend on `bytemuck`, because this crate exports it:
///
/// ```
/// # let device = gpustream::Device::open("cpu")?;
/// # let stream = device.stream()?;
/// #[derive(Clone, Copy, Debug, PartialEq, gpustream::Pod, gpustream::Zeroable)]
/// #[bytemuck(crate = "gpustream::bytemuck")]
/// #[repr(C)]
/// struct Particle {
///     place: [f32; 3],
///     mass: f32,
/// }
///
/// let particle = Particle { place: [1.0, 2.0, 3.0], mass: 4.0 };
/// let particles = stream.full(100, particle)?;
/// assert_eq!(stream.download(&particles)?[99], particle);
/// # Ok::<(), gpustream::Error>(())
/// ```
pub use bytemuck::Pod;
/// `bytemuck`'s trait for types that can be all zero bytes. [`Pod`] requires it, so you derive both.
pub use bytemuck::Zeroable;

pub use buffer::Buffer;
pub use choice::{backends, best_backend};
pub use copy::batch::CopyBatch;
pub use device::Device;
pub use event::{Event, TimedEvent};
pub use export::Export;
pub use external::Part;
pub use flag::Flag;
pub use global::{Global, GlobalMemory, GlobalVariable};
/// Options for [`Device::open_with`], [`Device::best_with`] and [`Device::open_on`].
///
/// ```
/// use gpustream::{Device, DeviceOptions, Tracking, WaitPolicy};
/// let options = DeviceOptions::default().tracking(Tracking::Strict).wait(WaitPolicy::Block).memory_limit(1 << 30);
/// let device = Device::open_with("cpu", options)?;
/// # Ok::<(), gpustream::Error>(())
/// ```
///
/// [`Stream::record_with`] chooses how the host waits for one event. [`Device::trim`] returns the memory that streams keep for
/// their next copies.
#[doc(inline)]
pub use gpustream_core::device_options::DeviceOptions;
#[doc(inline)]
pub use gpustream_core::metrics::Metrics;
#[doc(inline)]
pub use gpustream_core::pool::{Holding, MemorySnapshot, MemoryStats, PoolPolicy};
#[doc(inline)]
pub use gpustream_core::replay::{ReplayRecording, ReplayStats};
#[doc(inline)]
pub use gpustream_core::track::Tracking;
pub use graph::Graph;
pub use graph_builder::{GraphBuilder, Node};
pub use graph_stream::GraphStream;
pub use hal::{
    AddressMode, ArrayShape, Backend, BackendName, CallSite, DefaultStream, DeviceFeatures, DeviceInfo,
    DeviceLimits, DeviceQuirks, Error, ErrorKind, FilterMode, FunctionInfo, GraphUpdate, Image,
    ManagedAdvice, MemoryInfo, ParamInfo, PciAddress, PinnedOptions, Result, StreamOptions, StreamPriorities,
    SuggestedLaunch, TextureOptions, WaitPolicy, WaitValue,
};
#[doc(hidden)]
pub use launch::codegen;
pub use launch::{Arg, Dims, Launch, Parameter, Parameters, TypedKernel};
pub use managed::{Location, Managed};
pub use module::{Build, Compile, Kernel, Module, ModuleSource};
pub use notify::{Download, Synchronize};
pub use pinned::{Pinned, ReadGuard, WriteGuard};
pub use pipeline::{Piece, Pipeline};
pub use plain::{Bool, Padding, Plain};
pub use raw_memory::RawMemory;
pub use replay::Replay;
pub use shared_event::SharedEvent;
pub use stream::Stream;
pub use strided::Pitched;
pub use surface::Surface;
pub use texel_buffer::TexelBuffer;
pub use texture::{Array, Texel, Texture};
pub use timeline::Timeline;
pub use trace::Trace;
#[cfg(feature = "tracing")]
pub use trace_layer::TraceLayer;
pub use view::{AsView, AsViewMut, View, ViewMut};
pub use volatile::{AsVolatile, AsVolatileMut, Volatile, VolatileMut};

/// Brings in the bindings that `gpustream-build` wrote for `NAME.cu` in your build script. If there is no such file, the
/// compile error lists the names that you can use.
///
/// Your crate may still `#![forbid(unsafe_code)]`, because the `unsafe` of the bindings is in a hidden macro of this crate.
///
/// ```ignore
/// mod saxpy {
///     gpustream::include_kernels!("saxpy");
/// }
/// let kernels = saxpy::Kernels::load(&device)?;
/// kernels.saxpy(&stream, 3.0, &x, &mut y, n)?;
/// ```
#[macro_export]
macro_rules! include_kernels {
    ($name:tt) => {
        use $crate::__gpustream;
        // This file defines a macro that includes the bindings of a name, or lists the names that there are.
        ::core::include!(::core::concat!(
            ::core::env!(
                "OUT_DIR",
                "include_kernels! needs a build script: write a build.rs that calls `gpustream_build::Kernels`"
            ),
            "/kernels-by-gpustream-build.rs"
        ));
        __gpustream_kernels! { $name }
    };
}

/// This crate, under a name that the bindings can rely on: your `Cargo.toml` may rename the crate. It is a module because with
/// `extern crate self as` the compiler's messages would show users that name.
#[doc(hidden)]
pub mod __gpustream {
    pub use crate::*;
}

/// Refuses bindings that another version of `gpustream-build` wrote, because they use hidden items of this crate, which can
/// change with any version. Not for use by hand.
// `macro_rules!` can only compare literals, so we repeat the version here; a test checks that it is the crate's.
#[doc(hidden)]
#[macro_export]
macro_rules! __bindings_of {
    ("0.1.0") => {};
    ($other:literal) => {
        ::core::compile_error!(::core::concat!(
            "version ",
            $other,
            " of `gpustream-build` wrote these bindings, and this `gpustream` has version 0.1.0: give both the same \
             version in Cargo.toml, or run `cargo update -p gpustream -p gpustream-build`"
        ));
    };
}

/// Writes the `unsafe` of generated bindings. Not for use by hand.
///
/// A launcher is sound because it checks its contract, which Rust's types cannot express, so the bindings need `unsafe`
/// somewhere. But they become part of your crate, which may forbid `unsafe`. The compiler only applies that lint to code
/// written in your crate, and not to what another crate's macro expands to. So the bindings write `unsafe` inside this macro.
/// You pass the word itself to the macro, so that a search for `unsafe` finds every use.
#[doc(hidden)]
#[macro_export]
macro_rules! __generated {
    (unsafe { $($body:tt)* }) => {
        unsafe { $($body)* }
    };
    (unsafe impl ($($what:tt)*) for $name:ident) => {
        unsafe impl $($what)* for $name {}
    };
    (unsafe impl [$($what:tt)*] for $name:ty { $($body:tt)* }) => {
        unsafe impl $($what)* for $name { $($body)* }
    };
    ($(#[$attribute:meta])* pub unsafe trait $name:ident [$($generics:tt)*] [$($super:tt)*] { $($body:tt)* }) => {
        $(#[$attribute])*
        pub unsafe trait $name<$($generics)*>: $($super)* { $($body)* }
    };
    ($(#[$attribute:meta])* pub unsafe fn $name:ident($($params:tt)*) -> ($($returns:tt)*) { $($body:tt)* }) => {
        $(#[$attribute])*
        pub unsafe fn $name($($params)*) -> $($returns)* { $($body)* }
    };
    (
        $(#[$attribute:meta])*
        pub unsafe fn $name:ident [$($generics:tt)*]($($params:tt)*) -> ($($returns:tt)*) [$($bounds:tt)*] { $($body:tt)* }
    ) => {
        $(#[$attribute])*
        pub unsafe fn $name<$($generics)*>($($params)*) -> $($returns)* $($bounds)* { $($body)* }
    };
}
