//! Operations as values: one is made by a call of the user's, and goes to a stream.

use std::panic::Location;
use std::sync::Arc;

use gpustream_hal::{self as hal, Error, ErrorKind, Operation, RawStream, Result, Work};

use crate::host_call::RepeatedCall;
use crate::module_core::ModuleCore;
use crate::track::Tracking;

/// The operation of that name at the user's call.
#[track_caller]
pub(crate) fn operation(label: &'static str) -> Operation {
    Operation { label, location: Location::caller() }
}

/// How host access waits for an operation on memory that it reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// For exactly this operation, by an event of its own.
    Alone,
    /// With what is submitted next, which touches the same memory: this operation is the first half of something.
    WithNext,
}

/// The options of a device that matter to each submission.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// None where nobody looks after the order.
    pub(crate) tracking: Option<Tracking>,
    /// Every operation is waited for, so that a fault is reported by the one that caused it.
    pub(crate) blocking: bool,
}

/// One operation on its way to a stream.
pub(crate) struct Submission<'a, I> {
    pub(crate) operation: Operation,
    pub(crate) rules: Rules,
    /// The memory it touches.
    pub(crate) accesses: I,
    pub(crate) call: Call<'a>,
    pub(crate) kept: Kept<'a>,
    pub(crate) waited: Waited,
}

/// What an operation asks of the driver.
pub(crate) enum Call<'a> {
    /// One call, which can also be a node of a graph.
    Work(Work<'a>),
    /// Calls that no node can be made of, in this order.
    Several(&'a mut dyn FnMut(&dyn hal::Device, RawStream) -> Result<()>),
}

impl<'a> Call<'a> {
    /// The work of a node.
    ///
    /// # Errors
    /// [`ErrorKind::Captured`] for what no node can be.
    #[inline]
    pub(crate) fn node(self) -> Result<Work<'a>> {
        match self {
            Self::Work(work) if work.is_node() => Ok(work),
            Self::Work(_) => Err(no_node()),
            Self::Several(_) => {
                Err(refused("make one node of an operation that takes several calls; split it"))
            }
        }
    }

    /// # Safety
    /// The stream is alive and of `device`, and what the calls refer to stays alive until they are done.
    #[inline]
    pub(crate) unsafe fn enqueue(&mut self, device: &dyn hal::Device, stream: RawStream) -> Result<()> {
        match self {
            // SAFETY: handed on.
            Self::Work(work) => unsafe { work.enqueue(device, stream) },
            Self::Several(calls) => calls(device, stream),
        }
    }
}

/// What must live as long as a graph that the operation is recorded into, besides the memory.
#[derive(Clone, Copy)]
pub(crate) enum Kept<'a> {
    Nothing,
    Module(&'a Arc<ModuleCore>),
    Closure(&'a Arc<RepeatedCall>),
}

/// The error for something that cannot be part of a recording.
#[cold]
pub(crate) fn refused(what: &str) -> Error {
    Error::new(ErrorKind::Captured, format!("a capture is being recorded, and one cannot {what}"))
}

/// The error for something that is no single node.
#[cold]
pub(crate) fn no_node() -> Error {
    refused("do that in a node of a graph; nodes are kernels, copies, fills and host closures")
}

/// The error for two operations that conflict and that the user did not order.
#[cold]
pub(crate) fn hazard(new: Operation, old: Operation) -> Error {
    let message = format!(
        "{new} touches memory that {old} used last on another stream, and nothing orders the two; record an event \
         after the earlier one and make this stream wait for it (`let e = a.record()?; b.wait(&e)?`), or use \
         Tracking::Auto"
    );
    Error::new(ErrorKind::Hazard, message).with_operation(new)
}
