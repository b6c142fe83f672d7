//! You may launch a graph long after the capture has returned, so its closures cannot borrow.
use std::sync::atomic::AtomicU32;

use gpustream::{Graph, Result, Stream};

fn capture(s: &Stream) -> Result<Graph> {
    let count = AtomicU32::new(0);
    s.capture(|s| s.host_fn_repeat(|| count.store(1, std::sync::atomic::Ordering::Relaxed)))
}

fn main() {}
