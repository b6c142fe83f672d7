//! The driver's calls around a matrix product, which are the same for CUDA and HIP.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod fakes;

use gpustream::{Buffer, Device, ErrorKind, Stream};
use gpustream_math::Complex;
use gpustream_math::prelude::*;
use recorder::{Call, Recorder};

use std::path::Path;
use std::process::Command;

use crate::fakes::{Fake, ONE, in_child, increment, load_kernel, on_each, run_kernel};

const N: usize = 8;

/// Plays a scene on both drivers, with two streams. The fakes' products fill the result with ones.
fn on_both(scene: impl Fn(&Fake, &Recorder, &Device, [Stream; 2])) {
    fake_blas::load();
    on_each(|fake, recorder| {
        let device = Device::open(fake.name).unwrap();
        run_kernel(recorder);
        gpustream_math::prepare(&device).unwrap();
        let streams = [(); 2].map(|()| device.stream().unwrap());
        scene(fake, recorder, &device, streams);
        recorder.release();
    });
}

fn square(stream: &Stream, x: &Buffer<f32>, y: &mut Buffer<f32>) -> gpustream::Result<()> {
    let x = MatrixView::new(x, N, N)?;
    stream.gemm(x, x, MatrixViewMut::new(y, N, N)?)
}

/// Returns the calls that order or do work, in words that both vendors share. A product is one too.
fn calls(recorder: &Recorder, work: impl FnOnce()) -> Vec<&'static str> {
    let ((), calls) = recorder.record(work);
    let word = |call: &Call| match call.name {
        "cublasGemmEx" | "hipblasGemmEx_v2" => "product",
        _ => call.word(),
    };
    calls.iter().map(word).filter(|word| ["launch", "record", "wait", "product"].contains(word)).collect()
}

#[test]
fn a_product_adds_nothing_within_a_stream_and_one_hand_over_between_two() {
    on_both(|fake, recorder, device, [a, b]| {
        let kernel = load_kernel(fake, device).unwrap();
        let (mut x, mut y) = (a.zeros::<f32>(N * N).unwrap(), a.zeros::<f32>(N * N).unwrap());
        let mut round = |first: &Stream, second: &Stream, third: &Stream| {
            increment(&kernel, first, ONE, &mut x.cast_mut::<u32>().unwrap()).unwrap();
            square(second, &x, &mut y).unwrap();
            increment(&kernel, third, ONE, &mut y.cast_mut::<u32>().unwrap()).unwrap();
        };
        // From here on nothing ends, so that every hand-over has something to wait for. The first rounds make events.
        recorder.hold();
        round(&a, &b, &a);
        round(&a, &a, &a);
        assert_eq!(calls(recorder, || round(&a, &a, &a)), ["launch", "product", "launch"]);
        let two = calls(recorder, || round(&a, &b, &b));
        assert_eq!(two, ["launch", "record", "wait", "product", "launch"]);
        let there_and_back = calls(recorder, || round(&b, &a, &b));
        assert_eq!(there_and_back[there_and_back.len() - 4..], ["product", "record", "wait", "launch"]);
        recorder.release();
        assert_eq!(a.download(&y).unwrap()[0].to_bits(), 1.0f32.to_bits() + 1);
    });
}

#[test]
fn a_handle_is_set_up_only_if_something_changed() {
    on_both(|_, recorder, _, [a, b]| {
        let (x, mut y) = (a.zeros::<f32>(N * N).unwrap(), a.zeros::<f32>(N * N).unwrap());
        // Nothing ends, so that the pool cannot give memory of finished work.
        recorder.hold();
        square(&a, &x, &mut y).unwrap();
        let settings = |stream: &Stream, y: &mut Buffer<f32>| {
            let ((), calls) = recorder.record(|| square(stream, &x, y).unwrap());
            calls.iter().filter(|call| call.name.contains("blasSet")).count()
        };
        for _ in 0..20 {
            assert_eq!(settings(&a, &mut y), 0, "the same stream and the same workspace");
        }
        assert_eq!(settings(&b, &mut y), 2, "another stream, which takes the workspace away");
    });
}

#[test]
fn workspace_is_kept_for_the_last_streams_and_graphs_have_their_own() {
    on_both(|_, recorder, device, [a, _]| {
        let (x, mut y) = (a.zeros::<f32>(N * N).unwrap(), a.zeros::<f32>(N * N).unwrap());
        let before = device.memory_stats().used;
        let mut kept = |stream: &Stream| {
            square(stream, &x, &mut y).unwrap();
            device.memory_stats().used - before
        };
        let one = kept(&a);
        assert!(one > 0);
        assert_eq!(kept(&a), one);
        let others = [(); 5].map(|()| device.stream().unwrap());
        assert_eq!([0, 1, 2, 3, 4].map(|at| kept(&others[at]) / one), [2, 3, 4, 4, 4]);

        // A graph on the stream that has workspace takes other memory, or plain calls would wait for the graph.
        let address = |work: &mut dyn FnMut()| {
            let ((), calls) = recorder.record(work);
            let set = calls.iter().find(|call| call.name.contains("blasSetWorkspace"));
            set.map(|call| call.arg("memory"))
        };
        let stream = &others[4];
        let graph = address(&mut || drop(stream.capture(|s| square(s, &x, &mut y)).unwrap()));
        let plain = address(&mut || square(stream, &x, &mut y).unwrap());
        assert!(graph.is_some() && plain.is_some() && graph != plain, "{graph:?} {plain:?}");
    });
}

#[test]
fn failures_of_the_library_name_its_function() {
    on_both(|fake, recorder, _, [a, _]| {
        let (x, mut y) = (a.zeros::<f32>(N * N).unwrap(), a.zeros::<f32>(N * N).unwrap());
        recorder.fail_next(if fake.name == "cuda" { "cublasGemmEx" } else { "hipblasGemmEx_v2" }, 13);
        let error = square(&a, &x, &mut y).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::External, Some(13)), "{error}");
        assert!(error.call().is_some_and(|call| call.contains("GemmEx")), "{error}");
        square(&a, &x, &mut y).unwrap();
    });
}

#[test]
fn a_library_is_not_opened_in_a_capture() {
    fake_blas::load();
    on_each(|fake, recorder| {
        let device = Device::open(fake.name).unwrap();
        let s = device.stream().unwrap();
        let (x, mut y) = (s.zeros::<f32>(N * N).unwrap(), s.zeros::<f32>(N * N).unwrap());
        let error = s.capture(|s| square(s, &x, &mut y)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Captured, "{error}");
        assert!(error.to_string().contains("prepare"), "{error}");
        square(&s, &x, &mut y).unwrap();
        let graph = s.capture(|s| square(s, &x, &mut y)).unwrap();
        graph.launch(&s).unwrap();
        assert_eq!(s.download(&y).unwrap(), [1.0; N * N]);
        drop(graph);
        recorder.release();
    });
}

#[test]
fn conjugated_matrices_are_copied_only_if_they_would_not_be_transposed() {
    on_both(|fake, recorder, _, [s, _]| {
        let x = s.zeros::<Complex<f32>>(N * N).unwrap();
        let mut y = s.zeros::<Complex<f32>>(N * N).unwrap();
        let mut product = |order: Order, x_order: Order| -> Vec<_> {
            let ((), calls) = recorder.record(|| {
                let x = MatrixView::with_layout(&x, Layout::new(N, N).order(x_order)).unwrap();
                let y = MatrixViewMut::with_layout(&mut y, Layout::new(N, N).order(order)).unwrap();
                s.gemm(x.h(), x.h(), y).unwrap();
            });
            let is_call = |name: &str| name.contains("geam") || name.contains("GemmEx");
            let ops = |call: &Call| ["op_a", "op_b"].map(|name| call.arg(name));
            calls.iter().filter(|call| is_call(call.name)).map(ops).collect()
        };
        let [plain, transposed, conjugated] = if fake.name == "cuda" { [0, 1, 2] } else { [111, 112, 113] };
        for order in [Order::RowMajor, Order::ColumnMajor] {
            assert_eq!(product(order, order), [[conjugated; 2]]);
        }
        let copied = [[conjugated, plain], [conjugated, plain], [transposed; 2]];
        assert_eq!(product(Order::RowMajor, Order::ColumnMajor), copied);
        assert_eq!(product(Order::ColumnMajor, Order::RowMajor), copied);
    });
}

#[test]
fn an_epilogue_is_one_call_of_the_lt_library() {
    on_both(|fake, recorder, device, [s, other]| {
        let is_cuda = fake.name == "cuda";
        let (lt, gemm) =
            if is_cuda { ("cublasLt", "cublasGemmEx") } else { ("hipblasLt", "hipblasGemmEx_v2") };
        let function = |name: &str| format!("{lt}{name}");
        let (x, bias) = (s.zeros::<f32>(N * N).unwrap(), s.zeros::<f32>(N).unwrap());
        let mut y = s.zeros::<f32>(N * N).unwrap();
        let layer = |s: &Stream, y: &mut Buffer<f32>, activation, order| {
            let x = MatrixView::new(&x, N, N)?;
            let y = MatrixViewMut::with_layout(y, Layout::new(N, N).order(order))?;
            s.gemm_with(Gemm::new().bias(&bias).activation(activation), x, x, y)
        };
        let names = |work: &mut dyn FnMut()| -> Vec<_> {
            let ((), calls) = recorder.record(work);
            calls.iter().map(|call| call.name).filter(|name| name.contains("blas")).collect()
        };
        let (relu, gelu, rows) = (Activation::Relu, Activation::Gelu, Order::RowMajor);
        let first = names(&mut || layer(&s, &mut y, relu, rows).unwrap());
        let heuristic = function("MatmulAlgoGetHeuristic");
        assert_eq!(first.iter().filter(|name| **name == heuristic).count(), 1);
        assert_eq!(first.last(), Some(&&*function("Matmul")));
        assert!(!first.contains(&gemm), "{first:?}");
        // What the library has chosen is kept.
        let again = names(&mut || layer(&s, &mut y, relu, rows).unwrap());
        assert_eq!(again, [function("MatmulDescSetAttribute"), function("Matmul")]);
        assert_eq!(s.download(&y).unwrap(), [2.0; N * N]);
        // A kind that first comes in a capture.
        let graph = s.capture(|s| layer(s, &mut y, Activation::None, rows)).unwrap();
        s.fill(&mut y, 0.0).unwrap();
        graph.launch(&s).unwrap();
        assert_eq!(s.download(&y).unwrap(), [2.0; N * N]);
        // hipBLASLt's products run one after another, and cuBLASLt's at once.
        let mut z = other.zeros::<f32>(N * N).unwrap();
        device.synchronize().unwrap();
        recorder.hold();
        layer(&s, &mut y, relu, rows).unwrap();
        let ((), calls) = recorder.record(|| layer(&other, &mut z, relu, rows).unwrap());
        assert_eq!(calls.iter().any(|call| call.word() == "wait"), !is_cuda);
        recorder.release();
        // Without an algorithm, or with a bias that the library would add to the rows, it is a product and a kernel, which these
        // drivers do not have.
        recorder.fail_next(
            if is_cuda { "cublasLtMatmulAlgoGetHeuristic" } else { "hipblasLtMatmulAlgoGetHeuristic" },
            if is_cuda { 15 } else { 7 },
        );
        let without = names(&mut || drop(layer(&s, &mut y, gelu, rows)));
        assert_eq!(without.last(), Some(&gemm));
        let once_more = names(&mut || drop(layer(&s, &mut y, gelu, rows)));
        assert_eq!(once_more, [gemm], "it is not asked again");
        let columns = names(&mut || drop(layer(&s, &mut y, relu, Order::ColumnMajor)));
        assert_eq!(columns, [gemm]);
    });
}

/// What hipBLASLt does not promise goes to hipBLAS.
#[test]
fn hipblaslt_only_gets_what_it_is_known_to_take() {
    on_both(|fake, recorder, _, [s, _]| {
        let x = s.zeros::<f32>(N * N + 1).unwrap();
        let (mut y, two) = (s.zeros::<f32>(N * N).unwrap(), s.full(1, 2.0f32).unwrap());
        let mut uses_lt = |start: usize, alpha: Scalar<'_, f32>| {
            let ((), calls) = recorder.record(|| {
                let x = x.slice(start..start + N * N).unwrap();
                let x = MatrixView::new(&x, N, N).unwrap();
                let options = Gemm::new().alpha(alpha).activation(Activation::Relu);
                drop(s.gemm_with(options, x, x, MatrixViewMut::new(&mut y, N, N).unwrap()));
            });
            calls.iter().any(|call| call.name.ends_with("LtMatmul"))
        };
        let is_cuda = fake.name == "cuda";
        assert!(uses_lt(0, 1.0.into()));
        assert_eq!(uses_lt(1, 1.0.into()), is_cuda, "a matrix at an address that is no multiple of 16");
        assert_eq!(uses_lt(0, Scalar::Device(two.slice(..).unwrap())), is_cuda, "a scalar on the device");
    });
}

#[test]
fn products_anywhere_in_memory_are_one_call_and_their_addresses_are_copied_once() {
    on_both(|_, recorder, device, [s, other]| {
        let x = s.zeros::<f32>(N * N).unwrap();
        let mut results: Vec<_> = (0..5).map(|_| s.zeros::<f32>(N * N).unwrap()).collect();
        let all = |s: &Stream, results: &mut [Buffer<f32>], order: Order| {
            let x = MatrixView::new(&x, N, N)?;
            let layout = Layout::new(N, N).order(order);
            let c = results.iter_mut().map(|c| MatrixViewMut::with_layout(c, layout));
            s.gemm_each(Gemm::new(), &[x], &[x.t()], &mut c.collect::<gpustream::Result<Vec<_>>>()?)
        };
        let products = |calls: &[Call]| -> Vec<[i32; 4]> {
            let products = calls.iter().filter(|call| call.name.contains("Gemm"));
            products.map(|call| ["m", "n", "k", "batch"].map(|name| call.arg(name) as i32)).collect()
        };
        let bytes =
            |calls: &[Call]| calls.iter().filter(|call| call.name.to_lowercase().contains("memcpy")).count();
        let (done, calls) = recorder.record(|| all(&s, &mut results, Order::RowMajor));
        done.unwrap();
        assert_eq!((products(&calls), bytes(&calls)), (vec![[N as i32, N as i32, N as i32, 5]], 1));
        for stream in [&s, &other] {
            let (done, calls) = recorder.record(|| all(stream, &mut results, Order::RowMajor));
            done.unwrap();
            assert_eq!((products(&calls).len(), bytes(&calls)), (1, 0));
        }
        // A new list in a capture and in a step, where it is no part of the graph.
        let graph = s.capture(|s| all(s, &mut results[1..], Order::RowMajor)).unwrap();
        let mut step = device.replay();
        for _ in 0..4 {
            step.run(&s, |s| all(s, &mut results[2..], Order::RowMajor)).unwrap();
        }
        assert_eq!(step.stats().segments, 1);
        for result in &mut results {
            s.fill(result, 0.0).unwrap();
        }
        let ones = |results: &[Buffer<f32>]| -> Vec<bool> {
            results.iter().map(|result| s.download(result).unwrap() == [1.0; N * N]).collect()
        };
        step.run(&s, |s| all(s, &mut results[2..], Order::RowMajor)).unwrap();
        assert_eq!(ones(&results), [false, false, true, true, true]);
        graph.launch(&s).unwrap();
        assert_eq!(ones(&results), [false, true, true, true, true]);
        drop((graph, step));
        // One result, or results that differ.
        let (done, calls) = recorder.record(|| all(&s, &mut results[..1], Order::RowMajor));
        done.unwrap();
        assert!(calls.iter().any(|call| call.name.contains("GemmEx")));
        let (done, calls) = recorder.record(|| {
            let x = MatrixView::new(&x, N, N)?;
            let [first, second, ..] = &mut results[..] else { unreachable!() };
            let second = MatrixViewMut::with_layout(second, Layout::new(N, N).order(Order::ColumnMajor))?;
            s.gemm_each(Gemm::new(), &[x], &[x], &mut [MatrixViewMut::new(first, N, N)?, second])
        });
        done.unwrap();
        assert_eq!(calls.iter().filter(|call| call.name.contains("GemmEx")).count(), 2);
    });
}

/// We pad sizes of `i8` to multiples of 16 for cuBLAS.
#[test]
fn odd_products_of_i8_are_padded_for_cublas() {
    on_both(|fake, recorder, _, [s, _]| {
        let (a, b) = (s.zeros::<i8>(2 * 5 * 3).unwrap(), s.zeros::<i8>(3 * 7).unwrap());
        // Rows of 7 in lines of 9, twice.
        let mut c = s.full(2 * 45, -1i32).unwrap();
        let ((), calls) = recorder.record(|| {
            let a = MatrixView::with_layout(&a, Layout::new(5, 3).batch(2)).unwrap();
            let layout = Layout::new(5, 7).leading(9).batch(2);
            let c = MatrixViewMut::with_layout(&mut c, layout).unwrap();
            let options = Gemm::new().beta(1);
            s.gemm_with(options, a, MatrixView::new(&b, 3, 7).unwrap(), c).unwrap();
        });
        let product = calls.iter().find(|call| call.name.contains("GemmStridedBatchedEx")).unwrap();
        let size = ["m", "n", "k", "batch"].map(|name| product.arg(name));
        // The library sees the transposed product.
        assert_eq!(size, if fake.name == "cuda" { [32, 32, 32, 2] } else { [7, 5, 3, 2] });
        if fake.name == "cuda" {
            let one = 1.0f32.to_bits() as i32;
            let want: Vec<_> = (0..90).map(|at| if at % 9 < 7 { one } else { -1 }).collect();
            assert_eq!(s.download(&c).unwrap(), want);
        }
    });
}

/// The shim of hipBLAS over cuBLAS, with which hardware tests of HIP run on an NVIDIA GPU.
#[test]
fn calls_through_the_shim_arrive_as_cublas_calls() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hip-shim");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/hip/shim/build.sh");
    assert!(Command::new(script).arg(&folder).status().unwrap().success());
    let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    for version in ["2", "3"] {
        let (hip, blas) = (file("libamdhip64.so.6"), file(&format!("libhipblas.so.{version}")));
        let variables = [("GPUSTREAM_HIP_LIBRARY", hip.as_str()), ("GPUSTREAM_HIPBLAS_LIBRARY", &blas)];
        let told = in_child(&variables, || {
            let recorder = fake_cuda::load();
            fake_blas::load();
            let device = Device::open("hip").unwrap();
            let s = device.stream().unwrap();
            let x = s.zeros::<Complex<f32>>(N * N).unwrap();
            let mut y = s.zeros::<Complex<f32>>(N * N).unwrap();
            let mut product = || {
                let y = MatrixViewMut::new(&mut y, N, N)?;
                // One is transposed and conjugated, and the other one copied conjugated.
                let x = MatrixView::new(&x, N, N)?;
                s.gemm_with(Gemm::new().compute(Compute::Tf32), x.h(), x.h().t(), y)
            };
            let (done, calls) = recorder.record(&mut product);
            done.unwrap();
            let numbers = |name: &str, wanted: &[&str]| -> Vec<i64> {
                let call = calls.iter().find(|call| call.name == name).unwrap();
                wanted.iter().map(|arg| i64::from(call.arg(arg) as i32)).collect()
            };
            assert_eq!(numbers("cublasCgeam", &["op_a", "op_b"]), [2, 0]);
            // Nothing computes in TF32 on AMD, so this is `f32`.
            let wanted = ["op_a", "op_b", "a_type", "compute", "algorithm"];
            assert_eq!(numbers("cublasGemmEx", &wanted), [1, 2, 4, 68, -1]);
            recorder.fail_next("cublasGemmEx", 15);
            let error = product().unwrap_err();
            assert_eq!((error.kind(), error.code()), (ErrorKind::Unsupported, Some(7)), "{error}");
            assert!(error.to_string().contains("hipblasGemmEx"), "{error}");
            // hipBLAS 2 takes no workspace from us. So there, cuBLAS allocates its own.
            let broken = recorder.violations();
            let takes_workspace = std::env::var("GPUSTREAM_HIPBLAS_LIBRARY").unwrap().ends_with('3');
            assert_eq!(broken.is_empty(), takes_workspace, "{broken:?}");
            assert!(broken.iter().all(|rule| rule.contains("without a workspace")), "{broken:?}");
        });
        if told.is_none() {
            return;
        }
    }
}
