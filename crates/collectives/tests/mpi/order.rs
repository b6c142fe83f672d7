//! The order of work: with other streams, other communicators and other threads.

use std::thread;

use gpustream::ErrorKind;
use gpustream_collectives::{Op, World};

use crate::plain::{assert_expected, brought, combined};
use crate::{LONG, RANKS, hold, options, rank, tests};

tests!(
    results_are_ordered_with_other_streams,
    calls_return_before_the_stream_has_come,
    several_communicators_have_orders_of_their_own,
    communicators_of_several_threads_do_not_hold_each_other_up,
    recorded_streams_are_refused,
    variables_that_differ_from_mpi_are_refused,
);

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
    // Each rank releases its streams in a different order.
    let mut releases = releases;
    releases.rotate_left(rank.rank());
    drop(releases);
    for (stream, memory) in streams.iter().zip(&memory) {
        assert_expected(&stream.download(memory).unwrap(), &combined::<f32>(Op::Sum, RANKS, 5), "all_reduce");
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

fn communicators_of_several_threads_do_not_hold_each_other_up() {
    let whole = rank();
    let parts: Vec<_> = (0..3).map(|color| whole.split(color, 0).unwrap()).collect();
    thread::scope(|threads| {
        for (part, value) in parts.into_iter().zip(1u32..) {
            threads.spawn(move || {
                let stream = part.device().stream().unwrap();
                let mut memory = stream.full(77, value).unwrap();
                for _ in 0..50 {
                    part.all_reduce_in_place(&stream, &mut memory, Op::Average).unwrap();
                    part.broadcast(&stream, &mut memory, 2).unwrap();
                }
                drop(part);
                assert_eq!(stream.download(&memory).unwrap(), [value; 77]);
            });
        }
    });
}

fn recorded_streams_are_refused() {
    let rank = rank();
    let stream = rank.device().stream().unwrap();
    let mut memory = stream.full(5, 1.0f32).unwrap();
    let error = stream.capture(|s| rank.all_reduce_in_place(s, &mut memory, Op::Sum)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Captured, "{error}");
    rank.all_reduce_in_place(&stream, &mut memory, Op::Sum).unwrap();
    assert_eq!(stream.download(&memory).unwrap(), [RANKS as f32; 5]);
}

fn variables_that_differ_from_mpi_are_refused() {
    let whole = rank();
    let claims = |name: &str| match name {
        "PMI_RANK" => Some("1".into()),
        "PMI_SIZE" => Some("2".into()),
        _ => None,
    };
    let options = options(LONG);
    let error =
        World::from_variables(claims).unwrap().communicator_with(whole.device(), options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let message = error.to_string();
    assert!(
        message.contains("rank 1 of 2") && message.contains("of 4") && message.contains("mpirun"),
        "{message}"
    );
    let error = World::local(&[whole.device().clone()]).unwrap().communicators_with(options).unwrap_err();
    assert!(error.to_string().contains("a process for each device"), "{error}");
}
