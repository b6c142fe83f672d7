//! `__syncthreads` and its kin.
//!
//! Threads come to a barrier in turn, each on its fiber; the last one lets all go and goes on itself, and its next
//! stop hands the turn to the first again. So a block with barriers in a row goes round and round, and the whole price
//! of a barrier is the hand-over from one thread to the next: [`Runner::take_turns`] is that and nothing else, and
//! whatever is not that simple takes the long way.

use std::ffi::c_char;

use crate::abi::{Context, MAX_THREADS};
use crate::block::{Runner, State};
use crate::failure::{Failure, Site};

/// The barrier that threads of the block wait at, if any do.
#[derive(Debug)]
pub(crate) struct Barrier {
    /// Threads that wait.
    waiting: u32,
    /// How many of their predicates hold.
    votes: u32,
    /// The barrier's line, if all threads of the block are known to have fibers; otherwise [`NO_LINE`].
    round: u32,
    site: Site,
}

/// No source has that many lines.
const NO_LINE: u32 = u32::MAX;

impl Default for Barrier {
    fn default() -> Self {
        Self { waiting: 0, votes: 0, round: NO_LINE, site: Site::default() }
    }
}

impl Barrier {
    /// Where the threads wait.
    pub(crate) fn site(&self) -> Site {
        self.site
    }
}

/// A thread comes to a barrier, and waits with its stack pointer at `here`. Gives the one to go on with: of another
/// thread, of the worker, or its own again if it is the last.
///
/// # Safety
/// Called by [`crate::switch::barrier`] for the thread that runs.
pub(crate) unsafe extern "C" fn arrive(
    context: *mut Context,
    thread: u32,
    predicate: u32,
    file: *const c_char,
    line: u32,
    here: usize,
) -> usize {
    // SAFETY: the context is the first field of a runner, whose worker waits in `Exchange::run` while kernels run.
    let runner = unsafe { &mut *context.cast::<Runner>() };
    match runner.take_turns(thread, predicate, line, here) {
        Some(next) => next,
        // SAFETY: passed on to the caller.
        None => unsafe { arrive_anyhow(context, thread, predicate, file, line, here) },
    }
}

/// Any arrival. A function of the same form as the one that calls it, so that it can be jumped to: what comes before
/// then needs no frame of its own, which would be one more cache line per thread.
#[inline(never)]
unsafe extern "C" fn arrive_anyhow(
    context: *mut Context,
    thread: u32,
    predicate: u32,
    file: *const c_char,
    line: u32,
    here: usize,
) -> usize {
    // SAFETY: as in `arrive`.
    let runner = unsafe { &mut *context.cast::<Runner>() };
    runner.arrive_anyhow(thread, predicate, Site { file, line }, here)
}

impl Runner {
    /// The usual arrival: neither the first nor the last, at the barrier where the others wait, in a block whose
    /// threads all have fibers; and the next thread can run. Nothing happens if it is not.
    #[inline]
    fn take_turns(&mut self, thread: u32, predicate: u32, line: u32, here: usize) -> Option<usize> {
        if line != self.barrier.round || self.barrier.waiting + 1 == self.total {
            return None;
        }
        let next = if thread + 1 == self.total { 0 } else { thread + 1 };
        let fiber = next as usize;
        if self.states[fiber % MAX_THREADS] != State::Ready {
            return None;
        }
        self.barrier.waiting += 1;
        self.barrier.votes += predicate;
        self.states[thread as usize % MAX_THREADS] = State::AtBarrier;
        self.context.current_thread = next;
        self.exchange.prefetch(fiber + 1);
        Some(self.exchange.pass_turn(here, Some(fiber)))
    }

    fn arrive_anyhow(&mut self, thread: u32, predicate: u32, site: Site, here: usize) -> usize {
        self.hold(thread);
        if self.barrier.waiting == 0 {
            self.barrier.site = site;
            self.barrier.round = if self.all_held() { site.line } else { NO_LINE };
        } else if self.barrier.site.line != site.line {
            self.different_barriers(thread, site);
        }
        self.states[thread as usize] = State::AtBarrier;
        self.barrier.waiting += 1;
        self.barrier.votes += predicate;
        if self.barrier.waiting == self.total {
            self.context.vote = self.barrier.votes;
            self.barrier = Barrier::default();
            self.states[..self.total as usize].fill(State::Ready);
            return here;
        }
        let next = self.successor();
        self.exchange.pass_turn(here, next)
    }

    #[cold]
    fn different_barriers(&mut self, thread: u32, site: Site) {
        let message = format!(
            "waits at the barrier at {site} while other threads wait at the one at {}: every thread of a block \
             must reach the same barrier",
            self.barrier.site
        );
        let failure = self.failure_at(Some(thread), message);
        self.set_failure(failure);
        self.barrier.round = NO_LINE;
    }
}

/// Why no thread of a block can go on, if some wait at a barrier.
pub(crate) fn stuck(runner: &Runner) -> Option<Failure> {
    let states = runner.states();
    let waiting = states.iter().position(|&s| s == State::AtBarrier)?;
    let missing = states.iter().position(|&s| s != State::AtBarrier);
    let other = match missing.map(|thread| (thread, states[thread])) {
        Some((thread, State::Exited)) => {
            format!("thread {} has returned without reaching it", runner.place(thread as u32))
        }
        Some((thread, _)) => {
            let at = Site::from(&runner.lanes[thread]);
            format!("thread {} waits in a warp operation at {at}", runner.place(thread as u32))
        }
        None => "another thread never reaches it".into(),
    };
    let message = format!(
        "waits at the barrier at {}, but {other}: every thread of a block must reach every barrier",
        runner.barrier.site
    );
    Some(runner.failure_at(Some(waiting as u32), message))
}
