//! Memory of several processes. Each sees what the other wrote, and the memory stays whichever process ends first.

use conformance::peer::{beside, connect, die, hear, tell};
use conformance::{assert_all, kernels_and_streams, open_again, refused, tests, until};
use gpustream::{Buffer, Device, DeviceOptions, ErrorKind, Export, Result, Stream};

tests! {
    Plain if shares_memory: two_processes_use_one_memory, memory_outlives_a_killed_exporter,
        memory_outlives_a_killed_importer, an_export_outlives_its_buffer,
        buffers_of_one_memory_go_in_any_order, a_graph_keeps_shared_memory,
        contents_that_another_wrote_are_read, another_handle_of_the_device_imports,
        elements_may_be_of_another_type, memory_of_no_bytes_is_refused;
    Plain: memory_of_the_pool_is_not_exported;
    Alone if shares_memory: sharing_leaks_nothing;
    Part: imports_and_answers, exports_and_is_killed, imports_and_is_killed;
}

const N: usize = 3000;

/// Returns true if the device can share memory. If it cannot, checks that the error says so.
fn shares_memory(device: &Device) -> bool {
    if !device.info().features.shared_memory {
        refused(device.alloc_shared::<u32>(N), ErrorKind::Unsupported, &["cannot share memory"]);
    }
    device.info().features.shared_memory
}

/// Imports memory. The processes send each other messages, so that only one of them uses it at a time.
fn import(device: &Device, export: &Export) -> Result<Buffer<u32>> {
    // SAFETY: each test uses the memory through one buffer after the other, and waits for the device between them.
    unsafe { device.import(export) }
}

/// Makes shared memory that is full of `value`, and waits for it.
fn shared(device: &Device, stream: &Stream, value: u32) -> Result<Buffer<u32>> {
    let mut buffer = device.alloc_shared::<u32>(N)?;
    stream.fill(&mut buffer, value)?;
    stream.synchronize()?;
    Ok(buffer)
}

fn two_processes_use_one_memory(device: &Device) -> Result<()> {
    let (kernels, [a, _]) = kernels_and_streams(device)?;
    let mut x = shared(device, &a, 3)?;
    kernels.step(&a, &mut x, 1, N)?;
    let before = a.download(&x)?;
    let (ended, ()) = beside(device, "shared_memory::imports_and_answers", |socket| {
        x.export()?.send(&socket)?;
        hear(&socket);
        Ok(())
    })?;
    assert_eq!(ended.code, Some(0), "{}", ended.output);
    let more: Vec<u32> = before.iter().map(|x| x + 1).collect();
    assert_eq!(a.download(&x)?, more);
    Ok(())
}

fn imports_and_answers(device: &Device) -> Result<()> {
    let stream = device.stream()?;
    let socket = connect();
    let export = Export::receive(&socket)?;
    assert_eq!(export.bytes(), 4 * N as u64);
    let mut x = import(device, &export)?;
    let more: Vec<u32> = stream.download(&x)?.iter().map(|x| x + 1).collect();
    stream.copy(&stream.upload(&more)?, &mut x)?;
    stream.synchronize()?;
    tell(&socket);
    Ok(())
}

fn memory_outlives_a_killed_exporter(device: &Device) -> Result<()> {
    let stream = device.stream()?;
    let (ended, (early, export)) = beside(device, "shared_memory::exports_and_is_killed", |socket| {
        let export = Export::receive(&socket)?;
        let early = import(device, &export)?;
        tell(&socket);
        Ok((early, export))
    })?;
    assert_eq!(ended.code, None, "{}", ended.output);
    assert_all(&stream, &early, 5)?;
    // This process is now the only one that maps the memory or has a descriptor of it.
    let mut late = import(device, &export)?;
    drop((early, export));
    stream.fill(&mut late, 6)?;
    assert_all(&stream, &late, 6)?;
    Ok(())
}

fn exports_and_is_killed(device: &Device) -> Result<()> {
    let stream = device.stream()?;
    let socket = connect();
    let x = shared(device, &stream, 5)?;
    x.export()?.send(&socket)?;
    hear(&socket);
    die()
}

fn memory_outlives_a_killed_importer(device: &Device) -> Result<()> {
    let stream = device.stream()?;
    let mut x = shared(device, &stream, 7)?;
    let (ended, ()) =
        beside(device, "shared_memory::imports_and_is_killed", |socket| x.export()?.send(&socket))?;
    assert_eq!(ended.code, None, "{}", ended.output);
    assert_all(&stream, &x, 8)?;
    stream.fill(&mut x, 9)?;
    assert_all(&stream, &x, 9)?;
    Ok(())
}

fn imports_and_is_killed(device: &Device) -> Result<()> {
    let stream = device.stream()?;
    let mut x = import(device, &Export::receive(&connect())?)?;
    assert_all(&stream, &x, 7)?;
    stream.fill(&mut x, 8)?;
    stream.synchronize()?;
    die()
}

fn an_export_outlives_its_buffer(device: &Device) -> Result<()> {
    let stream = device.stream()?;
    let export = shared(device, &stream, 4)?.export()?;
    let again = import(device, &export)?.export()?;
    drop(export);
    assert_all(&stream, &import(device, &again)?, 4)?;
    Ok(())
}

fn buffers_of_one_memory_go_in_any_order(device: &Device) -> Result<()> {
    let stream = device.stream()?;
    for exporter_first in [true, false] {
        let x = shared(device, &stream, 2)?;
        let (mut y, z) = (import(device, &x.export()?)?, import(device, &x.export()?)?);
        stream.fill(&mut y, 3)?;
        stream.synchronize()?;
        let last = if exporter_first {
            drop((x, y));
            z
        } else {
            drop((z, y));
            x
        };
        assert_all(&stream, &last, 3)?;
    }
    Ok(())
}

fn a_graph_keeps_shared_memory(device: &Device) -> Result<()> {
    let stream = device.stream()?;
    let x = shared(device, &stream, 1)?;
    let mut y = import(device, &x.export()?)?;
    let graph = stream.capture(|stream| stream.fill(&mut y, 2))?;
    drop(y);
    assert_all(&stream, &x, 1)?;
    graph.launch(&stream)?;
    stream.synchronize()?;
    assert_all(&stream, &x, 2)?;
    Ok(())
}

/// The exporter has not written the memory, but you may read it if another buffer has.
fn contents_that_another_wrote_are_read(device: &Device) -> Result<()> {
    let stream = device.stream()?;
    let x = device.alloc_shared::<u32>(N)?;
    refused(stream.download(&x), ErrorKind::Uninitialized, &[]);
    let mut y = import(device, &x.export()?)?;
    stream.fill(&mut y, 2)?;
    assert_all(&stream, &x, 2)
}

fn another_handle_of_the_device_imports(device: &Device) -> Result<()> {
    let other = open_again(device, DeviceOptions::default())?;
    let (stream, theirs) = (device.stream()?, other.stream()?);
    let x = shared(device, &stream, 1)?;
    let mut y = import(&other, &x.export()?)?;
    theirs.fill(&mut y, 2)?;
    theirs.synchronize()?;
    assert_all(&stream, &x, 2)?;
    drop((x, stream));
    assert_all(&theirs, &y, 2)?;
    Ok(())
}

fn elements_may_be_of_another_type(device: &Device) -> Result<()> {
    let stream = device.stream()?;
    let export = shared(device, &stream, 0x0101_0101)?.export()?;
    // SAFETY: nothing writes any more.
    let bytes = unsafe { device.import::<u8>(&export) }?;
    assert_eq!(bytes.len(), 4 * N);
    assert_all(&stream, &bytes, 1)?;
    // SAFETY: nothing writes any more.
    let odd = unsafe { device.import::<[u8; 7]>(&export) };
    refused(odd, ErrorKind::InvalidArgument, &["not a whole number"]);
    Ok(())
}

fn memory_of_the_pool_is_not_exported(device: &Device) -> Result<()> {
    let stream = device.stream()?;
    refused(stream.zeros::<u32>(N)?.export(), ErrorKind::Unsupported, &["alloc_shared"]);
    Ok(())
}

fn memory_of_no_bytes_is_refused(device: &Device) -> Result<()> {
    refused(device.alloc_shared::<u32>(0), ErrorKind::InvalidArgument, &["0 bytes"]);
    Ok(())
}

fn sharing_leaks_nothing(device: &Device) -> Result<()> {
    let stream = device.stream()?;
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let round = || -> Result<()> {
        let x = shared(device, &stream, 1)?;
        let y = import(device, &x.export()?)?;
        assert_all(&stream, &y, 1)
    };
    round()?;
    // Another thread drops the owners, so both buffers of the first round may still be there.
    let before = descriptors();
    for _ in 0..20 {
        round()?;
    }
    until(|| Ok(descriptors() <= before))
}
