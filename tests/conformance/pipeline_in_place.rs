//! Pipelines over pinned memory replace every piece where it lies. Only access from the host waits.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use conformance::{Gate, failed, next, open_again, overlaps, refused, sync, tests};
use gpustream::{
    AsViewMut, Device, DeviceOptions, Error, ErrorKind, Pinned, Pipeline, Result, Stream, Tracking, ViewMut,
};

tests! {
    Plain: pieces_of_any_size_work_on_two_arrays, one_pipeline_serves_one_array_and_three,
        pieces_of_another_size_are_ordered, ranges_of_arrays_leave_the_rest_alone, streams_order_other_work,
        arrays_may_be_larger_than_the_limit, a_pipeline_orders_itself_in_strict_mode,
        different_lengths_are_refused, a_failing_piece_leaves_the_rest, leaking_breaks_nothing;
    Plain if overlaps: nothing_waits_but_host_access;
}

/// One round of work on a piece: `a = 5 a + number`, then `b = 5 b + a`.
struct Round {
    kernels: sync::Kernels,
    number: u32,
}

impl Round {
    fn first(device: &Device) -> Result<Self> {
        Ok(Self { kernels: sync::Kernels::load(device)?, number: 0 })
    }

    fn on_device(&self, stream: &Stream, [a, b]: &mut [ViewMut<'_, u32>; 2]) -> Result<()> {
        let n = a.len();
        self.kernels.step(stream, a, self.number, n)?;
        self.kernels.mix(stream, a, b, n)
    }

    fn on_host(&self, a: &mut [u32], b: &mut [u32]) {
        for (a, b) in a.iter_mut().zip(b) {
            *a = next(*a, self.number);
            *b = next(*b, *a);
        }
    }
}

fn values(len: usize, salt: u32) -> Vec<u32> {
    (0..len as u32).map(|i| i.wrapping_mul(2_654_435_761) ^ salt).collect()
}

fn pieces_of_any_size_work_on_two_arrays(device: &Device) -> Result<()> {
    let mut round = Round::first(device)?;
    for depth in [1, 2, 3, 8] {
        for (len, chunk) in
            [(0, 10), (1, 10), (10, 10), (11, 10), (1000, 100), (1003, 100), (5, 1), (300, 1000)]
        {
            let [mut want_a, mut want_b] = [1, 2].map(|salt| values(len, salt));
            let (mut a, mut b) = (device.pinned_from(&want_a)?, device.pinned_from(&want_b)?);
            let mut seen = Vec::new();
            let mut pipeline = device.pipeline().chunks(chunk).depth(depth).progress(|done| seen.push(done));
            let mut pieces = Vec::new();
            for number in 0..3 {
                round.number = number;
                pipeline.in_place([&mut a, &mut b], |stream, piece| {
                    pieces.push((piece[0].len(), piece[1].len()));
                    round.on_device(stream, piece)
                })?;
                round.on_host(&mut want_a, &mut want_b);
            }
            drop(pipeline);
            assert_eq!(*a.read()?, want_a, "{len} by {chunk}, depth {depth}");
            assert_eq!(*b.read()?, want_b, "{len} by {chunk}, depth {depth}");
            let ends: Vec<usize> = (1..=len.div_ceil(chunk)).map(|n| (n * chunk).min(len)).collect();
            assert_eq!(seen, ends.repeat(3));
            let lens: Vec<_> =
                (0..len).step_by(chunk).map(|at| chunk.min(len - at)).map(|n| (n, n)).collect();
            assert_eq!(pieces, lens.repeat(3));
        }
    }
    Ok(())
}

/// You can use one pipeline with different types and any number of arrays.
fn one_pipeline_serves_one_array_and_three(device: &Device) -> Result<()> {
    let mut pipeline = device.pipeline().chunks(7);
    let mut bytes = device.pinned_from(&[1u8; 50])?;
    pipeline.in_place([&mut bytes], |stream, [bytes]| stream.fill(bytes, 9))?;
    let [mut a, mut b, mut c] = [1.5f64, 2.5, 3.5].map(|value| device.pinned_from(&[value; 100]).unwrap());
    pipeline.in_place([&mut a, &mut b, &mut c], |stream, [a, b, c]| {
        stream.copy(a, b)?;
        stream.copy(c, a)
    })?;
    pipeline
        .in_place([&mut bytes], |stream, [bytes]| stream.fill(&mut bytes.view_mut().slice_mut(..1)?, 3))?;
    for (array, want) in [(&a, 3.5), (&b, 1.5), (&c, 3.5)] {
        assert_eq!(*array.read()?, [want; 100]);
    }
    assert!(bytes.read()?.chunks(7).all(|piece| piece[0] == 3 && piece[1..].iter().all(|byte| *byte == 9)));
    pipeline.in_place::<f32, Pinned<f32>, 0>([], |_, []| panic!("there is no piece"))
}

/// The pieces of each run overlap pieces of the run before, and those were on other streams.
fn pieces_of_another_size_are_ordered(device: &Device) -> Result<()> {
    let mut round = Round::first(device)?;
    let [mut want_a, mut want_b] = [3, 4].map(|salt| values(10_000, salt));
    let (mut a, mut b) = (device.pinned_from(&want_a)?, device.pinned_from(&want_b)?);
    let mut pipelines = [device.pipeline(), device.pipeline()];
    for (number, chunk) in [1000, 999, 3001, 10_000, 501, 1000].into_iter().enumerate() {
        round.number = number as u32;
        let pipeline = mem::replace(&mut pipelines[number % 2], device.pipeline());
        let mut pipeline = pipeline.chunks(chunk);
        pipeline.in_place([&mut a, &mut b], |stream, piece| round.on_device(stream, piece))?;
        pipelines[number % 2] = pipeline;
        round.on_host(&mut want_a, &mut want_b);
    }
    assert_eq!((&*a.read()?, &*b.read()?), (&want_a[..], &want_b[..]));
    Ok(())
}

fn ranges_of_arrays_leave_the_rest_alone(device: &Device) -> Result<()> {
    let round = Round::first(device)?;
    let [mut want_a, mut want_b] = [5, 6].map(|salt| values(1000, salt));
    let (mut a, mut b) = (device.pinned_from(&want_a)?, device.pinned_from(&want_b)?);
    let ranges = [&mut a.slice_mut(13..613)?, &mut b.slice_mut(400..)?];
    device.pipeline().chunks(64).in_place(ranges, |stream, piece| round.on_device(stream, piece))?;
    round.on_host(&mut want_a[13..613], &mut want_b[400..]);
    assert_eq!((&*a.read()?, &*b.read()?), (&want_a[..], &want_b[..]));
    Ok(())
}

/// Five pieces run on two streams, and the third one's kernel waits at a gate. You must be able to read the two pieces
/// before it and the fourth one meanwhile.
fn nothing_waits_but_host_access(device: &Device) -> Result<()> {
    const N: usize = 1000;
    let mut round = Round::first(device)?;
    let [mut want_a, mut want_b] = [7, 8].map(|salt| values(5 * N, salt));
    let (mut a, mut b) = (device.pinned_from(&want_a)?, device.pinned_from(&want_b)?);
    let mut pipeline = device.pipeline().chunks(N);
    let mut run = |a: &mut Pinned<u32>, b: &mut Pinned<u32>, round: &Round, gate: Option<&Gate>| {
        let mut index = 0;
        pipeline.in_place([a, b], |stream, piece| {
            if let Some(gate) = gate.filter(|_| index == 2) {
                gate.hold(&round.kernels, stream)?;
            }
            index += 1;
            round.on_device(stream, piece)
        })
    };
    run(&mut a, &mut b, &round, None)?;
    round.on_host(&mut want_a, &mut want_b);
    conformance::synchronize(device)?;

    let gate = Gate::new(device)?;
    round.number = 1;
    run(&mut a, &mut b, &round, Some(&gate))?;
    round.on_host(&mut want_a, &mut want_b);
    for piece in [3, 1, 0] {
        let range = piece * N..(piece + 1) * N;
        assert_eq!(*a.slice(range.clone())?.read()?, want_a[range.clone()], "piece {piece}");
        assert_eq!(*b.slice(range.clone())?.read()?, want_b[range], "piece {piece}");
    }
    assert!(!a.slice(2 * N..3 * N)?.is_done()? && !b.slice(4 * N..)?.is_done()?);

    // The next run must come after this one, but the host must not wait for that.
    round.number = 2;
    run(&mut a, &mut b, &round, None)?;
    round.on_host(&mut want_a, &mut want_b);
    assert_eq!(*b.slice(3 * N..4 * N)?.read()?, want_b[3 * N..4 * N]);
    assert!(!a.slice(2 * N..3 * N)?.is_done()?);
    gate.open();
    assert_eq!((&*a.read()?, &*b.read()?), (&want_a[..], &want_b[..]));
    Ok(())
}

/// Another stream's copies before and after the run are ordered with it. With `Pipeline::streams` you can order other
/// work by hand.
fn streams_order_other_work(device: &Device) -> Result<()> {
    let round = Round::first(device)?;
    let stream = device.stream()?;
    let [mut want_a, mut want_b] = [9, 10].map(|salt| values(2000, salt));
    let (x, mut y) = (stream.upload(&want_a)?, stream.alloc::<u32>(2000)?);
    let (mut a, mut b) = (device.pinned::<u32>(2000)?, device.pinned_from(&want_b)?);
    stream.copy(&x, &mut a)?;
    let mut pipeline = device.pipeline().chunks(300);
    pipeline.in_place([&mut a, &mut b], |stream, piece| round.on_device(stream, piece))?;
    stream.copy(&b, &mut y)?;
    round.on_host(&mut want_a, &mut want_b);
    assert_eq!(stream.download(&y)?, want_b);
    assert_eq!(pipeline.streams()?.len(), 2);
    pipeline.streams()?.try_for_each(Stream::synchronize)?;
    assert!(a.is_done()? && b.is_done()?);
    assert_eq!(device.pipeline().depth(1).streams()?.len(), 1);
    Ok(())
}

fn arrays_may_be_larger_than_the_limit(device: &Device) -> Result<()> {
    const LIMIT: u64 = 8 << 20;
    let device = open_again(device, DeviceOptions::default().memory_limit(LIMIT))?;
    let mut round = Round::first(&device)?;
    let [mut want_a, mut want_b] = [11, 12].map(|salt| values(3 << 20, salt));
    let (mut a, mut b) = (device.pinned_from(&want_a)?, device.pinned_from(&want_b)?);
    let before = device.memory_stats().used;
    let mut pipeline = device.pipeline().chunks(1 << 18).depth(5);
    for number in 0..4 {
        round.number = number;
        pipeline.in_place([&mut a, &mut b], |stream, piece| round.on_device(stream, piece))?;
        round.on_host(&mut want_a, &mut want_b);
        // Each of the two streams keeps one piece of each array from run to run.
        assert_eq!(device.memory_stats().used - before, 4 << 20);
    }
    assert!(*a.read()? == *want_a && *b.read()? == *want_b);
    assert!(device.memory_stats().peak_reserved <= LIMIT);
    drop(pipeline);
    assert_eq!(device.memory_stats().used, before);
    Ok(())
}

/// If a piece is on the same stream again, it needs no wait. You order another stream's work by hand.
fn a_pipeline_orders_itself_in_strict_mode(device: &Device) -> Result<()> {
    let device = open_again(device, DeviceOptions::default().tracking(Tracking::Strict))?;
    let mut round = Round::first(&device)?;
    let [mut want_a, mut want_b] = [13, 14].map(|salt| values(1000, salt));
    let (mut a, mut b) = (device.pinned_from(&want_a)?, device.pinned_from(&want_b)?);
    let mut pipeline = device.pipeline().chunks(100);
    let gate = Gate::new(&device)?;
    for number in 0..3 {
        round.number = number;
        pipeline.in_place([&mut a, &mut b], |stream, piece| {
            gate.hold(&round.kernels, stream)?;
            round.on_device(stream, piece)
        })?;
        round.on_host(&mut want_a, &mut want_b);
    }
    let stream = device.stream()?;
    let mut x = stream.alloc::<u32>(1000)?;
    refused(stream.copy(&a, &mut x), ErrorKind::Hazard, &["in_place"]);
    gate.open();
    pipeline.streams()?.try_for_each(|lane| stream.wait(&lane.record()?))?;
    stream.copy(&a, &mut x)?;
    assert_eq!(stream.download(&x)?, want_a);
    assert_eq!(*b.read()?, want_b);
    Ok(())
}

fn different_lengths_are_refused(device: &Device) -> Result<()> {
    let (mut a, mut b) = (device.pinned_from(&[1u8; 10])?, device.pinned_from(&[1u8; 9])?);
    let never = |_: &Stream, _: &mut [ViewMut<'_, u8>; 2]| panic!("no piece is like the other");
    let result = device.pipeline().in_place([&mut a, &mut b], never);
    refused(result, ErrorKind::ArgumentMismatch, &["10", "9 elements"]);
    Ok(())
}

/// If a piece fails with an error or a panic, the pieces before it are done and the others are unchanged. You can then
/// use the pipeline again.
fn a_failing_piece_leaves_the_rest(device: &Device) -> Result<()> {
    #[derive(Clone, Copy, Debug)]
    enum Fails {
        Work,
        WorkPanics,
        ProgressPanics,
    }
    const AT: usize = 5;
    let round = Round::first(device)?;
    for fails in [Fails::Work, Fails::WorkPanics, Fails::ProgressPanics] {
        let [mut want_a, mut want_b] = [15, 16].map(|salt| values(1000, salt));
        let (mut a, mut b) = (device.pinned_from(&want_a)?, device.pinned_from(&want_b)?);
        let mut reports = 0;
        let mut pipeline = device.pipeline().chunks(100).progress(|_| {
            reports += 1;
            if reports == AT && matches!(fails, Fails::ProgressPanics) {
                resume_unwind(Box::new("on purpose"));
            }
        });
        let mut pieces = 0;
        let work = |stream: &Stream, piece: &mut [ViewMut<'_, u32>; 2]| {
            round.on_device(stream, piece)?;
            pieces += 1;
            match fails {
                Fails::Work if pieces == AT => Err(Error::new(ErrorKind::Driver, "on purpose")),
                Fails::WorkPanics if pieces == AT => resume_unwind(Box::new("on purpose")),
                _ => Ok(()),
            }
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| pipeline.in_place([&mut a, &mut b], work)));
        match (fails, outcome) {
            (Fails::Work, Ok(result)) => failed(result, ErrorKind::Driver, &["on purpose"]),
            (Fails::WorkPanics | Fails::ProgressPanics, Err(_)) => {}
            (fails, outcome) => panic!("{fails:?}: {outcome:?}"),
        }
        // A piece is enqueued before its progress is reported, so in that case it is done too.
        let done = 100 * if matches!(fails, Fails::ProgressPanics) { AT } else { AT - 1 };
        round.on_host(&mut want_a[..done], &mut want_b[..done]);
        assert_eq!((&*a.read()?, &*b.read()?), (&want_a[..], &want_b[..]), "{fails:?}");
        // Neither the host nor the next run may be held up.
        a.write()?[999] = 1;
        want_a[999] = 1;
        pipeline.in_place([&mut a, &mut b], |stream, piece| round.on_device(stream, piece))?;
        round.on_host(&mut want_a, &mut want_b);
        assert_eq!((&*a.read()?, &*b.read()?), (&want_a[..], &want_b[..]), "{fails:?}");
    }
    conformance::synchronize(device)?;
    assert_eq!(device.memory_stats().used, 0);
    Ok(())
}

/// You may leak or drop arrays and pipelines while pieces are pending, because no guarantee depends on a destructor.
fn leaking_breaks_nothing(device: &Device) -> Result<()> {
    let round = Round::first(device)?;
    let [want_a, want_b] = [17, 18].map(|salt| values(10_000, salt));
    for leaks in [[true, false], [false, true], [true, true], [false, false]] {
        let (mut a, mut b) = (device.pinned_from(&want_a)?, device.pinned_from(&want_b)?);
        let mut pipeline: Pipeline<'_> = device.pipeline().chunks(1000);
        for _ in 0..5 {
            pipeline.in_place([&mut a, &mut b], |stream, piece| round.on_device(stream, piece))?;
        }
        if leaks[0] {
            mem::forget((a, b));
        }
        if leaks[1] {
            mem::forget(pipeline);
        }
    }
    let [mut left_a, mut left_b] = [want_a.clone(), want_b.clone()];
    let (mut a, mut b) = (device.pinned_from(&want_a)?, device.pinned_from(&want_b)?);
    let mut pipeline = device.pipeline().chunks(1000);
    pipeline.in_place([&mut a, &mut b], |stream, piece| round.on_device(stream, piece))?;
    drop(pipeline);
    round.on_host(&mut left_a, &mut left_b);
    assert_eq!((&*a.read()?, &*b.read()?), (&left_a[..], &left_b[..]));
    Ok(())
}
