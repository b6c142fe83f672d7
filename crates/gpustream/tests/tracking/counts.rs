//! The driver calls that each situation costs.

use gpustream::{Arg, Buffer, Device, DeviceOptions, ErrorKind, Kernel, Launch, Stream, Tracking};

use crate::order::Call;
use crate::paper::{self, Paper};
use crate::{Mem, touch};

fn open() -> (std::sync::Arc<Paper>, Device, Kernel) {
    let paper = Paper::new();
    let device = paper.open(DeviceOptions::default());
    let kernel = paper::kernel(&device);
    (paper, device, kernel)
}

fn read(kernel: &Kernel, stream: &Stream, buffer: &Buffer<u8>) {
    touch(kernel, stream, &mut [Mem::Read(buffer.slice(..).unwrap())]).unwrap();
}

fn write(kernel: &Kernel, stream: &Stream, buffer: &mut Buffer<u8>) {
    touch(kernel, stream, &mut [Mem::Write(buffer.slice_mut(..).unwrap())]).unwrap();
}

/// Returns the calls' names, with streams; events are left out.
fn names(calls: &[Call]) -> Vec<String> {
    let name = |call: &Call| match call {
        Call::Op { stream, .. } => Some(format!("op {stream}")),
        Call::HostFn { stream } => Some(format!("host {stream}")),
        Call::Record { stream, .. } => Some(format!("record {stream}")),
        Call::Wait { stream, .. } => Some(format!("wait {stream}")),
        Call::EventSeen { .. } => Some("sync".into()),
        Call::EventPending { .. } => Some("pending".into()),
        Call::StreamSeen { stream } => Some(format!("sync {stream}")),
        Call::DeviceSeen => Some("sync all".into()),
        // Events are made once and used again.
        Call::EventCreate { .. } => None,
        other => Some(format!("{other:?}")),
    };
    calls.iter().filter_map(name).collect()
}

#[test]
fn one_stream_costs_no_event_call() {
    let (paper, device, kernel) = open();
    let a = device.stream().unwrap();
    let (mut x, mut y) = (a.alloc::<u8>(100).unwrap(), a.zeros::<u8>(100).unwrap());
    let ((), calls) = paper.calls_of(|| {
        for _ in 0..10 {
            write(&kernel, &a, &mut x);
            a.copy(&x, &mut y).unwrap();
            a.fill(&mut x, 3).unwrap();
            read(&kernel, &a, &y);
        }
    });
    assert_eq!(calls.len(), 40, "{calls:?}");
    assert!(calls.iter().all(|call| matches!(call, Call::Op { .. })), "{calls:?}");
}

#[test]
fn a_hand_over_is_one_record_and_one_wait_and_the_second_nothing() {
    let (paper, device, kernel) = open();
    let (a, b) = (device.stream().unwrap(), device.stream().unwrap());
    let (ida, idb) = (a.as_raw().0, b.as_raw().0);
    let mut x = a.alloc::<u8>(100).unwrap();
    write(&kernel, &a, &mut x);
    let ((), calls) = paper.calls_of(|| read(&kernel, &b, &x));
    assert_eq!(names(&calls), [format!("record {ida}"), format!("wait {idb}"), format!("op {idb}")]);
    let ((), calls) = paper.calls_of(|| read(&kernel, &b, &x));
    assert_eq!(names(&calls), [format!("op {idb}")]);
    // The memory goes back to the first stream.
    let ((), calls) = paper.calls_of(|| write(&kernel, &a, &mut x));
    assert_eq!(names(&calls), [format!("record {idb}"), format!("wait {ida}"), format!("op {ida}")]);
    let ((), calls) = paper.calls_of(|| write(&kernel, &a, &mut x));
    assert_eq!(names(&calls), [format!("op {ida}")]);
}

#[test]
fn explicit_order_costs_no_further_calls() {
    let (paper, device, kernel) = open();
    let (a, b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut x = a.alloc::<u8>(100).unwrap();
    write(&kernel, &a, &mut x);
    let event = a.record().unwrap();
    b.wait(&event).unwrap();
    let ((), calls) = paper.calls_of(|| write(&kernel, &b, &mut x));
    assert_eq!(names(&calls), [format!("op {}", b.as_raw().0)]);
    // Another wait for the event, on this stream or on its own, makes no call.
    let ((), calls) = paper.calls_of(|| {
        b.wait(&event).unwrap();
        a.wait(&event).unwrap();
    });
    assert_eq!(calls, []);
}

#[test]
fn a_hand_over_s_own_record_serves_the_next_stream_too() {
    let (paper, device, kernel) = open();
    let (a, b, c) = (device.stream().unwrap(), device.stream().unwrap(), device.stream().unwrap());
    let mut x = a.alloc::<u8>(100).unwrap();
    write(&kernel, &a, &mut x);
    read(&kernel, &b, &x);
    let ((), calls) = paper.calls_of(|| read(&kernel, &c, &x));
    assert_eq!(names(&calls), [format!("wait {}", c.as_raw().0), format!("op {}", c.as_raw().0)]);
}

#[test]
fn pinned_memory_costs_a_record_when_something_else_is_submitted() {
    let (paper, device, _) = open();
    let a = device.stream().unwrap();
    let ida = a.as_raw().0;
    let host = device.pinned::<u8>(100).unwrap();
    let mut x = a.alloc::<u8>(100).unwrap();
    let ((), calls) = paper.calls_of(|| a.copy(&host, &mut x).unwrap());
    assert_eq!(names(&calls), [format!("op {ida}")]);
    let ((), calls) = paper.calls_of(|| drop(host.read().unwrap()));
    assert_eq!(calls, [], "only readers are under way");
    // A wait of the host for one of the two copies is a wait for both.
    let ((), calls) = paper.calls_of(|| a.copy(&host, &mut x).unwrap());
    assert_eq!(names(&calls), [format!("op {ida}")]);
    let ((), calls) = paper.calls_of(|| a.fill(&mut x, 1).unwrap());
    assert_eq!(names(&calls), [format!("record {ida}"), format!("op {ida}")]);
}

#[test]
fn reading_pinned_memory_waits_for_its_copy_alone() {
    let (paper, device, kernel) = open();
    let a = device.stream().unwrap();
    let mut host = device.pinned::<u8>(100).unwrap();
    let mut x = a.zeros::<u8>(100).unwrap();
    a.copy(&x, &mut host).unwrap();
    let copies = paper.state().order.ops();
    write(&kernel, &a, &mut x);
    assert!(!host.is_done().unwrap());
    drop(host.read().unwrap());
    let known = paper.state().order.known_to_host().clone();
    assert!((0..copies).all(|op| known.contains(op)), "the copy is done");
    assert!(!known.contains(copies), "the work behind the copy need not be done");
    assert!(host.is_done().unwrap());
}

#[test]
fn the_writer_is_not_waited_for_where_its_reader_is() {
    let (paper, device, kernel) = open();
    let streams: Vec<Stream> = (0..4).map(|_| device.stream().unwrap()).collect();
    let ids: Vec<usize> = streams.iter().map(|stream| stream.as_raw().0).collect();
    let mut x = streams[0].alloc::<u8>(100).unwrap();
    write(&kernel, &streams[0], &mut x);
    read(&kernel, &streams[1], &x);
    let ((), calls) = paper.calls_of(|| write(&kernel, &streams[2], &mut x));
    assert_eq!(
        names(&calls),
        [format!("record {}", ids[1]), format!("wait {}", ids[2]), format!("op {}", ids[2])]
    );
    // Both of two unordered readers are waited for.
    read(&kernel, &streams[0], &x);
    read(&kernel, &streams[1], &x);
    let ((), calls) = paper.calls_of(|| write(&kernel, &streams[3], &mut x));
    let waits = calls.iter().filter(|call| matches!(call, Call::Wait { .. })).count();
    assert_eq!(waits, 2, "{calls:?}");
}

#[test]
fn one_wait_covers_what_it_is_ordered_after() {
    let (paper, device, kernel) = open();
    let (a, b, c) = (device.stream().unwrap(), device.stream().unwrap(), device.stream().unwrap());
    let (mut x, mut y) = (a.alloc::<u8>(100).unwrap(), a.alloc::<u8>(100).unwrap());
    write(&kernel, &a, &mut x);
    b.wait(&a.record().unwrap()).unwrap();
    write(&kernel, &b, &mut y);
    // c needs x from a and y from b; b already waits for a.
    let (result, calls) = paper.calls_of(|| {
        touch(&kernel, &c, &mut [Mem::Read(x.slice(..).unwrap()), Mem::Read(y.slice(..).unwrap())])
    });
    result.unwrap();
    assert_eq!(calls.iter().filter(|call| matches!(call, Call::Wait { .. })).count(), 1, "{calls:?}");
    assert_eq!(calls.iter().filter(|call| matches!(call, Call::Record { .. })).count(), 1, "{calls:?}");
}

#[test]
fn readers_do_not_wait_for_readers() {
    let (paper, device, kernel) = open();
    let (a, b) = (device.stream().unwrap(), device.stream().unwrap());
    let x = a.alloc::<u8>(100).unwrap();
    read(&kernel, &a, &x);
    let ((), calls) = paper.calls_of(|| read(&kernel, &b, &x));
    assert_eq!(names(&calls), [format!("op {}", b.as_raw().0)]);
}

#[test]
fn disjoint_ranges_are_independent() {
    let (paper, device, kernel) = open();
    let (a, b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut x = a.alloc::<u8>(100).unwrap();
    let ((), calls) = paper.calls_of(|| {
        let (left, right) = x.split_at_mut(37).unwrap();
        touch(&kernel, &a, &mut [Mem::Write(left)]).unwrap();
        touch(&kernel, &b, &mut [Mem::Write(right)]).unwrap();
    });
    assert!(calls.iter().all(|call| matches!(call, Call::Op { .. })), "{calls:?}");
    // One byte of overlap is enough.
    let ((), calls) = paper.calls_of(|| {
        touch(&kernel, &b, &mut [Mem::Read(x.slice(36..40).unwrap())]).unwrap();
    });
    assert_eq!(names(&calls).len(), 3, "{calls:?}");
}

#[test]
fn an_event_carries_what_its_stream_waited_for() {
    let (paper, device, _) = open();
    let (a, b, c) = (device.stream().unwrap(), device.stream().unwrap(), device.stream().unwrap());
    let mut x = a.alloc::<u8>(100).unwrap();
    // b never had an operation of its own, so its event stands for a's work alone.
    a.fill(&mut x, 1).unwrap();
    b.wait(&a.record().unwrap()).unwrap();
    c.wait(&b.record().unwrap()).unwrap();
    let before = paper.state().order.seen_by_stream(c.as_raw().0);
    assert!(before.contains(0), "c waits for a through b");
    // The same holds if c already waits for b's last operation.
    let mut y = b.alloc::<u8>(100).unwrap();
    b.fill(&mut y, 1).unwrap();
    c.wait(&b.record().unwrap()).unwrap();
    a.fill(&mut x, 2).unwrap();
    b.wait(&a.record().unwrap()).unwrap();
    c.wait(&b.record().unwrap()).unwrap();
    let before = paper.state().order.seen_by_stream(c.as_raw().0);
    assert!(before.contains(2), "c waits for a's second operation through b");
}

#[test]
fn work_that_the_host_saw_done_is_not_waited_for() {
    let (paper, device, kernel) = open();
    let (a, b, c) = (device.stream().unwrap(), device.stream().unwrap(), device.stream().unwrap());
    let mut x = a.alloc::<u8>(100).unwrap();
    let op = |stream: &Stream| vec![format!("op {}", stream.as_raw().0)];
    write(&kernel, &a, &mut x);
    b.wait(&a.record().unwrap()).unwrap();
    // The host synchronises with b, which did not write but waited for the writer.
    b.synchronize().unwrap();
    let ((), calls) = paper.calls_of(|| write(&kernel, &c, &mut x));
    assert_eq!(names(&calls), op(&c));
    c.record().unwrap().synchronize().unwrap();
    let ((), calls) = paper.calls_of(|| write(&kernel, &b, &mut x));
    assert_eq!(names(&calls), op(&b));
    paper.finish_all();
    assert!(b.is_done().unwrap());
    let ((), calls) = paper.calls_of(|| write(&kernel, &a, &mut x));
    assert_eq!(names(&calls), op(&a));
    device.synchronize().unwrap();
    let ((), calls) = paper.calls_of(|| write(&kernel, &b, &mut x));
    assert_eq!(names(&calls), op(&b));
}

#[test]
fn memory_passes_to_another_stream_after_its_last_use() {
    let (paper, device, kernel) = open();
    let (a, b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut x = a.alloc::<u8>(100).unwrap();
    write(&kernel, &a, &mut x);
    let address = x.as_raw();
    drop(x);
    // The same stream reuses the memory at once, without a call.
    let mut x = a.alloc::<u8>(100).unwrap();
    assert_eq!(x.as_raw(), address);
    let ((), calls) = paper.calls_of(|| write(&kernel, &a, &mut x));
    assert_eq!(names(&calls), [format!("op {}", a.as_raw().0)]);
    drop(x);
    // Another stream gets other memory while the work runs, and this memory when the work is done.
    let y = b.alloc::<u8>(100).unwrap();
    assert_ne!(y.as_raw(), address);
    paper.finish_all();
    a.synchronize().unwrap();
    // The pool finds the memory before it asks the driver for more.
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
fn reused_memory_handed_to_another_stream_is_ordered_after_its_former_owner() {
    for tracking in [Tracking::Auto, Tracking::Strict] {
        let paper = Paper::new();
        let device = paper.open(DeviceOptions::default().tracking(tracking));
        let kernel = paper::kernel(&device);
        let (a, b) = (device.stream().unwrap(), device.stream().unwrap());
        let mut x = a.alloc::<u8>(100).unwrap();
        write(&kernel, &a, &mut x);
        let address = x.as_raw();
        drop(x);
        let mut x = a.alloc::<u8>(100).unwrap();
        assert_eq!(x.as_raw(), address);
        // The new owner never used the memory on a, and cannot know of the former owner.
        let ((), calls) = paper.calls_of(|| write(&kernel, &b, &mut x));
        assert_eq!(names(&calls).len(), 3, "{tracking:?}: {calls:?}");
        assert_eq!(paper.state().violations, Vec::<String>::new());
    }
}

#[test]
fn untracked_streams_get_no_waits() {
    let paper = Paper::new();
    // SAFETY: no operation really runs.
    let device = paper.open(unsafe { DeviceOptions::default().without_tracking() });
    let kernel = paper::kernel(&device);
    let (a, b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut x = a.alloc::<u8>(100).unwrap();
    write(&kernel, &a, &mut x);
    let ((), calls) = paper.calls_of(|| write(&kernel, &b, &mut x));
    assert_eq!(names(&calls), [format!("op {}", b.as_raw().0)]);
}

#[test]
fn strict_names_both_operations_and_adds_nothing() {
    let paper = Paper::new();
    let device = paper.open(DeviceOptions::default().tracking(Tracking::Strict));
    let (a, b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut x = a.alloc::<u8>(100).unwrap();
    let mut y = b.alloc::<u8>(100).unwrap();
    a.fill(&mut x, 1).unwrap();
    let first = line!() - 1;
    let (result, calls) = paper.calls_of(|| b.copy(&x, &mut y));
    let second = line!() - 1;
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Hazard);
    let text = error.to_string();
    for place in [format!("`fill` at {}:{first}", file!()), format!("`copy` at {}:{second}", file!())] {
        assert!(text.contains(&place), "{text} does not name {place}");
    }
    assert!(text.contains("record") && text.contains("wait"), "{text} does not say what to do");
    assert_eq!(calls, [], "nothing was submitted");
    // The refused operation left no trace: x still belongs to a, and y is still unused.
    a.fill(&mut x, 2).unwrap();
    b.fill(&mut y, 2).unwrap();
    b.wait(&a.record().unwrap()).unwrap();
    b.copy(&x, &mut y).unwrap();
    assert_eq!(paper.state().violations, Vec::<String>::new());
}

#[test]
fn a_refused_operation_leaves_no_trace_on_its_other_arguments() {
    let paper = Paper::new();
    let device = paper.open(DeviceOptions::default().tracking(Tracking::Strict));
    let kernel = paper::kernel(&device);
    let (a, b, c) = (device.stream().unwrap(), device.stream().unwrap(), device.stream().unwrap());
    let (mut x, mut y) = (a.alloc::<u8>(100).unwrap(), b.alloc::<u8>(100).unwrap());
    write(&kernel, &a, &mut x);
    // The access to y would be allowed, the one to x is not: the whole launch is refused.
    let both = &mut [Mem::Write(y.slice_mut(..).unwrap()), Mem::Read(x.slice(..).unwrap())];
    assert_eq!(touch(&kernel, &b, both).unwrap_err().kind(), ErrorKind::Hazard);
    // So y is still unused.
    let ((), calls) = paper.calls_of(|| write(&kernel, &c, &mut y));
    assert_eq!(names(&calls), [format!("op {}", c.as_raw().0)]);
}

#[test]
fn long_ping_pong_reuses_its_events() {
    let (paper, device, kernel) = open();
    let (a, b) = (device.stream().unwrap(), device.stream().unwrap());
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
    let (paper, device, kernel) = open();
    let (a, b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut x = a.zeros::<u8>(100).unwrap();
    let mut hosts: Vec<_> = (0..300).map(|_| device.pinned::<u8>(100).unwrap()).collect();
    // No operation finishes meanwhile, so the library drops some of the marks.
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

#[test]
fn more_arguments_than_fit_are_refused() {
    let (_, device, kernel) = open();
    let a = device.stream().unwrap();
    let zero = 0usize;
    let args: Vec<Arg<'_>> = (0..65).map(|_| Arg::value(&zero)).collect();
    // SAFETY: the kernel does not really run.
    let error = unsafe { kernel.launch(&a, &Launch::new([1; 3], [1; 3]), &args) }.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ArgumentMismatch);
    assert!(error.message().contains("64"), "{error}");
}
