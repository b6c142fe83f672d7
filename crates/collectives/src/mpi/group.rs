//! A communicator as MPI's thread sees it: the pieces of its calls, and what its ranks do together on the
//! host.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use gpustream::interop::Failures;
use gpustream::{Error, Event, Flag, Result};

use super::combine;
use super::comm::{Comm, Memory, Ops, Request};
use super::mail::{CALL, Mail, Mailbox};
use super::stage::Staging;
use super::state::CommunicatorState;
use crate::call::{Collective, Signature};
use crate::compare::ENCODED;
use crate::failure::CommunicatorFailure;
use crate::op::Op;

/// Identifies a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Number(pub(super) u64);

/// Something that all ranks must come to on the host, and what they do there.
pub(super) enum HostCollective {
    /// The ranks of each color get their own communicator.
    Split { color: i32, key: i32, reply: SyncSender<Result<NewCommunicator>> },
    /// Each rank gets the bytes of all ranks.
    Compare { own: Box<[u8; ENCODED]>, all: Vec<u8>, reply: SyncSender<Result<Vec<u8>>> },
}

/// A communicator that was just made.
pub(super) struct NewCommunicator {
    pub(super) number: Number,
    pub(super) state: Arc<CommunicatorState>,
}

/// A piece of an exchange.
pub(super) struct Piece {
    pub(super) call: Signature,
    /// How many elements each part has.
    pub(super) count: usize,
    pub(super) memory: Memory,
    /// The stream has reached the piece once this event is done.
    pub(super) ready: Event,
    /// The flag that the stream waits for. It counts finished pieces, and `number` is the count after this
    /// one.
    pub(super) done: Flag,
    pub(super) number: u32,
    /// The lane that the flag belongs to.
    pub(super) lane: usize,
    pub(super) failures: Failures,
}

/// Things that are finished and may own the last handles of devices.
#[derive(Default)]
pub(super) struct Ended {
    pub(super) pieces: Vec<Piece>,
    pub(super) staging: Vec<Staging>,
}

/// A communicator. It has two MPI communicators, one for calls and one for what the ranks do together on the
/// host, because these two follow independent orders.
pub(super) struct ProcessGroup {
    calls: Comm,
    host: Comm,
    pub(super) state: Arc<CommunicatorState>,
    /// Why nothing can progress anymore.
    pub(super) broken: Option<CommunicatorFailure>,
    /// The pieces to start, in this order.
    waiting: VecDeque<Piece>,
    running: Vec<Running<Piece>>,
    /// For each lane, the highest number of a finished piece.
    last: BTreeMap<usize, u32>,
    collectives: VecDeque<Running<(HostCollective, Duration)>>,
    mailbox: Mailbox,
    /// The staging memory, to be freed at the end.
    pub(super) closed: Option<Staging>,
}

/// A communicator that was just made, and the place to send it to.
pub(super) type PendingCommunicator = (ProcessGroup, SyncSender<Result<NewCommunicator>>);

pub(super) struct Running<T> {
    request: Request,
    since: Instant,
    what: T,
}

#[cold]
pub(super) fn ended() -> Error {
    Error::external("MPI has ended in this process; make your calls before the process ends")
}

impl ProcessGroup {
    pub(super) fn new(calls: Comm, host: Comm, state: Arc<CommunicatorState>) -> Self {
        let (waiting, running, last, collectives, mailbox) = Default::default();
        Self { calls, host, state, broken: None, waiting, running, last, collectives, mailbox, closed: None }
    }

    /// Returns true if something is pending. The requests of a broken communicator do not count.
    pub(super) fn waits(&self) -> bool {
        let is_empty = self.waiting.is_empty() && self.running.is_empty() && self.collectives.is_empty();
        (!is_empty || self.mailbox.is_busy()) && self.broken.is_none()
    }

    pub(super) fn is_busy(&self) -> bool {
        self.waits() || self.closed.is_some()
    }

    /// Frees a closed communicator, and returns its staging memory.
    pub(super) fn close(mut self) -> Option<Staging> {
        let staging = self.closed.take()?;
        if self.running.is_empty() && self.collectives.is_empty() {
            self.calls.free();
            self.host.free();
        } else {
            // MPI may still write to the staging memory and to the bytes that the ranks compare, so we leak
            // both.
            std::mem::forget((staging, self));
            return None;
        }
        Some(staging)
    }

    pub(super) fn add(&mut self, piece: Piece, ended: &mut Ended) {
        match &self.broken {
            Some(broken) => {
                piece.fail(broken);
                ended.pieces.push(piece);
            }
            None => self.waiting.push_back(piece),
        }
    }

    /// Starts the pieces that their streams have reached.
    pub(super) fn start(&mut self, ops: &mut Ops, ended: &mut Ended) -> bool {
        let mut moved = false;
        while self.broken.is_none()
            && let Some(piece) = self.waiting.front()
        {
            let call = piece.call;
            let started = match piece.ready.is_done() {
                Ok(false) => break,
                Ok(true) => ops.of(&call).and_then(|op| {
                    // SAFETY: the memory is staging memory with room for a piece. It is freed after the
                    // communicator, and its stream waits for the piece.
                    unsafe { self.calls.start(&call, piece.memory, op, piece.count) }
                }),
                Err(error) => Err(error),
            };
            match started {
                Ok(request) => {
                    let since = Instant::now();
                    self.running.extend(self.waiting.pop_front().map(|what| Running {
                        request,
                        since,
                        what,
                    }));
                }
                Err(error) => self.fail(&call, &error, ended),
            }
            moved = true;
        }
        moved
    }

    /// Finishes those started pieces that are done.
    pub(super) fn finish(&mut self, ended: &mut Ended) -> bool {
        let mut moved = false;
        let mut at = 0;
        while self.broken.is_none()
            && let Some(running) = self.running.get_mut(at)
        {
            let call = running.what.call;
            match running.request.is_done(&call, running.what.count) {
                Ok(false) if running.since.elapsed() > self.state.limit => {
                    let limit = self.state.limit;
                    self.break_up(CommunicatorFailure::Stalled { call: call.to_string(), limit }, ended);
                }
                Ok(false) => at += 1,
                Ok(true) => {
                    let piece = self.running.remove(at).what;
                    piece.average(self.state.size);
                    self.count(&piece);
                    ended.pieces.push(piece);
                    moved = true;
                }
                Err(error) => self.fail(&call, &error, ended),
            }
        }
        moved
    }

    /// Counts a finished piece. The streams wait for pieces in order, but MPI may finish them in any order.
    fn count(&mut self, piece: &Piece) {
        let last = self.last.entry(piece.lane).or_default();
        *last = piece.number.max(*last);
        let others = self.running.iter().map(|running| &running.what);
        let first = others.filter(|other| other.lane == piece.lane).map(|other| other.number).min();
        piece.done.set(first.map_or(*last, |first| first - 1));
    }

    pub(super) fn meet(&mut self, mut collective: HostCollective, limit: Duration, ended: &mut Ended) {
        if let Some(broken) = self.state.broken() {
            return collective.refuse(Error::external(broken));
        }
        let started = match &mut collective {
            HostCollective::Split { .. } => self.host.barrier(),
            HostCollective::Compare { own, all, .. } => {
                let memory = Memory { gives: own.as_mut_ptr(), gets: all.as_mut_ptr() };
                // SAFETY: both are on the heap and stay until the request is done, and `all` has room for all
                // ranks' bytes.
                unsafe { self.host.all_gather(memory, ENCODED) }
            }
        };
        match started {
            Ok(request) => {
                let since = Instant::now();
                self.collectives.push_back(Running { request, since, what: (collective, limit) });
            }
            Err(error) => {
                self.fail(&collective.call(), &error, ended);
                collective.refuse(self.reason());
            }
        }
    }

    /// Checks whether the first pending host collective is done. Returns true if it is.
    pub(super) fn finish_collective(
        &mut self,
        made: &mut Vec<PendingCommunicator>,
        ended: &mut Ended,
    ) -> bool {
        let Some(Running { request, since, what: (collective, limit) }) = self.collectives.front_mut() else {
            return false;
        };
        if self.broken.is_some() {
            return false;
        }
        let call = collective.call();
        match request.is_done(&call, 0) {
            Ok(false) if since.elapsed() > *limit => {
                let limit = *limit;
                self.break_up(CommunicatorFailure::Stalled { call: call.to_string(), limit }, ended);
            }
            Ok(false) => return false,
            Err(error) => self.fail(&call, &error, ended),
            Ok(true) => {
                let Some(Running { what: (collective, limit), .. }) = self.collectives.pop_front() else {
                    return false;
                };
                match collective {
                    HostCollective::Compare { all, reply, .. } => drop(reply.send(Ok(all))),
                    HostCollective::Split { color, key, reply } => match self.split(color, key, limit) {
                        Ok(part) => made.push((part, reply)),
                        Err(error) => {
                            self.fail(&call, &error, ended);
                            let _ = reply.send(Err(self.reason()));
                        }
                    },
                }
            }
        }
        true
    }

    /// Handles a request about messages.
    pub(super) fn mail(&mut self, mail: Mail, ended: &mut Ended) {
        if self.broken.is_none()
            && let Err(error) = self.mailbox.take(mail, self.calls)
        {
            self.fail(&CALL, &error, ended);
        }
    }

    /// Makes progress with messages. Returns true if one arrived or was sent.
    pub(super) fn carry(&mut self, ended: &mut Ended) -> bool {
        if self.broken.is_some() || !self.mailbox.is_busy() {
            return false;
        }
        self.mailbox.step(self.calls).unwrap_or_else(|error| {
            self.fail(&CALL, &error, ended);
            true
        })
    }

    /// Makes the communicator for the color of this rank. All ranks must have come.
    fn split(&self, color: i32, key: i32, limit: Duration) -> Result<Self> {
        let host = self.host.split(color, key)?;
        let calls = host.duplicate()?;
        Ok(Self::new(calls, host, Arc::new(CommunicatorState::new(calls.place()?, limit))))
    }

    fn fail(&mut self, call: &Signature, error: &Error, ended: &mut Ended) {
        self.break_up(
            CommunicatorFailure::Failed { call: call.to_string(), message: error.to_string() },
            ended,
        );
    }

    fn reason(&self) -> Error {
        self.state.check().err().unwrap_or_else(ended)
    }

    /// Marks the communicator as broken, and lets the streams continue. We keep the requests, because MPI can
    /// cancel only few of them.
    pub(super) fn break_up(&mut self, broken: CommunicatorFailure, ended: &mut Ended) {
        let broken = self.broken.insert(self.state.break_up(broken)).clone();
        for running in &self.running {
            running.what.fail(&broken);
        }
        for piece in self.waiting.drain(..) {
            piece.fail(&broken);
            ended.pieces.push(piece);
        }
        for Running { what: (collective, _), .. } in &self.collectives {
            collective.refuse(Error::external(broken.clone()));
        }
    }
}

impl Ended {
    pub(super) fn len(&self) -> usize {
        self.pieces.len() + self.staging.len()
    }
}

impl HostCollective {
    /// Returns a signature for errors.
    fn call(&self) -> Signature {
        let operation = match self {
            Self::Split { .. } => Collective::Split,
            Self::Compare { .. } => Collective::Compare,
        };
        Signature::of_bytes(operation, 0)
    }

    fn refuse(&self, error: Error) {
        match self {
            Self::Split { reply, .. } => drop(reply.try_send(Err(error))),
            Self::Compare { reply, .. } => drop(reply.try_send(Err(error))),
        }
    }
}

impl Piece {
    /// Reports that the piece failed, and lets its stream continue.
    fn fail(&self, broken: &CommunicatorFailure) {
        // The failure must be there before the work ends, so that waiting for the stream finds it.
        self.failures.keep(Error::external(broken.clone()));
        self.done.set(self.number.max(self.done.get()));
    }

    /// Divides the sums if the operation is an average.
    fn average(&self, ranks: usize) {
        let Signature { operation, element, .. } = self.call;
        if operation.op() == Some(Op::Average) && !self.memory.gets.is_null() {
            // SAFETY: MPI has written the elements, and the stream reads them after this.
            unsafe { combine::divide(element, self.memory.gets.cast(), self.count, ranks) };
        }
    }
}
