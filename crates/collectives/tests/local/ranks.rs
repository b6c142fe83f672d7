//! Ranks on threads, and how to hold them up.

use std::sync::mpsc::{Sender, channel};
use std::thread;

use gpustream::{Error, Stream};
use gpustream_collectives::{Communicator, CommunicatorFailure};

pub(crate) type Test = (&'static str, fn());

/// Lists functions as tests, by name.
macro_rules! tests {
    ($($test:ident),* $(,)?) => {
        pub(crate) const TESTS: &[crate::ranks::Test] = &[$((concat!(module_path!(), "::", stringify!($test)), $test)),*];
    };
}
pub(crate) use tests;

/// Returns the tests of several files, without the crate's name.
pub(crate) fn all(files: &[&[Test]]) -> Vec<Test> {
    let short = |(name, test): Test| (name.split_once("::").map_or(name, |(_, name)| name), test);
    files.concat().into_iter().map(short).collect()
}

/// Makes a stream for each rank.
pub(crate) fn streams(ranks: &[Communicator]) -> Vec<Stream> {
    ranks.iter().map(|rank| rank.device().stream().unwrap()).collect()
}

/// Runs a closure for each rank on its own thread, and returns the results.
pub(crate) fn each<R: Send>(ranks: Vec<Communicator>, work: impl Fn(Communicator) -> R + Sync) -> Vec<R> {
    thread::scope(|threads| {
        let work = &work;
        let ranks: Vec<_> = ranks.into_iter().map(|rank| threads.spawn(move || work(rank))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// Holds up the stream's work until the sender is used or dropped.
pub(crate) fn hold(stream: &Stream) -> Sender<()> {
    let (release, released) = channel();
    stream.host_fn(move || released.recv().unwrap_or(())).unwrap();
    release
}

/// Returns why ranks cannot work together. The error must tell you.
pub(crate) fn broken(error: &Error) -> &CommunicatorFailure {
    let source = std::error::Error::source(error).unwrap_or_else(|| panic!("another error: {error}"));
    source.downcast_ref().unwrap_or_else(|| panic!("another error: {error}"))
}
