//! On AMD GPUs, products of matrices use the instructions for matrix cores, and need no scratch memory. If the compiler or its
//! disassembler is missing, the test reports itself as skipped.

#![allow(clippy::unwrap_used, clippy::panic)]

#[expect(dead_code, reason = "this file needs nothing for the CPU")]
mod fixture;

use std::fs;
use std::path::Path;
use std::process::Command;

use fixture::build;
use gpustream_build::toolchain::HipCompiler;
use gpustream_build::{Backend, Kernels};

const PRODUCT: &str = r"#include <gpustream/kernel.cuh>
#include <gpustream/matrix.cuh>
/// c = a b, 16 by 16, with a depth of one operation.
/// types: T = gs::half, gs::bfloat16, int8_t, gs::tf32, double
template <class T>
__global__ void product(const T* a, const T* b, typename gs::MatrixType<T>::Sum* c) {
    gs::MatrixA<T> x;
    gs::MatrixB<T> y;
    gs::MatrixC<T> z;
    z.fill(0);
    typedef typename gs::MatrixMemory<T>::Type Memory;
    gs::load_rows(x, (const Memory*)a, x.columns);
    gs::load_rows(y, (const Memory*)b, 16);
    gs::multiply_add(z, x, y);
    gs::store_rows(z, c, 16);
}
";

/// Returns the code of a file for the GPU, or why there is none.
fn disassembled(compiler: &Path, object: &Path) -> Result<String, String> {
    let run = |program: &Path, arguments: &[&str]| {
        let output = Command::new(program)
            .args(arguments)
            .output()
            .map_err(|e| format!("{}: {e}", program.display()))?;
        if !output.status.success() {
            return Err(format!("{}: {}", program.display(), String::from_utf8_lossy(&output.stderr)));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let disassembler = run(compiler, &["-print-prog-name=llvm-objdump"])?;
    run(Path::new(disassembler.trim()), &["-d", &object.display().to_string()])
}

/// The kernels of `multiply_matrices`, as they are in the workspace.
#[test]
fn products_of_all_types_need_no_scratch_on_amd_gpus() {
    const NAME: &str = "products_of_all_types_need_no_scratch_on_amd_gpus";
    let targets = ["gfx90a", "gfx942", "gfx1100", "gfx1201"];
    if let Err(missing) = HipCompiler::find(&targets) {
        return eprintln!("SKIPPED {NAME}: {missing}");
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels/gemm_strided.cu");
    if !fs::exists(&file).unwrap() {
        return eprintln!("SKIPPED {NAME}: {} is not there", file.display());
    }
    let dir = tempfile::tempdir().unwrap();
    let kernels =
        Kernels::new().file(file).out_dir(dir.path()).environment_overrides(false).backend(Backend::Hip);
    let built = targets.iter().fold(kernels, |kernels, target| kernels.hip_arch(*target)).build().unwrap();
    for report in &built.files[0].kernels {
        assert_eq!(report.scratch, Some(0), "{} for {}", report.kernel, report.target);
    }
    for (target, instructions) in [
        ("gfx90a", &["v_mfma_f64_16x16x4f64", "v_mfma_i32_16x16x16i8"][..]),
        ("gfx942", &["v_mfma_f64_16x16x4_f64", "v_mfma_i32_16x16x32_i8"]),
        ("gfx1100", &["v_wmma_i32_16x16x16_iu8"]),
        ("gfx1201", &["v_wmma_i32_16x16x16_iu8"]),
    ] {
        let compiler = HipCompiler::find(&[target]).unwrap();
        let code = match disassembled(&compiler.path, &dir.path().join(format!("gemm_strided.{target}.co"))) {
            Ok(code) => code,
            Err(missing) => return eprintln!("SKIPPED {NAME}: {missing}"),
        };
        for instruction in instructions {
            assert!(code.contains(instruction), "{target} has no {instruction}");
        }
    }
}

#[test]
fn amd_gpus_multiply_on_matrix_cores_without_scratch() {
    const NAME: &str = "amd_gpus_multiply_on_matrix_cores_without_scratch";
    let expected: [(&str, &[&str]); 4] = [
        (
            "gfx90a",
            &[
                "v_mfma_f32_16x16x16f16",
                "v_mfma_f32_16x16x16bf16_1k",
                "v_mfma_i32_16x16x16i8",
                "v_mfma_f32_16x16x4f32",
                "v_mfma_f64_16x16x4f64",
            ],
        ),
        (
            "gfx942",
            &[
                "v_mfma_f32_16x16x16_f16",
                "v_mfma_f32_16x16x16_bf16",
                "v_mfma_i32_16x16x32_i8",
                "v_mfma_f32_16x16x8_xf32",
                "v_mfma_f64_16x16x4_f64",
            ],
        ),
        ("gfx1100", &["v_wmma_f32_16x16x16_f16", "v_wmma_f32_16x16x16_bf16", "v_wmma_i32_16x16x16_iu8"]),
        ("gfx1201", &["v_wmma_f32_16x16x16_f16", "v_wmma_f32_16x16x16_bf16", "v_wmma_i32_16x16x16_iu8"]),
    ];
    let compiler = match HipCompiler::find(&expected.map(|(target, _)| target)) {
        Ok(compiler) => compiler,
        Err(missing) => return eprintln!("SKIPPED {NAME}: {missing}"),
    };
    let dir = tempfile::tempdir().unwrap();
    let all =
        |kernels| expected.iter().fold(kernels, |kernels: Kernels, (target, _)| kernels.hip_arch(*target));
    let built = build(dir.path(), PRODUCT, |kernels| all(kernels.backend(Backend::Hip))).unwrap();
    for report in &built.files[0].kernels {
        assert_eq!(report.scratch, Some(0), "{} for {}", report.kernel, report.target);
    }
    for (target, instructions) in expected {
        let object = built.out_dir.join(format!("k.{target}.co"));
        assert!(fs::exists(&object).unwrap(), "{}", object.display());
        let code = match disassembled(&compiler.path, &object) {
            Ok(code) => code,
            Err(missing) => return eprintln!("SKIPPED {NAME}: {missing}"),
        };
        for instruction in instructions {
            assert!(code.contains(instruction), "{target} has no {instruction}");
        }
    }
}
