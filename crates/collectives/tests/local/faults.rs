//! If a rank does not come, leaves, panics, aborts or makes another call, you must get an error on every rank
//! that names it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use gpustream::{ErrorKind, Result};
use gpustream_collectives::{CallGroup, Communicator, CommunicatorFailure, Op, group};

use crate::order::{all_reduce, full};
use crate::{broken, each, rank_count, ranks, ranks_within, streams, tests};

tests!(
    rank_that_does_not_come_is_named,
    receiver_that_does_not_come_is_named,
    ring_of_sends_without_a_group_ends_with_advice,
    dropped_rank_wakes_the_others,
    messages_need_no_rank_but_their_own_two,
    panicking_rank_wakes_the_others,
    rank_that_panics_in_its_group_breaks_nothing,
    aborted_communicator_wakes_all_ranks,
    different_calls_name_the_rank_that_differs,
    messages_of_different_lengths_name_both_ranks,
    calls_refused_on_one_rank_can_be_made_again,
    input_that_nothing_wrote_is_an_error_on_every_rank,
    error_of_a_group_makes_no_call,
    calls_inside_host_closures_are_refused,
    time_limits_that_end_while_others_come_break_no_result,
    everything_is_dropped_in_any_order,
);

const AT_ONCE: Duration = Duration::from_millis(1);

#[track_caller]
fn reason<T: std::fmt::Debug>(result: Result<T>) -> CommunicatorFailure {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::External, "{error}");
    broken(&error).clone()
}

fn rank_that_does_not_come_is_named() {
    let ranks = ranks_within(AT_ONCE);
    let streams = streams(&ranks);
    let (mut a, mut b) = (streams[0].full(10, 1f32).unwrap(), streams[2].full(10, 1f32).unwrap());
    let error = group(|group| {
        group.on(&ranks[0]).all_reduce_in_place(&streams[0], &mut a, Op::Sum)?;
        group.on(&ranks[2]).all_reduce_in_place(&streams[2], &mut b, Op::Sum)
    })
    .unwrap_err();
    let missing: Vec<_> = (0..ranks.len()).filter(|rank| ![0, 2].contains(rank)).collect();
    let named = if missing.len() == 1 { "rank 1 did not come" } else { "ranks 1, 3" };
    for words in [named, "`all_reduce` (sum) with 10 elements of f32", "1ms"] {
        assert!(error.message().contains(words), "{error}");
    }
    assert!(
        matches!(broken(&error), CommunicatorFailure::Missing { ranks, .. } if *ranks == missing),
        "{error}"
    );
    // This rank comes too late. The others can already use their memory again.
    let mut c = streams[1].full(10, 1f32).unwrap();
    assert_eq!(reason(ranks[1].all_reduce_in_place(&streams[1], &mut c, Op::Sum)), *broken(&error));
    assert_eq!(streams[0].download(&a).unwrap(), [1.0; 10]);
    assert_eq!(reason(ranks[1].split(0, 0)), *broken(&error));
}

fn receiver_that_does_not_come_is_named() {
    let ranks = ranks_within(AT_ONCE);
    let streams = streams(&ranks);
    let src = streams[0].zeros::<u8>(3).unwrap();
    let reason = reason(ranks[0].send(&streams[0], &src, 2));
    assert!(matches!(&reason, CommunicatorFailure::Missing { ranks, .. } if *ranks == [2]), "{reason}");
}

fn ring_of_sends_without_a_group_ends_with_advice() {
    let errors = each(ranks_within(AT_ONCE), |rank| {
        let stream = rank.device().stream().unwrap();
        let src = stream.zeros::<u8>(3).unwrap();
        rank.send(&stream, &src, (rank.rank() + 1) % rank.size()).unwrap_err()
    });
    for error in errors {
        assert!(error.message().contains("`group`"), "{error}");
    }
}

/// Calls `all_reduce_in_place` for a few elements.
fn reduce(rank: &Communicator) -> Result<()> {
    let stream = rank.device().stream()?;
    let mut memory = stream.full(4, 1u32)?;
    rank.all_reduce_in_place(&stream, &mut memory, Op::Sum)
}

/// Lets rank 2 end everything, and asserts that the others notice, whether they already wait or come later.
fn others_hear(end: impl FnOnce(Communicator), expected: &CommunicatorFailure) {
    let mut ranks = ranks();
    let last = ranks.pop().unwrap();
    thread::scope(|threads| {
        let others: Vec<_> = ranks.iter().map(|rank| threads.spawn(move || reduce(rank))).collect();
        end(last);
        for other in others {
            assert_eq!(reason(other.join().unwrap()), *expected);
        }
    });
    assert_eq!(reason(reduce(&ranks[0])), *expected);
}

fn dropped_rank_wakes_the_others() {
    others_hear(drop, &CommunicatorFailure::Left { rank: rank_count() - 1 });
}

fn messages_need_no_rank_but_their_own_two() {
    let mut ranks = ranks();
    drop(ranks.pop());
    let streams = streams(&ranks);
    let src = streams[0].full(6, 3i64).unwrap();
    let mut dst = streams[1].zeros::<i64>(6).unwrap();
    group(|group| {
        group.on(&ranks[0]).send(&streams[0], &src, 1)?;
        group.on(&ranks[1]).recv(&streams[1], &mut dst, 0)
    })
    .unwrap();
    assert_eq!(streams[1].download(&dst).unwrap(), [3; 6]);
    let rank = ranks.len();
    assert_eq!(reason(ranks[1].recv(&streams[1], &mut dst, rank)), CommunicatorFailure::Left { rank });
}

fn panicking_rank_wakes_the_others() {
    let panic = |rank| {
        let panicked = thread::spawn(move || {
            let _owned = rank;
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        panicked.join().unwrap_err();
    };
    others_hear(panic, &CommunicatorFailure::Panicked { rank: rank_count() - 1 });
}

fn rank_that_panics_in_its_group_breaks_nothing() {
    let ranks = ranks();
    let stream = ranks[0].device().stream().unwrap();
    let mut memory = stream.full(4, 1u32).unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        ranks[0].group(|calls: &mut CallGroup<'_>| -> Result<()> {
            calls.all_reduce_in_place(&stream, &mut memory, Op::Sum)?;
            std::panic::resume_unwind(Box::new("on purpose"))
        })
    }));
    assert!(panicked.is_err());
    each(ranks, |rank| reduce(&rank).unwrap());
}

fn aborted_communicator_wakes_all_ranks() {
    let aborted = CommunicatorFailure::Aborted { rank: rank_count() - 1 };
    let abort = |rank: Communicator| {
        rank.abort();
        assert_eq!(reason(reduce(&rank)), aborted);
    };
    others_hear(abort, &aborted);
}

fn different_calls_name_the_rank_that_differs() {
    /// A call with some memory that the others do not make.
    type Odd = fn(&Communicator, &gpustream::Stream) -> Result<()>;
    let odd: [(&str, Odd); 6] = [
        ("`all_reduce` (max) with 10 elements of f32", |rank, s| {
            rank.all_reduce_in_place(s, &mut s.full(10, 1f32)?, Op::Max)
        }),
        ("`all_reduce` (sum) with 11 elements of f32", |rank, s| {
            rank.all_reduce_in_place(s, &mut s.full(11, 1f32)?, Op::Sum)
        }),
        ("`all_reduce` (sum) with 10 elements of i32", |rank, s| {
            rank.all_reduce_in_place(s, &mut s.full(10, 1i32)?, Op::Sum)
        }),
        ("`broadcast` from rank 2 with 10 elements of f32", |rank, s| {
            rank.broadcast(s, &mut s.full(10, 1f32)?, 2)
        }),
        ("`barrier`", |rank, s| rank.barrier(s)),
        ("`split`", |rank, _| rank.split(0, 0).map(drop)),
    ];
    for (name, call) in odd {
        let errors = each(ranks(), |rank| {
            let stream = rank.device().stream().unwrap();
            if rank.rank() == 1 {
                return call(&rank, &stream).unwrap_err();
            }
            let mut memory = stream.full(10, 1f32).unwrap();
            rank.all_reduce_in_place(&stream, &mut memory, Op::Sum).unwrap_err()
        });
        for error in errors {
            assert!(
                matches!(broken(&error), CommunicatorFailure::Different { ranks, .. } if *ranks == [1]),
                "{error}"
            );
            let others: Vec<_> =
                (0..rank_count()).filter(|rank| *rank != 1).map(|rank| rank.to_string()).collect();
            let calls = [
                format!("ranks {} called `all_reduce` (sum) with 10 elements of f32", others.join(", ")),
                format!("rank 1 called {name}"),
            ];
            for call in calls {
                assert!(error.message().contains(&call), "{error}");
            }
        }
    }
}

fn messages_of_different_lengths_name_both_ranks() {
    let ranks = ranks();
    let streams = streams(&ranks);
    let src = streams[0].zeros::<u16>(5).unwrap();
    let mut dst = streams[1].zeros::<u16>(6).unwrap();
    let error = group(|group| {
        group.on(&ranks[0]).send(&streams[0], &src, 1)?;
        group.on(&ranks[1]).recv(&streams[1], &mut dst, 0)
    })
    .unwrap_err();
    let calls = "rank 0 called `send` to rank 1 with 5 elements of u16, rank 1 `recv` from rank 0 with 6 elements of u16";
    assert!(error.message().contains(calls), "{error}");
}

fn calls_refused_on_one_rank_can_be_made_again() {
    let mut ranks = ranks();
    let streams = streams(&ranks);
    let (rank, stream) = (&ranks[0], &streams[0]);
    // One has a part for each rank, the other one element more.
    let size = ranks.len();
    let (mut even, mut odd) = (stream.zeros::<f32>(size).unwrap(), stream.zeros::<f32>(size + 1).unwrap());
    let refused = |result: Result<()>, kind, words: &[&str]| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        for words in words {
            assert!(error.message().contains(words), "{error}");
        }
    };
    let mismatch = ErrorKind::ArgumentMismatch;
    refused(
        rank.all_reduce(stream, &even, &mut odd, Op::Sum),
        mismatch,
        &["`all_reduce`", &size.to_string(), &(size + 1).to_string()],
    );
    refused(
        rank.all_gather(stream, &even, &mut odd),
        mismatch,
        &[&format!("`dst` needs {size} times as many as `src`")],
    );
    refused(
        rank.reduce_scatter(stream, &odd, &mut even, Op::Sum),
        mismatch,
        &[&format!("`src` needs {size} times")],
    );
    refused(rank.reduce(stream, &even, &mut odd, Op::Sum, 0), mismatch, &["`reduce`"]);
    refused(rank.gather(stream, &even, &mut odd, 0), mismatch, &["`gather`"]);
    refused(rank.scatter(stream, &even, &mut odd, 0), mismatch, &["`scatter`"]);
    let mut other_odd = stream.zeros::<f32>(size + 1).unwrap();
    refused(
        rank.all_to_all(stream, &odd, &mut other_odd),
        mismatch,
        &[&format!("give a multiple of {size}")],
    );
    for result in [
        rank.broadcast(stream, &mut even, size),
        rank.send(stream, &even, size),
        rank.recv(stream, &mut even, usize::MAX),
        rank.gather(stream, &even, &mut odd, size),
        rank.scatter(stream, &even, &mut odd, size),
        rank.reduce_in_place(stream, &mut even, Op::Sum, size),
    ] {
        refused(
            result,
            ErrorKind::InvalidArgument,
            &[&format!("among {size} ranks"), &format!("0 to {}", size - 1)],
        );
    }
    if ranks[1].device().info().ordinal != rank.device().info().ordinal {
        let mut elsewhere = streams[1].zeros::<f32>(3).unwrap();
        let words = ["rank 0 of the communicator"];
        refused(rank.broadcast(&streams[1], &mut even, 0), ErrorKind::DeviceMismatch, &words);
        refused(rank.broadcast(stream, &mut elsewhere, 0), ErrorKind::DeviceMismatch, &words);
    }
    drop((even, odd));
    each(std::mem::take(&mut ranks), |rank| reduce(&rank).unwrap());
}

fn input_that_nothing_wrote_is_an_error_on_every_rank() {
    each(ranks(), |rank| {
        let stream = rank.device().stream().unwrap();
        let src = if rank.rank() == 1 { stream.alloc::<f32>(8) } else { stream.full(8, 1.0) }.unwrap();
        let mut dst = stream.zeros(8).unwrap();
        let error = rank.all_reduce(&stream, &src, &mut dst, Op::Sum).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Uninitialized, "{error}");
        assert!(error.to_string().contains("reading what rank 1 brought"), "{error}");
        reduce(&rank).unwrap();
    });
}

fn error_of_a_group_makes_no_call() {
    let ranks = ranks();
    let streams = streams(&ranks);
    let mut memory = streams[0].full(4, 1u32).unwrap();
    let error = ranks[0]
        .group(|calls| {
            calls.all_reduce_in_place(&streams[0], &mut memory, Op::Sum)?;
            calls.barrier(&streams[0])?;
            Err::<(), _>(gpustream::Error::unsupported("this"))
        })
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    each(ranks, |rank| reduce(&rank).unwrap());
}

fn calls_inside_host_closures_are_refused() {
    let ranks = std::sync::Arc::new(ranks());
    let stream = std::sync::Arc::new(ranks[0].device().stream().unwrap());
    let (answer, answered) = std::sync::mpsc::channel();
    let (inner, rank) = (stream.clone(), ranks.clone());
    stream.host_fn(move || answer.send(rank[0].barrier(&inner)).unwrap()).unwrap();
    let error = answered.recv().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InHostClosure, "{error}");
    stream.synchronize().unwrap();
}

/// Ranks may give up and drop their memory at about the time when the last one comes.
fn time_limits_that_end_while_others_come_break_no_result() {
    for round in 0..150 {
        each(ranks_within(Duration::from_micros(round)), |rank| {
            let stream = rank.device().stream().unwrap();
            for _ in 0..20 {
                let mut memory = stream.full(100, 1u32 << rank.rank()).unwrap();
                match rank.all_reduce_in_place(&stream, &mut memory, Op::Sum) {
                    Ok(()) => assert_eq!(stream.download(&memory).unwrap(), [(1 << rank.size()) - 1; 100]),
                    Err(error) => {
                        drop(memory);
                        assert!(
                            matches!(
                                broken(&error),
                                CommunicatorFailure::Missing { .. } | CommunicatorFailure::Left { .. }
                            ),
                            "{error}"
                        );
                        break;
                    }
                }
            }
        });
    }
}

fn everything_is_dropped_in_any_order() {
    for first in 0..rank_count() {
        let mut ranks = ranks();
        let streams = streams(&ranks);
        // Keep the devices, because the last handle of a device would wait for its work.
        let _devices: Vec<_> = ranks.iter().map(|rank| rank.device().clone()).collect();
        let gate = crate::hold(&streams[first]);
        let mut memory = full(&streams, 1000, 1u8);
        all_reduce(&ranks, &streams, &mut memory, Op::Sum).unwrap();
        // Communicators, streams and memory are dropped while the work waits.
        ranks.rotate_left(first);
        drop(ranks);
        let kept = memory.swap_remove(first);
        drop(memory);
        let mut streams = streams;
        let stream = streams.swap_remove(first);
        drop(streams);
        gate.send(()).unwrap();
        assert_eq!(stream.download(&kept).unwrap(), [rank_count() as u8; 1000]);
    }
}
