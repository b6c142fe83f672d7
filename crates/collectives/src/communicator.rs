//! Communicators: one rank's side of the operations that all ranks make together.

use gpustream::{AsView, AsViewMut, Device, Result, Stream};

use crate::call::in_call;
use crate::call_group::{CallGroup, GroupMember};
use crate::element::Element;
use crate::engine::{self, Endpoint};
use crate::failure::invalid;
use crate::op::Op;

/// One rank among those that work together, made from a [`World`](crate::World).
///
/// Every rank calls the same operations in the same order, each on a stream and with memory of its own device. Between the
/// devices of one process a call returns once the work is enqueued on the streams of all ranks: it **blocks the host until the
/// other ranks have made the same call**, and never for the device. With NCCL a call blocks for other ranks only where
/// these have yet to be connected, and with MPI for none. The work is tracked like any other: it waits for what wrote
/// its inputs, on whatever stream, and later work on the same memory waits for it.
///
/// [`send`](Self::send) and [`recv`](Self::recv) concern two ranks, whose order among each other alone counts.
///
/// Between the devices of one process, a rank that does not come within the
/// [time limit](crate::CommunicatorOptions::time_limit), whose thread panics, that drops its communicator while others need
/// it, or whose calls differ from the others' is an error on every rank, which names it: [`CommunicatorFailure`](crate::CommunicatorFailure). The
/// communicator is of no use from then on. Calls that a rank's own arguments make invalid are refused before the other ranks
/// see them, and can be made again with better ones. Where the work cannot be enqueued for some rank, for lack of memory or
/// because nothing has written an input, every rank has that error; the memory for the results then holds anything, and the
/// communicator goes on.
///
/// By NCCL and MPI, a lost rank is an error of the others' waits for their streams, and for the streams that come after;
/// [the crate's page](crate) says what else differs.
/// Dropping a communicator waits for nothing: it is closed once its work is done.
///
/// A communicator is `Send` and `Sync`. Threads that share one take care of the order of its calls themselves.
#[derive(Debug)]
pub struct Communicator(GroupMember);

impl Communicator {
    pub(crate) fn new(endpoint: Endpoint, device: Device) -> Self {
        Self(GroupMember { endpoint, device })
    }

    pub(crate) fn member(&self) -> &GroupMember {
        &self.0
    }

    /// Returns this rank's number.
    pub fn rank(&self) -> usize {
        self.0.endpoint.place().0
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> usize {
        self.0.endpoint.place().1
    }

    /// Returns the device that this rank works on.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Combines the elements of all ranks' `src`, each with those at the same place, and gives every rank the result.
    ///
    /// Between the devices of one process the elements are combined in the order of the ranks, the 16-bit floating-point
    /// types in `f32`, and rounded once: every rank has the same bits, in every run.
    ///
    /// # Errors
    /// [`ErrorKind::ArgumentMismatch`](gpustream::ErrorKind::ArgumentMismatch) where `src` and `dst` differ in length. For
    /// this and every other operation here:
    /// [`DeviceMismatch`](gpustream::ErrorKind::DeviceMismatch) for a stream or memory of another device than the rank's;
    /// [`Captured`](gpustream::ErrorKind::Captured) for a stream that is recorded, unless by NCCL;
    /// [`InHostClosure`](gpustream::ErrorKind::InHostClosure) inside a closure that the library runs;
    /// [`InvalidArgument`](gpustream::ErrorKind::InvalidArgument) for a rank that does not exist;
    /// [`External`](gpustream::ErrorKind::External), with a [`CommunicatorFailure`](crate::CommunicatorFailure) as source, where the ranks cannot work
    /// together; and the errors of copies and launches, of any rank.
    #[track_caller]
    pub fn all_reduce<T: Element>(
        &self,
        stream: &Stream,
        src: &(impl AsView<T> + ?Sized),
        dst: &mut (impl AsViewMut<T> + ?Sized),
        op: Op,
    ) -> Result<()> {
        in_call("all_reduce", self.group(|calls| calls.all_reduce(stream, src.view(), dst.view_mut(), op)))
    }

    /// Combines the elements of all ranks' memory as [`all_reduce`](Self::all_reduce) does, and replaces them by the result.
    ///
    /// # Errors
    /// Those of [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn all_reduce_in_place<T: Element>(
        &self,
        stream: &Stream,
        memory: &mut (impl AsViewMut<T> + ?Sized),
        op: Op,
    ) -> Result<()> {
        in_call(
            "all_reduce_in_place",
            self.group(|calls| calls.all_reduce_in_place(stream, memory.view_mut(), op)),
        )
    }

    /// Gives every rank the elements of all ranks' `src`, one rank's after the other's. `dst` has room for all.
    ///
    /// # Errors
    /// [`ErrorKind::ArgumentMismatch`](gpustream::ErrorKind::ArgumentMismatch) where `dst` does not have [`size`](Self::size)
    /// times as many elements as `src`; otherwise those of [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn all_gather<T: Element>(
        &self,
        stream: &Stream,
        src: &(impl AsView<T> + ?Sized),
        dst: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()> {
        in_call("all_gather", self.group(|calls| calls.all_gather(stream, src.view(), dst.view_mut())))
    }

    /// Combines the elements of all ranks' `src` as [`all_reduce`](Self::all_reduce) does, and gives each rank its part of
    /// the result: rank 0 the first, and so on.
    ///
    /// # Errors
    /// [`ErrorKind::ArgumentMismatch`](gpustream::ErrorKind::ArgumentMismatch) where `src` does not have [`size`](Self::size)
    /// times as many elements as `dst`; otherwise those of [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn reduce_scatter<T: Element>(
        &self,
        stream: &Stream,
        src: &(impl AsView<T> + ?Sized),
        dst: &mut (impl AsViewMut<T> + ?Sized),
        op: Op,
    ) -> Result<()> {
        in_call(
            "reduce_scatter",
            self.group(|calls| calls.reduce_scatter(stream, src.view(), dst.view_mut(), op)),
        )
    }

    /// Gives every rank the elements that rank `root` has in `memory`. The root's memory is only read.
    ///
    /// # Errors
    /// Those of [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn broadcast<T: Element>(
        &self,
        stream: &Stream,
        memory: &mut (impl AsViewMut<T> + ?Sized),
        root: usize,
    ) -> Result<()> {
        in_call("broadcast", self.group(|calls| calls.broadcast(stream, memory.view_mut(), root)))
    }

    /// Combines the elements of all ranks' `src` as [`all_reduce`](Self::all_reduce) does, and gives the result to rank
    /// `root`. `dst` is not touched on other ranks, and may have any length there.
    ///
    /// # Errors
    /// Those of [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn reduce<T: Element>(
        &self,
        stream: &Stream,
        src: &(impl AsView<T> + ?Sized),
        dst: &mut (impl AsViewMut<T> + ?Sized),
        op: Op,
        root: usize,
    ) -> Result<()> {
        in_call("reduce", self.group(|calls| calls.reduce(stream, src.view(), dst.view_mut(), op, root)))
    }

    /// Combines the elements of all ranks' memory as [`reduce`](Self::reduce) does. The result replaces the root's elements;
    /// the other ranks' memory is only read.
    ///
    /// # Errors
    /// Those of [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn reduce_in_place<T: Element>(
        &self,
        stream: &Stream,
        memory: &mut (impl AsViewMut<T> + ?Sized),
        op: Op,
        root: usize,
    ) -> Result<()> {
        in_call(
            "reduce_in_place",
            self.group(|calls| calls.reduce_in_place(stream, memory.view_mut(), op, root)),
        )
    }

    /// Gives rank `root` the elements of all ranks' `src`, one rank's after the other's. `dst` is not touched on other ranks,
    /// and may have any length there.
    ///
    /// # Errors
    /// [`ErrorKind::ArgumentMismatch`](gpustream::ErrorKind::ArgumentMismatch) where the root's `dst` does not have
    /// [`size`](Self::size) times as many elements as `src`; otherwise those of [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn gather<T: Element>(
        &self,
        stream: &Stream,
        src: &(impl AsView<T> + ?Sized),
        dst: &mut (impl AsViewMut<T> + ?Sized),
        root: usize,
    ) -> Result<()> {
        in_call("gather", self.group(|calls| calls.gather(stream, src.view(), dst.view_mut(), root)))
    }

    /// Gives each rank its part of rank `root`'s `src`: rank 0 the first, and so on. `src` is not touched on other ranks, and
    /// may have any length there.
    ///
    /// # Errors
    /// [`ErrorKind::ArgumentMismatch`](gpustream::ErrorKind::ArgumentMismatch) where the root's `src` does not have
    /// [`size`](Self::size) times as many elements as `dst`; otherwise those of [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn scatter<T: Element>(
        &self,
        stream: &Stream,
        src: &(impl AsView<T> + ?Sized),
        dst: &mut (impl AsViewMut<T> + ?Sized),
        root: usize,
    ) -> Result<()> {
        in_call("scatter", self.group(|calls| calls.scatter(stream, src.view(), dst.view_mut(), root)))
    }

    /// Gives each rank its part of every rank's `src`: part `r` of rank `q`'s `src` becomes part `q` of rank `r`'s `dst`.
    ///
    /// # Errors
    /// [`ErrorKind::ArgumentMismatch`](gpustream::ErrorKind::ArgumentMismatch) where `src` and `dst` differ in length, or
    /// have no whole number of elements for each rank; otherwise those of [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn all_to_all<T: Element>(
        &self,
        stream: &Stream,
        src: &(impl AsView<T> + ?Sized),
        dst: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()> {
        in_call("all_to_all", self.group(|calls| calls.all_to_all(stream, src.view(), dst.view_mut())))
    }

    /// Sends elements to rank `to`, which calls [`recv`](Self::recv) for as many. Two ranks that send to each other do so in a
    /// [`group`](Self::group) with their receives, or each would wait for the other.
    ///
    /// # Errors
    /// Those of [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn send<T: Element>(
        &self,
        stream: &Stream,
        src: &(impl AsView<T> + ?Sized),
        to: usize,
    ) -> Result<()> {
        in_call("send", self.group(|calls| calls.send(stream, src.view(), to)))
    }

    /// Receives elements that rank `from` [sends](Self::send) to this rank.
    ///
    /// # Errors
    /// Those of [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn recv<T: Element>(
        &self,
        stream: &Stream,
        dst: &mut (impl AsViewMut<T> + ?Sized),
        from: usize,
    ) -> Result<()> {
        in_call("recv", self.group(|calls| calls.recv(stream, dst.view_mut(), from)))
    }

    /// Makes work that is submitted to `stream` from now on wait for all work that the ranks' streams of this call were given
    /// before it. Does not block the host for the device.
    ///
    /// # Errors
    /// Those of [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn barrier(&self, stream: &Stream) -> Result<()> {
        in_call("barrier", self.group(|calls| calls.barrier(stream)))
    }

    /// Makes several calls at once: none of them waits before all are made.
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
    /// [`group`](fn@crate::group) makes calls of several communicators.
    ///
    /// # Errors
    /// The error of `add`, and then no call is made; otherwise the first error of a call.
    #[track_caller]
    pub fn group<'a, R>(&'a self, add: impl FnOnce(&mut CallGroup<'a>) -> Result<R>) -> Result<R> {
        let mut calls = CallGroup::new(&self.0);
        let returned = add(&mut calls)?;
        in_call("group", engine::run([calls.into_parts()]))?;
        Ok(returned)
    }

    /// Makes a communicator of the ranks that give the same `color`, in the order of their `key`s, and of their ranks here
    /// where these are equal. Every rank calls this, on a thread of its own; the time limit stays. Blocks until all ranks
    /// have called.
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
    /// [`ErrorKind::InvalidArgument`](gpustream::ErrorKind::InvalidArgument) for a color of 2³¹ or more;
    /// [`ErrorKind::External`](gpustream::ErrorKind::External), with a [`CommunicatorFailure`](crate::CommunicatorFailure) as source, where the ranks
    /// cannot work together.
    #[track_caller]
    pub fn split(&self, color: u32, key: i32) -> Result<Self> {
        in_call("split", self.split_by(color, key))
    }

    fn split_by(&self, color: u32, key: i32) -> Result<Self> {
        let Ok(color) = i32::try_from(color) else {
            return invalid(format!("{color} as the color of a split; give one of 0 to {}", i32::MAX));
        };
        Ok(Self::new(self.0.endpoint.split(color, key)?, self.0.device.clone()))
    }

    /// Ends the work of all ranks together: calls that wait for others, and later calls, are errors on every rank. Work that
    /// is enqueued goes on.
    pub fn abort(&self) {
        self.0.endpoint.abort();
    }
}
