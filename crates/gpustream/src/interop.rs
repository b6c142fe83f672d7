//! What libraries on top of this one need and programs do not: the crate `gpustream-collectives` is built with it.
//!
//! A library that submits work of its own (to NCCL, cuBLAS, a codec) meets four questions that a program does not have:
//!
//! | question | answer |
//! |---|---|
//! | May this thread call the library, or is it inside a closure that must not? | [`check_outside_closures`] |
//! | Is the work done that I submitted? | [`StreamWatcher`], from [`Stream::external_section`](crate::Stream::external_section) |
//! | A graph with my work in it is launched: who tells me? | [`GraphWatcher`], from [`Stream::watch_launches`](crate::Stream::watch_launches) |
//! | My work failed after it was submitted: who tells the program? | [`Failures`], from [`Stream::failures`](crate::Stream::failures) |
//!
//! A thread of the library that calls a driver also takes an [`ExitHold`], so that the process does not end under it.
//!
//! The work itself goes through [`Stream::external`](crate::Stream::external). [`hal`](crate::hal) has the raw handles.

pub use crate::external::{Failures, check_outside_closures};
pub use crate::graph_watcher::GraphWatcher;
/// Keeps the process from ending while a thread calls a driver, or a library on top of one.
///
/// A thread that calls a vendor's library while `exit` takes the library down can crash the process. So `exit`, and the return
/// from `main`, wait until all values of this type are dropped, but for five seconds at most, because a call may never return.
/// The thread that ends the process must hold none. If a thread hands work to another, it can take the value at once and send
/// it along.
///
/// Calls of this library need no such value, nor do calls on the thread that ends the process.
///
/// ```
/// use std::thread;
/// use gpustream::interop::ExitHold;
///
/// let hold = ExitHold::of("example");
/// thread::spawn(move || {
///     let Some(_hold) = hold else { return };      // the process is ending
///     // calls of the library
/// });
/// ```
#[doc(inline)]
pub use gpustream_core::process::ExitHold;
#[doc(inline)]
pub use gpustream_core::stream::StreamWatcher;
