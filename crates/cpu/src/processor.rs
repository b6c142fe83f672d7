//! Which processors threads run on.
//!
//! When Linux wakes a thread, it looks for an idle processor. It finds none while the program's thread is
//! still polling for the end of the operation, or if it thinks that the machine is busy. Then it puts the
//! thread on the same processor, behind the one that woke it. There the thread often stays for longer than
//! the operation takes, even if another processor has become idle.

use rustix::thread::{sched_getaffinity, sched_getcpu, sched_setaffinity};

/// Returns the processor that this thread runs on.
pub(crate) fn current() -> usize {
    sched_getcpu()
}

/// Moves this thread to another processor, if its affinity allows one. It may come back later.
#[cold]
pub(crate) fn move_away() {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let mut others = allowed;
    others.unset(current());
    if others.count() != 0 && sched_setaffinity(None, &others).is_ok() {
        // This is the affinity that the thread had. If the system refuses it now, we have nothing better to
        // ask for.
        let _ = sched_setaffinity(None, &allowed);
    }
}

#[cfg(test)]
mod tests {
    use rustix::thread::CpuSet;

    use super::*;

    /// Runs `test` on a thread that may only use `processors`.
    fn with_affinity(processors: &CpuSet, test: impl FnOnce() + Send) {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                sched_setaffinity(None, processors).unwrap();
                test();
            });
        });
    }

    #[test]
    fn moving_away_keeps_the_affinity() {
        let before = sched_getaffinity(None).unwrap();
        with_affinity(&before, || {
            move_away();
            assert_eq!(sched_getaffinity(None).unwrap(), before);
        });
    }

    #[test]
    fn a_thread_of_one_processor_stays() {
        let mut one = CpuSet::new();
        one.set(current());
        with_affinity(&one, || {
            let here = current();
            move_away();
            assert_eq!((current(), sched_getaffinity(None).unwrap()), (here, one));
        });
    }
}
