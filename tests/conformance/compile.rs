//! Texts that a program compiles at run time, by the vendor's own compiler. The CPU device refuses them.

use conformance::{on_threads, refused, tests};
use gpustream::{Compile, Device, ErrorKind, Launch, Result, View, ViewMut};

tests! {
    Plain: an_instance_of_a_template_runs, the_log_has_file_and_line, parameters_are_compared,
        threads_compile_at_once, a_text_can_be_compiled_inside_a_capture;
}

const TEXT: &str = "#include \"parts/tile.cuh\"
template <class T, int N> __global__ void scale(const T* x, T* y, T by) {
    for (int i = 0; i < N; i++) y[TILE * threadIdx.x + i] = by * x[TILE * threadIdx.x + i];
}
extern \"C\" __global__ void twice(int* x) { x[threadIdx.x] *= 2; }
";
const SCALE: &str = "scale<float, 4>";
type Scale<'a> = (View<'a, f32>, ViewMut<'a, f32>, f32);

fn text(device: &Device) -> Compile {
    let text = device.compile(TEXT).name("scale.cu").define("BLOCK", 256).instance(SCALE);
    text.header("parts/tile.cuh", "#pragma once\n#define TILE (BLOCK / 64)\n")
}

/// Returns whether there is a compiler. The CPU has none at run time.
fn has_compiler(device: &Device) -> Result<bool> {
    match text(device).build() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            println!("skipped: {error}");
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

fn scaled(device: &Device, by: f32) -> Result<()> {
    let stream = device.stream()?;
    let kernel = text(device).build()?.typed_kernel::<Scale<'_>>(SCALE)?;
    let (x, mut y) = (stream.full(256, 3.0f32)?, stream.zeros(256)?);
    // SAFETY: 64 threads with 4 elements each stay inside the 256 elements of both buffers.
    unsafe { kernel.launch(&stream, &Launch::new([1; 3], [64, 1, 1]), (&x, &mut y, by)) }?;
    assert_eq!(stream.download(&y)?, [3.0 * by; 256]);
    Ok(())
}

fn an_instance_of_a_template_runs(device: &Device) -> Result<()> {
    if !has_compiler(device)? {
        let error = text(device).build().unwrap_err();
        assert!(
            error.message().contains("build.rs") || device.info().backend != gpustream::BackendName::CPU,
            "{error}"
        );
        return Ok(());
    }
    scaled(device, 2.0)?;
    let stream = device.stream()?;
    let twice = text(device).build()?.typed_kernel::<(ViewMut<'_, i32>,)>("twice")?;
    let mut x = stream.upload(&[1, 2, 3, 4])?;
    // SAFETY: 4 threads touch the 4 elements.
    unsafe { twice.launch(&stream, &Launch::new([1; 3], [4, 1, 1]), (&mut x,)) }?;
    assert_eq!(stream.download(&x)?, [2, 4, 6, 8]);
    Ok(())
}

fn the_log_has_file_and_line(device: &Device) -> Result<()> {
    if !has_compiler(device)? {
        return Ok(());
    }
    let wrong = device.compile("\n__global__ void k() {\nundeclared();\n}\n").name("wrong.cu").instance("k");
    refused(wrong.build(), ErrorKind::InvalidModule, &["wrong.cu", "3", "undeclared"]);
    refused(
        device.compile("#include \"none.cuh\"\n").build(),
        ErrorKind::InvalidModule,
        &["source.cu", "none.cuh"],
    );
    refused(text(device).instance("scale<int>").build(), ErrorKind::InvalidModule, &["scale"]);
    Ok(())
}

fn parameters_are_compared(device: &Device) -> Result<()> {
    if !has_compiler(device)? {
        return Ok(());
    }
    let module = text(device).build()?;
    refused(module.typed_kernel::<()>("thrice"), ErrorKind::KernelNotFound, &["thrice"]);
    let wrong = module.typed_kernel::<(View<'_, f32>, ViewMut<'_, f32>, f64)>(SCALE);
    match wrong {
        // This driver cannot report a kernel's parameters.
        Ok(_) if device.info().backend == gpustream::BackendName::HIP => {}
        other => refused(other, ErrorKind::ArgumentMismatch, &["scale"]),
    }
    Ok(())
}

fn threads_compile_at_once(device: &Device) -> Result<()> {
    if has_compiler(device)? { on_threads(4, |thread| scaled(device, thread as f32)) } else { Ok(()) }
}

fn a_text_can_be_compiled_inside_a_capture(device: &Device) -> Result<()> {
    if !has_compiler(device)? {
        return Ok(());
    }
    let stream = device.stream()?;
    let (x, mut y) = (stream.full(256, 3.0f32)?, stream.zeros(256)?);
    let graph = stream.capture(|stream| {
        // A macro of its own, so that the image does not come from a cache.
        let kernel = text(device).define("OF_A_CAPTURE", 1).build()?.typed_kernel::<Scale<'_>>(SCALE)?;
        // SAFETY: as in `scaled`.
        unsafe { kernel.launch(stream, &Launch::new([1; 3], [64, 1, 1]), (&x, &mut y, 5.0)) }
    })?;
    graph.launch(&stream)?;
    assert_eq!(stream.download(&y)?, [15.0; 256]);
    Ok(())
}
