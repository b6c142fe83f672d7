//! Streams that wait for a word in memory, and the thread that looks at these words.
//!
//! Kernels write such words with plain stores, and the host may too. A store wakes no one, so a separate
//! thread looks at the words. That way a waiting stream occupies no worker, and the words are looked at even
//! if all workers are busy. The first submitted wait starts the thread. It looks less and less often while
//! nothing happens.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use gpustream_hal::WaitValue;
use gpustream_hal::thread::with_signals_blocked;

use crate::sync::lock;

/// The time between the first two looks. It is about what a thread takes to fall asleep and wake up.
const SHORTEST: Duration = Duration::from_micros(50);
/// The longest time between two looks, and so how late we may notice a write. Looking this often took 3 % of
/// a core on a virtual machine, whether for one stream or a thousand.
const LONGEST: Duration = Duration::from_millis(1);

/// A stream that waits for a word.
pub(crate) trait Waiter: Send + Sync {
    /// Goes on: the wait is over.
    fn wait_done(self: Arc<Self>);
}

/// A word in memory, and the values to wait for.
#[derive(Clone, Copy)]
pub(crate) struct Awaited {
    pub(crate) address: usize,
    pub(crate) until: WaitValue,
}

impl Awaited {
    /// Returns true if the word has such a value. Everything that its writer did before is then visible to
    /// this thread.
    ///
    /// # Safety
    /// The word must be alive and aligned, and only be accessed by atomics or kernels.
    pub(crate) unsafe fn is_met(self) -> bool {
        // SAFETY: by this function's contract.
        self.until.is_met(unsafe { read(self.address) })
    }
}

/// Reads a word. Everything that its writer did before is then visible to this thread.
///
/// # Safety
/// As for [`Awaited::is_met`].
pub(crate) unsafe fn read(address: usize) -> u32 {
    // SAFETY: by this function's contract.
    unsafe { AtomicU32::from_ptr(address as *mut u32) }.load(Ordering::Acquire)
}

/// Writes a word after everything that this thread has done before.
///
/// # Safety
/// As for [`Awaited::is_met`].
pub(crate) unsafe fn write(address: usize, value: u32) {
    // SAFETY: by this function's contract.
    unsafe { AtomicU32::from_ptr(address as *mut u32) }.store(value, Ordering::Release);
}

/// The streams of a device that wait for words.
pub(crate) struct MemoryWaits {
    state: Mutex<MemoryWaitsState>,
    /// Notified when a wait is added and when a stream has written a word.
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

    /// Starts the thread that looks, unless it is already running. Once `is_lost` returns true, the thread
    /// ends all waits.
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

    /// Makes `waiter` continue when the word has the right value.
    ///
    /// # Safety
    /// [`start`](Self::start) must have succeeded. Until the waiter continues, the word must be as [`Awaited::is_met`] demands.
    pub(crate) unsafe fn wait(&self, word: Awaited, waiter: Arc<dyn Waiter>) {
        lock(&self.state).waits.push(Wait { word, waiter });
        self.wake.notify_one();
    }

    /// Makes the thread look at once, because a stream has written a word and another may be waiting for it.
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
            // SAFETY: the words are alive until their waiters continue, by the contract of `wait`.
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
