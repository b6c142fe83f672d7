//! Lost ranks, and calls that do not match: you must get an error on every rank, and none may hang.

use std::process::{self, ExitCode};
use std::time::Duration;

use gpustream::DeviceOptions;
use gpustream_collectives::{CommunicatorFailure, Op};

use crate::{LONG, broken, hold, options, rank, rank_with, rank_within, tests};

tests!(
    rank_without_the_call_ends_the_others_wait,
    killed_rank_ends_the_others_wait,
    different_calls_are_found_out_on_every_rank,
    abort_lets_the_stream_go_on,
    message_of_another_length_is_found_out,
    work_that_cannot_be_enqueued_can_be_given_again,
    communicator_is_dropped_with_work_pending,
    process_ends_with_its_own_code,
    process_ends_with_work_pending_that_no_other_rank_shares,
);

/// The rank that is lost.
const LOST: usize = 3;
const LIMIT: Duration = Duration::from_secs(2);

/// Returns extra arguments for `mpirun`.
pub(crate) fn arguments(test: &str) -> &'static [&'static str] {
    if test == "faults::killed_rank_ends_the_others_wait" { &["--enable-recovery"] } else { &[] }
}

/// Returns true if a rank does not reach the end of a test.
pub(crate) fn is_lost(test: &str, rank: usize) -> bool {
    test == "faults::killed_rank_ends_the_others_wait" && rank == LOST
}

/// Returns the exit code that a process must end with.
pub(crate) fn exit_code(test: &str) -> ExitCode {
    ExitCode::from(if test == "faults::process_ends_with_its_own_code" { 7 } else { 0 })
}

/// Returns true if `mpirun` ends with the right code. A rank that gave up does not end MPI, and `mpirun`
/// takes that for a failure.
pub(crate) fn is_expected(test: &str, code: Option<i32>) -> bool {
    match test {
        "faults::process_ends_with_its_own_code" => code == Some(7),
        "faults::work_that_cannot_be_enqueued_can_be_given_again"
        | "faults::communicator_is_dropped_with_work_pending" => code == Some(0),
        // 124 means that the test timed out.
        _ if test.starts_with("faults::") => code.is_some_and(|code| code != 124),
        _ => code == Some(0),
    }
}

fn rank_without_the_call_ends_the_others_wait() {
    let rank = rank_within(LIMIT);
    let stream = rank.device().stream().unwrap();
    let mut memory = stream.full(3_000_000, 1.0f32).unwrap();
    if rank.rank() == LOST {
        // It stays until the others have given up.
        return rank_within(LONG).barrier(&stream).and_then(|()| stream.synchronize()).unwrap();
    }
    rank.all_reduce_in_place(&stream, &mut memory, Op::Sum).unwrap();
    rank.barrier(&stream).unwrap();
    let error = stream.synchronize().unwrap_err();
    let CommunicatorFailure::Stalled { call, limit } = broken(&error) else { panic!("{error}") };
    assert!(call.contains("all_reduce") && *limit == LIMIT, "{error}");
    let again = rank.all_reduce_in_place(&stream, &mut memory, Op::Sum);
    for error in [again.unwrap_err(), rank.split(0, 0).unwrap_err()] {
        assert!(matches!(broken(&error), CommunicatorFailure::Stalled { .. }), "{error}");
    }
    // The stream continues, and so does MPI.
    assert_eq!(stream.download(&stream.full(3, 1u8).unwrap()).unwrap(), [1; 3]);
    rank_within(LONG).barrier(&stream).unwrap();
    stream.synchronize().unwrap();
}

fn killed_rank_ends_the_others_wait() {
    let rank = rank_within(LIMIT);
    let stream = rank.device().stream().unwrap();
    let mut memory = stream.full(1001, 1.0f32).unwrap();
    if rank.rank() == LOST {
        process::abort();
    }
    let outcome = rank.all_reduce_in_place(&stream, &mut memory, Op::Sum).and_then(|()| stream.synchronize());
    let error = outcome.unwrap_err();
    assert!(
        matches!(broken(&error), CommunicatorFailure::Stalled { .. } | CommunicatorFailure::Failed { .. }),
        "{error}"
    );
}

fn different_calls_are_found_out_on_every_rank() {
    let rank = rank_with(DeviceOptions::default(), options(LONG).checked(true));
    let stream = rank.device().stream().unwrap();
    let mut memory = stream.zeros::<u32>(10).unwrap();
    rank.all_reduce_in_place(&stream, &mut memory, Op::Sum).unwrap();
    let len = if rank.rank() == 2 { 9 } else { 10 };
    let error =
        rank.all_reduce_in_place(&stream, &mut memory.slice_mut(..len).unwrap(), Op::Sum).unwrap_err();
    let CommunicatorFailure::Different { ranks, calls } = broken(&error) else { panic!("{error}") };
    assert_eq!(*ranks, [2]);
    assert!(calls.contains("9 elements of u32"), "{calls}");
    let error = rank.barrier(&stream).unwrap_err();
    assert!(matches!(broken(&error), CommunicatorFailure::Different { .. }), "{error}");
    stream.synchronize().unwrap();
}

fn abort_lets_the_stream_go_on() {
    let rank = rank();
    let stream = rank.device().stream().unwrap();
    let mut memory = stream.zeros::<u32>(10).unwrap();
    let release = hold(&stream);
    rank.all_reduce_in_place(&stream, &mut memory, Op::Sum).unwrap();
    rank.abort();
    drop(release);
    for error in [stream.synchronize().unwrap_err(), rank.barrier(&stream).unwrap_err()] {
        assert!(matches!(broken(&error), CommunicatorFailure::Aborted { .. }), "{error}");
    }
}

fn message_of_another_length_is_found_out() {
    let rank = rank();
    let stream = rank.device().stream().unwrap();
    let mut memory = stream.zeros::<u32>(10).unwrap();
    match rank.rank() {
        0 => rank.send(&stream, &memory.slice(..4).unwrap(), 1).unwrap(),
        1 => {
            rank.recv(&stream, &mut memory, 0).unwrap();
            let error = stream.synchronize().unwrap_err();
            let CommunicatorFailure::Failed { message, .. } = broken(&error) else { panic!("{error}") };
            assert!(message.contains("4 elements") && message.contains("10"), "{message}");
        }
        _ => {}
    }
}

fn work_that_cannot_be_enqueued_can_be_given_again() {
    let rank = rank();
    let stream = rank.device().stream().unwrap();
    let mut dst = stream.zeros::<u32>(10).unwrap();
    if rank.rank() == 1 {
        let unwritten = stream.alloc::<u32>(10).unwrap();
        rank.all_reduce(&stream, &unwritten, &mut dst, Op::Sum).unwrap_err();
    }
    rank.all_reduce(&stream, &stream.full(10, 1u32).unwrap(), &mut dst, Op::Sum).unwrap();
    assert_eq!(stream.download(&dst).unwrap(), [4; 10]);
}

fn communicator_is_dropped_with_work_pending() {
    let rank = rank();
    let stream = rank.device().stream().unwrap();
    let mut memory = stream.full(2_000_001, 1u32).unwrap();
    let release = hold(&stream);
    rank.all_reduce_in_place(&stream, &mut memory, Op::Sum).unwrap();
    drop(rank);
    drop(release);
    assert!(stream.download(&memory).unwrap() == vec![4; 2_000_001]);
}

fn process_ends_with_its_own_code() {
    let rank = rank();
    let stream = rank.device().stream().unwrap();
    rank.barrier(&stream).unwrap();
    stream.synchronize().unwrap();
}

fn process_ends_with_work_pending_that_no_other_rank_shares() {
    let rank = rank();
    let stream = rank.device().stream().unwrap();
    if rank.rank() != LOST {
        // Handles that are never dropped, like those in statics.
        let memory = Box::leak(Box::new(stream.full(1001, 1.0f32).unwrap()));
        Box::leak(Box::new(rank)).all_reduce_in_place(Box::leak(Box::new(stream)), memory, Op::Sum).unwrap();
    }
}
