//! The untyped core of [`gpustream`](https://docs.rs/gpustream): bytes instead of elements.
//!
//! Programs use `gpustream`. Its typed handles (`Device`, `Stream`, `Buffer`, `Graph` and so on) are built on this crate.
//! **Nothing here is stable**: the interface serves only those handles, and any version may change it.
//!
//! # Safety
//! Many functions here are safe to call only because the handles have already checked their arguments. So you can only get
//! an object of this crate through an unsafe function: the constructors of devices, streams, modules and recordings, and
//! [`StreamTable::of_process`](stream::StreamTable::of_process). If you call one, you promise that the raw handles are alive
//! and belong to the device that you pass along, that the object owns them from then on, and that safe code in other crates
//! can reach the object only through types that check what `gpustream`'s handles check.
//!
//! The core orders operations and checks them. Backends implement the traits in [`gpustream_hal`] and trust those checks.
//! Arrows go down only: a module may use the modules below it in this table.
//!
//! | module | knows | does not know |
//! |---|---|---|
//! | [`copy`]: copies of ordinary host memory | devices, streams, staging | element types |
//! | [`device_core`]: an opened device | streams, pools, staging | handles |
//! | [`device_options`], [`environment`]: settings | the options of pools and staging | devices |
//! | [`staging`]: copies in pieces | streams, the cutting of a copy, the threads that copy | devices, the copies themselves |
//! | [`pool`]: memory between uses | blocks, streams, the drivers' allocators | devices, but for one trait |
//! | [`reactor`]: the thread of the futures | streams, their events, wakers | futures, devices |
//! | [`background`]: work on a thread of its own | wakers, the end of the process | what the work is |
//! | [`stream`]: streams, their order and captures, the way into one | memory, operations, recordings | pools, devices |
//! | [`replay`]: operations held back for one graph | operations, driver's graphs | streams |
//! | [`record`]: operations that become nodes of graphs | operations, driver's graphs | streams |
//! | [`operation`]: one operation as a value | the memory touched, the driver's calls, the values kept | streams, recordings |
//! | [`memory`]: blocks, host guards, page-locked memory | the tracker | streams, pools |
//! | [`module_core`]: a loaded module | the driver's handle | kernels |
//! | [`deferred_drop`]: your values that the library drops | threads | what they are |
//! | [`host_call`], [`reentrancy`], [`failures`]: host closures, what waits report | threads, clocks, the end of the process | streams |
//! | [`launch`]: a launch's shape, as asked for and on a device | a device's limits | kernels |
//! | [`lint`]: advice | source lines | the operations that serialise |
//! | [`trace`]: what is noted for listeners | backends' devices, the numbers of submissions | streams, memory |
//! | [`track`]: the last users of each byte | numbers and byte ranges | drivers, locks, memory |
//! | [`compile_cache`], [`checksum`], [`private_folder`]: images, on disk and checked | bytes and files | modules |
//! | [`events`]: the thread that tells listeners | the end of the process | what is told |
//! | [`fast_path_mutex`]: the lock of a stream | [`sync`] | the rest |
//! | [`process`], [`sync`]: the process's end, locks | the standard library | the rest |
#![warn(clippy::missing_errors_doc)]
#![allow(
    missing_docs,
    rustdoc::private_intra_doc_links,
    reason = "the readers are those of the sources, where private items have the same documentation"
)]

pub mod background;
pub mod checksum;
pub mod compile_cache;
pub mod copy;
pub mod deferred_drop;
pub mod device_core;
pub mod device_options;
pub mod environment;
pub mod events;
pub mod failures;
pub mod fast_path_mutex;
pub mod host_call;
pub mod launch;
pub mod lint;
pub mod memory;
pub mod metrics;
pub mod module_core;
pub mod operation;
pub mod reentrancy;

pub mod pool;
pub mod private_folder;
pub mod process;
pub mod reactor;
pub mod record;
pub mod replay;
pub mod staging;
pub mod stream;
pub mod sync;
pub mod trace;
pub mod track;
