//! You can drop anything at once, and nothing is freed while it is in use. If you leak something, nothing else breaks.

use std::mem;
use std::sync::mpsc;

use conformance::{Gate, ONE, assert_all, kernels_and_streams, next, open_again, sync, tests, until};
use gpustream::{Buffer, Device, DeviceOptions, Result, Stream};

tests! {
    Plain: a_stream_dropped_in_use_finishes_its_work, kernels_dropped_in_use_finish,
        freed_pinned_memory_is_not_reused_early, reuse_on_another_stream_waits,
        dropping_the_last_handle_waits_for_the_work, forgotten_guards_break_nothing,
        forgotten_buffers_break_nothing, forgotten_streams_break_nothing, a_panic_leaves_the_device_usable,
        flags_live_as_long_as_their_kernels;
    Alone: everything_is_returned;
}

const N: usize = 3000;

fn a_stream_dropped_in_use_finishes_its_work(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    dropped_in_use(device, &kernels, a, &b).map(drop)
}

/// Drops stream `a` while it is in use, checks that its work still finishes, and returns the memory that it wrote.
pub(crate) fn dropped_in_use(
    device: &Device,
    kernels: &sync::Kernels,
    a: Stream,
    b: &Stream,
) -> Result<Buffer<u32>> {
    let mut x = a.full(N, 7u32)?;
    a.synchronize()?;
    let gate = Gate::adding(kernels, &a, &mut x, 1)?;
    kernels.step(&a, &mut x, 2, N)?;
    drop(a);
    // When you make a stream, the library looks for streams that it can destroy.
    drop((device.stream()?, device.stream()?));
    let mut y = b.alloc::<u32>(N)?;
    b.copy(&x, &mut y)?;
    assert!(!b.is_done()?);
    gate.open();
    assert_all(b, &y, 42)?;
    Ok(x)
}

fn kernels_dropped_in_use_finish(device: &Device) -> Result<()> {
    let (kernels, [a]) = kernels_and_streams(device)?;
    let mut x = a.full(N, 7u32)?;
    a.synchronize()?;
    let gate = Gate::adding(&kernels, &a, &mut x, 1)?;
    drop(kernels);
    // When you make a stream, the library looks for what it can destroy. `trim` does too, but may wait for the device.
    drop(device.stream()?);
    gate.open();
    assert_all(&a, &x, 8)
}

fn freed_pinned_memory_is_not_reused_early(device: &Device) -> Result<()> {
    let (kernels, [a]) = kernels_and_streams(device)?;
    let mut x = a.zeros::<u32>(N)?;
    let mut sum = a.zeros::<u32>(N)?;
    a.synchronize()?;
    let gate = Gate::on(&kernels, &a)?;
    for value in 0..20u32 {
        // The host writes to new pinned memory at once, so the device must not be reading it any more.
        let host = device.pinned_from(&[value; N])?;
        a.copy(&host, &mut x)?;
        kernels.mix(&a, &x, &mut sum, N)?;
    }
    gate.open();
    let want = (0..20).fold(0u32, next);
    assert_all(&a, &sum, want)
}

/// Stream `a` still uses a block when it allocates it again. Then stream `b` uses it, and must wait.
fn reuse_on_another_stream_waits(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let x = a.full(N, 7u32)?;
    let mut y = a.zeros::<u32>(N)?;
    a.synchronize()?;
    let address = x.as_raw();
    let gate = Gate::copying(&kernels, &a, &x, &mut y)?;
    drop(x);
    let mut again = a.alloc::<u32>(N)?;
    assert_eq!(again.as_raw(), address, "the stream's own memory is there for it at once");
    b.fill(&mut again, 1)?;
    assert!(!b.is_done()?, "b waits for the former owner's reader");
    gate.open();
    assert_eq!(a.download(&y)?, [7; N]);
    assert_all(&b, &again, 1)
}

fn dropping_the_last_handle_waits_for_the_work(device: &Device) -> Result<()> {
    let mine = open_again(device, DeviceOptions::default())?;
    let (kernels, [s]) = kernels_and_streams(&mine)?;
    let mut x = s.zeros::<u32>(N)?;
    kernels.step(&s, &mut x, 1, N)?;
    s.synchronize()?;
    let (sender, done) = mpsc::channel();
    let (go, wait) = mpsc::channel::<()>();
    s.host_fn(move || {
        let _ = wait.recv();
        sender.send(()).unwrap();
    })?;
    kernels.step(&s, &mut x, 1, N)?;
    drop((kernels, s, x));
    assert!(done.try_recv().is_err(), "the work has not been done yet");
    std::thread::scope(|scope| {
        scope.spawn(move || drop(go));
        drop(mine);
    });
    assert!(done.try_recv().is_ok(), "the last handle was dropped before the work was done");
    Ok(())
}

fn forgotten_guards_break_nothing(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let mut host = device.pinned::<u32>(N)?;
    let mut guard = host.write()?;
    guard.fill(5);
    mem::forget(guard);
    let mut x = s.alloc::<u32>(N)?;
    s.copy(&host, &mut x)?;
    mem::forget(host.read()?);
    s.fill(&mut x, 6)?;
    s.copy(&x, &mut host)?;
    assert_eq!(*host.read()?, [6; N]);
    Ok(())
}

fn forgotten_buffers_break_nothing(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let mut y = b.zeros::<u32>(N)?;
    let host = device.pinned_from(&[9u32; N])?;
    a.synchronize()?;
    b.synchronize()?;
    let gate = Gate::new(device)?;
    let mut x = a.full(N, 7u32)?;
    kernels.add_when(&a, gate.flag(), &mut x, 1, N)?;
    kernels.mix(&b, &x, &mut y, N)?;
    b.copy(&host, &mut x.slice_mut(..)?)?;
    mem::forget((x, host));
    gate.open();
    assert_all(&b, &y, 8)
}

fn forgotten_streams_break_nothing(device: &Device) -> Result<()> {
    let (kernels, [b]) = kernels_and_streams(device)?;
    let mut x = b.full(N, 1u32)?;
    for value in 0..10 {
        let a = device.stream()?;
        kernels.step(&a, &mut x, value, N)?;
        mem::forget(a);
    }
    let want = (0..10).fold(1u32, next);
    assert_all(&b, &x, want)
}

/// The host unwinds while a guard lives and work is pending.
fn a_panic_leaves_the_device_usable(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| -> Result<()> {
        let s = device.stream()?;
        let mut x = s.zeros::<u32>(N)?;
        let mut host = device.pinned::<u32>(N)?;
        kernels.step(&s, &mut x, 1, N)?;
        s.copy(&x, &mut host)?;
        let _guard = host.write()?;
        std::panic::resume_unwind(Box::new("on purpose"));
    }));
    assert!(unwound.is_err());
    let s = device.stream()?;
    assert_eq!(s.download(&s.full(N, 3u32)?)?, [3; N]);
    Ok(())
}

/// A new flag must not get the dropped flag's memory as long as a kernel may write it.
fn flags_live_as_long_as_their_kernels(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let gate = Gate::on(&kernels, &s)?;
    let mut late = device.flag()?;
    kernels.raise_flag(&s, &ONE, &mut late, 5)?;
    drop(late);
    let others = (0..10).map(|_| device.flag()).collect::<Result<Vec<_>>>()?;
    gate.open();
    s.synchronize()?;
    assert!(others.iter().all(|flag| flag.get() == 0), "a dropped flag's kernel wrote to another flag");
    Ok(())
}

/// When you have dropped all handles of a device, it must have as much free memory as before.
fn everything_is_returned(device: &Device) -> Result<()> {
    let work = || -> Result<()> {
        let mine = open_again(device, DeviceOptions::default())?;
        let kernels = sync::Kernels::load(&mine)?;
        let streams = (0..8).map(|_| mine.stream()).collect::<Result<Vec<_>>>()?;
        let mut keep = Vec::new();
        for (index, s) in streams.iter().cycle().take(64).enumerate() {
            let mut x = s.full(1000 * index + 1, 1u32)?;
            kernels.step(s, &mut x, 1, 1000 * index + 1)?;
            let mut host = mine.pinned::<u32>(x.len())?;
            s.copy(&x, &mut host)?;
            keep.push((x, host, s.record()?));
        }
        assert!(mine.memory_stats().used > 7 << 20, "{:?}", mine.memory_stats());
        drop(keep);
        until(|| {
            mine.synchronize()?;
            mine.trim();
            Ok(mine.memory_stats().reserved == 0)
        })?;
        assert_eq!(mine.memory_stats().used, 0);
        Ok(())
    };
    // The first run loads code that stays loaded.
    work()?;
    let gone = || -> Result<u64> {
        let before = device.memory()?.free;
        (0..3).try_for_each(|_| work())?;
        Ok(before.saturating_sub(device.memory()?.free))
    };
    // A driver may take more memory for itself at any time, so one good run is enough. If a handle leaked memory, it
    // would be missing each time.
    let gone = [gone()?, gone()?, gone()?];
    // On the CPU this is the whole machine's free memory, and other programs use it too.
    if device.info().backend != gpustream::BackendName::CPU {
        assert!(gone.iter().any(|bytes| *bytes <= 1 << 20), "{gone:?} bytes are gone");
    }
    Ok(())
}
