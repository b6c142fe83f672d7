//! Compiling at run time.

use gpustream_hal::{ErrorKind, Source};

use crate::VENDOR;
use crate::backends::{Vendor, names, start};

const SOURCE: Source<'_> = Source {
    name: "scale.cu",
    text: "#include \"kernel.cuh\"\nextern \"C\" __global__ void scale(float* x) {}\n\
           namespace solver { __global__ void step(float* x) {} }\n",
    headers: &[("kernel.cuh", "")],
    options: &["-DFACTOR=2"],
    kernels: &[("step", "&solver::step")],
};

#[test]
fn source_becomes_a_module() {
    let (recorder, device) = start();
    if VENDOR == Vendor::Rocm(7) {
        // From 7.0 on HIPRTC is a separate library, which the fake does not have. SAFETY: no options.
        let error = unsafe { device.compile(&SOURCE) }.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.message().contains("libhiprtc.so.7") && error.message().contains("hipcc"), "{error}");
        assert_eq!(device.compiler().unwrap_err().kind(), ErrorKind::Unsupported);
        return;
    }
    assert!(device.compiler().unwrap().starts_with("HIPRTC 9.0 of HIP "));
    // SAFETY: no options.
    let (compiled, calls) = recorder.record(|| unsafe { device.compile(&SOURCE) }.unwrap());
    assert_eq!(
        names(&calls),
        [
            "hiprtcCreateProgram",
            "hiprtcAddNameExpression",
            "hiprtcCompileProgram",
            "hiprtcGetLoweredName",
            "hiprtcGetCodeSize",
            "hiprtcGetCode",
            "hiprtcDestroyProgram"
        ]
    );
    assert_eq!(fake_hip::compile_options(), ["--offload-arch=gfx90a", "-O3", "-std=c++17", "-DFACTOR=2"]);
    assert_eq!(compiled.symbols, ["_Zsolver::step"]);
    // SAFETY: the driver is a fake, so it can read any image safely.
    let module = unsafe { device.module_load(&compiled.image) }.unwrap();
    // SAFETY: the module is loaded.
    unsafe {
        device.module_function(module, "scale").unwrap();
        device.module_function(module, &compiled.symbols[0]).unwrap();
        device.module_unload(module).unwrap();
    }
}

#[test]
fn refused_source_comes_with_the_compilers_words() {
    let (recorder, device) = start();
    if VENDOR == Vendor::Rocm(7) {
        return;
    }
    for (source, words) in [
        (Source { text: "#error this is wrong\n", ..SOURCE }, "error: this is wrong"),
        (Source { headers: &[], ..SOURCE }, "'kernel.cuh' file not found"),
    ] {
        // SAFETY: no options.
        let error = unsafe { device.compile(&source) }.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidModule);
        assert!(error.message().contains("scale.cu") && error.message().contains(words), "{error}");
    }
    assert_eq!(recorder.count("hiprtcCreateProgram"), recorder.count("hiprtcDestroyProgram"));
    let zero = Source { text: "a\0b", ..SOURCE };
    // SAFETY: no options.
    assert_eq!(unsafe { device.compile(&zero) }.unwrap_err().kind(), ErrorKind::InvalidArgument);
}
