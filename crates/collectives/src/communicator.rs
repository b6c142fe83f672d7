//! Communicators: one rank's side of the operations that all ranks make together.

use gpustream::interop::on_behalf;
use gpustream::{Device, Result, Stream};

use crate::call::{call_site, in_call};
use crate::call_group::{CallGroup, GroupMember};
use crate::engine::{self, Endpoint};
use crate::failure::invalid;

/// One rank of a group that works together. You get it from a [`World`](crate::World).
///
/// Every rank must call the same operations in the same order, each on a stream and with memory of its own
/// device. The work is tracked like any other: it waits for the work that wrote its inputs, on whatever
/// stream, and later work on the same memory waits for it. A call never waits for the device.
///
/// Between devices of one process, a call **blocks the host until the other ranks have made the same call**,
/// because the last one to come enqueues the work of all. With NCCL, a call only blocks if NCCL must first
/// connect the ranks, and with MPI it does not wait for other ranks at all. [`send`](Self::send) and
/// [`recv`](Self::recv) only concern two ranks, so only the order between these two matters.
///
/// Between devices of one process, every rank gets a [`CommunicatorFailure`](crate::CommunicatorFailure) that
/// names the rank at fault if a rank does not come within the [time
/// limit](crate::CommunicatorOptions::time_limit), panics, drops its communicator while others need it, or
/// makes a different call. The communicator is unusable from then on.
///
/// If a rank's own arguments are invalid, we refuse the call before the other ranks see it, so you can
/// correct it and call again. If the work cannot be enqueued on some rank, for example because memory is
/// exhausted or an input was never written, every rank gets that error. The result memory then holds
/// anything, but you can go on using the communicator.
///
/// With NCCL and MPI, a lost rank is reported when you wait for the streams of these calls or of later ones.
/// [The crate's documentation](crate) lists what else differs. Dropping a communicator waits for nothing; we
/// close it once its work is done.
///
/// A communicator is `Send` and `Sync`. If several threads share one, they must take care of the order of its
/// calls themselves.
#[derive(Debug)]
pub struct Communicator(GroupMember);

impl Communicator {
    pub(crate) fn new(endpoint: Endpoint, device: Device) -> Self {
        Self(GroupMember { endpoint, device })
    }

    pub(crate) fn member(&self) -> &GroupMember {
        &self.0
    }

    /// Returns the number of this rank, from 0.
    pub fn rank(&self) -> usize {
        self.0.endpoint.place().0
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> usize {
        self.0.endpoint.place().1
    }

    /// Returns this rank's device.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Makes all work that you submit to `stream` from now on wait for all work that was submitted to the
    /// ranks' streams before this call. Does not wait for the device.
    ///
    /// # Errors
    /// Those of [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn barrier(&self, stream: &Stream) -> Result<()> {
        let mut calls = CallGroup::new(&self.0);
        let added = calls.barrier(stream);
        calls.run_one("barrier", added)
    }

    /// Makes several calls at once: none of them waits for another rank before all are made.
    ///
    /// ```
    /// # use gpustream::Device;
    /// # use gpustream_collectives::World;
    /// # let device = Device::open("cpu")?;
    /// # let ranks = World::local(&[device.clone(), device.clone()])?.communicators()?;
    /// # std::thread::scope(|threads| {
    /// #     for rank in &ranks {
    /// #         threads.spawn(move || exchange(rank).unwrap());
    /// #     }
    /// # });
    /// # fn exchange(communicator: &gpustream_collectives::Communicator) -> gpustream::Result<()> {
    /// let stream = communicator.device().stream()?;
    /// let mine = stream.full(5, communicator.rank() as f32)?;
    /// let mut theirs = stream.alloc::<f32>(5)?;
    /// let other = 1 - communicator.rank();
    /// communicator.group(|calls| {
    ///     calls.send(&stream, &mine, other)?;
    ///     calls.recv(&stream, &mut theirs, other)
    /// })?;
    /// assert_eq!(stream.download(&theirs)?, [other as f32; 5]);
    /// # Ok(()) }
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// [`CallGroup`] says how you pass views that you make in the closure. To make calls of several communicators
    /// at once, use [`group`](fn@crate::group).
    ///
    /// # Errors
    /// The error that `add` returned, and then we make no call. Otherwise the first error of a call.
    #[track_caller]
    pub fn group<'a, R>(&'a self, add: impl FnOnce(&mut CallGroup<'a>) -> Result<R>) -> Result<R> {
        let mut calls = CallGroup::new(&self.0);
        let returned = add(&mut calls)?;
        in_call("group", engine::run([calls.into_parts()]))?;
        Ok(returned)
    }

    /// Makes a communicator of the ranks that give the same `color`, ordered by their `key`s, or by their
    /// ranks here if the keys are equal. It has the same time limit. Every rank must call this, each on its
    /// own thread. Blocks until all ranks have called.
    ///
    /// ```
    /// # use gpustream::Device;
    /// # use gpustream_collectives::World;
    /// # let device = Device::open("cpu")?;
    /// # let ranks = World::local(&[device.clone(), device.clone(), device.clone()])?.communicators()?;
    /// # std::thread::scope(|threads| {
    /// #     for rank in &ranks {
    /// #         threads.spawn(move || split(rank).unwrap());
    /// #     }
    /// # });
    /// # fn split(communicator: &gpustream_collectives::Communicator) -> gpustream::Result<()> {
    /// // Of three ranks, 0 and 2 are even.
    /// let (even, key) = (communicator.rank().is_multiple_of(2), 0);
    /// let part = communicator.split(u32::from(even), key)?;
    /// assert_eq!(part.size(), if even { 2 } else { 1 });
    /// # Ok(()) }
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](gpustream::ErrorKind::InvalidArgument) if the color is 2³¹ or more. [`ErrorKind::External`](gpustream::ErrorKind::External), with a [`CommunicatorFailure`](crate::CommunicatorFailure) as its source, if the ranks cannot work together.
    #[track_caller]
    pub fn split(&self, color: u32, key: i32) -> Result<Self> {
        on_behalf(call_site("split"), || self.split_by(color, key))
    }

    fn split_by(&self, color: u32, key: i32) -> Result<Self> {
        let Ok(color) = i32::try_from(color) else {
            return invalid(format!(
                "a split cannot have the color {color}; give a color from 0 to {}",
                i32::MAX
            ));
        };
        Ok(Self::new(self.0.endpoint.split(color, key)?, self.0.device.clone()))
    }

    /// Stops all ranks from working together: calls that wait for others, and all later calls, return an
    /// error on every rank. Work that is already enqueued goes on.
    pub fn abort(&self) {
        self.0.endpoint.abort();
    }
}
