//! Compares every operation with plain Rust, for every type, combination and many odd lengths. We also check that nothing
//! else was written.

use std::any::TypeId;

use gpustream::half::{bf16, f16};
use gpustream::{Buffer, Device, DeviceOptions, Stream};
use gpustream_collectives::{Communicator, Op, World, group};

use crate::plain::{Expected, Number, OPS, assert_expected, brought, combined, every_type, exactly};
use crate::{COMBINES_16_BITS, LONG, devices, each, options, ranks, streams, strict_ranks, tests};

tests!(
    errors_name_the_call_and_its_line,
    every_operation_is_right_on_threads,
    every_operation_is_right_in_one_group,
    every_operation_is_right_under_strict_tracking,
    one_rank_is_right,
    parts_beyond_a_piece_are_right,
    pinned_memory_is_taken,
    nan_gives_way_to_numbers,
    runs_of_a_replay_contain_calls,
    exchanges_are_grouped_in_loops,
);

/// How long a rank's part is: zero, less than the number of ranks, and around multiples of it.
const LENGTHS: [usize; 8] = [0, 1, 2, 3, 5, 7, 64, 1001];

/// Elements before and after each view. Nothing may write them.
const MARGIN: usize = 3;

/// The range of a buffer for a result, between elements that must not change.
struct Target<T: Number> {
    buffer: Buffer<T>,
    len: usize,
}

impl<T: Number> Target<T> {
    fn new(stream: &Stream, values: &[T]) -> Self {
        let margin = brought::<T>(9, MARGIN);
        let buffer = stream.upload(&[&margin, values, &margin].concat()).unwrap();
        Self { buffer, len: values.len() }
    }

    fn empty(stream: &Stream, len: usize) -> Self {
        Self::new(stream, &brought::<T>(8, len))
    }

    fn view(&mut self) -> gpustream::ViewMut<'_, T> {
        self.buffer.slice_mut(MARGIN..MARGIN + self.len).unwrap()
    }

    #[track_caller]
    fn check(&self, stream: &Stream, want: &[Expected<T>], what: &str) {
        let got = stream.download(&self.buffer).unwrap();
        let margin = brought::<T>(9, MARGIN);
        assert_eq!(got[..MARGIN], margin, "before the result of {what}");
        assert_expected(&got[MARGIN..MARGIN + self.len], want, what);
        assert_eq!(got[MARGIN + self.len..], margin, "behind the result of {what}");
    }
}

/// Returns true if the engine combines elements of this type.
fn can_combine<T: 'static>() -> bool {
    let type_of = TypeId::of::<T>();
    COMBINES_16_BITS || ![TypeId::of::<i16>(), TypeId::of::<u16>()].contains(&type_of)
}

/// Makes every call for one type and length, and compares the results.
pub(crate) fn all_operations<T: Number>(communicator: &Communicator, stream: &Stream, len: usize) {
    let (rank, size) = (communicator.rank(), communicator.size());
    let name = std::any::type_name::<T>();
    let what = |call: &str| format!("{call} of {len} {name} on rank {rank} of {size}");
    let source = |len: usize| stream.upload(&brought::<T>(rank, len)).unwrap();

    for op in OPS.into_iter().filter(|_| can_combine::<T>()) {
        let src = source(len);
        let mut dst = Target::<T>::empty(stream, len);
        communicator.all_reduce(stream, &src, &mut dst.view(), op).unwrap();
        dst.check(stream, &combined(op, size, len), &what(&format!("all_reduce ({op})")));

        let mut memory = Target::new(stream, &brought::<T>(rank, len));
        communicator.all_reduce_in_place(stream, &mut memory.view(), op).unwrap();
        memory.check(stream, &combined(op, size, len), &what(&format!("all_reduce_in_place ({op})")));

        let src = source(len * size);
        let mut dst = Target::<T>::empty(stream, len);
        communicator.reduce_scatter(stream, &src, &mut dst.view(), op).unwrap();
        let want = &combined(op, size, len * size)[rank * len..][..len];
        dst.check(stream, want, &what(&format!("reduce_scatter ({op})")));

        let root = size - 1;
        let src = source(len);
        let mut dst = Target::<T>::empty(stream, if rank == root { len } else { 2 });
        communicator.reduce(stream, &src, &mut dst.view(), op, root).unwrap();
        let want = if rank == root { combined(op, size, len) } else { exactly(&brought(8, 2)) };
        dst.check(stream, &want, &what(&format!("reduce ({op})")));

        let mut memory = Target::new(stream, &brought::<T>(rank, len));
        communicator.reduce_in_place(stream, &mut memory.view(), op, 0).unwrap();
        let want = if rank == 0 { combined(op, size, len) } else { exactly(&brought(rank, len)) };
        memory.check(stream, &want, &what(&format!("reduce_in_place ({op})")));
    }

    let of_all: Vec<T> = (0..size).flat_map(|rank| brought::<T>(rank, len)).collect();
    let part = |values: &[T], part: usize| values[part * len..(part + 1) * len].to_vec();
    let mut dst = Target::<T>::empty(stream, len * size);
    communicator.all_gather(stream, &source(len), &mut dst.view()).unwrap();
    dst.check(stream, &exactly(&of_all), &what("all_gather"));

    let src = source(len * size);
    let mut dst = Target::<T>::empty(stream, len * size);
    communicator.all_to_all(stream, &src, &mut dst.view()).unwrap();
    let want: Vec<T> = (0..size).flat_map(|other| part(&brought(other, len * size), rank)).collect();
    dst.check(stream, &exactly(&want), &what("all_to_all"));

    for root in 0..size {
        let mut memory = Target::new(stream, &brought::<T>(rank, len));
        communicator.broadcast(stream, &mut memory.view(), root).unwrap();
        memory.check(stream, &exactly(&brought(root, len)), &what("broadcast"));

        let mut dst = Target::<T>::empty(stream, if rank == root { len * size } else { 1 });
        communicator.gather(stream, &source(len), &mut dst.view(), root).unwrap();
        let want = if rank == root { of_all.clone() } else { brought(8, 1) };
        dst.check(stream, &exactly(&want), &what("gather"));

        let src = source(if rank == root { len * size } else { 0 });
        let mut dst = Target::<T>::empty(stream, len);
        communicator.scatter(stream, &src, &mut dst.view(), root).unwrap();
        dst.check(stream, &exactly(&part(&brought(root, len * size), rank)), &what("scatter"));
    }

    // Around the ring, and to itself.
    let (next, last) = ((rank + 1) % size, (rank + size - 1) % size);
    let (src, own) = (source(len), source(len));
    let (mut dst, mut same) = (Target::<T>::empty(stream, len), Target::<T>::empty(stream, len));
    communicator
        .group(|calls| {
            calls.send(stream, &src, next)?;
            calls.recv(stream, dst.view(), last)?;
            calls.send(stream, &own, rank)?;
            calls.recv(stream, same.view(), rank)
        })
        .unwrap();
    communicator.barrier(stream).unwrap();
    dst.check(stream, &exactly(&brought(last, len)), &what("send and recv"));
    same.check(stream, &exactly(&brought(rank, len)), &what("send and recv by one rank"));
}

fn every_operation_is_right_on_threads() {
    each(ranks(), |rank| {
        let stream = rank.device().stream().unwrap();
        for len in LENGTHS {
            every_type!(all_operations(&rank, &stream, len));
        }
    });
}

fn every_operation_is_right_under_strict_tracking() {
    each(strict_ranks(), |rank| {
        let stream = rank.device().stream().unwrap();
        all_operations::<f32>(&rank, &stream, 1001);
        all_operations::<u8>(&rank, &stream, 5);
    });
}

fn one_rank_is_right() {
    let devices = devices(DeviceOptions::default());
    let alone = World::alone().communicator_with(&devices[0], options(LONG)).unwrap();
    let stream = devices[0].stream().unwrap();
    every_type!(all_operations(&alone, &stream, 7));
}

/// Makes all ranks' calls on this thread, for one type and length.
fn grouped_operations<T: Number>(ranks: &[Communicator], streams: &[Stream], len: usize) {
    let size = ranks.len();
    let source = |len: usize| -> Vec<Buffer<T>> {
        let upload = |(rank, stream): (usize, &Stream)| stream.upload(&brought::<T>(rank, len)).unwrap();
        streams.iter().enumerate().map(upload).collect()
    };
    let room = |len: usize| -> Vec<Buffer<T>> {
        streams.iter().map(|stream| stream.upload(&brought::<T>(8, len)).unwrap()).collect()
    };
    let (mut reduced, mut scattered, mut gathered) = (source(len), room(len), room(size * len));
    let (mut exchanged, mut received, mut copied) = (room(size * len), room(len), source(len));
    let (long, short) = (source(size * len), source(len));
    // Makes two calls of each kind, because then the order of calls on a rank matters.
    group(|group| {
        let results = reduced.iter_mut().zip(&mut scattered).zip(&mut gathered);
        let more = exchanged.iter_mut().zip(&mut received).zip(&mut copied);
        for (((rank, stream), ((reduced, scattered), gathered)), ((exchanged, received), copied)) in
            ranks.iter().zip(streams).zip(results).zip(more)
        {
            let (own, next) = (rank.rank(), (rank.rank() + 1) % size);
            let calls = group.on(rank);
            if can_combine::<T>() {
                calls.all_reduce_in_place(stream, reduced, Op::Sum)?;
                calls.reduce_scatter(stream, &long[own], scattered, Op::Max)?;
            }
            calls.send(stream, &short[own], next)?;
            calls.all_gather(stream, &short[own], gathered)?;
            calls.barrier(stream)?;
            calls.recv(stream, received, (own + size - 1) % size)?;
            calls.all_to_all(stream, &long[own], exchanged)?;
            calls.broadcast(stream, copied, 1)?;
        }
        Ok(())
    })
    .unwrap();
    for (rank, stream) in streams.iter().enumerate() {
        let part = |values: &[T]| values[rank * len..(rank + 1) * len].to_vec();
        let get = |buffers: &[Buffer<T>]| stream.download(&buffers[rank]).unwrap();
        if can_combine::<T>() {
            assert_expected(&get(&reduced), &combined(Op::Sum, size, len), "all_reduce");
            let want = &combined(Op::Max, size, size * len)[rank * len..][..len];
            assert_expected(&get(&scattered), want, "reduce_scatter");
        }
        assert_eq!(get(&gathered), (0..size).flat_map(|rank| brought::<T>(rank, len)).collect::<Vec<_>>());
        let want: Vec<T> = (0..size).flat_map(|other| part(&brought(other, size * len))).collect();
        assert_eq!(get(&exchanged), want);
        assert_eq!(get(&received), brought((rank + size - 1) % size, len));
        assert_eq!(get(&copied), brought(1, len));
    }
}

fn every_operation_is_right_in_one_group() {
    let ranks = ranks();
    let streams = streams(&ranks);
    for len in LENGTHS {
        every_type!(grouped_operations(&ranks, &streams, len));
    }
}

fn parts_beyond_a_piece_are_right() {
    // More than four mebibytes from each rank, and not a multiple of anything.
    let len = (4 << 20) + 12_345;
    each(ranks(), |rank| {
        let stream = rank.device().stream().unwrap();
        let mut memory = stream.upload(&brought::<u8>(rank.rank(), len)).unwrap();
        let root = rank.size() - 1;
        rank.reduce_in_place(&stream, &mut memory, Op::Average, root).unwrap();
        if rank.rank() == root {
            let want = combined::<u8>(Op::Average, rank.size(), len);
            assert_expected(&stream.download(&memory).unwrap(), &want, "reduce");
        }
    });
}

fn pinned_memory_is_taken() {
    each(ranks(), |rank| {
        let stream = rank.device().stream().unwrap();
        let mut memory = rank.device().pinned_from(&brought::<i32>(rank.rank(), 77)).unwrap();
        rank.all_reduce_in_place(&stream, &mut memory, Op::Sum).unwrap();
        assert_expected(&memory.read().unwrap(), &combined::<i32>(Op::Sum, rank.size(), 77), "all_reduce");
    });
}

fn nan_gives_way_to_numbers() {
    each(ranks(), |rank| {
        let stream = rank.device().stream().unwrap();
        // For each rank there is an element that is NaN only there. At the end all ranks must have a NaN in
        // all of these.
        let numbers: Vec<_> = (1..=rank.size()).map(|number| number as f32).collect();
        let mut values = [&numbers[..], &[f32::NAN]].concat();
        values[rank.rank()] = f32::NAN;
        let src = stream.upload(&values).unwrap();
        let mut dst = stream.alloc::<f32>(values.len()).unwrap();
        for op in [Op::Min, Op::Max] {
            rank.all_reduce(&stream, &src, &mut dst, op).unwrap();
            let got = stream.download(&dst).unwrap();
            assert_eq!(got[..rank.size()], numbers);
            assert!(got[rank.size()].is_nan());
        }
        rank.all_reduce(&stream, &src, &mut dst, Op::Sum).unwrap();
        assert!(stream.download(&dst).unwrap().iter().all(|sum| sum.is_nan()));
    });
}

fn runs_of_a_replay_contain_calls() {
    each(ranks(), |rank| {
        let stream = rank.device().stream().unwrap();
        let mut memory = stream.full(33, 1u32).unwrap();
        let mut step = rank.device().replay();
        for _ in 0..6 {
            step.run(&stream, |s| {
                let mut sum = s.duplicate(&memory)?;
                rank.all_reduce_in_place(s, &mut sum, Op::Sum)?;
                s.copy(&sum, &mut memory)
            })
            .unwrap();
        }
        assert_eq!(stream.download(&memory).unwrap(), [(rank.size() as u32).pow(6); 33]);
    });
}

/// Each rank gives every rank one element, in several rounds. All views are made in the group.
fn exchanges_are_grouped_in_loops() {
    each(ranks(), |rank| {
        let (stream, own, size) = (rank.device().stream().unwrap(), rank.rank(), rank.size());
        let mut memory = stream.upload(&vec![own as u32; 2 * size]).unwrap();
        for round in 0..3 {
            rank.group(|calls| {
                let (mut given, got) = memory.split_at_mut(size)?;
                stream.fill(&mut given, (10 * round + own) as u32)?;
                let given = given.into_view();
                for (other, place) in got.chunks_mut(1)?.enumerate() {
                    calls.send(&stream, given.slice(other..=other)?, other)?;
                    calls.recv(&stream, place, other)?;
                }
                Ok(())
            })
            .unwrap();
            let want: Vec<u32> = (0..size).map(|other| (10 * round + other) as u32).collect();
            assert_eq!(stream.download(&memory.slice(size..).unwrap()).unwrap(), want);
        }
        // A view that may be written also goes by value where one is read.
        let (given, got) = memory.split_at_mut(size).unwrap();
        rank.group(|calls| {
            calls.send(&stream, given, (own + 1) % size)?;
            calls.recv(&stream, got, (own + size - 1) % size)
        })
        .unwrap();
    });
}

/// Errors must name your call, even if an engine made another call to `gpustream` for it, or if your call was in a group.
fn errors_name_the_call_and_its_line() {
    let device = Device::open("cpu").unwrap();
    let rank = World::local(std::slice::from_ref(&device)).unwrap().communicators().unwrap().remove(0);
    let stream = device.stream().unwrap();
    let (x, mut y) = (stream.zeros::<f32>(4).unwrap(), stream.zeros::<f32>(3).unwrap());
    let unwritten = stream.alloc::<f32>(3).unwrap();
    let (first, errors) = (
        line!(),
        [
            ("all_reduce", rank.all_reduce(&stream, &x, &mut y, Op::Sum)),
            ("all_reduce", rank.all_reduce(&stream, &unwritten, &mut y, Op::Sum)),
            ("send", rank.send(&stream, &x, 7)),
            ("recv", rank.group(|calls| calls.recv(&stream, &mut y, 7))),
            ("split", rank.split(u32::MAX, 0).map(drop)),
            ("local", World::local(&[]).map(drop)),
        ],
    );
    for ((label, outcome), line) in errors.into_iter().zip(first + 2..) {
        let error = outcome.unwrap_err();
        let operation = error.call_site().unwrap_or_else(|| panic!("{error} names no call"));
        let place = (operation.label, operation.location.file(), operation.location.line());
        assert_eq!(place, (label, file!(), line), "{error}");
    }
}
