//! A graph that is ready to run: nodes with their work. Only one run of them is in progress at a time.
//!
//! A node begins when its last dependency is done. If several nodes become ready together, they are queued
//! for different workers, so independent nodes run at the same time. The body of a conditional node is
//! between two nodes, and the first of them decides whether it runs.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use gpustream_hal::trace::now;

use crate::job::Job;
use crate::memory_waits;
use crate::recorder::Numbered;
use crate::shared::{Shared, Worker};
use crate::sync::lock;
use crate::work::Task;
use crate::worker::Runnable;

/// A node and its place in the order.
#[derive(Clone)]
pub(crate) struct PlanNode {
    pub(crate) kind: NodeTask,
    /// The indices of the nodes before this one. All are smaller than its own.
    pub(crate) after: Vec<usize>,
}

/// What a node does.
#[derive(Clone)]
pub(crate) enum NodeTask {
    Work(Task),
    /// Decides, by the `u32` at address `word`, whether the nodes up to `leave` run. All of these follow this
    /// node.
    Enter {
        word: usize,
        leave: usize,
    },
    /// Ends the nodes after `enter`, and goes back to `enter` if the loop may continue. All nodes in between
    /// must come before this one.
    Leave {
        enter: usize,
        again: bool,
    },
}

impl NodeTask {
    /// Shifts the node's references to other nodes by `base`.
    pub(crate) fn moved(mut self, base: usize) -> Self {
        match &mut self {
            Self::Work(_) => {}
            Self::Enter { leave: other, .. } | Self::Leave { enter: other, .. } => *other += base,
        }
        self
    }

    /// Returns true if one can replace the other in an executable.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Work(a), Self::Work(b)) => a.is_like(b),
            (Self::Enter { leave: a, .. }, Self::Enter { leave: b, .. }) => a == b,
            (Self::Leave { enter: a, again: x }, Self::Leave { enter: b, again: y }) => (a, x) == (b, y),
            _ => false,
        }
    }
}

/// A graph's nodes and the state of its run. Runs of one executable follow each other, so one state is
/// enough.
pub(crate) struct GraphRun {
    nodes: Vec<RunNode>,
    /// The nodes without dependencies.
    roots: Vec<usize>,
    /// How many nodes have no successor. When the last of these is done, all nodes are.
    ends: usize,
    /// How many of those are not done.
    left: AtomicUsize,
    launch: Mutex<Option<Launched>>,
    /// True if the launch has a number. It only changes between runs.
    is_traced: AtomicBool,
}

/// The launch that a run is for.
struct Launched {
    /// The stream that waits for the run.
    stream: Arc<dyn Launcher>,
    operation: Option<Arc<Numbered>>,
}

/// A stream that has launched a graph and waits for its last node.
pub(crate) trait Launcher: Send + Sync {
    /// Returns the queue level for tasks of this stream.
    fn level(&self) -> usize;

    /// Continues, because the last node is done.
    fn graph_done(self: Arc<Self>);
}

struct RunNode {
    plan: PlanNode,
    before: Vec<usize>,
    /// How many dependencies are not done. Unused if there is only one.
    pending: AtomicU32,
    /// When the node began, in traced runs.
    start: AtomicU64,
    job: Job,
}

impl GraphRun {
    pub(crate) fn new(plan: Vec<PlanNode>) -> Self {
        let mut before = vec![Vec::new(); plan.len()];
        for (index, node) in plan.iter().enumerate() {
            for &dependency in &node.after {
                before[dependency].push(index);
            }
        }
        let ends = before.iter().filter(|before| before.is_empty()).count();
        let roots = (0..plan.len()).filter(|&index| plan[index].after.is_empty()).collect();
        let nodes = plan
            .into_iter()
            .zip(before)
            .map(|(plan, before)| RunNode {
                plan,
                before,
                pending: AtomicU32::new(0),
                start: AtomicU64::new(0),
                job: Job::new(u32::MAX),
            })
            .collect();
        let (left, launch) = (AtomicUsize::new(0), Mutex::default());
        Self { nodes, roots, ends, left, launch, is_traced: AtomicBool::new(false) }
    }

    /// Returns the nodes, in an order that respects their dependencies.
    pub(crate) fn plan(&self) -> Vec<PlanNode> {
        self.nodes.iter().map(|node| node.plan.clone()).collect()
    }

    /// Returns a node's work.
    pub(crate) fn work(&self, node: usize) -> Option<&Task> {
        match &self.nodes.get(node)?.plan.kind {
            NodeTask::Work(work) => Some(work),
            _ => None,
        }
    }

    /// Gives a node other work. The graph must not be running.
    pub(crate) fn set_work(&mut self, node: usize, work: Task) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.plan.kind = NodeTask::Work(work);
        }
    }

    /// Takes over the work of a run of the same nodes. This graph must not be running.
    pub(crate) fn copy_work(&mut self, from: &Self) {
        for (node, from) in self.nodes.iter_mut().zip(&from.nodes) {
            node.plan.kind.clone_from(&from.plan.kind);
        }
    }

    /// Returns the queue level for the nodes of this run.
    fn level(&self) -> usize {
        lock(&self.launch).as_ref().map_or(0, |launch| launch.stream.level())
    }

    /// Ends the run, and returns the stream that waits for it.
    fn end(&self) -> Option<Arc<dyn Launcher>> {
        lock(&self.launch).take().map(|launch| launch.stream)
    }

    /// Records that a node begins, in a traced run.
    fn note_start(&self, node: usize) {
        self.nodes[node].start.store(now(), Ordering::Relaxed);
    }

    /// Records that a node has just ended, in a traced run.
    #[cold]
    fn note_end(&self, node: usize) {
        let operation = lock(&self.launch).as_ref().and_then(|launch| launch.operation.clone());
        if let (Some(operation), Some(work)) = (operation, self.work(node)) {
            let start = self.nodes[node].start.load(Ordering::Relaxed);
            // SAFETY: the node is not counted as done, so its module is loaded.
            operation.ran(unsafe { work.described() }, start);
        }
    }

    /// Makes nodes wait for all of their dependencies.
    fn reset(&self, nodes: Range<usize>) {
        for node in &self.nodes[nodes] {
            if node.waits_for_several() {
                node.pending.store(node.plan.after.len() as u32, Ordering::Relaxed);
            }
        }
    }
}

impl RunNode {
    fn waits_for_several(&self) -> bool {
        self.plan.after.len() > 1
    }

    /// Counts a dependency as done. Returns true if it was the last one.
    fn becomes_ready(&self) -> bool {
        !self.waits_for_several() || self.pending.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// Runs a graph for `stream`. If the launch has a number, records when its nodes ran. Returns true if all
/// nodes are done; otherwise [`Launcher::graph_done`] will be called.
pub(crate) fn begin(
    worker: &mut Worker,
    run: Arc<GraphRun>,
    stream: Arc<dyn Launcher>,
    operation: Option<Arc<Numbered>>,
) -> bool {
    // Only a graph without nodes has no root, because dependencies have smaller indices.
    let Some((&mine, others)) = run.roots.split_first() else { return true };
    let level = stream.level();
    run.left.store(run.ends, Ordering::Relaxed);
    run.is_traced.store(operation.is_some(), Ordering::Relaxed);
    *lock(&run.launch) = Some(Launched { stream, operation });
    run.reset(0..run.nodes.len());
    for &root in others {
        worker.device().scheduler.push(run.clone(), root, level);
    }
    run_node(worker, run, mine).is_some()
}

/// Runs a node whose dependencies are done, and then others that only waited for it. Returns the stream if no
/// node is left.
fn run_node(worker: &mut Worker, run: Arc<GraphRun>, node: usize) -> Option<Arc<dyn Launcher>> {
    // We ask this once for all consecutive nodes.
    if run.is_traced.load(Ordering::Relaxed) {
        run_nodes::<true>(worker, run, node)
    } else {
        run_nodes::<false>(worker, run, node)
    }
}

fn run_nodes<const TRACED: bool>(
    worker: &mut Worker,
    run: Arc<GraphRun>,
    node: usize,
) -> Option<Arc<dyn Launcher>> {
    let (mut run, mut node) = (run, node);
    loop {
        let lost = worker.device().is_lost();
        match run.nodes[node].plan.kind {
            NodeTask::Work(ref work) if !lost => {
                let work = std::ptr::from_ref(work);
                if TRACED {
                    run.note_start(node);
                }
                let owner = Arc::into_raw(run);
                // SAFETY: the pointer is counted. The node runs once at a time, because the previous run is
                // over, and so is the body's previous turn. A node's work is only changed while the graph is
                // not shared.
                let complete = unsafe { (&(*owner).nodes)[node].job.run(work, worker, owner, node) };
                if !complete {
                    return None;
                }
                // SAFETY: this worker was the last on the job, so the count belongs to it again.
                run = unsafe { Arc::from_raw(owner) };
                if TRACED {
                    run.note_end(node);
                }
            }
            NodeTask::Enter { word, leave } => {
                // SAFETY: the word is aligned, and alive until the graph's run is over, as the caller
                // promised for its node.
                if lost || unsafe { memory_waits::read(word) } == 0 {
                    // There is no node between the two.
                    node = leave;
                }
            }
            NodeTask::Leave { enter, again: true } => {
                run.reset(enter + 1..node + 1);
                // This goes through the queue. Other work may be what stops the loop, and must get a worker
                // too.
                let level = run.level();
                worker.device().scheduler.push(run, enter, level);
                return None;
            }
            NodeTask::Work(_) | NodeTask::Leave { .. } => {}
        }
        match after(worker, &run, node) {
            After::Node(next) => node = next,
            After::Others => return None,
            After::Nothing => return run.end(),
        }
    }
}

impl Runnable<Shared> for GraphRun {
    fn run(self: Arc<Self>, node: usize, worker: &mut Worker) {
        if let Some(stream) = run_node(worker, self, node) {
            stream.graph_done();
        }
    }

    fn completed(self: Arc<Self>, node: usize, worker: &mut Worker) {
        if self.is_traced.load(Ordering::Relaxed) {
            self.note_end(node);
        }
        let stream = match after(worker, &self, node) {
            After::Node(next) => run_node(worker, self, next),
            After::Others => None,
            After::Nothing => self.end(),
        };
        if let Some(stream) = stream {
            stream.graph_done();
        }
    }
}

/// What is left of a run after a node.
enum After {
    /// The next node for this worker.
    Node(usize),
    /// Nodes of other workers.
    Others,
    Nothing,
}

/// Counts a node as done. Queues the nodes that became ready, except one for this worker.
#[inline]
fn after(worker: &mut Worker, run: &Arc<GraphRun>, node: usize) -> After {
    let before = &run.nodes[node].before;
    if before.is_empty() {
        let is_last = run.left.fetch_sub(1, Ordering::AcqRel) == 1;
        return if is_last { After::Nothing } else { After::Others };
    }
    let Some(mine) = before.iter().position(|&next| run.nodes[next].becomes_ready()) else {
        return After::Others;
    };
    if mine + 1 < before.len() {
        queue_ready(worker, run, &before[mine + 1..]);
    }
    After::Node(before[mine])
}

/// Counts a dependency of each of these nodes as done, and queues those that become ready.
#[inline(never)]
fn queue_ready(worker: &mut Worker, run: &Arc<GraphRun>, nodes: &[usize]) {
    for &node in nodes.iter().filter(|&&node| run.nodes[node].becomes_ready()) {
        worker.device().scheduler.push(run.clone(), node, run.level());
    }
}
