//! Which processors threads run on.
//!
//! When Linux wakes a thread, it looks for an idle processor. It finds none while the program's thread is
//! still polling for the end of the operation, or if it thinks that the machine is busy. Then it puts the
//! thread on the same processor, behind the one that woke it. There the thread often stays for longer than
//! the operation takes, even if another processor has become idle.

use std::io;
use std::mem::zeroed;

use libc::cpu_set_t;

/// Returns the processor that this thread runs on.
pub(crate) fn current() -> usize {
    // SAFETY: a query without side effects. It fails only on systems that are older than Rust supports.
    unsafe { libc::sched_getcpu() }.max(0) as usize
}

/// Returns the processors that this thread may use.
fn affinity() -> io::Result<cpu_set_t> {
    // SAFETY: a set of bits.
    let mut set = unsafe { zeroed() };
    // SAFETY: the system writes at most the set's length.
    match unsafe { libc::sched_getaffinity(0, size_of::<cpu_set_t>(), &raw mut set) } {
        0 => Ok(set),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Allows this thread these processors alone.
fn set_affinity(set: &cpu_set_t) -> io::Result<()> {
    // SAFETY: the system reads the set.
    match unsafe { libc::sched_setaffinity(0, size_of::<cpu_set_t>(), set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Moves this thread to another processor, if its affinity allows one. It may come back later.
#[cold]
pub(crate) fn move_away() {
    let Ok(allowed) = affinity() else { return };
    let mut others = allowed;
    // SAFETY: the functions change and count the bits of a local set. The system's set has a bit for each processor.
    let count = unsafe {
        libc::CPU_CLR(current(), &mut others);
        libc::CPU_COUNT(&others)
    };
    if count != 0 && set_affinity(&others).is_ok() {
        // This is the affinity that the thread had. If the system refuses it now, we have nothing better to
        // ask for.
        let _ = set_affinity(&allowed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns true if this thread may use these processors and no others.
    fn may_use(processors: &cpu_set_t) -> bool {
        // SAFETY: the function compares bits.
        unsafe { libc::CPU_EQUAL(&affinity().unwrap(), processors) }
    }

    /// Runs `test` on a thread that may only use `processors`.
    fn with_affinity(processors: &cpu_set_t, test: impl FnOnce() + Send) {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                set_affinity(processors).unwrap();
                test();
            });
        });
    }

    #[test]
    fn moving_away_keeps_the_affinity() {
        let before = affinity().unwrap();
        with_affinity(&before, || {
            move_away();
            assert!(may_use(&before));
        });
    }

    #[test]
    fn a_thread_of_one_processor_stays() {
        // SAFETY: a set of bits, which the second function changes.
        let one = unsafe {
            let mut one = zeroed();
            libc::CPU_SET(current(), &mut one);
            one
        };
        with_affinity(&one, || {
            let here = current();
            move_away();
            assert_eq!(current(), here);
            assert!(may_use(&one));
        });
    }
}
