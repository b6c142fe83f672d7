//! One API for asynchronous GPU work on NVIDIA (CUDA), AMD (HIP) and, with no GPU, on the CPU.
//!
//! **The host is a dispatcher, not an overseer.** Calls enqueue and return; copies and kernels overlap; the library
//! orders operations that touch the same memory, and frees nothing while the device still uses it. The documentation of
//! a call that blocks says so.
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
//! Kernels are C++ that nvcc, hipcc and a host compiler accept; the crate `gpustream-build` compiles them in a
//! `build.rs` and writes typed launchers, which [`include_kernels!`] brings in.
//!
//! Guides: [writing kernels](guide::writing_kernels), [coming from cudarc](guide::coming_from_cudarc), and
//! [bringing other libraries](guide::bringing_your_own).
//!
//! Programs depend on this crate alone. Its handles stand on `gpustream-core`, which has no stable interface.
//!
//! # Soundness
//!
//! Safe calls cannot race: every operation's memory is tracked per byte range, and [`Tracking::Auto`] adds the
//! waits that are missing. No guarantee rests on a destructor: leaking any value leaks its memory and nothing
//! else.
//!
//! # Threads and dropping
//!
//! All types are `Send` and `Sync`, except [`Arg`] and [`Pipeline`]. Dropping returns at once and frees nothing that
//! the device still uses; only the last handle of a [`Device`], whatever holds it, waits for the device's work. Types
//! that are `Copy` are plain data.
//!
//! # Errors
//!
//! A call's documentation names the kinds of error of its own. Besides, any call that reaches the driver answers
//! [`ErrorKind::DeviceLost`] once the device has failed, and the message of each such error after the first that the
//! program was given begins with "the device failed earlier"; [`ErrorKind::InHostClosure`] inside a host closure,
//! [`ErrorKind::InvalidArgument`] on another thread's default stream, and [`ErrorKind::Driver`] where the driver
//! refuses it; and calls that submit work answer [`ErrorKind::Hazard`] under [`Tracking::Strict`],
//! [`ErrorKind::HostBorrowed`] for memory under a guard, and [`ErrorKind::Captured`] for operations that a capture
//! cannot record, or [`ErrorKind::NotANode`] on the stream of a [`GraphBuilder`]'s node or of a condition's body.
//!
//! # Environment
//!
#![doc = include_str!("environment.md")]
#![warn(clippy::missing_errors_doc)]

/// Entries for `fuzz/`.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    /// Any bytes as an entry of the cache of compiled images.
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

/// Plain data, of which any bytes are a value (`bytemuck`'s trait): elements of memory, and values given to kernels.
///
/// Numbers are plain data, and so are [`half::f16`], arrays of them, and the structs in generated bindings. A struct of
/// your own derives the trait; your crate need not depend on `bytemuck`:
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
/// Data of which zero bytes are a value; a supertrait of [`Pod`] (`bytemuck`'s trait).
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
/// Options of [`Device::open_with`], [`Device::best_with`] and [`Device::open_on`].
///
/// ```
/// use gpustream::{Device, DeviceOptions, Tracking, WaitPolicy};
/// let options = DeviceOptions::default().tracking(Tracking::Strict).wait(WaitPolicy::Block).memory_limit(1 << 30);
/// let device = Device::open_with("cpu", options)?;
/// # Ok::<(), gpustream::Error>(())
/// ```
///
/// [`Stream::record_with`] sets the wait of one event, and [`Device::trim`] takes back the memory that streams keep for
/// their next copies.
#[doc(inline)]
pub use gpustream_core::device_options::DeviceOptions;
#[doc(inline)]
pub use gpustream_core::pool::{Holding, MemorySnapshot, MemoryStats, PoolPolicy};
#[doc(inline)]
pub use gpustream_core::replay::{ReplayRecording, ReplayStats};
#[doc(inline)]
pub use gpustream_core::track::Tracking;
pub use graph::Graph;
pub use graph_builder::{GraphBuilder, Node};
pub use hal::{
    AddressMode, ArrayShape, Backend, CallSite, DefaultStream, DeviceInfo, Error, ErrorKind, FilterMode,
    FunctionInfo, GraphUpdate, Image, ManagedAdvice, MemoryInfo, ParamInfo, PciAddress, PinnedOptions,
    Result, Source, StreamOptions, StreamPriorities, SuggestedLaunch, TextureOptions, WaitPolicy, WaitValue,
};
#[doc(hidden)]
pub use launch::codegen;
pub use launch::{Arg, Launch};
pub use managed::{Location, Managed};
pub use module::{Kernel, Module, ModuleSource};
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

/// Brings in the bindings that `gpustream-build` wrote for `NAME.cu` in this crate's build script. A name that the build script
/// has no file for is a compile error that lists those it has.
///
/// The crate may `#![forbid(unsafe_code)]`: the bindings' own `unsafe` stands in a hidden macro of this crate.
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
        // The index of the bindings: a macro that includes those of a name, or says which names there are.
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

/// This crate under the name by which bindings know it: a user's `Cargo.toml` can call the crate otherwise. It is a module, since
/// with `extern crate self as` the compiler's messages show that name to users.
#[doc(hidden)]
pub mod __gpustream {
    pub use crate::*;
}

/// Refuses bindings that another version of `gpustream-build` wrote; not for use by hand. They use hidden items of this
/// crate, which change with any version.
// `macro_rules!` compares literals alone, so the version stands here once more; a test compares it.
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

/// The `unsafe` of generated bindings; not for use by hand.
///
/// A launcher is sound because its contract was checked. No type of Rust's can say so, and the bindings must be
/// `unsafe` somewhere. The bindings are part of the user's crate, which may forbid `unsafe`. The compiler applies that
/// lint to code written in the crate, but not to the expansion of another crate's macro, so the bindings write `unsafe`
/// within this macro. The macro takes the word itself, so that a search for `unsafe` finds every use.
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
