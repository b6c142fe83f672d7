//! Drivers that are older than the toolkit that made the images. Fakes play them. Each one needs its own process,
//! because a process has only one driver.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod fakes;

use fake_cuda::{NVRTC, Options, load_nvrtc, load_with};
use fake_hip::Profile;
use gpustream::codegen::{self, Source, Variables};
use gpustream::{Device, Error, ErrorKind, Image, ModuleSource, Result};
use recorder::{Recorder, module};

use crate::fakes::{ONE, in_child, increment, run_kernel};

const SOURCE: Source<'_> = Source {
    name: "increment.cu",
    text: "extern \"C\" __global__ void increment(unsigned* x, size_t n) /* 8 8 */ { x[0]++; }",
    headers: &[],
    options: &[],
    kernels: &[],
};

/// Images from toolkit 13.0. An older driver refuses them with different codes: machine code, PTX of a version that it
/// does not know, PTX that it cannot read, and a file for other devices.
const NEW: [&[u8]; 4] = [
    b"needs 13000 200\nfake module\nincrement 8 8\n",
    b"needs 13000 222\nfake module\nincrement 8 8\n",
    b"needs 13000 218\nfake module\nincrement 8 8\n",
    b"needs 13000 209\nfake module\nincrement 8 8\n",
];

/// Loads the kernel from these images and runs it. The best image comes first, and each is for another target.
fn increments(
    backend: &'static str,
    device: &Device,
    images: &[&[u8]],
    source: Option<Source<'_>>,
) -> Result<u32> {
    let targets: [&[&str]; 3] = match backend {
        "cuda" => [&["sm_90"], &["compute_90"], &["compute_80"]],
        _ => [&["gfx90a"]; 3],
    };
    let images: Vec<_> = images
        .iter()
        .zip(targets)
        .map(|(bytes, targets)| Image { backend, targets, bytes, symbols: &[] })
        .collect();
    let module = ModuleSource { name: "test", images: &images, globals: &[] };
    let variables = Variables { unlisted: &[], read_only: &[] };
    // SAFETY: the driver is a fake, and the images are its own.
    let module = unsafe { codegen::load(device, &module, source.as_ref(), &[], &variables) }?;
    let kernel = module.kernel("increment")?;
    let stream = device.stream()?;
    let mut x = stream.upload(&[41_u32])?;
    increment(&kernel, &stream, ONE, &mut x)?;
    Ok(stream.download(&x)?[0])
}

/// Plays a scene on this version of CUDA with the same version of NVRTC, and returns what the process printed. In the
/// child it returns `None`.
fn on_cuda(version: i32, scene: impl FnOnce(&Recorder, &Device)) -> Option<String> {
    let cache = tempfile::tempdir().unwrap();
    let variables =
        [("GPUSTREAM_NVRTC_LIBRARY", NVRTC), ("GPUSTREAM_CACHE_DIR", cache.path().to_str().unwrap())];
    in_child(&variables, || {
        let mut without = Vec::new();
        if version < 12_040 {
            without.push("cuFuncGetParamInfo");
        }
        let recorder = load_with(Options { version, without, ..Options::default() });
        load_nvrtc();
        run_kernel(&recorder);
        scene(&recorder, &Device::open("cuda").unwrap());
        assert_eq!(recorder.violations(), [""; 0]);
    })
}

fn the_source_is_compiled_instead(version: i32) {
    let said = on_cuda(version, |recorder, device| {
        for image in NEW {
            let sum = increments("cuda", device, &[image], Some(SOURCE)).unwrap();
            assert_eq!(sum, 42, "{}", image.escape_ascii());
        }
        // The driver loads once for each image, but only the first one needs the compiler. After that the result is in
        // the cache.
        assert_eq!(recorder.count("cuModuleLoadDataEx"), 8);
        assert_eq!(recorder.count("nvrtcCompileProgram"), 1);
    });
    let Some(said) = said else { return };
    let lines: Vec<_> = said.lines().filter(|line| line.contains("gpustream: ")).collect();
    assert_eq!(lines.len(), 1, "{said}");
    for part in ["cuda:0", "module `test`", "its source is compiled", "200"] {
        assert!(lines[0].contains(part), "no {part}: {said}");
    }
}

#[test]
fn cuda_12_0_compiles_the_source_instead() {
    the_source_is_compiled_instead(12_000);
}

#[test]
fn cuda_12_4_compiles_the_source_instead() {
    the_source_is_compiled_instead(12_040);
}

#[test]
fn cuda_12_8_compiles_the_source_instead() {
    the_source_is_compiled_instead(12_080);
}

#[test]
fn cuda_13_takes_the_images_and_says_nothing() {
    let said = on_cuda(13_000, |recorder, device| {
        for image in NEW {
            assert_eq!(increments("cuda", device, &[image], Some(SOURCE)).unwrap(), 42);
        }
        assert_eq!(recorder.count("cuModuleLoadDataEx"), 4);
        assert_eq!(recorder.count("nvrtcCompileProgram"), 0);
    });
    assert!(said.is_none_or(|said| !said.contains("gpustream: ")));
}

#[test]
fn an_older_image_comes_before_the_source() {
    let said = on_cuda(12_080, |recorder, device| {
        let older = module(&[("increment", &[8, 8])]);
        let images: [&[u8]; 3] = [NEW[0], NEW[3], &older];
        assert_eq!(increments("cuda", device, &images, Some(SOURCE)).unwrap(), 42);
        assert_eq!(recorder.count("cuModuleLoadDataEx"), 3);
        assert_eq!(recorder.count("nvrtcCompileProgram"), 0);
    });
    assert!(said.is_none_or(|said| said.contains("its image for compute_80 is used")));
}

#[test]
fn what_cannot_be_replaced_is_the_drivers_refusal() {
    on_cuda(12_080, |_, device| {
        let refused = |source| -> Error { increments("cuda", device, &[NEW[1]], source).unwrap_err() };
        let error = refused(None);
        assert_eq!((error.kind(), error.code()), (ErrorKind::NoImageForDevice, Some(222)));
        let broken = Source { text: "#error not for NVRTC\n", ..SOURCE };
        let error = refused(Some(broken));
        assert_eq!((error.kind(), error.code()), (ErrorKind::NoImageForDevice, Some(222)));
        assert!(error.message().contains("not for NVRTC"), "{error}");
    });
}

#[test]
fn hip_compiles_the_source_instead() {
    let cache = tempfile::tempdir().unwrap();
    in_child(&[("GPUSTREAM_CACHE_DIR", cache.path().to_str().unwrap())], || {
        let recorder = fake_hip::load(Profile::Rocm6);
        run_kernel(&recorder);
        let device = Device::open("hip").unwrap();
        for image in [&b"other arch"[..], b"bad ptx"] {
            assert_eq!(increments("hip", &device, &[image], Some(SOURCE)).unwrap(), 42);
        }
        assert_eq!(recorder.count("hiprtcCompileProgram"), 1);
    });
}
