//! The real NCCL on several GPUs: lost ranks, on threads and as processes, and processes that work together.

use std::env;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use gpustream::{Device, Result, Stream};
use gpustream_collectives::{Communicator, CommunicatorFailure, FileExchange, World};

use crate::{
    LONG, broken, device, each, new_ranks_within, options, rank_count, ranks_within, reduce, short, tests,
};

tests!(
    rank_that_makes_no_call_is_an_error,
    rank_that_stops_making_calls_is_an_error,
    rank_that_sends_nothing_is_an_error,
    processes_work_together,
    killed_process_is_an_error_for_the_others,
);

/// A limit that a test waits for, but within which processes can start and connect.
const LIMIT_OF_PROCESSES: Duration = Duration::from_secs(20);
/// The variable that tells a process what to do as a rank.
const ROLE: &str = "GPUSTREAM_TEST_ROLE";
/// The roles: leave after a reduction, or wait to be killed.
const WORK: &str = "work";
const STAY: &str = "stay";

/// Asserts that a rank learns of a lost one, from the call or from the next wait, and that its stream
/// continues.
#[track_caller]
fn hears_of_a_loss(rank: &Communicator, stream: &Stream, call: Result<()>) {
    let error = call.and_then(|()| stream.synchronize()).unwrap_err();
    assert!(
        matches!(broken(&error), CommunicatorFailure::Stalled { .. } | CommunicatorFailure::Failed { .. }),
        "{error}"
    );
    broken(&reduce(rank, stream).unwrap_err());
    assert_eq!(stream.download(&stream.full(3, 2u8).unwrap()).unwrap(), [2; 3]);
}

/// NCCL connects the ranks in their first call, and that call waits for the lost one.
fn rank_that_makes_no_call_is_an_error() {
    let mut ranks = new_ranks_within(short());
    let lost = ranks.pop().unwrap();
    each(ranks, |rank| {
        let stream = rank.device().stream().unwrap();
        let call = reduce(&rank, &stream).map(drop);
        hears_of_a_loss(&rank, &stream, call);
    });
    drop(lost);
}

/// Connected ranks wait on the device.
fn rank_that_stops_making_calls_is_an_error() {
    let mut ranks = ranks_within(short());
    let lost = ranks.remove(0);
    each(ranks, |rank| {
        let stream = rank.device().stream().unwrap();
        let call = reduce(&rank, &stream).map(drop);
        hears_of_a_loss(&rank, &stream, call);
    });
    drop(lost);
}

/// A message connects only two ranks, after work that all ranks have done.
fn rank_that_sends_nothing_is_an_error() {
    each(ranks_within(short()), |rank| {
        let stream = rank.device().stream().unwrap();
        reduce(&rank, &stream).unwrap();
        if rank.rank() == 1 {
            let mut memory = stream.alloc::<u8>(10).unwrap();
            let call = rank.recv(&stream, &mut memory, 0);
            hears_of_a_loss(&rank, &stream, call);
        }
    });
}

/// Does what a test started this process for. Returns false otherwise.
pub(crate) fn play_role() -> bool {
    let Ok(role) = env::var(ROLE) else { return false };
    let world = World::from_env().unwrap();
    // The other devices belong to the other processes.
    let device = device(world.rank());
    let rank = world.communicator_with(&device, options(LONG)).unwrap();
    work(&rank, &device);
    if role == STAY {
        loop {
            thread::park();
        }
    }
    true
}

/// Makes a call that needs all ranks.
fn work(rank: &Communicator, device: &Device) {
    let stream = device.stream().unwrap();
    let memory = reduce(rank, &stream).unwrap();
    assert_eq!(stream.download(&memory).unwrap(), [rank.size() as f32; 100]);
}

/// Returns the variables that Hydra sets to tell a process its rank.
fn place(rank: usize, count: usize) -> [(&'static str, String); 2] {
    [("PMI_RANK", rank.to_string()), ("PMI_SIZE", count.to_string())]
}

/// The processes of all ranks except the first, which is this process.
struct Others(Vec<Child>);

impl Others {
    fn start(role: &str, folder: &Path, count: usize) -> Self {
        let start = |rank: usize| {
            let mut command = Command::new(env::current_exe().unwrap());
            command.env(ROLE, role).env("GPUSTREAM_EXCHANGE", format!("file:{}", folder.display()));
            command.envs(place(rank, count)).spawn().unwrap()
        };
        Self((1..count).map(start).collect())
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // An error means that the process has already ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Starts the other ranks as processes, and makes the first rank's communicator.
fn among_processes(role: &str, limit: Duration) -> (Communicator, Others, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let meeting = folder.path().join("meeting");
    let variables = place(0, rank_count());
    let lookup =
        |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone());
    let world = World::from_variables(lookup).unwrap();
    let world = world.with_exchange(Arc::new(FileExchange::create(&meeting).unwrap()));
    let others = Others::start(role, &meeting, rank_count());
    (world.communicator_with(&device(0), options(limit)).unwrap(), others, folder)
}

fn processes_work_together() {
    let (rank, mut others, _folder) = among_processes(WORK, LONG);
    work(&rank, rank.device());
    for process in &mut others.0 {
        assert!(process.wait().unwrap().success());
    }
}

fn killed_process_is_an_error_for_the_others() {
    let (rank, others, _folder) = among_processes(STAY, LIMIT_OF_PROCESSES);
    let stream = rank.device().stream().unwrap();
    work(&rank, rank.device());
    drop(others);
    let call = reduce(&rank, &stream).map(drop);
    hears_of_a_loss(&rank, &stream, call);
}
