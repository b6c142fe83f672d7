//! One rank's communicator: whole until something breaks it, and called by one thread at a time.
//!
//! Each rank has two communicators of NCCL's. A non-blocking one can be ended at any time, but NCCL starts a thread for each of
//! its calls, which makes a call ten times as long. A blocking one has short calls, but a call waits for a lost rank for ever.
//! So the ranks meet by a non-blocking communicator, and the calls go to a blocking one that is split from it. The two are one
//! family: an abort of the first makes a waiting call of the second return.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::Duration;

use gpustream::hal::driver::{Answer, DriverFunction, Status};
use gpustream::hal::thread::with_signals_blocked;
use gpustream::interop::ExitHold;
use gpustream::{Error, ErrorKind, Result};

use super::api::{Api, IN_PROGRESS, ncclComm_t};
use crate::call::Signature;
use crate::deadline::{Deadline, Pauses};
use crate::failure::CommunicatorFailure;

/// The name of the library for the end of the process.
pub(super) const LIBRARY: &str = "NCCL";

/// A communicator of NCCL's.
pub(super) struct Comm {
    pub(super) api: &'static Api,
    pub(super) rank: usize,
    pub(super) size: usize,
    /// The time that a call, or the work of one, may take.
    pub(super) limit: Duration,
    /// The last call that was recorded into a graph, if there was one.
    recorded: Mutex<Option<Signature>>,
    condition: Mutex<CommCondition>,
    /// The non-blocking communicator. It is locked also while a call holds `condition`.
    family: Mutex<Family>,
}

/// NCCL's handle, which any thread may use that holds the lock around it.
#[derive(Clone, Copy)]
pub(super) struct Handle(pub(super) ncclComm_t);

// SAFETY: NCCL binds a communicator to no thread, and asks for calls one after the other.
unsafe impl Send for Handle {}

/// The two communicators of NCCL's.
#[derive(Clone, Copy)]
pub(super) struct Handles {
    /// The non-blocking one.
    pub(super) family: Handle,
    /// The blocking one.
    pub(super) calls: Handle,
}

enum Family {
    There(Handle),
    /// Aborted, so that a call returned.
    Interrupted(CommunicatorFailure),
    /// Ended with the other one.
    Ended,
}

/// The condition of the blocking communicator.
enum CommCondition {
    Whole(Handle),
    /// No call succeeds any more, and the work that was enqueued goes on.
    Refusing(Handle, CommunicatorFailure),
    /// The handle is gone: no call succeeds from here on.
    Broken(CommunicatorFailure),
}

/// The communicator, held so that nobody else calls it.
pub(super) struct LockedComm<'a> {
    pub(super) comm: &'a Comm,
    condition: MutexGuard<'a, CommCondition>,
}

impl CommCondition {
    /// Returns the handle until it is gone.
    fn handle(&self) -> Option<Handle> {
        match self {
            Self::Whole(handle) | Self::Refusing(handle, _) => Some(*handle),
            Self::Broken(_) => None,
        }
    }
}

impl Comm {
    pub(super) fn new(
        api: &'static Api,
        (rank, size): (usize, usize),
        Handles { family, calls }: Handles,
        limit: Duration,
    ) -> Self {
        let (condition, family) =
            (Mutex::new(CommCondition::Whole(calls)), Mutex::new(Family::There(family)));
        Self { api, rank, size, limit, recorded: Mutex::new(None), condition, family }
    }

    /// Notes that a call is recorded into a graph.
    pub(super) fn record(&self, call: Signature) {
        *self.recorded.lock().unwrap_or_else(PoisonError::into_inner) = Some(call);
    }

    /// Returns the last call that was recorded into a graph.
    pub(super) fn recorded(&self) -> Option<Signature> {
        *self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the communicator for some calls.
    pub(super) fn hold(&self) -> LockedComm<'_> {
        LockedComm { comm: self, condition: self.condition.lock().unwrap_or_else(PoisonError::into_inner) }
    }

    /// Breaks the communicator, unless it is broken, and ends its work on the device, and the call of another thread.
    pub(super) fn break_up(&self, broken: CommunicatorFailure) {
        let mut held = self.try_hold().unwrap_or_else(|| {
            self.interrupt(broken.clone());
            self.hold()
        });
        held.break_up(broken);
    }

    /// Has a call return that another thread is in.
    fn interrupt(&self, broken: CommunicatorFailure) {
        let mut family = self.family();
        if let Family::There(handle) = *family {
            *family = Family::Interrupted(broken);
            abort(self.api, handle);
        }
    }

    /// Returns the reason why the communicator is of no use, if that is known: a call may go on meanwhile.
    pub(super) fn check(&self) -> Result<()> {
        self.try_hold().map_or(Ok(()), |held| held.handle().map(|_| ()))
    }

    /// Asks whether the communicator has failed, and returns the reason; `call` is the one whose work is pending. A call that
    /// goes on meanwhile hears of a failure itself.
    pub(super) fn failure(&self, call: Signature) -> Option<CommunicatorFailure> {
        let held = self.try_hold()?;
        match &*held.condition {
            CommCondition::Broken(broken) => Some(broken.clone()),
            CommCondition::Whole(handle) | CommCondition::Refusing(handle, _) => {
                let error = progress(self.api, *handle).err()?;
                Some(CommunicatorFailure::Failed { call: call.to_string(), message: error.to_string() })
            }
        }
    }

    /// Ends the communicator, whose work on this rank's device is done.
    pub(super) fn close(&self) {
        let mut held = self.hold();
        let Some(calls) = held.condition.handle() else { return };
        let ended = CommunicatorFailure::Aborted { rank: self.rank };
        if self.close_one(calls).is_err() {
            return held.break_up(ended);
        }
        *held.condition = CommCondition::Broken(ended);
        if let Some(family) = self.take_family()
            && self.close_one(family).is_err()
        {
            abort(self.api, family);
        }
    }

    /// Ends one of NCCL's communicators.
    fn close_one(&self, handle: Handle) -> Result<()> {
        // SAFETY: the handle is alive.
        started(unsafe { self.api.ncclCommFinalize(handle.0) })?;
        settle(self.api, &[handle], self.limit)?;
        // SAFETY: the handle is alive, and nobody has it from here on.
        let _ = unsafe { self.api.ncclCommDestroy(handle.0) };
        Ok(())
    }

    /// Takes the communicator unless another thread has it.
    fn try_hold(&self) -> Option<LockedComm<'_>> {
        let condition = match self.condition.try_lock() {
            Ok(condition) => condition,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(LockedComm { comm: self, condition })
    }

    /// Aborts the communicators of NCCL's, which nobody has from here on.
    fn abort(&self, handles: impl Iterator<Item = Handle> + Send + 'static) {
        let api = self.api;
        let abort_all = move || handles.for_each(|handle| abort(api, handle));
        if self.recorded().is_none() {
            return abort_all();
        }
        // NCCL ends the work at once, and waits then until no graph contains calls. Without a thread the communicators
        // stay as they are.
        let thread = thread::Builder::new().name("gpustream-nccl".into());
        let run = move || {
            let Some(_hold) = ExitHold::of(LIBRARY) else { return };
            abort_all();
        };
        let _ = with_signals_blocked(|| thread.spawn(run));
    }

    fn family(&self) -> MutexGuard<'_, Family> {
        self.family.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the non-blocking communicator, which the caller ends.
    fn take_family(&self) -> Option<Handle> {
        let mut family = self.family();
        let Family::There(handle) = *family else { return None };
        *family = Family::Ended;
        Some(handle)
    }
}

impl LockedComm<'_> {
    /// Returns NCCL's handle.
    ///
    /// # Errors
    /// The reason why the communicator is of no use.
    pub(super) fn handle(&self) -> Result<Handle> {
        match &*self.condition {
            CommCondition::Whole(handle) => Ok(*handle),
            CommCondition::Refusing(_, broken) | CommCondition::Broken(broken) => {
                Err(Error::external(broken.clone()))
            }
        }
    }

    /// Blocks until NCCL has done its work in the background. There is none, unless `NCCL_COMM_BLOCKING=0` makes all
    /// communicators non-blocking ones.
    ///
    /// # Errors
    /// NCCL's error; [`CommunicatorFailure::Stalled`] after the time limit.
    pub(super) fn settle(&self) -> Result<()> {
        let handle = self.handle()?;
        settle(self.comm.api, &[handle], self.comm.limit)
    }

    /// Lets no call succeed any more, for that reason.
    pub(super) fn refuse(&mut self, broken: CommunicatorFailure) {
        if let CommCondition::Whole(handle) = *self.condition {
            *self.condition = CommCondition::Refusing(handle, broken);
        }
    }

    /// Breaks the communicator, unless it is broken.
    pub(super) fn break_up(&mut self, broken: CommunicatorFailure) {
        if let Some(handle) = self.condition.handle() {
            *self.condition = CommCondition::Broken(broken);
            self.comm.abort([handle].into_iter().chain(self.comm.take_family()));
        }
    }

    /// Returns the reason for which another thread had the call return.
    pub(super) fn interrupted(&self) -> Option<CommunicatorFailure> {
        match &*self.comm.family() {
            Family::Interrupted(broken) => Some(broken.clone()),
            _ => None,
        }
    }

    /// Returns the reason for which an error of NCCL's breaks the communicator; `None` for an error that is about a call's
    /// arguments alone.
    pub(super) fn reason(&self, call: impl fmt::Display, error: &Error) -> Option<CommunicatorFailure> {
        match &*self.condition {
            CommCondition::Refusing(_, broken) | CommCondition::Broken(broken) => Some(broken.clone()),
            CommCondition::Whole(_)
                if matches!(
                    error.kind(),
                    ErrorKind::InvalidArgument | ErrorKind::Captured | ErrorKind::NotANode
                ) =>
            {
                None
            }
            CommCondition::Whole(_) => Some(match broken_by(error) {
                Some(CommunicatorFailure::Stalled { limit, .. }) => {
                    CommunicatorFailure::Stalled { call: call.to_string(), limit: *limit }
                }
                Some(broken) => broken.clone(),
                None => CommunicatorFailure::Failed { call: call.to_string(), message: error.to_string() },
            }),
        }
    }
}

/// Aborts a communicator of NCCL's, which nobody has from here on.
pub(super) fn abort(api: &Api, handle: Handle) {
    // SAFETY: the handle is alive.
    let _ = unsafe { api.ncclCommAbort(handle.0) };
}

/// Returns the reason that an error carries.
fn broken_by(error: &Error) -> Option<&CommunicatorFailure> {
    std::error::Error::source(error)?.downcast_ref()
}

/// Returns whether NCCL took a call, which may go on in the background.
pub(super) fn started(answer: Answer<'_, Api>) -> Result<()> {
    if answer.status == Some(IN_PROGRESS) { Ok(()) } else { answer.ok() }
}

/// Makes calls in a group, which is ended in any case. Returns whether NCCL goes on with them in the background.
pub(super) fn grouped(api: &Api, calls: impl FnOnce() -> Result<()>) -> Result<bool> {
    // SAFETY: a group takes nothing.
    unsafe { api.ncclGroupStart() }.ok()?;
    let made = calls();
    // SAFETY: the group was begun.
    let ended = unsafe { api.ncclGroupEnd() };
    let goes_on = ended.status == Some(IN_PROGRESS);
    made.and(started(ended)).map(|()| goes_on)
}

/// Blocks until NCCL does nothing in the background for these communicators.
///
/// # Errors
/// NCCL's error; [`CommunicatorFailure::Stalled`] after the time limit.
pub(super) fn settle(api: &'static Api, handles: &[Handle], limit: Duration) -> Result<()> {
    let deadline = Deadline::after(limit);
    let mut pauses = Pauses::new(Duration::from_micros(1), Duration::from_millis(1));
    for &handle in handles {
        while !progress(api, handle)? {
            if deadline.has_passed() {
                return Err(Error::external(CommunicatorFailure::Stalled {
                    call: "connecting the ranks".into(),
                    limit,
                }));
            }
            pauses.pause(deadline);
        }
    }
    Ok(())
}

/// Asks whether NCCL has done what it began for a communicator.
fn progress(api: &'static Api, handle: Handle) -> Result<bool> {
    let mut state = Status::SUCCESS;
    // SAFETY: the handle is alive, and the pointer is to a local.
    unsafe { api.ncclCommGetAsyncError(handle.0, &raw mut state) }.ok()?;
    match state {
        Status::SUCCESS => Ok(true),
        IN_PROGRESS => Ok(false),
        // The error of a call that answered so.
        failed => {
            let function = &DriverFunction { name: "ncclCommGetAsyncError", since: "2.4" };
            Answer { api, function, status: Some(failed) }.ok().map(|()| true)
        }
    }
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, size, limit, .. } = self;
        f.debug_struct("Comm")
            .field("rank", rank)
            .field("size", size)
            .field("limit", limit)
            .finish_non_exhaustive()
    }
}
