//! The thread that tells your listeners what the library noticed. A listener is your code, so it may do anything, and we
//! cannot call it on a thread that holds one of our locks.
//!
//! The end of the process waits until we have told everything, because a program often ends right after the fault that it
//! wants to hear about.

use std::collections::VecDeque;
use std::mem;
use std::panic::{self, AssertUnwindSafe};
use std::thread;

use crate::process::ExitHold;
use crate::sync::{Mutex, lock};

type Telling = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    tellings: VecDeque<Telling>,
    /// True if our thread is running.
    has_thread: bool,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue { tellings: VecDeque::new(), has_thread: false });

/// Runs `telling` on a thread that holds no lock, after all earlier ones. Never blocks, and you may hold any lock. If the
/// process is ending, leaks `telling`.
pub fn tell(telling: Telling) {
    let mut queue = lock(&QUEUE);
    queue.tellings.push_back(telling);
    if !queue.has_thread
        && let Some(hold) = ExitHold::of("events")
    {
        // If we cannot start a thread now, the next call may, and that thread tells this too.
        let tell_all = move || tell_all(hold);
        queue.has_thread = thread::Builder::new().name("gpustream-events".into()).spawn(tell_all).is_ok();
    }
}

fn tell_all(_hold: ExitHold) {
    loop {
        let mut queue = lock(&QUEUE);
        let Some(telling) = queue.tellings.pop_front() else {
            queue.has_thread = false;
            return;
        };
        drop(queue);
        // If a listener panics, the others must still be told.
        let _ = panic::catch_unwind(AssertUnwindSafe(telling)).map_err(mem::forget);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn tellings_run_in_order_on_a_thread_without_locks_and_survive_a_panic() {
        static LOCK: Mutex<()> = Mutex::new(());
        let (sender, told) = mpsc::channel();
        let guard = lock(&LOCK);
        for number in 0..3 {
            let sender = sender.clone();
            tell(Box::new(move || {
                drop(lock(&LOCK));
                // May tell more.
                tell(Box::new(|| ()));
                sender.send(number).unwrap();
                assert_ne!(number, 1, "on purpose");
            }));
        }
        drop(guard);
        assert_eq!(told.iter().take(3).collect::<Vec<_>>(), [0, 1, 2]);
    }
}
