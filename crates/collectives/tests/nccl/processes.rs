//! Ranks that meet at an exchange, as those of several processes do; here each is a thread.

use std::env;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use gpustream::{Device, DeviceOptions, ErrorKind, Result};
use gpustream_collectives::{Broken, Communicator, Engine, Exchange, LocalExchange, Op, World};

use crate::{LONG, RANKS, broken, devices, options, tests, vendor};

tests!(
    ranks_find_each_other,
    rank_that_does_not_come_is_noticed,
    rank_0_is_waited_for_until_the_limit,
    several_ranks_on_one_gpu_are_refused,
    rubbish_instead_of_an_id_is_refused,
    worlds_that_cannot_be_are_refused,
);

/// The variable of a process that is a rank without rank 0.
const LATE_RANK: &str = "GPUSTREAM_TEST_LATE_RANK";

/// Returns the world of a rank as torchrun tells it.
fn world(rank: usize, exchange: &LocalExchange) -> World {
    let world = World::from_variables(|name| match name {
        "RANK" | "LOCAL_RANK" => Some(rank.to_string()),
        "WORLD_SIZE" => Some(RANKS.to_string()),
        "MASTER_ADDR" => Some("localhost".into()),
        "MASTER_PORT" => Some("29500".into()),
        _ => None,
    });
    world.unwrap().with_exchange(Arc::new(exchange.clone()))
}

/// Makes the communicators of some ranks, each on a thread.
fn meet(ranks: &[usize], device: fn(usize) -> usize, limit: Duration) -> Vec<Result<Communicator>> {
    let (exchange, devices) = (LocalExchange::new(), devices(DeviceOptions::default()));
    thread::scope(|threads| {
        let made: Vec<_> = ranks
            .iter()
            .map(|&rank| {
                let (world, device) = (world(rank, &exchange), &devices[device(rank)]);
                threads.spawn(move || world.communicator_with(device, options(limit)))
            })
            .collect();
        made.into_iter().map(|made| made.join().unwrap()).collect()
    })
}

fn ranks_find_each_other() {
    let ranks: Vec<_> = meet(&[2, 0, 1], |rank| rank, LONG).into_iter().map(Result::unwrap).collect();
    assert_eq!(ranks.iter().map(Communicator::rank).collect::<Vec<_>>(), [2, 0, 1]);
    crate::each(ranks, |rank| {
        let stream = rank.device().stream().unwrap();
        let mut memory = stream.full(10, rank.rank() as f64).unwrap();
        rank.all_reduce_in_place(&stream, &mut memory, Op::Average).unwrap();
        assert_eq!(stream.download(&memory).unwrap(), [1.0; 10]);
    });
}

fn rank_that_does_not_come_is_noticed() {
    for made in meet(&[0, 2], |rank| rank, Duration::from_secs(1)) {
        let error = made.unwrap_err();
        assert!(matches!(broken(&error), Broken::Stalled { .. }), "{error}");
    }
    // Rank 0 brings the id, without which there is nothing to connect.
    let error = meet(&[1], |rank| rank, Duration::from_secs(1)).remove(0).unwrap_err();
    assert!(error.kind() == ErrorKind::External && error.message().contains("nccl/id"), "{error}");
}

/// A process that its environment tells where to meet, which this one becomes for that.
fn rank_0_is_waited_for_until_the_limit() {
    if env::var_os(LATE_RANK).is_none() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new(env::current_exe().unwrap());
        child.args(["--exact", &format!("{}::processes::rank_0_is_waited_for_until_the_limit", vendor())]);
        child.envs([(LATE_RANK, "1"), ("PMI_RANK", "1"), ("PMI_SIZE", "2")]);
        child.env("GPUSTREAM_EXCHANGE", format!("file:{}", folder.path().join("nobody").display()));
        // A limit that the program sets itself is the only one.
        child.env("GPUSTREAM_COLLECTIVES_TIMEOUT", "not read");
        let output = child.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let device = &devices(DeviceOptions::default())[1];
    let limit = options(Duration::from_millis(1));
    let error = World::from_env().unwrap().communicator_with(device, limit).unwrap_err();
    assert!(error.kind() == ErrorKind::External && error.message().contains("nobody"), "{error}");
}

fn several_ranks_on_one_gpu_are_refused() {
    for made in meet(&[0, 1, 2], |rank| rank.min(1), LONG) {
        let error = made.unwrap_err();
        assert!(error.message().contains("invalid usage"), "{error}");
    }
}

fn rubbish_instead_of_an_id_is_refused() {
    let exchange = LocalExchange::new();
    exchange.put("nccl/id", &[1, 2, 3]).unwrap();
    let device = &devices(DeviceOptions::default())[1];
    let error = world(1, &exchange).communicator_with(device, options(LONG)).unwrap_err();
    assert!(error.message().contains("an id of 3 bytes"), "{error}");
}

fn worlds_that_cannot_be_are_refused() {
    let exchange = LocalExchange::new();
    let cpu = Device::open("cpu").unwrap();
    let error = world(0, &exchange).communicator_with(&cpu, options(LONG)).unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.message().contains("cpu"), "{error}");
    let gpu = &devices(DeviceOptions::default())[0];
    let error = world(0, &exchange).communicator_with(gpu, options(LONG).engine(Engine::Local)).unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.message().contains("World::local"), "{error}");
    let twice = World::local(&[gpu.clone(), gpu.clone()]).unwrap();
    let error = twice.communicators_with(options(LONG)).unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.message().contains("ranks 0 and 1"), "{error}");
}
