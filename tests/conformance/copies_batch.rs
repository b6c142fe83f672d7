//! A batch of copies does what the single copies would do, as one operation.

use std::mem;

use conformance::{Gate, Random, assert_all, kernels_and_streams, next, on_threads, refused, tests};
use gpustream::{AsView, AsViewMut, CopyBatch, DefaultStream, Device, ErrorKind, Result, Stream};

tests! {
    Plain: random_batches_do_what_single_copies_do, copies_of_several_types_go_together,
        a_batch_waits_for_the_work_on_its_memory, work_on_a_batchs_memory_waits_for_it,
        the_host_waits_for_the_batch_and_not_for_later_work,
        memory_dropped_behind_a_batch_stays_until_it_is_done, a_batch_is_longer_than_a_stream,
        captured_batches_are_copied_at_each_launch, a_batch_cannot_be_a_node,
        empty_batches_and_copies_do_nothing, errors_name_the_copy_and_nothing_is_copied,
        a_forgotten_batch_copies_nothing, default_streams_take_batches, threads_share_the_sources_of_batches;
}

const N: usize = 3000;
const PAGE: usize = 100;

/// Copies pieces of random lengths between random places, once as a batch and once as single copies.
fn random_batches_do_what_single_copies_do(device: &Device) -> Result<()> {
    const LEN: usize = 1 << 20;
    let s = device.stream()?;
    let bytes: Vec<u8> = (0..LEN).map(|i| (i * 7 + i / 251) as u8).collect();
    let (near, far) = (s.upload(&bytes)?, device.pinned_from(&bytes)?);
    let ones = vec![1u8; LEN];
    let mut random = Random(28);
    for most in [1, 9, 300, 5000, 700_000] {
        let mut got = (s.upload(&ones)?, device.pinned_from(&ones)?);
        let mut want = (s.upload(&ones)?, device.pinned_from(&ones)?);
        let mut batch = CopyBatch::new();
        let mut rest = [got.0.view_mut(), got.1.view_mut()];
        let mut single = [want.0.view_mut(), want.1.view_mut()];
        let mut at = [0, 0];
        while batch.len() < 500 {
            let (which, len, gap) = (random.below(2), random.below(most + 1), random.below(5));
            if rest[which].len() < len + gap {
                break;
            }
            let from = random.below(LEN - len + 1);
            let source = if random.below(2) == 0 { near.view() } else { far.view() };
            let source = source.slice(from..from + len)?;
            let [first, second] = rest;
            let (chosen, other) = if which == 0 { (first, second) } else { (second, first) };
            let (to, remaining) = chosen.split_at_mut(gap)?.1.split_at_mut(len)?;
            rest = if which == 0 { [remaining, other] } else { [other, remaining] };
            batch.add(source, to)?;
            at[which] += gap;
            s.copy(&source, &mut single[which].view_mut().slice_mut(at[which]..at[which] + len)?)?;
            at[which] += len;
        }
        s.copy_batch(batch)?;
        assert!(s.download(&got.0)? == s.download(&want.0)?, "device memory, pieces of at most {most}");
        assert!(*got.1.read()? == *want.1.read()?, "pinned memory, pieces of at most {most}");
    }
    Ok(())
}

fn copies_of_several_types_go_together(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let (bytes, numbers) = (device.pinned_from(&[1u8, 2, 3])?, s.upload(&[1.5f64, 2.5])?);
    let (mut near, mut far) = (s.alloc::<u8>(3)?, device.pinned::<f64>(2)?);
    let mut last = device.pinned::<u8>(3)?;
    let mut batch = CopyBatch::with_capacity(3);
    batch.add(&bytes, &mut near)?;
    batch.add(&numbers, &mut far)?;
    batch.add(&bytes, &mut last)?;
    assert_eq!(batch.len(), 3);
    s.copy_batch(batch)?;
    assert_eq!(s.download(&near)?, [1, 2, 3]);
    assert_eq!((&far.read()?[..], &last.read()?[..]), (&[1.5, 2.5][..], &[1, 2, 3][..]));
    Ok(())
}

/// Copies every other page of `x` to `y`.
fn gather(s: &Stream, x: &impl AsView<u32>, y: &mut impl AsViewMut<u32>) -> Result<()> {
    let mut batch = CopyBatch::new();
    for (from, to) in x.view().chunks(PAGE)?.step_by(2).zip(y.view_mut().chunks_mut(PAGE)?) {
        batch.add(from, to)?;
    }
    s.copy_batch(batch)
}

fn a_batch_waits_for_the_work_on_its_memory(device: &Device) -> Result<()> {
    let (kernels, [a, b, c]) = kernels_and_streams(device)?;
    let (mut x, mut y) = (a.full(N, 7u32)?, c.full(N / 2, 1u32)?);
    let mut z = b.zeros::<u32>(N / 2)?;
    [&a, &b, &c].into_iter().try_for_each(Stream::synchronize)?;
    // One stream is writing the sources, and another one is reading the destinations, so the batch must wait for both.
    let writing = Gate::adding(&kernels, &a, &mut x, 1)?;
    let reading = Gate::copying(&kernels, &c, &y, &mut z)?;
    gather(&b, &x, &mut y)?;
    assert!(!b.is_done()?);
    writing.open();
    a.synchronize()?;
    assert!(!b.is_done()?, "the destinations are still being read");
    reading.open();
    assert_all(&b, &y, 8)?;
    assert_all(&b, &z, 1)
}

fn work_on_a_batchs_memory_waits_for_it(device: &Device) -> Result<()> {
    let (kernels, [a, b, c]) = kernels_and_streams(device)?;
    let (mut x, mut y) = (a.full(N, 7u32)?, a.full(N / 2, 1u32)?);
    let mut z = c.zeros::<u32>(N / 2)?;
    [&a, &c].into_iter().try_for_each(Stream::synchronize)?;
    let gate = Gate::on(&kernels, &a)?;
    gather(&a, &x, &mut y)?;
    // One stream writes the sources, and another one reads the destinations. Both must wait for the whole batch.
    kernels.step(&b, &mut x, 2, N)?;
    kernels.mix(&c, &y, &mut z, N / 2)?;
    assert!(!b.is_done()? && !c.is_done()?);
    gate.open();
    assert_all(&a, &y, 7)?;
    assert_all(&b, &x, next(7, 2))?;
    assert_all(&c, &z, next(0, 7))
}

fn the_host_waits_for_the_batch_and_not_for_later_work(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let x = s.upload(&(0..N as u32).collect::<Vec<_>>())?;
    let mut y = device.pinned::<u32>(N / 2)?;
    s.synchronize()?;
    let (before, after) = (Gate::on(&kernels, &s)?, Gate::new(device)?);
    gather(&s, &x, &mut y)?;
    after.hold(&kernels, &s)?;
    refused(y.try_read().map(drop), ErrorKind::WouldBlock, &["writing to"]);
    // This must also be refused for the last page, although only the batch uses it.
    refused(y.slice(N / 2 - 1..)?.try_read().map(drop), ErrorKind::WouldBlock, &["writing to"]);
    before.open();
    assert_eq!(y.read()?[PAGE - 1..=PAGE], [PAGE as u32 - 1, 2 * PAGE as u32]);
    assert!(!s.is_done()?);
    after.open();
    // The device may read a source until the batch is done, so you cannot write it yet.
    let (mut source, mut near) = (device.pinned_from(&vec![3u32; N])?, s.zeros::<u32>(N / 2)?);
    s.synchronize()?;
    let gate = Gate::on(&kernels, &s)?;
    gather(&s, &source, &mut near)?;
    refused(source.try_write().map(drop), ErrorKind::WouldBlock, &["using"]);
    gate.open();
    source.write()?.fill(4);
    assert_all(&s, &near, 3)
}

fn memory_dropped_behind_a_batch_stays_until_it_is_done(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let mut y = a.zeros::<u32>(N / 2)?;
    a.synchronize()?;
    for _ in 0..3 {
        let (near, far) = (a.full(N, 7u32)?, device.pinned_from(&vec![8u32; N])?);
        let mut z = a.alloc::<u32>(N / 2)?;
        a.synchronize()?;
        let gate = Gate::on(&kernels, &a)?;
        gather(&a, &near, &mut y)?;
        gather(&a, &far, &mut z)?;
        drop((near, far, z));
        // These may get the dropped memory at once, but must not disturb the batches.
        let (zeros, pinned) = (b.alloc::<u32>(N)?, device.pinned_from(&vec![0u32; N])?);
        gate.open_during(|| {
            let mut zeros = zeros;
            b.fill(&mut zeros, 0)?;
            assert_all(&b, &zeros, 0)
        })?;
        assert_all(&a, &y, 7)?;
        drop(pinned);
    }
    Ok(())
}

fn a_batch_is_longer_than_a_stream(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let values: Vec<u32> = (0..20_000).collect();
    let (x, mut y) = (s.upload(&values)?, s.zeros::<u32>(values.len())?);
    s.synchronize()?;
    let gate = Gate::on(&kernels, &s)?;
    let mut batch = CopyBatch::with_capacity(values.len());
    for (from, to) in x.chunks(1)?.zip(y.chunks_mut(1)?) {
        batch.add(from, to)?;
    }
    // Some drivers get a batch as single copies. So many of them do not fit into the stream while the gate is closed,
    // so we must open it meanwhile.
    gate.open_during(|| s.copy_batch(batch))?;
    assert_eq!(s.download(&y)?, values);
    Ok(())
}

fn captured_batches_are_copied_at_each_launch(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.full(N, 1u32)?;
    let (mut y, mut host) = (s.zeros::<u32>(N / 2)?, device.pinned_from(&vec![0u32; N / 2])?);
    let graph = s.capture(|s| {
        kernels.step(s, &mut x, 1, N)?;
        gather(s, &x, &mut y)?;
        gather(s, &x, &mut host)
    })?;
    assert_all(&s, &y, 0)?;
    let mut want = 1;
    for _ in 0..3 {
        graph.launch(&s)?;
        want = next(want, 1);
        assert_all(&s, &y, want)?;
        assert_eq!(*host.read()?, vec![want; N / 2]);
    }
    // The graph keeps the memory of its copies.
    drop((x, y, host));
    graph.launch(&s)?;
    s.synchronize()
}

fn a_batch_cannot_be_a_node(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let (x, mut y) = (s.full(N, 3u32)?, s.zeros::<u32>(N / 2)?);
    let mut builder = device.graph_builder()?;
    let texts = ["a batch of copies", "a node for each copy"];
    refused(builder.node(&[], |s| gather(s, &x, &mut y)), ErrorKind::NotANode, &texts);
    let node = builder.node(&[], |s| s.copy(&x.slice(..N / 2)?, &mut y))?;
    let mut graph = builder.build()?;
    refused(graph.set_node(node, |s| gather(s, &x, &mut y)), ErrorKind::NotANode, &texts);
    graph.launch(&s)?;
    assert_all(&s, &y, 3)
}

fn empty_batches_and_copies_do_nothing(device: &Device) -> Result<()> {
    let s = device.stream()?;
    s.copy_batch(CopyBatch::new())?;
    assert!(CopyBatch::default().is_empty());
    // Nothing has written `x`, but an empty copy reads nothing, so it is allowed.
    let (x, mut y) = (s.alloc::<u32>(2)?, s.full(2, 5u32)?);
    let mut batch = CopyBatch::new();
    batch.add(x.slice(1..1)?, y.slice_mut(..0)?)?;
    s.copy_batch(batch)?;
    let three = device.pinned_from(&[3u32])?;
    let nothing = s.alloc::<u32>(0)?;
    let (first, second) = y.split_at_mut(1)?;
    let mut batch = CopyBatch::new();
    batch.add(&nothing, first.slice_mut(..0)?)?;
    batch.add(&three, second)?;
    s.copy_batch(batch)?;
    assert_eq!(s.download(&y)?, [5, 3]);
    Ok(())
}

fn errors_name_the_copy_and_nothing_is_copied(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let (x, fresh, mut y) = (s.full(4, 1u32)?, s.alloc::<u32>(2)?, s.full(4, 5u32)?);
    let mut batch = CopyBatch::new();
    let (first, second) = y.split_at_mut(2)?;
    batch.add(x.slice(..2)?, first)?;
    let mut three = s.full(3, 6u32)?;
    refused(
        batch.add(&x, &mut three),
        ErrorKind::ArgumentMismatch,
        &["copy 1", "4 elements", "destination 3"],
    );
    assert_eq!(batch.len(), 1);
    batch.add(&fresh, second)?;
    refused(s.copy_batch(batch), ErrorKind::Uninitialized, &["copy 1", "never written", "`copy_batch`"]);
    assert_all(&s, &y, 5)?;
    assert_all(&s, &three, 6)
}

fn a_forgotten_batch_copies_nothing(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let (x, mut y) = (s.full(4, 1u32)?, s.full(4, 5u32)?);
    let mut batch = CopyBatch::new();
    batch.add(&x, &mut y)?;
    mem::forget(batch);
    assert_all(&s, &y, 5)?;
    s.copy(&x, &mut y)?;
    assert_all(&s, &y, 1)
}

fn default_streams_take_batches(device: &Device) -> Result<()> {
    let s = device.stream()?;
    for which in [DefaultStream::Legacy, DefaultStream::PerThread] {
        let default = device.default_stream(which)?;
        let (x, mut y) = (s.full(N, 7u32)?, s.zeros::<u32>(N / 2)?);
        gather(&default, &x, &mut y)?;
        assert_all(&s, &y, 7)?;
    }
    Ok(())
}

/// Two threads read the same memory at once, each in batches on its own stream.
fn threads_share_the_sources_of_batches(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.full(N, 7u32)?;
    kernels.step(&s, &mut x, 1, N)?;
    on_threads(2, |_| {
        let stream = device.stream()?;
        let mut y = stream.zeros::<u32>(N / 2)?;
        (0..20).try_for_each(|_| gather(&stream, &x, &mut y))?;
        assert_all(&stream, &y, next(7, 1))
    })
}
