//! Times by rocprofiler-sdk if we cannot use it: we report each obstacle, and measure nothing. Each test runs in its own process,
//! because a process sets the library up only once.

use fake_hip::Rocprofiler;
use gpustream_hal::ErrorKind;

use super::traces::version;
use crate::backends::startup::in_own_process;
use crate::backends::traces::assert_refused;
use crate::{backend, load_with, options};

#[test]
fn another_library_in_its_place_is_named() {
    in_own_process(&[("GPUSTREAM_ROCPROFILER_LIBRARY", "libm.so.6")], || {
        assert_refused(&["libm.so.6", "is not a rocprofiler-sdk", "rocprofiler_get_version"]);
    });
}

fn assert_unknown(version: (u32, u32, u32), words: [&'static str; 2]) {
    in_own_process(&[], || {
        let library = Rocprofiler::load(version);
        assert_refused(&words);
        assert!(!library.is_set_up());
    });
}

#[test]
fn library_newer_than_what_is_known_is_refused() {
    assert_unknown((2, 0, 0), ["rocprofiler-sdk 2.0.0", "ROCm 6.2 to 6.4"]);
}

#[test]
fn library_of_no_release_is_refused() {
    assert_unknown((0, 7, 0), ["rocprofiler-sdk 0.7.0", "GPUSTREAM_ROCPROFILER_LIBRARY"]);
}

#[test]
fn process_that_is_not_traced_from_its_beginning_has_no_library() {
    in_own_process(&[], || {
        let library = Rocprofiler::load(version());
        let _recorder = load_with(options());
        let device = backend().open(0).unwrap();
        for _ in 0..2 {
            let error = device.trace_begin().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.message().contains("set GPUSTREAM_TRACE"), "{error}");
            // This must be too late, because HIP has started.
            backend().expect_traces();
        }
        assert!(!library.is_set_up());
        assert_eq!(backend().probe().tracer, None);
    });
}

#[test]
fn hip_that_started_before_is_told_apart() {
    in_own_process(&[], || {
        let library = Rocprofiler::load(version());
        library.start_hip();
        assert_refused(&["too late", "started HIP before"]);
        assert!(library.measures().is_empty());
    });
}

#[test]
fn place_of_another_tool_is_left_to_that_tool() {
    in_own_process(&[], || {
        let library = Rocprofiler::load(version());
        library.take_place();
        let error = assert_refused(&["another tool", "rocprofv3"]);
        assert_eq!(error.call(), Some("rocprofiler_force_configure"));
    });
}

/// Asserts that traces report it if `function` fails while we set the library up.
fn assert_set_up_fails(function: &'static str) {
    in_own_process(&[], || {
        let library = Rocprofiler::load(version());
        library.fail_next(function, 9);
        let error = assert_refused(&["The fake said no"]);
        assert_eq!((error.call(), error.code()), (Some(function), Some(9)));
    });
}

macro_rules! failures {
    ($($test:ident: $function:literal;)*) => {
        $( #[test] fn $test() { assert_set_up_fails($function); } )*
    };
}

failures! {
    failure_of_the_version_is_told: "rocprofiler_get_version";
    failure_of_the_set_up_is_told: "rocprofiler_force_configure";
    failure_of_the_context_is_told: "rocprofiler_create_context";
    failure_of_the_buffer_is_told: "rocprofiler_create_buffer";
    failure_of_the_records_is_told: "rocprofiler_configure_buffer_tracing_service";
    failure_of_the_numbers_is_told: "rocprofiler_configure_external_correlation_id_request_service";
    failure_of_the_clock_is_told: "rocprofiler_get_timestamp";
}

#[test]
fn tool_that_is_not_initialised_is_told() {
    in_own_process(&[], || {
        let library = Rocprofiler::load(version());
        library.fail_next("initialize", 1);
        assert_refused(&["did not let this library be its tool"]);
    });
}

#[test]
fn failure_to_watch_hip_start_is_no_start() {
    in_own_process(&[], || {
        let library = Rocprofiler::load(version());
        library.fail_next("rocprofiler_at_intercept_table_registration", 1);
        assert_refused(&["too late"]);
    });
}
