//! The places where a stream's operations can go.

use std::sync::Arc;

use gpustream_hal::{Error, ErrorKind, LaunchConfig, RawStream, Result};

use super::capture::Capture;
use super::{StreamCore, StreamEntry};
use crate::operation::{Argument, KernelLaunch, Operation};
use crate::record::scope::Scope;
use crate::record::{Condition, NodeAdder, NodeSetter};
use crate::track::Point;

/// Where a stream's operations go. A stream has the same destination all its life.
pub struct Destination(DestinationKind);

enum DestinationKind {
    /// To the driver's stream, or into the capture that the stream takes part in.
    Driver,
    /// Into a new node.
    Node(Arc<NodeAdder>),
    /// Into a node of an executable.
    Set(Arc<NodeSetter>),
}

/// The recording that a stream takes part in. Only changed under the stream's lock.
#[derive(Default)]
pub(crate) enum Recording {
    /// None: operations run.
    #[default]
    None,
    /// A driver's capture, with the handle that the driver captures: the stream's own, or its proxy's. We set this together
    /// with the driver's state, but clear it after the driver's. Until then, only calls of the capturing thread reach the
    /// driver.
    Capture(Arc<Capture>, RawStream),
    /// A node under construction. The driver has no such stream, so operations cannot run here.
    Node,
}

impl StreamCore {
    /// Returns true if an operation of this thread goes into a recording, and false if it runs.
    ///
    /// # Errors
    /// [`ErrorKind::Captured`] if another thread captures the stream.
    pub fn is_recorded_here(&self) -> Result<bool> {
        // Only the capturing thread can end its capture, so the answer stays true as long as this thread goes on.
        match self.state.lock().recording() {
            Recording::None => Ok(false),
            Recording::Node => Ok(true),
            Recording::Capture(capture, _) => capture.check_thread().map(|()| true),
        }
    }
}

impl Destination {
    pub(super) const DRIVER: Self = Self(DestinationKind::Driver);

    /// The destination of a stream that stands for new nodes.
    pub fn node(adder: Arc<NodeAdder>) -> Self {
        Self(DestinationKind::Node(adder))
    }

    /// The destination of a stream that stands for a node of an executable.
    pub fn set(setter: Arc<NodeSetter>) -> Self {
        Self(DestinationKind::Set(setter))
    }

    #[inline]
    pub(super) fn is_driver(&self) -> bool {
        matches!(self.0, DestinationKind::Driver)
    }
}

impl StreamEntry<'_> {
    /// Puts one operation where it belongs, if [`begin`](Self::begin) has returned `None` for it.
    ///
    /// # Errors
    /// Those of [`submit`](Self::submit).
    ///
    /// # Safety
    /// As for [`submit`](Self::submit).
    #[inline(never)]
    pub unsafe fn submit_elsewhere(&self, submission: &mut Operation<'_>) -> Result<()> {
        // SAFETY: handed on, to each destination.
        self.named(unsafe {
            match &self.stream.destination.0 {
                DestinationKind::Driver => self.submit_otherwise(submission),
                DestinationKind::Node(adder) => adder.submit(submission),
                DestinationKind::Set(setter) => setter.submit(submission),
            }
        })
    }

    /// If the stream is captured, puts the operation into the capture. If a step is running, offers the operation to the
    /// step. Otherwise, for example if a trace is on, gives it to the driver. Errors do not name the operation yet.
    ///
    /// # Safety
    /// As for [`submit`](Self::submit).
    unsafe fn submit_otherwise(&self, submission: &mut Operation<'_>) -> Result<()> {
        let state = self.stream.state.lock();
        let Recording::Capture(capture, _) = &state.recording else {
            // SAFETY: handed on.
            return unsafe { self.submit_unexpected(state, submission) };
        };
        let capture = capture.clone();
        drop(state);
        // Only the capturing thread gets past here, and only that thread can end the capture.
        // SAFETY: handed on.
        unsafe { capture.submit(self.stream, submission) }
    }

    /// Records a conditional node. We call `fill` with an adder, and it puts the body there.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the stream is not captured and does not stand for a node or body.
    ///
    /// # Safety
    /// As for [`submit`](Self::submit), for the word and for each operation of the body.
    pub unsafe fn condition(
        &self,
        condition: &Condition<'_>,
        fill: impl FnOnce(&Arc<NodeAdder>) -> Result<()>,
    ) -> Result<()> {
        // SAFETY: handed on, to each destination.
        self.named(unsafe {
            match &self.stream.destination.0 {
                DestinationKind::Driver => match self.stream.capture() {
                    Some(capture) => capture.condition(self, condition, fill),
                    None => Err(no_graph()),
                },
                DestinationKind::Node(adder) => adder.condition(&self.caller, condition, fill),
                DestinationKind::Set(_) => Err(no_graph()),
            }
        })
    }

    /// If a step expects exactly this launch and only this stream has used its memory, lets the step defer it. If a node
    /// expects it, lets the node take it. Returns `None` for any other launch; then you must check it and
    /// [submit](Self::submit) it. The expected launch needs no checks, because it equals a launch that had them. If a step
    /// gets another shape, we call `resolved`.
    ///
    /// # Safety
    /// `shown` returns an argument as what it is, with bytes that can be read, or `None` if it does not belong to the
    /// stream's device. `resolved` returns the launch's shape, if the kernel takes it. Neither may call the driver or wait.
    /// Otherwise as for [`submit`](Self::submit).
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the path of an operation that is held back")]
    pub unsafe fn follow<'a, A>(
        &self,
        launch: &KernelLaunch<'a, A>,
        shown: impl Fn(&'a A) -> Option<Argument<'a>>,
        resolved: impl Fn() -> Option<LaunchConfig>,
    ) -> Option<Result<()>> {
        // SAFETY: handed on, to each destination.
        unsafe {
            match &self.stream.destination.0 {
                DestinationKind::Driver => self.follow_step(launch, shown, resolved),
                DestinationKind::Node(_) => None,
                DestinationKind::Set(setter) => setter.follow(launch, shown),
            }
        }
    }

    /// Calls `work` with the tracker of the recording that the stream's allocations belong to, and a closure that tells
    /// which of its points come before the stream's next operation. Returns `None` if operations run, or go into a node of
    /// an executable.
    ///
    /// # Errors
    /// [`ErrorKind::Captured`] if another thread captures the stream.
    pub(crate) fn in_scope<T>(
        &self,
        work: impl FnOnce(&mut Scope, &dyn Fn(Point) -> bool) -> T,
    ) -> Result<Option<T>> {
        match &self.stream.destination.0 {
            // Only the capturing thread gets past here, and only that thread can end the capture.
            DestinationKind::Driver => {
                self.stream.capture().map(|capture| capture.in_scope(self.stream, work)).transpose()
            }
            DestinationKind::Node(adder) => Ok(Some(adder.in_scope(work))),
            DestinationKind::Set(_) => Ok(None),
        }
    }
}

impl StreamCore {
    /// Returns true if a launch may be the one that a step or a node expects: see [`follow`](StreamEntry::follow).
    #[inline]
    pub fn expects_a_launch(&self) -> bool {
        self.is_in_step() || matches!(self.destination.0, DestinationKind::Set(_))
    }

    /// Returns true if an operation may consist of several driver calls.
    pub fn takes_several_calls(&self) -> bool {
        self.destination.is_driver()
    }
}

/// Returns the error for a condition outside a graph.
#[cold]
fn no_graph() -> Error {
    Error::new(
        ErrorKind::InvalidArgument,
        "a condition is part of a graph, but nothing records this stream; use the stream that your closure got",
    )
}
