//! The critical path: the chain of operations that ended last.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;

use super::device::{Devices, Engine};
use super::thread::{Thread, Threads};
use crate::lookup::{Lookup, ran};
use gpustream_timeline::{Nanos, Operation, SpanKind, Timeline};

/// The chain of operations that ended last. Each step is the one that the next had to come after. If you want
/// the whole run to end sooner, you must make something on this path shorter.
///
/// We follow the chain backwards from the operation that ended last. Usually, the step before an operation is
/// whichever ended last among the previous operation on its stream and the operations on other streams that
/// it waited for. There are two exceptions. If the operation was submitted later than that, the step before
/// is the operation that the submitting thread had last waited for. If a copy was ready but its engine was
/// busy, the step before is the copy that the engine finished last.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Path {
    /// The operations, first to last.
    pub steps: Vec<PathStep>,
    /// From the first thing on the first step's thread to the last step's end. It is the sum of the next
    /// three fields.
    pub time: Nanos,
    /// The sum of the steps' `ran`.
    pub running: Nanos,
    /// The sum of the steps' `waited` before operations that were submitted late.
    pub host: Nanos,
    /// The sum of the other steps' `waited`: the time that devices took between operations.
    pub device: Nanos,
    /// The steps' `ran` by label, longest first.
    pub labels: Vec<PathLabel>,
}

/// An operation on the critical path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathStep {
    /// The operation's index in [`Timeline::operations`].
    pub operation: usize,
    /// Why the operation could not start earlier.
    pub link: Link,
    /// From the end of the step before to the operation's start. For the first step, from the first thing on
    /// its thread.
    pub waited: Nanos,
    /// How long the operation ran. If the step before ended later than this one started, we count from there.
    pub ran: Nanos,
}

/// Why an operation on the critical path could not start earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Link {
    /// The host submitted it only then. The step before, if there is one, is what the thread had waited for.
    Host,
    /// The step before is the previous operation on its stream.
    Stream,
    /// The step before is an operation on another stream that it waited for.
    After,
    /// The step before is a copy that kept its engine busy.
    Engine,
}

/// How much of the critical path belongs to operations with one label.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PathLabel {
    /// The label.
    pub label: Cow<'static, str>,
    /// Their engine, if they have one.
    pub engine: Option<Engine>,
    /// How many steps there are.
    pub count: u64,
    /// The sum of their `ran`.
    pub time: Nanos,
}

pub(crate) fn path(timeline: &Timeline, lookup: &Lookup<'_>, threads: &Threads, devices: &Devices) -> Path {
    let search = Search { timeline, lookup, threads, devices };
    let timed = timeline.operations.iter().enumerate().filter_map(|(at, one)| Some((key(at, one)?, at)));
    let mut next = timed.max().map(|(_, at)| at);
    let mut path = Path::default();
    while let Some((at, operation)) = next.and_then(|at| Some((at, timeline.operations.get(at)?))) {
        let (link, before) = search.before(at, operation);
        let Some(ran_at) = ran(operation) else { break };
        let from = match before.and_then(|at| ran(timeline.operations.get(at)?)) {
            Some(before) => before.end,
            None => threads.get(operation.thread).map_or(ran_at.start, Thread::start).min(ran_at.start),
        };
        let waited = ran_at.start.saturating_sub(from);
        let ran = ran_at.end.saturating_sub(ran_at.start.max(from));
        path.steps.push(PathStep { operation: at, link, waited, ran });
        path.running = path.running.saturating_add(ran);
        let idle = if link == Link::Host { &mut path.host } else { &mut path.device };
        *idle = idle.saturating_add(waited);
        next = before;
    }
    path.steps.reverse();
    path.time = path.running.saturating_add(path.host).saturating_add(path.device);
    path.labels = labels(timeline, &path.steps);
    path
}

/// Orders the steps: each step's key must be less than the next one's. So the search ends, even if a file
/// claims that operations wait for each other.
type Key = (Nanos, Nanos, usize);

fn key(at: usize, operation: &Operation) -> Option<Key> {
    ran(operation).map(|ran| (ran.end, ran.start, at))
}

struct Search<'a> {
    timeline: &'a Timeline,
    lookup: &'a Lookup<'a>,
    threads: &'a Threads,
    devices: &'a Devices,
}

impl Search<'_> {
    /// Returns why an operation could not start earlier, and the step before it.
    fn before(&self, at: usize, operation: &Operation) -> (Link, Option<usize>) {
        let own = key(at, operation);
        let earlier = |before: usize| {
            let key = key(before, self.timeline.operations.get(before)?)?;
            (Some(key) < own).then_some(key)
        };
        let stream = self.lookup.before(at).and_then(earlier).map(|key| (key, Link::Stream));
        let after = operation.after.iter().filter_map(|point| self.lookup.operation(*point));
        let after = after.filter_map(earlier).map(|key| (key, Link::After));
        let last = after.chain(stream).max_by_key(|(key, _)| *key);
        let ready = last.map_or(0, |((end, ..), _)| end).max(operation.submitted.end);
        if let Some(at) = self.kept_busy(operation, ready).filter(|&at| earlier(at).is_some()) {
            return (Link::Engine, Some(at));
        }
        match last {
            Some(((end, _, before), link)) if end >= operation.submitted.end => (link, Some(before)),
            _ => (Link::Host, self.waited_for(operation).filter(|&at| earlier(at).is_some())),
        }
    }

    /// Returns the last copy that kept an engine busy while a `ready` copy waited for it.
    fn kept_busy(&self, operation: &Operation, ready: Nanos) -> Option<usize> {
        // Kernels run at the same time, so the end of one need not be what another was waiting for.
        let is_copy = |engine: &Engine| matches!(engine, Engine::Up | Engine::Down | Engine::Inside);
        let engine = Engine::of(&operation.work).filter(is_copy)?;
        let start = ran(operation)?.start;
        let device = self.lookup.device_of(operation)?;
        (ready < start).then(|| self.devices.kept_busy(device, engine, ready, start))?
    }

    /// Returns the operation that the submitting thread had last waited for.
    fn waited_for(&self, operation: &Operation) -> Option<usize> {
        let waits = &self.threads.get(operation.thread)?.waits;
        let span = self.timeline.spans.get(waits.last_before(operation.submitted.start)?)?;
        match span.kind {
            SpanKind::Wait(Some(point)) => self.lookup.operation(point),
            _ => None,
        }
    }
}

fn labels(timeline: &Timeline, steps: &[PathStep]) -> Vec<PathLabel> {
    let mut labels: HashMap<_, (u64, Nanos)> = HashMap::new();
    for step in steps {
        let Some(operation) = timeline.operations.get(step.operation) else { continue };
        let (count, time) = labels.entry((&operation.label, Engine::of(&operation.work))).or_default();
        *count += 1;
        *time = time.saturating_add(step.ran);
    }
    let mut labels: Vec<_> = labels
        .into_iter()
        .map(|((label, engine), (count, time))| PathLabel { label: label.clone(), engine, count, time })
        .collect();
    labels.sort_by(|a, b| (Reverse(a.time), &a.label, a.engine).cmp(&(Reverse(b.time), &b.label, b.engine)));
    labels
}
