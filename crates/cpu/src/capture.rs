//! Capture: work that is submitted to a stream becomes nodes of a graph.
//!
//! A capture begins at one stream. Other streams join when they wait for an event that was recorded in it.
//! Every stream has tips: the nodes that its next operation depends on. If you submit an operation, it
//! becomes a node after the tips, and then it is the only tip.

use std::cell::Cell;
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use gpustream_hal::{Error, ErrorKind, Repeat, Result};

use crate::error::error;
use crate::plan::{NodeTask, PlanNode};
use crate::sync::lock;
use crate::work::Task;

thread_local! {
    /// The captures that this thread has begun and not ended.
    static OPEN: Cell<usize> = const { Cell::new(0) };
}

/// A stream that can be captured.
pub(crate) trait CapturableStream: Sized {
    /// Returns true if the stream is the legacy default stream.
    fn is_legacy(&self) -> bool;

    /// Calls `then` with the stream's capture. Meanwhile nothing can be submitted.
    fn with_capture<R>(&self, then: impl FnOnce(&mut Option<Arc<Capture<Self>>>) -> R) -> R;
}

/// A capture in progress, or one that has ended but that events still point to.
pub(crate) struct Capture<S> {
    thread: ThreadId,
    state: Mutex<CaptureState<S>>,
}

struct CaptureState<S> {
    nodes: Vec<PlanNode>,
    /// The streams of the capture with their tips; the origin first.
    streams: Vec<(Arc<S>, Vec<usize>)>,
    /// The bodies of conditional nodes that are being filled.
    bodies: Vec<Box<dyn Send>>,
    /// Why the capture cannot become a graph, if so.
    invalid: Option<&'static str>,
    ended: bool,
}

/// A point in a capture. An event that was recorded in the capture stands for one.
pub(crate) struct CapturedPoint<S> {
    capture: Arc<Capture<S>>,
    tips: Vec<usize>,
}

impl<S> Clone for CapturedPoint<S> {
    fn clone(&self) -> Self {
        Self { capture: self.capture.clone(), tips: self.tips.clone() }
    }
}

#[cold]
fn captured(message: impl Into<String>) -> Error {
    error(ErrorKind::Captured, message)
}

impl<S: CapturableStream> Capture<S> {
    /// Begins a capture of `stream` on this thread.
    pub(crate) fn begin(stream: &Arc<S>) -> Result<()> {
        if stream.is_legacy() {
            return Err(captured("the legacy default stream cannot be captured: use a stream of your own"));
        }
        stream.with_capture(|capture| {
            if capture.is_some() {
                return Err(captured("the stream is already being captured: end that capture first"));
            }
            let streams = vec![(stream.clone(), Vec::new())];
            let state =
                CaptureState { nodes: Vec::new(), streams, bodies: Vec::new(), invalid: None, ended: false };
            *capture = Some(Arc::new(Self { thread: std::thread::current().id(), state: Mutex::new(state) }));
            OPEN.set(OPEN.get() + 1);
            Ok(())
        })
    }

    /// Ends the capture that began at `stream`. Its streams are then no longer captured, even if there is an
    /// error.
    pub(crate) fn end(stream: &Arc<S>) -> Result<Vec<PlanNode>> {
        let capture = stream.with_capture(|capture| capture.clone());
        let capture =
            capture.ok_or_else(|| captured("the stream is not being captured: begin a capture first"))?;
        if capture.thread != std::thread::current().id() {
            return Err(captured("another thread began the capture: end it on that thread"));
        }
        let mut state = lock(&capture.state);
        if !state.streams.first().is_some_and(|(origin, _)| Arc::ptr_eq(origin, stream)) {
            state.invalid.get_or_insert("it was ended at a stream other than the one it began at");
            return Err(captured("the capture began at another stream: end it there"));
        }
        state.ended = true;
        let streams = std::mem::take(&mut state.streams);
        let nodes = std::mem::take(&mut state.nodes);
        let bodies = std::mem::take(&mut state.bodies);
        let invalid = state.invalid;
        drop(state);
        drop(bodies);
        for (stream, _) in &streams {
            stream.with_capture(|capture| *capture = None);
        }
        OPEN.set(OPEN.get().saturating_sub(1));
        if let Some(why) = invalid {
            return Err(captured(format!("the capture failed: {why}")));
        }
        let tips = streams.first().map_or(&[][..], |(_, tips)| tips);
        if leaves(&nodes).any(|node| !tips.contains(&node)) {
            return Err(captured(
                "another stream has captured work that was not joined: record an event there, and make the stream \
                 that began the capture wait for it before the capture ends",
            ));
        }
        Ok(nodes)
    }

    /// Records a call that no graph can contain. The capture cannot become a graph anymore, and its end tells
    /// you why.
    pub(crate) fn invalidate(&self, why: &'static str) {
        lock(&self.state).invalid.get_or_insert(why);
    }

    /// Succeeds if the capture can still become a graph.
    pub(crate) fn check(&self) -> Result<()> {
        match lock(&self.state).invalid {
            None => Ok(()),
            Some(why) => Err(captured(format!("the capture failed: {why}; end it"))),
        }
    }

    /// Adds `work` after all that the stream has submitted.
    pub(crate) fn record(&self, stream: &Arc<S>, work: Task) -> Result<()> {
        if matches!(work, Task::Free(_)) {
            self.invalidate("memory was freed in stream order");
            return Err(captured("a stream-ordered free cannot be captured: free after the capture"));
        }
        self.check()?;
        let mut state = lock(&self.state);
        let node = state.nodes.len();
        let after = state.replace_tips(stream, vec![node]);
        state.nodes.push(PlanNode { kind: NodeTask::Work(work), after });
        Ok(())
    }

    /// Refuses a wait for a word in memory, or a write to one.
    pub(crate) fn refuse_word(&self) -> Result<()> {
        self.invalidate("a stream was to wait for a word in memory, or to write one");
        Err(captured("a graph cannot wait for a word in memory or write one: do that outside the capture"))
    }

    /// Adds all nodes of another graph after all that the stream has submitted.
    pub(crate) fn record_graph(&self, stream: &Arc<S>, plan: Vec<PlanNode>) -> Result<()> {
        self.check()?;
        let mut state = lock(&self.state);
        let tips = state.replace_tips(stream, Vec::new());
        let leaves = append(&mut state.nodes, plan, &tips);
        state.replace_tips(stream, if leaves.is_empty() { tips } else { leaves });
        Ok(())
    }

    /// Keeps the body of a conditional node until the capture ends.
    pub(crate) fn keep(&self, body: Box<dyn Send>) -> Result<()> {
        self.check()?;
        lock(&self.state).bodies.push(body);
        Ok(())
    }

    /// Adds a conditional node after all that the stream has submitted.
    pub(crate) fn record_condition(
        &self,
        stream: &Arc<S>,
        body: Vec<PlanNode>,
        word: usize,
        repeat: Repeat,
    ) -> Result<()> {
        self.check()?;
        let mut state = lock(&self.state);
        let tips = state.replace_tips(stream, Vec::new());
        let leave = append_condition(&mut state.nodes, body, tips, word, repeat);
        state.replace_tips(stream, vec![leave]);
        Ok(())
    }

    /// Returns this point of the stream.
    pub(crate) fn point(self: &Arc<Self>, stream: &Arc<S>) -> CapturedPoint<S> {
        let tips = lock(&self.state).tips(stream).cloned().unwrap_or_default();
        CapturedPoint { capture: self.clone(), tips }
    }

    /// Takes a stream that is being destroyed out of its capture.
    pub(crate) fn abandon(stream: &Arc<S>) {
        let capture = stream.with_capture(Option::take);
        if let Some(capture) = capture {
            capture.invalidate("one of its streams was destroyed");
            let origin = {
                let mut state = lock(&capture.state);
                let origin = state.streams.first().is_some_and(|(s, _)| Arc::ptr_eq(s, stream));
                state.streams.retain(|(s, _)| !Arc::ptr_eq(s, stream));
                origin
            };
            if origin && capture.thread == std::thread::current().id() {
                OPEN.set(OPEN.get().saturating_sub(1));
            }
        }
    }
}

impl<S> CaptureState<S> {
    fn tips(&mut self, stream: &Arc<S>) -> Option<&mut Vec<usize>> {
        self.streams.iter_mut().find(|(s, _)| Arc::ptr_eq(s, stream)).map(|(_, tips)| tips)
    }

    fn replace_tips(&mut self, stream: &Arc<S>, tips: Vec<usize>) -> Vec<usize> {
        self.tips(stream).map(|old| std::mem::replace(old, tips)).unwrap_or_default()
    }
}

/// Makes `stream` wait for a captured point, so it joins that capture.
pub(crate) fn join<S: CapturableStream>(stream: &Arc<S>, point: &CapturedPoint<S>) -> Result<()> {
    stream.with_capture(|capture| {
        let mut state = lock(&point.capture.state);
        if state.ended {
            return Err(captured("the event was recorded in a capture that has ended: record it again"));
        }
        match capture {
            Some(capture) if Arc::ptr_eq(capture, &point.capture) => {
                if let Some(tips) = state.tips(stream) {
                    for tip in &point.tips {
                        if !tips.contains(tip) {
                            tips.push(*tip);
                        }
                    }
                }
                Ok(())
            }
            Some(_) => {
                state.invalid.get_or_insert("a stream of another capture waited for it");
                Err(captured("the stream is part of another capture: two captures cannot be joined"))
            }
            None if stream.is_legacy() => {
                state.invalid.get_or_insert("the legacy default stream waited for it");
                Err(captured("the legacy default stream cannot be captured: use a stream of your own"))
            }
            None => {
                state.streams.push((stream.clone(), point.tips.clone()));
                *capture = Some(point.capture.clone());
                Ok(())
            }
        }
    })
}

/// Returns the error for a captured stream that should wait for an event from outside the capture.
pub(crate) fn refuse_outside_wait<S: CapturableStream>(capture: &Capture<S>) -> Error {
    capture.invalidate("it waited for an event recorded outside");
    captured("a captured stream can only wait for events from the same capture: record the event in it")
}

/// Refuses to block a thread that is capturing, as the drivers do.
pub(crate) fn refuse_block() -> Result<()> {
    if OPEN.get() == 0 {
        return Ok(());
    }
    Err(captured("this thread is capturing a stream and cannot wait for the device: end the capture first"))
}

/// Appends a graph after `tips`. Returns its nodes that have no successor.
pub(crate) fn append(nodes: &mut Vec<PlanNode>, plan: Vec<PlanNode>, tips: &[usize]) -> Vec<usize> {
    let base = nodes.len();
    let leaves = leaves(&plan).map(|node| base + node).collect();
    for mut node in plan {
        if node.after.is_empty() {
            node.after = tips.to_vec();
        } else {
            node.after.iter_mut().for_each(|dependency| *dependency += base);
        }
        node.kind = node.kind.moved(base);
        nodes.push(node);
    }
    leaves
}

/// Appends a conditional node after `tips`. Returns the node that ends it.
pub(crate) fn append_condition(
    nodes: &mut Vec<PlanNode>,
    body: Vec<PlanNode>,
    tips: Vec<usize>,
    word: usize,
    repeat: Repeat,
) -> usize {
    let enter = nodes.len();
    let leave = enter + 1 + body.len();
    nodes.push(PlanNode { kind: NodeTask::Enter { word, leave }, after: tips });
    let after = append(nodes, body, &[enter]);
    nodes.push(PlanNode { kind: NodeTask::Leave { enter, again: repeat == Repeat::While }, after });
    leave
}

/// Returns the nodes that have no successor.
fn leaves(plan: &[PlanNode]) -> impl Iterator<Item = usize> + use<> {
    let mut last = vec![true; plan.len()];
    for &dependency in plan.iter().flat_map(|node| &node.after) {
        last[dependency] = false;
    }
    (0..last.len()).filter(move |&node| last[node])
}
