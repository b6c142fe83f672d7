//! Tests' own threads.

use std::thread;

use gpustream::Result;

/// Does `work` on so many threads at once, each with its number.
///
/// # Errors
/// The first error of a thread.
///
/// # Panics
/// A thread's assertion fails.
pub fn on_threads(threads: u32, work: impl Fn(u32) -> Result<()> + Sync) -> Result<()> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("the thread's own assertions"))
    })
}
