//! Calls that must progress together, because each waits for the other, and calls whose parts need many
//! pieces.

use gpustream_collectives::Op;

use crate::operations::all_operations;
use crate::plain::{assert_expected, brought, combined};
use crate::{RANKS, rank, strict_ranks, tests};

tests!(
    calls_of_a_group_wait_for_each_other_on_one_stream,
    calls_of_a_group_go_over_streams,
    parts_of_many_pieces_come_to_their_places,
    streams_that_take_turns_share_the_staging_memory,
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
    // All ranks send before any of them receives.
    rank.group(|calls| {
        others.iter().try_for_each(|&other| calls.send(&stream, &src, other))?;
        calls.all_reduce_in_place(&stream, &mut sum, Op::Sum)?;
        others.iter().zip(&mut got).try_for_each(|(&other, got)| calls.recv(&stream, got, other))
    })
    .unwrap();
    for (other, got) in others.into_iter().zip(got) {
        assert!(stream.download(&got).unwrap() == brought::<u8>(other, LONG), "what rank {other} sent");
    }
    assert_expected(&stream.download(&sum).unwrap(), &combined::<i32>(Op::Sum, RANKS, 77), "all_reduce");
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
    assert_expected(&second.download(&sum).unwrap(), &combined::<f64>(Op::Max, RANKS, 1001), "all_reduce");
    assert_expected(&first.download(&largest).unwrap(), &combined::<u16>(Op::Max, RANKS, 13), "all_reduce");
}

fn parts_of_many_pieces_come_to_their_places() {
    let rank = rank();
    let stream = rank.device().stream().unwrap();
    all_operations::<u64>(&rank, &stream, 140_001);
}

fn streams_that_take_turns_share_the_staging_memory() {
    let rank = strict_ranks().remove(0);
    for stream in (0..9).map(|_| rank.device().stream().unwrap()) {
        all_operations::<i64>(&rank, &stream, 3);
    }
}
