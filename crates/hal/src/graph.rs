//! Graphs: work recorded once and launched many times.
//!
//! Every method answers `Unsupported` until a backend overrides it.

use crate::{Error, RawStream, Result, Work};

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

fn none<T>() -> Result<T> {
    Err(Error::unsupported("a graph"))
}

/// Capturing, building and launching graphs.
///
/// # Safety
/// An implementor promises that a launch runs the work that was captured or added and no other, each operation after
/// those that it was said to follow, and in its stream's order; that runs of one executable follow each other; that
/// handles stay valid until they are destroyed; and that a call that fails leaves graph and executable as they were.
#[expect(unused_variables, reason = "the names in the defaults are documentation")]
pub unsafe trait Graphs {
    /// Begins a capture: from here on work submitted to `stream` is recorded instead of run (`cuStreamBeginCapture`).
    ///
    /// The capture is in relaxed mode: the other modes forbid the thread calls that have nothing to do with the
    /// capture, such as those that a dropped buffer makes, and making another graph. The caller refuses what may not be
    /// captured.
    ///
    /// # Safety
    /// `stream` is alive and not being captured.
    unsafe fn capture_begin(&self, stream: RawStream) -> Result<()> {
        none()
    }

    /// Ends the recording (`cuStreamEndCapture`).
    ///
    /// # Safety
    /// `stream` is being captured, on this thread.
    unsafe fn capture_end(&self, stream: RawStream) -> Result<RawGraph> {
        none()
    }

    /// Makes a stream usable again after [`capture_end`](Self::capture_end) failed on it, and with it the streams
    /// that had joined. Most drivers need nothing; ROCm 6 leaves such streams in the middle of the recording.
    ///
    /// # Safety
    /// `stream` is alive; the last recording that began on it was ended, without success, on this thread.
    unsafe fn capture_abandon(&self, stream: RawStream) -> Result<()> {
        Ok(())
    }

    /// Returns whether `stream` is being recorded (`cuStreamIsCapturing`). An invalidated recording is an error.
    ///
    /// # Safety
    /// `stream` is alive.
    unsafe fn is_capturing(&self, stream: RawStream) -> Result<bool> {
        Ok(false)
    }

    /// Makes an empty graph (`cuGraphCreate`).
    fn graph_create(&self) -> Result<RawGraph> {
        none()
    }

    /// Adds a node that waits for `dependencies` (`cuGraphAddKernelNode` and its kin).
    ///
    /// # Safety
    /// All handles are alive and of this device; what a node refers to outlives every launch.
    unsafe fn graph_add_node(
        &self,
        graph: RawGraph,
        dependencies: &[RawGraphNode],
        node: &GraphNode<'_>,
    ) -> Result<RawGraphNode> {
        none()
    }

    /// Returns the numbers of nodes and edges (`cuGraphGetNodes`, `cuGraphGetEdges`).
    ///
    /// # Safety
    /// `graph` is alive.
    unsafe fn graph_size(&self, graph: RawGraph) -> Result<GraphSize> {
        none()
    }

    /// Destroys a graph; executables made from it live on (`cuGraphDestroy`).
    ///
    /// # Safety
    /// `graph` is not used again.
    unsafe fn graph_destroy(&self, graph: RawGraph) -> Result<()> {
        none()
    }

    /// Makes a graph launchable (`cuGraphInstantiate`).
    ///
    /// # Safety
    /// `graph` is alive.
    unsafe fn graph_instantiate(&self, graph: RawGraph) -> Result<RawGraphExec> {
        none()
    }

    /// Enqueues one run (`cuGraphLaunch`). Runs of one executable follow each other.
    ///
    /// # Safety
    /// Both are alive, and so is everything that the graph refers to.
    unsafe fn graph_launch(&self, exec: RawGraphExec, stream: RawStream) -> Result<()> {
        none()
    }

    /// Prepares the first launch (`cuGraphUpload`). Succeeds without effect where there is nothing to prepare.
    ///
    /// # Safety
    /// Both are alive.
    unsafe fn graph_upload(&self, exec: RawGraphExec, stream: RawStream) -> Result<()> {
        Ok(())
    }

    /// Replaces what `exec` runs by `graph`, if the topology allows (`cuGraphExecUpdate`).
    ///
    /// # Safety
    /// Both are alive.
    unsafe fn graph_update(&self, exec: RawGraphExec, graph: RawGraph) -> Result<GraphUpdate> {
        none()
    }

    /// Replaces one node's work by other work of the same kind (`cuGraphExecKernelNodeSetParams` and its kin).
    ///
    /// # Safety
    /// `node` is of the graph that `exec` was made from; otherwise as for [`graph_add_node`](Self::graph_add_node).
    unsafe fn graph_set_node(&self, exec: RawGraphExec, node: RawGraphNode, work: &Work<'_>) -> Result<()> {
        none()
    }

    /// Destroys an executable (`cuGraphExecDestroy`).
    ///
    /// # Safety
    /// No run of `exec` is pending.
    unsafe fn graph_exec_destroy(&self, exec: RawGraphExec) -> Result<()> {
        none()
    }
}
