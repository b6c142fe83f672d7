//! Calls that go on together, and those whose parts need many pieces.

use std::time::Duration;

use gpustream::{DeviceOptions, Tracking};
use gpustream_collectives::{Op, World};

use crate::operations::all_operations;
use crate::plain::{brought, combined};
use crate::{RANKS, hold, options, rank, rank_with, tests};

tests!(
    calls_of_a_group_wait_for_each_other_on_one_stream,
    calls_of_a_group_go_over_streams,
    parts_of_many_pieces_come_to_their_places,
    every_operation_is_right_under_strict_tracking,
    results_are_ordered_with_other_streams,
    calls_return_before_the_stream_has_come,
    several_communicators_have_orders_of_their_own,
    variables_that_differ_from_mpi_are_refused,
);

/// More than three pieces, and not a multiple of anything.
const LONG: usize = 3_456_789;

fn calls_of_a_group_wait_for_each_other_on_one_stream() {
    let rank = rank();
    let (own, stream) = (rank.rank(), rank.device().stream().unwrap());
    let others: Vec<usize> = (0..RANKS).filter(|other| *other != own).collect();
    let src = stream.upload(&brought::<u8>(own, LONG)).unwrap();
    let mut got: Vec<_> = others.iter().map(|_| stream.zeros::<u8>(LONG).unwrap()).collect();
    let mut sum = stream.upload(&brought::<i32>(own, 77)).unwrap();
    // All send before any receives.
    rank.group(|calls| {
        others.iter().try_for_each(|&other| calls.send(&stream, &src, other))?;
        calls.all_reduce_in_place(&stream, &mut sum, Op::Sum)?;
        others.iter().zip(&mut got).try_for_each(|(&other, got)| calls.recv(&stream, got, other))
    })
    .unwrap();
    for (other, got) in others.into_iter().zip(got) {
        assert!(stream.download(&got).unwrap() == brought::<u8>(other, LONG), "what rank {other} sent");
    }
    assert_eq!(stream.download(&sum).unwrap(), combined::<i32>(Op::Sum, RANKS, 77));
}

fn calls_of_a_group_go_over_streams() {
    let rank = rank();
    let [first, second] = [(); 2].map(|()| rank.device().stream().unwrap());
    let mut sum = first.upload(&brought::<f64>(rank.rank(), 1001)).unwrap();
    let mut largest = second.upload(&brought::<u16>(rank.rank(), 13)).unwrap();
    for _ in 0..20 {
        rank.group(|calls| {
            calls.all_reduce_in_place(&first, &mut sum, Op::Max)?;
            calls.all_reduce_in_place(&second, &mut largest, Op::Max)
        })
        .unwrap();
    }
    assert_eq!(second.download(&sum).unwrap(), combined::<f64>(Op::Max, RANKS, 1001));
    assert_eq!(first.download(&largest).unwrap(), combined::<u16>(Op::Max, RANKS, 13));
}

fn parts_of_many_pieces_come_to_their_places() {
    let rank = rank();
    let stream = rank.device().stream().unwrap();
    all_operations::<u64>(&rank, &stream, 140_001);
}

fn every_operation_is_right_under_strict_tracking() {
    let strict = DeviceOptions::default().tracking(Tracking::Strict);
    let rank = rank_with(strict, options(Duration::from_secs(60)));
    let stream = rank.device().stream().unwrap();
    all_operations::<f32>(&rank, &stream, 1001);
    all_operations::<u8>(&rank, &stream, 5);
    // Streams that take turns share the staging memory.
    for stream in (0..9).map(|_| rank.device().stream().unwrap()) {
        all_operations::<i64>(&rank, &stream, 3);
    }
}

fn results_are_ordered_with_other_streams() {
    let rank = rank();
    let [writer, stream, reader] = [(); 3].map(|()| rank.device().stream().unwrap());
    let mut memory = writer.zeros::<u64>(1001).unwrap();
    let release = hold(&writer);
    writer.fill(&mut memory, 1 << rank.rank()).unwrap();
    rank.all_reduce_in_place(&stream, &mut memory, Op::Sum).unwrap();
    let copy = reader.duplicate(&memory).unwrap();
    writer.fill(&mut memory, 0).unwrap();
    drop(release);
    assert_eq!(reader.download(&copy).unwrap(), [15; 1001]);
    assert_eq!(reader.download(&memory).unwrap(), [0; 1001]);
}

fn calls_return_before_the_stream_has_come() {
    let rank = rank();
    let streams: Vec<_> = (0..8).map(|_| rank.device().stream().unwrap()).collect();
    let releases: Vec<_> = streams.iter().map(hold).collect();
    let mut memory: Vec<_> =
        streams.iter().map(|stream| stream.upload(&brought::<f32>(rank.rank(), 5)).unwrap()).collect();
    for (stream, memory) in streams.iter().zip(&mut memory) {
        rank.all_reduce_in_place(stream, memory, Op::Sum).unwrap();
        rank.barrier(stream).unwrap();
    }
    assert!(streams.iter().all(|stream| !stream.is_done().unwrap()));
    // Each rank lets its streams go in an order of its own.
    let mut releases = releases;
    releases.rotate_left(rank.rank());
    drop(releases);
    for (stream, memory) in streams.iter().zip(&memory) {
        assert_eq!(stream.download(memory).unwrap(), combined::<f32>(Op::Sum, RANKS, 5));
    }
}

fn several_communicators_have_orders_of_their_own() {
    let (one, other) = (rank(), rank());
    let [first, second] = [(); 2].map(|()| one.device().stream().unwrap());
    let mut x = first.full(9, 1u32).unwrap();
    let mut y = second.full(9, 2u32).unwrap();
    // Half of the ranks call them the other way round.
    let mut on_one = || one.all_reduce_in_place(&first, &mut x, Op::Sum).unwrap();
    let mut on_other = || other.all_reduce_in_place(&second, &mut y, Op::Sum).unwrap();
    for _ in 0..10 {
        if one.rank() % 2 == 0 {
            on_one();
            on_other();
        } else {
            on_other();
            on_one();
        }
    }
    drop((one, other));
    assert_eq!(first.download(&x).unwrap(), [1 << 20; 9]);
    assert_eq!(second.download(&y).unwrap(), [2 << 20; 9]);
}

fn variables_that_differ_from_mpi_are_refused() {
    let whole = rank();
    let claims = |name: &str| match name {
        "PMI_RANK" => Some("1".into()),
        "PMI_SIZE" => Some("2".into()),
        _ => None,
    };
    let options = options(Duration::from_secs(60));
    let error =
        World::from_variables(claims).unwrap().communicator_with(whole.device(), options).unwrap_err();
    assert_eq!(error.kind(), gpustream::ErrorKind::Unsupported);
    let message = error.to_string();
    assert!(
        message.contains("rank 1 of 2") && message.contains("of 4") && message.contains("mpirun"),
        "{message}"
    );
    let error = World::local(&[whole.device().clone()]).unwrap().communicators_with(options).unwrap_err();
    assert!(error.to_string().contains("a process for each device"), "{error}");
}
