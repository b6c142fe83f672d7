//! Cooperative launches. All blocks must exist at the same time, so each has its own OS thread.
//!
//! A worker runs one block after another, and shared memory belongs to a thread. So for the duration of the
//! launch each block gets its own thread, and kernels can wait for each other there (`gs_cpu_grid_barrier` in
//! `barrier.cuh`).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;

use gpustream_hal::thread::with_signals_blocked;
use gpustream_hal::{ErrorKind, Result};

use crate::abi::GridBarrier;
use crate::block::Runner;
use crate::calls::HOST;
use crate::error::error;
use crate::fault::AltStack;
use crate::grid::{self, Launch};
use crate::shared::Shared;

/// Runs all blocks of a cooperative launch. Returns the error of the first block that failed.
///
/// # Safety
/// The launch was submitted as the traits ask.
pub(crate) unsafe fn run(launch: &Launch, shared: &'static Shared) -> Result<()> {
    let blocks = launch.blocks();
    let meeting = GridBarrier::new(blocks as u32);
    let meeting = &meeting;
    thread::scope(|scope| {
        let mut threads = Vec::new();
        let mut outcome = Ok(());
        for block in 0..blocks {
            // SAFETY: passed on to the caller; the meeting outlives the scope.
            let body = move || unsafe { run_block(launch, shared, block, meeting) };
            let name = format!("gpustream-cpu{}-block{block}", shared.ordinal);
            let builder = thread::Builder::new().name(name).stack_size(1 << 20);
            match with_signals_blocked(|| builder.spawn_scoped(scope, body)) {
                Ok(thread) => threads.push(thread),
                Err(e) => {
                    meeting.fail();
                    let message =
                        format!("cannot start a thread for block {block} of a cooperative launch: {e}");
                    outcome = Err(error(ErrorKind::OutOfMemory, message));
                    break;
                }
            }
        }
        for thread in threads {
            // A thread does not panic, because a kernel's fault is its result.
            let (result, first) = thread.join().unwrap_or((Ok(()), false));
            if outcome.is_ok() || first && result.is_err() {
                outcome = result;
            }
        }
        outcome
    })
}

/// Runs one block on this thread. Returns the outcome, and whether no other block had failed before.
unsafe fn run_block(
    launch: &Launch,
    shared: &'static Shared,
    block: u64,
    meeting: &GridBarrier,
) -> (Result<()>, bool) {
    let runner = Box::into_raw(Runner::new(&HOST));
    let signals = AltStack::install(runner);
    // SAFETY: passed on to the caller; the runner is this thread's own.
    let result = unsafe { grid::run_blocks(launch, shared, runner, block, block + 1, meeting) };
    let first = result.is_err() && meeting.fail();
    if result.is_ok() {
        meeting.leave();
    }
    // Dropping the runner also clears the signal handler's pointer to it.
    drop(signals);
    // SAFETY: made by `Box::into_raw` and used by this thread alone.
    drop(unsafe { Box::from_raw(runner) });
    (result, first)
}

const ONE_BLOCK: u64 = 1 << 32;

impl GridBarrier {
    fn new(blocks: u32) -> Self {
        Self {
            state: AtomicU64::new(u64::from(blocks) * ONE_BLOCK),
            round: AtomicU32::new(0),
            failed: AtomicU32::new(0),
        }
    }

    /// Lets the other blocks continue without one that is done.
    fn leave(&self) {
        // One change makes the numbers equal, this one or the last arrival (`gs_cpu_grid_barrier`). That one
        // releases all.
        let state = self.state.fetch_sub(ONE_BLOCK, Ordering::AcqRel) - ONE_BLOCK;
        let (left, waiting) = (state >> 32, state & (ONE_BLOCK - 1));
        if left == waiting && left > 0 {
            let round = self.round.load(Ordering::Acquire);
            self.state.fetch_sub(waiting, Ordering::AcqRel);
            self.round.store(round.wrapping_add(1), Ordering::Release);
        }
    }

    /// Makes the waiting blocks end with an error. Returns true if no block had failed before.
    fn fail(&self) -> bool {
        self.failed.swap(1, Ordering::AcqRel) == 0
    }
}
