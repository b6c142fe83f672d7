//! Graphs: built node by node or by capture, instantiated, and launched.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use gpustream_hal::{
    self as hal, Conditional, ErrorKind, Fill, GraphNode, GraphSize, GraphUpdate, Graphs, NodePlace,
    RawBuffer, RawGraph, RawGraphExec, RawGraphNode, RawStream, Repeat, Result,
};

use crate::capture::{self, Capture};
use crate::device::CpuDevice;
use crate::error::{error, unsupported};
use crate::launch;
use crate::plan::{self, GraphRun, PlanNode};
use crate::queue::{Mark, Stream};
use crate::sync::lock;
use crate::work::{Strided, Task};

/// A graph that can be edited. Its nodes' handles are their indices.
#[derive(Default)]
struct Graph {
    nodes: Mutex<Vec<Node>>,
}

struct Node {
    kind: NodeKind,
    after: Vec<usize>,
}

enum NodeKind {
    One(plan::NodeTask),
    /// A copy of another graph, with its own child graphs expanded.
    Child(Vec<PlanNode>),
    /// A body, with the address of the word that controls it, and how often it may run. `None` if the node
    /// was not finished.
    Condition(Box<Graph>, Option<(usize, Repeat)>),
}

/// A graph that can be launched.
struct Exec {
    state: Mutex<ExecState>,
}

struct ExecState {
    run: Arc<GraphRun>,
    /// For each node of the graph, its index in the run. `None` for a child graph.
    places: Vec<Option<usize>>,
    /// The last launch. The next one must follow it, whatever stream it is on.
    last: Option<Mark>,
    /// Runs of the same nodes with earlier work, oldest first. Launches of them may be pending.
    former: VecDeque<Arc<GraphRun>>,
}

/// How many earlier runs we keep for reuse, because making one needs memory for all nodes.
const MOST_FORMER: usize = 32;

impl ExecState {
    fn new(plan: Vec<PlanNode>, places: Vec<Option<usize>>) -> Self {
        Self { run: Arc::new(GraphRun::new(plan)), places, last: None, former: VecDeque::new() }
    }

    /// Returns the run to change. Pending launches keep the nodes that they were launched with, so if there
    /// is one, we replace the run with another.
    fn run_to_change(&mut self) -> Option<&mut GraphRun> {
        if Arc::get_mut(&mut self.run).is_none() {
            let oldest = self.former.front_mut().and_then(Arc::get_mut);
            let reused =
                oldest.map(|oldest| oldest.copy_work(&self.run)).and_then(|()| self.former.pop_front());
            let another = reused.unwrap_or_else(|| Arc::new(GraphRun::new(self.run.plan())));
            let former = std::mem::replace(&mut self.run, another);
            if self.former.len() < MOST_FORMER {
                self.former.push_back(former);
            }
        }
        Arc::get_mut(&mut self.run)
    }
}

/// Returns the nodes with child graphs expanded, and the index of each given node among them.
fn flatten(nodes: &[Node]) -> (Vec<PlanNode>, Vec<Option<usize>>) {
    let mut plan: Vec<PlanNode> = Vec::new();
    let mut places = Vec::new();
    // For each node, what a node that depends on it must depend on.
    let mut ends: Vec<Vec<usize>> = Vec::new();
    for node in nodes {
        let mut after: Vec<usize> = node.after.iter().flat_map(|&d| ends[d].iter().copied()).collect();
        after.sort_unstable();
        after.dedup();
        match &node.kind {
            NodeKind::One(kind) => {
                let place = plan.len();
                let mut kind = kind.clone();
                if let plan::NodeTask::Leave { enter, .. } = &mut kind {
                    *enter = ends[*enter][0];
                    if let plan::NodeTask::Enter { leave, .. } = &mut plan[*enter].kind {
                        *leave = place;
                    }
                }
                places.push(matches!(kind, plan::NodeTask::Work(_)).then_some(place));
                ends.push(vec![place]);
                plan.push(PlanNode { kind, after });
            }
            NodeKind::Condition(body, Some((word, repeat))) => {
                let (body, _) = flatten(&lock(&body.nodes));
                places.push(None);
                ends.push(vec![capture::append_condition(&mut plan, body, after, *word, *repeat)]);
            }
            NodeKind::Condition(_, None) => {
                places.push(None);
                ends.push(after);
            }
            NodeKind::Child(child) => {
                let leaves = capture::append(&mut plan, child.clone(), &after);
                places.push(None);
                ends.push(if leaves.is_empty() { after } else { leaves });
            }
        }
    }
    (plan, places)
}

/// Returns a node's work on a device with this many workers.
///
/// # Safety
/// As for [`Graphs::graph_add_node`].
unsafe fn work(work: &hal::Work<'_>, workers: usize) -> Result<Task> {
    Ok(match *work {
        hal::Work::Kernel { function, config, args } => {
            // SAFETY: passed on to the caller.
            Task::Launch(unsafe { launch::prepare(function, config, args, workers as u32) }?)
        }
        hal::Work::Copy(copy) => {
            let (dst, src) = (copy.dst.address().0, copy.src.address().0);
            Task::Copy { direction: copy.direction(), dst, src, bytes: copy.bytes }
        }
        // SAFETY: passed on to the caller.
        hal::Work::Copy3d(copy) => Task::Copy3d(Box::new(unsafe { Strided::new(copy) })),
        hal::Work::Fill(Fill { dst, pattern, count }) => Task::Fill { dst: dst.0, pattern, count },
        hal::Work::Host { function, data } => Task::Host { function, data: data as usize },
        hal::Work::HostParts { function, data, parts } => {
            Task::HostParts { function, data: data as usize, parts }
        }
        _ => return Err(unsupported("this kind of graph node")),
    })
}

/// Returns the indices of the nodes that a new node must follow.
fn dependencies_among(nodes: &[Node], dependencies: &[RawGraphNode]) -> Result<Vec<usize>> {
    if let Some(stranger) = dependencies.iter().find(|d| d.0 >= nodes.len()) {
        return Err(error(
            ErrorKind::InvalidArgument,
            format!("node {} is not in this graph: pass nodes of the same graph", stranger.0),
        ));
    }
    let mut after: Vec<usize> = dependencies.iter().map(|d| d.0).collect();
    after.sort_unstable();
    after.dedup();
    Ok(after)
}

impl CpuDevice {
    /// Returns a stream and the capture that it is in.
    ///
    /// # Safety
    /// The stream is alive.
    unsafe fn capture_of(&self, stream: RawStream) -> Result<(Arc<Stream>, Arc<Capture<Stream>>)> {
        // SAFETY: passed on to the caller.
        let stream = unsafe { self.stream(stream) };
        let capture = stream.capture();
        let capture = capture.ok_or_else(|| {
            error(ErrorKind::Captured, "the stream is not being captured: begin a capture first")
        })?;
        Ok((Arc::clone(&stream), capture))
    }
}

impl Graph {
    /// Returns the graph behind a handle.
    ///
    /// # Safety
    /// The handle is alive.
    unsafe fn borrow<'a>(raw: RawGraph) -> &'a Self {
        // SAFETY: made by `into_raw`, and alive by the caller's promise.
        unsafe { &*(raw.0 as *const Self) }
    }

    fn into_raw(nodes: Vec<Node>) -> RawGraph {
        RawGraph(Box::into_raw(Box::new(Self { nodes: Mutex::new(nodes) })) as usize)
    }
}

impl Exec {
    /// Returns the executable behind a handle.
    ///
    /// # Safety
    /// The handle is alive.
    unsafe fn borrow<'a>(raw: RawGraphExec) -> &'a Self {
        // SAFETY: made in `graph_instantiate`, and alive by the caller's promise.
        unsafe { &*(raw.0 as *const Self) }
    }
}

// SAFETY: a run is the recorded operations in their order, copied when they were recorded.
unsafe impl Graphs for CpuDevice {
    unsafe fn capture_begin(&self, stream: RawStream) -> Result<()> {
        self.shared.alive()?;
        // SAFETY: passed on to the caller.
        let stream = unsafe { self.stream(stream) };
        Capture::begin(&stream)
    }

    unsafe fn capture_end(&self, stream: RawStream) -> Result<RawGraph> {
        // SAFETY: passed on to the caller.
        let stream = unsafe { self.stream(stream) };
        let plan = Capture::end(&stream)?;
        self.shared.alive()?;
        let nodes = plan.into_iter().map(|n| Node { kind: NodeKind::One(n.kind), after: n.after }).collect();
        Ok(Graph::into_raw(nodes))
    }

    unsafe fn is_capturing(&self, stream: RawStream) -> Result<bool> {
        // SAFETY: passed on to the caller.
        let capture = unsafe { self.stream(stream) }.capture();
        capture.map_or(Ok(false), |capture| capture.check().map(|()| true))
    }

    fn graph_create(&self) -> Result<RawGraph> {
        self.shared.alive()?;
        Ok(Graph::into_raw(Vec::new()))
    }

    unsafe fn graph_add_node(
        &self,
        graph: RawGraph,
        dependencies: &[RawGraphNode],
        node: &GraphNode<'_>,
    ) -> Result<RawGraphNode> {
        // SAFETY: passed on to the caller.
        let kind = unsafe {
            match *node {
                // We take this before the graph's own lock, because both may be the same graph.
                GraphNode::Child(child) => NodeKind::Child(flatten(&lock(&Graph::borrow(child).nodes)).0),
                GraphNode::Empty => NodeKind::One(plan::NodeTask::Work(Task::Empty)),
                GraphNode::Work(ref work) => {
                    NodeKind::One(plan::NodeTask::Work(self::work(work, self.shared.options.workers)?))
                }
            }
        };
        // SAFETY: passed on to the caller.
        let mut nodes = lock(unsafe { &Graph::borrow(graph).nodes });
        let after = dependencies_among(&nodes, dependencies)?;
        nodes.push(Node { kind, after });
        Ok(RawGraphNode(nodes.len() - 1))
    }

    unsafe fn conditional_begin(&self, place: NodePlace<'_>, repeat: Repeat) -> Result<Conditional> {
        self.shared.alive()?;
        let body = Box::<Graph>::default();
        let raw = RawGraph(&raw const *body as usize);
        let mut node = 0;
        match place {
            NodePlace::After(graph, _) => {
                // SAFETY: passed on to the caller.
                let mut nodes = lock(unsafe { &Graph::borrow(graph).nodes });
                node = nodes.len();
                nodes.push(Node { kind: NodeKind::Condition(body, None), after: Vec::new() });
            }
            // SAFETY: passed on to the caller.
            NodePlace::EndOf(stream) => unsafe { self.capture_of(stream) }?.1.keep(body)?,
        }
        Ok(Conditional { node: RawGraphNode(node), handle: 0, body: raw, repeat })
    }

    unsafe fn conditional_end(
        &self,
        place: NodePlace<'_>,
        conditional: &Conditional,
        word: RawBuffer,
        _last: RawGraphNode,
    ) -> Result<()> {
        let &Conditional { node, body, repeat, .. } = conditional;
        match place {
            NodePlace::After(graph, dependencies) => {
                // SAFETY: passed on to the caller.
                let mut nodes = lock(unsafe { &Graph::borrow(graph).nodes });
                let after = dependencies_among(&nodes, dependencies)?;
                if let Some(Node { kind: NodeKind::Condition(_, decided), after: before }) =
                    nodes.get_mut(node.0)
                {
                    (*decided, *before) = (Some((word.0, repeat)), after);
                }
                Ok(())
            }
            NodePlace::EndOf(stream) => {
                // SAFETY: passed on to the caller; the capture keeps the body.
                let ((stream, capture), body) = unsafe { (self.capture_of(stream)?, Graph::borrow(body)) };
                capture.record_condition(&stream, flatten(&lock(&body.nodes)).0, word.0, repeat)
            }
        }
    }

    unsafe fn graph_size(&self, graph: RawGraph) -> Result<GraphSize> {
        // SAFETY: passed on to the caller.
        let nodes = lock(unsafe { &Graph::borrow(graph).nodes });
        Ok(GraphSize { nodes: nodes.len(), edges: nodes.iter().map(|node| node.after.len()).sum() })
    }

    unsafe fn graph_destroy(&self, graph: RawGraph) -> Result<()> {
        // SAFETY: made by `into_raw`, and not used again.
        drop(unsafe { Box::from_raw(graph.0 as *mut Graph) });
        Ok(())
    }

    unsafe fn graph_instantiate(&self, graph: RawGraph) -> Result<RawGraphExec> {
        self.shared.alive()?;
        // SAFETY: passed on to the caller.
        let (plan, places) = flatten(&lock(unsafe { &Graph::borrow(graph).nodes }));
        let state = ExecState::new(plan, places);
        Ok(RawGraphExec(Box::into_raw(Box::new(Exec { state: Mutex::new(state) })) as usize))
    }

    unsafe fn graph_launch(&self, exec: RawGraphExec, stream: RawStream) -> Result<()> {
        // SAFETY: passed on to the caller.
        let (exec, stream) = unsafe { (Exec::borrow(exec), self.stream(stream)) };
        let stream: &Arc<Stream> = &stream;
        let mut state = lock(&exec.state);
        if let Some(capture) = stream.capture() {
            return capture.record_graph(stream, state.run.plan());
        }
        if let Some(last) = state.last.take() {
            stream.submit_wait(last)?;
        }
        stream.submit_graph(state.run.clone())?;
        state.last = Some(Mark { stream: stream.clone(), number: stream.mark() });
        Ok(())
    }

    unsafe fn graph_update(&self, exec: RawGraphExec, graph: RawGraph) -> Result<GraphUpdate> {
        // SAFETY: passed on to the caller.
        let (exec, nodes) = unsafe { (Exec::borrow(exec), lock(&Graph::borrow(graph).nodes)) };
        let (plan, places) = flatten(&nodes);
        let mut state = lock(&exec.state);
        let old = state.run.plan();
        let same = old.len() == plan.len()
            && old.iter().zip(&plan).all(|(a, b)| a.after == b.after && a.kind.is_like(&b.kind));
        if !same {
            return Ok(GraphUpdate::TopologyChanged);
        }
        // Pending launches keep the nodes that they were launched with.
        *state = ExecState { last: state.last.take(), ..ExecState::new(plan, places) };
        Ok(GraphUpdate::Updated)
    }

    unsafe fn graph_set_node(
        &self,
        exec: RawGraphExec,
        node: RawGraphNode,
        work: &hal::Work<'_>,
    ) -> Result<()> {
        // SAFETY: passed on to the caller.
        let (exec, work) = unsafe { (Exec::borrow(exec), self::work(work, self.shared.options.workers)?) };
        let mut state = lock(&exec.state);
        let place = state.places.get(node.0).copied().flatten();
        let Some((place, old)) = place.and_then(|place| Some((place, state.run.work(place)?))) else {
            return Err(error(
                ErrorKind::InvalidArgument,
                format!("node {} has no work that could be replaced", node.0),
            ));
        };
        if !old.is_like(&work) {
            return Err(error(
                ErrorKind::InvalidArgument,
                format!(
                    "node {} does another kind of work: you can only replace it by work of the same kind",
                    node.0
                ),
            ));
        }
        if let Some(run) = state.run_to_change() {
            run.set_work(place, work);
        }
        Ok(())
    }

    unsafe fn graph_exec_destroy(&self, exec: RawGraphExec) -> Result<()> {
        // SAFETY: made in `graph_instantiate`, and not used again.
        drop(unsafe { Box::from_raw(exec.0 as *mut Exec) });
        Ok(())
    }
}
