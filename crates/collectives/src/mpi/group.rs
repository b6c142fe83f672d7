//! A communicator as MPI's thread sees it: the pieces of its calls, and the meetings of its ranks.

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
use crate::compare::SHOWN;
use crate::failure::CommunicatorFailure;
use crate::op::Op;

/// A number for a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Number(pub(super) u64);

/// A meeting of all ranks, and the thing to do there.
pub(super) enum HostCollective {
    /// The ranks of each color become a communicator of their own.
    Split { color: i32, key: i32, reply: SyncSender<Result<NewCommunicator>> },
    /// Each rank gets what all ranks show.
    Compare { shown: Box<[u8; SHOWN]>, all: Vec<u8>, reply: SyncSender<Result<Vec<u8>>> },
}

/// A communicator that was made.
pub(super) struct NewCommunicator {
    pub(super) number: Number,
    pub(super) bond: Arc<CommunicatorState>,
}

/// A piece of a call's exchange.
pub(super) struct Piece {
    pub(super) call: Signature,
    /// The elements of each part.
    pub(super) count: usize,
    pub(super) memory: Memory,
    /// The point at which the stream has come to the piece.
    pub(super) ready: Event,
    /// The flag that the stream waits for, which counts the pieces that are done, and the count with this one.
    pub(super) done: Flag,
    pub(super) number: u32,
    /// The lane whose flag it is.
    pub(super) lane: usize,
    pub(super) failures: Failures,
}

/// Things that have ended, and may hold the last handles of devices.
#[derive(Default)]
pub(super) struct Ended {
    pub(super) pieces: Vec<Piece>,
    pub(super) staging: Vec<Staging>,
}

/// A communicator: one of MPI's for calls, and one for meetings of the hosts, whose orders are independent.
pub(super) struct ProcessGroup {
    calls: Comm,
    meetings: Comm,
    pub(super) bond: Arc<CommunicatorState>,
    /// The reason why nothing goes on any more.
    pub(super) broken: Option<CommunicatorFailure>,
    /// The pieces to start, in this order.
    waiting: VecDeque<Piece>,
    running: Vec<Running<Piece>>,
    /// The highest number of a piece that is done, by lane.
    last: BTreeMap<usize, u32>,
    meeting: VecDeque<Running<(HostCollective, Duration)>>,
    mailbox: Mailbox,
    /// The staging memory, to be freed at the end.
    pub(super) closed: Option<Staging>,
}

/// A communicator that was made, and the place for the answer.
pub(super) type PendingCommunicator = (ProcessGroup, SyncSender<Result<NewCommunicator>>);

pub(super) struct Running<T> {
    request: Request,
    since: Instant,
    what: T,
}

#[cold]
pub(super) fn ended() -> Error {
    Error::external("MPI has ended in this process")
}

impl ProcessGroup {
    pub(super) fn new(calls: Comm, meetings: Comm, bond: Arc<CommunicatorState>) -> Self {
        let (waiting, running, last, meeting, mailbox) = Default::default();
        Self { calls, meetings, bond, broken: None, waiting, running, last, meeting, mailbox, closed: None }
    }

    /// Returns whether something is under way. The requests of a broken communicator do not count.
    pub(super) fn waits(&self) -> bool {
        let is_empty = self.waiting.is_empty() && self.running.is_empty() && self.meeting.is_empty();
        (!is_empty || self.mailbox.is_busy()) && self.broken.is_none()
    }

    pub(super) fn is_busy(&self) -> bool {
        self.waits() || self.closed.is_some()
    }

    /// Ends a communicator that is closed, and returns its staging memory.
    pub(super) fn close(mut self) -> Option<Staging> {
        let staging = self.closed.take()?;
        if self.running.is_empty() && self.meeting.is_empty() {
            self.calls.free();
            self.meetings.free();
        } else {
            // MPI may still write there, and where the meetings' bytes are.
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

    /// Starts the pieces to which their streams have come.
    pub(super) fn start(&mut self, ops: &mut Ops, ended: &mut Ended) -> bool {
        let mut moved = false;
        while self.broken.is_none()
            && let Some(piece) = self.waiting.front()
        {
            let call = piece.call;
            let started = match piece.ready.is_done() {
                Ok(false) => break,
                Ok(true) => ops.of(&call).and_then(|op| {
                    // SAFETY: the memory is staging memory with room for a piece, freed after the communicator's end, and its
                    // stream waits for the piece's.
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

    /// Asks for the end of the pieces that were started.
    pub(super) fn finish(&mut self, ended: &mut Ended) -> bool {
        let mut moved = false;
        let mut at = 0;
        while self.broken.is_none()
            && let Some(running) = self.running.get_mut(at)
        {
            let call = running.what.call;
            match running.request.is_done(&call, running.what.count) {
                Ok(false) if running.since.elapsed() > self.bond.limit => {
                    let limit = self.bond.limit;
                    self.break_up(CommunicatorFailure::Stalled { call: call.to_string(), limit }, ended);
                }
                Ok(false) => at += 1,
                Ok(true) => {
                    let piece = self.running.remove(at).what;
                    piece.average(self.bond.size);
                    self.count(&piece);
                    ended.pieces.push(piece);
                    moved = true;
                }
                Err(error) => self.fail(&call, &error, ended),
            }
        }
        moved
    }

    /// Counts a piece that is done. The streams wait for the pieces in their order, and MPI ends them in any.
    fn count(&mut self, piece: &Piece) {
        let last = self.last.entry(piece.lane).or_default();
        *last = piece.number.max(*last);
        let others = self.running.iter().map(|running| &running.what);
        let first = others.filter(|other| other.lane == piece.lane).map(|other| other.number).min();
        piece.done.set(first.map_or(*last, |first| first - 1));
    }

    pub(super) fn meet(&mut self, mut meeting: HostCollective, limit: Duration, ended: &mut Ended) {
        if let Some(broken) = self.bond.broken() {
            return meeting.refuse(Error::external(broken));
        }
        let started = match &mut meeting {
            HostCollective::Split { .. } => self.meetings.barrier(),
            HostCollective::Compare { shown, all, .. } => {
                let memory = Memory { gives: shown.as_mut_ptr(), gets: all.as_mut_ptr() };
                // SAFETY: both are on the heap and stay until the request is done, and `all` has room for all ranks' bytes.
                unsafe { self.meetings.all_gather(memory, SHOWN) }
            }
        };
        match started {
            Ok(request) => {
                let since = Instant::now();
                self.meeting.push_back(Running { request, since, what: (meeting, limit) });
            }
            Err(error) => {
                self.fail(&meeting.call(), &error, ended);
                meeting.refuse(self.reason());
            }
        }
    }

    /// Asks for the end of the first meeting, and returns whether it came.
    pub(super) fn finish_meeting(&mut self, made: &mut Vec<PendingCommunicator>, ended: &mut Ended) -> bool {
        let Some(Running { request, since, what: (meeting, limit) }) = self.meeting.front_mut() else {
            return false;
        };
        if self.broken.is_some() {
            return false;
        }
        let call = meeting.call();
        match request.is_done(&call, 0) {
            Ok(false) if since.elapsed() > *limit => {
                let limit = *limit;
                self.break_up(CommunicatorFailure::Stalled { call: call.to_string(), limit }, ended);
            }
            Ok(false) => return false,
            Err(error) => self.fail(&call, &error, ended),
            Ok(true) => {
                let Some(Running { what: (meeting, limit), .. }) = self.meeting.pop_front() else {
                    return false;
                };
                match meeting {
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

    /// Does something with messages.
    pub(super) fn mail(&mut self, mail: Mail, ended: &mut Ended) {
        if self.broken.is_none()
            && let Err(error) = self.mailbox.take(mail, self.calls)
        {
            self.fail(&CALL, &error, ended);
        }
    }

    /// Goes on with messages, and returns whether one came or went.
    pub(super) fn carry(&mut self, ended: &mut Ended) -> bool {
        if self.broken.is_some() || !self.mailbox.is_busy() {
            return false;
        }
        self.mailbox.step(self.calls).unwrap_or_else(|error| {
            self.fail(&CALL, &error, ended);
            true
        })
    }

    /// Makes the communicator of this rank's color. All ranks are here.
    fn split(&self, color: i32, key: i32, limit: Duration) -> Result<Self> {
        let meetings = self.meetings.split(color, key)?;
        let calls = meetings.duplicate()?;
        Ok(Self::new(calls, meetings, Arc::new(CommunicatorState::new(calls.place()?, limit))))
    }

    fn fail(&mut self, call: &Signature, error: &Error, ended: &mut Ended) {
        self.break_up(
            CommunicatorFailure::Failed { call: call.to_string(), message: error.to_string() },
            ended,
        );
    }

    fn reason(&self) -> Error {
        self.bond.check().err().unwrap_or_else(ended)
    }

    /// Breaks the communicator, and lets the streams go on. Requests stay, since MPI takes few of them back.
    pub(super) fn break_up(&mut self, broken: CommunicatorFailure, ended: &mut Ended) {
        let broken = self.broken.insert(self.bond.break_up(broken)).clone();
        for running in &self.running {
            running.what.fail(&broken);
        }
        for piece in self.waiting.drain(..) {
            piece.fail(&broken);
            ended.pieces.push(piece);
        }
        for Running { what: (meeting, _), .. } in &self.meeting {
            meeting.refuse(Error::external(broken.clone()));
        }
    }
}

impl Ended {
    pub(super) fn len(&self) -> usize {
        self.pieces.len() + self.staging.len()
    }
}

impl HostCollective {
    /// Returns the words for errors.
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
    /// Reports that the piece failed, and lets its stream go on.
    fn fail(&self, broken: &CommunicatorFailure) {
        // Waits must find the failure once the work ends.
        self.failures.keep(Error::external(broken.clone()));
        self.done.set(self.number.max(self.done.get()));
    }

    /// Divides sums where an average was asked for.
    fn average(&self, ranks: usize) {
        let Signature { operation, element, .. } = self.call;
        if operation.op() == Some(Op::Average) && !self.memory.gets.is_null() {
            // SAFETY: MPI has written the elements, and the stream reads them after this.
            unsafe { combine::divide(element, self.memory.gets.cast(), self.count, ranks) };
        }
    }
}
