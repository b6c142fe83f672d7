//! MPI in this process: one thread makes all MPI calls. It only starts operations and tests whether they are
//! done. It waits for other ranks only after it has seen that all of them have come, so a lost rank cannot
//! block it beyond the time limit.

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

pub(super) struct Process {
    tasks: Sender<(Number, Task)>,
    /// This process's rank, and the number of ranks.
    pub(super) place: (usize, usize),
    /// What MPI calls its version.
    pub(super) version: String,
}

/// The communicator of all ranks. All others are split from it.
pub(super) const WORLD: Number = Number(0);

/// A task for the thread, concerning one communicator.
pub(super) enum Task {
    /// Start a piece of an exchange, after the pieces that came before.
    Start(Piece),
    /// Wait, for at most this long, until all ranks have come, and do something together.
    Meet(HostCollective, Duration),
    /// Handle a request about messages.
    Mail(Mail),
    /// End the communicator's work, for this reason.
    Break(CommunicatorFailure),
    /// Close a communicator once its work is done, and then free its staging memory.
    Close(Staging),
    /// Shut MPI down. The replies are whether all communicators are intact, and then that MPI has ended. This
    /// is the last task.
    End(SyncSender<bool>),
}

/// Returns MPI in this process. The first call starts it. Blocks until it has started.
///
/// # Errors
/// [`ErrorKind::Unsupported`] if your program started MPI itself without support for several threads.
pub(super) fn of_process() -> Result<&'static Process> {
    static PROCESS: OnceLock<Result<Process>> = OnceLock::new();
    PROCESS.get_or_init(begin).as_ref().map_err(Clone::clone)
}

fn begin() -> Result<Process> {
    let (tasks, taken) = channel();
    let (begun, told) = sync_channel(1);
    // Dropping the last handle of a device waits for the device, and its work may be waiting for MPI's
    // thread. So another thread must drop the handles.
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
    // SAFETY: the handler takes no arguments.
    if unsafe { libc::atexit(end) } != 0 {
        return Err(Error::external(
            "MPI cannot be started, because `atexit` has no room for the function that ends it; let the program \
             register fewer functions",
        ));
    }
    Ok(Process { tasks, place, version })
}

/// Ends MPI at the end of the process. MPI can only be started once per process, so we cannot end it earlier.
/// And if we did not end it, MPI would take that for a crash.
extern "C" fn end() {
    if let Ok(process) = of_process() {
        let (reply, ended) = sync_channel(2);
        process.give(WORLD, Task::End(reply));
        // MPI waits for the other ranks here, even for lost ones.
        match ended.recv() {
            Ok(true) => drop(ended.recv()),
            Ok(false) => drop(ended.recv_timeout(GRACE)),
            Err(_) => {}
        }
    }
}

impl Process {
    /// Gives the thread a task for a communicator. Never blocks.
    pub(super) fn give(&self, number: Number, task: Task) {
        // The thread accepts tasks until the process ends.
        let _ = self.tasks.send((number, task));
    }

    /// Waits, for at most `limit`, until all ranks have come, and does something together. `meeting` gets the
    /// place for the reply.
    pub(super) fn meet<T>(
        &self,
        number: Number,
        limit: Duration,
        make: impl FnOnce(SyncSender<Result<T>>) -> HostCollective,
    ) -> CollectiveResult<T> {
        let (reply, answer) = sync_channel(1);
        self.give(number, Task::Meet(make(reply), limit));
        CollectiveResult(answer)
    }
}

/// The result of a host collective, once it is there.
pub(super) struct CollectiveResult<T>(Receiver<Result<T>>);

impl<T> CollectiveResult<T> {
    /// Blocks until all ranks have come or the limit has passed.
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
    /// Ends MPI when dropped. `None` if your program started MPI.
    universe: Option<Universe>,
    ending: Option<(SyncSender<bool>, Instant)>,
    /// True if a broken communicator was closed.
    broke: bool,
    ended: Ended,
    /// Sends finished things to the thread that drops them.
    over: Sender<Ended>,
}

/// How many finished things make it worth waking that thread.
const MANY: usize = 64;
/// How long pending work may take when the process ends, and how long MPI's shutdown may take if a rank may
/// be lost.
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
                    "the program started {version} with the thread support {threads:?}; start it with MPI_THREAD_MULTIPLE, or \
                     let gpustream-collectives start it"
                ),
            ));
        }
        let world = Comm::world();
        if universe.is_some() {
            world.return_errors()?;
        }
        let (rank, size) = world.place()?;
        let state = Arc::new(CommunicatorState::new((rank, size), Duration::MAX));
        let groups = [(WORLD, ProcessGroup::new(world, world, state))].into();
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
                // Streams may still use the data, so it must outlive this thread.
                return std::mem::forget(self);
            }
        }
    }

    /// Breaks the communicators that have pending work. Returns true if none is broken.
    fn give_up(&mut self) -> bool {
        for group in self.groups.values_mut().filter(|group| group.is_busy()) {
            group.break_up(CommunicatorFailure::Aborted { rank: group.state.rank }, &mut self.ended);
        }
        !self.broke && self.groups.values().all(|group| group.broken.is_none())
    }

    fn take(&mut self, (number, task): (Number, Task)) {
        // A communicator exists until its last task closes it.
        let Some(group) = self.groups.get_mut(&number) else { return };
        match task {
            Task::Start(piece) => group.add(piece, &mut self.ended),
            Task::Meet(collective, limit) => group.meet(collective, limit, &mut self.ended),
            Task::Mail(mail) => group.mail(mail, &mut self.ended),
            Task::Break(broken) => group.break_up(broken, &mut self.ended),
            Task::Close(staging) => group.closed = Some(staging),
            Task::End(reply) => self.ending = Some((reply, Instant::now() + GRACE)),
        }
    }

    /// Makes progress with everything. Returns true if anything began or ended.
    fn step(&mut self) -> bool {
        let (mut moved, mut made) = (false, Vec::new());
        for group in self.groups.values_mut() {
            moved |= group.start(&mut self.ops, &mut self.ended);
            moved |= group.finish(&mut self.ended);
            moved |= group.finish_collective(&mut made, &mut self.ended);
            moved |= group.carry(&mut self.ended);
        }
        for (part, reply) in made {
            let number = Number(self.next);
            self.next += 1;
            let state = part.state.clone();
            self.groups.insert(number, part);
            if reply.send(Ok(NewCommunicator { number, state })).is_err() {
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

/// How long to pause between two looks at pending work. There is no pause at first, because most exchanges
/// end soon.
struct Pause {
    since: Instant,
    /// The next time to sleep.
    asleep: Duration,
}

impl Default for Pause {
    fn default() -> Self {
        Self { since: Instant::now(), asleep: Duration::from_micros(10) }
    }
}

impl Pause {
    /// Waits for a task, or until it is time for the next look.
    fn wait<T>(&mut self, tasks: &Receiver<T>) -> Result<T, RecvTimeoutError> {
        /// For this long we only yield to other threads and do not sleep, because a stream's part of a small
        /// call takes less time.
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
