//! MPI in this process: one thread makes all of its calls. They start exchanges and ask for their end, and wait for other
//! ranks only where all have been seen to come, so that a lost rank holds up nothing beyond the time limit.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use ::mpi::Threading;
use ::mpi::environment::{self, Universe};
use gpustream::hal::thread::with_signals_blocked;
use gpustream::{Error, ErrorKind, Result};

use super::comm::{Comm, Ops};
use super::group::{Ended, HostCollective, NewCommunicator, Number, Piece, ProcessGroup, ended};
use super::mail::Mail;
use super::stage::Staging;
use super::state::CommunicatorState;
use crate::failure::CommunicatorFailure;

/// MPI, once begun.
pub(super) struct Process {
    tasks: Sender<(Number, Task)>,
    /// This process's rank, and their number.
    pub(super) place: (usize, usize),
    /// MPI's own words for its version.
    pub(super) version: String,
}

/// The communicator of all ranks, from which those of users are split.
pub(super) const WORLD: Number = Number(0);

/// A task of the thread's, for one communicator.
pub(super) enum Task {
    /// Starts a piece of a call's exchange, after the pieces that came before.
    Start(Piece),
    /// Has all ranks come to a point of their hosts', and does something there. The limit is for them to come.
    Meet(HostCollective, Duration),
    /// Does something with messages.
    Mail(Mail),
    /// Ends the work of a communicator, for that reason.
    Break(CommunicatorFailure),
    /// Closes a communicator once its work is done, and then frees its staging memory.
    Close(Staging),
    /// Ends MPI, for all: the answers are whether all communicators are whole, and that it has ended. There are no tasks behind
    /// this.
    End(SyncSender<bool>),
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
    let named = |name: &str| thread::Builder::new().name(name.into());
    with_signals_blocked(|| named("gpustream-mpi-e").spawn(drop_all)).map_err(Error::external)?;
    let work = move || match Thread::begin(taken, over) {
        Ok((thread, place, version)) => {
            let _ = begun.send(Ok((place, version)));
            thread.run();
        }
        Err(error) => drop(begun.send(Err(error))),
    };
    with_signals_blocked(|| named("gpustream-mpi").spawn(work)).map_err(Error::external)?;
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
        process.give(WORLD, Task::End(reply));
        // MPI waits there for the other ranks, and for those that are lost too.
        match ended.recv() {
            Ok(true) => drop(ended.recv()),
            Ok(false) => drop(ended.recv_timeout(GRACE)),
            Err(_) => {}
        }
    }
}

impl Process {
    /// Gives the thread something to do for a communicator. Never blocks.
    pub(super) fn give(&self, number: Number, task: Task) {
        // The thread takes tasks until the end of the process.
        let _ = self.tasks.send((number, task));
    }

    /// Has all ranks come, for the limit at most, and something done there; `meeting` gets the place for the answer.
    pub(super) fn meet<T>(
        &self,
        number: Number,
        limit: Duration,
        meeting: impl FnOnce(SyncSender<Result<T>>) -> HostCollective,
    ) -> CollectiveResult<T> {
        let (reply, answer) = sync_channel(1);
        self.give(number, Task::Meet(meeting(reply), limit));
        CollectiveResult(answer)
    }
}

/// The answer of a meeting.
pub(super) struct CollectiveResult<T>(Receiver<Result<T>>);

impl<T> CollectiveResult<T> {
    /// Blocks until all ranks have come, or the limit is over.
    pub(super) fn wait(self) -> Result<T> {
        self.0.recv().unwrap_or_else(|_| Err(ended()))
    }
}

/// The thread that calls MPI.
struct Thread {
    tasks: Receiver<(Number, Task)>,
    groups: BTreeMap<Number, ProcessGroup>,
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

/// The number of things that have ended which is worth waking a thread up for.
const MANY: usize = 64;
/// The time for work that is pending when the process ends, and for the end of MPI where a rank may be lost.
const GRACE: Duration = Duration::from_secs(5);

impl Thread {
    fn begin(tasks: Receiver<(Number, Task)>, over: Sender<Ended>) -> Result<(Self, (usize, usize), String)> {
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
        let bond = Arc::new(CommunicatorState::new((rank, size), Duration::MAX));
        let groups = [(WORLD, ProcessGroup::new(world, world, bond))].into();
        let (ops, ended) = (Ops::default(), Ended::default());
        let thread = Self { tasks, groups, next: 1, ops, universe, ending: None, broke: false, ended, over };
        Ok((thread, (rank, size), version))
    }

    fn run(mut self) {
        let mut pause = Pause::default();
        loop {
            let task = if self.groups.values().any(ProcessGroup::is_busy) || self.ending.is_some() {
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
            let is_busy = self.groups.values().any(ProcessGroup::is_busy);
            if let Some((reply, deadline)) = &self.ending
                && (!is_busy || Instant::now() > *deadline)
            {
                let reply = reply.clone();
                let _ = reply.send(self.give_up());
                drop(self.universe.take());
                let _ = reply.send(true);
                // The data that streams use outlives this thread.
                return std::mem::forget(self);
            }
        }
    }

    /// Breaks the communicators whose work is pending, and returns whether none is broken.
    fn give_up(&mut self) -> bool {
        for group in self.groups.values_mut().filter(|group| group.is_busy()) {
            group.break_up(CommunicatorFailure::Aborted { rank: group.bond.rank }, &mut self.ended);
        }
        !self.broke && self.groups.values().all(|group| group.broken.is_none())
    }

    fn take(&mut self, (number, task): (Number, Task)) {
        // A communicator is there until it is closed, which is its last task.
        let Some(group) = self.groups.get_mut(&number) else { return };
        match task {
            Task::Start(piece) => group.add(piece, &mut self.ended),
            Task::Meet(meeting, limit) => group.meet(meeting, limit, &mut self.ended),
            Task::Mail(mail) => group.mail(mail, &mut self.ended),
            Task::Break(broken) => group.break_up(broken, &mut self.ended),
            Task::Close(staging) => group.closed = Some(staging),
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
            moved |= group.carry(&mut self.ended);
        }
        for (part, reply) in made {
            let number = Number(self.next);
            self.next += 1;
            let bond = part.bond.clone();
            self.groups.insert(number, part);
            if reply.send(Ok(NewCommunicator { number, bond })).is_err() {
                self.groups.remove(&number);
            }
        }
        let ready = |group: &ProcessGroup| group.closed.is_some() && !group.waits();
        while let Some(number) = self.groups.iter().find(|(_, group)| ready(group)).map(|(number, _)| *number)
            && let Some(group) = self.groups.remove(&number)
        {
            self.broke |= group.broken.is_some();
            self.ended.staging.extend(group.close());
        }
        let is_idle = !self.groups.values().any(ProcessGroup::is_busy);
        if self.ended.len() >= MANY || (is_idle && self.ended.len() > 0) {
            let _ = self.over.send(std::mem::take(&mut self.ended));
        }
        moved
    }
}

/// The time between two looks at what is under way: none at first, since most exchanges end soon.
struct Pause {
    since: Instant,
    /// The next time asleep.
    asleep: Duration,
}

impl Default for Pause {
    fn default() -> Self {
        Self { since: Instant::now(), asleep: Duration::from_micros(10) }
    }
}

impl Pause {
    /// Waits for a task until it is time for the next look.
    fn wait<T>(&mut self, tasks: &Receiver<T>) -> Result<T, RecvTimeoutError> {
        /// The time in which other threads get their turn between looks, and this one does not sleep: a stream's part of a
        /// small call takes less.
        const SOON: Duration = Duration::from_micros(200);
        const LONGEST: Duration = Duration::from_micros(500);
        if self.since.elapsed() < SOON {
            thread::yield_now();
            return tasks.try_recv().map_err(|error| match error {
                TryRecvError::Empty => RecvTimeoutError::Timeout,
                TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
            });
        }
        let asleep = self.asleep;
        self.asleep = (asleep + Duration::from_micros(10)).min(LONGEST);
        tasks.recv_timeout(asleep)
    }
}
