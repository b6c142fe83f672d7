//! The calls of one rank that are made together, each checked as it is added.

use gpustream::{Device, Result, Stream, View, ViewMut};

use crate::call::{Batch, Call, Operation, Signature};
use crate::check;
use crate::element::Element;
use crate::engine::Seat;
use crate::op::Op;

/// One rank: its place among the others, and its device.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) seat: Seat,
    pub(crate) device: Device,
}

impl Member {
    pub(crate) fn rank(&self) -> usize {
        self.seat.place().0
    }

    pub(crate) fn size(&self) -> usize {
        self.seat.place().1
    }
}

/// Calls of one communicator that are made together. Each method adds the call that the
/// [`Communicator`](crate::Communicator)'s method of that name makes, with the same checks; nothing is enqueued before the
/// group's end.
#[derive(Debug)]
pub struct Calls<'a> {
    member: &'a Member,
    calls: Batch<'a>,
}

impl<'a> Calls<'a> {
    pub(crate) fn new(member: &'a Member) -> Self {
        Self { member, calls: Batch::new() }
    }

    /// Returns whether these are a rank's calls.
    pub(crate) fn are_of(&self, member: &Member) -> bool {
        std::ptr::eq(self.member, member)
    }

    /// Returns the rank and its calls.
    pub(crate) fn into_parts(self) -> (&'a Seat, Batch<'a>) {
        (&self.member.seat, self.calls)
    }

    /// Adds [`Communicator::all_reduce`](crate::Communicator::all_reduce).
    ///
    /// # Errors
    /// Those that concern this rank alone.
    pub fn all_reduce<T: Element>(
        &mut self,
        stream: &'a Stream,
        src: impl Into<View<'a, T>>,
        dst: impl Into<ViewMut<'a, T>>,
        op: Op,
    ) -> Result<()> {
        let (src, dst) = (src.into(), dst.into());
        check::lengths("all_reduce", ("`dst`", dst.len()), ("`src`", src.len()), 1)?;
        self.add(stream, Operation::AllReduce(op), src.len(), Some(src), Some(dst))
    }

    /// Adds [`Communicator::all_reduce_in_place`](crate::Communicator::all_reduce_in_place).
    ///
    /// # Errors
    /// Those that concern this rank alone.
    pub fn all_reduce_in_place<T: Element>(
        &mut self,
        stream: &'a Stream,
        memory: impl Into<ViewMut<'a, T>>,
        op: Op,
    ) -> Result<()> {
        let memory = memory.into();
        self.add(stream, Operation::AllReduce(op), memory.len(), None, Some(memory))
    }

    /// Adds [`Communicator::all_gather`](crate::Communicator::all_gather).
    ///
    /// # Errors
    /// Those that concern this rank alone.
    pub fn all_gather<T: Element>(
        &mut self,
        stream: &'a Stream,
        src: impl Into<View<'a, T>>,
        dst: impl Into<ViewMut<'a, T>>,
    ) -> Result<()> {
        let (src, dst) = (src.into(), dst.into());
        check::lengths("all_gather", ("`dst`", dst.len()), ("`src`", src.len()), self.member.size())?;
        self.add(stream, Operation::AllGather, src.len(), Some(src), Some(dst))
    }

    /// Adds [`Communicator::reduce_scatter`](crate::Communicator::reduce_scatter).
    ///
    /// # Errors
    /// Those that concern this rank alone.
    pub fn reduce_scatter<T: Element>(
        &mut self,
        stream: &'a Stream,
        src: impl Into<View<'a, T>>,
        dst: impl Into<ViewMut<'a, T>>,
        op: Op,
    ) -> Result<()> {
        let (src, dst) = (src.into(), dst.into());
        check::lengths("reduce_scatter", ("`src`", src.len()), ("`dst`", dst.len()), self.member.size())?;
        self.add(stream, Operation::ReduceScatter(op), dst.len(), Some(src), Some(dst))
    }

    /// Adds [`Communicator::broadcast`](crate::Communicator::broadcast).
    ///
    /// # Errors
    /// Those that concern this rank alone.
    pub fn broadcast<T: Element>(
        &mut self,
        stream: &'a Stream,
        memory: impl Into<ViewMut<'a, T>>,
        root: usize,
    ) -> Result<()> {
        let memory = memory.into();
        check::rank(root, self.member.size(), "root")?;
        self.add(stream, Operation::Broadcast { root }, memory.len(), None, Some(memory))
    }

    /// Adds [`Communicator::reduce`](crate::Communicator::reduce).
    ///
    /// # Errors
    /// Those that concern this rank alone.
    pub fn reduce<T: Element>(
        &mut self,
        stream: &'a Stream,
        src: impl Into<View<'a, T>>,
        dst: impl Into<ViewMut<'a, T>>,
        op: Op,
        root: usize,
    ) -> Result<()> {
        let (src, dst) = (src.into(), dst.into());
        check::rank(root, self.member.size(), "root")?;
        if self.member.rank() == root {
            check::lengths("reduce", ("`dst`", dst.len()), ("`src`", src.len()), 1)?;
        }
        self.add(stream, Operation::Reduce { op, root }, src.len(), Some(src), Some(dst))
    }

    /// Adds [`Communicator::reduce_in_place`](crate::Communicator::reduce_in_place).
    ///
    /// # Errors
    /// Those that concern this rank alone.
    pub fn reduce_in_place<T: Element>(
        &mut self,
        stream: &'a Stream,
        memory: impl Into<ViewMut<'a, T>>,
        op: Op,
        root: usize,
    ) -> Result<()> {
        let memory = memory.into();
        check::rank(root, self.member.size(), "root")?;
        self.add(stream, Operation::Reduce { op, root }, memory.len(), None, Some(memory))
    }

    /// Adds [`Communicator::gather`](crate::Communicator::gather).
    ///
    /// # Errors
    /// Those that concern this rank alone.
    pub fn gather<T: Element>(
        &mut self,
        stream: &'a Stream,
        src: impl Into<View<'a, T>>,
        dst: impl Into<ViewMut<'a, T>>,
        root: usize,
    ) -> Result<()> {
        let (src, dst) = (src.into(), dst.into());
        check::rank(root, self.member.size(), "root")?;
        if self.member.rank() == root {
            check::lengths("gather", ("`dst`", dst.len()), ("`src`", src.len()), self.member.size())?;
        }
        self.add(stream, Operation::Gather { root }, src.len(), Some(src), Some(dst))
    }

    /// Adds [`Communicator::scatter`](crate::Communicator::scatter).
    ///
    /// # Errors
    /// Those that concern this rank alone.
    pub fn scatter<T: Element>(
        &mut self,
        stream: &'a Stream,
        src: impl Into<View<'a, T>>,
        dst: impl Into<ViewMut<'a, T>>,
        root: usize,
    ) -> Result<()> {
        let (src, dst) = (src.into(), dst.into());
        check::rank(root, self.member.size(), "root")?;
        if self.member.rank() == root {
            check::lengths("scatter", ("`src`", src.len()), ("`dst`", dst.len()), self.member.size())?;
        }
        self.add(stream, Operation::Scatter { root }, dst.len(), Some(src), Some(dst))
    }

    /// Adds [`Communicator::all_to_all`](crate::Communicator::all_to_all).
    ///
    /// # Errors
    /// Those that concern this rank alone.
    pub fn all_to_all<T: Element>(
        &mut self,
        stream: &'a Stream,
        src: impl Into<View<'a, T>>,
        dst: impl Into<ViewMut<'a, T>>,
    ) -> Result<()> {
        let (src, dst) = (src.into(), dst.into());
        check::lengths("all_to_all", ("`dst`", dst.len()), ("`src`", src.len()), 1)?;
        let part = check::parts("all_to_all", src.len(), self.member.size())?;
        self.add(stream, Operation::AllToAll, part, Some(src), Some(dst))
    }

    /// Adds [`Communicator::send`](crate::Communicator::send).
    ///
    /// # Errors
    /// Those that concern this rank alone.
    pub fn send<T: Element>(
        &mut self,
        stream: &'a Stream,
        src: impl Into<View<'a, T>>,
        to: usize,
    ) -> Result<()> {
        let src = src.into();
        check::rank(to, self.member.size(), "receiver")?;
        self.add(stream, Operation::Send { to }, src.len(), Some(src), None)
    }

    /// Adds [`Communicator::recv`](crate::Communicator::recv).
    ///
    /// # Errors
    /// Those that concern this rank alone.
    pub fn recv<T: Element>(
        &mut self,
        stream: &'a Stream,
        dst: impl Into<ViewMut<'a, T>>,
        from: usize,
    ) -> Result<()> {
        let dst = dst.into();
        check::rank(from, self.member.size(), "sender")?;
        self.add(stream, Operation::Recv { from }, dst.len(), None, Some(dst))
    }

    /// Adds [`Communicator::barrier`](crate::Communicator::barrier).
    ///
    /// # Errors
    /// Those that concern this rank alone.
    pub fn barrier(&mut self, stream: &'a Stream) -> Result<()> {
        self.check_stream(stream)?;
        let signature = Signature::of_bytes(Operation::Barrier, 0);
        self.calls.push(Call { signature, stream, src: None, dst: None });
        Ok(())
    }

    fn check_stream(&self, stream: &Stream) -> Result<()> {
        let rank = self.member.rank();
        if !self.member.seat.records_calls() {
            check::not_recorded(stream, rank)?;
        }
        check::stream(stream, rank, &self.member.device)
    }

    fn add<T: Element>(
        &mut self,
        stream: &'a Stream,
        operation: Operation,
        count: usize,
        src: Option<View<'a, T>>,
        dst: Option<ViewMut<'a, T>>,
    ) -> Result<()> {
        self.check_stream(stream)?;
        let devices = src.as_ref().map(View::device).into_iter().chain(dst.as_ref().map(ViewMut::device));
        for device in devices {
            check::memory(device, self.member.rank(), &self.member.device)?;
        }
        let signature = Signature { operation, element: T::TYPE, count };
        let (src, dst) = (src.map(View::cast).transpose()?, dst.map(ViewMut::cast_mut).transpose()?);
        self.calls.push(Call { signature, stream, src, dst });
        Ok(())
    }
}
