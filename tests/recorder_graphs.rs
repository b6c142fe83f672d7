//! What captures ask of the drivers, on drivers that log it: a call that would break one is never made.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod fakes;

use std::thread;

use gpustream::{ErrorKind, Result, Stream};

use fakes::on_both;

/// A driver breaks the capture off when it hears of any of these, and ROCm 6 the stream with it.
#[test]
fn misuse_is_refused_before_the_driver_hears_of_it() {
    on_both(|recorder, device| {
        let (s, other) = (device.stream().unwrap(), device.stream().unwrap());
        let mut x = s.full(1000, 1u32).unwrap();
        let y = s.full(1000, 2u32).unwrap();
        let mut pending = other.full(1000, 3u32).unwrap();
        let graph = s.capture(|s| s.fill(&mut pending, 4)).unwrap();
        device.synchronize().unwrap();
        recorder.hold();
        other.fill(&mut pending, 5).unwrap();
        let outside = other.record().unwrap();
        let captured = s
            .capture(|s| {
                s.fill(&mut x, 6)?;
                let inside = s.record()?;
                let offences: [(&str, &dyn Fn() -> Result<()>); 19] = [
                    ("synchronize", &|| s.synchronize()),
                    ("is_done", &|| s.is_done().map(drop)),
                    ("device.synchronize", &|| device.synchronize()),
                    ("event.synchronize", &|| inside.synchronize()),
                    ("event.is_done", &|| inside.is_done().map(drop)),
                    ("alloc", &|| s.alloc::<u32>(1000).map(drop)),
                    ("zeros", &|| s.zeros::<u32>(1000).map(drop)),
                    ("upload", &|| s.upload(&[1u32; 1000]).map(drop)),
                    ("long upload", &|| s.upload(&vec![1u32; 1 << 22]).map(drop)),
                    ("download", &|| s.download(&y).map(drop)),
                    ("download_into", &|| s.download_into(&y, &mut [0; 1000])),
                    ("host_fn", &|| s.host_fn(|| ())),
                    ("record_timed", &|| s.record_timed().map(drop)),
                    ("wait for what is outside", &|| s.wait(&outside)),
                    ("capture", &|| s.capture(|_| Ok(())).map(drop)),
                    ("launch", &|| graph.launch(s)),
                    ("upload of a graph", &|| graph.upload(s)),
                    ("record on another thread", &|| on_another_thread(|| s.record().map(drop))),
                    ("copy on another thread", &|| on_another_thread(|| s.host_fn_repeat(|| ()))),
                ];
                for (what, offence) in offences {
                    let (outcome, calls) = recorder.record(offence);
                    let Err(error) = outcome else { panic!("{what} was accepted") };
                    assert_eq!(error.kind(), ErrorKind::Captured, "{what}: {error}");
                    // An event that is made and goes again is nothing to the capture.
                    let heard: Vec<_> = calls
                        .iter()
                        .filter(|call| {
                            !call.name.contains("EventCreate") && !call.name.contains("EventDestroy")
                        })
                        .collect();
                    assert!(heard.is_empty(), "{what}: {heard:?}");
                }
                s.fill(&mut x, 7)
            })
            .unwrap();
        assert_eq!((captured.nodes(), captured.edges()), (2, 1));
        recorder.release();
        captured.launch(&s).unwrap();
        assert_eq!(s.download(&x).unwrap(), [7; 1000]);
        assert_eq!(s.download(&y).unwrap(), [2; 1000]);
    });
}

fn on_another_thread(work: impl FnOnce() -> Result<()> + Send) -> Result<()> {
    thread::scope(|scope| scope.spawn(work).join()).unwrap()
}

#[test]
fn captures_of_nothing_and_refused_ones_leave_nothing() {
    on_both(|recorder, device| {
        let s = device.stream().unwrap();
        let before = recorder.live();
        for _ in 0..3 {
            let graph = s.capture(|_| Ok(())).unwrap();
            graph.launch(&s).unwrap();
            s.synchronize().unwrap();
            drop(graph);
            assert!(s.capture(Stream::synchronize).is_err());
        }
        device.synchronize().unwrap();
        device.trim();
        let after = recorder.live();
        assert_eq!((after.graphs, after.graph_execs), (before.graphs, before.graph_execs));
    });
}
