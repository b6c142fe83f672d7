//! Graphs that decide for themselves: conditional nodes.

use std::sync::Arc;

use gpustream_core::operation::call_site;
use gpustream_core::record::Condition;
use gpustream_core::stream::Destination;
use gpustream_core::track::Mode;
use gpustream_hal::{CallSite, Error, ErrorKind, Repeat, Result};

use crate::graph_builder::{GraphBuilder, Node, node_stream};
use crate::stream::Stream;
use crate::volatile::AsVolatile;

impl Stream {
    /// Records work that the graph does only if `flag` is not zero when a run gets there. On a stream that is being
    /// [captured](Self::capture), on the stream of a [node](GraphBuilder::node), and on that of another body.
    ///
    /// The stream given to `body` stands for the body, which runs in the stream's order. `flag` is one `u32`: a
    /// [`Flag`](crate::Flag), which kernels and the host set at any time, or memory that earlier work of the graph writes,
    /// which is ordered as usual. Conditions nest up to 64 levels deep.
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
    /// [`ErrorKind::Unsupported`] where [`DeviceInfo::conditional_nodes`](gpustream_hal::DeviceInfo) says no: on HIP, and
    /// before CUDA 12.4. [`ErrorKind::InvalidArgument`] on a stream that is not recorded, for memory of other than one
    /// element, and for a condition inside 64 others. [`ErrorKind::NotANode`] for an empty body, for work that no node can be, and for host closures in
    /// the body. [`ErrorKind::Captured`] for work on the captured streams around the body while the body is made. [`ErrorKind::DeviceMismatch`] for memory that
    /// the device cannot reach. The error of `body`; the graph is then without the condition.
    #[track_caller]
    pub fn if_(&self, flag: &impl AsVolatile<u32>, body: impl FnOnce(&Self) -> Result<()>) -> Result<()> {
        self.condition(call_site("if"), Repeat::Once, flag, body)
    }

    /// Records work that the graph does again and again, as long as `flag` is not zero, which is looked at before each
    /// time. Otherwise as [`if_`](Self::if_).
    ///
    /// The body, or the host by [`Flag::set`](crate::Flag::set), has to end the loop: a loop that nobody ends is like a
    /// kernel that spins for ever. A body that writes `flag` takes a `Flag`, which it can be given by reference. Memory that
    /// the body allocates and drops has unspecified contents in each round.
    ///
    /// On CUDA each round costs a microsecond or two beside the work, for the kernel of a thread that looks at the flag;
    /// the first condition in a process also has the driver compile that kernel, for a tenth of a second.
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
    pub fn while_(&self, flag: &impl AsVolatile<u32>, body: impl FnOnce(&Self) -> Result<()>) -> Result<()> {
        self.condition(call_site("while"), Repeat::While, flag, body)
    }

    fn condition(
        &self,
        operation: CallSite,
        repeat: Repeat,
        flag: &impl AsVolatile<u32>,
        body: impl FnOnce(&Self) -> Result<()>,
    ) -> Result<()> {
        let flag = flag.volatile();
        let entry = self.enter(operation)?;
        let check = || {
            let info = self.device.info();
            if !info.conditional_nodes {
                return Err(no_conditions(info.backend));
            }
            if flag.len() != 1 {
                return Err(not_one(flag.len()));
            }
            self.check_memory(&entry, &flag.view)
        };
        entry.named(check())?;
        let (word, address) = (flag.access(Mode::Read), flag.view.as_raw());
        let condition = Condition { repeat, word: &word, address };
        let fill = |adder: &_| body(&node_stream(&self.device, Destination::node(Arc::clone(adder))));
        // SAFETY: the recording keeps the word alive; the stream given to the body checks the body's operations.
        unsafe { entry.condition(&condition, fill) }
    }
}

impl GraphBuilder {
    /// Adds a node whose `body` runs only if `flag` is not zero; [`Stream::if_`] says how.
    ///
    /// # Errors
    /// As for [`node`](Self::node) and [`Stream::if_`].
    #[track_caller]
    pub fn if_(
        &mut self,
        after: &[Node],
        flag: &impl AsVolatile<u32>,
        body: impl FnOnce(&Stream) -> Result<()>,
    ) -> Result<Node> {
        let operation = call_site("if");
        self.node(after, |s| s.condition(operation, Repeat::Once, flag, body))
    }

    /// Adds a node whose `body` runs as long as `flag` is not zero; [`Stream::while_`] says how.
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
    /// As for [`node`](Self::node) and [`Stream::if_`].
    #[track_caller]
    pub fn while_(
        &mut self,
        after: &[Node],
        flag: &impl AsVolatile<u32>,
        body: impl FnOnce(&Stream) -> Result<()>,
    ) -> Result<Node> {
        let operation = call_site("while");
        self.node(after, |s| s.condition(operation, Repeat::While, flag, body))
    }
}

#[cold]
fn no_conditions(backend: &str) -> Error {
    let message = format!(
        "graphs of this {backend} device have no conditions, which CUDA has from 12.4 on; let the host look at the flag \
         between launches, or loop inside a kernel"
    );
    Error::new(ErrorKind::Unsupported, message)
}

#[cold]
fn not_one(len: usize) -> Error {
    let message =
        format!("a condition is one `u32`, and this memory has {len} elements; give it a view of one");
    Error::new(ErrorKind::InvalidArgument, message)
}
