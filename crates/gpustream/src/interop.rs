//! For libraries that are built on this one, as the crate `gpustream-collectives` is. A program does not need this.
//!
//! If your library submits its own work (to NCCL, cuBLAS, a codec), you meet four questions that a program does not have:
//!
//! | question | answer |
//! |---|---|
//! | May this thread call the library, or is it inside a closure that must not? | [`check_outside_closures`] |
//! | Is the work done that I submitted? | [`StreamWatcher`], from [`Stream::external_watched`](crate::Stream::external_watched) |
//! | Who tells me when a graph with my work in it is launched? | [`GraphWatcher`], from [`Stream::watch_launches`](crate::Stream::watch_launches) |
//! | How do I tell the program that my work failed after it was submitted? | [`Failures`], from [`Stream::failures`](crate::Stream::failures) |
//!
//! If you make calls of this library on behalf of a call of your own, [`on_behalf`] shows them at the program's line.
//!
//! A thread of your library that calls a driver should also take an [`ExitHold`], so that the process does not end meanwhile.
//!
//! The work itself goes through [`Stream::external`](crate::Stream::external). You find the raw handles in [`hal`](crate::hal).

use gpustream_core::operation;
use gpustream_hal::{CallSite, Result};

pub use crate::external::{Failures, Operand, Operands, check_outside_closures};
pub use crate::graph_watcher::GraphWatcher;
/// Keeps the process from ending while a thread calls a driver, or a library on top of one.
///
/// If a thread calls a vendor's library while `exit` takes that library down, the process can crash. So `exit`, and the return
/// from `main`, wait until all values of this type are dropped. They wait for five seconds at most, because a call may never
/// return. The thread that ends the process must not hold one. If a thread hands work to another thread, it can take the value
/// first and send it along.
///
/// You don't need this for calls of this library, nor for calls on the thread that ends the process.
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

/// Makes calls of this library on behalf of a call that the program made to your library. Traces, timelines and reports then
/// show the operations, waits and allocations of `work` at the program's line, and if it fails, the error names the program's
/// call. This also works if another thread than the program's makes the calls later.
///
/// You need this only if `work` is a closure, or runs elsewhere: functions that are `#[track_caller]` all the way down keep the
/// line by themselves. If calls are nested, the outermost counts.
///
/// ```
/// use std::panic::Location;
/// use gpustream::interop::on_behalf;
/// use gpustream::{Buffer, CallSite, Result, Stream};
///
/// #[track_caller]
/// pub fn ramps(stream: &Stream, lengths: &[u32]) -> Result<Vec<Buffer<u32>>> {
///     let call_site = CallSite { label: "ramps", location: Location::caller() };
///     on_behalf(call_site, || lengths.iter().map(|&n| stream.upload(&Vec::from_iter(0..n))).collect())
/// }
/// # let stream = gpustream::Device::open("cpu")?.stream()?;
/// # assert_eq!(stream.download(&ramps(&stream, &[2, 3])?[1])?, [0, 1, 2]);
/// # Ok::<(), gpustream::Error>(())
/// ```
///
/// # Errors
/// The error of `work`.
#[inline]
pub fn on_behalf<T>(call_site: CallSite, work: impl FnOnce() -> Result<T>) -> Result<T> {
    operation::on_behalf(call_site, work)
}
