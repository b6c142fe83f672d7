//! Graphs that decide for themselves: conditional nodes.

use std::sync::Arc;

use gpustream_core::operation::call_site;
use gpustream_core::record::Condition;
use gpustream_core::stream::Destination;
use gpustream_core::track::Mode;
use gpustream_hal::{CallSite, Error, ErrorKind, Repeat, Result};

use crate::graph_builder::{GraphBuilder, Node, node_stream};
use crate::graph_stream::GraphStream;
use crate::stream::Stream;
use crate::volatile::AsVolatile;

impl GraphStream<'_> {
    /// Records work that the graph only does if `flag` is not zero when a run gets there.
    /// [`GraphBuilder::if_`](GraphBuilder::if_) is the same for graphs that you build node by node.
    ///
    /// `body` gets a stream that stands for the body, and the body runs in this stream's order. `flag` is one `u32`. It may be
    /// a [`Flag`](crate::Flag), which kernels and the host can set at any time, or memory that earlier work of the graph
    /// writes, which is ordered as usual. Conditions nest up to 64 levels deep.
    ///
    /// ```
    /// # let device = gpustream::Device::open("cpu")?;
    /// let stream = device.stream()?;
    /// let (flag, mut x) = (device.flag()?, stream.zeros::<u32>(4)?);
    /// let graph = stream.capture(|s| s.if_(&flag, |s| s.fill(&mut x, 7)))?;
    /// graph.launch(&stream)?;
    /// assert_eq!(stream.download(&x)?, [0; 4]);
    /// flag.set(1);
    /// graph.launch(&stream)?;
    /// assert_eq!(stream.download(&x)?, [7; 4]);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if [`DeviceFeatures::conditional_nodes`](gpustream_hal::DeviceFeatures::conditional_nodes)
    /// says no: on HIP, and on CUDA before 12.4. [`ErrorKind::InvalidArgument`] if `flag` does not have exactly one element, or if
    /// the condition is inside 64 others. [`ErrorKind::NotANode`] if the body is empty
    /// or has host closures or other work that cannot be a node. [`ErrorKind::Captured`] if you submit work to the streams
    /// around the body while it is recorded. [`ErrorKind::DeviceMismatch`] if the device cannot reach the memory. The error of
    /// `body`. After an error the graph does not have the condition.
    #[track_caller]
    pub fn if_(
        &self,
        flag: &impl AsVolatile<u32>,
        body: impl FnOnce(&GraphStream<'_>) -> Result<()>,
    ) -> Result<()> {
        self.condition(call_site("if"), Repeat::Once, flag, body)
    }

    /// Records work that the graph repeats as long as `flag` is not zero. It looks at the flag before each round. Otherwise
    /// this is like [`if_`](Self::if_).
    ///
    /// The body must end the loop, or the host with [`Flag::set`](crate::Flag::set). If neither does, the device spins forever.
    /// A body that writes `flag` needs a `Flag`, which it can use by shared reference. If the body allocates and drops memory,
    /// its contents are unspecified in each round.
    ///
    /// On CUDA each round costs a microsecond or two more than the work, because a kernel of one thread has to look at the
    /// flag. The first condition in a process also makes the driver compile that kernel, which takes a tenth of a second.
    ///
    /// ```no_run
    /// # mod kernels { use gpustream::{Stream, Buffer, Flag, Result}; pub struct K; impl K {
    /// # pub fn halve(&self, _: &Stream, _: &mut Buffer<f32>, _: &Flag) -> Result<()> { Ok(()) } } }
    /// # let (device, kernels) = (gpustream::Device::open("cpu")?, kernels::K);
    /// # let stream = device.stream()?; let mut x = stream.zeros::<f32>(4)?;
    /// let go_on = device.flag()?;
    /// go_on.set(1);
    /// // `halve` stores 0 to `*go_on` when it is done: `__global__ void halve(float* x, volatile unsigned* go_on)`.
    /// let graph = stream.capture(|s| s.while_(&go_on, |s| kernels.halve(s, &mut x, &go_on)))?;
    /// graph.launch(&stream)?;
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`if_`](Self::if_).
    #[track_caller]
    pub fn while_(
        &self,
        flag: &impl AsVolatile<u32>,
        body: impl FnOnce(&GraphStream<'_>) -> Result<()>,
    ) -> Result<()> {
        self.condition(call_site("while"), Repeat::While, flag, body)
    }
}

impl Stream {
    fn condition(
        &self,
        call_site: CallSite,
        repeat: Repeat,
        flag: &impl AsVolatile<u32>,
        body: impl FnOnce(&GraphStream<'_>) -> Result<()>,
    ) -> Result<()> {
        let flag = flag.volatile();
        let entry = self.enter(call_site)?;
        let check = || {
            let info = self.device.info();
            if !info.features.conditional_nodes {
                return Err(no_conditions(info.backend.as_str()));
            }
            if flag.len() != 1 {
                return Err(not_one(flag.len()));
            }
            self.check_memory(&entry, &flag.view)
        };
        entry.named(check())?;
        let (word, address) = (flag.access(Mode::Read), flag.view.as_raw());
        let condition = Condition { repeat, word: &word, address };
        let fill =
            |adder: &_| body(&GraphStream(&node_stream(&self.device, Destination::node(Arc::clone(adder)))));
        // SAFETY: the recording keeps the word alive, and the stream that the body gets checks the body's operations.
        unsafe { entry.condition(&condition, fill) }
    }
}

impl GraphBuilder {
    /// Adds a node whose `body` only runs if `flag` is not zero. See [`GraphStream::if_`].
    ///
    /// # Errors
    /// As for [`node`](Self::node) and [`GraphStream::if_`].
    #[track_caller]
    pub fn if_(
        &mut self,
        after: &[Node],
        flag: &impl AsVolatile<u32>,
        body: impl FnOnce(&GraphStream<'_>) -> Result<()>,
    ) -> Result<Node> {
        let operation = call_site("if");
        self.node(after, |s| s.condition(operation, Repeat::Once, flag, body))
    }

    /// Adds a node whose `body` is repeated as long as `flag` is not zero. See [`GraphStream::while_`].
    ///
    /// ```
    /// # let device = gpustream::Device::open("cpu")?;
    /// # let stream = device.stream()?;
    /// let (flag, mut x) = (device.flag()?, stream.zeros::<u32>(4)?);
    /// let mut builder = device.graph_builder()?;
    /// let fill = builder.node(&[], |s| s.fill(&mut x, 1))?;
    /// builder.while_(&[fill], &flag, |s| s.fill(&mut x, 2))?;
    /// let graph = builder.build()?;
    /// graph.launch(&stream)?;
    /// assert_eq!(stream.download(&x)?, [1; 4]);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`node`](Self::node) and [`GraphStream::if_`].
    #[track_caller]
    pub fn while_(
        &mut self,
        after: &[Node],
        flag: &impl AsVolatile<u32>,
        body: impl FnOnce(&GraphStream<'_>) -> Result<()>,
    ) -> Result<Node> {
        let operation = call_site("while");
        self.node(after, |s| s.condition(operation, Repeat::While, flag, body))
    }
}

#[cold]
fn no_conditions(backend: &str) -> Error {
    let message = format!(
        "graphs of this {backend} device cannot have conditions, which CUDA has from 12.4 on; let the host look at the flag \
         between launches, or loop inside a kernel"
    );
    Error::new(ErrorKind::Unsupported, message)
}

#[cold]
fn not_one(len: usize) -> Error {
    let message = format!(
        "a condition must be one `u32`, and this memory has {len} elements; pass a view of one element"
    );
    Error::new(ErrorKind::InvalidArgument, message)
}
