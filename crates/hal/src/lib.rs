//! The traits between gpustream's safe crate and its backends, and the plain data they exchange.
//!
//! A backend implements [`Backend`], which finds and opens devices, and [`Device`]. `Device` is the sum of one trait per
//! noun: [`Streams`], [`Events`], [`Buffers`], [`Exports`], [`Textures`], [`Modules`], [`Launch`], [`Graphs`] and
//! [`Traces`]. All of them are object safe, because the safe crate holds an `Arc<dyn Device>` so that you write no type
//! parameter.
//!
//! # Checks
//!
//! **The layer above validates, backends trust.** Before the safe crate (`gpustream`) calls a backend, it guarantees that
//!
//! * handles are alive, and belong to the device they are passed to;
//! * ranges lie inside their allocation, sizes are in bytes and do not overflow;
//! * a launch's grid, block and shared memory are within [`DeviceInfo`]'s limits and never zero, and its arguments match the
//!   kernel's parameters in number and size and fit into the bytes that the device takes;
//! * a copy to or from a module's variable is ordered with every launch of a kernel in that module;
//! * host memory handed to an asynchronous call stays valid, and unaliased as the call requires, until that
//!   call's work is done;
//! * nothing is destroyed or freed before the last work that uses it is done;
//! * a zero-byte copy or fill never reaches a backend.
//!
//! A backend guarantees that each method
//!
//! * makes one driver call (or two, if the driver has no single one) and keeps no policy: it does not cache or pool, and it
//!   waits only if its name says so;
//! * works from any host thread, even if another library changed the thread's current device;
//! * reports the driver's answer as an [`Error`] with the call's name and code, and never panics. A missing library is
//!   [`ErrorKind::DriverMissing`], a missing function is [`ErrorKind::Unsupported`].
//!
//! The safe crate's memory safety depends on this. So each trait is an `unsafe trait`, and its *Safety* section says what an
//! implementor must promise. If you write your own backend, you write `unsafe impl` and vouch for it.
//!
//! # After a loss
//!
//! If work on a device fails, the device answers [`DeviceLost`](ErrorKind::DeviceLost) to every later call, in the words of
//! [`Error::with_fault`]. You cannot conclude from that error that other work has ended. CUDA and HIP report a fault as soon
//! as one kernel fails, but kernels and copies on other streams may go on until the driver has torn down the context, and no
//! driver says when that is.
//!
//! So we must not free, unload or hand over anything because of such an error. Instead, the safe crate asks
//! [`Device::has_stopped`]. As long as the answer is no, the process keeps everything that pending work can reach: device
//! memory, pinned, registered and managed memory, modules, and whatever closures own. If a lost device was going to write
//! some memory, you can never get a guard on it again, even if the answer is yes, because that work was not done.
//!
//! CUDA and HIP never answer yes. On the CPU backend, a wait ends when no worker is inside the operation. A kernel that
//! spins forever gets five seconds after the loss; then the answer is no.
//!
//! # A full stream
//!
//! If a stream has as many pending operations as the driver takes, calls that enqueue block until there is room. That is
//! about a thousand with CUDA and HIP, and 1024 with the CPU backend, where a graph launch counts as one. Room may depend on
//! something that your program does on another thread, for example setting a flag that a kernel waits for.
//!
//! Optional abilities are provided methods that return [`ErrorKind::Unsupported`], and a backend overrides those that it
//! has. Sizes are in bytes unless the name says otherwise.
#![warn(clippy::missing_errors_doc)]

pub mod buffer;
mod bytes;
mod codes;
pub mod cold_path;
pub mod compiler;
pub mod cpu_level;
pub mod descriptor_message;
pub mod device;
pub mod device_parts;
pub mod driver;
pub mod environment;
pub mod error;
pub mod event;
pub mod export;
mod fault;
pub mod file_limit;
pub mod folders;
pub mod graph;
mod handle;
pub mod host_memory;
pub mod identity;
pub mod launch;
pub mod library;
pub mod lock;
pub mod memory_file;
pub mod module;
pub mod names;
#[cfg(feature = "noop")]
pub mod noop;
pub mod notice;
pub mod stream;
pub mod texture;
pub mod thread;
pub mod trace;
pub mod variables;
pub mod work;

pub use buffer::{
    Buffers, Copy1d, Copy3d, CopyDirection, CopyEnd, Fill, FillPattern, HostPtr, ManagedAdvice,
    PinnedOptions, RawBuffer, copy_each,
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
pub use launch::{
    ArgumentMemory, DriverConfig, Launch, LaunchConfig, Occupancy, PlainLaunch, SuggestedLaunch,
};
pub use module::{Compiled, FunctionInfo, Image, Modules, ParamInfo, RawFunction, RawModule, Source};
pub use stream::{DefaultStream, HostFn, HostPartFn, RawStream, StreamOptions, Streams, WaitValue};
pub use texture::{
    AddressMode, ArrayShape, Channel, FilterMode, RawArray, RawSurface, RawTexture, TexelFormat,
    TextureOptions, TextureSource, Textures,
};
pub use trace::{Ran, TraceClock, Traces};
pub use work::{Work, WorkKind};
