//! How kernels are loaded, and what you are told if an image cannot be.

use conformance::{args, assert_all, refused, sync, tests};
use gpustream::codegen::{self, Checksum};
use gpustream::{Device, ErrorKind, Image, Launch, ModuleSource, ParamInfo, Result, ViewMut};

tests! {
    Plain: an_unknown_kernel_is_refused, parameters_that_differ_are_refused, images_for_other_devices_are_refused,
        a_module_without_images_is_refused, damaged_images_are_refused, an_image_of_another_build_is_refused,
        source_that_does_not_compile_is_refused, kernels_of_images_have_types_too, a_module_can_be_loaded_twice, loading_works_after_failures;
}

fn an_unknown_kernel_is_refused(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    refused(
        kernels.module().kernel("no_such_kernel"),
        ErrorKind::KernelNotFound,
        &["no_such_kernel", "sync"],
    );
    refused(kernels.module().kernel(""), ErrorKind::KernelNotFound, &[]);
    kernels.module().kernel("spin").map(drop)
}

/// The bindings may come from another version of the source than the image.
fn parameters_that_differ_are_refused(device: &Device) -> Result<()> {
    let kernels = args::Kernels::load(device)?;
    let module = kernels.module();
    let pointer = ParamInfo { offset: 0, size: 8 };
    module.kernel_with("no_contract", &[pointer])?;
    let wrong = module.kernel_with("no_contract", &[pointer, ParamInfo { offset: 8, size: 4 }]);
    match wrong {
        // This driver cannot report a kernel's parameters.
        Ok(_) if device.info().backend != gpustream::BackendName::CPU => {}
        other => refused(other, ErrorKind::ArgumentMismatch, &["no_contract", "same source"]),
    }
    Ok(())
}

fn images_for_other_devices_are_refused(device: &Device) -> Result<()> {
    let images = [
        Image { backend: "vulkan", targets: &["spirv"], bytes: b"", symbols: &[] },
        Image {
            backend: device.info().backend.as_str(),
            targets: &["sm_1", "gfx1", "pdp-11"],
            bytes: b"",
            symbols: &[],
        },
    ];
    let source = ModuleSource { name: "elsewhere", images: &images, globals: &[] };
    let arch = device.info().arch.as_str();
    let (method, variable) = how_to_build_for(device);
    refused(
        // SAFETY: none of the images is for any device.
        unsafe { device.load_module(&source) },
        ErrorKind::NoImageForDevice,
        &["elsewhere", "vulkan", "pdp-11", arch, &format!(".{method}(\"{arch}\")"), variable],
    );
    Ok(())
}

/// Returns the method and the variable that choose targets for the device's backend.
fn how_to_build_for(device: &Device) -> (&'static str, &'static str) {
    match device.info().backend.as_str() {
        "cuda" => ("cuda_arch", "GPUSTREAM_CUDA_ARCHS"),
        "hip" => ("hip_arch", "GPUSTREAM_HIP_ARCHS"),
        _ => ("cpu_level", "GPUSTREAM_CPU_LEVELS"),
    }
}

fn a_module_without_images_is_refused(device: &Device) -> Result<()> {
    let source = ModuleSource { name: "empty", images: &[], globals: &[] };
    // SAFETY: the source has no image.
    let loaded = unsafe { device.load_module(&source) };
    let (method, variable) = how_to_build_for(device);
    let backend = device.info().backend;
    let asked = [".backend(Backend::", "GPUSTREAM_BACKENDS", backend.as_str(), method, variable];
    refused(loaded, ErrorKind::NoImageForDevice, &[&["empty", "no images"], &asked[..]].concat());
    Ok(())
}

fn damaged_images_are_refused(device: &Device) -> Result<()> {
    let backend = device.info().backend;
    let arch = device.info().arch.clone();
    let targets = [arch.as_str()];
    let elf = [&b"\x7fELF\x02\x01\x01"[..], &[0; 500]].concat();
    for bytes in [&b""[..], b"not a module", &[0; 4096], &elf] {
        let images = [Image { backend: backend.as_str(), targets: &targets, bytes, symbols: &[] }];
        let source = ModuleSource { name: "damaged", images: &images, globals: &[] };
        // SAFETY: none of the images has code that a loader could run.
        let Err(error) = (unsafe { device.load_module(&source) }) else {
            panic!("{} damaged bytes were loaded", bytes.len())
        };
        let kinds = [ErrorKind::InvalidModule, ErrorKind::NoImageForDevice];
        assert!(kinds.contains(&error.kind()), "{error:?}");
        assert!(error.message().contains("damaged"), "{error}");
    }
    Ok(())
}

/// We must compare an embedded image with the checksum in the bindings before any loader gets it.
fn an_image_of_another_build_is_refused(device: &Device) -> Result<()> {
    static CHECKSUMS: [Checksum; 1] =
        [Checksum::new("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08")];
    let targets = [device.info().arch.as_str()];
    let load = |bytes: &[u8]| {
        let images =
            [Image { backend: device.info().backend.as_str(), targets: &targets, bytes, symbols: &[] }];
        let source = ModuleSource { name: "embedded", images: &images, globals: &[] };
        let variables = codegen::Variables { unlisted: &[], read_only: &[] };
        // SAFETY: neither of the two images has code that a loader could run.
        unsafe { codegen::load(device, &source, None, &CHECKSUMS, &variables) }
    };
    let changed = load(b"tesT");
    refused(
        changed,
        ErrorKind::InvalidModule,
        &["embedded", "comes from another build", "9f86d081", "Build it again"],
    );
    let Err(error) = load(b"test") else { panic!("four letters were loaded") };
    assert!(!error.message().contains("comes from another build"), "the loader's own words: {error}");
    Ok(())
}

fn source_that_does_not_compile_is_refused(device: &Device) -> Result<()> {
    let text = "extern \"C\" __global__ void k(int* x) { *x = undeclared_thing; }";
    let Err(error) = device.compile(text).name("wrong.cu").build() else { panic!("it compiled") };
    match error.kind() {
        // The CPU, or this machine, has no run-time compiler.
        ErrorKind::Unsupported if device.info().backend == gpustream::BackendName::CPU => {
            assert!(error.message().contains("build.rs"), "{error}");
        }
        ErrorKind::Unsupported => {}
        ErrorKind::InvalidModule => {
            assert!(
                error.message().contains("undeclared_thing") && error.message().contains("wrong.cu"),
                "{error}"
            );
        }
        _ => panic!("{error:?}"),
    }
    Ok(())
}

fn kernels_of_images_have_types_too(device: &Device) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let module = kernels.module();
    let step = module.typed_kernel::<(ViewMut<'_, u32>, u32, usize)>("step")?;
    let s = device.stream()?;
    let mut x = s.full(100, 1u32)?;
    // SAFETY: the kernel stays inside the 100 elements.
    unsafe { step.launch(&s, &Launch::covering(100), (&mut x, 1, 100)) }?;
    assert_all(&s, &x, 6)?;
    if device.info().backend == gpustream::BackendName::CPU {
        let wrong = module.typed_kernel::<(ViewMut<'_, u32>, u64, usize)>("step");
        refused(
            wrong,
            ErrorKind::ArgumentMismatch,
            &["parameter 2", "`step`", "4 bytes", "`u64`", "8 bytes"],
        );
        let fewer = module.typed_kernel::<(ViewMut<'_, u32>, u32)>("step");
        refused(fewer, ErrorKind::ArgumentMismatch, &["3 parameters", "2 of [8, 4]"]);
    }
    let nothing = module.typed_kernel::<(ViewMut<'_, u32>, (), usize)>("step");
    refused(nothing, ErrorKind::ArgumentMismatch, &["parameter 2", "0 bytes"]);
    Ok(())
}

fn a_module_can_be_loaded_twice(device: &Device) -> Result<()> {
    let (first, second) = (sync::Kernels::load(device)?, sync::Kernels::load(device)?);
    let s = device.stream()?;
    let mut x = s.full(100, 1u32)?;
    first.step(&s, &mut x, 1, 100)?;
    drop(first);
    second.step(&s, &mut x, 2, 100)?;
    assert_all(&s, &x, 32)
}

fn loading_works_after_failures(device: &Device) -> Result<()> {
    for _ in 0..3 {
        damaged_images_are_refused(device)?;
        a_module_can_be_loaded_twice(device)?;
    }
    Ok(())
}
