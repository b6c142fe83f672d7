//! Graphs: work recorded once and launched many times.
//!
//! Every method answers `Unsupported` until a backend overrides it.

use std::mem::MaybeUninit;

use crate::{Error, RawBuffer, RawStream, Result, Work};

pub use crate::handle::{RawGraph, RawGraphExec, RawGraphNode};

/// The outcome of an attempt to put a new recording into an existing executable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GraphUpdate {
    /// The executable now runs the new recording.
    Updated,
    /// The topology differs: instantiate again.
    TopologyChanged,
}

/// The size of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphSize {
    /// Number of nodes.
    pub nodes: usize,
    /// Number of dependencies between nodes.
    pub edges: usize,
}

/// A node of a graph.
#[derive(Clone, Copy, Debug)]
pub enum GraphNode<'a> {
    /// A node without work, which joins dependencies.
    Empty,
    /// An operation, which [can be a node](Work::is_node).
    Work(Work<'a>),
    /// Another graph, copied in.
    Child(RawGraph),
}

/// The place of a new node.
#[derive(Clone, Copy, Debug)]
pub enum NodePlace<'a> {
    /// In a graph, behind these nodes of the graph.
    After(RawGraph, &'a [RawGraphNode]),
    /// In the graph that the stream is captured into, behind all that the stream was given.
    EndOf(RawStream),
}

/// The number of times that a conditional node runs its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// Once, if the word is not zero.
    Once,
    /// As long as the word is not zero, which is looked at before each run.
    While,
}

/// A conditional node under construction.
#[derive(Clone, Copy, Debug)]
pub struct Conditional {
    /// The node (`CUgraphNode`).
    pub node: RawGraphNode,
    /// The driver's name of the condition (`CUgraphConditionalHandle`).
    pub handle: u64,
    /// The body, to be filled. It belongs to the node's graph, and holds kernels, copies, fills and conditional nodes.
    pub body: RawGraph,
    /// The number of times that the body runs.
    pub repeat: Repeat,
}

/// A node of an executable, and its kernel's launch as the driver reads it, where the backend has described that.
#[derive(Clone, Copy, Debug)]
pub struct DriverNode {
    /// The node (`CUgraphNode`).
    pub raw: RawGraphNode,
    /// Whether an argument's value has changed since the node was set. Nobody looks at this in a node that is not described.
    pub stale: bool,
    launch: Option<DriverLaunch>,
}

/// Room for a driver's description of a launch: `CUDA_KERNEL_NODE_PARAMS`, `hipKernelNodeParams`.
type DriverLaunch = [MaybeUninit<usize>; 9];

impl DriverNode {
    /// Makes a node that the backend has not described.
    pub const fn new(raw: RawGraphNode) -> Self {
        Self { raw, stale: false, launch: None }
    }

    /// Makes a node with its kernel's launch as the driver reads it.
    pub fn described<L: Copy>(raw: RawGraphNode, launch: L) -> Self {
        const {
            assert!(size_of::<L>() <= size_of::<DriverLaunch>() && align_of::<L>() <= align_of::<usize>());
        }
        let mut room = [MaybeUninit::uninit(); 9];
        // SAFETY: by the assertion there is room for `launch`, which then lies aligned.
        unsafe { room.as_mut_ptr().cast::<L>().write(launch) };
        Self { raw, stale: false, launch: Some(room) }
    }

    /// Returns whether the backend has described the node.
    pub const fn is_described(&self) -> bool {
        self.launch.is_some()
    }

    /// Returns the description that [`described`](Self::described) was called with, if the node is stale, and takes the node
    /// for set.
    #[inline]
    pub fn take_stale<L>(&mut self) -> Option<*const L> {
        if !std::mem::take(&mut self.stale) {
            return None;
        }
        self.launch.as_ref().map(|launch| launch.as_ptr().cast())
    }
}

fn none<T>() -> Result<T> {
    Err(Error::unsupported("a graph"))
}

fn no_conditions<T>() -> Result<T> {
    Err(Error::unsupported("a conditional node of a graph"))
}

/// Capturing, building and launching graphs.
///
/// # Safety
/// An implementor promises that a launch runs the work that was captured or added and no other, each operation after
/// those that it was said to follow, and in its stream's order; that runs of one executable follow each other; that
/// handles stay valid until they are destroyed; and that a call that fails leaves graph and executable as they were, unless
/// the call says otherwise.
#[expect(unused_variables, reason = "the names in the defaults are documentation")]
pub unsafe trait Graphs {
    /// Begins a capture: from here on work submitted to `stream` is recorded instead of run (`cuStreamBeginCapture`).
    ///
    /// The capture is in relaxed mode: the other modes forbid the thread calls that have nothing to do with the
    /// capture, such as those that a dropped buffer makes, and making another graph. The caller refuses what may not be
    /// captured.
    ///
    /// # Errors
    /// [`Captured`](crate::ErrorKind::Captured) for a stream that cannot be captured, such as the legacy default
    /// stream; else as for [`graph_create`](Self::graph_create).
    ///
    /// # Safety
    /// `stream` is alive and not being captured.
    unsafe fn capture_begin(&self, stream: RawStream) -> Result<()> {
        none()
    }

    /// Ends the recording (`cuStreamEndCapture`).
    ///
    /// # Errors
    /// [`Captured`](crate::ErrorKind::Captured) where an earlier call broke the capture, or work of a stream that
    /// joined was not joined back; else the driver's failure.
    ///
    /// # Safety
    /// `stream` is being captured, on this thread.
    unsafe fn capture_end(&self, stream: RawStream) -> Result<RawGraph> {
        none()
    }

    /// Makes a stream usable again after [`capture_end`](Self::capture_end) failed on it, and with it the streams
    /// that had joined. Most drivers need nothing; ROCm 6 leaves such streams in the middle of the recording.
    ///
    /// # Errors
    /// The driver's failure.
    ///
    /// # Safety
    /// `stream` is alive; the last recording that began on it was ended, without success, on this thread.
    unsafe fn capture_abandon(&self, stream: RawStream) -> Result<()> {
        Ok(())
    }

    /// Returns whether `stream` is being recorded (`cuStreamIsCapturing`). An invalidated recording is an error.
    ///
    /// # Errors
    /// [`Captured`](crate::ErrorKind::Captured) where an earlier call broke the capture; else the driver's failure.
    ///
    /// # Safety
    /// `stream` is alive.
    unsafe fn is_capturing(&self, stream: RawStream) -> Result<bool> {
        Ok(false)
    }

    /// Makes an empty graph (`cuGraphCreate`).
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) where the backend or the driver has no graphs; else the driver's
    /// failure.
    fn graph_create(&self) -> Result<RawGraph> {
        none()
    }

    /// Adds a node that waits for `dependencies` (`cuGraphAddKernelNode` and its kin).
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for work that [is no node](Work::is_node); for a kernel those of
    /// [`launch`](crate::Launch::launch); else as for [`graph_create`](Self::graph_create).
    ///
    /// # Safety
    /// All handles are alive and of this device; everything that a node refers to outlives every launch.
    unsafe fn graph_add_node(
        &self,
        graph: RawGraph,
        dependencies: &[RawGraphNode],
        node: &GraphNode<'_>,
    ) -> Result<RawGraphNode> {
        none()
    }

    /// Begins a conditional node (`cuGraphConditionalHandleCreate`, `cuGraphAddNode`). Until
    /// [`conditional_end`](Self::conditional_end) the node never runs its body, also where that call never comes.
    /// `Unsupported` where [`DeviceFeatures::conditional_nodes`](crate::DeviceInfo) says no.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) as said above; else the driver's failure, also where the stream's
    /// capture has failed.
    ///
    /// # Safety
    /// The graph or stream is alive and of this device, and the stream is being captured, on this thread.
    unsafe fn conditional_begin(&self, place: NodePlace<'_>, repeat: Repeat) -> Result<Conditional> {
        no_conditions()
    }

    /// Gives a conditional node its place and the word that decides: an aligned `u32`. `last` is the one node of the body
    /// that no other node of the body follows. If this fails, a captured stream's graph must not be launched.
    ///
    /// # Errors
    /// As for [`conditional_begin`](Self::conditional_begin); where a kernel sets the condition, those of its load and
    /// launch; [`Captured`](crate::ErrorKind::Captured) where the driver does not name the end of the stream.
    ///
    /// # Safety
    /// As for [`conditional_begin`](Self::conditional_begin), which made `conditional` in this graph or capture; all
    /// nodes are alive, and the word and everything that the body refers to outlive every launch.
    unsafe fn conditional_end(
        &self,
        place: NodePlace<'_>,
        conditional: &Conditional,
        word: RawBuffer,
        last: RawGraphNode,
    ) -> Result<()> {
        no_conditions()
    }

    /// Returns the numbers of nodes and edges (`cuGraphGetNodes`, `cuGraphGetEdges`).
    ///
    /// # Errors
    /// As for [`graph_create`](Self::graph_create).
    ///
    /// # Safety
    /// `graph` is alive.
    unsafe fn graph_size(&self, graph: RawGraph) -> Result<GraphSize> {
        none()
    }

    /// Destroys a graph; executables made from it live on (`cuGraphDestroy`).
    ///
    /// # Errors
    /// As for [`graph_create`](Self::graph_create).
    ///
    /// # Safety
    /// `graph` is not used again.
    unsafe fn graph_destroy(&self, graph: RawGraph) -> Result<()> {
        none()
    }

    /// Makes a graph launchable (`cuGraphInstantiate`).
    ///
    /// # Errors
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory) where there is no room; else as for
    /// [`graph_create`](Self::graph_create).
    ///
    /// # Safety
    /// `graph` is alive.
    unsafe fn graph_instantiate(&self, graph: RawGraph) -> Result<RawGraphExec> {
        none()
    }

    /// Enqueues one run (`cuGraphLaunch`). Runs of one executable follow each other.
    ///
    /// # Errors
    /// [`Captured`](crate::ErrorKind::Captured) where the stream's capture has failed; else as for
    /// [`graph_create`](Self::graph_create).
    ///
    /// # Safety
    /// Both are alive, and so is everything that the graph refers to.
    unsafe fn graph_launch(&self, exec: RawGraphExec, stream: RawStream) -> Result<()> {
        none()
    }

    /// Prepares the first launch (`cuGraphUpload`). Succeeds without effect where there is nothing to prepare.
    ///
    /// # Errors
    /// The driver's failure.
    ///
    /// # Safety
    /// Both are alive.
    unsafe fn graph_upload(&self, exec: RawGraphExec, stream: RawStream) -> Result<()> {
        Ok(())
    }

    /// Whether [`graph_update`](Self::graph_update) compares the numbers and kinds of the nodes, and not their dependencies. Then
    /// it succeeds where these differ, and leaves `exec` with the former ones. So does `hipGraphExecUpdate` in all versions
    /// whose sources were read.
    fn update_ignores_edges(&self) -> bool {
        false
    }

    /// Replaces what `exec` runs by `graph`, if the topology allows (`cuGraphExecUpdate`).
    ///
    /// # Errors
    /// As for [`graph_create`](Self::graph_create).
    ///
    /// # Safety
    /// Both are alive. If [`update_ignores_edges`](Self::update_ignores_edges) says so, their dependencies are the same.
    unsafe fn graph_update(&self, exec: RawGraphExec, graph: RawGraph) -> Result<GraphUpdate> {
        none()
    }

    /// Replaces one node's work by other work of the same kind (`cuGraphExecKernelNodeSetParams` and its kin).
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument), or [`InvalidLaunch`](crate::ErrorKind::InvalidLaunch)
    /// where the node cannot have the work; else as for [`graph_add_node`](Self::graph_add_node).
    ///
    /// # Safety
    /// `node` is of the graph that `exec` was made from; otherwise as for [`graph_add_node`](Self::graph_add_node).
    unsafe fn graph_set_node(&self, exec: RawGraphExec, node: RawGraphNode, work: &Work<'_>) -> Result<()> {
        none()
    }

    /// Describes a node for [`graph_set_values`](Self::graph_set_values), if it is a kernel and the driver sets kernels by one
    /// call. The description refers to the array of the arguments' addresses.
    fn describe_node(&self, node: RawGraphNode, work: &Work<'_>) -> DriverNode {
        DriverNode::new(node)
    }

    /// Sets those of `nodes` that are stale, from the arguments that their descriptions refer to, and returns their number.
    /// Where it fails, some of them may be set. Backends call their driver from the loop itself, since each function around a
    /// driver's call takes time.
    ///
    /// # Errors
    /// As for [`graph_set_node`](Self::graph_set_node).
    ///
    /// # Safety
    /// The nodes were described by this device, with work that they have had since, and whose arguments are alive; otherwise
    /// as for [`graph_set_node`](Self::graph_set_node).
    unsafe fn graph_set_values(&self, exec: RawGraphExec, nodes: &mut [DriverNode]) -> Result<u64> {
        Ok(0)
    }

    /// Destroys an executable (`cuGraphExecDestroy`).
    ///
    /// # Errors
    /// As for [`graph_create`](Self::graph_create).
    ///
    /// # Safety
    /// No run of `exec` is pending.
    unsafe fn graph_exec_destroy(&self, exec: RawGraphExec) -> Result<()> {
        none()
    }
}
