//! Pipelines on the CPU backend.
#![allow(clippy::unwrap_used, reason = "tests")]

use gpustream::{Device, DeviceOptions, Error, ErrorKind};

#[test]
fn every_piece_comes_through_once_and_in_order() {
    let device = Device::open("cpu").unwrap();
    for (len, chunk, depth) in
        [(0, 10, 3), (1, 10, 1), (1000, 10, 2), (1003, 100, 4), (50, 100, 3), (7, 1, 5)]
    {
        let input: Vec<u64> = (0..len).collect();
        let mut output = vec![0u64; input.len()];
        let mut seen = Vec::new();
        let pipeline = device.pipeline().chunks(chunk).depth(depth);
        let work = |stream: &gpustream::Stream, piece: &mut gpustream::Piece<'_, u64, u64>| {
            assert_eq!(piece.input.len(), piece.output.len());
            stream.copy(&piece.input, &mut piece.output)
        };
        pipeline.progress(|done| seen.push(done)).map(&input, &mut output, work).unwrap();
        assert_eq!(input, output, "{len} by {chunk}, depth {depth}");
        let expected: Vec<usize> =
            (1..=input.len().div_ceil(chunk)).map(|n| (n * chunk).min(input.len())).collect();
        assert_eq!(seen, expected);
    }
}

#[test]
fn a_data_set_larger_than_the_device_passes_through() {
    const LIMIT: u64 = 4 << 20;
    let device = Device::open_with("cpu", DeviceOptions::default().memory_limit(LIMIT)).unwrap();
    let (mut left, mut sum) = (5_000_000u32, 0u64);
    let source = |piece: &mut [u32]| {
        let now = piece.len().min(left as usize);
        piece[..now].iter_mut().for_each(|value| {
            *value = left;
            left -= 1;
        });
        Ok::<_, Error>(now)
    };
    let mut next = 0;
    let sink = |index, values: &[u32]| {
        assert_eq!(index, next);
        next += 1;
        sum += values.iter().map(|&value| u64::from(value)).sum::<u64>();
        Ok(())
    };
    let total = device
        .pipeline()
        .chunks(100_000)
        .run(source, |stream, piece| stream.copy(&piece.input, &mut piece.output), sink)
        .unwrap();
    assert_eq!(total, 5_000_000);
    assert!(total as u64 * 4 > LIMIT);
    assert_eq!(sum, 5_000_000 * 5_000_001 / 2);
}

#[test]
fn pieces_may_give_back_less_than_goes_in() {
    let device = Device::open("cpu").unwrap();
    let mut calls = 0;
    let source = |piece: &mut [u8]| {
        calls += 1;
        piece.fill(calls);
        Ok::<_, Error>(if calls < 4 { piece.len() } else { 0 })
    };
    let mut got = Vec::new();
    let work = |stream: &gpustream::Stream, piece: &mut gpustream::Piece<'_, u8, u8>| {
        stream.copy(&piece.input.slice(..2)?, &mut piece.output)
    };
    device
        .pipeline()
        .chunks(1000)
        .results(2)
        .run(source, work, |_, values| {
            got.extend_from_slice(values);
            Ok(())
        })
        .unwrap();
    assert_eq!(got, [1, 1, 2, 2, 3, 3]);
}

#[test]
fn the_first_error_is_the_pipelines_and_the_device_goes_on() {
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
    let device = Device::open("cpu").unwrap();
    let copy = |stream: &gpustream::Stream, piece: &mut gpustream::Piece<'_, u8, u8>| {
        stream.copy(&piece.input, &mut piece.output)
    };
    let mut calls = 0;
    let fails = |piece: &mut [u8]| {
        calls += 1;
        if calls < 5 { Ok(piece.len()) } else { Err(Failure::Own) }
    };
    let pipeline = || device.pipeline().chunks(100);
    assert!(matches!(pipeline().run(fails, copy, |_, _| Ok(())), Err(Failure::Own)));
    let whole = |piece: &mut [u8]| Ok(piece.len());
    assert!(matches!(pipeline().run(whole, copy, |_, _| Err(Failure::Own)), Err(Failure::Own)));
    let nothing = |_: &gpustream::Stream, _: &mut gpustream::Piece<'_, u8, u8>| Ok(());
    match pipeline().run(whole, nothing, |_, _| Ok(())) {
        Err(Failure::Library(error)) => assert_eq!(error.kind(), ErrorKind::Uninitialized),
        other => panic!("{other:?}"),
    }
    let error = pipeline().map(&[1u8; 10], &mut [0u8; 9], copy).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ArgumentMismatch);
    device.synchronize().unwrap();
    assert_eq!(device.memory_stats().used, 0);
}
