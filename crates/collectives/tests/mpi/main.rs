//! Four processes with one rank each, through MPI. Each test starts its processes with `mpirun`, which must
//! belong to the MPI that the test was built with. At the end each process says that everything was right.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

mod exchange;
mod faults;
mod groups;
#[path = "../local/operations.rs"]
mod operations;
mod order;
#[path = "../local/plain.rs"]
mod plain;
#[path = "../local/ranks.rs"]
mod ranks;
#[path = "../local/splits.rs"]
mod splits;

use std::env;
use std::process::{Command, ExitCode};
use std::time::Duration;

use gpustream::{Device, DeviceOptions, Tracking};
use gpustream_collectives::{Communicator, CommunicatorOptions, Engine, World};
use libtest_mimic::{Arguments, Failed, Trial};
pub(crate) use ranks::{broken, each, hold, streams, tests};

/// True if the engine combines 16-bit integers.
const COMBINES_16_BITS: bool = true;
const RANKS: usize = 4;
/// A limit that no test reaches.
const LONG: Duration = Duration::from_secs(60);
/// The variable that tells a process its test.
const TEST: &str = "GPUSTREAM_TEST_MPI";
/// What a process prints at the end of a test.
const RIGHT: &str = "found everything right on rank";

/// Tests of the engine `Local` that need all ranks in one process, or test what only that engine does.
const LOCAL_ALONE: [&str; 4] = [
    "operations::every_operation_is_right_in_one_group",
    "operations::one_rank_is_right",
    "splits::rank_that_leaves_a_part_leaves_no_other",
    "splits::part_of_a_rank_that_gave_up_is_broken",
];

fn main() -> ExitCode {
    let files =
        [exchange::TESTS, operations::TESTS, groups::TESTS, order::TESTS, splits::TESTS, faults::TESTS];
    let mut tests = ranks::all(&files);
    tests.retain(|(name, _)| !LOCAL_ALONE.contains(name));
    if let Ok(wanted) = env::var(TEST) {
        let (_, test) = tests.iter().find(|(name, _)| *name == wanted).unwrap();
        test();
        println!("{RIGHT} {}", World::from_env().unwrap().rank());
        return faults::exit_code(&wanted);
    }
    let trials = tests.into_iter().map(|(name, _)| Trial::test(name, move || in_processes(name)));
    let mut arguments = Arguments::from_args();
    // We run only one test at a time, because each has four processes.
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

/// Runs a test in four processes.
fn in_processes(name: &str) -> Result<(), Failed> {
    let output = Command::new("timeout")
        .args(["120", "mpirun", "--oversubscribe", "-n", &RANKS.to_string()])
        .args(faults::arguments(name))
        .arg(env::current_exe()?)
        .env(TEST, name)
        .envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")])
        .output()
        .map_err(|error| format!("mpirun: {error}; `scripts/setup.sh mpi` installs it"))?;
    let [told, errors] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    let missing: Vec<_> = (0..RANKS)
        .filter(|&rank| !faults::is_lost(name, rank) && !told.contains(&format!("{RIGHT} {rank}")))
        .collect();
    if missing.is_empty() && faults::is_expected(name, output.status.code()) {
        return Ok(());
    }
    Err(format!("{}; ranks without an end: {missing:?}\n{told}\n{errors}", output.status).into())
}

/// Opens this process's device.
fn devices(options: DeviceOptions) -> Vec<Device> {
    let name = env::var("GPUSTREAM_TEST_DEVICES").unwrap_or_else(|_| "cpu".into());
    vec![Device::open_with(&name, options).unwrap()]
}

/// Returns true if the engine combines elements in the order of the ranks and rounds once.
fn combines_in_order() -> bool {
    false
}

fn options(limit: Duration) -> CommunicatorOptions {
    CommunicatorOptions::default().engine(Engine::Mpi).time_limit(limit)
}

/// Makes this process's rank, which waits for the others for `limit`.
fn rank_within(limit: Duration) -> Communicator {
    rank_with(DeviceOptions::default(), options(limit))
}

fn rank_with(device: DeviceOptions, options: CommunicatorOptions) -> Communicator {
    let world = World::from_env().unwrap();
    let rank = world.communicator_with(&devices(device)[0], options).unwrap();
    assert_eq!((rank.rank(), rank.size()), (world.rank(), RANKS));
    rank
}

fn rank() -> Communicator {
    rank_within(LONG)
}

/// Makes this process's communicators. There is only one.
fn ranks() -> Vec<Communicator> {
    vec![rank()]
}

/// Makes this process's communicators on a device with strict tracking.
fn strict_ranks() -> Vec<Communicator> {
    vec![rank_with(DeviceOptions::default().tracking(Tracking::Strict), options(LONG))]
}
