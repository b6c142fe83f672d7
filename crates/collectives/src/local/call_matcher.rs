//! Matches the calls of the ranks in one process.
//!
//! A rank posts its calls, with references to its memory and streams, and waits until they are enqueued. If
//! its call completes a set of matching calls, it enqueues the work of all of them, while it holds the
//! matcher's lock.
//!
//! So one thread uses references that belong to another thread's call. That is only sound if no rank's call
//! returns while its references are still here. Therefore a rank takes its calls out again, under the same
//! lock, before it stops waiting, be it because of the time limit, an error or a panic. And once the calls
//! have matched, no rank waits for another anymore.

use std::collections::BTreeMap;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use gpustream::{Error, Result};

use super::Endpoint;
use super::pending::{PostId, PostedCall, Queues, RankCall, compare};
use super::work::RankDevices;
use crate::call::{Call, Collective, Signature};
use crate::deadline::Deadline;
use crate::failure::CommunicatorFailure;

#[derive(Debug)]
pub(super) struct CallMatcher {
    devices: RankDevices,
    /// How long a rank waits for the others.
    limit: Duration,
    state: Mutex<MatcherState>,
    /// Notified when a post is complete, and when the ranks can no longer work together.
    changed: Condvar,
}

#[derive(Debug)]
struct MatcherState {
    /// Why the ranks can no longer work together. From then on we match no calls, because you could not tell
    /// which ones failed.
    broken: Option<CommunicatorFailure>,
    queues: Queues,
    /// The posts whose outcome their ranks have not taken yet.
    posts: BTreeMap<PostId, PostState>,
    /// For each rank, whether its endpoint was dropped.
    gone: Vec<bool>,
}

#[derive(Debug)]
struct PostState {
    /// How many of the calls are not enqueued yet.
    open: usize,
    outcome: Result<()>,
    /// The endpoint that a split made.
    endpoint: Option<Endpoint>,
}

impl CallMatcher {
    pub(super) fn new(devices: RankDevices, limit: Duration) -> Self {
        let size = devices.size();
        let state = MatcherState {
            broken: None,
            queues: Queues::new(size),
            posts: BTreeMap::new(),
            gone: vec![false; size],
        };
        Self { devices, limit, state: Mutex::new(state), changed: Condvar::new() }
    }

    pub(super) fn size(&self) -> usize {
        self.devices.size()
    }

    /// Posts calls of `rank`, and enqueues the work of all calls that are now complete.
    pub(super) fn post<'a>(&'a self, rank: usize, calls: Vec<Call<'a>>) -> Result<Posted<'a>> {
        let parts = calls.into_iter().map(|call| {
            // SAFETY: only the lifetime changes. We use the call only while it is in a queue or was taken
            // from one, under the lock. `Posted` borrows for the true lifetime, never leaves this crate's
            // frames (so no other code can leak it), and takes the call out of the queue under the lock
            // before it is dropped.
            let call = unsafe { mem::transmute::<Call<'a>, Call<'static>>(call) };
            (call.signature, RankCall::Call(call))
        });
        self.post_parts(rank, parts.collect())
    }

    /// Posts `rank`'s part in a split.
    pub(super) fn post_split(&self, rank: usize, color: i32, key: i32) -> Result<Posted<'_>> {
        self.post_parts(
            rank,
            vec![(Signature::of_bytes(Collective::Split, 0), RankCall::Split { color, key })],
        )
    }

    fn post_parts(&self, rank: usize, parts: Vec<(Signature, RankCall)>) -> Result<Posted<'_>> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = PostId(NEXT.fetch_add(1, Ordering::Relaxed));
        // Whatever happens, dropping `posted` takes the calls out again. The lock is released before that.
        let posted = Posted { matcher: self, id, rank, deadline: Deadline::after(self.limit) };
        let mut state = self.lock();
        state.check()?;
        state.posts.insert(id, PostState { open: parts.len(), outcome: Ok(()), endpoint: None });
        for (signature, part) in parts {
            state.queues.push(rank, PostedCall { post: id, signature, part });
        }
        self.meet(&mut state, rank);
        drop(state);
        Ok(posted)
    }

    /// Enqueues the work of all complete calls. `rank` is the rank of this thread.
    fn meet(&self, state: &mut MatcherState, rank: usize) {
        let mut complete = false;
        while state.broken.is_none()
            && let Some(mut calls) = state.queues.take()
        {
            state.broken = compare(&calls);
            if state.broken.is_some() {
                break;
            }
            // If enqueueing panics, the others find this.
            state.broken = Some(CommunicatorFailure::Panicked { rank });
            let outcome = self.run(state, &mut calls);
            state.broken = None;
            complete = true;
            for call in calls {
                if let Some(post) = state.posts.get_mut(&call.post) {
                    post.open -= 1;
                    post.outcome = mem::replace(&mut post.outcome, Ok(())).and(outcome.clone());
                }
            }
        }
        if state.broken.is_none() {
            let needed = |&rank: &usize| state.gone[rank] && state.queues.needs(rank).is_some();
            state.broken = (0..self.size()).find(needed).map(|rank| CommunicatorFailure::Left { rank });
        }
        if complete || state.broken.is_some() {
            self.changed.notify_all();
        }
    }

    /// Enqueues the work of matching calls, or makes the new communicators of a split.
    fn run(&self, state: &mut MatcherState, calls: &mut [PostedCall]) -> Result<()> {
        let mut colors = BTreeMap::<i32, Vec<(i32, usize)>>::new();
        let mut work = Vec::new();
        for (rank, call) in calls.iter_mut().enumerate() {
            match &mut call.part {
                RankCall::Call(call) => work.push(call),
                RankCall::Split { color, key } => colors.entry(*color).or_default().push((*key, rank)),
            }
        }
        if colors.is_empty() {
            return self.devices.run(&mut work);
        }
        for mut ranks in colors.into_values() {
            ranks.sort_unstable();
            let ranks: Vec<usize> = ranks.into_iter().map(|(_, rank)| rank).collect();
            let matcher = Arc::new(Self::new(self.devices.of(&ranks), self.limit));
            for (rank, &old) in ranks.iter().enumerate() {
                let endpoint = Endpoint { matcher: matcher.clone(), rank };
                if let Some(post) = state.posts.get_mut(&calls[old].post) {
                    post.endpoint = Some(endpoint);
                }
            }
        }
        Ok(())
    }

    /// Ends the communicator. From now on no call can succeed, on any rank.
    pub(super) fn abort(&self, rank: usize) {
        self.break_up(&mut self.lock(), CommunicatorFailure::Aborted { rank });
    }

    /// Records that `rank` will make no more calls. Ranks that wait for one get an error.
    pub(super) fn leave(&self, rank: usize) {
        let mut state = self.lock();
        state.gone[rank] = true;
        if thread::panicking() {
            self.break_up(&mut state, CommunicatorFailure::Panicked { rank });
        } else if state.queues.needs(rank).is_some() {
            self.break_up(&mut state, CommunicatorFailure::Left { rank });
        }
    }

    fn break_up(&self, state: &mut MatcherState, broken: CommunicatorFailure) {
        state.broken.get_or_insert(broken);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, MatcherState> {
        // If a thread panicked, the state already says so.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MatcherState {
    /// Checks that the ranks can still work together.
    fn check(&self) -> Result<()> {
        self.broken.clone().map_or(Ok(()), |broken| Err(Error::external(broken)))
    }

    /// Returns true if all calls of a post are enqueued.
    fn is_complete(&self, post: PostId) -> bool {
        self.posts.get(&post).is_some_and(|post| post.open == 0)
    }
}

/// Calls that a rank has posted. Dropping this takes out the ones that are not enqueued.
#[derive(Debug)]
pub(crate) struct Posted<'a> {
    matcher: &'a CallMatcher,
    id: PostId,
    rank: usize,
    /// How long the rank waits.
    deadline: Deadline,
}

impl Posted<'_> {
    pub(crate) fn wait(self) -> Result<()> {
        self.outcome().map(drop)
    }

    /// Blocks until the split is made, and returns the endpoint in the new communicator.
    pub(super) fn wait_for_endpoint(self) -> Result<Endpoint> {
        let nowhere = || Error::unsupported("a split that makes no endpoint for this rank");
        self.outcome()?.ok_or_else(nowhere)
    }

    fn outcome(&self) -> Result<Option<Endpoint>> {
        let matcher = self.matcher;
        let waits = |state: &mut MatcherState| state.broken.is_none() && !state.is_complete(self.id);
        let mut state = self.deadline.wait_while(&matcher.changed, matcher.lock(), waits);
        if state.is_complete(self.id)
            && let Some(post) = state.posts.remove(&self.id)
        {
            return post.outcome.map(|()| post.endpoint);
        }
        state.check()?;
        let broken = self.missing(&state);
        matcher.break_up(&mut state, broken.clone());
        Err(Error::external(broken))
    }

    fn missing(&self, state: &MatcherState) -> CommunicatorFailure {
        match state.queues.missing(self.id) {
            Some((call, ranks)) => {
                CommunicatorFailure::Missing { ranks, call: call.to_string(), limit: self.matcher.limit }
            }
            None => CommunicatorFailure::Aborted { rank: self.rank },
        }
    }
}

impl Drop for Posted<'_> {
    fn drop(&mut self) {
        let mut state = self.matcher.lock();
        // If we find nothing, you already have the outcome.
        if let Some(post) = state.posts.remove(&self.id) {
            state.queues.withdraw(self.id);
            if post.open > 0 {
                let broken = if thread::panicking() {
                    CommunicatorFailure::Panicked { rank: self.rank }
                } else {
                    CommunicatorFailure::Aborted { rank: self.rank }
                };
                self.matcher.break_up(&mut state, broken);
            }
        }
    }
}
