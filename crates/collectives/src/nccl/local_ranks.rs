//! The ranks of one communicator that are in this process.
//!
//! They learn of a failure together. An abort ends NCCL's kernels on one device, and on their way out these
//! send the other ranks whatever they have. Another rank's work may then end as if all were well, but with
//! wrong data. So we report a failure to the streams of all ranks in this process before the first of them
//! aborts.
//!
//! They also exchange small values on the host, not with a kernel. With a kernel, the device of an early rank
//! would stay busy until the others come. But some driver calls wait until all devices of the process are
//! idle, for example when a late rank allocates memory. Then both would wait forever.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::api::ncclUniqueId;
use crate::deadline::Deadline;
use crate::failure::CommunicatorFailure;

/// One rank, as a failure reaches it.
pub(super) trait LocalRank: Send + Sync {
    /// Reports the failure to the streams of pending and later calls. Must not end the communicator yet.
    fn fail(&self, broken: &CommunicatorFailure);

    /// Ends the communicator soon. All ranks in this process have reported the failure.
    fn end(&self);
}

pub(super) struct LocalRanks {
    /// The number of ranks, if all of them are in this process.
    size: Option<usize>,
    state: Mutex<LocalRanksState>,
    /// Notified when a rank contributes to an exchange, and at the first failure.
    changed: Condvar,
}

#[derive(Default)]
struct LocalRanksState {
    members: Vec<Weak<dyn LocalRank>>,
    broken: Option<CommunicatorFailure>,
    /// The exchanges that some rank has not left yet, oldest first.
    exchanges: VecDeque<HostExchange>,
    /// How many exchanges all ranks have left.
    past: usize,
    /// For each rank, how many exchanges it has come to.
    come: Vec<usize>,
}

struct HostExchange {
    contributions: Vec<Option<Contribution>>,
    /// How many ranks have taken the others' values.
    left: usize,
}

/// What a rank gives the others in an exchange.
#[derive(Clone)]
pub(super) enum Contribution {
    /// The call that it is about to make.
    Call(String),
    /// Its color and key in a split.
    Place([i32; 2]),
    /// What the first rank of a part has made for the part, if it succeeded.
    Part(Option<(ncclUniqueId, Arc<LocalRanks>)>),
    /// It has done its work.
    Done,
}

impl LocalRanks {
    /// For `size` ranks that are all in this process.
    pub(super) fn of_process(size: usize) -> Arc<Self> {
        Self::new(Some(size))
    }

    /// For the only rank in this process, if the others are elsewhere.
    pub(super) fn of_one() -> Arc<Self> {
        Self::new(None)
    }

    fn new(size: Option<usize>) -> Arc<Self> {
        let state = LocalRanksState { come: vec![0; size.unwrap_or(0)], ..LocalRanksState::default() };
        Arc::new(Self { size, state: Mutex::new(state), changed: Condvar::new() })
    }

    /// Returns true if the ranks can exchange values on the host, because all of them are here.
    pub(super) fn is_whole(&self) -> bool {
        self.size.is_some()
    }

    pub(super) fn join(&self, member: Weak<dyn LocalRank>) {
        self.lock().members.push(member);
    }

    /// Reports a failure to all ranks here. Returns the first failure that was reported.
    pub(super) fn fail(&self, broken: &CommunicatorFailure) -> CommunicatorFailure {
        let mut state = self.lock();
        let first = state.broken.get_or_insert_with(|| broken.clone()).clone();
        let members: Vec<_> = state.members.iter().filter_map(Weak::upgrade).collect();
        drop(state);
        self.changed.notify_all();
        // Each rank ends its communicator on a thread of its own, so no rank may begin while another has not reported yet.
        for member in &members {
            member.fail(&first);
        }
        for member in &members {
            member.end();
        }
        first
    }

    /// Contributes a rank's value to its next exchange, and returns the number of that exchange.
    pub(super) fn contribute(&self, rank: usize, value: Contribution) -> usize {
        let mut state = self.lock();
        let number = state.come[rank];
        state.come[rank] += 1;
        let (at, size) = (number - state.past, state.come.len());
        while state.exchanges.len() <= at {
            state
                .exchanges
                .push_back(HostExchange { contributions: (0..size).map(|_| None).collect(), left: 0 });
        }
        state.exchanges[at].contributions[rank] = Some(value);
        drop(state);
        self.changed.notify_all();
        number
    }

    /// Returns what all ranks contributed to an exchange, in the order of the ranks. Blocks until all have
    /// come. Each rank must call this exactly once for each value that it contributed.
    ///
    /// # Errors
    /// The first failure, or [`CommunicatorFailure::Missing`] after the limit.
    pub(super) fn meet(
        &self,
        number: usize,
        call: impl fmt::Display,
        limit: Duration,
    ) -> Result<Vec<Contribution>, CommunicatorFailure> {
        let is_there = |state: &LocalRanksState, rank: usize| {
            number < state.past || state.exchanges[number - state.past].contributions[rank].is_some()
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
        let exchange = &mut state.exchanges[at];
        exchange.left += 1;
        let contributions = exchange.contributions.iter().flatten().cloned().collect();
        // Every rank comes to the exchanges in order, so the oldest one is always the first that all have
        // left.
        while state.exchanges.front().is_some_and(|exchange| exchange.left == size) {
            state.exchanges.pop_front();
            state.past += 1;
        }
        Ok(contributions)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A rank that notes what happens to it.
    struct Noted(usize, Arc<Mutex<Vec<(&'static str, usize)>>>);

    impl LocalRank for Noted {
        fn fail(&self, _: &CommunicatorFailure) {
            self.1.lock().unwrap_or_else(PoisonError::into_inner).push(("fail", self.0));
        }

        fn end(&self) {
            self.1.lock().unwrap_or_else(PoisonError::into_inner).push(("end", self.0));
        }
    }

    #[test]
    fn no_rank_ends_before_all_have_reported_the_failure() {
        let notes = Arc::default();
        let ranks = LocalRanks::of_process(3);
        let members: Vec<Arc<Noted>> = (0..3).map(|rank| Arc::new(Noted(rank, Arc::clone(&notes)))).collect();
        for member in &members {
            let member: Weak<Noted> = Arc::downgrade(member);
            ranks.join(member);
        }
        ranks.fail(&CommunicatorFailure::Left { rank: 1 });
        let notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(*notes, [("fail", 0), ("fail", 1), ("fail", 2), ("end", 0), ("end", 1), ("end", 2)]);
    }
}
