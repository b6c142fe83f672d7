//! The ranks of one process: every operation against plain Rust, the order of work, and ranks that go wrong.
//!
//! By default the ranks are three CPU devices. `GPUSTREAM_TEST_RANKS` sets another number, and
//! `GPUSTREAM_TEST_DEVICES` lists other devices, such as `cuda:0,cuda:0,cuda:0`. There are always at least
//! three ranks; if there are fewer devices, they share.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

mod faults;
mod lines;
mod operations;
mod order;
mod plain;
mod ranks;
mod splits;

use std::env;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};
use std::time::Duration;

use gpustream::{Device, DeviceOptions, Tracking};
use gpustream_collectives::{Communicator, CommunicatorOptions, World};
use libtest_mimic::{Arguments, Failed, Trial};
pub(crate) use ranks::{broken, each, hold, streams, tests};

/// True if the engine combines 16-bit integers.
const COMBINES_16_BITS: bool = true;
/// The variable with the number of ranks on CPU devices.
const RANKS: &str = "GPUSTREAM_TEST_RANKS";
/// How many ranks some tests need.
const SEVERAL: usize = 3;
/// A limit that no test reaches.
const LONG: Duration = Duration::from_secs(60);
/// The variable that sets the number of CPU devices.
const CPU_DEVICES: &str = "GPUSTREAM_CPU_DEVICES";

fn main() -> ExitCode {
    if env::var_os(CPU_DEVICES).is_none() {
        // We start the tests in a new process, because a process counts the CPU's devices only once, from its environment.
        let error = Command::new(env::current_exe().unwrap())
            .args(env::args_os().skip(1))
            .env(CPU_DEVICES, env::var(RANKS).unwrap_or_else(|_| SEVERAL.to_string()))
            .exec();
        panic!("the test cannot start itself again: {error}");
    }
    let tests = ranks::all(&[operations::TESTS, order::TESTS, faults::TESTS, splits::TESTS, lines::TESTS]);
    let trials = tests.into_iter().map(|(name, test)| {
        Trial::test(name, move || {
            test();
            Ok::<(), Failed>(())
        })
    });
    let mut arguments = Arguments::from_args();
    if !device_names().iter().all(|name| name.starts_with("cpu")) {
        // A GPU's driver has a single thread for all host closures. If one test's closures hold it up, they
        // hold up other tests too.
        arguments.test_threads = Some(1);
    }
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn device_names() -> Vec<String> {
    if let Ok(names) = env::var("GPUSTREAM_TEST_DEVICES") {
        return names.split(',').map(str::to_owned).collect();
    }
    let count = env::var(RANKS).map_or(SEVERAL, |count| count.parse().unwrap());
    (0..count).map(|rank| format!("cpu:{rank}")).collect()
}

/// Returns the number of ranks in most tests.
fn rank_count() -> usize {
    device_names().len().max(SEVERAL)
}

/// Opens the ranks' devices.
fn devices(options: DeviceOptions) -> Vec<Device> {
    let names = device_names();
    names.iter().cycle().take(rank_count()).map(|name| Device::open_with(name, options).unwrap()).collect()
}

/// Returns true if the engine combines elements in the order of the ranks and rounds once.
fn combines_in_order() -> bool {
    true
}

fn options(limit: Duration) -> CommunicatorOptions {
    CommunicatorOptions::default().time_limit(limit)
}

/// Makes the communicators of all ranks. They wait for each other for `limit`.
fn ranks_within(limit: Duration) -> Vec<Communicator> {
    World::local(&devices(DeviceOptions::default())).unwrap().communicators_with(options(limit)).unwrap()
}

/// Makes the communicators of all ranks. A test that hangs fails after a minute.
fn ranks() -> Vec<Communicator> {
    ranks_within(LONG)
}

/// Makes the communicators of all ranks on devices with strict tracking.
fn strict_ranks() -> Vec<Communicator> {
    let devices = devices(DeviceOptions::default().tracking(Tracking::Strict));
    World::local(&devices).unwrap().communicators_with(options(LONG)).unwrap()
}
