//! The types of existing CUDA and HIP files must have the same layout on the host and on every device.

use conformance::types::{Bits, Box, Cell, Flavour, Kernels, Mode};
use conformance::{assert_all, half_pairs, refused, tests, with_stream};
use gpustream::half::f16;
use gpustream::{Bool, Device, ErrorKind, Launch, Result};

tests! {
    Plain: cells_of_a_header_are_read_as_the_host_wrote_them, cells_are_passed_by_value_and_written,
        small_types_arrive, bools_and_characters_are_bytes, addresses_in_memory_lead_to_other_memory,
        arrays_as_parameters_are_pointers, bytes_are_copied_whatever_they_are, pairs_of_halves_arrive,
        optional_pointers_may_be_null, replays_follow_optional_pointers, memory_that_is_only_read_is_shared;
}

const N: usize = 100;
const SHAPE: Launch = Launch::exact([1, 1, 1], [128, 1, 1]);

fn cell(i: usize) -> Cell {
    let number = i as u16;
    Cell {
        counts: [[number, number + 1, 2], [3, 4, number + 5]],
        r#box: Box {
            name: i as i8,
            volume: i as f64 / 4.0,
            open: i.is_multiple_of(2).into(),
            ..Box::default()
        },
        mode: if i.is_multiple_of(3) { Mode::ADD } else { Mode::MULTIPLY },
        weight: i as f32 * 0.5,
        ..Cell::default()
    }
}

fn cells_of_a_header_are_read_as_the_host_wrote_them(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let host: Vec<Cell> = (0..N).map(cell).collect();
    let cells = s.upload(&host)?;
    let mut out = s.zeros::<f64>(8 * N)?;
    // SAFETY: there are N cells, and eight numbers for each.
    unsafe { kernels.read_cells(&s, &SHAPE, &cells, &mut out, N as i32)? };
    let out = s.download(&out)?;
    for (cell, out) in host.iter().zip(out.chunks(8)) {
        let Cell { counts, r#box, mode, weight, .. } = cell;
        let want = [
            counts[0][0].into(),
            counts[1][2].into(),
            r#box.name.into(),
            r#box.volume,
            f64::from(u8::from(r#box.open.get())),
            mode.0.into(),
            (*weight).into(),
            size_of::<Cell>() as f64,
        ];
        assert_eq!(out, want);
    }
    assert_eq!((Mode::ADD.0, Mode::MULTIPLY.0), (1, 4));
    Ok(())
}

fn cells_are_passed_by_value_and_written(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let mut to = s.full(2, cell(0))?;
    // SAFETY: the kernel writes the first cell, and there are two.
    unsafe { kernels.write_cell(&s, &Launch::new([1; 3], [1; 3]), cell(7), &mut to)? };
    let mut want = cell(0);
    want.counts[1][2] = 8;
    want.r#box = Box { open: Bool::TRUE, ..cell(7).r#box };
    (want.mode, want.weight) = (cell(7).mode, cell(7).weight);
    assert_eq!(s.download(&to)?, [want, cell(0)]);
    Ok(())
}

fn small_types_arrive(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let mut out = s.zeros::<f64>(6)?;
    let bits = Bits { words: [1.0_f32.to_bits()] };
    let one = Launch::new([1; 3], [1; 3]);
    kernels.small_types(&s, &one, -3, Mode(17), Flavour::SOUR, bits, 1 << 40, [1, 2, 3], &mut out)?;
    let want = [-3.0, 17.0, 7.0, f64::from(bits.words[0]), (1_u64 << 40) as f64, 321.0];
    assert_eq!(s.download(&out)?, want);
    Ok(())
}

fn bools_and_characters_are_bytes(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let text = b"kernels are found by their names";
    let n = text.len();
    let mut flags = s.upload(&(0..n).map(|i| Bool::from(i.is_multiple_of(3))).collect::<Vec<_>>())?;
    let text = s.upload(text)?;
    let mut reversed = s.zeros::<i8>(n)?;
    // SAFETY: every array has n elements.
    unsafe { kernels.turn_over(&s, &SHAPE, &mut flags, &text.cast::<i8>()?, &mut reversed, n as i32)? };
    assert!(s.download(&flags)?.iter().enumerate().all(|(i, flag)| flag.get() != i.is_multiple_of(3)));
    let mut back = s.download(&reversed)?;
    back.reverse();
    assert_eq!(back, s.download(&text)?.iter().map(|&byte| byte as i8).collect::<Vec<_>>());
    Ok(())
}

fn addresses_in_memory_lead_to_other_memory(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let columns = [s.full(N, 1.0_f32)?, s.full(N, 2.0)?, s.full(N, 4.0)?];
    let addresses = s.upload(&columns.each_ref().map(|column| column.as_raw().0))?;
    let mut sums = s.zeros::<f32>(N)?;
    // SAFETY: the columns have N elements each, were written on this stream, and live on until the download.
    unsafe { kernels.sum_columns(&s, &SHAPE, &addresses, 3, &mut sums, N as i32)? };
    assert_all(&s, &sums, 7.0)
}

fn arrays_as_parameters_are_pointers(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let from = s.upload(&[[1.0_f32, 2.0, 3.0], [4.0, 5.0, 6.0]])?;
    let mut to = s.zeros::<[f32; 2]>(3)?;
    // SAFETY: the kernel reads two rows of three and writes three rows of two.
    unsafe { kernels.transpose(&s, &SHAPE, &from, &mut to)? };
    assert_eq!(s.download(&to)?, [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]);
    Ok(())
}

fn bytes_are_copied_whatever_they_are(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let from = s.upload(&[1.5_f32, -2.5])?;
    let mut to = s.zeros::<f32>(2)?;
    // SAFETY: both have eight bytes.
    unsafe { kernels.copy_bytes(&s, &SHAPE, &from.cast::<u8>()?, &mut to.cast_mut::<u8>()?, 8)? };
    assert_eq!(s.download(&to)?, [1.5, -2.5]);
    Ok(())
}

fn pairs_of_halves_arrive(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, half_pairs::Kernels::load)?;
    let pair = |i: usize| [f16::from_f32(i as f32), f16::from_f32(-(i as f32))];
    let host: Vec<_> = (0..N).map(pair).collect();
    let x = s.upload(&host)?;
    let mut out = s.zeros::<[f16; 2]>(N)?;
    kernels.turn_pairs(&s, &x, pair(777), &mut out, N)?;
    let mut want: Vec<_> = host.iter().map(|[a, b]| [*b, *a]).collect();
    want[N - 1] = [pair(777)[1], pair(777)[0]];
    assert_eq!(s.download(&out)?, want);
    Ok(())
}

fn optional_pointers_may_be_null(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let x = s.full(N, 2.0_f32)?;
    let (addend, mut out, mut counter) = (s.full(N, 0.5_f32)?, s.zeros::<f32>(N)?, s.zeros::<u32>(1)?);
    kernels.scale_and_add(&s, 3.0, &x, None, &mut out, None, N)?;
    assert_eq!(s.download(&out)?, [6.0; N]);
    kernels.scale_and_add(&s, 3.0, &x, Some(&addend), &mut out, Some(&mut counter), N)?;
    assert_eq!((s.download(&out)?, s.download(&counter)?), (vec![6.5; N], vec![N as u32]));
    // If the memory is there, it must be long enough.
    let short = addend.slice(1..)?;
    let violated = kernels.scale_and_add(&s, 3.0, &x, Some(&short), &mut out, None, N);
    refused(violated, ErrorKind::ContractViolated, &["n <= len(addend)", "99"]);

    let mut was_there = s.full(1, Bool::TRUE)?;
    let one = Launch::new([1; 3], [1; 3]);
    // SAFETY: the kernel writes one flag, and nothing to a null pointer.
    unsafe { kernels.store_if_there(&s, &one, None, &mut was_there)? };
    assert_eq!(s.download(&was_there)?, [Bool::FALSE]);
    let mut to = s.zeros::<f32>(1)?;
    // SAFETY: the kernel writes one flag and one number.
    unsafe { kernels.store_if_there(&s, &one, Some(&mut to), &mut was_there)? };
    assert_eq!((s.download(&was_there)?, s.download(&to)?), (vec![Bool::TRUE], vec![7.0]));
    Ok(())
}

fn memory_that_is_only_read_is_shared(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let x = s.full(N, 2.0_f32)?;
    let (mut one, mut two) = (s.zeros::<f32>(N)?, s.zeros::<f32>(N)?);
    let shared = &x;
    // A launch may read the same memory twice, and two streams may read it at once.
    kernels.scale_and_add(&s, 1.0, shared, Some(shared), &mut one, None, N)?;
    let other = device.stream()?;
    kernels.scale_and_add(&other, 2.0, shared, None, &mut two, None, N)?;
    assert_eq!((s.download(&one)?, other.download(&two)?), (vec![4.0; N], vec![4.0; N]));
    Ok(())
}

fn replays_follow_optional_pointers(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let x = s.full(N, 2.0_f32)?;
    let mut out = s.zeros::<f32>(N)?;
    let mut step = device.replay();
    for round in 0..6 {
        let addend = s.full(N, round as f32)?;
        step.run(&s, |s| {
            kernels.scale_and_add(s, 1.0, &x, (round % 2 == 1).then_some(&addend), &mut out, None, N)
        })?;
        let want = if round % 2 == 1 { 2.0 + round as f32 } else { 2.0 };
        assert_eq!(s.download(&out)?, [want; N], "round {round}");
    }
    Ok(())
}
