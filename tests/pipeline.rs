//! Pipelines: every piece comes through once and in order, also where the whole does not fit the device.

use conformance::harness::{open_again, refused};
use conformance::tests;
use gpustream::{Device, DeviceOptions, Error, ErrorKind, Piece, Result, Stream};
use gpustream_kernels::elementwise;
use gpustream_kernels::reduce::Reduce;

tests! {
    Plain: maps_with_any_pieces, more_than_the_device_has, pieces_that_give_back_a_sum, pieces_that_give_back_a_part,
        the_first_error_ends_it, lengths_must_agree;
}

fn maps_with_any_pieces(device: &Device) -> Result<()> {
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
            kernels.axpy_f32(s, 2.0, &piece.input, &mut piece.output, n)
        };
        let pipeline = device.pipeline().chunks(chunk).depth(depth).progress(|done| seen.push(done));
        pipeline.map(&input, &mut output, work)?;
        let want: Vec<f32> = input.iter().map(|x| 2.0 * x + 1.0).collect();
        assert_eq!(output, want, "{len} by {chunk}, depth {depth}");
        let len = usize::from(len);
        let want: Vec<usize> = (1..=len.div_ceil(chunk)).map(|n| (n * chunk).min(len)).collect();
        assert_eq!(seen, want);
    }
    Ok(())
}

fn more_than_the_device_has(device: &Device) -> Result<()> {
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
    let copy = |s: &Stream, piece: &mut Piece<'_, u32, u32>| s.copy(&piece.input, &mut piece.output);
    let total = device.pipeline().chunks(500_000).run(source, copy, sink)?;
    assert_eq!((total, sum), (9_000_001, 9_000_001 * 9_000_002 / 2));
    assert!(total as u64 * 4 > LIMIT);
    assert!(device.memory_stats().peak_reserved <= LIMIT);
    Ok(())
}

fn pieces_that_give_back_a_sum(device: &Device) -> Result<()> {
    let reduce = Reduce::load(device)?;
    let mut piece_number = 0u8;
    let source = |piece: &mut [f32]| {
        piece_number += 1;
        piece.fill(f32::from(piece_number));
        Ok::<_, Error>(if piece_number < 6 { piece.len() } else { 0 })
    };
    let sum = |s: &Stream, piece: &mut Piece<'_, f32, f32>| {
        s.copy(&reduce.sum(s, &piece.input)?, &mut piece.output)
    };
    let mut sums = Vec::new();
    let sink = |_, values: &[f32]| {
        sums.extend_from_slice(values);
        Ok(())
    };
    device.pipeline().chunks(1000).results(1).run(source, sum, sink)?;
    assert_eq!(sums, [1000.0, 2000.0, 3000.0, 4000.0, 5000.0]);
    Ok(())
}

fn pieces_that_give_back_a_part(device: &Device) -> Result<()> {
    let mut calls = 0;
    let source = |piece: &mut [u8]| {
        calls += 1;
        piece.fill(calls);
        Ok::<_, Error>(if calls < 4 { piece.len() } else { 0 })
    };
    let begin =
        |s: &Stream, piece: &mut Piece<'_, u8, u8>| s.copy(&piece.input.slice(..2)?, &mut piece.output);
    let mut got = Vec::new();
    let sink = |_, values: &[u8]| {
        got.extend_from_slice(values);
        Ok(())
    };
    device.pipeline().chunks(1000).results(2).run(source, begin, sink)?;
    assert_eq!(got, [1, 1, 2, 2, 3, 3]);
    Ok(())
}

fn the_first_error_ends_it(device: &Device) -> Result<()> {
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
    let device = open_again(device, DeviceOptions::default())?;
    let copy = |s: &Stream, piece: &mut Piece<'_, u8, u8>| s.copy(&piece.input, &mut piece.output);
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
    device.synchronize()?;
    assert_eq!(device.memory_stats().used, 0);
    Ok(())
}

fn lengths_must_agree(device: &Device) -> Result<()> {
    let copy = |s: &Stream, piece: &mut Piece<'_, u8, u8>| s.copy(&piece.input, &mut piece.output);
    refused(
        device.pipeline().map(&[1; 10], &mut [0; 9], copy),
        ErrorKind::ArgumentMismatch,
        &["10 elements to 9"],
    );
    Ok(())
}
