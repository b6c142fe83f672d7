//! The ranks of one communicator that are in this process.
//!
//! They hear of a failure together. An abort ends NCCL's kernels on one device, and on their way out these give the other ranks
//! whatever they have: another rank's work may then end as if all were well, with wrong data. So a failure is reported to the
//! streams of all ranks here before the first of them aborts.
//!
//! They also meet on the host if each needs a few bytes of the others. With a kernel for that, the device of a rank that is early
//! would be busy until the others come, and some calls of a driver wait until all devices of the process are idle: those by
//! which a rank that is late gets memory, for example. Both would wait for ever.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::api::ncclUniqueId;
use crate::deadline::Deadline;
use crate::failure::CommunicatorFailure;

/// One rank, as a failure finds it.
pub(super) trait LocalRank: Send + Sync {
    /// Reports the failure to the streams of pending and later calls, and ends the communicator soon.
    fn fail(&self, broken: &CommunicatorFailure);
}

pub(super) struct LocalRanks {
    /// The number of ranks, if they are all in this process.
    size: Option<usize>,
    state: Mutex<LocalRanksState>,
    /// Notified when a rank comes to a meeting, and at the first failure.
    changed: Condvar,
}

#[derive(Default)]
struct LocalRanksState {
    members: Vec<Weak<dyn LocalRank>>,
    broken: Option<CommunicatorFailure>,
    /// The meetings that some rank has yet to leave, the oldest first.
    meetings: VecDeque<HostExchange>,
    /// The number of meetings that all ranks have left.
    past: usize,
    /// The number of meetings that each rank has come to.
    come: Vec<usize>,
}

struct HostExchange {
    shown: Vec<Option<Contribution>>,
    /// The number of ranks that have seen what the others show.
    left: usize,
}

/// The value that a rank shows the others at a meeting.
#[derive(Clone)]
pub(super) enum Contribution {
    /// The call that it is about to make.
    Call(String),
    /// Its color and its key in a split.
    Place([i32; 2]),
    /// What the first rank of a part has made for the part, if it could.
    Part(Option<(ncclUniqueId, Arc<LocalRanks>)>),
    /// It has done its work.
    Done,
}

impl LocalRanks {
    /// Makes the team of `size` ranks that are all in this process.
    pub(super) fn of_process(size: usize) -> Arc<Self> {
        Self::new(Some(size))
    }

    /// Makes the team of the only rank in this process, among others elsewhere.
    pub(super) fn of_one() -> Arc<Self> {
        Self::new(None)
    }

    fn new(size: Option<usize>) -> Arc<Self> {
        let state = LocalRanksState { come: vec![0; size.unwrap_or(0)], ..LocalRanksState::default() };
        Arc::new(Self { size, state: Mutex::new(state), changed: Condvar::new() })
    }

    /// Returns whether the ranks can meet here, since there are no others.
    pub(super) fn is_whole(&self) -> bool {
        self.size.is_some()
    }

    pub(super) fn join(&self, member: Weak<dyn LocalRank>) {
        self.lock().members.push(member);
    }

    /// Reports a failure to all ranks here. Returns the first one that was reported.
    pub(super) fn fail(&self, broken: &CommunicatorFailure) -> CommunicatorFailure {
        let mut state = self.lock();
        let first = state.broken.get_or_insert_with(|| broken.clone()).clone();
        let members: Vec<_> = state.members.iter().filter_map(Weak::upgrade).collect();
        drop(state);
        self.changed.notify_all();
        for member in members {
            member.fail(&first);
        }
        first
    }

    /// Brings a rank's value to the next meeting, and returns the meeting's number.
    pub(super) fn show(&self, rank: usize, value: Contribution) -> usize {
        let mut state = self.lock();
        let number = state.come[rank];
        state.come[rank] += 1;
        let (at, size) = (number - state.past, state.come.len());
        while state.meetings.len() <= at {
            state.meetings.push_back(HostExchange { shown: (0..size).map(|_| None).collect(), left: 0 });
        }
        state.meetings[at].shown[rank] = Some(value);
        drop(state);
        self.changed.notify_all();
        number
    }

    /// Returns what all ranks show at a meeting, in their order. Blocks until they have come. Each rank calls this once for
    /// each value that it has shown.
    ///
    /// # Errors
    /// The first failure; [`CommunicatorFailure::Missing`] after the limit.
    pub(super) fn meet(
        &self,
        number: usize,
        call: impl fmt::Display,
        limit: Duration,
    ) -> Result<Vec<Contribution>, CommunicatorFailure> {
        let is_there = |state: &LocalRanksState, rank: usize| {
            number < state.past || state.meetings[number - state.past].shown[rank].is_some()
        };
        let waits = |state: &mut LocalRanksState| {
            state.broken.is_none() && !(0..state.come.len()).all(|rank| is_there(state, rank))
        };
        let mut state = Deadline::after(limit).wait_while(&self.changed, self.lock(), waits);
        if let Some(broken) = &state.broken {
            return Err(broken.clone());
        }
        let missing: Vec<_> = (0..state.come.len()).filter(|&rank| !is_there(&state, rank)).collect();
        if !missing.is_empty() {
            return Err(CommunicatorFailure::Missing { ranks: missing, call: call.to_string(), limit });
        }
        let (at, size) = (number - state.past, state.come.len());
        let meeting = &mut state.meetings[at];
        meeting.left += 1;
        let shown = meeting.shown.iter().flatten().cloned().collect();
        // Every rank comes to the meetings in their order, and so the oldest one is the first that all have left.
        while state.meetings.front().is_some_and(|meeting| meeting.left == size) {
            state.meetings.pop_front();
            state.past += 1;
        }
        Ok(shown)
    }

    fn lock(&self) -> MutexGuard<'_, LocalRanksState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for LocalRanks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Team").field("size", &self.size).finish_non_exhaustive()
    }
}
