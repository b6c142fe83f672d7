//! Times by CUPTI: what becomes of its records, and where it cannot be used. Each test has a process of its own, since a
//! process opens one CUPTI.

use std::sync::Arc;
use std::thread;

use fake_cuda::{Cupti, CuptiRan};
use gpustream_hal::{Device, ErrorKind, Ran, RanWork, TraceClock, trace};

use crate::backends::startup::in_own_process;
use crate::{Options, Recorder, backend, load_with};

/// CUDA 12.9's, and 13.0's.
const V12: u32 = 28;
const V13: u32 = 130_000;

const ONE: [u32; 3] = [1, 1, 1];
const KERNEL: CuptiRan = CuptiRan::Kernel(c"kernel", ONE, ONE);

/// A record as a test compares it: operation, label, work, and the start.
type Seen = (u64, String, RanWork, u64);

/// The fake driver with its device, and the fake CUPTI.
fn start(version: u32) -> (Recorder, Arc<dyn Device>, Cupti) {
    let cupti = Cupti::load(version);
    let recorder = load_with(Options::default());
    (recorder, backend().open(0).unwrap(), cupti)
}

fn take(device: &dyn Device, flush: bool) -> (Vec<Seen>, u64) {
    let mut seen = Vec::new();
    let mut each = |ran: &Ran<'_>| {
        assert!(!ran.last && ran.end > ran.start);
        seen.push((ran.operation, ran.label.to_owned(), ran.work, ran.start));
    };
    let lost = device.trace_take(flush, &mut each).unwrap();
    (seen, lost)
}

/// Makes the driver's call of an operation.
fn call(device: &dyn Device, cupti: Cupti, operation: u64) -> u32 {
    device.trace_enter(operation);
    let call = cupti.call();
    device.trace_leave();
    call
}

/// Makes the call's kernel run now.
fn kernel(cupti: Cupti, call: u32) {
    let now = cupti.now();
    cupti.ran(call, KERNEL, now..now + 5);
}

fn operations(seen: &[Seen]) -> Vec<u64> {
    seen.iter().map(|(operation, ..)| *operation).collect()
}

fn assert_every_kind_is_read(version: u32) {
    in_own_process(&[], || {
        let (_recorder, device, cupti) = start(version);
        assert_eq!(device.trace_begin().unwrap(), TraceClock::Cupti);
        let step = CuptiRan::Kernel(c"_ZN6solver4stepIfLi3EEEvPT_", [3, 2, 1], [256, 4, 1]);
        let all = [
            (step, RanWork::Kernel { grid: [3, 2, 1], block: [256, 4, 1] }),
            (CuptiRan::Copy(1, 10), RanWork::CopyToDevice { bytes: 10 }),
            (CuptiRan::Copy(2, 20), RanWork::CopyToHost { bytes: 20 }),
            (CuptiRan::Copy(3, 30), RanWork::CopyToDevice { bytes: 30 }),
            (CuptiRan::Copy(4, 40), RanWork::CopyToHost { bytes: 40 }),
            (CuptiRan::Copy(7, 70), RanWork::CopyOnDevice { bytes: 70 }),
            (CuptiRan::Copy(8, 1 << 40), RanWork::CopyOnDevice { bytes: 1 << 40 }),
            (CuptiRan::Copy(9, 90), RanWork::Other),
            (CuptiRan::PeerCopy(100), RanWork::CopyFromPeer { bytes: 100 }),
            (CuptiRan::Fill(110), RanWork::Fill { bytes: 110 }),
        ];
        let began = trace::now();
        let mut expected = Vec::new();
        for (operation, (ran, work)) in (1..).zip(all) {
            let now = cupti.now();
            cupti.ran(call(&*device, cupti, operation), ran, now..now + 5);
            let label = if operation == 1 { "solver::step<float, 3>" } else { "" };
            expected.push((operation, label.to_owned(), work));
        }
        let ended = trace::now();
        let (seen, lost) = take(&*device, false);
        assert_eq!(lost, 0);
        assert!(
            seen.iter().all(|(.., start)| (began..=ended).contains(start)),
            "times are on the host's clock"
        );
        let seen: Vec<_> =
            seen.into_iter().map(|(operation, label, work, _)| (operation, label, work)).collect();
        assert_eq!(seen, expected);
        assert_eq!(take(&*device, true), (vec![], 0), "each is handed out once");
    });
}

#[test]
fn records_of_cuda_12_are_read() {
    assert_every_kind_is_read(19);
}

#[test]
fn longer_records_of_cuda_12_9_are_read() {
    assert_every_kind_is_read(V12);
}

#[test]
fn records_of_cuda_13_are_read() {
    assert_every_kind_is_read(V13);
}

#[test]
fn longer_records_of_cuda_13_5_are_read() {
    assert_every_kind_is_read(130_500);
}

#[test]
fn kernels_belong_to_the_operation_that_launched_them_whatever_comes_first() {
    in_own_process(&[], || {
        let (_recorder, device, cupti) = start(V13);
        device.trace_begin().unwrap();
        // The call's record lies in a later buffer than what it launched.
        device.trace_enter(7);
        let early = cupti.call_unrecorded();
        kernel(cupti, early);
        assert_eq!(take(&*device, false), (vec![], 0), "whose it is comes yet");
        cupti.record_call(early);
        device.trace_leave();
        assert_eq!(operations(&take(&*device, false).0), [7]);

        // In two buffers that are read together.
        device.trace_enter(8);
        let early = cupti.call_unrecorded();
        kernel(cupti, early);
        cupti.hand_out();
        cupti.record_call(early);
        cupti.record_call(early); // CUDA 13 tells some twice.
        device.trace_leave();
        cupti.hand_out();
        assert_eq!(operations(&take(&*device, false).0), [8]);

        // A graph's kernels all have its launch's number, and come while others run.
        let graph = call(&*device, cupti, 9);
        for other in 100..1000 {
            let other_call = call(&*device, cupti, other);
            kernel(cupti, graph);
            kernel(cupti, other_call);
            if other % 7 == 0 {
                let (seen, _) = take(&*device, false);
                assert_eq!(
                    operations(&seen).iter().filter(|&&operation| operation == 9).count() * 2,
                    seen.len()
                );
            }
        }
    });
}

#[test]
fn work_outside_of_operations_and_other_tools_numbers_are_nobodys() {
    in_own_process(&[], || {
        let (_recorder, device, cupti) = start(V13);
        device.trace_begin().unwrap();
        kernel(cupti, cupti.call());
        let ours = call(&*device, cupti, 5);
        let others = thread::scope(|threads| {
            // The number of an operation is the thread's.
            device.trace_enter(6);
            threads.spawn(|| cupti.call()).join().unwrap()
        });
        device.trace_leave();
        kernel(cupti, others);
        kernel(cupti, ours);
        let (seen, lost) = take(&*device, true);
        assert_eq!((operations(&seen), lost), (vec![5], 0));
    });
}

#[test]
fn lost_records_are_counted() {
    in_own_process(&[], || {
        let (_recorder, device, cupti) = start(V12);
        device.trace_begin().unwrap();
        // 128 MiB hold fewer than this many records of 208 bytes: the rest is dropped by CUPTI.
        let number = call(&*device, cupti, 1);
        let all = 1_000_000_u64;
        for _ in 0..all {
            kernel(cupti, number);
        }
        let (seen, lost) = take(&*device, false);
        assert!(seen.len() > 600_000 && lost > 100_000, "{} came, {lost} were lost", seen.len());
        assert_eq!(seen.len() as u64 + lost, all);
        assert_eq!(take(&*device, true), (vec![], 0));

        // The device had no memory for the times.
        cupti.ran(number, KERNEL, 0..0);
        kernel(cupti, number);
        let (seen, lost) = take(&*device, false);
        assert_eq!((operations(&seen), lost), (vec![1], 1));
    });
}

#[test]
fn flush_waits_for_no_work_and_hands_out_what_is_done() {
    in_own_process(&[], || {
        let (_recorder, device, cupti) = start(V13);
        device.trace_begin().unwrap();
        let (done, running) = (call(&*device, cupti, 1), call(&*device, cupti, 2));
        kernel(cupti, done);
        cupti.runs(running, KERNEL);
        assert_eq!(take(&*device, false), (vec![], 0), "the buffer is not complete");
        let (seen, lost) = take(&*device, true);
        assert_eq!((operations(&seen), lost), (vec![1], 1));
    });
}

#[test]
fn failed_flush_is_an_error_and_leaves_the_trace_going() {
    in_own_process(&[], || {
        let (_recorder, device, cupti) = start(V13);
        device.trace_begin().unwrap();
        kernel(cupti, call(&*device, cupti, 1));
        cupti.fail_next("cuptiActivityFlushAll", 999);
        let error = device.trace_take(false, &mut |_| {}).unwrap_err();
        assert_eq!((error.call(), error.code()), (Some("cuptiActivityFlushAll"), Some(999)));
        assert_eq!(operations(&take(&*device, false).0), [1]);
    });
}

#[test]
fn devices_measure_together_until_the_last_end() {
    in_own_process(&[], || {
        let (_recorder, device, cupti) = start(V13);
        let other = backend().open(1).unwrap();
        assert!(!cupti.is_subscribed() && cupti.enabled().is_empty(), "nothing is measured before");
        for _ in 0..1000 {
            device.trace_begin().unwrap();
            other.trace_begin().unwrap();
            assert_eq!(cupti.enabled(), [1, 2, 4, 10, 22, 39]);
            assert!(cupti.records(307) && !cupti.records(304), "cuLaunchKernel, and not cuCtxGetCurrent");
            device.trace_end();
            kernel(cupti, call(&*device, cupti, 3));
            other.trace_end();
            assert!(!cupti.is_subscribed() && cupti.enabled().is_empty());
            kernel(cupti, call(&*device, cupti, 4));
            // The measurements stay.
            assert_eq!(operations(&take(&*other, true).0), [3]);
        }
        device.trace_end();
        assert_eq!(take(&*other, true), (vec![], 0), "an end too many does nothing");
    });
}

#[test]
fn begin_that_fails_leaves_nothing_behind() {
    in_own_process(&[], || {
        let (_recorder, device, cupti) = start(V13);
        for (function, code) in [
            ("cuptiSubscribe", 39),
            ("cuptiActivityRegisterTimestampCallback", 15),
            ("cuptiActivityRegisterCallbacks", 1),
            ("cuptiActivityEnable", 35),
        ] {
            cupti.fail_next(function, code);
            let error = device.trace_begin().unwrap_err();
            assert_eq!((error.kind(), error.call()), (ErrorKind::Unsupported, Some(function)));
            if code == 39 {
                assert!(error.message().contains("Nsight Systems"), "{error}");
            }
            assert!(!cupti.is_subscribed() && cupti.enabled().is_empty());
            assert_eq!(take(&*device, true), (vec![], 0));
        }
        device.trace_begin().unwrap();
        kernel(cupti, call(&*device, cupti, 1));
        assert_eq!(operations(&take(&*device, true).0), [1]);
    });
}

/// Asserts that nothing is measured, with these words, and that calls beside a trace do nothing.
#[track_caller]
fn assert_refused(words: &[&str]) {
    let _recorder = load_with(Options::default());
    let device = backend().open(0).unwrap();
    for _ in 0..2 {
        let error = device.trace_begin().unwrap_err();
        assert_eq!((error.kind(), error.backend()), (ErrorKind::Unsupported, Some("cuda")));
        for word in words {
            assert!(error.message().contains(word), "{word:?} in {error}");
        }
    }
    device.trace_enter(1);
    device.trace_leave();
    assert_eq!(take(&*device, true), (vec![], 0));
    device.trace_end();
    assert_eq!(backend().probe().tracer, None);
}

#[test]
fn missing_cupti_says_what_was_tried_and_what_to_install() {
    in_own_process(&[("GPUSTREAM_CUPTI_LIBRARY", "/nowhere/libcupti.so.13")], || {
        assert_refused(&[
            "/nowhere/libcupti.so.13",
            "install",
            "nvidia-cuda-cupti",
            "GPUSTREAM_CUPTI_LIBRARY",
        ]);
    });
}

#[test]
fn cupti_newer_than_what_is_known_is_refused() {
    in_own_process(&[], || {
        let _ = Cupti::load(130_600);
        assert_refused(&["CUPTI 13.6", "12.0 to 13.5"]);
    });
}

#[test]
fn cupti_older_than_what_is_known_is_refused() {
    in_own_process(&[], || {
        let _ = Cupti::load(18);
        assert_refused(&["CUPTI v18", "12.0 to 13.5"]);
    });
}

#[test]
fn probe_names_cupti_and_its_file() {
    in_own_process(&[], || {
        let (_recorder, _, _) = start(V13);
        let tracer = backend().probe().tracer.unwrap();
        assert!(tracer.starts_with("CUPTI 13.0 (") && tracer.contains("gpustream-shim"), "{tracer}");
    });
}

#[test]
fn threads_have_no_buffers_of_their_own() {
    in_own_process(&[], || {
        let (_recorder, device, cupti) = start(V13);
        device.trace_begin().unwrap();
        device.trace_begin().unwrap();
        assert_eq!(cupti.attributes(), [(9, Some(0))]);
    });
}

#[test]
fn graphs_that_were_made_before_are_not_launched_under_cupti() {
    in_own_process(&[], || {
        let (_recorder, device, cupti) = start(V13);
        // SAFETY: the graph is alive.
        let make = || unsafe { device.graph_instantiate(device.graph_create().unwrap()) }.unwrap();
        assert_eq!(device.trace_begin().unwrap(), TraceClock::Cupti);
        make();
        assert_eq!(device.trace_begin().unwrap(), TraceClock::Cupti);
        device.trace_end();
        device.trace_end();
        let error = device.trace_begin().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.message().contains("begin the trace before"), "{error}");
        assert!(!cupti.is_subscribed());
    });
}
