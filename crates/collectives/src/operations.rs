//! The table of operations. Each row becomes a method of [`Communicator`], which makes the call at once, and a method of
//! [`CallGroup`], which makes it together with others.
//!
//! A row is `name(memory; arguments) = Collective`. The memory is `src`, `dst` or both.

use gpustream::{AsView, AsViewMut, Result, Stream, View, ViewMut};

use crate::call::Collective;
use crate::call_group::CallGroup;
use crate::communicator::Communicator;
use crate::element::Element;
use crate::op::Op;

/// The type of a memory argument of [`Communicator`], which borrows it for the call.
macro_rules! borrowed {
    (src) => { &(impl AsView<T> + ?Sized) };
    (dst) => { &mut (impl AsViewMut<T> + ?Sized) };
    (memory) => { &mut (impl AsViewMut<T> + ?Sized) };
}

/// The type of a memory argument of [`CallGroup`], which keeps it until the group ends.
macro_rules! kept {
    (src) => { impl Into<View<'a, T>> };
    (dst) => { impl Into<ViewMut<'a, T>> };
    (memory) => { impl Into<ViewMut<'a, T>> };
}

/// The view of a borrowed memory argument.
macro_rules! view {
    (src $it:ident) => {
        $it.view()
    };
    (dst $it:ident) => {
        $it.view_mut()
    };
    (memory $it:ident) => {
        $it.view_mut()
    };
}

/// The source and destination among the memory arguments.
macro_rules! ends {
    ([src dst] $src:ident $dst:ident) => {
        (Some($src.into()), Some($dst.into()))
    };
    ([src] $src:ident) => {
        (Some($src.into()), None)
    };
    ([dst] $dst:ident) => {
        (None, Some($dst.into()))
    };
    ([memory] $memory:ident) => {
        (None, Some($memory.into()))
    };
}

macro_rules! operations {
    ($($(#[doc = $doc:literal])* $name:ident($($memory:ident)+; $($argument:ident: $type:ty),*) = $collective:expr;)*) => {
        impl Communicator {
            $($(#[doc = $doc])*
            #[track_caller]
            pub fn $name<T: Element>(
                &self,
                stream: &Stream,
                $($memory: borrowed!($memory),)+
                $($argument: $type),*
            ) -> Result<()> {
                let mut calls = CallGroup::new(self.member());
                let added = calls.$name(stream, $(view!($memory $memory),)+ $($argument),*);
                calls.run_one(stringify!($name), added)
            })*
        }

        impl<'a> CallGroup<'a> {
            $(#[doc = concat!("Adds [`Communicator::", stringify!($name), "`].\n\n# Errors\n",
                "Those that this rank's arguments alone can cause.")]
            #[track_caller]
            pub fn $name<T: Element>(
                &mut self,
                stream: &'a Stream,
                $($memory: kept!($memory),)+
                $($argument: $type),*
            ) -> Result<()> {
                let (src, dst) = ends!([$($memory)+] $($memory)+);
                self.add(stream, $collective, src, dst)
            })*
        }
    };
}

operations! {
    /// Combines the elements of all ranks' `src`, index by index, and gives every rank the result.
    ///
    /// Between devices of one process, every rank gets the same bits in every run, because we combine in the
    /// order of the ranks. We compute 16-bit floating-point types in `f32` and round once.
    ///
    /// # Errors
    /// [`ErrorKind::ArgumentMismatch`](gpustream::ErrorKind::ArgumentMismatch) if `src` and `dst` differ in length.
    ///
    /// This and every other operation here may also return:
    /// * [`DeviceMismatch`](gpustream::ErrorKind::DeviceMismatch) if the stream or memory belongs to another
    ///   device than the rank's.
    /// * [`Captured`](gpustream::ErrorKind::Captured) if the stream is recorded, except with NCCL.
    /// * [`InHostClosure`](gpustream::ErrorKind::InHostClosure) inside a closure that the library runs.
    /// * [`InvalidArgument`](gpustream::ErrorKind::InvalidArgument) for a rank that does not exist.
    /// * [`External`](gpustream::ErrorKind::External), with a
    ///   [`CommunicatorFailure`](crate::CommunicatorFailure) as its source, if the ranks cannot work
    ///   together.
    /// * Any rank's errors from copies and launches.
    all_reduce(src dst; op: Op) = Collective::AllReduce(op);

    /// Like [`all_reduce`](Self::all_reduce), but the result replaces the elements in `memory`.
    ///
    /// # Errors
    /// Those of [`all_reduce`](Self::all_reduce).
    all_reduce_in_place(memory; op: Op) = Collective::AllReduce(op);

    /// Gives every rank the elements of all ranks' `src`, in the order of the ranks. `dst` must have room for
    /// all of them.
    ///
    /// # Errors
    /// [`ErrorKind::ArgumentMismatch`](gpustream::ErrorKind::ArgumentMismatch) if `dst` does not have [`size`](Self::size) times as many elements as `src`. Otherwise those of [`all_reduce`](Self::all_reduce).
    all_gather(src dst;) = Collective::AllGather;

    /// Combines the elements of all ranks' `src` like [`all_reduce`](Self::all_reduce), and gives each rank
    /// its part of the result: rank 0 gets the first part, and so on.
    ///
    /// # Errors
    /// [`ErrorKind::ArgumentMismatch`](gpustream::ErrorKind::ArgumentMismatch) if `src` does not have [`size`](Self::size) times as many elements as `dst`. Otherwise those of [`all_reduce`](Self::all_reduce).
    reduce_scatter(src dst; op: Op) = Collective::ReduceScatter(op);

    /// Copies rank `root`'s `memory` to all other ranks. The root's memory is only read.
    ///
    /// # Errors
    /// Those of [`all_reduce`](Self::all_reduce).
    broadcast(memory; root: usize) = Collective::Broadcast { root };

    /// Combines the elements of all ranks' `src` like [`all_reduce`](Self::all_reduce), and gives the result
    /// to rank `root`. On other ranks `dst` is not touched and may have any length.
    ///
    /// # Errors
    /// Those of [`all_reduce`](Self::all_reduce).
    reduce(src dst; op: Op, root: usize) = Collective::Reduce { op, root };

    /// Like [`reduce`](Self::reduce), but the result replaces the root's elements. The other ranks' memory is
    /// only read.
    ///
    /// # Errors
    /// Those of [`all_reduce`](Self::all_reduce).
    reduce_in_place(memory; op: Op, root: usize) = Collective::Reduce { op, root };

    /// Gives rank `root` the elements of all ranks' `src`, in the order of the ranks. On other ranks `dst` is
    /// not touched and may have any length.
    ///
    /// # Errors
    /// [`ErrorKind::ArgumentMismatch`](gpustream::ErrorKind::ArgumentMismatch) if the root's `dst` does not have [`size`](Self::size) times as many elements as `src`. Otherwise those of [`all_reduce`](Self::all_reduce).
    gather(src dst; root: usize) = Collective::Gather { root };

    /// Gives each rank its part of rank `root`'s `src`: rank 0 gets the first part, and so on. On other ranks
    /// `src` is not touched and may have any length.
    ///
    /// # Errors
    /// [`ErrorKind::ArgumentMismatch`](gpustream::ErrorKind::ArgumentMismatch) if the root's `src` does not have [`size`](Self::size) times as many elements as `dst`. Otherwise those of [`all_reduce`](Self::all_reduce).
    scatter(src dst; root: usize) = Collective::Scatter { root };

    /// Gives each rank its part of every rank's `src`: part `r` of rank `q`'s `src` becomes part `q` of rank
    /// `r`'s `dst`.
    ///
    /// # Errors
    /// [`ErrorKind::ArgumentMismatch`](gpustream::ErrorKind::ArgumentMismatch) if `src` and `dst` differ in length, or cannot be divided into equal parts for all ranks. Otherwise those of [`all_reduce`](Self::all_reduce).
    all_to_all(src dst;) = Collective::AllToAll;

    /// Sends elements to rank `to`, which must call [`recv`](Self::recv) for the same number of elements. If
    /// two ranks send to each other, put each send in a [`group`](Self::group) with its receive, because
    /// otherwise both would wait forever.
    ///
    /// # Errors
    /// Those of [`all_reduce`](Self::all_reduce).
    send(src; to: usize) = Collective::Send { to };

    /// Receives the elements that rank `from` [sends](Self::send) to this rank.
    ///
    /// # Errors
    /// Those of [`all_reduce`](Self::all_reduce).
    recv(dst; from: usize) = Collective::Recv { from };
}
