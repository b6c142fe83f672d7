//! Futures resolve when the device gets there, on any executor.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use conformance::executor::{block_on, is_pending};
use conformance::{Gate, assert_all, kernels_and_streams, next, refused, sync, tests, until};
use gpustream::{Device, ErrorKind, Result};

tests! {
    Plain: an_events_future_resolves_when_it_is_reached, pinned_memory_is_done, a_download_arrives,
        futures_resolve_on_a_bare_executor, futures_resolve_on_tokio, futures_resolve_on_smol,
        later_work_does_not_delay_a_future, a_future_waits_for_its_streams_earlier_waits,
        a_future_ignores_its_streams_later_waits, finished_work_resolves_at_once, futures_outlive_everything,
        a_pending_future_reports_a_later_panic, the_last_waker_is_woken, a_waker_may_wait_when_dropped,
        futures_of_many_streams_resolve;
}

const N: usize = 3000;

/// A waker that remembers whether it was woken.
#[derive(Default)]
pub(crate) struct Woken(pub(crate) AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn an_events_future_resolves_when_it_is_reached(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let gate = Gate::on(&kernels, &s)?;
    let event = s.record()?;
    assert!(is_pending(&mut (&event).into_future()));
    gate.open();
    block_on(async {
        (&event).await?;
        assert!(event.is_done()?);
        event.await
    })?;
    assert!(s.is_done()?);
    let timed = s.record_timed()?;
    block_on(async {
        (&timed).await?;
        timed.await
    })
}

fn pinned_memory_is_done(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let x = s.full(N, 4u32)?;
    let mut host = device.pinned::<u32>(N)?;
    let (first, second) = (Gate::new(device)?, Gate::new(device)?);
    first.hold(&kernels, &s)?;
    s.copy(&x.slice(..100)?, &mut host.slice_mut(..100)?)?;
    second.hold(&kernels, &s)?;
    let mut ready = host.synchronize_async();
    assert!(is_pending(&mut ready));
    block_on(host.slice(100..)?.synchronize_async())?;
    first.open();
    block_on(ready)?;
    assert_eq!(host.read()?[..101], [&[4; 100][..], &[0]].concat());
    assert!(!s.is_done()?, "the work behind the copy still runs");
    Ok(())
}

fn a_download_arrives(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut x = s.full(N, 1u32)?;
    let gate = Gate::adding(&kernels, &s, &mut x, 1)?;
    let download = s.download_async(&x.slice(10..20)?);
    // The download keeps its place in the stream, so it must not see this fill.
    s.fill(&mut x, 9)?;
    drop(x);
    gate.open();
    assert_eq!(block_on(download)?, [2; 10]);
    let y = s.alloc::<u32>(N)?;
    refused(block_on(s.download_async(&y)), ErrorKind::Uninitialized, &[]);
    Ok(())
}

/// Runs a job of several stages on its own stream.
pub(crate) async fn job(device: Device, kernels: Arc<sync::Kernels>, seed: u32) -> Result<()> {
    let s = device.stream()?;
    let mut x = s.full(N, seed)?;
    let mut host = device.pinned::<u32>(N)?;
    let mut want = seed;
    for value in 0..5 {
        kernels.step(&s, &mut x, value, N)?;
        want = next(want, value);
        s.synchronize_async().await?;
        s.copy(&x, &mut host)?;
        host.synchronize_async().await?;
        // We drop the guard before the next await, because a guard must stay on its thread.
        assert_eq!(host.read()?[N - 1], want);
        s.record()?.synchronize_async().await?;
    }
    assert_eq!(s.download_async(&x).await?, vec![want; N]);
    Ok(())
}

fn futures_resolve_on_a_bare_executor(device: &Device) -> Result<()> {
    let kernels = Arc::new(sync::Kernels::load(device)?);
    block_on(job(device.clone(), kernels, 7))
}

fn futures_resolve_on_tokio(device: &Device) -> Result<()> {
    let kernels = Arc::new(sync::Kernels::load(device)?);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let jobs: Vec<_> =
            (0..50).map(|seed| tokio::spawn(job(device.clone(), kernels.clone(), seed))).collect();
        for job in jobs {
            job.await.unwrap()?;
        }
        Ok(())
    })
}

fn futures_resolve_on_smol(device: &Device) -> Result<()> {
    let kernels = Arc::new(sync::Kernels::load(device)?);
    smol::block_on(async {
        let jobs: Vec<_> =
            (0..50).map(|seed| smol::spawn(job(device.clone(), kernels.clone(), seed))).collect();
        for job in jobs {
            job.await?;
        }
        Ok(())
    })
}

/// A future covers only the work that was submitted before it.
fn later_work_does_not_delay_a_future(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let (first, second) = (Gate::new(device)?, Gate::new(device)?);
    first.hold(&kernels, &s)?;
    let (mut finished, event) = (s.synchronize_async(), s.record()?);
    second.hold(&kernels, &s)?;
    let mut reached = event.synchronize_async();
    assert!(is_pending(&mut finished) && is_pending(&mut finished) && is_pending(&mut reached));
    first.open();
    block_on(finished)?;
    block_on(reached)?;
    assert!(event.is_done()? && !s.is_done()?);
    second.open();
    block_on(s.synchronize_async())?;
    assert!(s.is_done()?);
    Ok(())
}

fn a_future_waits_for_its_streams_earlier_waits(device: &Device) -> Result<()> {
    let (kernels, [a, b, c]) = kernels_and_streams(device)?;
    let x = b.full(N, 1u32)?;
    b.synchronize()?;
    let gate = Gate::on(&kernels, &a)?;
    b.wait(&a.record()?)?;
    c.wait(&b.record()?)?;
    let mut futures = [
        b.synchronize_async(),
        b.record()?.synchronize_async(),
        c.synchronize_async(),
        c.record()?.synchronize_async(),
    ];
    assert!(futures.iter_mut().all(is_pending));
    gate.open();
    futures.into_iter().try_for_each(block_on)?;
    assert!(a.is_done()? && b.is_done()? && c.is_done()?);
    assert_all(&b, &x, 1)
}

/// You may poll the futures in any order.
fn a_future_ignores_its_streams_later_waits(device: &Device) -> Result<()> {
    let (kernels, [a, s]) = kernels_and_streams(device)?;
    let (first, second) = (Gate::new(device)?, Gate::new(device)?);
    second.hold(&kernels, &a)?;
    let event = a.record()?;
    first.hold(&kernels, &s)?;
    let (mut before, earlier) = (s.synchronize_async(), s.record()?);
    s.wait(&event)?;
    let (mut after, later) = (s.synchronize_async(), s.record()?);
    let (mut earlier, mut later) = (earlier.synchronize_async(), later.synchronize_async());
    assert!([&mut later, &mut after, &mut earlier, &mut before].into_iter().all(is_pending));
    first.open();
    until(|| Ok(!is_pending(&mut before)))?;
    until(|| Ok(!is_pending(&mut earlier)))?;
    assert!(is_pending(&mut after) && is_pending(&mut later));
    second.open();
    block_on(after)?;
    block_on(later)
}

fn finished_work_resolves_at_once(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let mut x = s.full(N, 1u32)?;
    s.fill(&mut x, 2)?;
    let event = s.record()?;
    s.synchronize()?;
    assert!(!is_pending(&mut s.synchronize_async()) && !is_pending(&mut event.synchronize_async()));
    assert!(!is_pending(&mut device.pinned::<u32>(N)?.synchronize_async()));
    Ok(())
}

/// We drop the stream, the buffer, the event and the device's handle before the futures.
fn futures_outlive_everything(device: &Device) -> Result<()> {
    let device = conformance::open_again(device, gpustream::DeviceOptions::default())?;
    let gate = Gate::new(&device)?;
    let (finished, done, download) = {
        let (kernels, [s]) = kernels_and_streams(&device)?;
        let mut x = s.full(N, 1u32)?;
        kernels.add_when(&s, gate.flag(), &mut x, 6, N)?;
        let event = s.record()?;
        (s.synchronize_async(), event.synchronize_async(), s.download_async(&x))
    };
    drop(device);
    gate.open();
    assert_eq!(block_on(download)?, [7; N]);
    block_on(done)?;
    block_on(finished)
}

fn a_pending_future_reports_a_later_panic(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let gate = Gate::on(&kernels, &s)?;
    s.host_fn(|| std::panic::resume_unwind(Box::new("later")))?;
    let mut finished = s.synchronize_async();
    assert!(is_pending(&mut finished));
    gate.open();
    refused(block_on(finished), ErrorKind::HostPanic, &["later"]);
    Ok(())
}

/// You may move a future to another task between polls. The task that polled last must be woken.
fn the_last_waker_is_woken(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let gate = Gate::on(&kernels, &s)?;
    let mut finished = s.synchronize_async();
    let (first, last) = (Arc::new(Woken::default()), Arc::new(Woken::default()));
    for woken in [&first, &last] {
        let waker = woken.clone().into();
        assert!(Pin::new(&mut finished).poll(&mut Context::from_waker(&waker)).is_pending());
    }
    gate.open();
    until(|| Ok(last.0.load(Ordering::SeqCst)))?;
    assert!(!first.0.load(Ordering::SeqCst));
    assert!(!is_pending(&mut finished));
    Ok(())
}

/// The waker's destructor waits for work. Only the thread that polls events can report that work, and the waker's own
/// future is ready too. So that thread must be free while the destructor runs.
fn a_waker_may_wait_when_dropped(device: &Device) -> Result<()> {
    type Once = Box<dyn FnOnce() -> Result<()> + Send>;
    struct Waits(Mutex<Option<Once>>, Arc<AtomicBool>);
    impl Wake for Waits {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for Waits {
        fn drop(&mut self) {
            let wait = self.0.lock().unwrap().take();
            self.1.store(wait.is_some_and(|wait| wait().is_ok()), Ordering::SeqCst);
        }
    }

    let (kernels, [s, other]) = kernels_and_streams(device)?;
    let (gate, last) = (Gate::new(device)?, Gate::new(device)?);
    gate.hold(&kernels, &s)?;
    let event = s.record()?;
    let mut finished = s.synchronize_async();
    last.hold(&kernels, &other)?;
    let mut others = other.synchronize_async();
    let waited = Arc::new(AtomicBool::new(false));
    let wait = move || {
        gate.open();
        until(|| event.is_done())?;
        assert!(is_pending(&mut others));
        last.open();
        block_on(others)
    };
    let waker = Waker::from(Arc::new(Waits(Mutex::new(Some(Box::new(wait))), waited.clone())));
    assert!(Pin::new(&mut finished).poll(&mut Context::from_waker(&waker)).is_pending());
    drop(waker);
    assert!(!waited.load(Ordering::SeqCst));
    // Only the future refers to the waker, and this poll replaces it.
    let _ = is_pending(&mut finished);
    assert!(waited.load(Ordering::SeqCst));
    block_on(finished)
}

/// The futures resolve in the same order as their streams go on.
fn futures_of_many_streams_resolve(device: &Device) -> Result<()> {
    let streams = (0..8).map(|_| device.stream()).collect::<Result<Vec<_>>>()?;
    let mut doors = Vec::new();
    let mut futures = Vec::new();
    for s in &streams {
        let (open, closed) = std::sync::mpsc::channel::<()>();
        s.host_fn(move || {
            let _ = closed.recv();
        })?;
        let mut finished = s.synchronize_async();
        if device.info().backend == gpustream::BackendName::CPU {
            assert!(is_pending(&mut finished));
        }
        futures.push(finished);
        doors.push(open);
    }
    // A driver may run all host functions on one thread, so we release them in the order of submission.
    for (door, future) in doors.into_iter().zip(futures) {
        drop(door);
        block_on(future)?;
    }
    Ok(())
}
