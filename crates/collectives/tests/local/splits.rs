//! Communicators of some of the ranks.

use gpustream::ErrorKind;
use gpustream_collectives::{Broken, Op};

use crate::{broken, each, ranks, tests};

tests!(
    colors_make_communicators_in_the_order_of_keys,
    part_works_beside_the_whole,
    rank_that_leaves_a_part_leaves_no_other,
    part_of_a_rank_that_gave_up_is_broken,
    colors_beyond_what_every_engine_takes_are_refused,
);

fn colors_make_communicators_in_the_order_of_keys() {
    let places = each(ranks(), |rank| {
        let backwards = rank.split(0, -(rank.rank() as i32)).unwrap();
        let same_keys = rank.split(i32::MAX as u32, 7).unwrap();
        let odd = rank.split(rank.rank() as u32 % 2, 0).unwrap();
        assert_eq!(odd.device().info().ordinal, rank.device().info().ordinal);
        [&backwards, &same_keys, &odd].map(|part| (part.rank(), part.size()))
    });
    let whole = |at| places.iter().map(|place| place[at]).collect::<Vec<_>>();
    assert_eq!(whole(0), [(2, 3), (1, 3), (0, 3)]);
    assert_eq!(whole(1), [(0, 3), (1, 3), (2, 3)]);
    assert_eq!(whole(2), [(0, 2), (0, 1), (1, 2)]);
}

fn part_works_beside_the_whole() {
    each(ranks(), |rank| {
        let stream = rank.device().stream().unwrap();
        let part = rank.split(u32::from(rank.rank() == 1), 0).unwrap();
        let mut sum = stream.full(5, 1u32 << rank.rank()).unwrap();
        part.all_reduce_in_place(&stream, &mut sum, Op::Sum).unwrap();
        assert_eq!(stream.download(&sum).unwrap(), [if rank.rank() == 1 { 2 } else { 5 }; 5]);
        rank.all_reduce_in_place(&stream, &mut sum, Op::Sum).unwrap();
        assert_eq!(stream.download(&sum).unwrap(), [12; 5]);
        // The whole outlives its parts, and a part outlives the whole.
        drop(part);
        let again = rank.split(0, 0).unwrap();
        drop(rank);
        again.all_reduce_in_place(&stream, &mut sum, Op::Average).unwrap();
        assert_eq!(stream.download(&sum).unwrap(), [12; 5]);
    });
}

fn rank_that_leaves_a_part_leaves_no_other() {
    each(ranks(), |rank| {
        let stream = rank.device().stream().unwrap();
        let part = rank.split(0, 0).unwrap();
        let mut memory = stream.full(3, 1i8).unwrap();
        if rank.rank() == 0 {
            drop(part);
        } else {
            let error = part.all_reduce_in_place(&stream, &mut memory, Op::Sum).unwrap_err();
            assert_eq!(broken(&error), &Broken::Left { rank: 0 });
        }
        rank.all_reduce_in_place(&stream, &mut memory, Op::Sum).unwrap();
        assert_eq!(stream.download(&memory).unwrap(), [rank.size() as i8; 3]);
    });
}

fn colors_beyond_what_every_engine_takes_are_refused() {
    for rank in &ranks() {
        let error = rank.split(1 << 31, 0).unwrap_err();
        assert!(
            error.kind() == ErrorKind::InvalidArgument && error.message().contains("2147483648"),
            "{error}"
        );
    }
}

fn part_of_a_rank_that_gave_up_is_broken() {
    let mut ranks = ranks();
    drop(ranks.pop());
    let errors = each(ranks, |rank| rank.split(0, 0).unwrap_err());
    for error in &errors {
        assert_eq!(broken(error), &Broken::Left { rank: 2 });
    }
}
