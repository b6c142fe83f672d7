//! Tensors of another library, made by hand, and tensors for another library: fields, order, deleters and
//! errors.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

mod exit;
mod export;
mod import;
mod lifetimes;
mod theirs;

use std::sync::mpsc::{Sender, channel};

use gpustream::{Device, Stream};

fn stream() -> Stream {
    Device::open("cpu").unwrap().stream().unwrap()
}

/// Holds up the stream's work until the sender is used or dropped.
fn hold(stream: &Stream) -> Sender<()> {
    let (release, released) = channel();
    stream.host_fn(move || released.recv().unwrap_or(())).unwrap();
    release
}
