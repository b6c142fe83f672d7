//! Operations as values: each call makes one and hands it to a stream.

use std::panic::Location;
use std::sync::Arc;

use gpustream_hal::{
    self as hal, CallSite, Copy1d, CopyDirection, Error, ErrorKind, RawFunction, RawStream, Result, Work,
    WorkKind,
};

use crate::host_call::RepeatedCall;
use crate::launch::LaunchRequest;
use crate::memory::{self, Access};
use crate::module_core::ModuleCore;
use crate::reentrancy::{OutsideClosures, run_external};
use crate::trace;
use crate::track::Tracking;

/// Returns a call site with that name, at the caller's line.
#[track_caller]
pub fn call_site(label: &'static str) -> CallSite {
    CallSite { label, location: Location::caller() }
}

/// Runs `work`. If it fails, the error names this call.
///
/// # Errors
/// The error of `work`.
#[inline]
pub fn named<T>(call_site: CallSite, work: impl FnOnce() -> Result<T>) -> Result<T> {
    work().map_err(|error| error.with_call_site(call_site))
}

/// Runs `work`, which calls our own public interface. Traces show its operations and waits at this call's line. If it fails,
/// the error names this call instead of the inner ones.
///
/// # Errors
/// The error of `work`.
#[inline]
pub fn on_behalf<T>(call_site: CallSite, work: impl FnOnce() -> Result<T>) -> Result<T> {
    trace::on_behalf(call_site.location, work).map_err(|error| error.at_call_site(call_site))
}

/// How the host waits for an operation when it wants to touch the same memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostWait {
    /// It waits for exactly this operation, which gets its own event.
    Alone,
    /// It may also wait for a few short copies that come right after, because this is one itself: they share an event.
    WithShortCopies,
    /// It waits for the next submission, which touches the same memory, because this operation is the first half of a pair.
    WithNext,
}

/// The device's options that matter for each submission.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Who orders operations. `None` if there is no tracking.
    pub tracking: Option<Tracking>,
    /// If true, we wait for every operation, so that a fault is reported by the operation that caused it.
    pub(crate) blocking: bool,
}

/// One of your calls to the library, and what holds for everything that it submits.
#[derive(Clone, Copy)]
pub struct Caller {
    /// The name and line of your call.
    pub call_site: CallSite,
    pub rules: Rules,
    pub outside: OutsideClosures,
}

/// One operation on its way to a stream.
pub struct Operation<'a> {
    pub caller: &'a Caller,
    /// The memory that the operation touches.
    pub accesses: &'a [&'a Access<'a>],
    pub call: DriverCalls<'a>,
    pub kept: Retained<'a>,
    pub waited: HostWait,
}

impl<'a> Operation<'a> {
    /// Makes an operation that keeps only its memory alive, and that the host waits for alone.
    #[inline]
    pub fn new(caller: &'a Caller, accesses: &'a [&'a Access<'a>], call: DriverCalls<'a>) -> Self {
        Self { caller, accesses, call, kept: Retained::Nothing, waited: HostWait::Alone }
    }
}

/// A kernel launch on its way to a stream. So far we have only checked that the kernel belongs to the stream's device.
pub struct KernelLaunch<'a, A> {
    pub caller: &'a Caller,
    pub function: RawFunction,
    pub request: &'a LaunchRequest,
    /// The arguments. They can be of any type that we can show as an [`Argument`].
    pub args: &'a [A],
}

/// One argument of a kernel.
pub enum Argument<'a> {
    /// A value of `size` bytes.
    Value { bytes: *const u8, size: usize },
    /// The address of memory that the kernel touches.
    Memory { address: &'a usize, access: &'a Access<'a> },
}

/// What another library's calls do, as their caller names it. Make one for each operation, before you submit it: the operation is
/// compared several times, and must stay the same if memory goes back to a driver meanwhile.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ExternalKey {
    label: &'static str,
    key: u64,
    /// The number that [`memory::returned`] gave. A recording refers to memory by its address, and once memory went back to the
    /// driver, an address may mean other memory.
    returned: u64,
}

impl ExternalKey {
    pub fn new(call_site: CallSite, key: u64) -> Self {
        Self { label: call_site.label, key, returned: memory::returned() }
    }
}

/// The calls that an operation makes to the driver.
pub enum DriverCalls<'a> {
    /// One call; most can also be a node of a graph.
    Work(Work<'a>),
    /// A batch of copies. None of them touches what another one writes. It cannot be a node.
    Batch(&'a [Copy1d]),
    /// Several calls, which a closure makes in its own order. They cannot be a node.
    Several(trace::WorkKind, &'a mut dyn FnMut(&dyn hal::Device, RawStream) -> Result<()>),
    /// Calls of another library on the driver's stream, which your closure makes. They cannot be one node. If there is a key,
    /// then equal keys and accesses mean equal work, so a step need not make the calls again.
    External { calls: &'a mut dyn FnMut(RawStream) -> Result<()>, key: Option<ExternalKey> },
    /// No call: another library makes them on the driver's stream, before or after this operation. It cannot be a node.
    Elsewhere,
}

impl<'a> DriverCalls<'a> {
    /// Returns the work of a node.
    ///
    /// # Errors
    /// [`ErrorKind::NotANode`] for an operation that cannot be a node.
    #[inline]
    pub(crate) fn node(&self) -> Result<&Work<'a>> {
        match self {
            Self::Work(work) if work.is_node() => Ok(work),
            Self::Work(_) => Err(no_node()),
            Self::Batch(_) => Err(not_a_node("make one node of a batch of copies; add a node for each copy")),
            Self::Several(..) => {
                Err(not_a_node("make one node of an operation that takes several driver calls; split it"))
            }
            Self::External { .. } | Self::Elsewhere => Err(not_a_node(
                "make a node of another library's calls that way; pass the calls to `GraphBuilder::external`",
            )),
        }
    }

    /// Returns true if the operation is a kernel whose blocks wait for each other.
    pub(crate) fn is_cooperative(&self) -> bool {
        matches!(self, Self::Work(work) if work.is_cooperative())
    }

    /// Makes the calls on `stream`.
    ///
    /// # Safety
    /// The stream is alive and of `device`, and everything that the calls refer to stays alive until they are done.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the path of a launch")]
    pub(crate) unsafe fn enqueue(&mut self, device: &dyn hal::Device, stream: RawStream) -> Result<()> {
        // We test for this first, because the `match` below goes through a jump table.
        if let Self::Work(Work::Kernel { function, config, args }) = self {
            // SAFETY: by this function's contract.
            return unsafe { device.launch(*function, config, args, stream) };
        }
        match self {
            // SAFETY: by this function's contract.
            Self::Work(work) => unsafe { work.enqueue(device, stream) },
            // SAFETY: by this function's contract.
            Self::Batch(copies) => unsafe { device.copy_batch(copies, stream) },
            Self::Several(_, calls) => calls(device, stream),
            Self::External { calls, .. } => {
                device.enter()?;
                run_external(|| calls(stream))
            }
            Self::Elsewhere => Ok(()),
        }
    }

    /// Returns what a trace says about the operation.
    pub(crate) fn traced(&self) -> trace::WorkKind {
        match self {
            Self::Work(work) => trace::timeline_kind(work.kind()),
            Self::Batch(copies) => {
                let bytes = copies.iter().map(|copy| copy.bytes as u64).sum();
                let direction = copies.first().map_or(CopyDirection::OnDevice, Copy1d::direction);
                trace::timeline_kind(WorkKind::Copy { direction, bytes })
            }
            Self::Several(work, _) => *work,
            Self::External { .. } | Self::Elsewhere => trace::WorkKind::External,
        }
    }

    /// Makes the calls on `stream`, which is being captured. A driver cannot record a batch of copies, so we make single
    /// ones.
    ///
    /// # Safety
    /// As for [`enqueue`](Self::enqueue).
    pub(crate) unsafe fn record(&mut self, device: &dyn hal::Device, stream: RawStream) -> Result<()> {
        // SAFETY: by this function's contract.
        unsafe {
            match self {
                Self::Batch(copies) => hal::copy_each(device, copies, stream),
                call => call.enqueue(device, stream),
            }
        }
    }
}

/// What a graph must keep alive, in addition to the memory, if it records the operation.
#[derive(Clone, Copy)]
pub enum Retained<'a> {
    Nothing,
    /// A kernel's module.
    Kernel {
        module: &'a Arc<ModuleCore>,
        /// How many bytes each parameter has, if we know that.
        sizes: Option<&'a Arc<[usize]>>,
        /// The launch as you asked for it.
        request: &'a LaunchRequest,
    },
    Closure(&'a Arc<RepeatedCall>),
}

/// Returns the error for something that cannot be part of a recording. `what` completes "you cannot …".
#[cold]
pub fn refused(what: &str) -> Error {
    Error::new(ErrorKind::Captured, format!("a capture is being recorded, so you cannot {what}"))
}

/// Returns the error for something that cannot be a node of a graph, or that you cannot do on a stream that stands for one.
/// `what` completes "you cannot …".
#[cold]
pub fn not_a_node(what: &str) -> Error {
    Error::new(ErrorKind::NotANode, format!("a node of a graph is being made or set, so you cannot {what}"))
}

/// Returns the error for a call that cannot be a node.
#[cold]
pub fn no_node() -> Error {
    not_a_node("do this in a node; a node can be a kernel, a copy, a fill or a host closure")
}

/// Returns the error for two operations that conflict, if you order operations yourself and forgot these.
#[cold]
pub(crate) fn hazard(new: CallSite, old: CallSite) -> Error {
    let message = format!(
        "{new} touches memory that {old} used last on another stream, and nothing orders the two. Record an event \
         after the earlier one and make this stream wait for it (`let e = a.record()?; b.wait(&e)?`), or use \
         Tracking::Auto"
    );
    Error::new(ErrorKind::Hazard, message).with_call_site(new)
}
