//! Recording a stream's work into a graph: the tracker's side.
//!
//! What is captured does not run, so it may not enter the real histories, and what happens outside may not order
//! it. A capture therefore keeps histories and clocks of its own. Its streams are lanes: the one it began on, and
//! those that joined by waiting for an event recorded inside. What it touches in all is what a launch of the
//! graph touches.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use gpustream_hal::{
    self as hal, Error, ErrorKind, EventOptions, Operation, RawGraph, RawGraphNode, RawStream, Result,
};
use smallvec::SmallVec;

use crate::device::{DeviceCore, Tracking};
use crate::graph_contents::{Contents, GraphOperation, GraphUses};
use crate::host_call::{self, RepeatedCall};
use crate::memory::Block;
use crate::node_recorder::{Attributed, HostNodes, NodeAdder};
use crate::node_setter::NodeSetter;
use crate::stream_core::{Access, ContextHold, EventCell, StreamCore, hazard};
use crate::sync::thread::{self, ThreadId};
use crate::sync::{Mutex, lock};
use crate::track::{Clock, History, Point, StreamId, Use};

/// A point of a capture, as an event recorded inside it holds it.
#[derive(Clone)]
pub(crate) struct CapturedPoint {
    pub(crate) capture: Arc<Capture>,
    point: Point,
    clock: Clock,
    frontier: SmallVec<[usize; 2]>,
}

struct Lane {
    /// What the driver records; nodes made one by one have none.
    stream: Option<Arc<StreamCore>>,
    number: u64,
    clock: Clock,
    /// The operations that the lane's next one follows directly.
    frontier: SmallVec<[usize; 2]>,
}

#[derive(Default)]
struct Inner {
    lanes: HashMap<StreamId, Lane>,
    histories: HashMap<*const Block, History>,
    contents: Contents,
    explicit: Option<Explicit>,
    /// Where the driver records: keeps the context from being waited for.
    context: Option<ContextHold>,
}

/// A graph that is made node by node, each operation being a lane of its own.
struct Explicit {
    adder: Arc<NodeAdder>,
    graph: RawGraph,
    /// The driver's nodes, by operation.
    nodes: Vec<RawGraphNode>,
}

// SAFETY: the pointers are keys and are never followed.
unsafe impl Send for Inner {}

pub(crate) struct Capture {
    origin: StreamId,
    /// The only thread that may submit, where the driver records.
    thread: Option<ThreadId>,
    inner: Mutex<Inner>,
    /// What takes the operations where none is recorded: they go into nodes that are there already.
    setter: Option<NodeSetter>,
    /// Where the last thing that was kept lies. It is alive, so nothing else lies there.
    kept: AtomicUsize,
    /// The driver's recording is over.
    ended: AtomicBool,
}

impl Capture {
    /// Begins recording on `stream`.
    pub(crate) fn begin(stream: &Arc<StreamCore>) -> Result<Arc<Self>> {
        stream.check_thread()?;
        let context = Some(ContextHold::for_capture(&*stream.device)?);
        let inner = Inner { context, ..Inner::default() };
        let capture = Arc::new(Self { thread: Some(thread::current().id()), ..Self::new(stream.id, inner) });
        let mut state = lock(&stream.state);
        if state.capture.is_some() {
            return Err(refused("capture a stream that is being captured already; end that capture first"));
        }
        stream.mark_end(&mut state)?;
        // SAFETY: the stream is alive and, as we just saw, not being captured.
        unsafe { stream.device.capture_begin(stream.raw) }?;
        state.capture = Some(capture.clone());
        drop(state);
        Self::add_lane(&mut lock(&capture.inner), stream);
        Ok(capture)
    }

    fn new(origin: StreamId, inner: Inner) -> Self {
        Self {
            origin,
            thread: None,
            inner: Mutex::new(inner),
            setter: None,
            kept: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    fn add_lane(inner: &mut Inner, stream: &Arc<StreamCore>) {
        let lane = Lane {
            stream: Some(stream.clone()),
            number: 0,
            clock: Clock::default(),
            frontier: SmallVec::new(),
        };
        inner.lanes.insert(stream.id, lane);
    }

    pub(crate) fn check_thread(&self) -> Result<()> {
        host_call::check_outside()?;
        if self.thread.is_none_or(|thread| thread == thread::current().id()) {
            return Ok(());
        }
        Err(refused("use a stream that another thread is capturing; submit from the thread that captures"))
    }

    /// Records one operation, after what its accesses conflict with inside the capture.
    pub(crate) fn submit<'a>(
        &self,
        device: &DeviceCore,
        stream: &StreamCore,
        operation: Operation,
        accesses: impl Iterator<Item = &'a Access<'a>> + Clone,
        call: impl FnOnce(&dyn hal::Device, RawStream) -> Result<()>,
    ) -> Result<()> {
        if let Some(setter) = &self.setter {
            return setter.submit(stream, accesses, call);
        }
        self.check_thread()?;
        let inner = &mut *lock(&self.inner);
        if !inner.lanes.contains_key(&stream.id) {
            return Err(refused("submit to a stream that has left the capture"));
        }
        for access in accesses.clone() {
            Self::order(device, inner, stream.id, operation, access)?;
        }
        inner.aim(stream.id)?;
        if inner.explicit.is_none() {
            // Whatever comes of the call: a driver that fails, or a backend that panics, may have recorded part, and
            // the graph must own what that part uses.
            inner.enter(stream.id, operation, accesses);
            return call(&*stream.device, stream.raw);
        }
        let result = call(&*stream.device, stream.raw);
        if inner.take_node() {
            inner.enter(stream.id, operation, accesses);
        }
        result
    }

    /// Makes a lane wait for the conflicts that `access` has on other lanes.
    fn order(
        device: &DeviceCore,
        inner: &mut Inner,
        id: StreamId,
        operation: Operation,
        access: &Access<'_>,
    ) -> Result<()> {
        let Some(history) = inner.histories.get(&Arc::as_ptr(access.block)) else { return Ok(()) };
        let Some(lane) = inner.lanes.get(&id) else { return Ok(()) };
        let mut missing: SmallVec<[Use; 4]> = SmallVec::new();
        history.conflicts(&access.range, access.mode, |old| {
            if old.point.stream != id && !lane.clock.covers(old.point) {
                missing.push(*old);
            }
        });
        for old in missing {
            match device.tracking {
                Some(Tracking::Strict) => return Err(hazard(operation, old.operation)),
                None => {}
                Some(Tracking::Auto) => Self::join(inner, old.point.stream, id)?,
            }
        }
        Ok(())
    }

    /// Makes lane `to` wait for all that lane `from` holds so far.
    fn join(inner: &mut Inner, from: StreamId, to: StreamId) -> Result<()> {
        let Some(source) = inner.lanes.get(&from) else { return Ok(()) };
        let (clock, number, frontier) = (source.clock.clone(), source.number, source.frontier.clone());
        let event = match &source.stream {
            None => None,
            Some(stream) => {
                let event = EventCell::new(&stream.device, EventOptions::default())?;
                // SAFETY: both are alive.
                unsafe { stream.device.event_record(event.raw, stream.raw) }?;
                Some(event)
            }
        };
        let Some(target) = inner.lanes.get_mut(&to) else { return Ok(()) };
        if let (Some(stream), Some(event)) = (&target.stream, event) {
            // SAFETY: both are alive, and the event has been recorded.
            unsafe { stream.device.stream_wait_event(stream.raw, event.raw) }?;
            inner.contents.keep.push(event);
        }
        target.clock.merge(&clock);
        target.clock.advance(Point { stream: from, number });
        add_frontier(&mut target.frontier, &frontier);
        Ok(())
    }

    /// Records `event` on a lane.
    pub(crate) fn record(self: &Arc<Self>, stream: &StreamCore, event: &EventCell) -> Result<CapturedPoint> {
        self.check_thread()?;
        let inner = lock(&self.inner);
        let Some(lane) = inner.lanes.get(&stream.id) else {
            return Err(refused("record on a stream that has left the capture"));
        };
        // SAFETY: both are alive.
        unsafe { stream.device.event_record(event.raw, stream.raw) }?;
        let point = Point { stream: stream.id, number: lane.number };
        Ok(CapturedPoint {
            capture: self.clone(),
            point,
            clock: lane.clock.clone(),
            frontier: lane.frontier.clone(),
        })
    }

    /// Makes `stream` wait for a point of this capture, and join it if it is not part of it yet.
    pub(crate) fn wait(
        self: &Arc<Self>,
        stream: &Arc<StreamCore>,
        event: &EventCell,
        point: &CapturedPoint,
    ) -> Result<()> {
        self.check_thread()?;
        if self.is_over() {
            return Err(refused(
                "wait for an event of a capture that has ended; it never happens outside the graph",
            ));
        }
        let inner = &mut *lock(&self.inner);
        let mut state = lock(&stream.state);
        match &state.capture {
            Some(other) if !Arc::ptr_eq(other, self) => {
                return Err(refused("wait for an event of another capture"));
            }
            Some(_) => {}
            None => stream.mark_end(&mut state)?,
        }
        // SAFETY: both are alive, and the event was recorded in this capture.
        unsafe { stream.device.stream_wait_event(stream.raw, event.raw) }?;
        state.capture = Some(self.clone());
        drop(state);
        if !inner.lanes.contains_key(&stream.id) {
            Self::add_lane(inner, stream);
        }
        if let Some(lane) = inner.lanes.get_mut(&stream.id) {
            lane.clock.merge(&point.clock);
            lane.clock.advance(point.point);
            add_frontier(&mut lane.frontier, &point.frontier);
        }
        Ok(())
    }

    /// For a graph made node by node: the driver records nothing by itself.
    pub(crate) fn of_nodes(adder: Arc<NodeAdder>, graph: RawGraph) -> Arc<Self> {
        let explicit = Some(Explicit { adder, graph, nodes: Vec::new() });
        Arc::new(Self::new(StreamId(0), Inner { explicit, ..Inner::default() }))
    }

    /// For putting other work into the nodes of an executable.
    pub(crate) fn of_setter(setter: NodeSetter) -> Arc<Self> {
        Arc::new(Self { setter: Some(setter), ..Self::new(StreamId(0), Inner::default()) })
    }

    pub(crate) fn setter(&self) -> Option<&NodeSetter> {
        self.setter.as_ref()
    }

    /// Opens a lane for one node that follows the operations `after`. Lanes are numbered from the top, away from
    /// real streams.
    pub(crate) fn open_node(&self, after: &[usize]) -> StreamId {
        let inner = &mut *lock(&self.inner);
        let lane_of = |operation: usize| StreamId(u64::MAX - operation as u64);
        let mut clock = Clock::default();
        for &before in after {
            if let Some(lane) = inner.lanes.get(&lane_of(before)) {
                if clock.len() == 0 {
                    clock.clone_from(&lane.clock);
                } else {
                    clock.merge(&lane.clock);
                }
                clock.advance(Point { stream: lane_of(before), number: lane.number });
            }
        }
        let id = lane_of(inner.contents.operations.len());
        let lane = Lane { stream: None, number: 0, clock, frontier: SmallVec::from_slice(after) };
        inner.lanes.insert(id, lane);
        id
    }

    /// How many operations there are.
    pub(crate) fn operations(&self) -> usize {
        lock(&self.inner).contents.operations.len()
    }

    /// Enters a node that was made without a launcher: a join, or another graph with its `uses`.
    pub(crate) fn enter_node(
        &self,
        device: &DeviceCore,
        lane: StreamId,
        operation: Operation,
        uses: &GraphUses,
        make: impl FnOnce(RawGraph, &[RawGraphNode]) -> Result<RawGraphNode>,
    ) -> Result<()> {
        self.check_thread()?;
        let inner = &mut *lock(&self.inner);
        let accesses: Vec<Access<'_>> = uses.accesses().collect();
        for access in &accesses {
            Self::order(device, inner, lane, operation, access)?;
        }
        if let (Some(explicit), Some(lane)) = (&mut inner.explicit, inner.lanes.get(&lane)) {
            let after = explicit.nodes_before(lane);
            explicit.nodes.push(make(explicit.graph, &after)?);
        }
        inner.enter(lane, operation, accesses.iter());
        Ok(())
    }

    /// Ends the making of a graph node by node.
    pub(crate) fn finish_nodes(&self) -> (Contents, Vec<RawGraphNode>, Attributed, HostNodes) {
        self.ended.store(true, Ordering::Release);
        let inner = &mut *lock(&self.inner);
        inner.lanes.clear();
        inner.histories.clear();
        let (nodes, attributed, host_nodes) = inner
            .explicit
            .take()
            .map(|Explicit { nodes, adder, .. }| (nodes, adder.take_attributed(), adder.take_host_nodes()))
            .unwrap_or_default();
        (std::mem::take(&mut inner.contents), nodes, attributed, host_nodes)
    }

    /// Keeps something alive as long as the graph.
    #[inline]
    pub(crate) fn keep<T: Any + Send + Sync>(&self, keep: &Arc<T>) {
        // One module often serves many nodes in a row.
        if self.kept.load(Ordering::Relaxed) != Arc::as_ptr(keep).addr() {
            self.keep_another(keep);
        }
    }

    #[cold]
    fn keep_another<T: Any + Send + Sync>(&self, keep: &Arc<T>) {
        match &self.setter {
            Some(setter) => setter.keep(keep.clone()),
            None => {
                lock(&self.inner).contents.keep(keep.clone());
            }
        }
        self.kept.store(Arc::as_ptr(keep).addr(), Ordering::Relaxed);
    }

    /// Keeps a closure that every launch runs.
    pub(crate) fn keep_call(&self, stream: StreamId, call: &Arc<RepeatedCall>) {
        if let Some(setter) = &self.setter {
            return setter.keep_call(call.clone());
        }
        let inner = &mut *lock(&self.inner);
        // A node's second operation will be refused: no launch would run it, and it would be waited for.
        let lane = inner.explicit.as_ref().and_then(|_| inner.lanes.get(&stream));
        if lane.is_none_or(|lane| lane.number == 0) {
            inner.contents.calls.push(call.clone());
        }
    }

    /// Keeps what a child graph keeps.
    pub(crate) fn keep_all(&self, child: &Contents) {
        let contents = &mut lock(&self.inner).contents;
        for keep in &child.keep {
            contents.keep(keep.clone());
        }
        contents.calls.extend(child.calls.iter().map(RepeatedCall::recorded));
    }

    /// Ends the recording. All lanes are joined to the first, so that nothing is left behind; their streams are
    /// free again, also where this fails.
    pub(crate) fn end(&self) -> Result<(RawGraph, Contents)> {
        /// Frees the streams also where a backend panics.
        struct Lanes<'a>(&'a Capture, &'a mut Inner);
        impl Drop for Lanes<'_> {
            fn drop(&mut self) {
                self.0.ended.store(true, Ordering::Release);
                self.1.histories.clear();
                self.1.context = None;
                for stream in self.1.lanes.drain().filter_map(|(_, lane)| lane.stream) {
                    lock(&stream.state).capture = None;
                }
            }
        }

        let inner = &mut *lock(&self.inner);
        // Not before the driver has let go of the streams: until then other threads are refused.
        let lanes = Lanes(self, inner);
        let ended = lanes.1.end(self.origin);
        let contents = std::mem::take(&mut lanes.1.contents);
        drop(lanes);
        Ok((ended?, contents))
    }
}

impl Inner {
    /// Joins all lanes to the first, and has the driver end its recording.
    fn end(&mut self, origin: StreamId) -> Result<RawGraph> {
        let others: Vec<StreamId> = self.lanes.keys().copied().filter(|&id| id != origin).collect();
        let joined = others.iter().try_for_each(|&id| {
            let (covered, number) = match (self.lanes.get(&origin), self.lanes.get(&id)) {
                (Some(origin), Some(lane)) => {
                    (origin.clock.covers(Point { stream: id, number: lane.number }), lane.number)
                }
                _ => (true, 0),
            };
            if covered && number > 0 { Ok(()) } else { Capture::join(self, id, origin) }
        });
        let stream = self.lanes.get(&origin).and_then(|lane| lane.stream.as_ref());
        let stream = stream.ok_or_else(|| refused("end a capture twice"))?;
        // SAFETY: the stream is alive and being captured, on this thread.
        let graph = unsafe { stream.device.capture_end(stream.raw) };
        if graph.is_err() {
            // SAFETY: the stream is alive, and its recording has just ended without success, on this thread. Where
            // this fails, the next use of the stream says so.
            let _ = unsafe { stream.device.capture_abandon(stream.raw) };
        }
        if let (Ok(raw), Err(_)) = (&graph, &joined) {
            // SAFETY: nobody else has the graph.
            let _ = unsafe { stream.device.graph_destroy(*raw) };
        }
        joined.and(graph)
    }

    /// Before an operation of a graph made node by node: says where its one driver call goes.
    fn aim(&self, lane: StreamId) -> Result<()> {
        let (Some(explicit), Some(lane)) = (&self.explicit, self.lanes.get(&lane)) else { return Ok(()) };
        if lane.number > 0 {
            return Err(refused("put several operations into one node; add a node for each"));
        }
        explicit.adder.aim(explicit.graph, explicit.nodes_before(lane));
        Ok(())
    }

    /// After it: remembers the node it became, if it did. That can be so also where it failed, in a call after the first.
    fn take_node(&mut self) -> bool {
        let Some(explicit) = &mut self.explicit else { return false };
        let made = explicit.adder.take_made();
        explicit.nodes.extend(made);
        made.is_some()
    }

    /// Enters what an operation of `lane` touches.
    fn enter<'a>(
        &mut self,
        lane: StreamId,
        operation: Operation,
        accesses: impl Iterator<Item = &'a Access<'a>>,
    ) {
        let Self { lanes, histories, contents, .. } = self;
        let Some(state) = lanes.get_mut(&lane) else { return };
        state.number += 1;
        let point = Point { stream: lane, number: state.number };
        for Access { block, range, mode } in accesses {
            let history =
                histories.entry(Arc::as_ptr(block)).or_insert_with(|| History::new(block.capacity, true));
            history.insert(range, *mode, Use::new(point, operation));
            contents.uses.add(block, range, *mode);
        }
        let after =
            std::mem::replace(&mut state.frontier, SmallVec::from_slice(&[contents.operations.len()]));
        contents.operations.push(GraphOperation { operation, after });
    }
}

impl Explicit {
    /// The nodes that the lane's one operation follows.
    fn nodes_before(&self, lane: &Lane) -> SmallVec<[RawGraphNode; 4]> {
        lane.frontier.iter().filter_map(|&index| self.nodes.get(index).copied()).collect()
    }
}

fn add_frontier(frontier: &mut SmallVec<[usize; 2]>, more: &[usize]) {
    for &index in more {
        if !frontier.contains(&index) {
            frontier.push(index);
        }
    }
}

/// The error for something that cannot be part of a capture.
#[cold]
pub(crate) fn refused(what: &str) -> Error {
    Error::new(ErrorKind::Captured, format!("a capture is being recorded, and one cannot {what}"))
}
