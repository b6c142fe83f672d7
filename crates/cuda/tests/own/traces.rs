//! Times by CUPTI: what becomes of its records, and when we cannot use it. Each test runs in its own process, because a process
//! opens only one CUPTI.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use fake_cuda::{Cupti, CuptiRan};
pub(crate) use fake_cuda::{Cupti as Library, CuptiRan as Recorded};
use gpustream_hal::{CopyDirection, Device, ErrorKind, TraceClock, WorkKind};

use crate::backends::startup::in_own_process;
use crate::backends::stream;
use crate::backends::traces::{assert_all_are_read, assert_refused, kernel, operations, submit, take};
use crate::{Options, Recorder, backend, load_with};

/// The number of a call.
pub(crate) type Submitted = u32;

/// CUDA 12.9's, and 13.0's.
const V12: u32 = 28;
const V13: u32 = 130_000;

const ONE: [u32; 3] = [1, 1, 1];
pub(crate) const KERNEL: CuptiRan = CuptiRan::Kernel(c"kernel", ONE, ONE);

pub(crate) const FLUSH: &str = "cuptiActivityFlushAll";

/// The calls that begin a measurement, with a failure for each and a word that the message must contain.
pub(crate) const BEGINS: &[(&str, u32, &str)] = &[
    ("cuptiSubscribe", 39, "Nsight Systems"),
    ("cuptiActivityRegisterTimestampCallback", 15, "toolkit with the version of the driver"),
    ("cuptiActivityRegisterCallbacks", 1, "CUPTI_ERROR_FAKE"),
    ("cuptiActivityEnable", 35, "administrators"),
];

/// The fake driver with its device, and the fake CUPTI.
fn start_with(version: u32) -> (Recorder, Arc<dyn Device>, Cupti) {
    let cupti = Cupti::load(version);
    let recorder = load_with(Options::default());
    (recorder, backend().open(0).unwrap(), cupti)
}

pub(crate) fn start() -> (Recorder, Arc<dyn Device>, Cupti) {
    start_with(V13)
}

/// Asserts that CUPTI records what we need, or that it is left to others.
pub(crate) fn assert_measures(cupti: Cupti, on: bool) {
    assert_eq!(cupti.is_subscribed(), on);
    let kinds: &[u32] = if on { &[1, 2, 4, 10, 22, 39] } else { &[] };
    assert_eq!(cupti.measures(), kinds);
    assert_eq!(cupti.records(307), on, "cuLaunchKernel");
    assert!(!cupti.records(304), "cuCtxGetCurrent");
}

fn assert_every_kind_is_read(version: u32) {
    in_own_process(&[], || {
        let (_recorder, device, cupti) = start_with(version);
        assert_eq!(device.trace_begin().unwrap(), TraceClock::Cupti);
        let step = CuptiRan::Kernel(c"_ZN6solver4stepIfLi3EEEvPT_", [3, 2, 1], [256, 4, 1]);
        let all = [
            (step, WorkKind::Kernel { grid: [3, 2, 1], block: [256, 4, 1] }),
            (CuptiRan::Copy(1, 10), WorkKind::Copy { direction: CopyDirection::ToDevice, bytes: 10 }),
            (CuptiRan::Copy(2, 20), WorkKind::Copy { direction: CopyDirection::ToHost, bytes: 20 }),
            (CuptiRan::Copy(3, 30), WorkKind::Copy { direction: CopyDirection::ToDevice, bytes: 30 }),
            (CuptiRan::Copy(4, 40), WorkKind::Copy { direction: CopyDirection::ToHost, bytes: 40 }),
            (CuptiRan::Copy(7, 70), WorkKind::Copy { direction: CopyDirection::OnDevice, bytes: 70 }),
            (
                CuptiRan::Copy(8, 1 << 40),
                WorkKind::Copy { direction: CopyDirection::OnDevice, bytes: 1 << 40 },
            ),
            (CuptiRan::Copy(9, 90), WorkKind::Other),
            (CuptiRan::PeerCopy(100), WorkKind::Copy { direction: CopyDirection::FromPeer, bytes: 100 }),
            (CuptiRan::Fill(110), WorkKind::Fill { bytes: 110 }),
        ];
        assert_all_are_read(&*device, cupti, all, 0);
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
        let (_recorder, device, cupti) = start();
        device.trace_begin().unwrap();
        // The call's record can lie in a later buffer than what it launched.
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

        // A graph's kernels all have its launch's number, and can come while others run.
        let graph = submit(&*device, cupti, 9);
        for other in 100..1000 {
            let other_call = submit(&*device, cupti, other);
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
fn lost_records_are_counted() {
    in_own_process(&[], || {
        let (_recorder, device, cupti) = start_with(V12);
        device.trace_begin().unwrap();
        // 128 MiB hold fewer than this many records of 208 bytes; CUPTI drops the rest.
        let number = submit(&*device, cupti, 1);
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
        let (_recorder, device, cupti) = start();
        device.trace_begin().unwrap();
        let (done, running) = (submit(&*device, cupti, 1), submit(&*device, cupti, 2));
        kernel(cupti, done);
        cupti.runs(running, KERNEL);
        assert_eq!(take(&*device, false), (vec![], 0), "the buffer is not complete");
        let (seen, lost) = take(&*device, true);
        assert_eq!((operations(&seen), lost), (vec![1], 1));
    });
}

fn assert_unknown(version: u32, words: [&str; 2]) {
    in_own_process(&[], || {
        let _ = Cupti::load(version);
        assert_refused(&words);
        assert_eq!(backend().probe().tracer, None);
    });
}

#[test]
fn cupti_newer_than_what_is_known_is_refused() {
    assert_unknown(130_600, ["CUPTI 13.6", "12.0 to 13.5"]);
}

#[test]
fn cupti_older_than_what_is_known_is_refused() {
    assert_unknown(18, ["CUPTI v18", "12.0 to 13.5"]);
}

#[test]
fn probe_names_cupti_and_its_file() {
    in_own_process(&[], || {
        let (_recorder, _, _) = start();
        let tracer = backend().probe().tracer.unwrap();
        assert!(tracer.starts_with("CUPTI 13.0 (") && tracer.contains("gpustream-shim"), "{tracer}");
    });
}

#[test]
fn threads_have_no_buffers_of_their_own() {
    in_own_process(&[], || {
        let (_recorder, device, cupti) = start();
        device.trace_begin().unwrap();
        device.trace_begin().unwrap();
        assert_eq!(cupti.attributes(), [(9, Some(0))]);
    });
}

#[test]
fn graphs_that_were_made_before_are_not_launched_under_cupti() {
    in_own_process(&[], || {
        let (_recorder, device, cupti) = start();
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

/// Otherwise CUPTI, the driver and three threads would wait for each other.
#[test]
fn executables_are_made_beside_no_other_call_for_one_once_cupti_is_used() {
    in_own_process(&[], || {
        let (recorder, device, _cupti) = start();
        device.trace_begin().unwrap();
        device.trace_end();
        let (stream, graph) = (stream(&*device), device.graph_create().unwrap());
        // SAFETY: the graph is alive, and empty.
        let exec = unsafe { device.graph_instantiate(graph) }.unwrap();
        let launching = device.clone();
        thread::spawn(move || {
            // SAFETY: both are alive.
            while unsafe { launching.graph_launch(exec, stream) }.is_ok() {}
        });
        recorder.stick_next("cuGraphLaunch");
        let (send, thread_folder) = channel();
        let making = thread::spawn(move || {
            send.send(fs::read_link("/proc/thread-self").unwrap()).unwrap();
            // SAFETY: the graph is alive.
            unsafe { device.graph_instantiate(graph) }
        });
        let state = Path::new("/proc").join(thread_folder.recv().unwrap()).join("stat");
        // It sleeps until the launch returns. That never happens, so the process ends meanwhile.
        while !fs::read_to_string(&state).unwrap().contains(") S ") {
            assert!(!making.is_finished());
            thread::yield_now();
        }
        assert_eq!(recorder.count("cuGraphInstantiateWithFlags"), 1);
    });
}

/// From its first use on, CUPTI takes part in the driver's calls, even if it then measures nothing.
#[test]
fn cupti_is_not_called_for_a_trace_behind_a_graph() {
    in_own_process(&[], || {
        let (recorder, device, _cupti) = start();
        let graph = device.graph_create().unwrap();
        // SAFETY: the graph is alive, and empty.
        unsafe { device.graph_instantiate(graph) }.unwrap();
        let (error, calls) = recorder.record(|| device.trace_begin().unwrap_err());
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(calls.iter().all(|call| !call.name.starts_with("cupti")), "{calls:?}");
    });
}
