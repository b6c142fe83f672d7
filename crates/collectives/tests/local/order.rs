//! A call's work must be in order with all your other work, and the host may only wait for ranks, never for a
//! device.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gpustream::{Buffer, DeviceOptions, ErrorKind, Result, Stream};
use gpustream_collectives::{Communicator, Element, Op, World, group};

use crate::{each, hold, ranks, streams, strict_ranks, tests};

tests!(
    calls_return_before_the_devices_work,
    work_on_other_streams_is_waited_for,
    later_writes_wait_for_the_other_ranks_reads,
    strict_tracking_finds_later_writes_in_order,
    barrier_waits_for_every_stream,
    barrier_orders_what_the_tracker_does_not_see,
    recorded_streams_are_refused,
    ranks_may_share_a_stream,
);

/// Makes memory on each stream.
pub(crate) fn full<T: Element>(streams: &[Stream], len: usize, value: T) -> Vec<Buffer<T>> {
    streams.iter().map(|stream| stream.full(len, value).unwrap()).collect()
}

/// Makes all ranks' calls in one group, each with its own memory.
pub(crate) fn all_reduce<T: Element>(
    ranks: &[Communicator],
    streams: &[Stream],
    memory: &mut [Buffer<T>],
    op: Op,
) -> Result<()> {
    group(|group| {
        for ((rank, stream), memory) in ranks.iter().zip(streams).zip(memory) {
            group.on(rank).all_reduce_in_place(stream, memory, op)?;
        }
        Ok(())
    })
}

fn calls_return_before_the_devices_work() {
    let ranks = ranks();
    let streams = streams(&ranks);
    let gate = hold(&streams[1]);
    let mut memory = full(&streams, 100, 2i32);
    all_reduce(&ranks, &streams, &mut memory, Op::Product).unwrap();
    for stream in &streams {
        assert!(!stream.is_done().unwrap(), "every rank needs what rank 1 has not begun");
    }
    gate.send(()).unwrap();
    for (stream, memory) in streams.iter().zip(&memory) {
        assert_eq!(stream.download(memory).unwrap(), [1 << ranks.len(); 100]);
    }
}

fn work_on_other_streams_is_waited_for() {
    each(ranks(), |rank| {
        let (other, stream) = (rank.device().stream().unwrap(), rank.device().stream().unwrap());
        let mut memory = other.zeros::<u32>(99).unwrap();
        let gate = hold(&other);
        other.fill(&mut memory, 5).unwrap();
        rank.all_reduce_in_place(&stream, &mut memory, Op::Sum).unwrap();
        assert!(!stream.is_done().unwrap());
        gate.send(()).unwrap();
        // A stream that took no part in the call waits for it too.
        let third = rank.device().stream().unwrap();
        assert_eq!(third.download(&memory).unwrap(), [5 * rank.size() as u32; 99]);
    });
}

/// Broadcasts what rank 0 has, and lets rank 0 write there again, while the last rank may be held up.
fn write_behind_a_broadcast(ranks: &[Communicator], is_held: bool) {
    let streams = streams(ranks);
    let mut memory: Vec<_> = (1u64..).zip(&streams).map(|(value, s)| s.full(50, value).unwrap()).collect();
    streams[0].synchronize().unwrap();
    let gate = is_held.then(|| hold(streams.last().unwrap()));
    group(|group| {
        for ((rank, stream), memory) in ranks.iter().zip(&streams).zip(&mut memory) {
            group.on(rank).broadcast(stream, memory, 0)?;
        }
        Ok(())
    })
    .unwrap();
    streams[0].fill(&mut memory[0], 77).unwrap();
    assert!(!is_held || !streams[0].is_done().unwrap(), "the write waits for the last rank");
    drop(gate);
    for (rank, (stream, memory)) in streams.iter().zip(&memory).enumerate() {
        assert_eq!(stream.download(memory).unwrap(), [if rank == 0 { 77 } else { 1 }; 50]);
    }
}

/// The root's stream has no work in the broadcast.
fn later_writes_wait_for_the_other_ranks_reads() {
    write_behind_a_broadcast(&ranks(), true);
}

/// The root's stream comes after the other ranks' reads, as it must with any engine.
fn strict_tracking_finds_later_writes_in_order() {
    write_behind_a_broadcast(&strict_ranks(), false);
}

fn barrier_waits_for_every_stream() {
    let ranks = ranks();
    let streams = streams(&ranks);
    let gate = hold(&streams[0]);
    group(|group| ranks.iter().zip(&streams).try_for_each(|(rank, stream)| group.on(rank).barrier(stream)))
        .unwrap();
    for stream in &streams {
        assert!(!stream.is_done().unwrap());
    }
    gate.send(()).unwrap();
    for stream in &streams {
        stream.synchronize().unwrap();
    }
}

/// The closures share a counter that no tracker can know of.
fn barrier_orders_what_the_tracker_does_not_see() {
    let ranks = ranks();
    let size = ranks.len();
    let seen: Vec<_> = ranks.iter().map(|_| AtomicUsize::new(0)).collect();
    let counters = Arc::new((AtomicUsize::new(0), seen));
    each(ranks, |rank| {
        let (stream, number) = (rank.device().stream().unwrap(), rank.rank());
        let gate = hold(&stream);
        let (first, second) = (counters.clone(), counters.clone());
        stream
            .host_fn(move || {
                first.0.fetch_add(1, Ordering::SeqCst);
            })
            .unwrap();
        rank.barrier(&stream).unwrap();
        stream
            .host_fn(move || second.1[number].store(second.0.load(Ordering::SeqCst), Ordering::SeqCst))
            .unwrap();
        gate.send(()).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(counters.1[number].load(Ordering::SeqCst), size);
    });
}

fn recorded_streams_are_refused() {
    let ranks = ranks();
    let stream = ranks[0].device().stream().unwrap();
    let mut memory = stream.zeros::<f32>(5).unwrap();
    let captured = stream.capture(|s| ranks[0].all_reduce_in_place(s, &mut memory, Op::Sum));
    let error = captured.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Captured, "{error}");
    assert!(error.message().contains("rank 0"), "{error}");
}

fn ranks_may_share_a_stream() {
    let device = crate::devices(DeviceOptions::default()).remove(0);
    let ranks = World::local(&[device.clone(), device.clone()]).unwrap().communicators().unwrap();
    let stream = device.stream().unwrap();
    let (mut a, mut b) = (stream.full(9, 1.5f64).unwrap(), stream.full(9, 2.0f64).unwrap());
    group(|group| {
        group.on(&ranks[0]).all_reduce_in_place(&stream, &mut a, Op::Sum)?;
        group.on(&ranks[1]).all_reduce_in_place(&stream, &mut b, Op::Sum)
    })
    .unwrap();
    assert_eq!((stream.download(&a).unwrap(), stream.download(&b).unwrap()), (vec![3.5; 9], vec![3.5; 9]));
}
