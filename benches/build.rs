//! Compiles the kernels of the benchmarks, and NVIDIA's algorithms if the feature `cub` asks for them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    gpustream_build::Kernels::new()
        .file("bench.cu")
        .file("meetings.cu")
        .build()
        .unwrap_or_else(|error| error.exit());
    let library = Path::new(&env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("libcub.so");
    if env::var_os("CARGO_FEATURE_CUB").is_none() {
        return fs::write(library, []).expect("OUT_DIR can be written");
    }
    let source = "src/bin/algorithms/cub.cu";
    println!("cargo::rerun-if-changed={source}");
    println!("cargo::rerun-if-env-changed=NVCC");
    let nvcc = env::var_os("NVCC").map_or_else(|| PathBuf::from("nvcc"), PathBuf::from);
    let mut command = Command::new(&nvcc);
    command.args(["-O3", "-std=c++17", "--shared", "-Xcompiler", "-fPIC", "-cudart", "static"]);
    command.args(["-gencode", "arch=compute_90,code=[sm_90,compute_90]", source, "-o"]).arg(&library);
    // NVIDIA's Python wheels have the libraries here.
    if let Some(lib) = nvcc.parent().and_then(Path::parent).map(|toolkit| toolkit.join("lib")) {
        command.arg("-L").arg(lib);
    }
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{} failed: {status}", nvcc.display()),
        Err(error) => panic!("{}: {error}; name nvcc in the variable NVCC", nvcc.display()),
    }
}
