//! In a pipeline, every piece comes through once and in order, even if the whole does not fit into device memory.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use bytemuck::Pod;
use conformance::{ONE, failed, open_again, refused, sync, tests, until};
use gpustream::{
    AsViewMut, Device, DeviceOptions, Error, ErrorKind, Flag, Piece, Result, Stream, Tracking, ViewMut,
};
use gpustream_kernels::elementwise;
use gpustream_kernels::reduce::Reduce as _;

tests! {
    Plain: pieces_of_any_size_map_every_element, more_data_than_device_memory_comes_through,
        pieces_may_give_back_a_sum, the_first_error_ends_the_run, panics_leave_everything_usable,
        different_lengths_are_refused, state_goes_on_from_piece_to_piece, the_device_is_ahead_of_the_sink,
        the_first_error_ends_generating, a_pipeline_orders_itself_in_strict_mode,
        memory_is_held_by_the_line_that_runs_the_pipeline, an_earlier_pieces_results_are_not_handed_out,
        an_earlier_pieces_contents_are_not_generated_again;
}

fn copy<T: Pod>(s: &Stream, piece: &mut Piece<'_, T, T>) -> Result<()> {
    s.copy(&piece.input, &mut piece.output)
}

fn pieces_of_any_size_map_every_element(device: &Device) -> Result<()> {
    let kernels = elementwise::Kernels::load(device)?;
    for (len, chunk, depth) in
        [(0u16, 10, 3), (1, 10, 1), (1000, 10, 2), (10_003, 1000, 4), (50, 100, 3), (7, 1, 5)]
    {
        let input: Vec<f32> = (0..len).map(f32::from).collect();
        let mut output = vec![0.0f32; input.len()];
        let mut seen = Vec::new();
        let work = |s: &Stream, piece: &mut Piece<'_, f32, f32>| {
            let n = piece.input.len();
            assert_eq!(n, piece.output.len());
            s.fill(&mut piece.output, 1.0)?;
            kernels.axpy(s, 2.0, &piece.input, &mut piece.output, n)
        };
        let mut pipeline = device.pipeline().chunks(chunk).depth(depth).progress(|done| seen.push(done));
        pipeline.map(&input, &mut output, work)?;
        drop(pipeline);
        let want: Vec<f32> = input.iter().map(|x| 2.0 * x + 1.0).collect();
        assert_eq!(output, want, "{len} by {chunk}, depth {depth}");
        let len = usize::from(len);
        let want: Vec<usize> = (1..=len.div_ceil(chunk)).map(|n| (n * chunk).min(len)).collect();
        assert_eq!(seen, want);
    }
    Ok(())
}

fn more_data_than_device_memory_comes_through(device: &Device) -> Result<()> {
    const LIMIT: u64 = 24 << 20;
    let device = open_again(device, DeviceOptions::default().memory_limit(LIMIT))?;
    let (mut left, mut sum) = (9_000_001u32, 0u64);
    let source = |piece: &mut [u32]| {
        let now = piece.len().min(left as usize);
        for value in &mut piece[..now] {
            *value = left;
            left -= 1;
        }
        Ok::<_, Error>(now)
    };
    let mut next = 0;
    let sink = |index, values: &[u32]| {
        assert_eq!(index, next);
        next += 1;
        sum += values.iter().map(|&value| u64::from(value)).sum::<u64>();
        Ok(())
    };
    let total = device.pipeline().chunks(500_000).run(source, copy, sink)?;
    assert_eq!((total, sum), (9_000_001, 9_000_001 * 9_000_002 / 2));
    assert!(total as u64 * 4 > LIMIT);
    assert!(device.memory_stats().peak_reserved <= LIMIT);
    Ok(())
}

fn pieces_may_give_back_a_sum(device: &Device) -> Result<()> {
    let mut piece_number = 0u8;
    let source = |piece: &mut [f32]| {
        piece_number += 1;
        piece.fill(f32::from(piece_number));
        Ok::<_, Error>(if piece_number < 6 { piece.len() } else { 0 })
    };
    let sum = |s: &Stream, piece: &mut Piece<'_, f32, f32>| s.copy(&s.sum(&piece.input)?, &mut piece.output);
    let mut sums = Vec::new();
    let sink = |_, values: &[f32]| {
        sums.extend_from_slice(values);
        Ok(())
    };
    device.pipeline().chunks(1000).results(1).run(source, sum, sink)?;
    assert_eq!(sums, [1000.0, 2000.0, 3000.0, 4000.0, 5000.0]);
    Ok(())
}

fn the_first_error_ends_the_run(device: &Device) -> Result<()> {
    #[derive(Debug)]
    enum Failure {
        Own,
        Library(Error),
    }
    impl From<Error> for Failure {
        fn from(error: Error) -> Self {
            Self::Library(error)
        }
    }
    let whole = |piece: &mut [u8]| Ok(piece.len());
    let mut calls = 0;
    let fails = |piece: &mut [u8]| {
        calls += 1;
        if calls < 5 { Ok(piece.len()) } else { Err(Failure::Own) }
    };
    let pipeline = || device.pipeline().chunks(100);
    assert!(matches!(pipeline().run(fails, copy, |_, _| Ok(())), Err(Failure::Own)));
    assert!(matches!(pipeline().run(whole, copy, |_, _| Err(Failure::Own)), Err(Failure::Own)));
    let nothing = |_: &Stream, _: &mut Piece<'_, u8, u8>| Ok(());
    match pipeline().run(whole, nothing, |_, _| Ok(())) {
        Err(Failure::Library(error)) => assert_eq!(error.kind(), ErrorKind::Uninitialized),
        other => panic!("{other:?}"),
    }
    conformance::synchronize(device)?;
    assert_eq!(device.memory_stats().used, 0);
    Ok(())
}

fn panics_leave_everything_usable(device: &Device) -> Result<()> {
    let mut pipeline = device.pipeline().chunks(100);
    for panics in ["source", "work", "sink"] {
        for at in [0, 1, 5] {
            let mut calls = [0; 3];
            let mut called = |index: usize, name| {
                calls[index] += 1;
                if name == panics && calls[index] > at {
                    resume_unwind(Box::new("on purpose"));
                }
            };
            let called = std::cell::RefCell::new(&mut called);
            let run = catch_unwind(AssertUnwindSafe(|| {
                pipeline.run(
                    |piece: &mut [u8]| {
                        called.borrow_mut()(0, "source");
                        Ok::<_, Error>(piece.len())
                    },
                    |stream, piece: &mut Piece<'_, u8, u8>| {
                        called.borrow_mut()(1, "work");
                        stream.copy(&piece.input, &mut piece.output)
                    },
                    |_, _| {
                        called.borrow_mut()(2, "sink");
                        Ok(())
                    },
                )
            }));
            assert!(run.is_err(), "{panics} panics");
            let (input, mut output) = ([7u8; 1000], [0u8; 1000]);
            pipeline.map(&input, &mut output, copy)?;
            assert_eq!(output, input);
        }
    }
    conformance::synchronize(device)?;
    assert_eq!(device.memory_stats().used, 0);
    Ok(())
}

fn different_lengths_are_refused(device: &Device) -> Result<()> {
    refused(
        device.pipeline().map(&[1; 10], &mut [0; 9], copy),
        ErrorKind::ArgumentMismatch,
        &["10 elements to 9"],
    );
    Ok(())
}

/// Each piece copies the state after three more steps, so we see if the pieces come in another order.
fn state_goes_on_from_piece_to_piece(device: &Device) -> Result<()> {
    const N: usize = 3000;
    let kernels = sync::Kernels::load(device)?;
    for depth in [1, 2, 3, 5] {
        let mut seen = Vec::new();
        let mut pipeline = device.pipeline().chunks(N).depth(depth).progress(|done| seen.push(done));
        for pieces in [0, 1, 2, 20] {
            let stream = device.stream()?;
            let mut state = stream.zeros::<u32>(N)?;
            let (mut value, mut want, mut next) = (0, 0u32, 0);
            let work = |stream: &Stream, piece: &mut ViewMut<'_, u32>| {
                for _ in 0..3 {
                    value += 1;
                    kernels.step(stream, &mut state, value, N)?;
                }
                stream.copy(&state, piece)
            };
            let sink = |index, piece: &[u32]| {
                assert_eq!(index, next);
                next += 1;
                want = (3 * next - 2..=3 * next).fold(want, |x, value| conformance::next(x, value as u32));
                assert_eq!(piece, [want; N], "piece {index}, depth {depth}");
                Ok::<_, Error>(())
            };
            pipeline.generate(pieces, work, sink)?;
            assert_eq!(next, pieces);
        }
        drop(pipeline);
        let ends = |pieces| (1..=pieces).map(|piece| N * piece);
        assert_eq!(seen, ends(1).chain(ends(2)).chain(ends(20)).collect::<Vec<_>>());
    }
    Ok(())
}

/// While the sink has one piece, the device must work on as many others as the pipeline's depth allows.
fn the_device_is_ahead_of_the_sink(device: &Device) -> Result<()> {
    const PIECES: usize = 8;
    let kernels = sync::Kernels::load(device)?;
    for depth in [1, 3] {
        let flags = (0..PIECES).map(|_| device.flag()).collect::<Result<Vec<Flag>>>()?;
        let mut submitted = flags.clone().into_iter();
        device.pipeline().chunks(10).depth(depth).generate(
            PIECES,
            |stream, piece| {
                kernels.raise_flag(stream, &ONE, &mut submitted.next().unwrap(), 1)?;
                stream.fill(piece, 0u8)
            },
            |index, _| {
                let ahead = (index + depth - 1).min(PIECES - 1);
                until(|| Ok(flags[ahead].get() == 1))?;
                assert!(flags[ahead + 1..].iter().all(|flag| flag.get() == 0));
                Ok::<_, Error>(())
            },
        )?;
    }
    Ok(())
}

fn the_first_error_ends_generating(device: &Device) -> Result<()> {
    let mut pipeline = device.pipeline().chunks(100);
    let own = || Error::new(ErrorKind::Driver, "on purpose");
    let fill = |stream: &Stream, piece: &mut ViewMut<'_, u16>| stream.fill(piece, 3);
    let mut calls = 0;
    let fails = |stream: &Stream, piece: &mut ViewMut<'_, u16>| {
        calls += 1;
        if calls == 5 { Err(own()) } else { stream.fill(piece, 3) }
    };
    failed(pipeline.generate(9, fails, |_, _| Ok(())), ErrorKind::Driver, &["on purpose"]);
    failed(pipeline.generate(9, fill, |_, _| Err(own())), ErrorKind::Driver, &["on purpose"]);
    let nothing = |_: &Stream, _: &mut ViewMut<'_, u16>| Ok(());
    refused(pipeline.generate(9, nothing, |_, _| Ok::<_, Error>(())), ErrorKind::Uninitialized, &[]);
    for panics in [0, 5] {
        let sink = |index, _: &[u16]| {
            if index == panics {
                resume_unwind(Box::new("on purpose"));
            }
            Ok::<_, Error>(())
        };
        assert!(catch_unwind(AssertUnwindSafe(|| pipeline.generate(9, fill, sink))).is_err());
        let work = |stream: &Stream, piece: &mut ViewMut<'_, u16>| {
            stream.fill(piece, 3)?;
            resume_unwind(Box::new("on purpose"))
        };
        assert!(catch_unwind(AssertUnwindSafe(|| pipeline.generate(9, work, sink))).is_err());
    }
    let mut sum = 0;
    let sink = |_, piece: &[u16]| {
        sum += piece.iter().map(|&value| u32::from(value)).sum::<u32>();
        Ok::<_, Error>(())
    };
    pipeline.generate(9, fill, sink)?;
    assert_eq!(sum, 9 * 300);
    conformance::synchronize(device)?;
    assert_eq!(device.memory_stats().used, 0);
    Ok(())
}

/// A pipeline orders its own operations, so strict tracking has nothing to report.
fn a_pipeline_orders_itself_in_strict_mode(device: &Device) -> Result<()> {
    let device = open_again(device, DeviceOptions::default().tracking(Tracking::Strict))?;
    let mut pipeline = device.pipeline().chunks(1000);
    let (input, mut output) = (vec![5u32; 9500], vec![0u32; 9500]);
    pipeline.map(&input, &mut output, copy)?;
    assert_eq!(output, input);
    let mut value = 0u32;
    let work = |stream: &Stream, piece: &mut ViewMut<'_, u32>| {
        value += 1;
        stream.fill(piece, value)
    };
    let sink = |index, piece: &[u32]| {
        assert_eq!(piece, [index as u32 + 1; 1000]);
        Ok::<_, Error>(())
    };
    pipeline.generate(20, work, sink)
}

/// A snapshot must name your line, and not one inside the library.
fn memory_is_held_by_the_line_that_runs_the_pipeline(device: &Device) -> Result<()> {
    let mut snapshots = Vec::new();
    let mut pipeline = device.pipeline().chunks(100).depth(2);
    let mut copy = |s: &Stream, piece: &mut Piece<'_, u8, u8>| {
        snapshots.push(device.memory_snapshot());
        s.copy(&piece.input, &mut piece.output)
    };
    let first = line!() + 1;
    pipeline.map(&[1; 300], &mut [0; 300], &mut copy)?;
    let mut lens = [100, 50, 0].into_iter();
    let source = |_: &mut [u8]| Ok::<_, Error>(lens.next().unwrap());
    pipeline.run(source, &mut copy, |_, _| Ok(()))?;
    let fill = |s: &Stream, piece: &mut ViewMut<'_, u8>| {
        snapshots.push(device.memory_snapshot());
        s.fill(piece, 1)
    };
    pipeline.generate(3, fill, |_, _| Ok::<_, Error>(()))?;
    let lines = first..line!();
    assert_eq!(snapshots.len(), 3 + 2 + 3);
    for snapshot in snapshots {
        assert!(!snapshot.holders.is_empty());
        for holding in &snapshot.holders {
            let at = holding.call_site.location;
            assert!(at.file() == file!() && lines.contains(&at.line()), "{snapshot}");
        }
    }
    Ok(())
}

/// If `work` does not write all of a piece, the rest of its memory still contains an earlier piece's results. You must
/// get an error instead.
fn an_earlier_pieces_results_are_not_handed_out(device: &Device) -> Result<()> {
    let input: Vec<u32> = (0..40).collect();
    for depth in [1, 2, 3] {
        for written in [0, 9] {
            let mut output = vec![0u32; 40];
            let mut pipeline = device.pipeline().chunks(10).depth(depth);
            let outcome = pipeline.map(&input, &mut output, |s, piece| {
                let elements = if piece.index == 3 { written } else { 10 };
                let from = piece.input.slice(..elements)?;
                s.copy(&from, &mut piece.output.view_mut().slice_mut(..elements)?)
            });
            refused(outcome, ErrorKind::Uninitialized, &["never written"]);
            assert_eq!(output[30..], [0; 10], "depth {depth}, {written} written");
            // If you write pieces completely, they come through, although their memory held earlier pieces.
            pipeline.map(&input, &mut output, copy)?;
            assert_eq!(output, input);
        }
    }
    // The device must not read the earlier contents either.
    let mut calls = 0;
    let source = |piece: &mut [u32]| {
        calls += 1;
        piece.fill(calls);
        Ok::<_, Error>(if calls < 4 { piece.len() } else { 0 })
    };
    let mut taken = device.stream()?.zeros::<u32>(10)?;
    let work = |s: &Stream, piece: &mut Piece<'_, u32, u32>| {
        if piece.index == 1 {
            s.copy(&piece.output, &mut taken)?;
        }
        s.copy(&piece.input, &mut piece.output)
    };
    let outcome = device.pipeline().chunks(10).depth(1).run(source, work, |_, _| Ok(()));
    refused(outcome, ErrorKind::Uninitialized, &["never written"]);
    Ok(())
}

fn an_earlier_pieces_contents_are_not_generated_again(device: &Device) -> Result<()> {
    for depth in [1, 2, 3] {
        for written in [0, 5, 9] {
            let (mut calls, mut got) = (0, 0);
            let work = |s: &Stream, piece: &mut ViewMut<'_, u32>| {
                calls += 1;
                let elements = if calls == 4 { written } else { 10 };
                s.fill(&mut piece.view_mut().slice_mut(10 - elements..)?, calls)
            };
            let sink = |_, values: &[u32]| {
                got += 1;
                assert_eq!(values, [got; 10]);
                Ok(())
            };
            let outcome = device.pipeline().chunks(10).depth(depth).generate(6, work, sink);
            refused(outcome, ErrorKind::Uninitialized, &["never written"]);
        }
    }
    Ok(())
}
