//! Times by rocprofiler-sdk: what becomes of its records. Each test runs in its own process, because a process sets the library
//! up only once.

use std::ops::Range;
use std::sync::Arc;
use std::thread;

use fake_hip::{Rocprofiler, RocprofilerRan};
pub(crate) use fake_hip::{
    Rocprofiler as Library, RocprofilerRan as Recorded, RocprofilerSubmitted as Submitted,
};
use gpustream_hal::{Device, ErrorKind, RanWork, TraceClock, trace};

use crate::backends::traces::{assert_all_are_read, kernel, operations, submit, take};
use crate::backends::{Vendor, startup::in_own_process};
use crate::{Recorder, VENDOR, backend, load_with, options};

/// The library that comes with this ROCm version, or with the next newer one that has it.
pub(super) fn version() -> (u32, u32, u32) {
    match VENDOR {
        Vendor::Rocm(5) => (0, 4, 0),
        Vendor::Rocm(6) => (0, 6, 0),
        _ => (1, 0, 0),
    }
}

const ONE: [u32; 3] = [1, 1, 1];
pub(crate) const KERNEL: RocprofilerRan = RocprofilerRan::Kernel(1, ONE, ONE);

pub(crate) const FLUSH: &str = "rocprofiler_flush_buffer";

/// The calls that begin a measurement, with a failure for each and a word that the message must contain.
pub(crate) const BEGINS: &[(&str, u32, &str)] = &[
    ("rocprofiler_get_timestamp", 9, "ROCPROFILER_STATUS_FAKE"),
    ("rocprofiler_start_context", 9, "ROCPROFILER_STATUS_FAKE"),
];

/// Asserts that the library records copies and kernels, or nothing.
pub(crate) fn assert_measures(library: Rocprofiler, on: bool) {
    let kinds: &[u32] = if on { &[10, 11] } else { &[] };
    assert_eq!(library.measures(), kinds);
}

/// The fake driver with its device, and the fake library, which we set up before.
fn start_with(version: (u32, u32, u32)) -> (Recorder, Arc<dyn Device>, Rocprofiler) {
    let library = Rocprofiler::load(version);
    let recorder = load_with(options());
    backend().expect_traces();
    assert!(library.is_set_up() && library.measures().is_empty());
    (recorder, backend().open(0).unwrap(), library)
}

pub(crate) fn start() -> (Recorder, Arc<dyn Device>, Rocprofiler) {
    start_with(version())
}

fn assert_every_kind_is_read(version: (u32, u32, u32)) {
    in_own_process(&[], || {
        let (_recorder, device, library) = start_with(version);
        let clock = device.trace_begin().unwrap();
        let TraceClock::Rocprofiler { error } = clock else { panic!("{clock:?}") };
        library.load_kernel(7, c"_ZN6solver4stepIfLi3EEEvPT_.kd");
        let all = [
            // Threads; the last block is not full.
            (
                RocprofilerRan::Kernel(7, [700, 8, 1], [256, 4, 1]),
                RanWork::Kernel { grid: [3, 2, 1], block: [256, 4, 1] },
            ),
            (RocprofilerRan::Kernel(8, ONE, ONE), RanWork::Kernel { grid: ONE, block: ONE }),
            (RocprofilerRan::Copy(0, 1, [1, 1]), RanWork::Other),
            (RocprofilerRan::Copy(1, 10, [1, 1]), RanWork::Other),
            (RocprofilerRan::Copy(2, 20, [1, 2]), RanWork::CopyToDevice { bytes: 20 }),
            (RocprofilerRan::Copy(3, 30, [2, 1]), RanWork::CopyToHost { bytes: 30 }),
            (RocprofilerRan::Copy(4, 1 << 40, [2, 2]), RanWork::CopyOnDevice { bytes: 1 << 40 }),
            (RocprofilerRan::Copy(4, 50, [2, 3]), RanWork::CopyFromPeer { bytes: 50 }),
        ];
        // The clocks were compared twice.
        assert_all_are_read(&*device, library, all, 1000 + 2 * error);
    });
}

#[test]
fn records_of_every_kind_are_read() {
    assert_every_kind_is_read(version());
}

#[test]
fn longer_records_of_later_versions_are_read() {
    assert_every_kind_is_read((1, 2, 1));
}

#[test]
fn all_that_a_thread_submits_belongs_to_its_operation() {
    in_own_process(&[], || {
        let (_recorder, device, library) = start();
        device.trace_begin().unwrap();
        // A graph's kernels, which run while others do.
        device.trace_enter(9);
        let nodes = [library.submit(), library.submit(), library.submit()];
        let others = thread::scope(|threads| {
            let other = threads.spawn(|| (submit(&*device, library, 8), library.submit()));
            other.join().unwrap()
        });
        device.trace_leave();
        let outside = library.submit();
        for submitted in [nodes[2], others.0, others.1, nodes[0], outside, nodes[1]] {
            kernel(library, submitted);
        }
        library.foreign();
        let (seen, lost) = take(&*device, false);
        assert_eq!(
            (operations(&seen), lost),
            (vec![8, 9, 9, 9], 0),
            "work outside of operations is nobody's"
        );
    });
}

#[test]
fn operation_is_handed_out_when_all_of_it_has_run() {
    in_own_process(&[], || {
        let (_recorder, device, library) = start();
        device.trace_begin().unwrap();
        device.trace_enter(1);
        let nodes = [library.submit(), library.submit()];
        kernel(library, nodes[0]);
        assert_eq!(take(&*device, false), (vec![], 0), "the thread may submit more");
        device.trace_leave();
        assert_eq!(take(&*device, false), (vec![], 0), "another node runs");
        kernel(library, submit(&*device, library, 2));
        assert_eq!(operations(&take(&*device, false).0), [2]);
        kernel(library, nodes[1]);
        let mut seen = Vec::new();
        device.trace_take(false, &mut |ran| seen.push((ran.operation, ran.last))).unwrap();
        assert_eq!(seen, [(1, false), (1, true)]);

        // The end of a trace takes what there is.
        device.trace_enter(3);
        let nodes = [library.submit(), library.submit()];
        device.trace_leave();
        kernel(library, nodes[0]);
        assert_eq!(take(&*device, false), (vec![], 0));
        assert_eq!(operations(&take(&*device, true).0), [3]);
    });
}

#[test]
fn times_stay_right_when_the_machine_has_slept() {
    in_own_process(&[], || {
        const NIGHT: u64 = 8 * 3600 * 1_000_000_000;
        let (_recorder, device, library) = start();
        let TraceClock::Rocprofiler { error } = device.trace_begin().unwrap() else { panic!() };
        let before = trace::now();
        kernel(library, submit(&*device, library, 1));
        let (evening, _) = take(&*device, false);
        let between = trace::now();
        library.sleep(NIGHT);
        // The first look after the sleep compares the clocks.
        assert_eq!(take(&*device, false), (vec![], 0));
        kernel(library, submit(&*device, library, 2));
        let (morning, _) = take(&*device, false);
        let after = trace::now();
        let slack = 1000 + 2 * error;
        assert!((before.saturating_sub(slack)..=between + slack).contains(&evening[0].3), "{evening:?}");
        assert!(
            (between - slack..=after + slack).contains(&morning[0].3),
            "{morning:?} in {between}..{after}"
        );
    });
}

#[test]
fn lost_records_are_counted() {
    in_own_process(&[], || {
        let (_recorder, device, library) = start();
        device.trace_begin().unwrap();
        // At most 2^18 records can wait. The library may deliver at any time, as it must with a full buffer.
        let all = 300_000_u64;
        device.trace_enter(1);
        let submitted: Vec<_> = (0..all).map(|_| library.submit()).collect();
        device.trace_leave();
        for (number, submitted) in (0..).zip(submitted) {
            kernel(library, submitted);
            if number % 20_000 == 0 {
                library.deliver();
            }
        }
        let (seen, lost) = take(&*device, true);
        assert_eq!((seen.len() as u64, lost), (1 << 18, all - (1 << 18)));
        assert_eq!(take(&*device, false), (vec![], 0));

        // The library tells how many it has dropped since it began.
        for dropped in [3, 4] {
            library.drop_records(dropped);
            kernel(library, submit(&*device, library, dropped));
            let (seen, lost) = take(&*device, false);
            assert_eq!((operations(&seen), lost), (vec![dropped], dropped));
        }
        // The device kept no times for two kernels of three.
        device.trace_enter(5);
        let three = [library.submit(), library.submit(), library.submit()];
        device.trace_leave();
        library.ran(three[0], KERNEL, 0..0);
        kernel(library, three[1]);
        library.ran(three[2], KERNEL, Range { start: 7, end: 6 });
        let (seen, lost) = take(&*device, false);
        assert_eq!((operations(&seen), lost), (vec![5], 2));
    });
}

#[test]
fn library_that_has_ended_is_not_called() {
    in_own_process(&[], || {
        let (_recorder, device, library) = start();
        device.trace_begin().unwrap();
        kernel(library, submit(&*device, library, 1));
        library.deliver();
        library.end();
        assert_eq!(operations(&take(&*device, false).0), [1], "what was delivered stays");
        device.trace_end();
        assert_eq!(device.trace_begin().unwrap_err().kind(), ErrorKind::Unsupported);
    });
}

#[test]
fn times_are_measured_without_names() {
    in_own_process(&[], || {
        let library = Rocprofiler::load(version());
        library.fail_next("rocprofiler_configure_callback_tracing_service", 9);
        let (_recorder, device, library) = start();
        device.trace_begin().unwrap();
        library.load_kernel(1, c"saxpy.kd");
        kernel(library, submit(&*device, library, 1));
        let (seen, _) = take(&*device, false);
        assert_eq!((operations(&seen), seen[0].1.as_str()), (vec![1], ""));
    });
}

#[test]
fn probe_names_the_library_and_its_file() {
    in_own_process(&[], || {
        let _started = start();
        let tracer = backend().probe().tracer.unwrap();
        let (major, minor, patch) = version();
        let name = format!("rocprofiler-sdk {major}.{minor}.{patch} (");
        assert!(tracer.starts_with(&name) && tracer.contains("gpustream-shim"), "{tracer}");
    });
}

/// HIP looks for the library's entry there, and ends the process if it finds none.
#[test]
fn opened_library_is_seen_by_the_whole_process() {
    in_own_process(&[], || {
        // SAFETY: nothing is called.
        let seen = || unsafe {
            libloading::os::unix::Library::this().get::<*const ()>(b"rocprofiler_flush_buffer").is_ok()
        };
        let library = Rocprofiler::load(version());
        assert!(!seen());
        backend().expect_traces();
        assert!(library.is_set_up() && seen());
    });
}
