//! The ranks of one process: every operation against plain Rust, the order of work, and ranks that go wrong.
//!
//! Three devices of the CPU are the ranks, or those that `GPUSTREAM_TEST_DEVICES` lists, such as `cuda:0,cuda:0,cuda:0`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

mod faults;
mod operations;
mod order;
mod plain;
mod splits;

use std::env;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use gpustream::{Device, DeviceOptions, Error, Stream};
use gpustream_collectives::{Communicator, CommunicatorOptions, World};
use libtest_mimic::{Arguments, Failed, Trial};

/// The number of ranks in most tests.
const RANKS: usize = 3;
/// The variable that says how many devices the CPU is.
const CPU_DEVICES: &str = "GPUSTREAM_CPU_DEVICES";

type Test = (&'static str, fn());

/// Lists functions as tests, by their names.
macro_rules! tests {
    ($($test:ident),* $(,)?) => {
        pub(crate) const TESTS: &[crate::Test] = &[$((concat!(module_path!(), "::", stringify!($test)), $test)),*];
    };
}
pub(crate) use tests;

fn main() -> ExitCode {
    if env::var_os(CPU_DEVICES).is_none() {
        // The CPU's devices are counted once, from the environment of the process.
        let error = Command::new(env::current_exe().unwrap())
            .args(env::args_os().skip(1))
            .env(CPU_DEVICES, "3")
            .exec();
        panic!("the test cannot start itself again: {error}");
    }
    let tests = [operations::TESTS, order::TESTS, faults::TESTS, splits::TESTS].concat();
    let trials = tests.into_iter().map(|(name, test)| {
        let name = name.split_once("::").map_or(name, |(_, name)| name);
        Trial::test(name, move || {
            test();
            Ok::<(), Failed>(())
        })
    });
    let mut arguments = Arguments::from_args();
    if !device_names().iter().all(|name| name.starts_with("cpu")) {
        // A GPU's driver has one thread for all host closures: those that hold up one test's work would hold up another's.
        arguments.test_threads = Some(1);
    }
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn device_names() -> Vec<String> {
    let names = env::var("GPUSTREAM_TEST_DEVICES").unwrap_or_else(|_| "cpu:0,cpu:1,cpu:2".into());
    names.split(',').map(str::to_owned).collect()
}

/// Opens the devices of the ranks.
fn devices(options: DeviceOptions) -> Vec<Device> {
    let names = device_names();
    names.iter().cycle().take(RANKS).map(|name| Device::open_with(name, options).unwrap()).collect()
}

/// Makes the communicators of three ranks, which wait for each other for `limit`.
fn ranks_within(limit: Duration) -> Vec<Communicator> {
    let options = CommunicatorOptions::default().time_limit(limit);
    World::local(&devices(DeviceOptions::default())).unwrap().communicators_with(options).unwrap()
}

/// Makes the communicators of three ranks. A test that hangs fails after a minute.
fn ranks() -> Vec<Communicator> {
    ranks_within(Duration::from_secs(60))
}

/// Makes a stream for each rank.
fn streams(ranks: &[Communicator]) -> Vec<Stream> {
    ranks.iter().map(|rank| rank.device().stream().unwrap()).collect()
}

/// Runs a closure for each rank on a thread of its own, and returns what they return.
fn each<R: Send>(ranks: Vec<Communicator>, work: impl Fn(Communicator) -> R + Sync) -> Vec<R> {
    thread::scope(|threads| {
        let work = &work;
        let ranks: Vec<_> = ranks.into_iter().map(|rank| threads.spawn(move || work(rank))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// Holds the stream's work up until the sender is used or dropped.
fn hold(stream: &Stream) -> Sender<()> {
    let (release, released) = channel();
    stream.host_fn(move || released.recv().unwrap_or(())).unwrap();
    release
}

/// Returns the reason why ranks cannot work together, which an error must have.
fn broken(error: &Error) -> &gpustream_collectives::Broken {
    let source = std::error::Error::source(error).unwrap_or_else(|| panic!("another error: {error}"));
    source.downcast_ref().unwrap_or_else(|| panic!("another error: {error}"))
}
