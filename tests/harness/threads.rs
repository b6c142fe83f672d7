//! Threads of tests.

use std::thread;

use gpustream::Result;

/// Does `work` on this many threads at once. Each thread gets its number.
///
/// # Errors
/// The first error of a thread.
///
/// # Panics
/// If an assertion fails in a thread.
pub fn on_threads(threads: u32, work: impl Fn(u32) -> Result<()> + Sync) -> Result<()> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("the thread's own assertions"))
    })
}
