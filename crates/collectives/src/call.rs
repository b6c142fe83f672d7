//! One rank's call as a value: its operation, stream and memory.

use std::fmt;
use std::ops::Range;
use std::panic::Location;

use gpustream::{AsView, AsViewMut, CallSite, Error, ErrorKind, Result, Stream, View, ViewMut};
use smallvec::SmallVec;

use crate::element::ElementType;
use crate::op::Op;

/// Returns a call site with that name, at the caller's line.
#[track_caller]
pub(crate) fn call_site(label: &'static str) -> CallSite {
    CallSite { label, location: Location::caller() }
}

/// Makes an error point at the user's call, instead of the `gpustream` call that we made for it.
#[inline]
#[track_caller]
pub(crate) fn in_call<T>(label: &'static str, outcome: Result<T>) -> Result<T> {
    let call_site = call_site(label);
    outcome.map_err(|error| error.at_call_site(call_site))
}

/// An operation, with everything that must be the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Collective {
    AllReduce(Op),
    AllGather,
    ReduceScatter(Op),
    Broadcast { root: usize },
    Reduce { op: Op, root: usize },
    Gather { root: usize },
    Scatter { root: usize },
    AllToAll,
    Send { to: usize },
    Recv { from: usize },
    Barrier,
    Split,
    Compare,
}

impl Collective {
    /// Returns the name of the call.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::AllReduce(_) => "all_reduce",
            Self::AllGather => "all_gather",
            Self::ReduceScatter(_) => "reduce_scatter",
            Self::Broadcast { .. } => "broadcast",
            Self::Reduce { .. } => "reduce",
            Self::Gather { .. } => "gather",
            Self::Scatter { .. } => "scatter",
            Self::AllToAll => "all_to_all",
            Self::Send { .. } => "send",
            Self::Recv { .. } => "recv",
            Self::Barrier => "barrier",
            Self::Split => "split",
            Self::Compare => "comparison of calls",
        }
    }

    /// Returns how the elements are combined, if they are.
    pub(crate) fn op(self) -> Option<Op> {
        match self {
            Self::AllReduce(op) | Self::ReduceScatter(op) | Self::Reduce { op, .. } => Some(op),
            _ => None,
        }
    }

    /// Returns the rank that the call names, and the role of that rank.
    pub(crate) fn other(self) -> Option<(usize, &'static str)> {
        match self {
            Self::Broadcast { root }
            | Self::Reduce { root, .. }
            | Self::Gather { root }
            | Self::Scatter { root } => Some((root, "root")),
            Self::Send { to } => Some((to, "receiver")),
            Self::Recv { from } => Some((from, "sender")),
            _ => None,
        }
    }

    /// Returns how many parts a rank gives and gets. All parts have the same number of elements.
    pub(crate) fn parts(self, rank: usize, size: usize) -> (usize, usize) {
        let at = |root: usize, parts: usize| if root == rank { parts } else { 0 };
        match self {
            Self::AllReduce(_) => (1, 1),
            Self::Reduce { root, .. } => (1, at(root, 1)),
            Self::ReduceScatter(_) => (size, 1),
            Self::AllGather | Self::Split | Self::Compare => (1, size),
            Self::Gather { root } => (1, at(root, size)),
            Self::Scatter { root } => (at(root, size), 1),
            Self::AllToAll => (size, size),
            Self::Broadcast { root } => (at(root, 1), 1 - at(root, 1)),
            Self::Send { .. } => (1, 0),
            Self::Recv { .. } => (0, 1),
            Self::Barrier => (0, 0),
        }
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match self {
            Self::AllReduce(op) | Self::ReduceScatter(op) => write!(f, "`{name}` ({op})"),
            Self::Reduce { op, root } => write!(f, "`{name}` ({op}) to rank {root}"),
            Self::Gather { root: to } | Self::Send { to } => write!(f, "`{name}` to rank {to}"),
            Self::Broadcast { root: from } | Self::Scatter { root: from } | Self::Recv { from } => {
                write!(f, "`{name}` from rank {from}")
            }
            Self::AllGather | Self::AllToAll | Self::Barrier | Self::Split => write!(f, "`{name}`"),
            Self::Compare => write!(f, "the comparison of the ranks' calls"),
        }
    }
}

/// What we compare between the ranks' calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    pub(crate) operation: Collective,
    pub(crate) element: ElementType,
    /// The number of elements in a part: what one rank gives to another, or what is combined.
    pub(crate) count: usize,
}

impl Signature {
    /// Returns the signature of a call that moves bytes, or nothing.
    pub(crate) const fn of_bytes(operation: Collective, count: usize) -> Self {
        Self { operation, element: ElementType::U8, count }
    }

    /// Returns the size of a part in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.count * self.element.size()
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, element, count } = self;
        match operation {
            Collective::Barrier | Collective::Split | Collective::Compare => operation.fmt(f),
            _ => write!(f, "{operation} with {count} elements of {element}"),
        }
    }
}

/// One rank's call. We have checked everything that does not need the other ranks.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) signature: Signature,
    /// The name and line of the user's call. Whichever rank enqueues the work does it on behalf of that line.
    pub(crate) caller: CallSite,
    pub(crate) stream: &'a Stream,
    /// The memory that the rank gives, as bytes. `None` if it gives nothing, or gives `dst` in place.
    pub(crate) src: Option<View<'a, u8>>,
    /// The memory for the rank's result, as bytes. `None` if it gets nothing.
    pub(crate) dst: Option<ViewMut<'a, u8>>,
}

/// The calls that one rank makes together. A single call needs no allocation.
pub(crate) type Batch<'a> = SmallVec<[Call<'a>; 1]>;

/// The batches of several ranks, each with its endpoint of type `S`.
pub(crate) type Batches<'a, S> = SmallVec<[(&'a S, Batch<'a>); 1]>;

impl Call<'_> {
    /// Returns a range of the bytes that the rank gives.
    pub(crate) fn input(&self, range: Range<usize>) -> Result<View<'_, u8>> {
        match (&self.src, &self.dst) {
            (Some(src), _) => src.slice(range),
            (None, Some(dst)) => dst.view().slice(range),
            (None, None) => Err(lacks(self.signature, "read")),
        }
    }

    /// Returns a range of the result, for reading.
    pub(crate) fn result(&self, range: Range<usize>) -> Result<View<'_, u8>> {
        self.dst.as_ref().ok_or_else(|| lacks(self.signature, "read"))?.view().slice(range)
    }

    /// Returns a range of the result, for writing.
    pub(crate) fn output(&mut self, range: Range<usize>) -> Result<ViewMut<'_, u8>> {
        let signature = self.signature;
        self.dst.as_mut().ok_or_else(|| lacks(signature, "write"))?.view_mut().slice_mut(range)
    }

    /// Copies what the rank gives to its own result, unless they are the same memory.
    pub(crate) fn copy_own(&mut self, from: Range<usize>, to: Range<usize>) -> Result<()> {
        match (&self.src, &mut self.dst) {
            (Some(src), Some(dst)) => self.stream.copy(&src.slice(from)?, &mut dst.view_mut().slice_mut(to)?),
            _ => Ok(()),
        }
    }
}

#[cold]
fn lacks(signature: Signature, to: &str) -> Error {
    Error::new(
        ErrorKind::InvalidArgument,
        format!("{signature} has no memory to {to}; please report this bug"),
    )
}
