//! The processors that threads run on.
//!
//! Linux looks for an idle processor when it wakes a thread. It finds none while the program's thread still polls for the
//! operation's end, or where it takes the machine for busy, and puts the thread behind the one that woke it. There the
//! thread stays, often longer than the operation takes, also when another processor has become idle.

use rustix::thread::{sched_getaffinity, sched_getcpu, sched_setaffinity};

/// Returns the processor that this thread runs on.
pub(crate) fn current() -> usize {
    sched_getcpu()
}

/// Moves this thread to another processor, if its affinity names one. It may come back.
#[cold]
pub(crate) fn move_away() {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let mut others = allowed;
    others.unset(current());
    if others.count() != 0 && sched_setaffinity(None, &others).is_ok() {
        // It is the affinity that the thread had: if the system refuses it now, there is nothing better to ask for.
        let _ = sched_setaffinity(None, &allowed);
    }
}

#[cfg(test)]
mod tests {
    use rustix::thread::CpuSet;

    use super::*;

    /// Runs `test` on a thread that may run on `processors` alone.
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
