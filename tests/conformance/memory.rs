//! Allocation, reuse of memory, statistics, and running out of memory.

use conformance::{Gate, assert_all, kernels_and_streams, open_again, refused, sync, tests};
use gpustream::{Device, DeviceOptions, ErrorKind, MemoryInfo, Piece, Result, Stream};

tests! {
    Plain: freed_memory_is_reused, statistics_add_up, trimming_returns_what_is_free,
        too_much_is_an_error_and_less_still_works, lengths_that_overflow_are_refused,
        elements_of_no_size_may_be_as_many_as_in_a_vector, duplicates_have_memory_of_their_own, views_are_cast,
        memory_names_its_elements, allocating_operations_are_named, options_at_their_extremes_work,
        allocations_are_aligned, free_and_total_memory_are_reported, handles_of_one_device_share_its_memory;
}

fn freed_memory_is_reused(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let first = s.zeros::<u32>(10_000)?.as_raw();
    for _ in 0..100 {
        assert_eq!(s.zeros::<u32>(10_000)?.as_raw(), first);
    }
    assert!(device.memory_stats().reserved < 8 << 20, "{:?}", device.memory_stats());
    Ok(())
}

fn statistics_add_up(device: &Device) -> Result<()> {
    assert_eq!(device.memory_stats().used, 0);
    let s = device.stream()?;
    let x = s.alloc::<u8>(100_000)?;
    let used = device.memory_stats().used;
    assert!((100_000..=125_000).contains(&used), "{used}");
    drop(x);
    let stats = device.memory_stats();
    assert_eq!(stats.used, 0);
    assert!(stats.reserved >= 100_000, "kept for the next: {stats:?}");
    drop(s.alloc::<u8>(2000)?);
    assert_eq!(device.memory_stats().peak, used, "the most so far");
    Ok(())
}

fn trimming_returns_what_is_free(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let keep = s.full(1000, 3u32)?;
    drop(s.full(1_000_000, 1u8)?);
    s.synchronize()?;
    assert!(device.trim() >= 1_000_000);
    assert_all(&s, &keep, 3)
}

fn too_much_is_an_error_and_less_still_works(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.full(1000, 3u32)?;
    let total = device.memory()?.total;
    for bytes in [total as usize * 2, 1 << 50, isize::MAX as usize] {
        refused(s.alloc::<u8>(bytes).map(drop), ErrorKind::OutOfMemory, &["bytes"]);
        refused(s.zeros::<u8>(bytes).map(drop), ErrorKind::OutOfMemory, &["bytes"]);
    }
    refused(device.pinned::<u8>(1 << 50).map(drop), ErrorKind::OutOfMemory, &["bytes"]);
    kernels.step(&s, &mut x, 1, 1000)?;
    assert_eq!(s.download(&x)?, [16; 1000]);
    assert_eq!(s.download(&s.full(1 << 20, 9u8)?)?, vec![9; 1 << 20]);
    assert_eq!(device.pinned_from(&vec![7u8; 1 << 20])?.read()?.len(), 1 << 20);
    Ok(())
}

fn lengths_that_overflow_are_refused(device: &Device) -> Result<()> {
    let s = device.stream()?;
    refused(s.alloc::<u64>(usize::MAX / 4).map(drop), ErrorKind::OutOfMemory, &["address space"]);
    refused(s.full(usize::MAX, 1u32).map(drop), ErrorKind::OutOfMemory, &["address space"]);
    refused(
        device.pinned::<[u64; 100]>(usize::MAX / 64).map(drop),
        ErrorKind::OutOfMemory,
        &["address space"],
    );
    Ok(())
}

fn allocations_are_aligned(device: &Device) -> Result<()> {
    let s = device.stream()?;
    for len in [1, 3, 511, 513, 70_001] {
        let x = s.alloc::<u8>(len)?;
        assert!(x.as_raw().0.is_multiple_of(256), "{:?}", x.as_raw());
        let host = device.pinned::<u8>(len)?;
        assert!((host.read()?.as_ptr() as usize).is_multiple_of(64));
    }
    Ok(())
}

fn free_and_total_memory_are_reported(device: &Device) -> Result<()> {
    let MemoryInfo { free, total } = device.memory()?;
    assert!(0 < free && free <= total, "{free} of {total}");
    assert_eq!(total, device.info().total_memory);
    Ok(())
}

/// Two handles of one device share its memory, and each keeps its own statistics.
fn handles_of_one_device_share_its_memory(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let other = open_again(device, DeviceOptions::default())?;
    assert!(!device.is_same(&other) && device.is_same(&device.clone()));
    let (mine, theirs) = (device.stream()?, other.stream()?);
    let mut x = mine.full(1000, 1u32)?;
    mine.synchronize()?;
    let gate = Gate::new(device)?;
    let mut y = theirs.full(1000, 2u32)?;
    kernels.add_when(&mine, gate.flag(), &mut x, 1, 1000)?;
    // Their streams are ordered like streams of one handle.
    theirs.copy(&x, &mut y)?;
    assert!(!theirs.is_done()?);
    gate.open();
    assert_eq!(theirs.download(&y)?, [2; 1000]);
    kernels.mix(&mine, &y, &mut x, 1000)?;
    assert_eq!(theirs.download(&x)?, [12; 1000]);
    // The memory is freed after the last use by either handle.
    let late = Gate::copying(&kernels, &mine, &y, &mut x)?;
    drop(y);
    // The drop of the other device's last handle waits for its work, and for other work on its memory.
    late.open();
    drop((theirs, other));
    assert_all(&mine, &x, 2)
}

fn duplicates_have_memory_of_their_own(device: &Device) -> Result<()> {
    let (kernels, [s, other]) = kernels_and_streams(device)?;
    let gate = Gate::new(device)?;
    let mut x = s.full(1000, 1u32)?;
    kernels.add_when(&s, gate.flag(), &mut x, 1, 1000)?;
    // Duplicates are ordered by the memory they touch, like any copy.
    let whole = other.duplicate(&x)?;
    let part = other.duplicate(&x.slice(10..20)?)?;
    s.fill(&mut x, 9)?;
    gate.open();
    assert_eq!((other.download(&whole)?, other.download(&part)?), (vec![2; 1000], vec![2; 10]));
    assert_eq!(s.download(&s.duplicate(&device.pinned_from(&[1u8, 2, 3])?)?)?, [1, 2, 3]);
    refused(
        s.duplicate(&s.alloc::<u8>(10)?).map(drop),
        ErrorKind::Uninitialized,
        &["`duplicate` at", "memory.rs"],
    );
    assert_eq!(s.duplicate(&s.alloc::<u8>(0)?)?.len(), 0);
    Ok(())
}

fn views_are_cast(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let mut x = s.upload(&(0..64u32).collect::<Vec<_>>())?;
    let quads = x.cast::<[u32; 4]>()?;
    assert_eq!((quads.len(), s.download(&quads.slice(3..4)?)?), (16, vec![[12, 13, 14, 15]]));
    assert_eq!(s.download(&quads.slice(1..2)?.cast::<u32>()?)?, [4, 5, 6, 7]);
    assert_eq!(x.slice(5..5)?.cast::<u8>()?.len(), 0);
    s.fill(&mut x.slice_mut(8..16)?.cast_mut::<[u16; 4]>()?, [1, 2, 3, 4])?;
    s.fill(&mut x.cast_mut::<u8>()?.slice_mut(..4)?, 0xff)?;
    let values = s.download(&x)?;
    assert_eq!((values[0], values[1], values[7]), (u32::MAX, 1, 7));
    assert_eq!(values[8..17], [[0x2_0001, 0x4_0003].repeat(4), vec![16]].concat());

    let say = &["2 elements of `u32`", "8 bytes are 2 more than a multiple of the 3"];
    refused(x.slice(..2)?.cast::<[u8; 3]>(), ErrorKind::InvalidArgument, say);
    let start = x.slice_mut(1..5)?.cast_mut::<[u32; 4]>().map(|view| view.len());
    refused(start, ErrorKind::InvalidArgument, &["a multiple of 16 bytes", "slice where that is one"]);
    refused(x.cast::<()>(), ErrorKind::InvalidArgument, &["`()` has no size"]);

    // A host guard needs the alignment of a Rust reference, and every element must have been written.
    let mut host = device.pinned_from(&[1u8, 0, 2, 0, 3, 0, 4, 0, 5])?;
    assert_eq!(*host.slice(..8)?.cast::<u16>()?.read()?, [1, 2, 3, 4]);
    refused(host.slice(1..5)?.cast::<u16>(), ErrorKind::InvalidArgument, &["a multiple of 2 bytes"]);
    host.slice_mut(4..8)?.cast_mut::<u32>()?.write()?[0] = u32::from_ne_bytes([6, 7, 8, 9]);
    assert_eq!(*host.read()?, [1, 0, 2, 0, 6, 7, 8, 9, 5]);
    let unwritten = s.alloc::<u32>(4)?;
    refused(s.download(&unwritten.cast::<u8>()?), ErrorKind::Uninitialized, &[]);
    Ok(())
}

fn memory_names_its_elements(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let (x, host) = (s.zeros::<f32>(3)?, device.pinned::<[u8; 2]>(4)?);
    for (shown, begins) in [
        (format!("{x:?}"), "Buffer<f32>(3 elements, "),
        (format!("{host:?}"), "Pinned<[u8; 2]>(4 elements, "),
        (format!("{:?}", x.slice(1..)?), "View<f32>(2 elements at byte 4 of "),
    ] {
        assert!(shown.starts_with(begins), "{shown}");
    }
    Ok(())
}

fn allocating_operations_are_named(device: &Device) -> Result<()> {
    const MUCH: usize = 1 << 40;
    let device = open_again(device, DeviceOptions::default().memory_limit(64 << 20))?;
    let s = device.stream()?;
    refused(s.zeros::<u64>(MUCH).map(drop), ErrorKind::OutOfMemory, &["`zeros` at", "memory.rs"]);
    refused(s.full(MUCH, 1u64).map(drop), ErrorKind::OutOfMemory, &["`full` at", "memory.rs"]);
    let held = (s.zeros::<u8>(100)?, s.full(200, 1u8)?, s.upload(&[1u8; 300])?, s.alloc::<u8>(400)?);
    let more = s.duplicate(&held.0.slice(..50)?)?;
    let mut labels: Vec<_> = device.memory_snapshot().holders.iter().map(|it| it.operation.label).collect();
    labels.sort_unstable();
    assert_eq!(labels, ["alloc", "duplicate", "full", "upload", "zeros"]);
    drop((held, more));
    Ok(())
}

/// A vector of such elements can have `usize::MAX` of them.
fn elements_of_no_size_may_be_as_many_as_in_a_vector(device: &Device) -> Result<()> {
    const MOST: usize = usize::MAX;
    let s = device.stream()?;
    let values = vec![(); MOST];
    let mut x = s.upload(&values)?;
    assert_eq!((x.len(), s.download(&x)?.len()), (MOST, MOST));
    s.fill(&mut x, ())?;
    s.copy(&x.slice(1..)?, &mut s.alloc::<()>(MOST - 1)?)?;
    assert_eq!(x.chunks(MOST / 2)?.map(|chunk| chunk.len()).collect::<Vec<_>>(), [MOST / 2, MOST / 2, 1]);
    for mut host in [device.register(values)?, device.pinned::<()>(MOST)?, device.pinned_from(&[(); MOST])?] {
        s.copy(&x, &mut host)?;
        assert_eq!(host.read()?.len(), MOST);
        assert_eq!(host.write()?.len(), MOST);
    }
    let mut output = vec![(); 10];
    device
        .pipeline()
        .chunks(3)
        .map(&[(); 10], &mut output, |s, piece| s.copy(&piece.input, &mut piece.output))
}

fn options_at_their_extremes_work(device: &Device) -> Result<()> {
    const MOST: usize = usize::MAX;
    let values: Vec<u8> = (0..3 << 20).map(|at: u32| at as u8).collect();
    let options = DeviceOptions::default();
    for options in [
        options.staging_threads(MOST),
        options.staging_ring(MOST),
        options.staging_ring(1),
        options.staging_threads(MOST).staging_ring(1),
        options.staging_threads(1).staging_ring(MOST),
        options.memory_limit(u64::MAX),
    ] {
        let device = open_again(device, options)?;
        let s = device.stream()?;
        assert!(s.download(&s.upload(&values)?)? == values, "{options:?}");
    }
    let none = open_again(device, options.memory_limit(0))?;
    refused(none.stream()?.upload(&values).map(drop), ErrorKind::OutOfMemory, &["limit of 0 B"]);
    let mut output = vec![0u8; 10];
    let copy = |s: &Stream, piece: &mut Piece<'_, u8, u8>| s.copy(&piece.input, &mut piece.output);
    device.pipeline().chunks(4).depth(MOST).map(&values[..10], &mut output, copy)?;
    assert_eq!(output, values[..10]);
    let refusal = device.pipeline().chunks(MOST).map(&values[..10], &mut output, copy);
    refused(refusal, ErrorKind::OutOfMemory, &[]);
    let source = |_: &mut [u8]| Ok::<_, gpustream::Error>(0);
    let refusal = device.pipeline().results(MOST).run(source, copy, |_, _| Ok(())).map(drop);
    refused(refusal, ErrorKind::OutOfMemory, &[]);
    Ok(())
}
