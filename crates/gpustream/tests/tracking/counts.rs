//! Pins how many driver calls each situation costs. If you change one of these numbers, you change the library's speed.

use gpustream::{DeviceOptions, ErrorKind, Tracking};

use crate::order::Call;
use crate::{Mem, paper, read, touch, write};

/// Returns the calls' names and streams. Events are left out.
fn names(calls: &[Call]) -> Vec<String> {
    let name = |call: &Call| match call {
        Call::Op { stream, .. } => Some(format!("op {stream}")),
        Call::Record { stream, .. } => Some(format!("record {stream}")),
        Call::Wait { stream, .. } => Some(format!("wait {stream}")),
        // We make the events now, because they are reused later.
        Call::EventCreate { .. } => None,
        other => Some(format!("{other:?}")),
    };
    calls.iter().filter_map(name).collect()
}

#[test]
fn explicit_order_costs_no_further_calls() {
    let (paper, _, kernel, [a, b]) = paper::open(DeviceOptions::default());
    let mut x = a.alloc::<u8>(100).unwrap();
    write(&kernel, &a, &mut x);
    let event = a.record().unwrap();
    b.wait(&event).unwrap();
    let ((), calls) = paper.calls_of(|| write(&kernel, &b, &mut x));
    assert_eq!(names(&calls), [format!("op {}", b.as_raw().0)]);
    // If the stream waits for the event again, or waits for its own event, there must be no call.
    let ((), calls) = paper.calls_of(|| {
        b.wait(&event).unwrap();
        a.wait(&event).unwrap();
    });
    assert_eq!(calls, []);
}

#[test]
fn a_hand_over_s_own_record_serves_the_next_stream_too() {
    let (paper, _, kernel, [a, b, c]) = paper::open(DeviceOptions::default());
    let mut x = a.alloc::<u8>(100).unwrap();
    write(&kernel, &a, &mut x);
    read(&kernel, &b, &x);
    let ((), calls) = paper.calls_of(|| read(&kernel, &c, &x));
    assert_eq!(names(&calls), [format!("wait {}", c.as_raw().0), format!("op {}", c.as_raw().0)]);
}

#[test]
fn one_wait_covers_what_it_is_ordered_after() {
    let (paper, _, kernel, [a, b, c]) = paper::open(DeviceOptions::default());
    let (mut x, mut y) = (a.alloc::<u8>(100).unwrap(), a.alloc::<u8>(100).unwrap());
    write(&kernel, &a, &mut x);
    b.wait(&a.record().unwrap()).unwrap();
    write(&kernel, &b, &mut y);
    // c needs x from a and y from b. One wait is enough, because b already waits for a.
    let (result, calls) = paper.calls_of(|| {
        touch(&kernel, &c, &mut [Mem::Read(x.slice(..).unwrap()), Mem::Read(y.slice(..).unwrap())])
    });
    result.unwrap();
    assert_eq!(calls.iter().filter(|call| matches!(call, Call::Wait { .. })).count(), 1, "{calls:?}");
    assert_eq!(calls.iter().filter(|call| matches!(call, Call::Record { .. })).count(), 1, "{calls:?}");
}

#[test]
fn memory_passes_to_another_stream_after_its_last_use() {
    let (paper, _, kernel, [a, b]) = paper::open(DeviceOptions::default());
    let mut x = a.alloc::<u8>(100).unwrap();
    write(&kernel, &a, &mut x);
    let address = x.as_raw();
    drop(x);
    // The same stream can reuse the memory immediately, without a call.
    let mut x = a.alloc::<u8>(100).unwrap();
    assert_eq!(x.as_raw(), address);
    let ((), calls) = paper.calls_of(|| write(&kernel, &a, &mut x));
    assert_eq!(names(&calls), [format!("op {}", a.as_raw().0)]);
    drop(x);
    // Another stream must get other memory while the work runs, and can get this memory when it is done.
    let y = b.alloc::<u8>(100).unwrap();
    assert_ne!(y.as_raw(), address);
    paper.finish_all();
    a.synchronize().unwrap();
    // The pool must find the memory before it asks the driver for more.
    let found = (0..10_000).any(|_| {
        let y = b.alloc::<u8>(100).unwrap();
        let found = y.as_raw() == address;
        std::mem::forget(y);
        found
    });
    assert!(found, "the memory was never allocated again");
    assert_eq!(paper.state().violations, Vec::<String>::new());
}

#[test]
fn untracked_streams_get_no_waits() {
    // SAFETY: operations don't really run.
    let (paper, _, kernel, [a, b]) = paper::open(unsafe { DeviceOptions::default().without_tracking() });
    let mut x = a.alloc::<u8>(100).unwrap();
    write(&kernel, &a, &mut x);
    let ((), calls) = paper.calls_of(|| write(&kernel, &b, &mut x));
    assert_eq!(names(&calls), [format!("op {}", b.as_raw().0)]);
}

#[test]
fn a_refused_operation_leaves_no_trace_on_its_other_arguments() {
    let (paper, _, kernel, [a, b, c]) = paper::open(DeviceOptions::default().tracking(Tracking::Strict));
    let (mut x, mut y) = (a.alloc::<u8>(100).unwrap(), b.alloc::<u8>(100).unwrap());
    write(&kernel, &a, &mut x);
    // The access to y would be allowed, but the one to x is not, so we must refuse the whole launch.
    let both = &mut [Mem::Write(y.slice_mut(..).unwrap()), Mem::Read(x.slice(..).unwrap())];
    assert_eq!(touch(&kernel, &b, both).unwrap_err().kind(), ErrorKind::Hazard);
    // So y must still be unused.
    let ((), calls) = paper.calls_of(|| write(&kernel, &c, &mut y));
    assert_eq!(names(&calls), [format!("op {}", c.as_raw().0)]);
}

#[test]
fn long_ping_pong_reuses_its_events() {
    let (paper, _, kernel, [a, b]) = paper::open(DeviceOptions::default());
    let mut x = a.alloc::<u8>(100).unwrap();
    for round in 0..500 {
        write(&kernel, &a, &mut x);
        write(&kernel, &b, &mut x);
        if round % 7 == 0 {
            paper.finish_all();
        }
    }
    assert!(paper.live().events <= 2 * 33, "{:?}", paper.live());
    assert_eq!(paper.state().violations, Vec::<String>::new());
}

#[test]
fn many_pinned_operations_keep_their_marks_bounded_and_right() {
    let (paper, device, kernel, [a, b]) = paper::open(DeviceOptions::default());
    let mut x = a.zeros::<u8>(100).unwrap();
    let mut hosts: Vec<_> = (0..300).map(|_| device.pinned::<u8>(100).unwrap()).collect();
    // No operation finishes meanwhile, so the library has to drop some marks.
    for host in &mut hosts {
        a.copy(&x, host).unwrap();
    }
    assert!(paper.live().events <= 33, "{:?}", paper.live());
    for host in &hosts {
        drop(host.read().unwrap());
        let start = host.as_raw().0;
        let touch = crate::order::Touch { range: start..start + 100, write: false };
        paper.state().order.check_host(&touch).unwrap();
    }
    write(&kernel, &b, &mut x);
    assert_eq!(paper.state().violations, Vec::<String>::new());
}
