//! A graph ready to run: nodes with their work, and one run of them at a time.
//!
//! A node begins when the last of its dependencies is done; nodes that become ready together are queued for
//! different workers, so independent nodes run at the same time. The body of a conditional node lies between two nodes,
//! of which the first decides.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::job::Job;
use crate::shared::{Shared, Worker};
use crate::sync::lock;
use crate::words;
use crate::work::Work;
use crate::worker::Task;

/// One node with its place in the order.
#[derive(Clone)]
pub(crate) struct PlanNode {
    pub(crate) kind: Kind,
    /// The nodes before this one, by index; all smaller than its own.
    pub(crate) after: Vec<usize>,
}

/// The task of a node.
#[derive(Clone)]
pub(crate) enum Kind {
    Work(Work),
    /// Decides by the `u32` at address `word` whether the nodes up to `leave` run, all of which follow this one.
    Enter {
        word: usize,
        leave: usize,
    },
    /// Ends the nodes behind `enter`, all of which come before this one, and goes back to `enter` if that may be.
    Leave {
        enter: usize,
        again: bool,
    },
}

impl Kind {
    /// Moves the node's references to others by `base`.
    pub(crate) fn moved(mut self, base: usize) -> Self {
        match &mut self {
            Self::Work(_) => {}
            Self::Enter { leave: other, .. } | Self::Leave { enter: other, .. } => *other += base,
        }
        self
    }

    /// Returns whether one can take the other's place in an executable.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Work(a), Self::Work(b)) => a.is_like(b),
            (Self::Enter { leave: a, .. }, Self::Enter { leave: b, .. }) => a == b,
            (Self::Leave { enter: a, again: x }, Self::Leave { enter: b, again: y }) => (a, x) == (b, y),
            _ => false,
        }
    }
}

/// A graph's nodes, and the state of its run. Runs of one executable follow each other, so one state is enough.
pub(crate) struct GraphRun {
    nodes: Vec<RunNode>,
    /// The nodes that follow no other.
    roots: Vec<usize>,
    /// The number of nodes that no other node follows. With the last of them all are done.
    ends: usize,
    /// The number of those that are not done.
    left: AtomicUsize,
    /// The stream that waits for the run.
    stream: Mutex<Option<Arc<dyn Launcher>>>,
}

/// A stream that launched a graph, and waits for its last node.
pub(crate) trait Launcher: Send + Sync {
    /// Returns the level of the scheduler's queue to which the tasks of the stream belong.
    fn level(&self) -> usize;

    /// Goes on: the last node is done.
    fn graph_done(self: Arc<Self>);
}

struct RunNode {
    plan: PlanNode,
    before: Vec<usize>,
    /// Number of dependencies that are not done; unused where there is one.
    pending: AtomicU32,
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
                job: Job::new(u32::MAX),
            })
            .collect();
        Self { nodes, roots, ends, left: AtomicUsize::new(0), stream: Mutex::default() }
    }

    /// Returns the nodes, in an order that respects their dependencies.
    pub(crate) fn plan(&self) -> Vec<PlanNode> {
        self.nodes.iter().map(|node| node.plan.clone()).collect()
    }

    /// Returns a node's work.
    pub(crate) fn work(&self, node: usize) -> Option<&Work> {
        match &self.nodes.get(node)?.plan.kind {
            Kind::Work(work) => Some(work),
            _ => None,
        }
    }

    /// Gives a node other work; the graph is not running.
    pub(crate) fn set_work(&mut self, node: usize, work: Work) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.plan.kind = Kind::Work(work);
        }
    }

    /// Takes the work of a run of the same nodes; this graph is not running.
    pub(crate) fn copy_work(&mut self, from: &Self) {
        for (node, from) in self.nodes.iter_mut().zip(&from.nodes) {
            node.plan.kind.clone_from(&from.plan.kind);
        }
    }

    /// Returns the level of the scheduler's queue for the nodes of this run.
    fn level(&self) -> usize {
        lock(&self.stream).as_ref().map_or(0, |stream| stream.level())
    }

    /// Has nodes wait for all their dependencies.
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

    /// Counts a dependency as done. Returns whether that was the last one.
    fn becomes_ready(&self) -> bool {
        !self.waits_for_several() || self.pending.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// Runs a graph for `stream`, which goes on when the last node is done.
pub(crate) fn begin(worker: &mut Worker, run: Arc<GraphRun>, stream: Arc<dyn Launcher>) {
    // Only a graph without nodes has no root: dependencies have smaller indices.
    let Some((&mine, others)) = run.roots.split_first() else {
        stream.graph_done();
        return;
    };
    let level = stream.level();
    run.left.store(run.ends, Ordering::Relaxed);
    *lock(&run.stream) = Some(stream);
    run.reset(0..run.nodes.len());
    for &root in others {
        worker.device().scheduler.push(run.clone(), root, level);
    }
    run_node(worker, run, mine);
}

/// Runs a node whose dependencies are done, and then others that only waited for that node.
fn run_node(worker: &mut Worker, run: Arc<GraphRun>, node: usize) {
    let (mut run, mut node) = (run, node);
    loop {
        let lost = worker.device().is_lost();
        match run.nodes[node].plan.kind {
            Kind::Work(ref work) if !lost => {
                let work = std::ptr::from_ref(work);
                let owner = Arc::into_raw(run);
                // SAFETY: the pointer is counted. The node runs once at a time: the run before is over, and so is the
                // turn before of a body. A node's work is changed only where nobody else has the graph.
                let complete = unsafe {
                    let job = &(&(*owner).nodes)[node].job;
                    job.begin(work);
                    job.lead(worker, owner, node)
                };
                if !complete {
                    return;
                }
                // SAFETY: this worker was the last on the job, so the count is its own again.
                run = unsafe { Arc::from_raw(owner) };
            }
            Kind::Enter { word, leave } => {
                // SAFETY: the word is aligned, and alive until the graph's run is over, as its node asked of the caller.
                if lost || unsafe { words::read(word) } == 0 {
                    // Nothing runs between the two.
                    node = leave;
                }
            }
            Kind::Leave { enter, again: true } => {
                run.reset(enter + 1..node + 1);
                // By the queue, so that a body which others are to stop leaves them a worker.
                let level = run.level();
                worker.device().scheduler.push(run, enter, level);
                return;
            }
            Kind::Work(_) | Kind::Leave { .. } => {}
        }
        match after(worker, &run, node) {
            Some(next) => node = next,
            None => return,
        }
    }
}

impl Task<Shared> for GraphRun {
    fn run(self: Arc<Self>, node: usize, worker: &mut Worker) {
        run_node(worker, self, node);
    }

    fn completed(self: Arc<Self>, node: usize, worker: &mut Worker) {
        if let Some(next) = after(worker, &self, node) {
            run_node(worker, self, next);
        }
    }
}

/// Counts a node as done. Returns the next node for this worker; others are queued. With the last node the stream goes
/// on.
fn after(worker: &mut Worker, run: &Arc<GraphRun>, node: usize) -> Option<usize> {
    let mut mine = None;
    let before = &run.nodes[node].before;
    for &next in before {
        if !run.nodes[next].becomes_ready() {
            continue;
        }
        if mine.is_none() {
            mine = Some(next);
        } else {
            worker.device().scheduler.push(run.clone(), next, run.level());
        }
    }
    if before.is_empty() && run.left.fetch_sub(1, Ordering::AcqRel) == 1 {
        let stream = lock(&run.stream).take();
        if let Some(stream) = stream {
            stream.graph_done();
        }
    }
    mine
}
