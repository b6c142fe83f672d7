//! Communicators of some of the ranks.

use std::sync::Barrier;

use gpustream::ErrorKind;
use gpustream_collectives::{CommunicatorFailure, Op};

use crate::{broken, each, ranks, tests};

tests!(
    colors_make_communicators_in_the_order_of_keys,
    part_works_beside_the_whole,
    rank_that_leaves_a_part_leaves_no_other,
    part_of_a_rank_that_gave_up_is_broken,
    colors_beyond_what_every_engine_takes_are_refused,
);

fn colors_make_communicators_in_the_order_of_keys() {
    each(ranks(), |rank| {
        let (own, size) = (rank.rank(), rank.size());
        let place = |color, key| {
            let part = rank.split(color, key).unwrap();
            assert_eq!(part.device().info().ordinal, rank.device().info().ordinal);
            (part.rank(), part.size())
        };
        assert_eq!(place(0, -(own as i32)), (size - 1 - own, size));
        assert_eq!(place(i32::MAX as u32, 7), (own, size));
        assert_eq!(place(own as u32 % 2, 0), (own / 2, (size + 1 - own % 2) / 2));
        assert_eq!(place(own as u32, 0), (0, 1));
    });
}

fn part_works_beside_the_whole() {
    let ranks = ranks();
    // A driver may only be able to connect ranks while no device of the process is busy.
    let connected = Barrier::new(ranks.len());
    each(ranks, |rank| {
        let stream = rank.device().stream().unwrap();
        let (is_alone, size) = (rank.rank() == 1, rank.size() as u32);
        let part = rank.split(u32::from(is_alone), 0).unwrap();
        let mut sum = stream.full(1001, 1u32 << rank.rank()).unwrap();
        part.all_reduce_in_place(&stream, &mut sum, Op::Sum).unwrap();
        let of_others = (1 << size) - 1 - 2;
        assert_eq!(stream.download(&sum).unwrap(), [if is_alone { 2 } else { of_others }; 1001]);
        connected.wait();
        rank.all_reduce_in_place(&stream, &mut sum, Op::Sum).unwrap();
        let of_all = 2 + (size - 1) * of_others;
        assert_eq!(stream.download(&sum).unwrap(), [of_all; 1001]);
        // You may drop the parts before the whole, or the whole before its parts.
        drop(part);
        let again = rank.split(0, 0).unwrap();
        drop(rank);
        let again = again.split(0, 0).unwrap();
        again.all_reduce_in_place(&stream, &mut sum, Op::Average).unwrap();
        assert_eq!(stream.download(&sum).unwrap(), [of_all; 1001]);
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
            assert_eq!(broken(&error), &CommunicatorFailure::Left { rank: 0 });
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
    let rank = ranks.len() - 1;
    drop(ranks.pop());
    let errors = each(ranks, |rank| rank.split(0, 0).unwrap_err());
    for error in &errors {
        assert_eq!(broken(error), &CommunicatorFailure::Left { rank });
    }
}
