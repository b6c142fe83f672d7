//! Graphs: work recorded once and launched many times.
//!
//! A backend without graphs overrides nothing. The defaults return `Unsupported`, or do nothing if there is nothing to do.

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

/// How large a graph is.
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
    /// A node without work. You can use it to join dependencies.
    Empty,
    /// An operation that [can be a node](Work::is_node).
    Work(Work<'a>),
    /// Another graph, which is copied in.
    Child(RawGraph),
}

/// Where to put a new node.
#[derive(Clone, Copy, Debug)]
pub enum NodePlace<'a> {
    /// In this graph, after these nodes.
    After(RawGraph, &'a [RawGraphNode]),
    /// In the graph that the stream is being captured into, after everything that the stream has been given so far.
    EndOf(RawStream),
}

/// How often a conditional node runs its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// Once, if the word is not zero.
    Once,
    /// As long as the word is not zero. The node looks at it before each run.
    While,
}

/// A conditional node under construction.
#[derive(Clone, Copy, Debug)]
pub struct Conditional {
    /// The node (`CUgraphNode`).
    pub node: RawGraphNode,
    /// The driver's name of the condition (`CUgraphConditionalHandle`).
    pub handle: u64,
    /// The body, for you to fill with kernels, copies, fills and conditional nodes. It belongs to the node's graph.
    pub body: RawGraph,
    /// How often the body runs.
    pub repeat: Repeat,
}

/// A node of an executable. If the backend has described its kernel launch, we keep that description as the driver reads it.
#[derive(Clone, Copy, Debug)]
pub struct DriverNode {
    /// The node (`CUgraphNode`).
    pub raw: RawGraphNode,
    /// True if the value of an argument has changed since the node was set. Only described nodes use this.
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
        // SAFETY: the assertion shows that `launch` fits and that its address is aligned for it.
        unsafe { room.as_mut_ptr().cast::<L>().write(launch) };
        Self { raw, stale: false, launch: Some(room) }
    }

    /// Returns true if the backend has described the node.
    pub const fn is_described(&self) -> bool {
        self.launch.is_some()
    }

    /// If the node is stale, returns the description that you passed to [`described`](Self::described), and marks the node
    /// as set.
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
/// If you implement this, you promise:
/// * A launch runs exactly the work that was captured or added. Each operation runs after those that it was told to follow, and
///   in its stream's order.
/// * Runs of one executable follow each other.
/// * Handles stay valid until they are destroyed.
/// * If a call fails, graph and executable stay as they were, unless the call's documentation says otherwise.
#[expect(unused_variables, reason = "the names in the defaults are documentation")]
pub unsafe trait Graphs {
    /// Begins a capture: from now on, work that you submit to `stream` is recorded instead of run (`cuStreamBeginCapture`).
    ///
    /// The capture is in relaxed mode. The other modes would forbid the thread calls that have nothing to do with the
    /// capture, for example the calls of a dropped buffer, or making another graph. The caller must refuse what must not be
    /// captured.
    ///
    /// # Errors
    /// [`Captured`](crate::ErrorKind::Captured) if the stream cannot be captured, such as the legacy default stream;
    /// otherwise as for [`graph_create`](Self::graph_create).
    ///
    /// # Safety
    /// `stream` is alive and not being captured.
    unsafe fn capture_begin(&self, stream: RawStream) -> Result<()> {
        none()
    }

    /// Ends the recording (`cuStreamEndCapture`).
    ///
    /// # Errors
    /// [`Captured`](crate::ErrorKind::Captured) if an earlier call broke the capture, or if a stream joined and its work was
    /// not joined back; otherwise the driver's failure.
    ///
    /// # Safety
    /// `stream` is being captured, on this thread.
    unsafe fn capture_end(&self, stream: RawStream) -> Result<RawGraph> {
        none()
    }

    /// Makes a stream usable again if [`capture_end`](Self::capture_end) failed on it, together with the streams that had
    /// joined. You need this because ROCm 6 leaves such streams in the middle of the recording; other drivers need nothing.
    ///
    /// # Errors
    /// The driver's failure.
    ///
    /// # Safety
    /// `stream` is alive; the last recording that began on it was ended, without success, on this thread.
    unsafe fn capture_abandon(&self, stream: RawStream) -> Result<()> {
        Ok(())
    }

    /// Returns true if `stream` is being recorded (`cuStreamIsCapturing`). If the recording is invalid, that is an error.
    ///
    /// # Errors
    /// [`Captured`](crate::ErrorKind::Captured) if an earlier call broke the capture; otherwise the driver's failure.
    ///
    /// # Safety
    /// `stream` is alive.
    unsafe fn is_capturing(&self, stream: RawStream) -> Result<bool> {
        Ok(false)
    }

    /// Makes an empty graph (`cuGraphCreate`).
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the backend or the driver has no graphs; otherwise the driver's
    /// failure.
    fn graph_create(&self) -> Result<RawGraph> {
        none()
    }

    /// Adds a node that waits for `dependencies` (`cuGraphAddKernelNode` and similar functions).
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the work [cannot be a node](Work::is_node); for a kernel, those of
    /// [`launch`](crate::Launch::launch); otherwise as for [`graph_create`](Self::graph_create).
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

    /// Begins a conditional node (`cuGraphConditionalHandleCreate`, `cuGraphAddNode`). Until you call
    /// [`conditional_end`](Self::conditional_end), the node never runs its body.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if [`DeviceFeatures::conditional_nodes`](crate::DeviceInfo) says no;
    /// otherwise the driver's failure, for example because the stream's capture has failed.
    ///
    /// # Safety
    /// The graph or stream is alive and of this device, and the stream is being captured, on this thread.
    unsafe fn conditional_begin(&self, place: NodePlace<'_>, repeat: Repeat) -> Result<Conditional> {
        no_conditions()
    }

    /// Puts a conditional node in its place and tells it which word decides: an aligned `u32`. `last` must be the only node
    /// of the body that no other node follows. If this fails on a captured stream, you must not launch the graph.
    ///
    /// # Errors
    /// As for [`conditional_begin`](Self::conditional_begin); if a kernel sets the condition, also those of loading and
    /// launching it; [`Captured`](crate::ErrorKind::Captured) if the driver does not tell us the end of the stream.
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

    /// Destroys a graph (`cuGraphDestroy`). Executables that you made from it live on.
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
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory) if there is no room; otherwise as for
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
    /// [`Captured`](crate::ErrorKind::Captured) if the stream's capture has failed; otherwise as for
    /// [`graph_create`](Self::graph_create).
    ///
    /// # Safety
    /// Both are alive, and so is everything that the graph refers to.
    unsafe fn graph_launch(&self, exec: RawGraphExec, stream: RawStream) -> Result<()> {
        none()
    }

    /// Prepares the first launch (`cuGraphUpload`). Does nothing if there is nothing to prepare.
    ///
    /// # Errors
    /// The driver's failure.
    ///
    /// # Safety
    /// Both are alive.
    unsafe fn graph_upload(&self, exec: RawGraphExec, stream: RawStream) -> Result<()> {
        Ok(())
    }

    /// Returns true if [`graph_update`](Self::graph_update) compares the number and the kinds of nodes, but not their
    /// dependencies. If the dependencies differ, it still succeeds, and `exec` keeps the old ones. `hipGraphExecUpdate` does
    /// that in all versions that we have read.
    fn update_ignores_edges(&self) -> bool {
        false
    }

    /// Replaces what `exec` runs with `graph`, if the topology allows it (`cuGraphExecUpdate`).
    ///
    /// # Errors
    /// As for [`graph_create`](Self::graph_create).
    ///
    /// # Safety
    /// Both are alive. If [`update_ignores_edges`](Self::update_ignores_edges) says so, their dependencies are the same.
    unsafe fn graph_update(&self, exec: RawGraphExec, graph: RawGraph) -> Result<GraphUpdate> {
        none()
    }

    /// Replaces the work of one node by other work of the same kind (`cuGraphExecKernelNodeSetParams` and so on).
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) or [`InvalidLaunch`](crate::ErrorKind::InvalidLaunch) if the
    /// node cannot have this work; otherwise as for [`graph_add_node`](Self::graph_add_node).
    ///
    /// # Safety
    /// `node` is of the graph that `exec` was made from; otherwise as for [`graph_add_node`](Self::graph_add_node).
    unsafe fn graph_set_node(&self, exec: RawGraphExec, node: RawGraphNode, work: &Work<'_>) -> Result<()> {
        none()
    }

    /// Describes a node for [`graph_set_values`](Self::graph_set_values), if it is a kernel and the driver can set kernels
    /// with one call. The description points to the array of argument addresses.
    fn describe_node(&self, node: RawGraphNode, work: &Work<'_>) -> DriverNode {
        DriverNode::new(node)
    }

    /// Sets the stale ones among `nodes`, and returns how many it set. Their new values are in the arguments that their
    /// descriptions point to. If this fails, some of the nodes may have been set. Backends should call their driver from the
    /// loop itself, because each function around a driver call costs time.
    ///
    /// # Errors
    /// As for [`graph_set_node`](Self::graph_set_node).
    ///
    /// # Safety
    /// This device described the nodes, they have had the same work since, and the work's arguments are alive; otherwise as
    /// for [`graph_set_node`](Self::graph_set_node).
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
