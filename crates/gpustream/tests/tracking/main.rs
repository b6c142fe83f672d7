//! Tests the order of operations on a model of a device (`paper`): the library's driver calls suffice, and none is superfluous.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod counts;
mod failures;
mod foreign;
mod lifetimes;
mod order;
mod paper;
mod pool;
mod random;
mod staging;

use gpustream::{Arg, Buffer, Kernel, Launch, Result, Stream, View, ViewMut};

/// An argument of the paper device's kernel.
pub(crate) enum Mem<'a> {
    Read(View<'a, u8>),
    Write(ViewMut<'a, u8>),
}

/// Launches the kernel that touches `memory`.
#[track_caller]
pub(crate) fn touch(kernel: &Kernel, stream: &Stream, memory: &mut [Mem<'_>]) -> Result<()> {
    let words: Vec<[usize; 2]> = memory
        .iter()
        .map(|memory| match memory {
            Mem::Read(view) => [view.len(), 0],
            Mem::Write(view) => [view.len(), 1],
        })
        .collect();
    let mut args = Vec::new();
    for (memory, words) in memory.iter_mut().zip(&words) {
        args.push(match memory {
            Mem::Read(view) => Arg::read(view),
            Mem::Write(view) => Arg::write(view),
        });
        args.extend(words.iter().map(Arg::value));
    }
    // SAFETY: the kernel does not really run.
    unsafe { kernel.launch(stream, &Launch::new([1; 3], [1; 3]), &args) }
}

/// Launches the kernel that reads all of a buffer.
#[track_caller]
pub(crate) fn read(kernel: &Kernel, stream: &Stream, buffer: &Buffer<u8>) {
    touch(kernel, stream, &mut [Mem::Read(buffer.slice(..).unwrap())]).unwrap();
}

/// Launches the kernel that writes all of a buffer.
#[track_caller]
pub(crate) fn write(kernel: &Kernel, stream: &Stream, buffer: &mut Buffer<u8>) {
    touch(kernel, stream, &mut [Mem::Write(buffer.slice_mut(..).unwrap())]).unwrap();
}
