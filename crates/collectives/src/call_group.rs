//! The calls that one rank makes together. Each is checked when it is added.

use gpustream::{Device, Result, Stream, View, ViewMut};

use crate::call::{Batch, Call, Collective, Signature, in_call};
use crate::check;
use crate::element::Element;
use crate::engine::Endpoint;
use crate::op::Op;

/// One rank: its endpoint and its device.
#[derive(Debug)]
pub(crate) struct GroupMember {
    pub(crate) endpoint: Endpoint,
    pub(crate) device: Device,
}

/// Calls that one communicator makes together. Each method adds the call of the
/// [`Communicator`](crate::Communicator) method with the same name, and makes the same checks. We enqueue
/// nothing until the group ends.
#[derive(Debug)]
pub struct CallGroup<'a> {
    member: &'a GroupMember,
    calls: Batch<'a>,
}

impl<'a> CallGroup<'a> {
    pub(crate) fn new(member: &'a GroupMember) -> Self {
        Self { member, calls: Batch::new() }
    }

    /// Returns true if these are this rank's calls.
    pub(crate) fn are_of(&self, member: &GroupMember) -> bool {
        std::ptr::eq(self.member, member)
    }

    /// Returns the rank's endpoint and its calls.
    pub(crate) fn into_parts(self) -> (&'a Endpoint, Batch<'a>) {
        (&self.member.endpoint, self.calls)
    }

    /// Adds [`Communicator::all_reduce`](crate::Communicator::all_reduce).
    ///
    /// # Errors
    /// Those that this rank's arguments alone can cause.
    #[track_caller]
    pub fn all_reduce<T: Element>(
        &mut self,
        stream: &'a Stream,
        src: impl Into<View<'a, T>>,
        dst: impl Into<ViewMut<'a, T>>,
        op: Op,
    ) -> Result<()> {
        self.add(stream, Collective::AllReduce(op), Some(src.into()), Some(dst.into()))
    }

    /// Adds [`Communicator::all_reduce_in_place`](crate::Communicator::all_reduce_in_place).
    ///
    /// # Errors
    /// Those that this rank's arguments alone can cause.
    #[track_caller]
    pub fn all_reduce_in_place<T: Element>(
        &mut self,
        stream: &'a Stream,
        memory: impl Into<ViewMut<'a, T>>,
        op: Op,
    ) -> Result<()> {
        self.add(stream, Collective::AllReduce(op), None, Some(memory.into()))
    }

    /// Adds [`Communicator::all_gather`](crate::Communicator::all_gather).
    ///
    /// # Errors
    /// Those that this rank's arguments alone can cause.
    #[track_caller]
    pub fn all_gather<T: Element>(
        &mut self,
        stream: &'a Stream,
        src: impl Into<View<'a, T>>,
        dst: impl Into<ViewMut<'a, T>>,
    ) -> Result<()> {
        self.add(stream, Collective::AllGather, Some(src.into()), Some(dst.into()))
    }

    /// Adds [`Communicator::reduce_scatter`](crate::Communicator::reduce_scatter).
    ///
    /// # Errors
    /// Those that this rank's arguments alone can cause.
    #[track_caller]
    pub fn reduce_scatter<T: Element>(
        &mut self,
        stream: &'a Stream,
        src: impl Into<View<'a, T>>,
        dst: impl Into<ViewMut<'a, T>>,
        op: Op,
    ) -> Result<()> {
        self.add(stream, Collective::ReduceScatter(op), Some(src.into()), Some(dst.into()))
    }

    /// Adds [`Communicator::broadcast`](crate::Communicator::broadcast).
    ///
    /// # Errors
    /// Those that this rank's arguments alone can cause.
    #[track_caller]
    pub fn broadcast<T: Element>(
        &mut self,
        stream: &'a Stream,
        memory: impl Into<ViewMut<'a, T>>,
        root: usize,
    ) -> Result<()> {
        self.add(stream, Collective::Broadcast { root }, None, Some(memory.into()))
    }

    /// Adds [`Communicator::reduce`](crate::Communicator::reduce).
    ///
    /// # Errors
    /// Those that this rank's arguments alone can cause.
    #[track_caller]
    pub fn reduce<T: Element>(
        &mut self,
        stream: &'a Stream,
        src: impl Into<View<'a, T>>,
        dst: impl Into<ViewMut<'a, T>>,
        op: Op,
        root: usize,
    ) -> Result<()> {
        self.add(stream, Collective::Reduce { op, root }, Some(src.into()), Some(dst.into()))
    }

    /// Adds [`Communicator::reduce_in_place`](crate::Communicator::reduce_in_place).
    ///
    /// # Errors
    /// Those that this rank's arguments alone can cause.
    #[track_caller]
    pub fn reduce_in_place<T: Element>(
        &mut self,
        stream: &'a Stream,
        memory: impl Into<ViewMut<'a, T>>,
        op: Op,
        root: usize,
    ) -> Result<()> {
        self.add(stream, Collective::Reduce { op, root }, None, Some(memory.into()))
    }

    /// Adds [`Communicator::gather`](crate::Communicator::gather).
    ///
    /// # Errors
    /// Those that this rank's arguments alone can cause.
    #[track_caller]
    pub fn gather<T: Element>(
        &mut self,
        stream: &'a Stream,
        src: impl Into<View<'a, T>>,
        dst: impl Into<ViewMut<'a, T>>,
        root: usize,
    ) -> Result<()> {
        self.add(stream, Collective::Gather { root }, Some(src.into()), Some(dst.into()))
    }

    /// Adds [`Communicator::scatter`](crate::Communicator::scatter).
    ///
    /// # Errors
    /// Those that this rank's arguments alone can cause.
    #[track_caller]
    pub fn scatter<T: Element>(
        &mut self,
        stream: &'a Stream,
        src: impl Into<View<'a, T>>,
        dst: impl Into<ViewMut<'a, T>>,
        root: usize,
    ) -> Result<()> {
        self.add(stream, Collective::Scatter { root }, Some(src.into()), Some(dst.into()))
    }

    /// Adds [`Communicator::all_to_all`](crate::Communicator::all_to_all).
    ///
    /// # Errors
    /// Those that this rank's arguments alone can cause.
    #[track_caller]
    pub fn all_to_all<T: Element>(
        &mut self,
        stream: &'a Stream,
        src: impl Into<View<'a, T>>,
        dst: impl Into<ViewMut<'a, T>>,
    ) -> Result<()> {
        self.add(stream, Collective::AllToAll, Some(src.into()), Some(dst.into()))
    }

    /// Adds [`Communicator::send`](crate::Communicator::send).
    ///
    /// # Errors
    /// Those that this rank's arguments alone can cause.
    #[track_caller]
    pub fn send<T: Element>(
        &mut self,
        stream: &'a Stream,
        src: impl Into<View<'a, T>>,
        to: usize,
    ) -> Result<()> {
        self.add(stream, Collective::Send { to }, Some(src.into()), None)
    }

    /// Adds [`Communicator::recv`](crate::Communicator::recv).
    ///
    /// # Errors
    /// Those that this rank's arguments alone can cause.
    #[track_caller]
    pub fn recv<T: Element>(
        &mut self,
        stream: &'a Stream,
        dst: impl Into<ViewMut<'a, T>>,
        from: usize,
    ) -> Result<()> {
        self.add(stream, Collective::Recv { from }, None, Some(dst.into()))
    }

    /// Adds [`Communicator::barrier`](crate::Communicator::barrier).
    ///
    /// # Errors
    /// Those that this rank's arguments alone can cause.
    #[track_caller]
    pub fn barrier(&mut self, stream: &'a Stream) -> Result<()> {
        self.add::<u8>(stream, Collective::Barrier, None, None)
    }

    /// Adds a call. If a check fails, the error names the call.
    #[track_caller]
    fn add<T: Element>(
        &mut self,
        stream: &'a Stream,
        operation: Collective,
        src: Option<View<'a, T>>,
        dst: Option<ViewMut<'a, T>>,
    ) -> Result<()> {
        in_call(operation.name(), self.add_checked(stream, operation, src, dst))
    }

    fn add_checked<T: Element>(
        &mut self,
        stream: &'a Stream,
        operation: Collective,
        src: Option<View<'a, T>>,
        dst: Option<ViewMut<'a, T>>,
    ) -> Result<()> {
        let GroupMember { endpoint, device } = self.member;
        let (rank, size) = endpoint.place();
        let (src_len, dst_len) = (src.as_ref().map(View::len), dst.as_ref().map(ViewMut::len));
        let count = check::count(operation, (rank, size), src_len, dst_len)?;
        if !endpoint.records_calls() {
            check::not_recorded(stream, rank)?;
        }
        check::stream(stream, rank, device)?;
        let devices = src.as_ref().map(View::device).into_iter().chain(dst.as_ref().map(ViewMut::device));
        for given in devices {
            check::memory(given, rank, device)?;
        }
        let signature = Signature { operation, element: T::TYPE, count };
        let (src, dst) = (src.map(View::cast).transpose()?, dst.map(ViewMut::cast_mut).transpose()?);
        self.calls.push(Call { signature, stream, src, dst });
        Ok(())
    }
}
