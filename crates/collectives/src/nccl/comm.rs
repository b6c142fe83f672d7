//! The communicator of one rank. It works until something breaks it, and only one thread may call it at a
//! time.
//!
//! Each rank has two NCCL communicators. A non-blocking one can be ended at any time, but NCCL starts a
//! thread for each of its calls, which makes a call ten times as expensive. A blocking one has cheap calls,
//! but if a rank is lost, a call waits forever. So we connect the ranks with a non-blocking communicator, and
//! make the calls on a blocking one that is split from it. The two belong to one family: if we abort the
//! first, a call that waits in the second returns.

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

/// The library's name, for messages at the end of the process.
pub(super) const LIBRARY: &str = "NCCL";

/// The two NCCL communicators of a rank.
pub(super) struct Comm {
    pub(super) api: &'static Api,
    pub(super) rank: usize,
    pub(super) size: usize,
    /// How long a call, or its work, may take.
    pub(super) limit: Duration,
    /// The last call that was recorded into a graph, if any.
    recorded: Mutex<Option<Signature>>,
    condition: Mutex<CommCondition>,
    /// The non-blocking communicator. It has its own lock, so that another thread can end it while a call
    /// holds `condition`.
    family: Mutex<Family>,
}

/// NCCL's handle. Any thread may use it while it holds the lock around it.
#[derive(Clone, Copy)]
pub(super) struct Handle(pub(super) ncclComm_t);

// SAFETY: NCCL does not bind a communicator to a thread. It only requires that calls do not overlap.
unsafe impl Send for Handle {}

/// The two NCCL communicators.
#[derive(Clone, Copy)]
pub(super) struct Handles {
    /// The non-blocking one.
    pub(super) family: Handle,
    /// The blocking one.
    pub(super) calls: Handle,
}

enum Family {
    There(Handle),
    /// Aborted, to make a call return.
    Interrupted(CommunicatorFailure),
    /// Ended together with the other one.
    Ended,
}

/// The state of the blocking communicator.
enum CommCondition {
    Whole(Handle),
    /// No more calls can succeed, but work that is already enqueued continues.
    Refusing(Handle, CommunicatorFailure),
    /// The handle is gone, so no more calls succeed.
    Broken(CommunicatorFailure),
}

/// The communicator, locked so that no other thread can call it.
pub(super) struct LockedComm<'a> {
    pub(super) comm: &'a Comm,
    condition: MutexGuard<'a, CommCondition>,
}

impl CommCondition {
    /// Returns the handle unless it is gone.
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

    /// Records that a call was recorded into a graph.
    pub(super) fn record(&self, call: Signature) {
        *self.recorded.lock().unwrap_or_else(PoisonError::into_inner) = Some(call);
    }

    /// Returns the last call that was recorded into a graph.
    pub(super) fn recorded(&self) -> Option<Signature> {
        *self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the communicator for some calls.
    pub(super) fn hold(&self) -> LockedComm<'_> {
        LockedComm { comm: self, condition: self.condition.lock().unwrap_or_else(PoisonError::into_inner) }
    }

    /// Breaks the communicator, unless it is already broken. Ends its work on the device, and a call that
    /// another thread is in.
    pub(super) fn break_up(&self, broken: CommunicatorFailure) {
        let mut held = self.try_hold().unwrap_or_else(|| {
            self.interrupt(broken.clone());
            self.hold()
        });
        held.break_up(broken);
    }

    /// Makes a call return that another thread is in.
    fn interrupt(&self, broken: CommunicatorFailure) {
        let mut family = self.family();
        if let Family::There(handle) = *family {
            *family = Family::Interrupted(broken);
            abort(self.api, handle);
        }
    }

    /// Returns why the communicator is unusable, if we know. If a call is in progress, we do not.
    pub(super) fn check(&self) -> Result<()> {
        self.try_hold().map_or(Ok(()), |held| held.handle().map(|_| ()))
    }

    /// Asks NCCL whether the communicator has failed, and returns the reason. `call` is the call whose work
    /// is pending. If a call is in progress, we do not ask, because that call will notice the failure itself.
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

    /// Closes the communicator. Its work on this rank's device must be done.
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

    /// Closes one NCCL communicator.
    fn close_one(&self, handle: Handle) -> Result<()> {
        // SAFETY: the handle is alive.
        started(unsafe { self.api.ncclCommFinalize(handle.0) })?;
        settle(self.api, &[handle], self.limit)?;
        // SAFETY: the handle is alive, and is not used again.
        let _ = unsafe { self.api.ncclCommDestroy(handle.0) };
        Ok(())
    }

    /// Locks the communicator, unless another thread holds it.
    fn try_hold(&self) -> Option<LockedComm<'_>> {
        let condition = match self.condition.try_lock() {
            Ok(condition) => condition,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(LockedComm { comm: self, condition })
    }

    /// Aborts NCCL communicators. You must not use them again.
    fn abort(&self, handles: impl Iterator<Item = Handle> + Send + 'static) {
        let api = self.api;
        let abort_all = move || handles.for_each(|handle| abort(api, handle));
        if self.recorded().is_none() {
            return abort_all();
        }
        // NCCL ends the work at once, but then waits until no graph contains calls. So another thread must
        // wait. If it cannot be started, we leave the communicators as they are.
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

    /// Takes out the non-blocking communicator. The caller must end it.
    fn take_family(&self) -> Option<Handle> {
        let mut family = self.family();
        let Family::There(handle) = *family else { return None };
        *family = Family::Ended;
        Some(handle)
    }
}

impl LockedComm<'_> {
    /// # Errors
    /// Why the communicator is unusable.
    pub(super) fn handle(&self) -> Result<Handle> {
        match &*self.condition {
            CommCondition::Whole(handle) => Ok(*handle),
            CommCondition::Refusing(_, broken) | CommCondition::Broken(broken) => {
                Err(Error::external(broken.clone()))
            }
        }
    }

    /// Blocks until NCCL has finished its background work. Usually there is none, but `NCCL_COMM_BLOCKING=0`
    /// makes all communicators non-blocking.
    ///
    /// # Errors
    /// NCCL's error, or [`CommunicatorFailure::Stalled`] after the time limit.
    pub(super) fn settle(&self) -> Result<()> {
        let handle = self.handle()?;
        settle(self.comm.api, &[handle], self.comm.limit)
    }

    /// Makes all later calls fail for this reason.
    pub(super) fn refuse(&mut self, broken: CommunicatorFailure) {
        if let CommCondition::Whole(handle) = *self.condition {
            *self.condition = CommCondition::Refusing(handle, broken);
        }
    }

    /// Breaks the communicator, unless it is already broken.
    pub(super) fn break_up(&mut self, broken: CommunicatorFailure) {
        if let Some(handle) = self.condition.handle() {
            *self.condition = CommCondition::Broken(broken);
            self.comm.abort([handle].into_iter().chain(self.comm.take_family()));
        }
    }

    /// If another thread made the call return, returns its reason.
    pub(super) fn interrupted(&self) -> Option<CommunicatorFailure> {
        match &*self.comm.family() {
            Family::Interrupted(broken) => Some(broken.clone()),
            _ => None,
        }
    }

    /// Returns the reason if an NCCL error breaks the communicator. Returns `None` if the error only concerns
    /// a call's arguments.
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

/// Aborts an NCCL communicator. You must not use it again.
pub(super) fn abort(api: &Api, handle: Handle) {
    // SAFETY: the handle is alive, and is not used again.
    let _ = unsafe { api.ncclCommAbort(handle.0) };
}

/// Returns the failure that an error carries.
fn broken_by(error: &Error) -> Option<&CommunicatorFailure> {
    std::error::Error::source(error)?.downcast_ref()
}

/// Returns whether NCCL accepted a call. The call may continue in the background.
pub(super) fn started(answer: Answer<'_, Api>) -> Result<()> {
    if answer.status == Some(IN_PROGRESS) { Ok(()) } else { answer.ok() }
}

/// Makes calls in a group, and ends the group in any case. Returns true if NCCL continues in the background.
pub(super) fn grouped(api: &Api, calls: impl FnOnce() -> Result<()>) -> Result<bool> {
    // SAFETY: a group takes nothing.
    unsafe { api.ncclGroupStart() }.ok()?;
    let made = calls();
    // SAFETY: the group was begun.
    let ended = unsafe { api.ncclGroupEnd() };
    let goes_on = ended.status == Some(IN_PROGRESS);
    made.and(started(ended)).map(|()| goes_on)
}

/// Blocks until NCCL has finished its background work for these communicators.
///
/// # Errors
/// NCCL's error, or [`CommunicatorFailure::Stalled`] after the time limit.
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

/// Returns true if NCCL has finished what it began for a communicator.
fn progress(api: &'static Api, handle: Handle) -> Result<bool> {
    let mut state = Status::SUCCESS;
    // SAFETY: the handle is alive, and the pointer is to a local.
    unsafe { api.ncclCommGetAsyncError(handle.0, &raw mut state) }.ok()?;
    match state {
        Status::SUCCESS => Ok(true),
        IN_PROGRESS => Ok(false),
        // The error of a call that has failed in the background.
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
