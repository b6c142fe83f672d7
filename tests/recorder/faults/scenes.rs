//! Together these scenes make every call of the API that reaches a driver. If you play a scene again on the same stage,
//! it must return the same result, even if it failed before.

use gpustream::hal::{DefaultStream, StreamOptions, WaitPolicy};
use gpustream::half::f16;
use gpustream::{
    AddressMode, ArrayShape, Buffer, CopyBatch, Device, Error, ErrorKind, GraphStream, GraphUpdate, Launch,
    Location, ManagedAdvice, ParamInfo, PinnedOptions, Pitched, Result, Stream, TextureOptions, WaitValue,
};

use gpustream_kernels::convert::Convert;

use crate::fakes::{ONE, increment, load_kernel, load_module};
use crate::stage::{N, Stage};

const MIB: usize = 1 << 20;

fn sum(values: &[u32]) -> u64 {
    values.iter().map(|&value| u64::from(value)).sum()
}

fn numbers(len: usize) -> Vec<u32> {
    (0..len as u32).collect()
}

/// Opens the device again and closes that handle, so nothing of it may be left.
pub(crate) fn opening(it: &mut Stage) -> Result<u64> {
    let device = Device::open_with(it.fake.name, it.options)?;
    let stream = device.stream()?;
    let mut x = stream.full(N, 7u32)?;
    stream.copy(&it.x, &mut x)?;
    stream.fill(&mut x.slice_mut(..10)?, 5)?;
    device.memory()?;
    let got = stream.download(&x.slice(..10)?)?;
    drop((x, stream));
    Ok(sum(&got))
}

pub(crate) fn streams_and_events(it: &mut Stage) -> Result<u64> {
    let urgent = it.device.stream_with(StreamOptions::default().priority(-1))?;
    let blocking = it.device.stream_with(StreamOptions::default().blocking_with_default(true))?;
    let legacy = it.device.default_stream(DefaultStream::Legacy)?;
    let threads = it.device.default_stream(DefaultStream::PerThread)?;
    let start = it.a.record_timed()?;
    it.a.fill(&mut it.x, 1)?;
    urgent.copy(&it.x, &mut it.y)?;
    let few = threads.full(100, 2u32)?;
    threads.copy(&few, &mut it.y.slice_mut(..100)?)?;
    blocking.copy(&it.y, &mut it.x)?;
    let event = blocking.record()?;
    it.b.wait(&event)?;
    legacy.fill(&mut it.x.slice_mut(..50)?, 3)?;
    it.a.copy(&it.x, &mut it.y)?;
    let end = it.a.record_timed()?;
    end.elapsed_since(&start)?;
    it.b.record_with(WaitPolicy::Yield)?.synchronize()?;
    event.is_done()?;
    urgent.is_done()?;
    event.synchronize()?;
    threads.synchronize()?;
    legacy.synchronize()?;
    it.device.synchronize()?;
    Ok(sum(&it.b.download(&it.y)?))
}

pub(crate) fn host_closures(it: &mut Stage) -> Result<u64> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let again = sender.clone();
    it.a.host_fn(move || sender.send(1).unwrap_or(()))?;
    it.a.host_fn_repeat(move || again.send(2).unwrap_or(()))?;
    it.a.synchronize()?;
    Ok(receiver.try_iter().sum())
}

pub(crate) fn device_memory(it: &mut Stage) -> Result<u64> {
    let bytes = it.a.alloc::<u8>(100)?;
    let mut large = it.b.alloc::<u8>(3 * MIB)?;
    it.b.fill(&mut large.slice_mut(..10)?, 1)?;
    drop(bytes);
    let cleared = it.b.zeros::<u16>(1000)?;
    let wide = it.a.full(100, 0.1f64)?;
    let mut words = it.b.full(1000, 5u32)?;
    it.a.fill(&mut words.slice_mut(..10)?, 0x0001_0001)?;
    drop(large);
    let mut again = it.a.alloc::<u8>(3 * MIB)?;
    it.a.fill(&mut again.slice_mut(..10)?, 2)?;
    it.device.memory()?;
    let got = u64::from(it.a.download(&again.slice(..10)?)?[9])
        + it.b.download(&wide)?.iter().map(|value| (value * 10.0) as u64).sum::<u64>()
        + it.b.download(&cleared)?.iter().map(|&value| u64::from(value)).sum::<u64>()
        + sum(&it.b.download(&words)?);
    drop((again, cleared, wide, words));
    it.device.trim();
    Ok(got)
}

/// Allocates under a limit. So memory that is in use must go to another stream, and slabs of one kind must make room
/// for another kind.
pub(crate) fn scarce_memory(it: &mut Stage) -> Result<u64> {
    let device = Device::open_with(it.fake.name, it.options.memory_limit(4 * MIB as u64))?;
    let (a, b) = (device.stream()?, device.stream()?);
    let filled = |stream: &Stream, bytes, value| -> Result<Buffer<u8>> {
        let mut buffer = stream.alloc(bytes)?;
        stream.fill(&mut buffer.slice_mut(..10)?, value)?;
        Ok(buffer)
    };
    let first = |stream: &Stream, buffer: &Buffer<u8>| -> Result<u64> {
        Ok(u64::from(stream.download(&buffer.slice(..1)?)?[0]))
    };
    drop(filled(&a, 3 * MIB, 1)?);
    let second = filled(&b, 3 * MIB + 4096, 2)?;
    let mut got = first(&b, &second)?;
    drop(second);
    let small: Vec<_> = (3..7).map(|value| filled(&a, 100 << 10, value)).collect::<Result<_>>()?;
    got += first(&a, &small[3])?;
    drop(small);
    let third = filled(&b, 4 * MIB, 8)?;
    got += first(&b, &third)?;
    match a.alloc::<u8>(MIB) {
        Err(error) if error.kind() == ErrorKind::OutOfMemory => Ok(got),
        other => other.map(|_| 0),
    }
}

/// Copies arrays, makes textures and surfaces of them, and drops everything. The fake HIP device has none.
pub(crate) fn arrays(it: &mut Stage) -> Result<u64> {
    if !it.device.info().features.textures {
        return Ok(0);
    }
    let shape = ArrayShape::new_2d(N / 10, 10);
    let mut array = it.a.upload_array(&numbers(N), shape)?;
    let (texture, surface) = (array.texture(TextureOptions::default())?, array.surface()?);
    array.texture(TextureOptions::default().address(AddressMode::Border))?;
    it.b.copy_to_array(&it.x, &mut array)?;
    let mut table = it.device.texel_buffer::<u32>(N)?;
    it.a.copy_from_array(&array, &mut table)?;
    let second = table.texture(TextureOptions::default())?;
    let got = sum(&it.b.download(&table)?) + sum(&it.a.download_array(&array)?);
    drop((array, texture, surface, table, second));
    it.device.trim();
    Ok(got)
}

pub(crate) fn host_memory(it: &mut Stage) -> Result<u64> {
    let mut pinned = it.device.pinned_from(&numbers(N))?;
    let mut combined = it.device.pinned_with::<u32>(N, PinnedOptions::default().write_combined(true))?;
    combined.write()?.fill(3);
    let mut registered = it.device.register(vec![4u32; 5000])?;
    let flag = it.device.flag()?;
    it.a.copy(&pinned, &mut it.x)?;
    it.b.copy(&combined, &mut it.y)?;
    it.b.copy(&it.x, &mut registered.slice_mut(..N)?)?;
    it.a.copy(&registered.slice(N..2 * N)?, &mut pinned)?;
    it.a.fill(&mut it.host, 9)?;
    flag.set(1);
    it.a.wait_flag(&flag, WaitValue::AtLeast(1))?;
    it.b.set_flag(&flag, 2)?;
    let event = it.device.shared_event()?;
    it.a.record_shared(&event)?;
    it.b.wait_shared(&it.device.import_event(&event.export()?)?)?;
    it.host.is_done()?;
    let mut got = sum(&it.host.read()?) + sum(&pinned.read()?) + sum(&registered.read()?);
    if it.device.info().features.managed_memory {
        let mut table = it.device.managed::<u32>(100)?;
        table.write()?[0] = 5;
        table.advise(ManagedAdvice::PreferDevice)?;
        it.a.prefetch(&table, Location::Device)?;
        it.b.fill(&mut table.slice_mut(10..20)?, 6)?;
        it.b.prefetch(&table, Location::Host)?;
        got += sum(&table.read()?);
    }
    drop((pinned, combined, registered));
    it.device.trim();
    Ok(got)
}

pub(crate) fn short_copies(it: &mut Stage) -> Result<u64> {
    let values = numbers(30_000);
    it.a.upload_into(&values[..N], &mut it.x)?;
    let long = it.a.upload(&values)?;
    let few = it.b.upload(&values[..10])?;
    let mut copy = it.b.alloc::<u32>(30_000)?;
    it.b.copy(&long, &mut copy)?;
    it.b.copy(&few, &mut it.x.slice_mut(..10)?)?;
    it.a.copy(&it.x, &mut it.host)?;
    let mut got = vec![0; N];
    it.a.download_into(&it.x, &mut got)?;
    Ok(sum(&got) + sum(&it.b.download(&copy)?) + sum(&it.host.read()?))
}

/// Copies so much that several threads work on it, and that not all of it may be under way at once.
pub(crate) fn long_copies(it: &mut Stage) -> Result<u64> {
    let device = Device::open_with(it.fake.name, it.options.staging_ring(MIB))?;
    let stream = device.stream()?;
    let values = vec![7u8; 2 * MIB + 1];
    let x = stream.upload(&values)?;
    let part = &values[..=MIB];
    let y = it.a.upload(part)?;
    Ok(u64::from(stream.download(&x)? == values) + u64::from(it.a.download(&y)? == part))
}

pub(crate) fn boxes(it: &mut Stage) -> Result<u64> {
    it.a.upload_into(&numbers(N), &mut it.x)?;
    let mut tile = it.b.full(9, 1u32)?;
    it.b.copy_box(&it.x, Pitched::new_2d(20).at(1, 1), &mut tile, Pitched::new_2d(3), [3, 3, 1])?;
    it.a.copy_box(&tile, Pitched::new_3d(3, 1), &mut it.host, Pitched::new_3d(3, 3), [3, 1, 3])?;
    it.a.copy_box(&it.host, Pitched::new_2d(3), &mut tile, Pitched::new_2d(3), [3, 1, 1])?;
    Ok(sum(&it.b.download(&tile)?))
}

pub(crate) fn batches(it: &mut Stage) -> Result<u64> {
    it.a.upload_into(&numbers(N), &mut it.x)?;
    let mut batch = CopyBatch::new();
    for (from, to) in it.x.chunks(10)?.step_by(2).zip(it.y.chunks_mut(10)?) {
        batch.add(from, to)?;
    }
    it.b.copy_batch(batch)?;
    let mut batch = CopyBatch::new();
    batch.add(it.y.slice(..20)?, it.host.slice_mut(5..25)?)?;
    batch.add(it.y.slice(20..40)?, it.x.slice_mut(..20)?)?;
    it.a.copy_batch(batch)?;
    let mut got = sum(&it.host.slice(5..25)?.read()?) + sum(&it.b.download(&it.x.slice(..30)?)?);
    let graph = it.a.capture(|s| {
        let mut batch = CopyBatch::new();
        batch.add(it.x.slice(..5)?, it.y.slice_mut(..5)?)?;
        batch.add(it.x.slice(5..10)?, it.host.slice_mut(..5)?)?;
        s.copy_batch(batch)
    })?;
    graph.launch(&it.b)?;
    got += sum(&it.a.download(&it.y.slice(..10)?)?) + sum(&it.host.slice(..5)?.read()?);
    Ok(got)
}

pub(crate) fn parts_of_the_device(it: &mut Stage) -> Result<u64> {
    let stream = it.device.stream_with(StreamOptions::default().multiprocessors(20))?;
    let other = it.device.stream_with(StreamOptions::default().multiprocessors(20))?;
    it.a.fill(&mut it.x, 1)?;
    increment(&it.kernel, &stream, ONE, &mut it.x)?;
    let graph = stream.capture(|s| increment(&it.kernel, s, ONE, &mut it.x))?;
    drop(stream);
    graph.launch(&other)?;
    let event = other.record()?;
    it.b.wait(&event)?;
    Ok(sum(&it.b.download(&it.x)?))
}

pub(crate) fn pipelines(it: &mut Stage) -> Result<u64> {
    let values = numbers(1000);
    let mut output = vec![0u32; 1000];
    let kernel = &it.kernel;
    it.device.pipeline().chunks(400).depth(2).map(&values, &mut output, |s, piece| {
        s.copy(&piece.input, &mut piece.output)?;
        increment(kernel, s, ONE, &mut piece.output)
    })?;
    let mut left = 3;
    let mut total = 0;
    let source = |piece: &mut [u32]| {
        left -= 1;
        piece.fill(left);
        Ok::<_, Error>(if left == 0 { 0 } else { piece.len() })
    };
    it.device.pipeline().chunks(50).results(1).run(
        source,
        |s, piece| s.copy(&piece.input.slice(..1)?, &mut piece.output),
        |_, values| {
            total += sum(values);
            Ok(())
        },
    )?;
    Ok(sum(&output) + total)
}

/// Runs a pipeline in place, and generates. The stage keeps the pipeline.
pub(crate) fn pipelines_in_place(it: &mut Stage) -> Result<u64> {
    let kernel = &it.kernel;
    let mut second = it.device.pinned_from(&numbers(N))?;
    it.host.write()?.copy_from_slice(&numbers(N));
    it.pipeline.in_place([&mut it.host, &mut second], |s, [x, y]| {
        increment(kernel, s, ONE, x)?;
        s.copy(x, y)
    })?;
    let mut total = sum(&it.host.read()?) + sum(&second.read()?);
    let mut frame = 0;
    it.pipeline.generate(
        3,
        |s, piece| {
            frame += 1;
            s.fill(piece, frame)
        },
        |_, values| {
            total += sum(values);
            Ok::<_, Error>(())
        },
    )?;
    it.pipeline.streams()?.try_for_each(Stream::synchronize)?;
    Ok(total)
}

/// Runs a step that is recorded, repeated, changed, cut, and then takes another course.
pub(crate) fn replayed_steps(it: &mut Stage) -> Result<u64> {
    let sizes = [0, 8].map(|offset| ParamInfo { offset, size: 8 });
    let kernel = load_module(it.fake, &it.device)?.kernel_with("increment", &sizes)?;
    let mut step = it.device.replay();
    it.a.fill(&mut it.x, 1)?;
    for value in [4, 4, 4, 5, 5, 6, 4] {
        step.run(&it.a, |s| {
            s.fill(&mut it.y, value)?;
            increment(&kernel, s, ONE, &mut it.x)?;
            let mut z = s.duplicate(&it.y)?;
            increment(&kernel, s, ONE, &mut z)?;
            if value == 5 {
                s.synchronize()?;
            } else if value == 6 {
                s.copy(&z, &mut it.y)?;
            }
            s.copy(&z.slice(..10)?, &mut it.x.slice_mut(..10)?)
        })?;
    }
    Ok(sum(&it.a.download(&it.x)?) + sum(&it.b.download(&it.y)?))
}

/// Captures conditions and builds them. The fakes never run a body.
pub(crate) fn conditions(it: &mut Stage) -> Result<u64> {
    if !it.device.info().features.conditional_nodes {
        return Ok(0);
    }
    let flag = it.device.flag()?;
    it.a.fill(&mut it.x, 1)?;
    let (kernel, x, y) = (&it.kernel, &mut it.x, &mut it.y);
    let mut nested = |s: &GraphStream<'_>| {
        s.while_(&flag, |s| {
            increment(kernel, s, ONE, x)?;
            s.if_(&flag, |s| increment(kernel, s, ONE, y))
        })
    };
    let captured = it.a.capture(|s| {
        increment(kernel, s, ONE, &mut it.host)?;
        nested(s)
    })?;
    captured.launch(&it.a)?;
    let mut builder = it.device.graph_builder()?;
    // You can go on with a builder after a call has failed.
    let first = builder.node(&[], &mut nested).or_else(|_| builder.node(&[], &mut nested))?;
    builder.node(&[first], |s| increment(kernel, s, ONE, x))?;
    builder.build()?.launch(&it.b)?;
    drop(captured);
    Ok(sum(&it.a.download(&it.x)?))
}

pub(crate) fn kernels(it: &mut Stage) -> Result<u64> {
    let kernel = load_kernel(it.fake, &it.device)?;
    kernel.occupancy(64, 0)?;
    kernel.suggested_launch(0)?;
    it.a.fill(&mut it.x, 1)?;
    increment(&kernel, &it.a, ONE, &mut it.x)?;
    increment(&it.kernel, &it.b, ONE, &mut it.x)?;
    increment(&kernel, &it.a, Launch::new([1; 3], [32, 1, 1]).shared(60 << 10), &mut it.x.slice_mut(..10)?)?;
    if it.device.info().features.cooperative_launch {
        increment(&kernel, &it.b, ONE.cooperative(true), &mut it.x.slice_mut(..20)?)?;
    }
    drop(kernel);
    Ok(sum(&it.b.download(&it.x)?))
}

/// Converts. The fake's kernels do nothing, so we get what was in the memory before.
pub(crate) fn conversions(it: &mut Stage) -> Result<u64> {
    let convert = match Convert::load(&it.device) {
        // There is neither an image nor a compiler.
        Err(error) if error.kind() == ErrorKind::NoImageForDevice => return Ok(0),
        other => other?,
    };
    let half = convert.upload::<f32, f16>(&it.a, &[1.0; 100])?;
    let mut wide = it.b.zeros::<f32>(100)?;
    convert.copy(&it.b, &half, &mut wide)?;
    convert.download::<f32, f16>(&it.a, &wide)?;
    Ok(it.a.download(&wide)?.iter().map(|&value| value as u64).sum())
}

pub(crate) fn captures(it: &mut Stage) -> Result<u64> {
    it.a.fill(&mut it.x, 1)?;
    it.a.fill(&mut it.y, 10)?;
    let (b, kernel) = (&it.b, &it.kernel);
    it.captured.update(&it.a, |s| increment(kernel, s, ONE, &mut it.x))?;
    it.captured.prepare(b)?;
    it.captured.launch(b)?;
    let (x, y, host) = (&mut it.x, &mut it.y, &mut it.host);
    let mut forked = it.a.capture(|s| {
        // You can go on with a capture after a call has failed.
        increment(kernel, s, ONE, x).or_else(|_| increment(kernel, s, ONE, x))?;
        b.wait(&s.record()?)?;
        increment(kernel, b, ONE, y)?;
        s.copy(&x.slice(..)?, &mut y.slice_mut(..)?)?;
        s.host_fn_repeat(|| ())?;
        b.copy(&y.slice(..)?, host)
    })?;
    forked.launch(&it.b)?;
    let same = it.captured.update(&it.a, |s| increment(kernel, s, ONE, &mut x.slice_mut(..100)?))?;
    it.captured.launch(&it.a)?;
    let other = forked.update(&it.a, |s| {
        increment(kernel, s, ONE, x)?;
        s.fill(&mut x.slice_mut(..10)?, 5)
    })?;
    forked.launch(&it.b)?;
    drop(forked);
    let outcome = |update| u64::from(update == GraphUpdate::Updated);
    Ok(sum(&it.a.download(&it.x)?) + sum(&it.host.read()?) + outcome(same) + 2 * outcome(other))
}

pub(crate) fn allocations_inside_recordings(it: &mut Stage) -> Result<u64> {
    let (a, b, kernel) = (&it.a, &it.b, &it.kernel);
    a.fill(&mut it.x, 1)?;
    let mut left = None;
    let x = &mut it.x;
    let graph = a.capture(|s| {
        for value in 0..3 {
            // You can go on with a capture after a call has failed.
            let mut temporary = s.full(200, value).or_else(|_| s.full(200, value))?;
            increment(kernel, s, ONE, &mut temporary)?;
            s.copy(&temporary, &mut x.slice_mut(..200)?)?;
        }
        b.wait(&s.record()?)?;
        left = Some(b.duplicate(&x.slice(..100)?)?);
        s.zeros::<u32>(1 << 16).map(drop)
    })?;
    graph.launch(b)?;
    let got = left.map_or(Ok(0), |left| Ok(sum(&a.download(&left)?)))?;
    let mut builder = it.device.graph_builder()?;
    let mut temporary = None;
    let first = builder.node(&[], |s| {
        temporary = Some(s.full(100, 7u32)?);
        Ok(())
    })?;
    if let Some(temporary) = temporary {
        builder.node(&[first], |s| s.copy(&temporary, &mut it.x.slice_mut(50..150)?))?;
    }
    drop(graph);
    builder.build()?.launch(a)?;
    Ok(got + sum(&b.download(&it.x)?))
}

pub(crate) fn built_graphs(it: &mut Stage) -> Result<u64> {
    it.a.fill(&mut it.x, 1)?;
    it.host.write()?.fill(20);
    let mut builder = it.device.graph_builder()?;
    let first = builder.node(&[], |s| increment(&it.kernel, s, ONE, &mut it.x))?;
    let second = builder.node(&[], |s| s.copy(&it.host, &mut it.y))?;
    let both = builder.join(&[first, second])?;
    let child = builder.child(&[both], &it.captured)?;
    let fill = builder.node(&[child], |s| s.fill(&mut it.y.slice_mut(..7)?, 4))?;
    builder.node(&[fill], |s| s.host_fn_repeat(|| ()))?;
    if it.device.info().features.cooperative_launch {
        // You can still use the builder, and the failed node is not in the graph.
        let mut add = || {
            let launch = ONE.cooperative(true);
            builder.node(&[fill], |s| increment(&it.kernel, s, launch, &mut it.x.slice_mut(..5)?))
        };
        add().or_else(|_| add())?;
    }
    let from = it.x.slice(..9)?;
    builder.node(&[fill], |s| {
        s.copy_box(&from, Pitched::new_2d(3), &mut it.y.slice_mut(100..)?, Pitched::new_2d(10), [3, 3, 1])
    })?;
    let mut graph = builder.build()?;
    graph.launch(&it.a)?;
    graph.set_node(first, |s| increment(&it.kernel, s, ONE, &mut it.x.slice_mut(..30)?))?;
    graph.set_node(fill, |s| s.fill(&mut it.y.slice_mut(..8)?, 5))?;
    graph.launch(&it.b)?;
    let (built, node) = &mut it.built;
    built.set_node(*node, |s| increment(&it.kernel, s, ONE, &mut it.x.slice_mut(..3)?))?;
    built.launch(&it.b)?;
    built.set_node(*node, |s| increment(&it.kernel, s, ONE, &mut it.x))?;
    built.launch(&it.b)?;
    Ok(sum(&it.a.download(&it.x)?) + sum(&it.b.download(&it.y)?))
}

pub(crate) fn futures(it: &mut Stage) -> Result<u64> {
    it.a.fill(&mut it.x, 1)?;
    it.b.copy(&it.x, &mut it.host)?;
    let event = it.a.record()?;
    smol::block_on(async {
        it.a.synchronize_async().await?;
        event.synchronize_async().await?;
        it.host.synchronize_async().await?;
        let values = it.a.download_async(&it.x).await?;
        Ok(sum(&values) + sum(&it.host.try_read()?))
    })
}

pub(crate) fn peers(it: &mut Stage) -> Result<u64> {
    let other = &mut it.other;
    it.a.upload_into(&numbers(N), &mut it.x)?;
    other.stream.copy(&it.x, &mut other.x)?;
    let event = other.stream.record()?;
    it.b.wait(&event)?;
    it.b.copy(&other.x, &mut it.y)?;
    // The stream uses the other device's memory. It cannot access that if the memory comes from the driver's pool.
    match it.a.fill(&mut other.x.slice_mut(..9)?, 8) {
        Err(error) if error.kind() == ErrorKind::DeviceMismatch => {}
        outcome => outcome?,
    }
    let far = other.stream.upload(&numbers(50))?;
    it.b.copy(&far, &mut it.y.slice_mut(..50)?)?;
    drop(far);
    it.b.wait(&other.stream.record()?)?;
    other.device.synchronize()?;
    let got = sum(&other.stream.download(&other.x)?) + sum(&it.b.download(&it.y)?);
    other.device.trim();
    Ok(got)
}
