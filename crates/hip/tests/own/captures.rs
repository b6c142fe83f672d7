//! Events from before a capture. While their stream is captured, HIP refuses each use: a query or a host thread's wait breaks the
//! capture, and a stream's wait is an error. Other threads can make such uses at any moment.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;

use gpustream::hal::StreamOptions;
use gpustream::{Buffer, DefaultStream, Device, ErrorKind, Event, Pinned, Result, Stream};

use super::safe::start;
use crate::{Recorder, backend};

/// Pending work on `s`, and what refers to it.
struct Pending {
    s: Stream,
    other: Stream,
    x: Buffer<u32>,
    host: Pinned<u32>,
    event: Event,
}

impl Pending {
    fn on(recorder: &Recorder, device: &Device, s: Stream) -> Self {
        let other = device.stream().unwrap();
        let (mut x, mut host) = (s.alloc::<u32>(10).unwrap(), device.pinned::<u32>(10).unwrap());
        recorder.hold();
        s.fill(&mut x, 1).unwrap();
        s.copy(&x, &mut host).unwrap();
        let event = s.record().unwrap();
        Self { s, other, x, host, event }
    }

    /// Uses the work's events. Each use waits until the work is done.
    const USES: [fn(&Self) -> Result<()>; 8] = [
        |it| it.event.synchronize(),
        |it| {
            while !it.event.is_done()? {
                thread::yield_now();
            }
            Ok(())
        },
        |it| {
            while !it.host.is_done()? {
                thread::yield_now();
            }
            Ok(())
        },
        |it| wait_for(it.host.synchronize_async()),
        |it| {
            assert_eq!(*it.host.read()?, [1; 10]);
            Ok(())
        },
        |it| {
            assert_eq!(it.other.download(&it.x)?, [1; 10]);
            Ok(())
        },
        |it| it.other.wait(&it.event).and_then(|()| it.other.synchronize()),
        |it| it.device().stream()?.duplicate(&it.x).map(drop),
    ];

    fn device(&self) -> &Device {
        self.s.device()
    }
}

/// Blocks until the future is ready.
fn wait_for(future: impl Future<Output = Result<()>>) -> Result<()> {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(outcome) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return outcome;
        }
        thread::yield_now();
    }
}

/// Other threads may use a stream's earlier work and wait for it while we capture the stream. All of them must finish inside
/// the capture.
#[test]
fn earlier_work_is_asked_about_and_waited_for_inside_a_capture() {
    let (recorder, device) = start();
    let pending = Pending::on(&recorder, &device, device.stream().unwrap());
    let mut y = pending.s.alloc::<u32>(10).unwrap();
    thread::scope(|scope| {
        let pending = &pending;
        // The driver has let this thread in before.
        let waits = scope.spawn(|| pending.event.synchronize());
        recorder.wait_until_someone_waits();
        let mut future = pin!(pending.s.synchronize_async());
        assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let graph = pending.s.capture(|s| {
            s.fill(&mut y, 2)?;
            let threads = Pending::USES.map(|work| scope.spawn(move || work(pending)));
            recorder.release();
            waits.join().unwrap()?;
            for thread in threads {
                thread.join().unwrap().unwrap();
            }
            wait_for(future)?;
            // This thread too.
            assert_eq!(*pending.host.read()?, [1; 10]);
            assert!(pending.event.is_done()?);
            s.fill(&mut y, 3)
        });
        let graph = graph.unwrap();
        assert_eq!((graph.node_count(), graph.edge_count()), (2, 1));
        graph.launch(&pending.s).unwrap();
    });
    assert_eq!(pending.s.download(&y).unwrap(), [3; 10]);
}

/// If a stream joins, it must be treated like the first one.
#[test]
fn earlier_work_of_a_stream_that_joins_is_waited_for_inside_the_capture() {
    let (recorder, device) = start();
    let origin = device.stream().unwrap();
    let pending = Pending::on(&recorder, &device, device.stream().unwrap());
    let mut y = pending.s.alloc::<u32>(10).unwrap();
    thread::scope(|scope| {
        let pending = &pending;
        let graph = origin.capture(|origin| {
            pending.s.wait(&origin.record()?)?;
            pending.s.fill(&mut y, 2)?;
            let threads = Pending::USES.map(|work| scope.spawn(move || work(pending)));
            recorder.release();
            for thread in threads {
                thread.join().unwrap().unwrap();
            }
            origin.fill(&mut y, 3)
        });
        let graph = graph.unwrap();
        assert_eq!(graph.node_count(), 2);
        graph.launch(&origin).unwrap();
    });
    assert_eq!(origin.download(&y).unwrap(), [3; 10]);
}

/// The pending work's memory may get a new owner on another stream, which must wait for that work.
#[test]
fn memory_of_earlier_work_is_reused_beside_the_capture() {
    let (recorder, device) = start();
    let Pending { s, other, x, host, event } = Pending::on(&recorder, &device, device.stream().unwrap());
    let address = x.as_raw();
    let graph = s.capture(|_| {
        drop((x, host));
        // Fresh memory goes first, and the driver has no more.
        recorder.set_memory(0, 0);
        let mut owners = Vec::new();
        while owners.last().is_none_or(|y: &Buffer<u32>| y.as_raw() != address) {
            owners.push(other.alloc(10)?);
        }
        owners.iter_mut().try_for_each(|y| other.fill(y, 5))?;
        recorder.release();
        other.synchronize()
    });
    assert_eq!(graph.unwrap().node_count(), 0);
    assert!(event.is_done().unwrap());
}

/// We must make the proxy stream only once, and it goes with the stream that it stands for.
#[test]
fn the_driver_captures_another_stream() {
    let (recorder, device) = start();
    let before = recorder.live();
    let s = device.stream().unwrap();
    let mut x = s.alloc::<u32>(10).unwrap();
    s.fill(&mut x, 1).unwrap();
    let streams = |word: &str| -> Vec<u64> {
        recorder.calls().iter().filter(|call| call.name == word).map(|call| call.arg("stream")).collect()
    };
    recorder.clear();
    for value in 2..4 {
        let graph = s.capture(|s| s.fill(&mut x, value)).unwrap();
        s.fill(&mut x, 9).unwrap();
        graph.launch(&s).unwrap();
        assert_eq!(s.download(&x).unwrap(), [value; 10]);
    }
    assert_eq!(recorder.count("hipStreamCreateWithPriority"), 1);
    let own = streams("hipGraphLaunch")[0];
    let captured = streams("hipStreamBeginCapture");
    assert_eq!(captured, streams("hipStreamEndCapture"));
    assert!(captured[0] == captured[1] && captured[0] != own, "{captured:?} beside {own}");
    // The program sees the stream that takes its work.
    let graph = s.capture(|s| {
        assert_eq!(s.as_raw().0 as u64, captured[0]);
        // SAFETY: the closure gives the stream nothing.
        unsafe {
            s.external("look", (), |raw, ()| {
                assert_eq!(raw, s.as_raw());
                Ok::<_, gpustream::Error>(())
            })
        }
    });
    drop(graph);
    assert_eq!(s.as_raw().0 as u64, own);
    drop((s, x));
    device.trim();
    assert_eq!(recorder.live().streams, before.streams);
}

/// If others have a stream's handle, we capture the stream itself, because they submit to that handle. We then wait for its
/// earlier work after the capture, so nothing breaks it.
#[test]
fn earlier_work_of_a_shared_stream_is_waited_for_after_the_capture() {
    let make: [fn(&Device) -> Stream; 3] = [
        |device| {
            let s = device.stream().unwrap();
            s.as_raw();
            s
        },
        |device| device.default_stream(DefaultStream::PerThread).unwrap(),
        |device| {
            let raw = backend().open(0).unwrap().stream_create(StreamOptions::default()).unwrap();
            // SAFETY: the stream is never destroyed.
            unsafe { device.stream_from_raw(raw) }
        },
    ];
    for make in make {
        let (recorder, device) = start();
        let pending = Pending::on(&recorder, &device, make(&device));
        let mut y = pending.s.alloc::<u32>(10).unwrap();
        thread::scope(|scope| {
            let pending = &pending;
            let waits = scope.spawn(|| pending.event.synchronize());
            let mut after = None;
            let graph = pending.s.capture(|s| {
                s.fill(&mut y, 2)?;
                let threads = Pending::USES.map(|work| scope.spawn(move || work(pending)));
                recorder.release();
                let is_done = || scope.spawn(|| pending.event.is_done()).join().unwrap();
                assert!((0..100).all(|_| !is_done().unwrap()));
                let own: [(&str, &dyn Fn() -> Result<()>); 4] = [
                    ("event", &|| pending.event.synchronize()),
                    ("guard", &|| pending.host.read().map(drop)),
                    ("stream", &|| pending.other.wait(&pending.event)),
                    ("operation", &|| pending.other.duplicate(&pending.x).map(drop)),
                ];
                for (what, wait) in own {
                    assert_eq!(wait().map_err(|error| error.kind()), Err(ErrorKind::Captured), "{what}");
                }
                after = Some(threads);
                s.fill(&mut y, 3)
            });
            let graph = graph.unwrap();
            waits.join().unwrap().unwrap();
            for thread in after.unwrap() {
                thread.join().unwrap().unwrap();
            }
            assert_eq!(graph.node_count(), 2);
            graph.launch(&pending.s).unwrap();
        });
    }
}
