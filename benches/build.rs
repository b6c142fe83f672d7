//! Compiles the kernels of the benchmarks, and NVIDIA's algorithms if the feature `cub` asks for them.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    gpustream_build::Kernels::new()
        .file("bench.cu")
        .file("meetings.cu")
        .allow_stacks()
        .build()
        .unwrap_or_else(|error| error.exit());
    let library = PathBuf::from(env::var("OUT_DIR")?).join("libcub.so");
    if env::var_os("CARGO_FEATURE_CUB").is_none() {
        // The program `algorithms` contains the file in any case.
        return Ok(fs::write(library, [])?);
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
    let status = command
        .status()
        .map_err(|error| format!("{}: {error}; name nvcc in the variable NVCC", nvcc.display()))?;
    if status.success() { Ok(()) } else { Err(format!("{} failed: {status}", nvcc.display()).into()) }
}
