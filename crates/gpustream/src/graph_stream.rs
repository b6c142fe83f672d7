//! The stream that a recording closure gets.

use std::fmt;
use std::ops::Deref;

use gpustream_core::operation::{call_site, on_behalf};
use gpustream_hal::Result;

use crate::stream::Stream;

/// A [`Stream`] whose work becomes part of a graph: what [`Stream::capture`], [`Graph::update`](crate::Graph::update),
/// [`GraphBuilder::node`](crate::GraphBuilder::node) and the body of a condition hand to your closure.
///
/// You use it like any `Stream`, and can pass it where a `&Stream` is wanted. On top of that it has what only a graph can do:
/// [`if_`](Self::if_), [`while_`](Self::while_) and [`fork`](Self::fork).
///
/// ```
/// # use gpustream::{Device, Result, Stream};
/// # let device = Device::open("cpu")?;
/// fn clear(s: &Stream, x: &mut gpustream::Buffer<u32>) -> Result<()> {
///     s.fill(x, 0)
/// }
/// let stream = device.stream()?;
/// let (dirty, mut x) = (device.flag()?, stream.full(4, 7u32)?);
/// let graph = stream.capture(|s| s.if_(&dirty, |s| clear(s, &mut x)))?;
/// graph.launch(&stream)?;
/// assert_eq!(stream.download(&x)?, [7; 4]);
/// # Ok::<(), gpustream::Error>(())
/// ```
pub struct GraphStream<'a>(pub(crate) &'a Stream);

impl Deref for GraphStream<'_> {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        self.0
    }
}

impl fmt::Debug for GraphStream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GraphStream").field(self.0).finish()
    }
}

impl GraphStream<'_> {
    /// Begins a branch: work of `other` becomes part of the same graph, and comes after everything that this stream has
    /// recorded so far. The same as `other.wait_for(s)`, but you get the branch as a `GraphStream`. Does not block.
    ///
    /// If later work of this stream uses the branch's memory, it waits for the branch, as always. For any other order call
    /// `s.wait_for(&branch)`. The branch ends with the capture, and a run of the graph is done when all its branches are.
    ///
    /// ```
    /// # let device = gpustream::Device::open("cpu")?;
    /// let (stream, other) = (device.stream()?, device.stream()?);
    /// let flag = device.flag()?;
    /// let (mut x, mut y) = (stream.zeros::<u32>(4)?, stream.zeros::<u32>(4)?);
    /// stream.synchronize()?;
    /// let graph = stream.capture(|s| {
    ///     let branch = s.fork(&other)?;
    ///     s.fill(&mut x, 1)?;
    ///     branch.if_(&flag, |s| s.fill(&mut y, 2))
    /// })?;
    /// flag.set(1);
    /// graph.launch(&stream)?;
    /// assert_eq!((stream.download(&x)?, stream.download(&y)?), (vec![1; 4], vec![2; 4]));
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Stream::wait_for`]; [`ErrorKind::NotANode`](crate::ErrorKind::NotANode) in a node and in the body of a condition,
    /// which is one branch only.
    #[track_caller]
    pub fn fork<'b>(&'b self, other: &'b Stream) -> Result<GraphStream<'b>> {
        on_behalf(call_site("fork"), || other.wait_for(self)).map(|()| GraphStream(other))
    }
}
