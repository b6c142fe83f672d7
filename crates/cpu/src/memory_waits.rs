//! Streams that wait for a word in memory, and the thread that looks at the words.
//!
//! Kernels write such words by plain stores, and so may the host. A store wakes nobody, so a thread of its own looks: a
//! stream that waits keeps no worker, and words are looked at while all workers are busy. The first wait that is
//! submitted starts the thread, which looks less and less often while nothing happens.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use gpustream_hal::WaitValue;
use gpustream_hal::thread::with_signals_blocked;

use crate::sync::lock;

/// The time between the first two looks, about what a thread takes to fall asleep and wake.
const SHORTEST: Duration = Duration::from_micros(50);
/// The longest time between two looks, and so the latest that a write is noticed. Looking so often took 3 % of a core on a
/// virtual machine, for one stream as for a thousand.
const LONGEST: Duration = Duration::from_millis(1);

/// A stream that waits for a word.
pub(crate) trait Waiter: Send + Sync {
    /// Goes on: the wait is over.
    fn wait_done(self: Arc<Self>);
}

/// A word in memory, and the values that somebody waits for.
#[derive(Clone, Copy)]
pub(crate) struct Awaited {
    pub(crate) address: usize,
    pub(crate) until: WaitValue,
}

impl Awaited {
    /// Returns whether the word is as asked. Its writer's earlier work is then visible to this thread.
    ///
    /// # Safety
    /// The word is alive, aligned, and reached by atomics or by kernels alone.
    pub(crate) unsafe fn is_met(self) -> bool {
        // SAFETY: by this function's contract.
        self.until.is_met(unsafe { read(self.address) })
    }
}

/// Reads a word. Its writer's earlier work is then visible to this thread.
///
/// # Safety
/// As for [`Awaited::is_met`].
pub(crate) unsafe fn read(address: usize) -> u32 {
    // SAFETY: by this function's contract.
    unsafe { AtomicU32::from_ptr(address as *mut u32) }.load(Ordering::Acquire)
}

/// Writes a word, after everything that this thread did before.
///
/// # Safety
/// As for [`Awaited::is_met`].
pub(crate) unsafe fn write(address: usize, value: u32) {
    // SAFETY: by this function's contract.
    unsafe { AtomicU32::from_ptr(address as *mut u32) }.store(value, Ordering::Release);
}

/// The waits of a device's streams.
pub(crate) struct MemoryWaits {
    state: Mutex<MemoryWaitsState>,
    /// Notified when a wait is added, and when a stream has written a word.
    wake: Condvar,
}

struct MemoryWaitsState {
    waits: Vec<Wait>,
    is_watched: bool,
}

struct Wait {
    word: Awaited,
    waiter: Arc<dyn Waiter>,
}

impl MemoryWaits {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(MemoryWaitsState { waits: Vec::new(), is_watched: false }),
            wake: Condvar::new(),
        }
    }

    /// Starts the thread that looks, unless it runs. It ends all waits once `is_lost` holds.
    pub(crate) fn start(
        &'static self,
        ordinal: usize,
        is_lost: impl Fn() -> bool + Send + 'static,
    ) -> std::io::Result<()> {
        let mut state = lock(&self.state);
        if !state.is_watched {
            let name = format!("gpustream-cpu{ordinal}-words");
            let builder = std::thread::Builder::new().name(name).stack_size(1 << 20);
            with_signals_blocked(|| builder.spawn(move || self.watch(is_lost)))?;
            state.is_watched = true;
        }
        Ok(())
    }

    /// Has `waiter` go on when the word is as asked.
    ///
    /// # Safety
    /// [`start`](Self::start) has succeeded. The word is as [`Awaited::is_met`] asks until the waiter goes on.
    pub(crate) unsafe fn wait(&self, word: Awaited, waiter: Arc<dyn Waiter>) {
        lock(&self.state).waits.push(Wait { word, waiter });
        self.wake.notify_one();
    }

    /// Has the thread look at once: a stream has written a word.
    pub(crate) fn look(&self) {
        let somebody_waits = !lock(&self.state).waits.is_empty();
        if somebody_waits {
            self.wake.notify_one();
        }
    }

    fn watch(&self, is_lost: impl Fn() -> bool) {
        let mut pause = SHORTEST;
        let mut state = lock(&self.state);
        loop {
            let lost = is_lost();
            // SAFETY: the words are alive until their waiters go on, by the contract of `wait`.
            let ready: Vec<Wait> =
                state.waits.extract_if(.., |wait| lost || unsafe { wait.word.is_met() }).collect();
            if !ready.is_empty() {
                drop(state);
                for wait in ready {
                    wait.waiter.wait_done();
                }
                pause = SHORTEST;
                state = lock(&self.state);
                continue;
            }
            if state.waits.is_empty() {
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                pause = SHORTEST;
                continue;
            }
            let (guard, timeout) =
                self.wake.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner);
            state = guard;
            pause = if timeout.timed_out() { (pause * 2).min(LONGEST) } else { SHORTEST };
        }
    }
}
