//! A host closure runs on another thread, so it must be `Send`.
use std::rc::Rc;

use gpustream::{Result, Stream};

fn submit(s: &Stream) -> Result<()> {
    let shared = Rc::new(1);
    s.host_fn(move || drop(shared))
}

fn main() {}
