//! What becomes of the records that a vendor's tracing library (CUPTI or rocprofiler-sdk) makes. Each test has its own
//! process, because a process can open only one such library. The crate that includes this file must have the library's
//! fake, and must say what differs between the two (`own::traces`).

use std::thread;

use gpustream_hal::{Device, Error, ErrorKind, Ran, WorkKind, trace};

use super::startup::in_own_process;
use super::{Vendor, pick};
use crate::own::traces::{BEGINS, FLUSH, KERNEL, Library, Recorded, Submitted, assert_measures, start};
use crate::{VENDOR, backend, load_with, options};

/// A record as a test compares it: operation, label, work, and the start.
pub(crate) type Seen = (u64, String, WorkKind, u64);

pub(crate) fn take(device: &dyn Device, flush: bool) -> (Vec<Seen>, u64) {
    let mut seen = Vec::new();
    let mut each = |ran: &Ran<'_>| {
        assert!(ran.end > ran.start && !(ran.last && VENDOR == Vendor::Cuda));
        seen.push((ran.operation, ran.label.to_owned(), ran.work, ran.start));
    };
    let lost = device.trace_take(flush, &mut each).unwrap();
    (seen, lost)
}

pub(crate) fn operations(seen: &[Seen]) -> Vec<u64> {
    seen.iter().map(|(operation, ..)| *operation).collect()
}

/// Submits some work for an operation.
pub(crate) fn submit(device: &dyn Device, library: Library, operation: u64) -> Submitted {
    device.trace_enter(operation);
    let submitted = library.submit();
    device.trace_leave();
    submitted
}

/// Makes a submitted kernel run now, so that there is something to measure.
pub(crate) fn kernel(library: Library, submitted: Submitted) {
    let now = library.now();
    library.ran(submitted, KERNEL, now..now + 5);
}

/// Asserts that each record is read as its work. Their times are on the host's clock, and may be off by `slack`. The
/// first record must be a kernel with the symbol of `solver::step<float, 3>`.
pub(crate) fn assert_all_are_read(
    device: &dyn Device,
    library: Library,
    all: impl IntoIterator<Item = (Recorded, WorkKind)>,
    slack: u64,
) {
    let began = trace::now();
    let mut expected = Vec::new();
    for (operation, (recorded, work)) in (1..).zip(all) {
        let now = library.now();
        library.ran(submit(device, library, operation), recorded, now..now + 5);
        let label = if operation == 1 { "solver::step<float, 3>" } else { "" };
        expected.push((operation, label.to_owned(), work));
    }
    let allowed = began.saturating_sub(slack)..=trace::now() + slack;
    let (seen, lost) = take(device, false);
    assert_eq!(lost, 0);
    assert!(seen.iter().all(|(.., start)| allowed.contains(start)), "{allowed:?} {seen:?}");
    let seen: Vec<_> = seen.into_iter().map(|(operation, label, work, _)| (operation, label, work)).collect();
    assert_eq!(seen, expected);
    assert_eq!(take(device, true), (vec![], 0), "each is handed out once");
}

#[test]
fn work_outside_of_operations_is_not_reported() {
    in_own_process(&[], || {
        let (_recorder, device, library) = start();
        device.trace_begin().unwrap();
        kernel(library, library.submit());
        let ours = submit(&*device, library, 5);
        // An operation's number belongs to the thread.
        device.trace_enter(6);
        let others = thread::scope(|threads| threads.spawn(|| library.submit()).join().unwrap());
        device.trace_leave();
        kernel(library, others);
        kernel(library, ours);
        let (seen, lost) = take(&*device, true);
        assert_eq!((operations(&seen), lost), (vec![5], 0));
    });
}

#[test]
fn failed_flush_is_an_error_and_leaves_the_trace_going() {
    in_own_process(&[], || {
        let (_recorder, device, library) = start();
        device.trace_begin().unwrap();
        kernel(library, submit(&*device, library, 1));
        library.fail_next(FLUSH, 999);
        let error = device.trace_take(false, &mut |_| {}).unwrap_err();
        assert_eq!((error.call(), error.code()), (Some(FLUSH), Some(999)));
        assert_eq!(operations(&take(&*device, false).0), [1]);
    });
}

#[test]
fn devices_measure_together_until_the_last_end() {
    in_own_process(&[], || {
        let (_recorder, device, library) = start();
        let other = backend().open(1).unwrap();
        assert_measures(library, false);
        for _ in 0..1000 {
            device.trace_begin().unwrap();
            other.trace_begin().unwrap();
            assert_measures(library, true);
            device.trace_end();
            kernel(library, submit(&*device, library, 3));
            other.trace_end();
            assert_measures(library, false);
            kernel(library, submit(&*device, library, 4));
            // You can still take what was measured before the end.
            assert_eq!(operations(&take(&*other, true).0), [3]);
        }
        device.trace_end();
        assert_eq!(take(&*other, true), (vec![], 0), "an end too many does nothing");
    });
}

#[test]
fn begin_that_fails_leaves_nothing_behind() {
    in_own_process(&[], || {
        let (_recorder, device, library) = start();
        for &(function, code, word) in BEGINS {
            library.fail_next(function, code);
            let error = device.trace_begin().unwrap_err();
            assert_eq!((error.kind(), error.call()), (ErrorKind::Unsupported, Some(function)));
            assert!(error.message().contains(word), "{error}");
            assert_measures(library, false);
            assert_eq!(take(&*device, true), (vec![], 0));
        }
        device.trace_begin().unwrap();
        kernel(library, submit(&*device, library, 1));
        assert_eq!(operations(&take(&*device, true).0), [1]);
    });
}

/// Asserts that a trace is refused with these words, and that calls without a trace do nothing.
#[track_caller]
pub(crate) fn assert_refused(words: &[&str]) -> Error {
    let _recorder = load_with(options());
    backend().expect_traces();
    let device = backend().open(0).unwrap();
    let error = device.trace_begin().unwrap_err();
    assert_eq!((error.kind(), error.backend()), (ErrorKind::Unsupported, Some(pick(["cuda", "hip"]))));
    for word in words {
        assert!(error.message().contains(word), "{word:?} in {error}");
    }
    backend().expect_traces();
    assert_eq!(device.trace_begin().unwrap_err().to_string(), error.to_string());
    device.trace_enter(1);
    device.trace_leave();
    assert_eq!(take(&*device, true), (vec![], 0));
    device.trace_end();
    error
}

#[test]
fn missing_library_says_what_was_tried_and_what_to_install() {
    let [variable, package] = pick([
        ["GPUSTREAM_CUPTI_LIBRARY", "nvidia-cuda-cupti"],
        ["GPUSTREAM_ROCPROFILER_LIBRARY", "rocprofiler-sdk"],
    ]);
    in_own_process(&[(variable, "/nowhere/lib.so.1")], || {
        assert_refused(&["/nowhere/lib.so.1", "install", package, variable]);
        assert_eq!(backend().probe().tracer, None);
    });
}
