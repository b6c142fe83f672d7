//! The thread that tells listeners what the library noticed: their code is the program's, and must not run on a thread that
//! holds a lock of the library's.
//!
//! The end of the process waits for what is left to tell, since a program often ends right behind the fault that it wants to be
//! told of.

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
    /// Whether a thread is at work.
    has_thread: bool,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue { tellings: VecDeque::new(), has_thread: false });

/// Runs `telling` on a thread that holds no lock, behind all earlier ones. Never blocks; this thread may hold any lock. Once the
/// process is ending, `telling` is leaked.
pub fn tell(telling: Telling) {
    let mut queue = lock(&QUEUE);
    queue.tellings.push_back(telling);
    if !queue.has_thread
        && let Some(hold) = ExitHold::of("events")
    {
        // If no thread can be started, the next one tells this too.
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
        // A listener's panic must not keep the others from being told.
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
