//! Copies and fills move the right bytes, in every direction, at every length and offset.

use bytemuck::{Pod, Zeroable};
use conformance::{Gate, assert_all, kernels_and_streams, refused, tests};
use gpustream::half::{bf16, f16};
use gpustream::{Device, ErrorKind, Result};

tests! {
    Plain: round_trips_bring_back_the_same_values, copies_arrive_in_every_direction,
        views_at_any_offset_are_copied_exactly, fills_of_every_type_write_their_value,
        fills_of_odd_sizes_write_their_value, a_length_of_zero_is_accepted,
        halves_of_one_buffer_are_copied_to_each_other, chunks_cover_a_buffer, zeros_are_zero,
        pinned_memory_starts_zeroed, upload_reads_its_slice_before_it_returns, different_lengths_are_refused,
        slices_that_do_not_fit_are_refused;
}

fn numbers(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| i.wrapping_mul(2_654_435_761)).collect()
}

fn round_trips_bring_back_the_same_values(device: &Device) -> Result<()> {
    let s = device.stream()?;
    for n in [1, 2, 3, 127, 128, 129, 4095, 4096, 4097, 100_003] {
        let values = numbers(n);
        let x = s.upload(&values)?;
        assert_eq!(s.download(&x)?, values);
        let mut into = vec![0; n];
        s.download_into(&x, &mut into)?;
        assert_eq!(into, values);
    }
    Ok(())
}

/// From device and pinned memory to either.
fn copies_arrive_in_every_direction(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let values = numbers(5000);
    let (mut a, mut b) = (s.alloc::<u32>(5000)?, s.alloc::<u32>(5000)?);
    let source = device.pinned_from(&values)?;
    let (mut host, mut last) = (device.pinned::<u32>(5000)?, device.pinned::<u32>(5000)?);
    s.copy(&source, &mut a)?;
    s.copy(&a, &mut b)?;
    s.copy(&b, &mut host)?;
    s.copy(&host, &mut last)?;
    assert_eq!(*last.read()?, values);
    // You can also copy ordinary slices to and from pinned memory.
    s.upload_into(&values[..100], &mut last.slice_mut(50..150)?)?;
    assert_eq!(last.read()?[50..150], values[..100]);
    assert_eq!(s.download(&last.slice(50..150)?)?, values[..100]);
    Ok(())
}

fn views_at_any_offset_are_copied_exactly(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let values: Vec<u8> = numbers(600).iter().map(|value| *value as u8).collect();
    let x = s.upload(&values)?;
    for (from, to, len) in [(0, 1, 5), (1, 0, 255), (3, 7, 256), (511, 9, 2), (599, 599, 1), (13, 29, 500)] {
        let mut y = s.full(600, 1u8)?;
        s.copy(&x.slice(from..from + len)?, &mut y.slice_mut(to..to + len)?)?;
        let got = s.download(&y)?;
        assert_eq!(got[to..to + len], values[from..from + len]);
        let untouched = got[..to].iter().chain(&got[to + len..]);
        assert!(untouched.into_iter().all(|value| *value == 1), "{from} to {to}: written outside the view");
    }
    // This is a view of a view of a view.
    let inner = x.slice(100..)?.slice(..300)?.slice(1..=4)?;
    assert_eq!(s.download(&inner)?, values[101..105]);
    Ok(())
}

fn filled<T: Pod + PartialEq + std::fmt::Debug>(device: &Device, value: T) -> Result<()> {
    let s = device.stream()?;
    for n in [1, 2, 3, 31, 257, 10_001] {
        assert_eq!(s.download(&s.full(n, value)?)?, vec![value; n]);
        let mut host = device.pinned::<T>(n)?;
        s.fill(&mut host, value)?;
        assert_eq!(*host.read()?, vec![value; n]);
        // If you fill the middle, the elements around it must not change.
        let mut x = s.zeros::<T>(n + 2)?;
        s.fill(&mut x.slice_mut(1..=n)?, value)?;
        let got = s.download(&x)?;
        assert_eq!(got[1..=n], vec![value; n]);
        assert_eq!([got[0], got[n + 1]], [T::zeroed(); 2], "written outside the view");
    }
    Ok(())
}

fn fills_of_every_type_write_their_value(device: &Device) -> Result<()> {
    filled(device, 0xa5u8)?;
    filled(device, -1i8)?;
    filled(device, 0x1234u16)?;
    filled(device, -2i16)?;
    filled(device, 0x1234_5678u32)?;
    filled(device, -3i32)?;
    filled(device, 0x1234_5678_9abc_def0u64)?;
    filled(device, 1.5f32)?;
    filled(device, std::f64::consts::PI)?;
    filled(device, f16::from_f32(1.5))?;
    filled(device, bf16::from_f32(-2.5))
}

/// No driver can fill elements of these sizes, so the library must do it in another way.
fn fills_of_odd_sizes_write_their_value(device: &Device) -> Result<()> {
    #[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
    #[repr(C)]
    struct Odd([u8; 3]);
    #[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
    #[repr(C)]
    struct Wide([u64; 5]);
    filled(device, Odd([1, 2, 3]))?;
    filled(device, Wide([1, 2, 3, 4, 5]))?;
    filled(device, [7u16; 12])
}

fn a_length_of_zero_is_accepted(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (mut x, mut y) = (s.alloc::<u32>(0)?, s.zeros::<u32>(0)?);
    let mut host = device.pinned::<u32>(0)?;
    s.copy(&x, &mut y)?;
    s.copy(&y, &mut host)?;
    s.copy(&host, &mut x)?;
    s.fill(&mut x, 7)?;
    s.upload_into(&[], &mut x)?;
    s.download_into(&x, &mut [])?;
    kernels.step(&s, &mut x, 1, 0)?;
    assert_eq!(s.download(&x)?, [0u32; 0]);
    assert_eq!(s.download(&s.upload::<u32>(&[])?)?, [0u32; 0]);
    assert_eq!(s.download(&s.full(0, 9u64)?)?, [0u64; 0]);
    assert_eq!(host.read()?.len(), 0);
    assert_eq!(host.write()?.len(), 0);
    assert!(device.pinned_from::<f32>(&[])?.is_done()?);
    assert_eq!((x.len(), x.is_empty(), x.chunks(3)?.count()), (0, true, 0));
    // Views without elements are allowed at the beginning, in the middle and at the end.
    let mut z = s.full(10, 1u32)?;
    for at in [0, 5, 10] {
        s.fill(&mut z.slice_mut(at..at)?, 9)?;
        s.copy(&x, &mut z.slice_mut(at..at)?)?;
        assert_eq!(s.download(&z.slice(at..at)?)?, [0u32; 0]);
    }
    assert_eq!(s.download(&z)?, [1; 10]);
    s.synchronize()
}

fn halves_of_one_buffer_are_copied_to_each_other(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let mut x = s.upload(&numbers(100))?;
    let (left, mut right) = x.split_at_mut(50)?;
    s.copy(&left, &mut right)?;
    let got = s.download(&x)?;
    assert_eq!(got[50..], got[..50]);
    Ok(())
}

fn chunks_cover_a_buffer(device: &Device) -> Result<()> {
    let streams = [device.stream()?, device.stream()?, device.stream()?];
    let s = &streams[0];
    let mut x = s.zeros::<u32>(1000)?;
    assert_eq!(x.chunks(333)?.map(|piece| piece.len()).collect::<Vec<_>>(), [333, 333, 333, 1]);
    for (index, mut piece) in x.chunks_mut(7)?.enumerate() {
        streams[index % 3].fill(&mut piece, index as u32)?;
    }
    let want: Vec<u32> = (0..1000).map(|i| i / 7).collect();
    assert_eq!(s.download(&x)?, want);
    refused(x.chunks(0).map(drop), ErrorKind::InvalidArgument, &["0 elements"]);
    refused(x.chunks_mut(0).map(drop), ErrorKind::InvalidArgument, &["0 elements"]);
    Ok(())
}

fn zeros_are_zero(device: &Device) -> Result<()> {
    let s = device.stream()?;
    // The pool gives us memory that held other values, so we see whether it is really zeroed.
    for n in [1000, 1000, 999] {
        drop(s.full(1000, 0xffff_ffffu32)?);
        assert_eq!(s.download(&s.zeros::<u32>(n)?)?, vec![0; n]);
    }
    Ok(())
}

fn pinned_memory_starts_zeroed(device: &Device) -> Result<()> {
    for n in [1000, 1000, 999] {
        let mut host = device.pinned::<u32>(1000)?;
        host.write()?.fill(0xffff_ffff);
        drop(host);
        assert_eq!(*device.pinned::<u32>(n)?.read()?, vec![0; n]);
    }
    Ok(())
}

/// You may change the slice as soon as the call returns, even if the copy has not reached the device yet.
fn upload_reads_its_slice_before_it_returns(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.zeros::<u32>(5000)?;
    s.synchronize()?;
    let gate = Gate::on(&kernels, &s)?;
    let mut values = numbers(5000);
    s.upload_into(&values, &mut x)?;
    let before = values.clone();
    values.fill(0);
    drop(values);
    assert!(!s.is_done()?);
    gate.open();
    assert_eq!(s.download(&x)?, before);
    Ok(())
}

fn different_lengths_are_refused(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let x = s.full(10, 1u32)?;
    let (mut y, mut host) = (s.zeros::<u32>(11)?, device.pinned::<u32>(9)?);
    let say = &["10", "slice the longer one"];
    refused(s.copy(&x, &mut y), ErrorKind::ArgumentMismatch, say);
    refused(s.copy(&x, &mut host), ErrorKind::ArgumentMismatch, say);
    refused(s.upload_into(&[1; 10], &mut y), ErrorKind::ArgumentMismatch, say);
    refused(s.download_into(&x, &mut [0; 3]), ErrorKind::ArgumentMismatch, say);
    s.copy(&x, &mut y.slice_mut(..10)?)?;
    assert_eq!(s.download(&y)?, [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0]);
    Ok(())
}

#[expect(clippy::reversed_empty_ranges, reason = "what is tested")]
fn slices_that_do_not_fit_are_refused(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let mut x = s.full(10, 1u32)?;
    let say = &["10 elements"];
    refused(x.slice(..11).map(drop), ErrorKind::OutOfBounds, say);
    refused(x.slice(11..).map(drop), ErrorKind::OutOfBounds, say);
    refused(x.slice(5..4).map(drop), ErrorKind::OutOfBounds, say);
    refused(x.slice(..=usize::MAX).map(drop), ErrorKind::OutOfBounds, say);
    refused(x.slice_mut(3..12).map(drop), ErrorKind::OutOfBounds, say);
    refused(x.split_at_mut(11).map(drop), ErrorKind::OutOfBounds, say);
    refused(x.slice(2..4)?.slice(..3).map(drop), ErrorKind::OutOfBounds, &["2 elements"]);
    let mut host = device.pinned::<u32>(4)?;
    refused(host.slice_mut(5..).map(drop), ErrorKind::OutOfBounds, &["4 elements"]);
    assert_all(&s, &x, 1)
}
