//! Calls that wait for other ranks' calls, and which of them match. Nothing here knows about threads or
//! devices, so you can test it without either.

use std::collections::{BTreeMap, VecDeque};

use crate::call::{Call, Collective, Signature};
use crate::failure::CommunicatorFailure;

/// Identifies the calls that one thread posted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PostId(pub(super) u64);

/// A rank's part in a call.
#[derive(Debug)]
pub(super) enum RankCall {
    /// Work for the device. The memory is only lent until the post ends, despite the lifetime: see
    /// [`post`](super::call_matcher::CallMatcher::post).
    Call(Call<'static>),
    /// A place in a new communicator.
    Split { color: i32, key: i32 },
}

/// A call that was posted.
#[derive(Debug)]
pub(super) struct PostedCall {
    pub(super) post: PostId,
    pub(super) signature: Signature,
    pub(super) part: RankCall,
}

/// The sends and receives from one rank to another that wait for each other, in order.
#[derive(Debug, Default)]
struct Direct {
    sends: VecDeque<PostedCall>,
    recvs: VecDeque<PostedCall>,
}

/// The calls of all ranks that wait for calls of others.
#[derive(Debug)]
pub(super) struct Queues {
    /// For each rank, its calls that all ranks make, in order.
    collective: Vec<VecDeque<PostedCall>>,
    /// The calls between two ranks, by sender and receiver.
    direct: BTreeMap<(usize, usize), Direct>,
}

impl Queues {
    pub(super) fn new(size: usize) -> Self {
        Self { collective: (0..size).map(|_| VecDeque::new()).collect(), direct: BTreeMap::new() }
    }

    /// Adds a call of `rank`.
    pub(super) fn push(&mut self, rank: usize, pending: PostedCall) {
        match pending.signature.operation {
            Collective::Send { to } => self.direct.entry((rank, to)).or_default().sends.push_back(pending),
            Collective::Recv { from } => {
                self.direct.entry((from, rank)).or_default().recvs.push_back(pending);
            }
            _ => self.collective[rank].push_back(pending),
        }
    }

    /// Takes the next set of calls that belong together: one of each rank, or a send and its receive.
    pub(super) fn take(&mut self) -> Option<Vec<PostedCall>> {
        if self.collective.iter().all(|calls| !calls.is_empty()) {
            return Some(self.collective.iter_mut().filter_map(VecDeque::pop_front).collect());
        }
        for direct in self.direct.values_mut() {
            if direct.sends.is_empty() || direct.recvs.is_empty() {
                continue;
            }
            return Some(
                [&mut direct.sends, &mut direct.recvs].into_iter().filter_map(VecDeque::pop_front).collect(),
            );
        }
        None
    }

    /// Removes a post's calls.
    pub(super) fn withdraw(&mut self, post: PostId) {
        let direct = self.direct.values_mut().flat_map(|direct| [&mut direct.sends, &mut direct.recvs]);
        for calls in self.collective.iter_mut().chain(direct) {
            calls.retain(|call| call.post != post);
        }
    }

    /// Returns the first call that waits for `rank`, if `rank` has not made it yet.
    pub(super) fn needs(&self, rank: usize) -> Option<&PostedCall> {
        let collective = || self.collective.iter().find_map(VecDeque::front);
        if self.collective[rank].is_empty()
            && let Some(call) = collective()
        {
            return Some(call);
        }
        self.direct.iter().find_map(|(&(from, to), direct)| {
            match (direct.sends.front(), direct.recvs.front()) {
                (Some(call), None) if to == rank => Some(call),
                (None, Some(call)) if from == rank => Some(call),
                _ => None,
            }
        })
    }

    /// Returns a call of a post that is still waiting, and the ranks that it waits for.
    pub(super) fn missing(&self, post: PostId) -> Option<(Signature, Vec<usize>)> {
        let of_post = |calls: &VecDeque<PostedCall>| {
            calls.iter().find(|call| call.post == post).map(|call| call.signature)
        };
        if let Some(signature) = self.collective.iter().find_map(of_post) {
            let away = self.collective.iter().enumerate().filter(|(_, calls)| calls.is_empty());
            return Some((signature, away.map(|(rank, _)| rank).collect()));
        }
        self.direct.iter().find_map(|(&(from, to), direct)| {
            let sent = of_post(&direct.sends).map(|signature| (signature, vec![to]));
            sent.or_else(|| of_post(&direct.recvs).map(|signature| (signature, vec![from])))
        })
    }
}

/// Returns [`CommunicatorFailure::Different`] unless the calls match. They are those of all ranks, or a send
/// and its receive.
pub(super) fn compare(calls: &[PostedCall]) -> Option<CommunicatorFailure> {
    if let [send, recv] = calls
        && let (Collective::Send { to }, Collective::Recv { from }) =
            (send.signature.operation, recv.signature.operation)
    {
        let same = |call: &PostedCall| (call.signature.element, call.signature.count);
        if same(send) == same(recv) {
            return None;
        }
        let calls = format!("rank {from} called {}, rank {to} {}", send.signature, recv.signature);
        return Some(CommunicatorFailure::Different { ranks: vec![to], calls });
    }
    CommunicatorFailure::different(calls.iter().map(|call| call.signature))
}
