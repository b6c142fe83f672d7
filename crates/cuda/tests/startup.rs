//! Starting the backend where the driver is missing, old or useless. The backend looks once per process, so each case
//! runs in a process of its own.

#![allow(clippy::unwrap_used)]

use std::env;
use std::process::Command;

use fake_cuda::Options;
use gpustream_cuda::backend;
use gpustream_hal::{ErrorKind, GraphSize};

const CASE: &str = "GPUSTREAM_TEST_CASE";

/// Runs the test `name` of this file again in a process of its own, with `variables`; there it runs `case`.
fn in_own_process(name: &str, variables: &[(&str, &str)], case: impl FnOnce()) {
    if env::var_os(CASE).is_some() {
        return case();
    }
    let output = Command::new(env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(CASE, name)
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn no_driver_library() {
    let variables = [("GPUSTREAM_CUDA_LIBRARY", "/nowhere/libcuda.so.1")];
    in_own_process("no_driver_library", &variables, || {
        let error = backend().device_count().unwrap_err();
        assert_eq!((error.kind(), error.backend()), (ErrorKind::DriverMissing, Some("cuda")));
        for part in ["install the NVIDIA driver", "/nowhere/libcuda.so.1", "GPUSTREAM_CUDA_LIBRARY"] {
            assert!(error.to_string().contains(part), "{part:?} in {error}");
        }
        assert_eq!(backend().open(0).err().map(|e| e.kind()), Some(ErrorKind::DriverMissing));
        let probe = backend().probe();
        assert_eq!((probe.library, probe.tried.len()), (None, 1));
        assert!(probe.problem.unwrap().contains("not found"));
    });
}

#[test]
fn a_library_that_is_not_the_driver() {
    let variables = [("GPUSTREAM_CUDA_LIBRARY", "libc.so.6")];
    in_own_process("a_library_that_is_not_the_driver", &variables, || {
        let error = backend().device_count().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DriverMissing);
        assert!(error.to_string().contains("has no function cuInit"), "{error}");
    });
}

#[test]
fn the_toolkits_stub() {
    in_own_process("the_toolkits_stub", &[], || {
        let _recorder = fake_cuda::load_with(Options { init: 34, ..Options::default() });
        let error = backend().open(0).err().unwrap();
        assert_eq!((error.kind(), error.code()), (ErrorKind::DriverMissing, Some(34)));
        assert!(error.to_string().contains("stub"), "{error}");
    });
}

#[test]
fn a_driver_with_no_device() {
    in_own_process("a_driver_with_no_device", &[], || {
        let _recorder = fake_cuda::load_with(Options { init: 100, ..Options::default() });
        let error = backend().device_count().unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::NoDevice, Some(100)));
        assert!(error.to_string().contains("CUDA_VISIBLE_DEVICES"), "{error}");
    });
}

#[test]
fn a_driver_that_counts_none() {
    in_own_process("a_driver_that_counts_none", &[], || {
        let _recorder = fake_cuda::load_with(Options { devices: 0, ..Options::default() });
        assert_eq!(backend().device_count().unwrap_err().kind(), ErrorKind::NoDevice);
        assert_eq!(backend().open(0).err().map(|e| e.kind()), Some(ErrorKind::NoDevice));
        assert!(backend().probe().problem.is_some());
    });
}

#[test]
fn a_driver_before_12() {
    in_own_process("a_driver_before_12", &[], || {
        let _recorder = fake_cuda::load_with(Options { version: 11_080, ..Options::default() });
        let error = backend().device_count().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DriverMissing);
        assert!(error.to_string().contains("CUDA 11.8"), "{error}");
    });
}

#[test]
fn a_12_0_driver_lacks_the_later_functions_only() {
    in_own_process("a_12_0_driver_lacks_the_later_functions_only", &[], || {
        let later = ["cuFuncGetParamInfo", "cuGraphGetEdges_v2", "cuMemPrefetchAsync_v2", "cuMemAdvise_v2"];
        let recorder =
            fake_cuda::load_with(Options { version: 12_000, without: later.to_vec(), ..Options::default() });
        let device = backend().open(0).unwrap();
        // SAFETY: the driver is a fake, which reads images safely.
        let module = unsafe { device.module_load(&fake_cuda::image(&[("one", &[8])])) }.unwrap();
        let stream = device.stream_create(gpustream_hal::StreamOptions::default()).unwrap();
        let managed = device.managed_alloc(64).unwrap();
        let graph = device.graph_create().unwrap();
        recorder.clear();
        // SAFETY: all alive.
        unsafe {
            let function = device.module_function(module, "one").unwrap();
            assert_eq!(device.function_params(function).unwrap(), None);
            device.managed_prefetch(managed, 64, false, stream).unwrap();
            device.managed_advise(managed, 64, gpustream_hal::ManagedAdvice::PreferHost).unwrap();
            assert_eq!(device.graph_size(graph).unwrap(), GraphSize { nodes: 0, edges: 0 });
        }
        let names = recorder.names();
        assert_eq!(
            names,
            [
                "cuModuleGetFunction",
                "cuMemPrefetchAsync",
                "cuMemAdvise",
                "cuGraphGetNodes",
                "cuGraphGetEdges"
            ]
        );
        assert_eq!(recorder.work()[1].arg("to") as i32, -1, "the host");
    });
}

#[test]
fn no_run_time_compiler() {
    let variables = [("GPUSTREAM_NVRTC_LIBRARY", "/nowhere/libnvrtc.so.13")];
    in_own_process("no_run_time_compiler", &variables, || {
        let _recorder = fake_cuda::load();
        let device = backend().open(0).unwrap();
        let source = gpustream_hal::Source { name: "k.cu", text: "", headers: &[], options: &[] };
        // SAFETY: no options.
        let error = unsafe { device.compile(&source) }.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("/nowhere/libnvrtc.so.13"), "{error}");
        assert_eq!(device.compiler().unwrap_err().kind(), ErrorKind::Unsupported);
    });
}
