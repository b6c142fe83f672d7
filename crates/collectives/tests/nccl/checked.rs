//! Ranks that compare their calls: if calls differ, you must get an error on every rank that names the
//! others, and NCCL must get none of the calls.

use std::time::Duration;

use gpustream::{DeviceOptions, ErrorKind, Result, Stream};
use gpustream_collectives::{Communicator, CommunicatorFailure, Op, group};

use crate::order::all_reduce;
use crate::{LONG, broken, each, options, ranks_that, short, streams, tests, warm_up};

tests!(
    calls_that_differ_name_the_rank,
    groups_that_differ_name_the_rank,
    ranks_of_one_thread_are_compared,
    parts_of_a_split_are_compared,
    rank_that_does_not_come_is_noticed,
    sends_concern_two_ranks,
);

fn checked(limit: Duration) -> Vec<Communicator> {
    ranks_that(DeviceOptions::default(), limit, |limit| options(limit).checked(true), warm_up)
}

fn ranks() -> Vec<Communicator> {
    checked(LONG)
}

fn reduce(rank: &Communicator, stream: &Stream, len: usize, op: Op) -> Result<()> {
    let mut memory = stream.full(len, 1.0f32)?;
    rank.all_reduce_in_place(stream, &mut memory, op)
}

/// Lets rank 1 make another call than the others, and asserts that all of them notice.
fn differs(
    usual: fn(&Communicator, &Stream) -> Result<()>,
    other: fn(&Communicator, &Stream) -> Result<()>,
    call: &str,
) {
    each(ranks(), |rank| {
        let stream = rank.device().stream().unwrap();
        // First some calls that match, so that the ranks can connect.
        reduce(&rank, &stream, 10, Op::Sum).unwrap();
        let error = if rank.rank() == 1 { other(&rank, &stream) } else { usual(&rank, &stream) }.unwrap_err();
        let CommunicatorFailure::Different { ranks, calls } = broken(&error) else { panic!("{error}") };
        assert_eq!(*ranks, [1], "{error}");
        assert!(calls.contains(&format!("rank 1 called {call}")), "{error}");
        // Nothing was enqueued, and the communicator is unusable.
        stream.synchronize().unwrap();
        assert_eq!(broken(&reduce(&rank, &stream, 10, Op::Sum).unwrap_err()), broken(&error));
    });
}

fn calls_that_differ_name_the_rank() {
    let usual = |rank: &Communicator, stream: &Stream| reduce(rank, stream, 10, Op::Sum);
    differs(
        usual,
        |rank, stream| reduce(rank, stream, 11, Op::Sum),
        "`all_reduce` (sum) with 11 elements of f32",
    );
    differs(
        usual,
        |rank, stream| reduce(rank, stream, 0, Op::Sum),
        "`all_reduce` (sum) with 0 elements of f32",
    );
    differs(
        usual,
        |rank, stream| reduce(rank, stream, 10, Op::Max),
        "`all_reduce` (max) with 10 elements of f32",
    );
    differs(usual, Communicator::barrier, "`barrier`");
    differs(usual, |rank, _| rank.split(0, 0).map(drop), "`split`");
    let integers = |rank: &Communicator, stream: &Stream| {
        rank.all_reduce_in_place(stream, &mut stream.full(10, 1u32)?, Op::Sum)
    };
    differs(usual, integers, "`all_reduce` (sum) with 10 elements of u32");
    let from_first =
        |rank: &Communicator, stream: &Stream| rank.broadcast(stream, &mut stream.full(3, 1u8)?, 0);
    let from_last =
        |rank: &Communicator, stream: &Stream| rank.broadcast(stream, &mut stream.full(3, 1u8)?, 2);
    differs(from_first, from_last, "`broadcast` from rank 2");
}

fn groups_that_differ_name_the_rank() {
    let twice = |rank: &Communicator, stream: &Stream| {
        let (mut one, mut other) = (stream.full(4, 1.0f32)?, stream.full(4, 1.0f32)?);
        rank.group(|calls| {
            calls.all_reduce_in_place(stream, &mut one, Op::Sum)?;
            calls.all_reduce_in_place(stream, &mut other, Op::Sum)
        })
    };
    differs(
        twice,
        |rank, stream| reduce(rank, stream, 4, Op::Sum),
        "`all_reduce` (sum) with 4 elements of f32",
    );
    let second = |rank: &Communicator, stream: &Stream| {
        let (mut one, mut other) = (stream.full(4, 1.0f32)?, stream.full(5, 1.0f32)?);
        rank.group(|calls| {
            calls.all_reduce_in_place(stream, &mut one, Op::Sum)?;
            calls.all_reduce_in_place(stream, &mut other, Op::Sum)
        })
    };
    differs(twice, second, "`all_reduce` (sum) with 5 elements of f32, number 2 of 2 in a group");
}

fn ranks_of_one_thread_are_compared() {
    let ranks = ranks();
    let streams = streams(&ranks);
    let (size, last) = (ranks.len(), ranks.len() - 1);
    let all = |lens: &[usize]| {
        let mut memory: Vec<_> =
            streams.iter().zip(lens).map(|(stream, &len)| stream.full(len, 1u32).unwrap()).collect();
        all_reduce(&ranks, &streams, &mut memory, Op::Sum)?;
        streams[last].download(&memory[last])
    };
    let mut lens = vec![5; size];
    assert_eq!(all(&lens).unwrap(), [size as u32; 5]);
    lens[last] = 6;
    let error = all(&lens).unwrap_err();
    assert!(
        matches!(broken(&error), CommunicatorFailure::Different { ranks, .. } if *ranks == [last]),
        "{error}"
    );
}

fn parts_of_a_split_are_compared() {
    each(ranks(), |rank| {
        let stream = rank.device().stream().unwrap();
        let part = rank.split(u32::from(rank.rank() == 0), 0).unwrap();
        let outcome = reduce(&part, &stream, rank.rank(), Op::Sum);
        // Rank 0 is alone in its part. The others all give different numbers of elements.
        assert_eq!(outcome.is_ok(), rank.rank() == 0, "{outcome:?}");
        reduce(&rank, &stream, 7, Op::Sum).unwrap();
    });
}

fn rank_that_does_not_come_is_noticed() {
    let mut ranks = checked(short());
    let lost = ranks.pop().unwrap();
    // The others come, so only the limit is left to wait for.
    each(ranks, |rank| {
        let stream = rank.device().stream().unwrap();
        let error = reduce(&rank, &stream, 10, Op::Sum).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::External, "{error}");
        let CommunicatorFailure::Missing { ranks, call, .. } = broken(&error) else { panic!("{error}") };
        assert!(ranks.contains(&lost.rank()), "{error}");
        assert_eq!(call, "`all_reduce` (sum) with 10 elements of f32");
    });
}

fn sends_concern_two_ranks() {
    let ranks = ranks();
    let streams = streams(&ranks);
    let src = streams[0].full(6, 3i64).unwrap();
    let mut dst = streams[1].zeros::<i64>(6).unwrap();
    group(|group| {
        group.on(&ranks[0]).send(&streams[0], &src, 1)?;
        group.on(&ranks[1]).recv(&streams[1], &mut dst, 0)
    })
    .unwrap();
    assert_eq!(streams[1].download(&dst).unwrap(), [3; 6]);
}
