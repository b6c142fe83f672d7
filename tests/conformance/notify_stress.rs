//! You may drop or forget futures or have thousands of them, executors may panic, and devices may fail. No other future
//! may hang or be disturbed.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake};
use std::{mem, panic};

use conformance::executor::{block_on, is_pending};
use conformance::{Gate, ONE, assert_all, faulty, kernels_and_streams, next, refused, sync, tests, until};
use gpustream::{Buffer, Device, ErrorKind, Result, Stream};

use crate::notify::{Woken, job};

tests! {
    Plain: dropped_futures_disturb_no_others, forgotten_futures_disturb_no_others,
        a_panicking_waker_disturbs_no_other_future;
    Isolated: ten_thousand_pending_futures_take_no_threads, a_fault_resolves_everything;
}

const N: usize = 3000;

type Pending = Pin<Box<dyn Future<Output = Result<()>>>>;

/// Makes one future of each kind for pending work.
fn each_kind(device: &Device, s: &Stream, x: &Buffer<u32>) -> Result<[Pending; 4]> {
    let mut host = device.pinned::<u32>(N)?;
    s.copy(x, &mut host)?;
    let download = s.download_async(x);
    Ok([
        Box::pin(s.synchronize_async()),
        Box::pin(s.record()?.synchronize_async()),
        Box::pin(host.synchronize_async()),
        Box::pin(async { download.await.map(drop) }),
    ])
}

/// Makes two futures of each kind, and polls the second ones.
fn polled_and_not(
    device: &Device,
    s: &Stream,
    x: &Buffer<u32>,
    woken: &Arc<Woken>,
) -> Result<[[Pending; 4]; 2]> {
    let mut futures = [each_kind(device, s, x)?, each_kind(device, s, x)?];
    for future in &mut futures[1] {
        assert!(future.as_mut().poll(&mut Context::from_waker(&woken.clone().into())).is_pending());
    }
    Ok(futures)
}

fn dropped_futures_disturb_no_others(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let x = s.full(N, 1u32)?;
    let gate = Gate::on(&kernels, &s)?;
    let woken = Arc::new(Woken::default());
    for _ in 0..30 {
        drop(polled_and_not(device, &s, &x, &woken)?);
    }
    let finished = s.synchronize_async();
    gate.open();
    block_on(finished)?;
    until(|| Ok(Arc::strong_count(&woken) == 1))?;
    assert!(!woken.0.load(Ordering::SeqCst), "a dropped future was woken");
    assert_all(&s, &x, 1)
}

/// The memory that a forgotten download fills must never be allocated again.
fn forgotten_futures_disturb_no_others(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let x = s.full(N, 1u32)?;
    s.synchronize()?;
    let gate = Gate::on(&kernels, &s)?;
    let woken = Arc::new(Woken::default());
    for _ in 0..10 {
        mem::forget(polled_and_not(device, &s, &x, &woken)?);
    }
    let mut others = (0..20).map(|_| device.pinned::<u32>(N)).collect::<Result<Vec<_>>>()?;
    for other in &mut others {
        other.write()?.fill(5);
    }
    gate.open();
    s.synchronize()?;
    for other in &others {
        assert_eq!(*other.read()?, [5; N]);
    }
    // A forgotten future is resolved like any other.
    until(|| Ok(Arc::strong_count(&woken) == 1 && woken.0.load(Ordering::SeqCst)))
}

/// A waker panics when it is woken. That must not disturb other futures.
fn a_panicking_waker_disturbs_no_other_future(device: &Device) -> Result<()> {
    struct Panics(AtomicBool);
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
            panic::resume_unwind(Box::new("on purpose"));
        }
    }
    let kernels = sync::Kernels::load(device)?;
    let streams = [device.stream()?, device.stream()?];
    let gate = Gate::new(device)?;
    let waker = Arc::new(Panics(AtomicBool::new(false)));
    let mut futures = Vec::new();
    for s in &streams {
        gate.hold(&kernels, s)?;
        for number in 0..10 {
            let mut finished = s.synchronize_async();
            if number % 2 == 0 {
                let waker = waker.clone().into();
                assert!(Pin::new(&mut finished).poll(&mut Context::from_waker(&waker)).is_pending());
            }
            futures.push(finished);
        }
    }
    let (first, last) = (futures.swap_remove(1), futures.swap_remove(3));
    gate.open();
    block_on(first)?;
    until(|| Ok(waker.0.load(Ordering::SeqCst)))?;
    block_on(last)?;
    futures.into_iter().try_for_each(block_on)?;
    // Later futures must not be disturbed either.
    let gate = Gate::on(&kernels, &streams[0])?;
    let mut finished = streams[0].synchronize_async();
    assert!(is_pending(&mut finished));
    gate.open();
    block_on(finished)
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

fn ten_thousand_pending_futures_take_no_threads(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let streams = (0..4).map(|_| device.stream()).collect::<Result<Vec<_>>>()?;
    let first = &streams[0];
    let gate = Gate::on(&kernels, first)?;
    let event = first.record()?;
    let mut x = (0..4).map(|i| streams[i].full(10, 1u32)).collect::<Result<Vec<_>>>()?;
    let mut futures = Vec::new();
    let mut before = 0;
    for round in 0..10_000 {
        let s = &streams[round % 4];
        if round < 4 {
            s.wait(&event)?;
        }
        if round < 400 {
            kernels.step(s, &mut x[round % 4], 1, 10)?;
        }
        let mut finished = s.synchronize_async();
        assert!(is_pending(&mut finished));
        futures.push(finished);
        if round == 0 {
            before = threads();
        }
    }
    // The CPU backend may have added threads for the streams, but there must be none for the futures.
    assert!(threads() <= before + 8, "{before} threads became {}", threads());
    gate.open();
    futures.into_iter().try_for_each(block_on)?;
    for (s, x) in streams.iter().zip(&x) {
        let want = (0..100).fold(1u32, |x, _| next(x, 1));
        assert_eq!(s.download(x)?, [want; 10]);
    }
    Ok(())
}

/// Every future must resolve with the error. None may hang, and none may report success.
fn a_fault_resolves_everything(device: &Device) -> Result<()> {
    let (kernels, broken) = (sync::Kernels::load(device)?, faulty::Kernels::load(device)?);
    let streams = (0..8).map(|_| device.stream()).collect::<Result<Vec<_>>>()?;
    let mut buffers = streams.iter().map(|s| s.full(N, 1u32)).collect::<Result<Vec<_>>>()?;
    let mut hosts = (0..8).map(|_| device.pinned::<u32>(8 * N)).collect::<Result<Vec<_>>>()?;
    let mut late = device.pinned::<u32>(N)?;
    conformance::synchronize(device)?;
    let gate = Gate::on(&kernels, &streams[0])?;
    // SAFETY: this process is made to fail.
    unsafe { broken.wild(&streams[0], &ONE, 0x0dea_d000_0000) }?;
    let event = streams[0].record()?;
    let mut futures: Vec<Pending> = Vec::new();
    for round in 0..100 {
        let (s, x) = (&streams[round % 8], &mut buffers[round % 8]);
        s.wait(&event)?;
        kernels.step(s, x, 1, N)?;
        // All streams write to each piece of memory, so its futures must wait for all of them.
        s.copy(x, &mut hosts[round / 8 % 8].slice_mut(round % 8 * N..(round % 8 + 1) * N)?)?;
        let mut future: Pending = match round / 8 % 4 {
            0 => Box::pin(s.synchronize_async()),
            1 => Box::pin(s.record()?.synchronize_async()),
            2 => Box::pin(hosts[round / 8 % 8].synchronize_async()),
            _ => {
                let download = s.download_async(x);
                Box::pin(async { download.await.map(drop) })
            }
        };
        assert!(is_pending(&mut future));
        futures.push(future);
    }
    // We drop the value of this adopted stream before the fault.
    // SAFETY: the owner of the stream outlives the value.
    let adopted = unsafe { device.stream_from_raw(streams[7].as_raw()) };
    adopted.copy(&buffers[7], &mut late)?;
    let mut future: Pending = Box::pin(adopted.synchronize_async());
    assert!(is_pending(&mut future));
    futures.push(future);
    drop(adopted);
    gate.open();
    for future in futures {
        refused(block_on(future), ErrorKind::DeviceLost, &[]);
    }
    // One thread resolves all futures, and it must still work.
    for (s, host) in streams.iter().zip(&hosts) {
        refused(block_on(s.synchronize_async()), ErrorKind::DeviceLost, &[]);
        refused(block_on(host.synchronize_async()), ErrorKind::DeviceLost, &[]);
    }
    refused(late.read(), ErrorKind::DeviceLost, &[]);
    let cpu = Device::open("cpu")?;
    block_on(job(cpu.clone(), Arc::new(sync::Kernels::load(&cpu)?), 3))
}
