//! Sources that are compiled at run time, by fakes of NVRTC and HIPRTC. Each test has a process of its own, since a process reads
//! the environment and opens NVRTC once.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod fakes;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use conformance::executor::{block_on, is_pending};
use fake_cuda::{NVRTC, load_nvrtc};
use gpustream::{Buffer, Build, Compile, Device, ErrorKind, Launch, Module, TypedKernel, View, ViewMut};
use recorder::{Recorder, compiler, module};

use crate::fakes::{Fake, ONE, in_child, on_each, words};

const SOURCE: &str = "#include \"tile.cuh\"\n\
    template <class T, int N> __global__ void scale(const T* x, T* y, T by) /* 8 8 4 */ {}\n\
    extern \"C\" __global__ void fill(unsigned* x, size_t n) /* 8 8 */ {}\n";

const SCALE: &str = "scale<float, 4>";
/// The fake compilers' symbol.
const SYMBOL: &str = "_Zscale<float,4>";

type Scale<'a> = (View<'a, f32>, ViewMut<'a, f32>, f32);

fn compile(device: &Device) -> Compile {
    device.compile(SOURCE).name("scale.cu").header("tile.cuh", "").define("BLOCK", 256).instance(SCALE)
}

/// Plays a scene on each driver, in a child that has fake compilers and an empty cache.
fn with_compilers(scene: impl Fn(&Fake, &Recorder, &Device)) {
    let cache = tempfile::tempdir().unwrap();
    let cache = cache.path().to_str().unwrap();
    in_child(&[("GPUSTREAM_NVRTC_LIBRARY", NVRTC), ("GPUSTREAM_CACHE_DIR", cache)], || {
        on_each(|fake, recorder| {
            if fake.name == "cuda" {
                load_nvrtc();
            }
            scene(fake, recorder, &Device::open(fake.name).unwrap());
            recorder.release();
        });
    });
}

fn compilations(recorder: &Recorder) -> usize {
    recorder.count("nvrtcCompileProgram") + recorder.count("hiprtcCompileProgram")
}

/// Makes the driver run the kernel on as many elements as `TILE` says.
fn run_scale<const TILE: usize>(recorder: &Recorder) {
    recorder.on_kernel(SYMBOL, |run| {
        // SAFETY: the tests pass memory of that length.
        let (x, y) = unsafe {
            (
                std::slice::from_raw_parts(run.pointer::<f32>(0), TILE),
                std::slice::from_raw_parts_mut(run.pointer::<f32>(1), TILE),
            )
        };
        x.iter().zip(y).for_each(|(x, y)| *y = x * run.float(2));
        true
    });
}

fn launch(kernel: &TypedKernel<Scale<'_>>, stream: &gpustream::Stream, x: &Buffer<f32>, y: &mut Buffer<f32>) {
    // SAFETY: the fake's kernel stays in the memory.
    unsafe { kernel.launch(stream, &ONE, (x, y, 2.0)) }.unwrap();
}

#[test]
fn instance_runs_and_its_views_are_tracked() {
    with_compilers(|_, recorder, device| {
        run_scale::<4>(recorder);
        let kernel = compile(device).build().unwrap().typed_kernel::<Scale<'_>>(SCALE).unwrap();
        let (a, b) = (device.stream().unwrap(), device.stream().unwrap());
        let (x, mut y, mut z) =
            (a.upload(&[3.0; 4]).unwrap(), a.zeros(4).unwrap(), b.zeros::<f32>(4).unwrap());
        // Stream b comes after the upload from here on.
        launch(&kernel, &b, &x, &mut z);
        let calls = |work: &mut dyn FnMut()| words(&recorder.record(work).1);
        assert_eq!(calls(&mut || launch(&kernel, &a, &x, &mut y)), ["launch"]);
        assert_eq!(calls(&mut || launch(&kernel, &b, &x, &mut z)), ["launch"], "both only read x");
        let after = calls(&mut || launch(&kernel, &b, &y, &mut z));
        assert!(
            after.ends_with(&["record", "wait", "launch"]),
            "y was written on the other stream: {after:?}"
        );
        assert_eq!((a.download(&y).unwrap(), b.download(&z).unwrap()), (vec![6.0; 4], vec![12.0; 4]));
        // Views of parts are arguments too.
        let mut part = z.slice_mut(..).unwrap();
        // SAFETY: the fake's kernel stays in the memory.
        unsafe { kernel.launch(&a, &ONE, (&x.slice(..).unwrap(), &mut part, 0.0)) }.unwrap();
        assert_eq!(a.download(&z).unwrap(), [0.0; 4]);
    });
}

#[test]
fn launches_of_a_text_with_variables_never_overlap() {
    with_compilers(|_, recorder, device| {
        for (variable, hand_over) in
            [("", &["launch"][..]), ("__device__ int sum;\n", &["record", "wait", "launch"])]
        {
            let text = format!("{variable}extern \"C\" __global__ void add() {{}}\n");
            let kernel = device.compile(&text).build().unwrap().typed_kernel::<()>("add").unwrap();
            let (a, b) = (device.stream().unwrap(), device.stream().unwrap());
            // SAFETY: the kernel touches nothing but the variable.
            let launch = |stream| unsafe { kernel.launch(stream, &ONE, ()) }.unwrap();
            launch(&a);
            let calls = words(&recorder.record(|| launch(&b)).1);
            assert!(
                calls.ends_with(hand_over) && calls.len() <= hand_over.len() + 1,
                "{variable}: {calls:?}"
            );
        }
    });
}

#[test]
fn compilers_get_what_was_added_as_single_arguments() {
    with_compilers(|fake, _, device| {
        let odd = "\"a b\" -I/ --help \\ $(x) ; 'c' // é";
        drop(compile(device).define("ODD", odd).define("NONE", "").build().unwrap());
        let options = compiler::options();
        let defines: Vec<_> = options.iter().filter(|option| option.starts_with("-D")).collect();
        assert_eq!(defines, ["-DBLOCK=256", &format!("-DODD={odd}"), "-DNONE="], "{}", fake.name);
        assert!(options.iter().all(|option| !option.starts_with("-I") && option != "--help"), "{options:?}");
    });
}

#[test]
fn log_with_file_and_line_is_in_the_error() {
    with_compilers(|_, recorder, device| {
        let refused = |compile: Compile, words: &[&str]| {
            let error = compile.build().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidModule, "{error}");
            assert_eq!(error.call_site().unwrap().label, "build");
            for word in words {
                assert!(error.message().contains(word), "no {word}: {error}");
            }
        };
        let before = recorder.live();
        refused(device.compile("\n#error not this\n").name("a/b.cu"), &["a/b.cu:2: error: not this"]);
        refused(
            device.compile(SOURCE).name("scale.cu").instance(SCALE),
            &["scale.cu:1: fatal error: 'tile.cuh' file not found"],
        );
        refused(compile(device).instance("solver::step<1>"), &["scale.cu: error", "solver::step"]);
        let error = block_on(device.compile("#error later\n").build_async()).unwrap_err();
        assert_eq!(
            (error.kind(), error.call_site().unwrap().label),
            (ErrorKind::InvalidModule, "build_async")
        );
        assert!(
            error.to_string().contains("source.cu:1: error: later")
                && error.to_string().contains("compile.rs")
        );
        assert_eq!(recorder.live(), before, "nothing was loaded");
    });
}

#[test]
fn kernel_that_was_not_asked_for_is_an_error_that_lists_the_others() {
    with_compilers(|_, _, device| {
        let module = compile(device).instance("scale<double, 4>").build().unwrap();
        for name in ["scale<float, 8>", "scale<float,4>", "solver::scale", "a\0b"] {
            let error = module.kernel(name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::KernelNotFound);
            let text = error.message();
            assert!(
                text.contains("`scale<float, 4>`, `scale<double, 4>`") && text.contains("scale.cu"),
                "{text}"
            );
        }
        module.kernel("fill").unwrap();
    });
}

#[test]
fn types_are_compared_with_the_parameters_that_the_driver_reports() {
    with_compilers(|fake, _, device| {
        let module = compile(device).build().unwrap();
        let refused = |error: gpustream::Error, words: &[&str]| {
            assert_eq!(error.kind(), ErrorKind::ArgumentMismatch);
            assert!(words.iter().all(|word| error.message().contains(word)), "{words:?} in {error}");
        };
        if fake.name == "hip" {
            // HIP reports none, so the first types count, and launches are compared with them.
            module.typed_kernel::<Scale<'_>>(SCALE).unwrap();
        }
        refused(
            module.typed_kernel::<(View<'_, f32>, ViewMut<'_, f32>, f64)>(SCALE).unwrap_err(),
            &["parameter 3 of kernel `scale<float, 4>`", "has 4 bytes", "`f64`", "which has 8 bytes"],
        );
        refused(
            module.typed_kernel::<(View<'_, f32>, ViewMut<'_, f32>)>(SCALE).unwrap_err(),
            &["has 3 parameters of [8, 8, 4] bytes", "2 of [8, 8]"],
        );
        refused(
            module.typed_kernel::<((), View<'_, f32>, f32)>(SCALE).unwrap_err(),
            &["`()`", "parameter 1"],
        );
        let kernel = module.typed_kernel::<Scale<'_>>(SCALE).unwrap();
        let stream = device.stream().unwrap();
        // SAFETY: the launch is refused.
        let launched = unsafe { kernel.untyped().launch(&stream, &ONE, &[gpustream::Arg::value(&1_u32)]) };
        refused(launched.unwrap_err(), &["3 parameters", "1 of [4]"]);
    });
}

/// The attacks on names and texts: none of them gets as far as a compiler.
#[test]
fn odd_names_and_texts_are_refused_before_a_compiler_sees_them() {
    with_compilers(|_, recorder, device| {
        let refused = |compile: Compile, word: &str| {
            let error = compile.build().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            assert!(error.message().contains(word), "no {word}: {error}");
        };
        for name in
            ["../x", "a/../../x", "/etc/x", "a//b", "./x", "", "a\"b", "a\nb", "a\\b", "<x>", "a\0b", "it's"]
        {
            refused(compile(device).header(name, ""), &format!("the header {name:?}"));
            refused(compile(device).name(name), "the name");
        }
        refused(compile(device).header("b.cuh", "a\0b"), "`b.cuh` has a zero byte");
        refused(device.compile("a\0b"), "the text has a zero byte");
        for value in ["1\n#include \"/etc/passwd\"", "1\r2", "a\0b", "1 \\", "1 /*", "\u{85}"] {
            refused(compile(device).define("X", value), &format!("{value:?} of `X`"));
        }
        for name in ["", "1X", "X=1 -DY", "X Y", "X\n", "X(y)", "É", "-X", "X\0"] {
            refused(compile(device).define(name, 1), &format!("the macro {name:?}"));
        }
        for name in ["", " ", "a\0b", "scale<float, 4>;\nint x"] {
            refused(compile(device).instance(name), &format!("the instance {name:?}"));
        }
        refused(compile(device).header("tile.cuh", ""), "`tile.cuh` was added twice");
        refused(compile(device).define("BLOCK", 256), "`BLOCK` was defined twice");
        refused(compile(device).instance(SCALE), "`scale<float, 4>` was asked for twice");
        assert_eq!(compilations(recorder), 0);
        assert!(recorder.names().iter().all(|name| !name.contains("CreateProgram")));
    });
}

#[test]
fn cache_keeps_an_image_for_each_text_header_macro_and_instance() {
    with_compilers(|_, recorder, device| {
        let compiles = |compile: Compile| {
            let before = compilations(recorder);
            let module = compile.build().unwrap();
            module.kernel(SCALE).unwrap();
            compilations(recorder) - before
        };
        let other = || device.compile(SOURCE).name("scale.cu").instance(SCALE);
        assert_eq!(compiles(compile(device)), 1);
        assert_eq!(compiles(compile(device)), 0);
        assert_eq!(compiles(other().header("tile.cuh", "").define("BLOCK", 128)), 1, "another value");
        assert_eq!(compiles(other().header("tile.cuh", "//").define("BLOCK", 256)), 1, "another header");
        assert_eq!(compiles(compile(device).instance("fill")), 1, "another instance");
        assert_eq!(compiles(compile(device).name("other.cu")), 1, "the log names another file");
        assert_eq!(compiles(compile(device)), 0);
    });
}

#[test]
fn future_resolves_once_another_thread_has_compiled() {
    with_compilers(|_, recorder, device| {
        run_scale::<4>(recorder);
        compiler::shut_gate();
        let mut future = compile(device).build_async();
        compiler::wait_at_gate(1);
        assert!(is_pending(&mut future), "this thread goes on while the compiler is at work");
        compiler::open_gate();
        let module = block_on(future).unwrap();
        let calls = recorder.calls();
        let compiled = calls.iter().find(|call| call.name.ends_with("CreateProgram")).unwrap();
        assert_ne!(compiled.thread, thread::current().id());
        let kernel = module.typed_kernel::<Scale<'_>>(SCALE).unwrap();
        let stream = device.stream().unwrap();
        let (x, mut y) = (stream.upload(&[1.0; 4]).unwrap(), stream.zeros(4).unwrap());
        launch(&kernel, &stream, &x, &mut y);
        assert_eq!(stream.download(&y).unwrap(), [2.0; 4]);
    });
}

/// The scene's end checks that the module of the dropped future is unloaded.
#[test]
fn dropped_future_and_device_let_the_compiler_end() {
    with_compilers(|fake, recorder, _| {
        compiler::shut_gate();
        let device = Device::open(fake.name).unwrap();
        let dropped: Vec<Build> = (0..2).map(|_| compile(&device).build_async()).collect();
        compiler::wait_at_gate(2);
        // With the futures goes the device's last handle that this thread has.
        drop((dropped, device));
        compiler::open_gate();
        while recorder.count(if fake.name == "cuda" { "cuModuleUnload" } else { "hipModuleUnload" }) < 2 {
            thread::yield_now();
        }
        let device = Device::open(fake.name).unwrap();
        let before = compilations(recorder);
        drop(compile(&device).build().unwrap());
        assert_eq!(compilations(recorder), before, "the cache has kept the image");
    });
}

#[test]
fn threads_that_compile_one_text_at_once_each_get_a_module() {
    with_compilers(|_, recorder, device| {
        compiler::shut_gate();
        let loaded = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    compile(device).build().unwrap().kernel(SCALE).unwrap();
                    loaded.fetch_add(1, Ordering::SeqCst);
                });
            }
            compiler::wait_at_gate(3);
            compiler::open_gate();
        });
        assert_eq!((loaded.into_inner(), compilations(recorder)), (3, 3));
        drop(compile(device).build().unwrap());
        assert_eq!(compilations(recorder), 3);
    });
}

/// The fake reports a module that is unloaded while a kernel is pending, and a launch of one that is not loaded.
#[test]
fn kernel_outlives_program_and_device_handle_and_a_queued_launch_outlives_all() {
    with_compilers(|fake, recorder, _| {
        run_scale::<4>(recorder);
        let device = Device::open(fake.name).unwrap();
        let module: Module = compile(&device).build().unwrap();
        let kernel = module.typed_kernel::<Scale<'_>>(SCALE).unwrap();
        let stream = device.stream().unwrap();
        let (x, mut y) = (stream.upload(&[1.0; 4]).unwrap(), stream.zeros(4).unwrap());
        stream.synchronize().unwrap();
        drop((module, device));
        recorder.hold();
        launch(&kernel, &stream, &x, &mut y);
        launch(&kernel.clone(), &stream, &x, &mut y);
        drop(kernel);
        assert!(recorder.pending() >= 2);
        recorder.release();
        assert_eq!(stream.download(&y).unwrap(), [2.0; 4]);
    });
}

#[test]
fn compiling_and_loading_inside_a_capture_is_not_recorded() {
    with_compilers(|fake, recorder, device| {
        run_scale::<4>(recorder);
        let stream = device.stream().unwrap();
        let (x, mut y) = (stream.upload(&[1.0; 4]).unwrap(), stream.zeros(4).unwrap());
        let graph = stream
            .capture(|s| {
                let kernel = compile(device).build()?.typed_kernel::<Scale<'_>>(SCALE)?;
                // SAFETY: the fake's kernel stays in the memory.
                unsafe { kernel.launch(s, &ONE, (&x, &mut y, 3.0)) }?;
                // Images of a file behave like the compiled ones.
                let image = module(&[("other", &[8, 8])]);
                let images = [gpustream::Image {
                    backend: fake.name,
                    targets: &[fake.target],
                    bytes: &image,
                    symbols: &[],
                }];
                let source = gpustream::ModuleSource { name: "file", images: &images, globals: &[] };
                // SAFETY: the driver is a fake, and the image is its own.
                unsafe { device.load_module(&source) }.map(drop)
            })
            .unwrap();
        assert_eq!(stream.download(&y).unwrap(), [0.0; 4], "nothing has run");
        // No handle of the module is left, so the graph must keep it.
        graph.launch(&stream).unwrap();
        assert_eq!(stream.download(&y).unwrap(), [3.0; 4]);
    });
}

#[test]
fn kernels_without_and_with_other_parameters_have_types_too() {
    with_compilers(|_, recorder, device| {
        let text = "extern \"C\" __global__ void none() {}\n\
                    extern \"C\" __global__ void fill(unsigned* x, size_t n) /* 8 8 */ {}\n";
        let module = device.compile(text).build().unwrap();
        let none = module.typed_kernel::<()>("none").unwrap();
        let fill = module.typed_kernel::<(ViewMut<'_, u32>, usize)>("fill").unwrap();
        recorder.on_kernel("fill", |run| {
            // SAFETY: the test passes memory and its length.
            unsafe { std::slice::from_raw_parts_mut(run.pointer::<u32>(0), run.integer(1) as usize) }.fill(7);
            true
        });
        let stream = device.stream().unwrap();
        let mut host = device.pinned::<u32>(10).unwrap();
        // SAFETY: the fake's kernels stay in the memory.
        unsafe {
            none.launch(&stream, &Launch::covering(1), ()).unwrap();
            fill.launch(&stream, &Launch::covering(10), (&mut host, 10)).unwrap();
        }
        assert_eq!(*host.read().unwrap(), [7; 10]);
        assert_eq!(none.untyped().name(), "none");
    });
}
