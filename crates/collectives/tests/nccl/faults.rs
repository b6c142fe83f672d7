//! Lost ranks, and failures of NCCL: every rank must get an error within the time limit, and nothing may leak.

use std::iter;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use fake_nccl::Nccl;
use gpustream::{ErrorKind, Result, Stream};
use gpustream_collectives::{Communicator, CommunicatorFailure, Op, World, group};

use crate::order::{all_reduce, full};
use crate::{
    LONG, broken, closed, device, each, hold, options, rank_count, ranks, ranks_within, reduce, streams,
    tests, with_recorder,
};

tests!(
    lost_rank_is_an_error_for_the_others,
    rank_that_comes_late_does_no_harm,
    work_in_front_does_not_count,
    calls_that_follow_each_other_record_few_events,
    group_of_all_ranks_makes_no_other_calls,
    call_that_does_not_return_is_ended_at_the_limit,
    call_that_does_not_return_is_ended_by_an_abort,
    graph_is_not_launched_beside_an_abort,
    threads_that_share_a_rank_hear_the_same,
    threads_that_share_a_rank_take_turns,
    calls_that_go_on_in_the_background_are_waited_for,
    ended_connection_is_an_error,
    aborted_communicator_ends_its_work,
    panicking_rank_ends_the_others_work,
    dropped_ranks_finish_their_work,
    dropped_rank_stays_open_for_a_graph,
    every_function_may_fail,
    invalid_calls_break_nothing,
    rank_that_does_not_split_is_noticed,
);

/// A limit that ends within a test. You can only use it to wait for what never comes, because a busy machine
/// could be slower than the limit.
const SHORT: Duration = Duration::from_secs(1);

fn stalled<T: std::fmt::Debug>(outcome: Result<T>, call: &str) {
    match broken(&outcome.unwrap_err()) {
        CommunicatorFailure::Stalled { call: named, limit } => {
            assert!(*limit >= SHORT && named.contains(call), "{named}");
        }
        other => panic!("{other}"),
    }
}

fn lost_rank_is_an_error_for_the_others() {
    let mut ranks = ranks_within(SHORT);
    // It still exists, but makes no call, as if your program were stuck.
    let lost = ranks.pop().unwrap();
    // Even on a busy machine, the limit must not begin before the last of the others has made its calls. So we wait for all
    // of them.
    let called = Barrier::new(ranks.len());
    each(ranks, |rank| {
        let (stream, other) = (rank.device().stream().unwrap(), rank.device().stream().unwrap());
        let gate = hold(&stream);
        let memory = reduce(&rank, &stream).unwrap();
        let copied = other.duplicate(&memory).unwrap();
        called.wait();
        drop(gate);
        stalled(other.download(&copied), "all_reduce");
        stalled(stream.synchronize(), "all_reduce");
        // The streams continue, but the communicator does not.
        other.download(&copied).unwrap();
        stream.download(&memory).unwrap();
        stalled(reduce(&rank, &stream), "all_reduce");
        stalled(rank.split(0, 0), "all_reduce");
    });
    // It learns of the failure, because it is in the same process.
    stalled(reduce(&lost, &lost.device().stream().unwrap()), "all_reduce");
}

fn rank_that_comes_late_does_no_harm() {
    let ranks = ranks();
    let streams = streams(&ranks);
    let (last, last_stream) = (ranks.last().unwrap(), streams.last().unwrap());
    let early: Vec<_> = ranks.iter().zip(&streams).take(ranks.len() - 1).collect();
    let early: Vec<_> = early.into_iter().map(|(rank, stream)| reduce(rank, stream).unwrap()).collect();
    assert!(!streams[0].is_done().unwrap());
    reduce(last, last_stream).unwrap();
    for (memory, stream) in early.iter().zip(&streams) {
        assert_eq!(stream.download(memory).unwrap(), [rank_count() as f32; 100]);
    }
}

fn work_in_front_does_not_count() {
    // We look at each rank's work thirty times, and that takes longer than this.
    let ranks = ranks_within(Duration::from_millis(250));
    let streams = streams(&ranks);
    let gates: Vec<_> = streams.iter().map(hold).collect();
    // All ranks are held up, so none reaches the work, and we ask about each many times.
    all_reduce(&ranks, &streams, &mut full(&streams, 3, 1u8), Op::Sum).unwrap();
    let asked = Nccl.asked();
    while Nccl.asked() < asked + 30 * rank_count() {
        thread::yield_now();
    }
    assert_eq!(Nccl.aborted(), 0, "the streams are held by other work");
    drop(gates);
}

/// Up to this many bytes, calls share an event.
const SMALL: usize = 4 << 20;

/// Small consecutive calls share one event before them, up to sixteen calls. Each larger call has its own.
fn calls_that_follow_each_other_record_few_events() {
    let ranks = ranks();
    let streams = streams(&ranks);
    let gates: Vec<_> = streams.iter().map(hold).collect();
    let (rank, stream) = (&ranks[0], &streams[0]);
    let mut memory: Vec<_> =
        (1u8..).zip(&streams).map(|(value, s)| s.full(SMALL + 1, value).unwrap()).collect();
    let mut records = |bytes: usize| {
        let mut memory = memory[0].slice_mut(..bytes).unwrap();
        let ((), calls) =
            with_recorder(|recorder| recorder.record(|| rank.broadcast(stream, &mut memory, 0).unwrap()));
        // The watchdog's thread may look at the first call meanwhile.
        let own = calls.iter().filter(|call| call.thread == thread::current().id());
        own.filter(|call| call.name.ends_with("EventRecord")).count()
    };
    // While the first call is not done, that thread asks about no other.
    assert_eq!([records(SMALL + 1), records(SMALL + 1)], [1, 1]);
    let small: Vec<_> = (0..33).map(|_| records(SMALL)).collect();
    let first = [1].into_iter().chain([0; 15]);
    assert!(small.iter().copied().eq(first.clone().chain(first).chain([1])), "{small:?}");
    assert_eq!([records(SMALL + 1), records(1), records(1)], [1, 1, 0]);
    stream.full(3, 1u8).unwrap();
    assert_eq!(records(1), 1, "something came between");
    for ((rank, stream), memory) in ranks.iter().zip(&streams).zip(&mut memory).skip(1) {
        for bytes in [vec![SMALL + 1; 2], vec![SMALL; 33], vec![SMALL + 1], vec![1; 3]].concat() {
            rank.broadcast(stream, &mut memory.slice_mut(..bytes).unwrap(), 0).unwrap();
        }
    }
    drop(gates);
    for (memory, stream) in memory.iter().zip(&streams) {
        assert!(stream.download(memory).unwrap().iter().all(|value| *value == 1));
    }
}

/// One thread makes the calls of all ranks. Apart from NCCL's own calls, that costs the driver nothing but an
/// occasional event per rank, and it makes no device's context current.
fn group_of_all_ranks_makes_no_other_calls() {
    let ranks = ranks();
    let streams = streams(&ranks);
    let gates: Vec<_> = streams.iter().map(hold).collect();
    let (mut memory, mut large) = (full(&streams, 1000, 1u8), full(&streams, SMALL + 1, 1u8));
    // While this call is not done, the watchdogs' threads ask about no other, so we can count.
    group(|group| {
        for ((rank, stream), memory) in ranks.iter().zip(&streams).zip(&mut large) {
            group.on(rank).broadcast(stream, memory, 0)?;
        }
        Ok(())
    })
    .unwrap();
    let mut names = || {
        let calls = with_recorder(|recorder| {
            recorder.clear();
            all_reduce(&ranks, &streams, &mut memory, Op::Sum).unwrap();
            recorder.calls()
        });
        let own = calls.into_iter().filter(|call| call.thread == thread::current().id());
        own.map(|call| call.name).collect::<Vec<_>>()
    };
    names();
    let all = iter::repeat_n("ncclAllReduce", ranks.len());
    let expected: Vec<_> = ["ncclGroupStart"].into_iter().chain(all).chain(["ncclGroupEnd"]).collect();
    for _ in 0..15 {
        assert_eq!(names(), expected);
    }
    drop(gates);
    for (memory, stream) in memory.iter().zip(&streams) {
        let sum = (0..16).fold(1u8, |value, _| value.wrapping_mul(ranks.len() as u8));
        assert!(stream.download(memory).unwrap().iter().all(|value| *value == sum));
    }
}

/// If NCCL must first connect the ranks, its call waits for them, and we must be able to end it.
fn call_that_does_not_return_is_ended_at_the_limit() {
    let ranks = ranks_within(SHORT);
    let streams = streams(&ranks);
    // This work waits for the other ranks, and ends together with the call after it.
    let memory = reduce(&ranks[0], &streams[0]).unwrap();
    Nccl.hold_calls(true);
    for part in [0..1, 1..rank_count()] {
        let (ranks, streams) = (&ranks[part.clone()], &streams[part]);
        stalled(all_reduce(ranks, streams, &mut full(streams, 3, 1u8), Op::Sum), "all_reduce");
    }
    stalled(streams[0].download(&memory), "all_reduce");
    for (rank, stream) in ranks.iter().zip(&streams) {
        stalled(reduce(rank, stream), "all_reduce");
        stalled(rank.split(0, 0), "all_reduce");
        stream.synchronize().unwrap();
    }
}

fn call_that_does_not_return_is_ended_by_an_abort() {
    let ranks = ranks();
    Nccl.hold_calls(true);
    thread::scope(|threads| {
        let call = threads.spawn(|| reduce(&ranks[2], &ranks[2].device().stream().unwrap()).unwrap_err());
        while !Nccl.is_called() {
            thread::yield_now();
        }
        ranks[2].abort();
        assert_eq!(broken(&call.join().unwrap()), &CommunicatorFailure::Aborted { rank: 2 });
    });
}

/// We hold another thread's call and the abort, so that both are under way when we launch the graph.
fn graph_is_not_launched_beside_an_abort() {
    let ranks = ranks();
    let rank = &ranks[0];
    let [stream, other] = [(); 2].map(|()| rank.device().stream().unwrap());
    let mut memory = stream.full(3, 1u8).unwrap();
    let graph = stream.capture(|s| rank.all_reduce_in_place(s, &mut memory, Op::Sum)).unwrap();
    graph.launch(&stream).unwrap();
    Nccl.hold_calls(true);
    Nccl.hold_aborts(true);
    thread::scope(|threads| {
        let call = threads.spawn(|| reduce(rank, &other).unwrap_err());
        while !Nccl.is_called() {
            thread::yield_now();
        }
        threads.spawn(|| rank.abort());
        let run = stream.synchronize();
        let launch = graph.launch(&stream);
        Nccl.hold_aborts(false);
        for outcome in [run, launch, Err(call.join().unwrap())] {
            assert_eq!(broken(&outcome.unwrap_err()), &CommunicatorFailure::Aborted { rank: 0 });
        }
    });
}

/// The second thread waits for the first one's call, which does not return.
fn threads_that_share_a_rank_hear_the_same() {
    let ranks = ranks_within(SHORT);
    let rank = &ranks[0];
    Nccl.hold_calls(true);
    thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                let stream = rank.device().stream().unwrap();
                stalled(reduce(rank, &stream), "all_reduce");
                stream.synchronize().unwrap();
            });
        }
    });
}

/// The order of these calls does not matter, because all are the same.
fn threads_that_share_a_rank_take_turns() {
    each(ranks(), |rank| {
        thread::scope(|threads| {
            for _ in 0..3 {
                threads.spawn(|| {
                    let stream = rank.device().stream().unwrap();
                    for _ in 0..20 {
                        let memory = reduce(&rank, &stream).unwrap();
                        assert_eq!(stream.download(&memory).unwrap(), [rank_count() as f32; 100]);
                    }
                });
            }
        });
    });
}

/// `NCCL_COMM_BLOCKING=0` overrides what the engine asks for.
fn calls_that_go_on_in_the_background_are_waited_for() {
    Nccl.never_block();
    each(ranks(), |rank| {
        let stream = rank.device().stream().unwrap();
        let asked = Nccl.asked();
        let memory = reduce(&rank, &stream).unwrap();
        assert!(Nccl.asked() > asked);
        assert_eq!(stream.download(&memory).unwrap(), [rank_count() as f32; 100]);
    });
}

fn ended_connection_is_an_error() {
    const REMOTE_ERROR: u32 = 6;
    let mut ranks = ranks();
    let lost = ranks.pop().unwrap();
    let rank = ranks.remove(0);
    let stream = rank.device().stream().unwrap();
    reduce(&rank, &stream).unwrap();
    Nccl.lose(0, REMOTE_ERROR);
    let error = stream.synchronize().unwrap_err();
    let CommunicatorFailure::Failed { call, message } = broken(&error) else { panic!("{error}") };
    assert!(call.contains("all_reduce"), "{call}");
    assert!(
        message.contains("remote process exited") && message.contains("the fake's last words"),
        "{message}"
    );
    drop(lost);
}

fn aborted_communicator_ends_its_work() {
    let ranks = ranks();
    let stream = ranks[1].device().stream().unwrap();
    reduce(&ranks[1], &stream).unwrap();
    assert!(!stream.is_done().unwrap());
    ranks[1].abort();
    for outcome in [stream.synchronize(), reduce(&ranks[1], &stream).map(drop)] {
        assert_eq!(broken(&outcome.unwrap_err()), &CommunicatorFailure::Aborted { rank: 1 });
    }
    ranks[1].abort();
}

fn panicking_rank_ends_the_others_work() {
    let mut ranks = ranks();
    let panicking = ranks.remove(0);
    let other = ranks[0].device().stream().unwrap();
    let stream = panicking.device().stream().unwrap();
    reduce(&panicking, &stream).unwrap();
    reduce(&ranks[0], &other).unwrap();
    let thread = thread::spawn(move || {
        let _dropped_here = panicking;
        panic!("on purpose");
    });
    thread.join().unwrap_err();
    for outcome in [stream.synchronize(), other.synchronize(), reduce(&ranks[0], &other).map(drop)] {
        assert_eq!(broken(&outcome.unwrap_err()), &CommunicatorFailure::Panicked { rank: 0 });
    }
}

fn dropped_ranks_finish_their_work() {
    let ranks = ranks();
    let streams = streams(&ranks);
    let gate = hold(&streams[0]);
    let mut memory = full(&streams, 3, 2i64);
    all_reduce(&ranks, &streams, &mut memory, Op::Product).unwrap();
    drop(ranks);
    gate.send(()).unwrap();
    for (memory, stream) in memory.iter().zip(&streams) {
        assert_eq!(stream.download(memory).unwrap(), [1 << rank_count(); 3]);
    }
}

type Call = fn(&Communicator, &Stream, &mut gpustream::Buffer<f32>) -> Result<()>;

/// The graph needs its two communicators, so they stay open while others are closed.
fn dropped_rank_stays_open_for_a_graph() {
    let device = &device(0);
    let alone = || World::alone().communicator_with(device, options(LONG)).unwrap();
    let (rank, stream) = (alone(), device.stream().unwrap());
    let mut memory = stream.full(3, 1.5f32).unwrap();
    let graph = stream.capture(|s| rank.all_reduce_in_place(s, &mut memory, Op::Sum)).unwrap();
    graph.launch(&stream).unwrap();
    stream.synchronize().unwrap();
    drop(rank);
    for _ in 0..3 {
        // Its thread has slept just as long.
        let other = alone();
        other.barrier(&stream).unwrap();
        stream.synchronize().unwrap();
        drop(other);
        while Nccl.live() > 2 {
            thread::yield_now();
        }
    }
    assert_eq!(Nccl.live(), 2);
    graph.launch(&stream).unwrap();
    assert_eq!(stream.download(&memory).unwrap(), [1.5; 3]);
}

fn every_function_may_fail() {
    const INTERNAL_ERROR: u32 = 3;
    let alone = || World::alone().communicator_with(&device(0), options(LONG));
    for function in [
        "ncclGetUniqueId",
        "ncclGroupStart",
        "ncclCommInitRankConfig",
        "ncclCommSplit",
        "ncclGroupEnd",
        "ncclCommGetAsyncError",
    ] {
        // The thread that closes the last one asks for errors too.
        closed();
        with_recorder(|recorder| recorder.fail_next(function, INTERNAL_ERROR));
        let error = alone().unwrap_err();
        assert!(error.to_string().contains("internal error"), "{function}: {error}");
        alone().unwrap();
    }
    let calls: [(&str, Call); 9] = [
        ("ncclAllReduce", |rank, stream, memory| rank.all_reduce_in_place(stream, memory, Op::Sum)),
        ("ncclAllReduce", |rank, stream, _| rank.barrier(stream)),
        ("ncclAllGather", |rank, stream, memory| rank.all_gather(stream, &stream.full(9, 1.0f32)?, memory)),
        ("ncclReduceScatter", |rank, stream, memory| {
            rank.reduce_scatter(stream, &stream.full(9, 1.0f32)?, memory, Op::Sum)
        }),
        ("ncclBroadcast", |rank, stream, memory| rank.broadcast(stream, memory, 0)),
        ("ncclReduce", |rank, stream, memory| rank.reduce_in_place(stream, memory, Op::Max, 0)),
        ("ncclSend", |rank, stream, memory| rank.scatter(stream, &stream.full(9, 1.0f32)?, memory, 0)),
        ("ncclRecv", |rank, stream, memory| rank.gather(stream, &stream.full(9, 1.0f32)?, memory, 0)),
        ("ncclGroupEnd", |rank, stream, memory| rank.broadcast(stream, memory, 0)),
    ];
    for (function, call) in calls {
        let rank = alone().unwrap();
        let stream = rank.device().stream().unwrap();
        let mut memory = stream.full(9, 1.0f32).unwrap();
        with_recorder(|recorder| recorder.fail_next(function, INTERNAL_ERROR));
        let error = call(&rank, &stream, &mut memory).unwrap_err();
        let CommunicatorFailure::Failed { message, .. } = broken(&error) else {
            panic!("{function}: {error}")
        };
        assert!(message.contains("internal error"), "{function}: {message}");
        assert_eq!(broken(&rank.barrier(&stream).unwrap_err()), broken(&error));
        stream.synchronize().unwrap();
    }
    for function in ["ncclGetUniqueId", "ncclCommInitRankConfig", "ncclCommSplit"] {
        let rank = alone().unwrap();
        with_recorder(|recorder| recorder.fail_next(function, INTERNAL_ERROR));
        let error = rank.split(0, 0).unwrap_err();
        assert!(error.to_string().contains("internal error"), "{function}: {error}");
        // If a part cannot be made, that must not affect the whole.
        rank.split(0, 0).unwrap();
    }
    for function in ["ncclCommFinalize", "ncclCommAbort"] {
        closed();
        let rank = alone().unwrap();
        with_recorder(|recorder| recorder.fail_next(function, INTERNAL_ERROR));
        if function == "ncclCommAbort" {
            rank.abort();
            // The fake did nothing.
            Nccl.forget();
        }
    }
}

fn invalid_calls_break_nothing() {
    const INVALID_ARGUMENT: u32 = 4;
    let device = &device(0);
    let rank = World::alone().communicator_with(device, options(LONG)).unwrap();
    let stream = device.stream().unwrap();
    let mut memory = stream.full(9, 7i16).unwrap();
    let error = rank.all_reduce_in_place(&stream, &mut memory, Op::Sum).unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.message().contains("i32 or u32"), "{error}");
    with_recorder(|recorder| recorder.fail_next("ncclBroadcast", INVALID_ARGUMENT));
    let error = rank.broadcast(&stream, &mut memory, 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    rank.broadcast(&stream, &mut memory, 0).unwrap();
    assert_eq!(stream.download(&memory).unwrap(), [7; 9]);
}

fn rank_that_does_not_split_is_noticed() {
    let mut ranks = ranks_within(SHORT);
    let lost = ranks.pop().unwrap();
    each(ranks, |rank| {
        let error = rank.split(0, 0).unwrap_err();
        let CommunicatorFailure::Missing { ranks, call, .. } = broken(&error) else { panic!("{error}") };
        assert_eq!((ranks.as_slice(), call.as_str()), (&[lost.rank()][..], "`split`"));
    });
}
