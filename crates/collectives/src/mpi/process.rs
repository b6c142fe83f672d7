//! MPI in this process: one thread makes all of its calls. They start exchanges and ask for their end, and wait for other
//! ranks only where all have been seen to come, so that a lost rank holds up nothing beyond the time limit.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use ::mpi::Threading;
use ::mpi::environment::{self, Universe};
use gpustream::{Error, ErrorKind, Event, Failures, Flag, Result};

use super::bond::Bond;
use super::combine;
use super::comm::{Comm, Memory, Ops, Request};
use super::stage::Staging;
use crate::broken::Broken;
use crate::call::{Operation, Signature};
use crate::compare::SHOWN;
use crate::element::ElementType;
use crate::op::Op;

/// MPI, once begun.
pub(super) struct Process {
    tasks: Sender<Task>,
    /// This process's rank, and their number.
    pub(super) place: (usize, usize),
    /// MPI's own words for its version.
    pub(super) version: String,
}

/// A number for a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Number(u64);

/// The communicator of all ranks, from which those of users are split.
pub(super) const WORLD: Number = Number(0);

/// A task of the thread's, for one communicator.
pub(super) enum Task {
    /// Starts a piece of a call's exchange, after the pieces that came before.
    Start(Number, Piece),
    /// Has all ranks come to a point of their hosts', and does something there. The limit is for them to come.
    Meet(Number, Meeting, Duration),
    /// Ends the work of a communicator, for that reason.
    Break(Number, Broken),
    /// Closes a communicator once its work is done, and then frees its staging memory.
    Close(Number, Staging),
    /// Ends MPI: the answers are whether all communicators are whole, and that it has ended. There are no tasks behind this.
    End(SyncSender<bool>),
}

/// A meeting of all ranks, and the thing to do there.
pub(super) enum Meeting {
    /// The ranks of each color become a communicator of their own.
    Split { color: i32, key: i32, reply: SyncSender<Result<Made>> },
    /// Each rank gets what all ranks show.
    Compare { shown: Box<[u8; SHOWN]>, all: Vec<u8>, reply: SyncSender<Result<Vec<u8>>> },
}

/// A communicator that was made.
pub(super) struct Made {
    pub(super) number: Number,
    pub(super) bond: Arc<Bond>,
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

/// Returns MPI in this process, begun by the first call. Blocks until it is.
///
/// # Errors
/// [`ErrorKind::Unsupported`] where the program began MPI itself, and not for several threads.
pub(super) fn of_process() -> Result<&'static Process> {
    static PROCESS: OnceLock<Result<Process>> = OnceLock::new();
    PROCESS.get_or_init(begin).as_ref().map_err(Clone::clone)
}

fn begin() -> Result<Process> {
    let (tasks, taken) = channel();
    let (begun, told) = sync_channel(1);
    // Dropping the last handle of a device waits for the device, whose work may wait for MPI's thread.
    let (over, left) = channel::<Ended>();
    let drop_all = move || left.into_iter().for_each(drop);
    thread::Builder::new().name("gpustream-mpi-e".into()).spawn(drop_all).map_err(Error::external)?;
    let work = move || match Thread::begin(taken, over) {
        Ok((thread, place, version)) => {
            let _ = begun.send(Ok((place, version)));
            thread.run();
        }
        Err(error) => drop(begun.send(Err(error))),
    };
    thread::Builder::new().name("gpustream-mpi".into()).spawn(work).map_err(Error::external)?;
    let (place, version) = told.recv().unwrap_or_else(|_| Err(ended()))?;
    // SAFETY: the handler takes nothing.
    if unsafe { libc::atexit(end) } != 0 {
        return Err(Error::external("atexit: no room for the end of MPI"));
    }
    Ok(Process { tasks, place, version })
}

/// Ends MPI at the end of the process, since MPI begins but once in a process, and takes a process that leaves it open for one
/// that failed.
extern "C" fn end() {
    if let Ok(process) = of_process() {
        let (reply, ended) = sync_channel(2);
        process.give(Task::End(reply));
        // MPI waits there for the other ranks, and for those that are lost too.
        match ended.recv() {
            Ok(true) => drop(ended.recv()),
            Ok(false) => drop(ended.recv_timeout(GRACE)),
            Err(_) => {}
        }
    }
}

impl Process {
    /// Gives the thread something to do. Never blocks.
    pub(super) fn give(&self, task: Task) {
        // The thread takes tasks until the end of the process.
        let _ = self.tasks.send(task);
    }

    /// Has all ranks come, for the limit at most, and something done there; `meeting` gets the place for the answer.
    pub(super) fn meet<T>(
        &self,
        number: Number,
        limit: Duration,
        meeting: impl FnOnce(SyncSender<Result<T>>) -> Meeting,
    ) -> Answer<T> {
        let (reply, answer) = sync_channel(1);
        self.give(Task::Meet(number, meeting(reply), limit));
        Answer(answer)
    }
}

/// The answer of a meeting.
pub(super) struct Answer<T>(Receiver<Result<T>>);

impl<T> Answer<T> {
    /// Blocks until all ranks have come, or the limit is over.
    pub(super) fn wait(self) -> Result<T> {
        self.0.recv().unwrap_or_else(|_| Err(ended()))
    }
}

#[cold]
fn ended() -> Error {
    Error::external("MPI has ended in this process")
}

/// The thread that calls MPI.
struct Thread {
    tasks: Receiver<Task>,
    groups: BTreeMap<Number, Group>,
    next: u64,
    ops: Ops,
    /// Ends MPI; none where the program began it.
    universe: Option<Universe>,
    ending: Option<(SyncSender<bool>, Instant)>,
    /// Whether a communicator was broken that is closed.
    broke: bool,
    ended: Ended,
    /// Takes what has ended to the thread that drops it.
    over: Sender<Ended>,
}

/// Things that have ended, and may hold the last handles of devices.
#[derive(Default)]
struct Ended {
    pieces: Vec<Piece>,
    staging: Vec<Staging>,
}

/// A communicator: one of MPI's for calls, and one for meetings of the hosts, whose orders are independent.
struct Group {
    calls: Comm,
    meetings: Comm,
    bond: Arc<Bond>,
    /// Why nothing goes on any more.
    broken: Option<Broken>,
    /// The pieces to start, in this order.
    waiting: VecDeque<Piece>,
    running: Vec<Running<Piece>>,
    /// The highest number of a piece that is done, by lane.
    last: BTreeMap<usize, u32>,
    meeting: VecDeque<Running<(Meeting, Duration)>>,
    /// The staging memory, to be freed at the end.
    closed: Option<Staging>,
}

/// A communicator that was made, and the place for the answer.
type Part = (Group, SyncSender<Result<Made>>);

struct Running<T> {
    request: Request,
    since: Instant,
    what: T,
}

/// The number of things that have ended which is worth waking a thread up for.
const MANY: usize = 64;
/// The time for work that is pending when the process ends, and for the end of MPI where a rank may be lost.
const GRACE: Duration = Duration::from_secs(5);

impl Thread {
    fn begin(tasks: Receiver<Task>, over: Sender<Ended>) -> Result<(Self, (usize, usize), String)> {
        let version = environment::library_version().unwrap_or_else(|_| "an unknown MPI".into());
        let version = version.trim_matches(|char: char| char == '\0' || char.is_whitespace()).to_owned();
        let universe =
            environment::initialize_with_threading(Threading::Multiple).map(|(universe, _)| universe);
        let threads = environment::threading_support();
        if threads < Threading::Multiple && (universe.is_none() || threads < Threading::Funneled) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "{version} was begun with {threads:?} as what it allows to threads; begin it with MPI_THREAD_MULTIPLE, or \
                     leave the beginning to gpustream-collectives"
                ),
            ));
        }
        let world = Comm::world();
        if universe.is_some() {
            world.return_errors()?;
        }
        let (rank, size) = world.place()?;
        let bond = Arc::new(Bond::new((rank, size), Duration::MAX));
        let groups = [(WORLD, Group::new(world, world, bond))].into();
        let (ops, ended) = (Ops::default(), Ended::default());
        let thread = Self { tasks, groups, next: 1, ops, universe, ending: None, broke: false, ended, over };
        Ok((thread, (rank, size), version))
    }

    fn run(mut self) {
        let mut pause = Pause::default();
        loop {
            let task = if self.groups.values().any(Group::is_busy) || self.ending.is_some() {
                pause.wait(&self.tasks)
            } else {
                self.tasks.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            match task {
                Ok(task) => {
                    self.take(task);
                    while let Ok(task) = self.tasks.try_recv() {
                        self.take(task);
                    }
                    pause = Pause::default();
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.step() {
                pause = Pause::default();
            }
            let is_busy = self.groups.values().any(Group::is_busy);
            if let Some((reply, deadline)) = &self.ending
                && (!is_busy || Instant::now() > *deadline)
            {
                let reply = reply.clone();
                let _ = reply.send(self.give_up());
                drop(self.universe.take());
                let _ = reply.send(true);
                // What belongs to streams outlives this thread.
                return std::mem::forget(self);
            }
        }
    }

    /// Breaks the communicators whose work is pending, and returns whether none is broken.
    fn give_up(&mut self) -> bool {
        for group in self.groups.values_mut().filter(|group| group.is_busy()) {
            group.break_up(Broken::Aborted { rank: group.bond.rank }, &mut self.ended);
        }
        !self.broke && self.groups.values().all(|group| group.broken.is_none())
    }

    fn take(&mut self, task: Task) {
        match task {
            Task::Start(number, piece) => match self.groups.get_mut(&number) {
                Some(group) => group.add(piece, &mut self.ended),
                None => self.ended.pieces.push(piece),
            },
            Task::Meet(number, meeting, limit) => {
                if let Some(group) = self.groups.get_mut(&number) {
                    group.meet(meeting, limit, &mut self.ended);
                }
            }
            Task::Break(number, broken) => {
                if let Some(group) = self.groups.get_mut(&number) {
                    group.break_up(broken, &mut self.ended);
                }
            }
            Task::Close(number, staging) => {
                if let Some(group) = self.groups.get_mut(&number) {
                    group.closed = Some(staging);
                }
            }
            Task::End(reply) => self.ending = Some((reply, Instant::now() + GRACE)),
        }
    }

    /// Goes on with everything, and returns whether anything came to its end or began.
    fn step(&mut self) -> bool {
        let (mut moved, mut made) = (false, Vec::new());
        for group in self.groups.values_mut() {
            moved |= group.start(&mut self.ops, &mut self.ended);
            moved |= group.finish(&mut self.ended);
            moved |= group.finish_meeting(&mut made, &mut self.ended);
        }
        for (part, reply) in made {
            let number = Number(self.next);
            self.next += 1;
            let bond = part.bond.clone();
            self.groups.insert(number, part);
            if reply.send(Ok(Made { number, bond })).is_err() {
                self.groups.remove(&number);
            }
        }
        let ready = |group: &Group| group.closed.is_some() && !group.waits();
        while let Some(number) = self.groups.iter().find(|(_, group)| ready(group)).map(|(number, _)| *number)
            && let Some(group) = self.groups.remove(&number)
        {
            self.broke |= group.broken.is_some();
            self.ended.staging.extend(group.close());
        }
        let is_idle = !self.groups.values().any(Group::is_busy);
        if self.ended.len() >= MANY || (is_idle && self.ended.len() > 0) {
            let _ = self.over.send(std::mem::take(&mut self.ended));
        }
        moved
    }
}

impl Group {
    fn new(calls: Comm, meetings: Comm, bond: Arc<Bond>) -> Self {
        let (waiting, running, last, meeting) = Default::default();
        Self { calls, meetings, bond, broken: None, waiting, running, last, meeting, closed: None }
    }

    /// Returns whether something is under way. What a broken communicator's requests do is nobody's concern.
    fn waits(&self) -> bool {
        let is_empty = self.waiting.is_empty() && self.running.is_empty() && self.meeting.is_empty();
        !is_empty && self.broken.is_none()
    }

    fn is_busy(&self) -> bool {
        self.waits() || self.closed.is_some()
    }

    /// Ends a communicator that is closed, and returns its staging memory.
    fn close(mut self) -> Option<Staging> {
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

    fn add(&mut self, piece: Piece, ended: &mut Ended) {
        match &self.broken {
            Some(broken) => {
                piece.fail(broken);
                ended.pieces.push(piece);
            }
            None => self.waiting.push_back(piece),
        }
    }

    /// Starts the pieces to which their streams have come.
    fn start(&mut self, ops: &mut Ops, ended: &mut Ended) -> bool {
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
    fn finish(&mut self, ended: &mut Ended) -> bool {
        let mut moved = false;
        let mut at = 0;
        while self.broken.is_none()
            && let Some(running) = self.running.get_mut(at)
        {
            let call = running.what.call;
            match running.request.is_done(&call, running.what.count) {
                Ok(false) if running.since.elapsed() > self.bond.limit => {
                    let limit = self.bond.limit;
                    self.break_up(Broken::Stalled { call: call.to_string(), limit }, ended);
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

    fn meet(&mut self, mut meeting: Meeting, limit: Duration, ended: &mut Ended) {
        if let Some(broken) = self.bond.broken() {
            return meeting.refuse(Error::external(broken));
        }
        let started = match &mut meeting {
            Meeting::Split { .. } => self.meetings.barrier(),
            Meeting::Compare { shown, all, .. } => {
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
    fn finish_meeting(&mut self, made: &mut Vec<Part>, ended: &mut Ended) -> bool {
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
                self.break_up(Broken::Stalled { call: call.to_string(), limit }, ended);
            }
            Ok(false) => return false,
            Err(error) => self.fail(&call, &error, ended),
            Ok(true) => {
                let Some(Running { what: (meeting, limit), .. }) = self.meeting.pop_front() else {
                    return false;
                };
                match meeting {
                    Meeting::Compare { all, reply, .. } => drop(reply.send(Ok(all))),
                    Meeting::Split { color, key, reply } => match self.split(color, key, limit) {
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

    /// Makes the communicator of this rank's color. All ranks are here.
    fn split(&self, color: i32, key: i32, limit: Duration) -> Result<Self> {
        let meetings = self.meetings.split(color, key)?;
        let calls = meetings.duplicate()?;
        Ok(Self::new(calls, meetings, Arc::new(Bond::new(calls.place()?, limit))))
    }

    fn fail(&mut self, call: &Signature, error: &Error, ended: &mut Ended) {
        self.break_up(Broken::Failed { call: call.to_string(), message: error.to_string() }, ended);
    }

    fn reason(&self) -> Error {
        self.bond.check().err().unwrap_or_else(ended)
    }

    /// Breaks the communicator, and lets the streams go on. Requests stay, since MPI takes few of them back.
    fn break_up(&mut self, broken: Broken, ended: &mut Ended) {
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
    fn len(&self) -> usize {
        self.pieces.len() + self.staging.len()
    }
}

impl Meeting {
    /// Returns the words for errors.
    fn call(&self) -> Signature {
        let operation = match self {
            Self::Split { .. } => Operation::Split,
            Self::Compare { .. } => Operation::Compare,
        };
        Signature { operation, element: ElementType::U8, count: 0 }
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
    fn fail(&self, broken: &Broken) {
        // Waits must find the failure once the work ends.
        self.failures.keep(Error::external(broken.clone()));
        self.done.set(self.number.max(self.done.get()));
    }

    /// Divides sums where an average was asked for.
    fn average(&self, ranks: usize) {
        let Signature { operation, element, .. } = self.call;
        let (Operation::AllReduce(Op::Average)
        | Operation::ReduceScatter(Op::Average)
        | Operation::Reduce { op: Op::Average, .. }) = operation
        else {
            return;
        };
        if !self.memory.gets.is_null() {
            // SAFETY: MPI has written the elements, and the stream reads them after this.
            unsafe { combine::divide(element, self.memory.gets.cast(), self.count, ranks) };
        }
    }
}

/// The time between two looks at what is under way: none at first, since most exchanges end soon.
#[derive(Default)]
struct Pause(u32);

impl Pause {
    /// Waits for a task until it is time for the next look.
    fn wait(&mut self, tasks: &Receiver<Task>) -> Result<Task, RecvTimeoutError> {
        /// The looks that give other threads their turn alone.
        const SOON: u32 = 100;
        self.0 = self.0.saturating_add(1);
        match self.0.checked_sub(SOON) {
            None => {
                thread::yield_now();
                tasks.try_recv().map_err(|error| match error {
                    TryRecvError::Empty => RecvTimeoutError::Timeout,
                    TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
                })
            }
            Some(late) => tasks.recv_timeout(Duration::from_micros(u64::from(late.min(50) + 1) * 10)),
        }
    }
}
