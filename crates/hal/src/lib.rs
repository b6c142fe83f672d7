//! The traits between gpustream's safe crate and its backends, and the plain data they exchange.
//!
//! A backend implements [`Device`], which is the sum of one trait per noun ([`Streams`], [`Events`],
//! [`Buffers`], [`Exports`], [`Textures`], [`Modules`], [`Launch`], [`Graphs`], [`Traces`]), and [`Backend`], which finds and opens devices.
//! All are object safe: the safe crate holds an `Arc<dyn Device>` and users write no type parameter.
//!
//! # Checks
//!
//! **The layer above validates, backends trust.** The safe crate (`gpustream`) guarantees, before it calls:
//!
//! * handles are alive, and belong to the device they are passed to;
//! * ranges lie inside their allocation, sizes are in bytes and do not overflow;
//! * a launch's grid, block and shared memory are within [`DeviceInfo`]'s limits and nowhere zero, and its
//!   arguments match the kernel's parameters in number and size, and have no more bytes than the device takes;
//! * a copy to or from a module's variable is ordered with every launch of the module's kernels;
//! * host memory handed to an asynchronous call stays valid, and unaliased as the call requires, until that
//!   call's work is done;
//! * nothing is destroyed or freed before the last work that uses it is done;
//! * a zero-byte copy or fill never reaches a backend.
//!
//! A backend guarantees that each method
//!
//! * makes one driver call (two where the driver offers no single one) and keeps no policy: no caching, no
//!   pooling, no waiting that its name does not say;
//! * works from any host thread, also where another library changed the thread's current device;
//! * reports the driver's answer as an [`Error`] that carries the call's name and code, and never panics:
//!   a missing library is [`ErrorKind::DriverMissing`], a missing function [`ErrorKind::Unsupported`].
//!
//! The safe crate relies on that for memory safety, so each trait is an `unsafe trait` and says under *Safety* what an
//! implementor promises. A third party's backend writes `unsafe impl` and vouches for it.
//!
//! # After a loss
//!
//! A device whose work failed answers [`DeviceLost`](ErrorKind::DeviceLost) to every later call, in the words of
//! [`Error::with_fault`]. That says nothing about what ran beside the failure. CUDA and HIP report a fault as soon as
//! one kernel has failed, while kernels and copies of other streams may be at work until the driver has torn the
//! context down, and no driver says when that is.
//! So nothing is freed, unloaded or handed to others on the strength of such an error. The safe crate asks
//! [`Device::has_stopped`] instead. While the answer is no, all that pending work could reach stays with the process:
//! memory of the device, pinned, registered and managed memory, modules, and all that closures own. Guards on memory
//! that a lost device was to write are refused for good, also where the answer is yes: the work was not done.
//!
//! CUDA and HIP never answer yes. The CPU backend's waits end when no worker is in the operation that is waited for; a
//! kernel that spins for good is given five seconds after the loss, and then the answer is no.
//!
//! # A full stream
//!
//! Calls that enqueue block while the stream has as many pending operations as the driver takes: about a thousand with
//! CUDA and HIP, 1024 with the CPU backend, a launch of a graph counting as one there. They return when there is room,
//! which may need something that the program does on another thread, such as setting a flag that a kernel waits for.
//!
//! Optional abilities are provided methods that answer [`ErrorKind::Unsupported`]; a backend overrides those that
//! it has. Sizes are bytes unless a name says otherwise.
#![warn(clippy::missing_errors_doc)]

pub mod buffer;
mod bytes;
mod codes;
pub mod cold_path;
pub mod compiler;
pub mod device;
pub mod device_parts;
pub mod driver;
pub mod environment;
pub mod error;
pub mod event;
pub mod export;
mod fault;
pub mod file_limit;
pub mod graph;
mod handle;
pub mod host_memory;
pub mod identity;
pub mod launch;
pub mod library;
pub mod lock;
pub mod module;
#[cfg(feature = "names")]
pub mod names;
#[cfg(feature = "noop")]
pub mod noop;
pub mod notice;
pub mod stream;
pub mod texture;
pub mod thread;
pub mod trace;
#[cfg(feature = "variables")]
pub mod variables;
pub mod work;

pub use buffer::{
    BatchCopy, Buffers, Copy3d, CopyEnd, FillPattern, HostPtr, ManagedAdvice, PinnedOptions, RawBuffer,
    copy_each,
};
pub use bytes::Bytes;
pub use device::{
    Backend, BackendName, Device, DeviceFeatures, DeviceInfo, DeviceLimits, DeviceQuirks, DriverLibrary,
    MemoryInfo, Probe, StreamPriorities,
};
pub use error::{CallSite, Error, ErrorKind, Result};
pub use event::{EventOptions, Events, RawEvent, WaitPolicy};
pub use export::{Exports, SharedMapping};
pub use fault::{Fault, unheard};
pub use graph::{
    Conditional, DriverNode, GraphNode, GraphSize, GraphUpdate, Graphs, NodePlace, RawGraph, RawGraphExec,
    RawGraphNode, Repeat,
};
pub use identity::{Identity, PciAddress};
pub use launch::{DriverConfig, Launch, LaunchConfig, Occupancy, PlainLaunch, SuggestedLaunch};
pub use module::{Compiled, FunctionInfo, Image, Modules, ParamInfo, RawFunction, RawModule, Source};
pub use stream::{DefaultStream, HostFn, HostPartFn, RawStream, StreamOptions, Streams, WaitValue};
pub use texture::{
    AddressMode, ArrayShape, Channel, FilterMode, RawArray, RawSurface, RawTexture, TexelFormat,
    TextureOptions, TextureSource, Textures,
};
pub use trace::{Ran, RanWork, TraceClock, Traces};
pub use work::Work;
