//! Ranks that meet at an exchange, as in several processes. Here each one is a thread.

use std::env;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fake_nccl::Nccl;
use gpustream::{Device, DeviceOptions, ErrorKind, Result};
use gpustream_collectives::{Communicator, CommunicatorFailure, Engine, Exchange, LocalExchange, Op, World};

use crate::{CHECKED, LONG, broken, device, devices, each, options, rank_count, tests, vendor};

tests!(
    ranks_find_each_other,
    calls_that_differ_between_processes_name_the_rank,
    comparison_that_does_not_return_names_the_call,
    rank_that_does_not_come_is_noticed,
    rank_0_is_waited_for_until_the_limit,
    several_ranks_on_one_gpu_are_refused,
    rubbish_instead_of_an_id_is_refused,
    worlds_that_cannot_be_are_refused,
);

/// The variable of a process that is a rank without a rank 0.
const LATE_RANK: &str = "GPUSTREAM_TEST_LATE_RANK";

/// Returns a rank's world, as torchrun would describe it.
fn world(rank: usize, exchange: &LocalExchange) -> World {
    let world = World::from_variables(|name| match name {
        "RANK" | "LOCAL_RANK" => Some(rank.to_string()),
        "WORLD_SIZE" => Some(rank_count().to_string()),
        "MASTER_ADDR" => Some("localhost".into()),
        "MASTER_PORT" => Some("29500".into()),
        _ => None,
    });
    world.unwrap().with_exchange(Arc::new(exchange.clone()))
}

/// Makes the communicators of some ranks, each on its own thread.
fn meet(ranks: &[usize], device: fn(usize) -> usize, limit: Duration) -> Vec<Result<Communicator>> {
    let (exchange, devices, options) =
        (LocalExchange::new(), devices(DeviceOptions::default()), options(limit));
    thread::scope(|threads| {
        let made: Vec<_> = ranks
            .iter()
            .map(|&rank| {
                let (world, device) = (world(rank, &exchange), &devices[device(rank)]);
                threads.spawn(move || world.communicator_with(device, options))
            })
            .collect();
        made.into_iter().map(|made| made.join().unwrap()).collect()
    })
}

fn ranks_find_each_other() {
    // Rank 0 does not come first.
    let order: Vec<_> = (0..rank_count()).rev().collect();
    let ranks: Vec<_> = meet(&order, |rank| rank, LONG).into_iter().map(Result::unwrap).collect();
    assert_eq!(ranks.iter().map(Communicator::rank).collect::<Vec<_>>(), order);
    each(ranks, |rank| {
        let stream = rank.device().stream().unwrap();
        let sum = |rank: &Communicator| {
            let mut memory = stream.full(10, rank.rank() as u32).unwrap();
            rank.all_reduce_in_place(&stream, &mut memory, Op::Sum).unwrap();
            assert_eq!(stream.download(&memory).unwrap(), [(0..rank.size() as u32).sum(); 10]);
        };
        sum(&rank);
        // The odd ranks form a part.
        let part = rank.split(rank.rank() as u32 % 2, 0).unwrap();
        assert_eq!((part.rank(), part.size()), (rank.rank() / 2, (rank.size() + 1 - rank.rank() % 2) / 2));
        sum(&part);
        sum(&rank);
    });
}

/// Ranks in different processes can compare their calls only through NCCL.
fn calls_that_differ_between_processes_name_the_rank() {
    let order: Vec<_> = (0..rank_count()).collect();
    CHECKED.set(true);
    let ranks = meet(&order, |rank| rank, LONG).into_iter().map(Result::unwrap).collect();
    each(ranks, |rank: Communicator| {
        let stream = rank.device().stream().unwrap();
        let len = if rank.rank() == 1 { 3 } else { 2 };
        let mut memory = stream.full(len, 1u8).unwrap();
        let error = rank.all_reduce_in_place(&stream, &mut memory, Op::Sum).unwrap_err();
        assert!(
            matches!(broken(&error), CommunicatorFailure::Different { ranks, .. } if *ranks == [1]),
            "{error}"
        );
    });
}

/// NCCL connects the ranks in the comparison, which waits for the lost one. The error must name the call that
/// would have followed.
fn comparison_that_does_not_return_names_the_call() {
    let order: Vec<_> = (0..rank_count()).collect();
    CHECKED.set(true);
    let ranks: Vec<_> = meet(&order, |rank| rank, LONG).into_iter().map(Result::unwrap).collect();
    Nccl.hold_calls(true);
    thread::scope(|threads| {
        let call = threads.spawn(|| {
            let stream = ranks[0].device().stream().unwrap();
            let mut memory = stream.full(3, 1u8).unwrap();
            ranks[0].all_reduce_in_place(&stream, &mut memory, Op::Sum).unwrap_err()
        });
        while !Nccl.is_called() {
            thread::yield_now();
        }
        ranks[0].abort();
        let error = call.join().unwrap();
        assert_eq!(broken(&error), &CommunicatorFailure::Aborted { rank: 0 });
        assert!(error.to_string().contains("`all_reduce` (sum) with 3 elements of u8"), "{error}");
    });
}

fn rank_that_does_not_come_is_noticed() {
    for made in meet(&[0, 2], |rank| rank, Duration::from_secs(1)) {
        let error = made.unwrap_err();
        assert!(matches!(broken(&error), CommunicatorFailure::Stalled { .. }), "{error}");
    }
    // Rank 0 brings the id, so without rank 0 we have nothing to connect.
    let error = meet(&[1], |rank| rank, Duration::from_secs(1)).remove(0).unwrap_err();
    assert!(error.kind() == ErrorKind::External && error.message().contains("nccl/id"), "{error}");
}

/// The environment of the process must name the meeting place, so the test runs itself again.
fn rank_0_is_waited_for_until_the_limit() {
    if env::var_os(LATE_RANK).is_none() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new(env::current_exe().unwrap());
        child.args(["--exact", &format!("{}::processes::rank_0_is_waited_for_until_the_limit", vendor())]);
        child.envs([(LATE_RANK, "1"), ("PMI_RANK", "1"), ("PMI_SIZE", "2")]);
        child.env("GPUSTREAM_EXCHANGE", format!("file:{}", folder.path().join("nobody").display()));
        // If the program sets a limit itself, the variable is not read.
        child.env("GPUSTREAM_COLLECTIVES_TIMEOUT", "not read");
        let output = child.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let device = &device(1);
    let limit = options(Duration::from_millis(1));
    let error = World::from_env().unwrap().communicator_with(device, limit).unwrap_err();
    assert!(error.kind() == ErrorKind::External && error.message().contains("nobody"), "{error}");
}

fn several_ranks_on_one_gpu_are_refused() {
    let all: Vec<_> = (0..rank_count()).collect();
    for made in meet(&all, |rank| rank.min(1), LONG) {
        let error = made.unwrap_err();
        assert!(error.message().contains("invalid usage"), "{error}");
    }
}

fn rubbish_instead_of_an_id_is_refused() {
    let exchange = LocalExchange::new();
    exchange.put("nccl/id", &[1, 2, 3]).unwrap();
    let device = &device(1);
    let error = world(1, &exchange).communicator_with(device, options(LONG)).unwrap_err();
    assert!(error.message().contains("an id of 3 bytes"), "{error}");
}

fn worlds_that_cannot_be_are_refused() {
    let exchange = LocalExchange::new();
    let cpu = Device::open("cpu").unwrap();
    let error = world(0, &exchange).communicator_with(&cpu, options(LONG)).unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.message().contains("cpu"), "{error}");
    let gpu = &device(0);
    let error = world(0, &exchange).communicator_with(gpu, options(LONG).engine(Engine::Local)).unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.message().contains("World::local"), "{error}");
    let twice = World::local(&[gpu.clone(), gpu.clone()]).unwrap();
    let error = twice.communicators_with(options(LONG)).unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.message().contains("ranks 0 and 1"), "{error}");
}
