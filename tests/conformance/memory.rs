//! Allocation, reuse, statistics, and what happens if there is no memory left.

use bytemuck::{Pod, Zeroable};
use conformance::{Gate, assert_all, kernels_and_streams, open_again, refused, sync, tests};
use gpustream::{
    ArrayShape, AsView, Device, DeviceOptions, Error, ErrorKind, MemoryInfo, Piece, PinnedOptions,
    PoolPolicy, Result, Stream,
};

tests! {
    Plain: freed_memory_is_reused, statistics_add_up, trimming_returns_what_is_free,
        too_much_is_an_error_and_less_still_works, out_of_memory_errors_say_each_fact_once,
        lengths_that_overflow_are_refused, elements_of_size_zero_may_be_as_many_as_in_a_vector,
        duplicates_have_memory_of_their_own, views_are_cast, memory_names_its_elements,
        allocating_operations_are_named, options_at_their_extremes_work, allocations_are_aligned,
        every_alignment_is_kept, a_limit_counts_all_that_is_the_devices, free_and_total_memory_are_reported,
        handles_of_one_device_share_its_memory;
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

fn out_of_memory_errors_say_each_fact_once(device: &Device) -> Result<()> {
    let once = |result: Result<()>, bytes: usize| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        let text = error.to_string();
        for said in ["no room for", &bytes.to_string()] {
            assert_eq!(text.matches(said).count(), 1, "`{said}` in {text}");
        }
    };
    let s = device.stream()?;
    let bytes = 1 << 45;
    once(s.alloc::<u8>(bytes).map(drop), bytes);
    once(device.pinned::<u8>(bytes).map(drop), bytes);
    if device.info().features.managed_memory {
        once(device.managed::<u8>(bytes).map(drop), bytes);
    }
    let limited = open_again(device, DeviceOptions::default().memory_limit(1 << 20))?;
    let (bytes, s) = (10 << 20, limited.stream()?);
    let held = s.zeros::<u8>(1000)?;
    once(s.alloc::<u8>(bytes).map(drop), bytes);
    let text = s.alloc::<u8>(bytes).unwrap_err().to_string();
    for said in ["10 MiB", "limit of 1 MiB", "memory_limit"] {
        assert_eq!(text.matches(said).count(), 1, "`{said}` in {text}");
    }
    drop(held);
    Ok(())
}

/// `DeviceOptions::memory_limit` has a table of what counts.
fn a_limit_counts_all_that_is_the_devices(device: &Device) -> Result<()> {
    const MIB: usize = 1 << 20;
    let device = open_again(device, DeviceOptions::default().memory_limit(16 * MIB as u64))?;
    let s = device.stream()?;
    let refused = |result: Result<()>| refused(result, ErrorKind::OutOfMemory, &["limit of 16 MiB"]);
    refused(s.alloc::<u8>(17 * MIB).map(drop));
    if device.info().features.managed_memory {
        refused(device.managed::<u8>(17 * MIB).map(drop));
        // You can allocate what was freed, even if it was another kind of memory.
        drop(device.managed::<u8>(12 * MIB)?);
    }
    for _ in 0..2 {
        if device.info().features.textures {
            let square = |side| device.array::<u8>(ArrayShape::new_2d(side, side));
            refused(square(4096 + 128).map(drop));
            refused(device.texel_buffer::<u8>(17 * MIB).map(drop));
            let (array, texels) = (square(3072)?, device.texel_buffer::<u8>(4 * MIB)?);
            refused(s.alloc::<u8>(6 * MIB).map(drop));
            refused(square(3072).map(drop));
            drop((array, texels));
        }
        if device.info().features.shared_memory {
            refused(device.alloc_shared::<u8>(17 * MIB).map(drop));
            let shared = device.alloc_shared::<u8>(12 * MIB)?;
            refused(s.alloc::<u8>(6 * MIB).map(drop));
            // Other handles of the same memory must not count again.
            // SAFETY: the memory is not used.
            let same = unsafe { device.import::<u8>(&shared.export()?) }?;
            drop((shared, same));
        }
        drop(s.full(12 * MIB, 1u8)?);
    }
    // This memory is on the host, so it does not count.
    let _pinned = (device.pinned::<u8>(20 * MIB)?, device.register(vec![0u8; 20 * MIB])?);
    drop(s.full(12 * MIB, 1u8)?);
    Ok(())
}

/// A type may need the alignment of a whole page. It must get it whatever was free before, with each pool and in each
/// kind of memory.
fn every_alignment_is_kept(device: &Device) -> Result<()> {
    for pool in [PoolPolicy::Library, PoolPolicy::Driver, PoolPolicy::Unpooled] {
        let device = open_again(device, DeviceOptions::default().pool(pool))?;
        // After these, memory of the same kind no longer begins at a round address.
        let _odd = [device.pinned::<u8>(100)?, device.pinned::<u8>(600)?];
        lie_aligned::<Aligned32>(&device)?;
        lie_aligned::<Aligned512>(&device)?;
        lie_aligned::<Aligned4096>(&device)?;
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C, align(32))]
struct Aligned32([u64; 4]);

#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C, align(512))]
struct Aligned512([u64; 64]);

#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C, align(4096))]
struct Aligned4096([u64; 512]);

fn lie_aligned<T: Pod + PartialEq + std::fmt::Debug>(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let value = *bytemuck::from_bytes::<T>(
        bytemuck::bytes_of(&Aligned4096(std::array::from_fn(|i| i as u64)))
            .get(..size_of::<T>())
            .expect("no longer"),
    );
    let is_aligned = |address: usize| address.is_multiple_of(align_of::<T>());
    let check = |what: &str, host: &mut dyn FnMut() -> Result<(usize, usize)>| -> Result<()> {
        let (begins, ends) = host()?;
        assert!(is_aligned(begins), "{what} at {begins:#x} for {} bytes", align_of::<T>());
        assert!(ends - begins >= size_of::<T>());
        Ok(())
    };
    let span = |values: &[T]| (values.as_ptr().addr(), values.as_ptr_range().end.addr());
    let mut kept = Vec::new();
    for len in [1, 2, 5, 1, 3] {
        let mut pinned = device.pinned::<T>(len)?;
        check("pinned memory", &mut || Ok(span(&pinned.write()?)))?;
        pinned.write()?.fill(value);
        let mut combined = device.pinned_with::<T>(len, PinnedOptions::default().write_combined(true))?;
        check("write-combined memory", &mut || Ok(span(&combined.write()?)))?;
        let registered = device.register(vec![value; len])?;
        check("registered memory", &mut || Ok(span(&registered.read()?)))?;
        if device.info().features.managed_memory {
            let mut managed = device.managed::<T>(len)?;
            check("managed memory", &mut || Ok(span(&managed.write()?)))?;
            s.copy(&pinned, &mut managed)?;
            assert_eq!(*managed.read()?, vec![value; len]);
        }
        let full = s.full(len, value)?;
        assert!(is_aligned(full.as_raw().0), "device memory at {:?}", full.as_raw());
        assert_eq!(s.download(&full)?, vec![value; len]);
        let uploaded = s.upload(&vec![value; len])?;
        assert!(is_aligned(uploaded.as_raw().0), "device memory at {:?}", uploaded.as_raw());
        s.copy(&uploaded, &mut pinned)?;
        assert_eq!(*pinned.read()?, vec![value; len]);
        kept.push((pinned, combined, full, uploaded));
    }
    // We allocate twice inside a recording, so that the second buffer gets the first one's memory.
    let graph = s.capture(|s| {
        for _ in 0..2 {
            let _small = s.alloc::<u8>(100)?;
            let mut inside = s.alloc::<T>(3)?;
            assert!(is_aligned(inside.as_raw().0), "memory of a graph at {:?}", inside.as_raw());
            s.copy(&kept[4].3, &mut inside)?;
        }
        Ok(())
    })?;
    graph.launch(&s)?;
    // A pipeline keeps its memory, and may use it for elements of another type.
    let mut pipeline = device.pipeline().chunks(2);
    pipeline.in_place([&mut device.pinned::<u8>(2 * size_of::<T>())?], |_, _| Ok(()))?;
    pipeline.in_place([&mut kept[2].0], |_, [piece]| {
        assert!(is_aligned(piece.view().as_raw().0), "a piece at {:?}", piece.view().as_raw());
        Ok(())
    })?;
    s.synchronize()?;
    assert_eq!(*kept[2].0.read()?, vec![value; 5]);
    drop((graph, kept, pipeline));
    device.synchronize()?;
    assert_eq!(device.memory_stats().used, 0);
    Ok(())
}

fn free_and_total_memory_are_reported(device: &Device) -> Result<()> {
    let MemoryInfo { free, total } = device.memory()?;
    assert!(0 < free && free <= total, "{free} of {total}");
    assert_eq!(total, device.info().total_memory);
    Ok(())
}

/// Two handles of one device share its memory, but each has its own statistics.
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
    // Streams of two handles are ordered like streams of one.
    theirs.copy(&x, &mut y)?;
    assert!(!theirs.is_done()?);
    gate.open();
    assert_eq!(theirs.download(&y)?, [2; 1000]);
    kernels.mix(&mine, &y, &mut x, 1000)?;
    assert_eq!(theirs.download(&x)?, [12; 1000]);
    // We drop memory while the other handle still uses it.
    let late = Gate::copying(&kernels, &mine, &y, &mut x)?;
    drop(y);
    // When we drop the other device's last handle, that waits for its work, and for other work on its memory.
    late.open();
    drop((theirs, other));
    assert_all(&mine, &x, 2)
}

fn duplicates_have_memory_of_their_own(device: &Device) -> Result<()> {
    let (kernels, [s, other]) = kernels_and_streams(device)?;
    let gate = Gate::new(device)?;
    let mut x = s.full(1000, 1u32)?;
    kernels.add_when(&s, gate.flag(), &mut x, 1, 1000)?;
    // A duplicate is ordered by the memory that it touches, like any copy.
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

    let say = &["2 elements of `u32`", "8 bytes are 2 more than a multiple of 3"];
    refused(x.slice(..2)?.cast::<[u8; 3]>(), ErrorKind::InvalidArgument, say);
    let start = x.slice_mut(1..5)?.cast_mut::<[u32; 4]>().map(|view| view.len());
    refused(
        start,
        ErrorKind::InvalidArgument,
        &["a multiple of 16 bytes", "begin the slice at such an address"],
    );
    refused(x.cast::<()>(), ErrorKind::InvalidArgument, &["`()` has no size"]);

    // A host guard returns a Rust reference, so the memory must be aligned and every element must have been written.
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
    let (mut x, host) = (s.zeros::<f32>(8)?, device.pinned::<[u8; 2]>(4)?);
    let (address, later) = (x.as_raw(), x.as_raw().offset(8));
    assert!(address.to_string().starts_with("0x"), "{address}");
    assert_eq!(format!("{x:?}"), format!("Buffer<f32>(8 elements at {address})"));
    assert_eq!(format!("{:?}", x.slice(2..5)?), format!("View<f32>(3 elements at {later})"));
    assert_eq!(format!("{:?}", x.slice_mut(2..)?), format!("ViewMut<f32>(6 elements at {later})"));
    assert!(format!("{host:?}").starts_with("Pinned<[u8; 2]>(4 elements at 0x"), "{host:?}");
    refused(x.slice(1..5)?.cast::<[f32; 4]>(), ErrorKind::InvalidArgument, &["the view begins at 0x"]);
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
    let mut labels: Vec<_> = device.memory_snapshot().holders.iter().map(|it| it.call_site.label).collect();
    labels.sort_unstable();
    assert_eq!(labels, ["alloc", "duplicate", "full", "upload", "zeros"]);
    drop((held, more));
    Ok(())
}

/// A vector can have `usize::MAX` such elements.
fn elements_of_size_zero_may_be_as_many_as_in_a_vector(device: &Device) -> Result<()> {
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
        .map(&[(); 10], &mut output, |s, piece| s.copy(&piece.input, &mut piece.output))?;

    // So many elements go through the pipeline that their number would overflow.
    let (mut pieces, mut done) = (0, Vec::new());
    let source = |piece: &mut [()]| {
        pieces += 1;
        Ok::<_, Error>(if pieces < 4 { piece.len() } else { 0 })
    };
    let mut pipeline = device.pipeline().chunks(MOST).progress(|so_far| done.push(so_far));
    assert_eq!(pipeline.run::<(), (), _>(source, |_, _| Ok(()), |_, _| Ok(()))?, MOST);
    pipeline.generate::<(), Error>(
        3,
        |_, _| Ok(()),
        |_, piece| {
            assert_eq!(piece.len(), MOST);
            Ok(())
        },
    )?;
    drop(pipeline);
    assert_eq!(done, [MOST; 6]);
    let mut host = device.pinned::<()>(MOST)?;
    device.pipeline().chunks(MOST / 3).in_place([&mut host], |_, _| Ok(()))
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
